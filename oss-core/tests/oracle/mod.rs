//! The plain oracle of custody and completion, and the world that is held against it.
//!
//! The oracle keeps lists and flags and no clever structure. What a step does to it is written down straight from the truth table
//! and the custody rules; the real domain is asked the same and must agree.

mod debts;
mod device;
mod known;
mod owners;
mod steps;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate::completion::{LaneHandle, Ledger, SlotId, Watch};
use lockgate::custody::{Class, Domain};

use device::Device;
use known::{KnownDebt, KnownLane, KnownOwner, Phase, Place, Real};
pub(crate) use steps::{Rng, Step};
use steps::{Truth, View};

/// How often something happened over all schedules, so that a test which never reaches a case can't pass.
static HAPPENED: Mutex<BTreeMap<&'static str, u64>> = Mutex::new(BTreeMap::new());

fn happened(what: &'static str) {
    *HAPPENED
        .lock()
        .expect("no panic under the lock")
        .entry(what)
        .or_default() += 1;
}

pub(crate) fn assert_everything_happened() {
    let happened = HAPPENED.lock().expect("no panic under the lock");
    println!("{happened:#?}");
    for what in [
        "released",
        "retryable failure",
        "terminal failure",
        "close refused, held",
        "drop to quarantine",
        "retried",
        "retry refused, held",
        "retry refused, terminal",
        "maintained",
        "published",
        "failed outcome",
        "abandoned outcome",
        "rolled back",
        "possibly submitted",
        "drain failed",
        "second drain spared",
        "settled by the proof of another's drain",
        "not eligible",
        "cancelled before settled",
        "replaced",
        "refused, lane closed",
        "refused, gate closed",
        "left with debts",
        "leaked at the end",
    ] {
        assert!(
            happened.get(what).copied().unwrap_or(0) > 0,
            "{what:?} never happened"
        );
    }
}

pub(crate) struct World {
    domain: Arc<Domain>,
    ledger: Ledger,
    ports: Vec<(LaneHandle, usize)>,
    lanes: Vec<KnownLane>,
    owners: Vec<KnownOwner>,
    debts: Vec<KnownDebt>,
    gate_closed: bool,
    abandoned: bool,
    slots: BTreeSet<SlotId>,
}

/// Enough that the budget never refuses: it has tests of its own.
const BUDGET: u64 = 1 << 40;

impl World {
    pub(crate) fn new() -> Self {
        let domain = Domain::new("schedule", BUDGET);
        let ledger = domain.ledger();
        let mut world = Self {
            domain,
            ledger,
            ports: Vec::new(),
            lanes: Vec::new(),
            owners: Vec::new(),
            debts: Vec::new(),
            gate_closed: false,
            abandoned: false,
            slots: BTreeSet::new(),
        };
        for watch in [Watch::Query, Watch::Report] {
            let lane = world.new_lane(watch);
            let device = world.lanes[lane].device.clone();
            world.ports.push((world.ledger.attach(device), lane));
        }
        world
    }

    pub(super) fn new_lane(&mut self, watch: Watch) -> usize {
        self.lanes.push(KnownLane {
            device: Device::new(watch),
            closed: false,
            proven: false,
            failing: 0,
            drains: 0,
        });
        self.lanes.len() - 1
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Own {
                parent,
                bytes,
                fate,
            } => self.own(parent, u64::from(bytes), fate),
            Step::Close(at) => self.close(at),
            Step::Drop(at) => self.drop_owner(at),
            Step::CloseAgain(at) => self.close_again(at),
            Step::HandOver(at) => self.hand_over(at),
            Step::Retry(at) => self.retry(at),
            Step::Maintain(most) => self.maintain(usize::from(most)),
            Step::Submit { lane, loans, how } => self.submit(lane, loans, how),
            Step::Batch { lane, loan, how } => self.batch(lane, loan, how),
            Step::Fence(at, truth) => {
                if let Some(at) = self.debt(at) {
                    self.set_truth(at, truth);
                }
            }
            Step::Report(at, truth) => self.report(at, truth),
            Step::Poll(at, view) => self.look(at, view, false),
            Step::Wait(at, view) => self.look(at, view, true),
            Step::Recover(at, view) => self.recover(at, view),
            Step::Take(at, view) => {
                if let Some(at) = self.debt(at) {
                    self.take(at, view);
                }
            }
            Step::Cancel(at, view) => self.cancel(at, view),
            Step::DropHandle(at) => self.drop_handle(at),
            Step::Sweep(most) => self.sweep(usize::from(most)),
            Step::CloseLane(at) => {
                let (port, lane) = &self.ports[usize::from(at) % self.ports.len()];
                port.close();
                self.lanes[*lane].closed = true;
            }
            Step::Replace(at) => self.replace(at),
            Step::FailDrains(at, count) => {
                let at = usize::from(at) % self.lanes.len();
                self.lanes[at].failing = u32::from(count);
                self.lanes[at].device.state().failing = u32::from(count);
            }
            Step::Shutdown => {
                let quiet = self.domain.shutdown(Some(Duration::ZERO)).quiet;
                assert!(quiet, "nobody is inside between steps");
                self.gate_closed = true;
            }
            Step::Abandon => self.abandon(),
        }
    }

    /// The world is what the oracle says.
    pub(crate) fn check(&self) {
        let unreleased = self
            .owners
            .iter()
            .filter(|owner| owner.place != Place::Released);
        let live = self.domain.live();
        assert_eq!(
            live.bytes,
            unreleased.clone().map(|owner| owner.bytes).sum::<u64>(),
            "charges"
        );
        assert_eq!(live.owners, unreleased.count() as u64, "live owners");
        let retained = self
            .debts
            .iter()
            .filter(|debt| debt.phase != Phase::Taken)
            .count();
        assert_eq!(live.debts, retained as u64, "debts");
        let quarantined = self
            .owners
            .iter()
            .filter(|owner| owner.place == Place::Quarantine)
            .count();
        let listed = self.debts.iter().filter(|debt| debt.listed).count();
        assert_eq!(live.quarantined, (quarantined + listed) as u64, "entries");
        assert_eq!(live.tickets, 0, "nobody is inside between steps");
        let failed = |debt: &&KnownDebt| debt.phase == Phase::Quarantined;
        assert_eq!(
            self.ledger.quarantined(),
            self.debts.iter().filter(failed).count()
        );
        for (at, owner) in self.owners.iter().enumerate() {
            let calls = owner.log.calls.load(Ordering::SeqCst);
            assert_eq!(calls, owner.calls, "native calls of owner {at}");
            let drops = owner.log.drops.load(Ordering::SeqCst);
            assert_eq!(
                drops == 1,
                owner.place == Place::Released,
                "handle of owner {at}"
            );
            if let Real::Owner(real) = &owner.real {
                assert_eq!(real.holders(), self.holders(at), "holders of owner {at}");
            }
        }
        for debt in &self.debts {
            let drops = debt.drops.load(Ordering::SeqCst);
            assert_eq!(
                drops == 1,
                debt.phase == Phase::Taken,
                "payload of {}",
                debt.slot
            );
            let settled = matches!(debt.phase, Phase::Ready(_) | Phase::Taken);
            let told = self.lanes[debt.lane]
                .device
                .state()
                .settled
                .get(&debt.slot)
                .copied();
            assert_eq!(
                told.unwrap_or(0),
                u32::from(settled),
                "settlements of {}",
                debt.slot
            );
        }
        for (port, lane) in &self.ports {
            assert_eq!(port.is_closed(), self.lanes[*lane].closed, "lane {lane}");
        }
        for lane in &self.lanes {
            assert_eq!(lane.device.state().drains, lane.drains, "drains");
        }
    }

    /// The device answers, the user lets go of everything, and what can be resolved is. What is left is what the rules keep.
    pub(crate) fn finish(mut self) {
        for at in 0..self.lanes.len() {
            self.lanes[at].failing = 0;
            self.lanes[at].device.state().failing = 0;
        }
        for at in 0..self.debts.len() {
            self.set_truth(at, Truth::Succeeded);
            let place = u8::try_from(at).expect("a schedule is short");
            // Twice: an earlier report that could not tell may come first.
            self.look(place, View::Slot, false);
            self.look(place, View::Slot, false);
            self.recover(place, View::Slot);
            self.drop_handle(place);
            self.take(at, View::Slot);
            self.check();
        }
        while self
            .owners
            .iter()
            .any(|owner| matches!(owner.real, Real::Owner(_)))
        {
            self.drop_owner(0);
        }
        while self
            .owners
            .iter()
            .any(|owner| matches!(owner.real, Real::Unreleased(_)))
        {
            self.hand_over(0);
        }
        self.check();
        loop {
            self.maintain(1_000);
            let retryable = self.owners.iter().position(|owner| {
                owner.place == Place::Quarantine && owner.tried == Some(Class::Retryable)
            });
            // A failed object is retried only once it is free; until then maintenance frees its children.
            let Some(at) = retryable else {
                break;
            };
            self.retry_entry(self.owners[at].id);
        }
        self.maintain(1_000);
        self.check();
        assert_eq!(self.ledger.retained(), 0, "debts that nobody can reach");
        // Only objects with a terminal failure are left, and what they hold.
        for at in 0..self.owners.len() {
            if self.owners[at].place == Place::Quarantine
                && self.owners[at].tried != Some(Class::Terminal)
            {
                assert!(self.holders(at) > 0, "owner {at} is kept without a reason");
            }
        }
        let Self { domain, owners, .. } = self;
        drop(domain);
        for (at, owner) in owners.iter().enumerate() {
            let released = owner.place == Place::Released;
            if !released {
                happened("leaked at the end");
            }
            assert_eq!(
                owner.log.drops.load(Ordering::SeqCst) == 1,
                released,
                "owner {at}"
            );
            assert_eq!(
                owner.log.calls.load(Ordering::SeqCst),
                owner.calls,
                "owner {at}"
            );
        }
    }
}
