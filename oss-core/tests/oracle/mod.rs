//! The plain oracle of custody and completion, and the world that is held against it.
//!
//! The oracle keeps lists and flags and no clever structure. What a step does to it is written down straight from the truth table
//! and the custody rules; the real domain is asked the same and must agree.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockgate::Errno;
use lockgate::completion::{
    Cause, Debt, Direction, Fence, Handle, Lane, LaneHandle, Ledger, Loan, Observation, Outcome,
    Refusal, SlotError, SlotId, Submission, Watch,
};
use lockgate::custody::{
    Class, Domain, EntryId, Identity, Native, Owner, Receipt, Release, RetryError, Unreleased,
};

/// A small generator whose whole state is its seed.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// What one native release call will do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Ambiguous,
    NothingDone,
    Panics,
    Works,
}

/// One step of a schedule. Indices are taken modulo what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Own {
        parent: u8,
        bytes: u16,
        fate: [Fate; 2],
    },
    Close(u8),
    Drop(u8),
    CloseAgain(u8),
    HandOver(u8),
    Retry(u8),
    Maintain(u8),
    Submit {
        lane: u8,
        loans: [u8; 2],
        how: How,
    },
    Batch {
        lane: u8,
        loan: u8,
        how: [How; 3],
    },
    Fence(u8, Truth),
    Report(u8, Truth),
    Poll(u8, View),
    Wait(u8, View),
    Recover(u8, View),
    Take(u8, View),
    Cancel(u8, View),
    DropHandle(u8),
    Sweep(u8),
    CloseLane(u8),
    Replace(u8),
    FailDrains(u8, u8),
    CloseGate,
    Abandon,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    NotSubmitted,
    Panics,
    Possibly,
    Submitted,
}

/// What a fence really is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Truth {
    Failed,
    Indeterminate,
    Pending,
    Succeeded,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum View {
    Future,
    Handle,
    Slot,
}

impl Step {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let fate = |rng: &mut Rng| match rng.below(8) {
            0 => Fate::Ambiguous,
            1 | 2 => Fate::NothingDone,
            3 if rng.below(4) == 0 => Fate::Panics,
            _ => Fate::Works,
        };
        let how = |rng: &mut Rng| match rng.below(12) {
            0 => Some(How::NotSubmitted),
            1 => Some(How::Possibly),
            2 if rng.below(4) == 0 => Some(How::Panics),
            _ => None,
        };
        let truth = |rng: &mut Rng| match rng.below(5) {
            0 => Truth::Failed,
            1 => Truth::Indeterminate,
            2 => Truth::Pending,
            _ => Truth::Succeeded,
        };
        let view = |rng: &mut Rng| match rng.below(3) {
            0 => View::Future,
            1 => View::Handle,
            _ => View::Slot,
        };
        let at = (rng.next() >> 16) as u8;
        let how = |rng: &mut Rng| how(rng).unwrap_or(How::Submitted);
        match rng.below(64) {
            0..8 => Self::Own {
                parent: at,
                bytes: rng.below(5_000) as u16,
                fate: [fate(rng), fate(rng)],
            },
            8..12 => Self::Close(at),
            12..14 => Self::Drop(at),
            14 => Self::CloseAgain(at),
            15 => Self::HandOver(at),
            16..19 => Self::Retry(at),
            19..21 => Self::Maintain(rng.below(4) as u8),
            21..30 => Self::Submit {
                lane: at,
                loans: [rng.next() as u8, rng.next() as u8],
                how: how(rng),
            },
            30 => Self::Batch {
                lane: at,
                loan: rng.next() as u8,
                how: [how(rng), how(rng), how(rng)],
            },
            31..36 => Self::Fence(at, truth(rng)),
            36..38 => Self::Report(at, truth(rng)),
            38..42 => Self::Poll(at, view(rng)),
            42..45 => Self::Wait(at, view(rng)),
            45..48 => Self::Recover(at, view(rng)),
            48..52 => Self::Take(at, view(rng)),
            52 => Self::Cancel(at, view(rng)),
            53..55 => Self::DropHandle(at),
            55..58 => Self::Sweep(1 + rng.below(64) as u8),
            58 => Self::CloseLane(at),
            59..61 => Self::Replace(at),
            61 => Self::FailDrains(at, rng.below(3) as u8),
            62 if rng.below(8) == 0 => Self::CloseGate,
            63 if rng.below(8) == 0 => Self::Abandon,
            _ => Self::Sweep(1),
        }
    }
}

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

/// The native object.
struct Object {
    fate: [Fate; 2],
    log: Arc<ObjectLog>,
}

#[derive(Default)]
struct ObjectLog {
    calls: AtomicU32,
    drops: AtomicU32,
}

impl Native for Object {
    fn identity(&self) -> Identity {
        Identity::new("object")
    }

    fn release(&mut self) -> Release {
        let call = self.log.calls.fetch_add(1, Ordering::SeqCst);
        match self.fate.get(call as usize) {
            Some(Fate::Ambiguous) => Release::Ambiguous(Errno::IO),
            Some(Fate::NothingDone) => Release::NothingDone(Errno::BUSY),
            Some(Fate::Panics) => panic!("planned"),
            Some(Fate::Works) | None => Release::Released(Receipt::of(self.identity())),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.log.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// The device.
struct Device {
    watch: Watch,
    state: Mutex<DeviceState>,
}

#[derive(Default)]
struct DeviceState {
    fences: BTreeMap<SlotId, Truth>,
    failing: u32,
    drains: u32,
    settled: BTreeMap<SlotId, u32>,
}

impl Device {
    fn new(watch: Watch) -> Arc<Self> {
        Arc::new(Self {
            watch,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, DeviceState> {
        self.state.lock().expect("no panic under the lock")
    }
}

fn fence(truth: Truth) -> Fence {
    match truth {
        Truth::Failed => Fence::FailedQuiescent(Cause::step("failed")),
        Truth::Indeterminate => Fence::Indeterminate,
        Truth::Pending => Fence::Pending,
        Truth::Succeeded => Fence::Succeeded,
    }
}

impl Lane for Device {
    fn identity(&self) -> Identity {
        Identity::new("device")
    }

    fn query(&self, slot: SlotId) -> Fence {
        fence(
            self.state()
                .fences
                .get(&slot)
                .copied()
                .unwrap_or(Truth::Pending),
        )
    }

    fn wait(&self, slot: SlotId, _: Option<Duration>) -> Fence {
        self.query(slot)
    }

    fn drain(&self) -> Result<Receipt, Cause> {
        let mut state = self.state();
        state.drains += 1;
        if state.failing > 0 {
            state.failing -= 1;
            return Err(Cause::errno("drain", Errno::IO));
        }
        Ok(Receipt::of(self.identity()))
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn settled(&self, slot: SlotId) {
        *self.state().settled.entry(slot).or_default() += 1;
    }
}

/// What the oracle knows of an owner.
struct KnownOwner {
    parent: Option<usize>,
    bytes: u64,
    fate: [Fate; 2],
    calls: u32,
    /// The last failure.
    tried: Option<Class>,
    place: Place,
    id: EntryId,
    log: Arc<ObjectLog>,
    real: Real,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Quarantine,
    Released,
    Unreleased,
    User,
}

enum Real {
    Gone,
    Owner(Owner<Object>),
    Unreleased(Unreleased<Object>),
}

/// What the oracle knows of a lane.
struct KnownLane {
    device: Arc<Device>,
    closed: bool,
    proven: bool,
    failing: u32,
    drains: u32,
}

/// What the oracle knows of a debt.
struct KnownDebt {
    slot: SlotId,
    lane: usize,
    loans: Vec<usize>,
    phase: Phase,
    truth: Truth,
    reported: Option<Truth>,
    blocked: bool,
    cancelled: bool,
    listed: bool,
    orphaned: bool,
    drain_failed: bool,
    handle: Option<Handle<Payload>>,
    drops: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    InFlight,
    Quarantined,
    Ready(End),
    Taken,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Abandoned,
    Failed,
    Succeeded,
}

struct Payload(Arc<AtomicU64>);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
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

    fn new_lane(&mut self, watch: Watch) -> usize {
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
            Step::CloseGate => {
                assert_eq!(self.domain.gate().close(), !self.gate_closed);
                assert!(
                    self.domain.gate().is_quiet(),
                    "nobody is inside between steps"
                );
                self.gate_closed = true;
            }
            Step::Abandon => self.abandon(),
        }
    }

    // Owners.

    fn own(&mut self, parent: u8, bytes: u64, fate: [Fate; 2]) {
        let admission = self.domain.admit();
        assert_eq!(admission.is_err(), self.gate_closed);
        let Ok(admission) = admission else {
            return;
        };
        let mut deps = Vec::new();
        let mut parent_at = None;
        if parent.is_multiple_of(2)
            && let Some(at) = self.pick(parent / 2, |owner| matches!(owner.real, Real::Owner(_)))
            && let Real::Owner(owner) = &self.owners[at].real
        {
            deps.push(owner.hold());
            parent_at = Some(at);
        }
        let charge = self.domain.budget().reserve(bytes).expect("fits").commit();
        let log = Arc::new(ObjectLog::default());
        let native = Object {
            fate,
            log: Arc::clone(&log),
        };
        let owner = admission.own(native, deps, charge);
        self.owners.push(KnownOwner {
            parent: parent_at,
            bytes,
            fate,
            calls: 0,
            tried: None,
            place: Place::User,
            id: EntryId::Object(owner.object()),
            log,
            real: Real::Owner(owner),
        });
    }

    fn pick(&self, at: u8, fits: impl Fn(&KnownOwner) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.owners.len())
            .filter(|at| fits(&self.owners[*at]))
            .collect();
        (!all.is_empty()).then(|| all[usize::from(at) % all.len()])
    }

    /// Who keeps this owner from being released.
    fn holders(&self, at: usize) -> usize {
        let children = self
            .owners
            .iter()
            .filter(|owner| owner.parent == Some(at) && owner.place != Place::Released);
        let loans = self
            .debts
            .iter()
            .filter(|debt| {
                matches!(
                    debt.phase,
                    Phase::InFlight | Phase::Unknown | Phase::Quarantined
                )
            })
            .flat_map(|debt| &debt.loans)
            .filter(|loan| **loan == at);
        children.count() + loans.count()
    }

    /// The one native call, as the oracle expects it. Says whether the object is released.
    fn expect_call(&mut self, at: usize) -> bool {
        let owner = &mut self.owners[at];
        let fate = owner
            .fate
            .get(owner.calls as usize)
            .copied()
            .unwrap_or(Fate::Works);
        owner.calls += 1;
        owner.tried = match fate {
            Fate::Works => {
                owner.place = Place::Released;
                happened("released");
                return true;
            }
            Fate::NothingDone => {
                happened("retryable failure");
                Some(Class::Retryable)
            }
            Fate::Ambiguous | Fate::Panics => {
                happened("terminal failure");
                Some(Class::Terminal)
            }
        };
        false
    }

    fn close(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Owner(_))) else {
            return;
        };
        let Real::Owner(owner) = std::mem::replace(&mut self.owners[at].real, Real::Gone) else {
            return;
        };
        let held = self.holders(at) > 0;
        let released = !held && self.expect_call(at);
        match owner.close() {
            Ok(receipt) => {
                assert!(released, "a receipt without a release");
                assert_eq!(receipt.bytes(), self.owners[at].bytes);
            }
            Err(unreleased) => {
                assert!(!released, "released, but the object came back");
                if held {
                    happened("close refused, held");
                }
                let known = &mut self.owners[at];
                assert_eq!(
                    unreleased.class(),
                    known.tried.unwrap_or(Class::NeverAttempted)
                );
                known.place = Place::Unreleased;
                known.real = Real::Unreleased(unreleased);
            }
        }
    }

    fn drop_owner(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Owner(_))) else {
            return;
        };
        if self.holders(at) > 0 || !self.expect_call(at) {
            self.owners[at].place = Place::Quarantine;
            happened("drop to quarantine");
        }
        self.owners[at].real = Real::Gone;
    }

    fn close_again(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Unreleased(_))) else {
            return;
        };
        let Real::Unreleased(unreleased) = std::mem::replace(&mut self.owners[at].real, Real::Gone)
        else {
            return;
        };
        let may = self.owners[at].tried.is_none() && self.holders(at) == 0;
        let released = may && self.expect_call(at);
        match unreleased.close() {
            Ok(_) => assert!(released, "a receipt without a release"),
            Err(unreleased) => {
                assert!(!released, "released, but the object came back");
                self.owners[at].real = Real::Unreleased(unreleased);
            }
        }
    }

    fn hand_over(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Unreleased(_))) else {
            return;
        };
        let known = &mut self.owners[at];
        if let Real::Unreleased(unreleased) = std::mem::replace(&mut known.real, Real::Gone) {
            assert_eq!(unreleased.quarantine(), known.id);
            known.place = Place::Quarantine;
        }
    }

    // The quarantine.

    fn retry(&mut self, at: u8) {
        let entries: Vec<EntryId> = self
            .domain
            .quarantine()
            .list()
            .iter()
            .map(|report| report.entry)
            .collect();
        if entries.is_empty() {
            return;
        }
        self.retry_entry(entries[usize::from(at) % entries.len()]);
    }

    fn retry_entry(&mut self, id: EntryId) {
        let answer = self.domain.quarantine().retry(id);
        if let Some(at) = self.owners.iter().position(|owner| owner.id == id) {
            if self.owners[at].tried == Some(Class::Terminal) {
                happened("retry refused, terminal");
                assert!(matches!(answer, Err(RetryError::Terminal(_))), "{answer:?}");
            } else if self.holders(at) > 0 {
                happened("retry refused, held");
                let holders = self.holders(at);
                assert_eq!(answer, Err(RetryError::Held { holders }));
            } else if self.expect_call(at) {
                happened("retried");
                assert!(answer.is_ok(), "{answer:?}");
            } else {
                assert!(matches!(answer, Err(RetryError::Failed(_))), "{answer:?}");
            }
            return;
        }
        let at = self.debt_of_entry(id);
        assert_eq!(answer.is_ok(), self.expect_maintenance(at), "{answer:?}");
    }

    fn debt_of_entry(&self, id: EntryId) -> usize {
        self.debts
            .iter()
            .position(|debt| EntryId::Slot(debt.slot) == id)
            .expect("an entry is an owner or a debt")
    }

    /// What an attempt of the quarantine does to a debt. Says whether the entry is gone after it.
    fn expect_maintenance(&mut self, at: usize) -> bool {
        if !matches!(self.debts[at].phase, Phase::Ready(_) | Phase::Taken) {
            self.expect_observation(at, false);
        }
        if !matches!(self.debts[at].phase, Phase::Ready(_) | Phase::Taken) && !self.expect_drain(at)
        {
            return false;
        }
        self.debts[at].listed = false;
        if self.abandoned && self.debts[at].phase != Phase::Taken {
            self.debts[at].orphaned = true;
            if self.debts[at].handle.is_none() {
                self.debts[at].phase = Phase::Taken;
            }
        }
        true
    }

    fn maintain(&mut self, most: usize) {
        let fresh = |world: &Self| -> Vec<EntryId> {
            let owners = world
                .owners
                .iter()
                .filter(|owner| owner.place == Place::Quarantine && owner.tried.is_none())
                .map(|owner| owner.id);
            let debts = world
                .debts
                .iter()
                .filter(|debt| debt.listed && !debt.drain_failed)
                .map(|debt| EntryId::Slot(debt.slot));
            owners.chain(debts).collect()
        };
        let before = fresh(self);
        let listed = |world: &Self| -> BTreeSet<EntryId> {
            world
                .domain
                .quarantine()
                .list()
                .iter()
                .map(|report| report.entry)
                .collect()
        };
        let listed_before = listed(self);
        let done = self.domain.quarantine().maintain(most);
        let listed_after = listed(self);
        let mut gone: Vec<EntryId> = listed_before.difference(&listed_after).copied().collect();
        assert!(done.attempted() <= most, "more calls than allowed");
        assert_eq!(gone.len(), done.receipts.len(), "each receipt is one entry");
        gone.extend(&done.failed);
        // In whichever order they were tried, each must have been allowed: nobody held it at that moment.
        while !gone.is_empty() {
            // The first drains of a lane are those that fail.
            let failed_debt =
                |id: &EntryId| matches!(id, EntryId::Slot(_)) && done.failed.contains(id);
            let next = gone.iter().position(failed_debt);
            let next = next.or_else(|| {
                gone.iter().position(|id| {
                    assert!(before.contains(id), "{id} was tried before or is no entry");
                    match self.owners.iter().position(|owner| owner.id == *id) {
                        Some(at) => self.holders(at) == 0,
                        None => true,
                    }
                })
            });
            let id = gone.swap_remove(next.expect("something was released while it was held"));
            let worked = match self.owners.iter().position(|owner| owner.id == id) {
                Some(at) => self.expect_call(at),
                None => {
                    let at = self.debt_of_entry(id);
                    self.expect_maintenance(at)
                }
            };
            assert_eq!(worked, !done.failed.contains(&id), "{id}");
            happened("maintained");
        }
        let left = fresh(self);
        assert_eq!(done.left, left.len());
        if done.attempted() < most {
            let free = left.iter().find(|id| {
                let owner = self.owners.iter().position(|owner| owner.id == **id);
                owner.is_none_or(|at| self.holders(at) == 0)
            });
            assert_eq!(free, None, "left although nobody holds it");
        }
    }

    // Debts.

    fn debt(&self, at: u8) -> Option<usize> {
        (!self.debts.is_empty()).then(|| usize::from(at) % self.debts.len())
    }

    fn make_debt(&self, loans: &[usize]) -> (Debt<Payload>, Arc<AtomicU64>) {
        let drops = Arc::new(AtomicU64::new(0));
        let mut debt = Debt::new(Payload(Arc::clone(&drops)));
        for at in loans {
            if let Real::Owner(owner) = &self.owners[*at].real {
                let generation = self.domain.serials().take().expect("not exhausted").into();
                debt = debt.lend(Loan::new(owner.hold(), generation, 0..1, Direction::Write));
            }
        }
        (debt, drops)
    }

    fn loans(&self, wanted: &[u8]) -> Vec<usize> {
        wanted
            .iter()
            .filter(|at| !at.is_multiple_of(4))
            .filter_map(|at| self.pick(*at, |owner| matches!(owner.real, Real::Owner(_))))
            .collect()
    }

    fn refusal(&self, lane: usize) -> Option<Refusal> {
        if self.gate_closed {
            happened("refused, gate closed");
            Some(Refusal::GateClosed)
        } else if self.lanes[lane].closed {
            happened("refused, lane closed");
            Some(Refusal::LaneClosed)
        } else if self.abandoned {
            Some(Refusal::GateClosed)
        } else {
            None
        }
    }

    fn submit(&mut self, port: u8, wanted: [u8; 2], how: How) {
        let (port, lane) = &self.ports[usize::from(port) % self.ports.len()];
        let (port, lane) = (port.clone(), *lane);
        let loans = self.loans(&wanted);
        let (debt, drops) = self.make_debt(&loans);
        let refusal = self.refusal(lane);
        let submitted = self.ledger.submit(&port, debt, |_| {
            assert!(refusal.is_none(), "posted although refused");
            match how {
                How::NotSubmitted => Submission::NotSubmitted(Cause::step("post")),
                How::Panics => panic!("planned"),
                How::Possibly => Submission::PossiblySubmitted(Cause::step("post")),
                How::Submitted => Submission::Submitted,
            }
        });
        let refusal = match how {
            How::NotSubmitted => refusal.or(Some(Refusal::NotSubmitted(Cause::step("post")))),
            _ => refusal,
        };
        match (submitted, refusal) {
            (Ok(handle), None) => self.note(handle, lane, loans, how, drops),
            (Err(rejected), Some(refusal)) => {
                assert_eq!(rejected.refusal, refusal);
                self.rolled_back(rejected.debt, &loans, &drops);
            }
            (submitted, refusal) => panic!("{:?} instead of {refusal:?}", submitted.map(drop)),
        }
    }

    fn rolled_back(&self, debt: Debt<Payload>, loans: &[usize], drops: &AtomicU64) {
        happened("rolled back");
        let (payload, back) = debt.into_parts();
        assert_eq!(back.len(), loans.len(), "a loan was lost");
        assert_eq!(drops.load(Ordering::SeqCst), 0, "the payload was lost");
        drop((payload, back));
    }

    fn note(
        &mut self,
        handle: Handle<Payload>,
        lane: usize,
        loans: Vec<usize>,
        how: How,
        drops: Arc<AtomicU64>,
    ) {
        assert!(
            self.slots.insert(handle.slot()),
            "slot {} came twice",
            handle.slot()
        );
        let phase = if how == How::Submitted {
            Phase::InFlight
        } else {
            happened("possibly submitted");
            self.lanes[lane].closed = true;
            Phase::Unknown
        };
        self.debts.push(KnownDebt {
            slot: handle.slot(),
            lane,
            loans,
            phase,
            truth: Truth::Pending,
            reported: None,
            blocked: false,
            cancelled: false,
            listed: false,
            orphaned: false,
            drain_failed: false,
            handle: Some(handle),
            drops,
        });
    }

    fn batch(&mut self, port: u8, loan: u8, how: [How; 3]) {
        let (port, lane) = &self.ports[usize::from(port) % self.ports.len()];
        let (port, lane) = (port.clone(), *lane);
        let loans = self.loans(&[loan]);
        let mut drops = Vec::new();
        let debts = how
            .iter()
            .map(|_| {
                let (debt, dropped) = self.make_debt(&loans);
                drops.push(dropped);
                debt
            })
            .collect();
        let refusal = self.refusal(lane);
        let results = self.ledger.submit_batch(&port, debts, |slots| {
            assert_eq!(slots.len(), how.len());
            // The first request of which the call says nothing ends what it says.
            how.iter()
                .take_while(|how| **how != How::Panics)
                .map(|how| match how {
                    How::NotSubmitted => Submission::NotSubmitted(Cause::step("post")),
                    How::Submitted => Submission::Submitted,
                    How::Possibly | How::Panics => {
                        Submission::PossiblySubmitted(Cause::step("post"))
                    }
                })
                .collect()
        });
        let mut silent = false;
        for ((result, how), drops) in results.into_iter().zip(how).zip(drops) {
            silent |= how == How::Panics;
            let how = if silent { How::Possibly } else { how };
            let refusal = match how {
                How::NotSubmitted => refusal
                    .clone()
                    .or(Some(Refusal::NotSubmitted(Cause::step("post")))),
                _ => refusal.clone(),
            };
            match (result, refusal) {
                (Ok(handle), None) => self.note(handle, lane, loans.clone(), how, drops),
                (Err(rejected), Some(refusal)) => {
                    assert_eq!(rejected.refusal, refusal);
                    self.rolled_back(rejected.debt, &loans, &drops);
                }
                (result, refusal) => panic!("{:?} instead of {refusal:?}", result.map(drop)),
            }
        }
    }

    /// The device's truth changes; once it is quiet it stays.
    fn set_truth(&mut self, at: usize, truth: Truth) {
        let debt = &mut self.debts[at];
        if !matches!(debt.truth, Truth::Succeeded | Truth::Failed) {
            debt.truth = truth;
            let device = &self.lanes[debt.lane].device;
            device.state().fences.insert(debt.slot, truth);
        }
    }

    fn report(&mut self, at: u8, truth: Truth) {
        let Some(at) = self.debt(at) else {
            return;
        };
        self.set_truth(at, truth);
        let debt = &mut self.debts[at];
        self.ledger.reports().changed(debt.slot, fence(debt.truth));
        let quiet = |truth: &Truth| matches!(truth, Truth::Succeeded | Truth::Failed);
        if debt.phase == Phase::InFlight
            && debt.truth != Truth::Pending
            && !debt.reported.as_ref().is_some_and(quiet)
        {
            debt.reported = Some(debt.truth);
        }
    }

    fn settle(&mut self, at: usize, end: End) -> Observation {
        let debt = &mut self.debts[at];
        if debt.cancelled {
            debt.phase = Phase::Taken;
            debt.listed = false;
        } else {
            debt.phase = Phase::Ready(end);
            debt.listed &= self.abandoned;
        }
        Observation::Ready
    }

    /// The truth table: what looking at this debt says and does.
    fn expect_observation(&mut self, at: usize, blocking: bool) -> Observation {
        let debt = &mut self.debts[at];
        let proven = self.lanes[debt.lane].proven;
        match debt.phase {
            Phase::Ready(_) | Phase::Taken => return Observation::Ready,
            Phase::Unknown | Phase::Quarantined if proven => {
                happened("settled by the proof of another's drain");
                return self.settle(at, End::Abandoned);
            }
            Phase::Unknown => return Observation::Indeterminate,
            Phase::Quarantined => return Observation::Quarantined,
            Phase::InFlight => {}
        }
        let seen = match debt.reported.take() {
            Some(Truth::Indeterminate) if blocking => debt.truth,
            Some(reported) => reported,
            None => debt.truth,
        };
        match seen {
            Truth::Succeeded => self.settle(at, End::Succeeded),
            Truth::Failed => self.settle(at, End::Failed),
            Truth::Pending | Truth::Indeterminate if proven => {
                happened("settled by the proof of another's drain");
                self.settle(at, End::Abandoned)
            }
            Truth::Pending => Observation::Pending,
            Truth::Indeterminate => {
                debt.blocked |= blocking;
                Observation::Indeterminate
            }
        }
    }

    /// Says whether the drain proved anything.
    fn expect_drain(&mut self, at: usize) -> bool {
        let lane = &mut self.lanes[self.debts[at].lane];
        lane.closed = true;
        if lane.proven {
            happened("second drain spared");
        } else {
            lane.drains += 1;
            if lane.failing > 0 {
                lane.failing -= 1;
                happened("drain failed");
                let debt = &mut self.debts[at];
                debt.phase = Phase::Quarantined;
                debt.drain_failed = true;
                debt.listed = true;
                return false;
            }
            lane.proven = true;
        }
        self.settle(at, End::Abandoned);
        true
    }

    fn look(&mut self, at: u8, view: View, blocking: bool) {
        let Some(at) = self.debt(at) else {
            return;
        };
        let gone = self.debts[at].phase == Phase::Taken;
        let limit = Some(Duration::ZERO);
        let slot = self.debts[at].slot;
        let real = match (&self.debts[at].handle, view, blocking) {
            (Some(handle), View::Handle, false) => handle.poll(),
            (Some(handle), View::Handle | View::Future, true) => handle.wait(limit),
            (Some(handle), View::Future, false) => {
                match pin!(handle.finished()).poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => Ok(Observation::Pending),
                    Poll::Ready(observation) => observation,
                }
            }
            (_, _, false) => self.ledger.poll(slot),
            (_, _, true) => self.ledger.wait(slot, limit),
        };
        let expected = if gone {
            Err(SlotError::Gone)
        } else {
            Ok(self.expect_observation(at, blocking))
        };
        assert_eq!(real, expected);
    }

    fn recover(&mut self, at: u8, view: View) {
        let Some(at) = self.debt(at) else {
            return;
        };
        let real = match (&self.debts[at].handle, view) {
            (Some(handle), View::Handle | View::Future) => handle.recover(),
            _ => self.ledger.recover(self.debts[at].slot),
        };
        let expected = match self.debts[at].phase {
            Phase::Ready(_) => Ok(Observation::Ready),
            Phase::Taken => Err(SlotError::Gone),
            Phase::InFlight if !self.debts[at].blocked => {
                happened("not eligible");
                Err(SlotError::NotEligible)
            }
            Phase::InFlight | Phase::Unknown | Phase::Quarantined => Ok(if self.expect_drain(at) {
                Observation::Ready
            } else {
                Observation::Quarantined
            }),
        };
        assert_eq!(real, expected);
    }

    fn take(&mut self, at: usize, view: View) {
        let slot = self.debts[at].slot;
        let real = match (&self.debts[at].handle, view) {
            (Some(handle), View::Handle | View::Future) => handle.take(),
            _ => self.ledger.take(slot),
        };
        let debt = &mut self.debts[at];
        match (real, debt.phase) {
            (Ok(Some(outcome)), Phase::Ready(end)) => {
                let same = match &outcome {
                    Outcome::AbandonedAfterDrain(..) => {
                        happened("abandoned outcome");
                        end == End::Abandoned
                    }
                    Outcome::FailedQuiescent(..) => {
                        happened("failed outcome");
                        end == End::Failed
                    }
                    Outcome::Succeeded(_) => {
                        happened("published");
                        assert_eq!(debt.truth, Truth::Succeeded, "published an unknown outcome");
                        end == End::Succeeded
                    }
                };
                assert!(same, "{end:?} was taken as something else");
                debt.phase = Phase::Taken;
                debt.listed = false;
            }
            (Ok(None), Phase::InFlight | Phase::Unknown | Phase::Quarantined)
            | (Err(SlotError::Gone), Phase::Taken) => {}
            (real, phase) => panic!("{:?} in phase {phase:?}", real.map(|some| some.is_some())),
        }
    }

    fn cancel(&mut self, at: u8, view: View) {
        let Some(at) = self.debt(at) else {
            return;
        };
        let slot = self.debts[at].slot;
        let by_handle = view != View::Slot && self.debts[at].handle.is_some();
        let real = match self.debts[at].handle.take() {
            Some(handle) if by_handle => handle.cancel(),
            kept => {
                self.debts[at].handle = kept;
                self.ledger.cancel(slot)
            }
        };
        let debt = &mut self.debts[at];
        let expected = match debt.phase {
            Phase::InFlight => Ok(Observation::Pending),
            Phase::Unknown => Ok(Observation::Indeterminate),
            Phase::Quarantined => Ok(Observation::Quarantined),
            Phase::Ready(_) => {
                debt.phase = Phase::Taken;
                debt.listed = false;
                Ok(Observation::Ready)
            }
            Phase::Taken => Err(SlotError::Gone),
        };
        if expected != Ok(Observation::Ready) && expected.is_ok() {
            happened("cancelled before settled");
            debt.cancelled = true;
        }
        assert_eq!(real, expected);
    }

    fn drop_handle(&mut self, at: u8) {
        let Some(at) = self.debt(at) else {
            return;
        };
        let debt = &mut self.debts[at];
        if debt.handle.take().is_some() && debt.orphaned && matches!(debt.phase, Phase::Ready(_)) {
            debt.phase = Phase::Taken;
        }
    }

    fn sweep(&mut self, most: usize) {
        let sweep = self.ledger.sweep(most).expect("1 to 64");
        assert!(sweep.observations.len() <= most);
        for (slot, observation) in &sweep.observations {
            let at = self
                .debts
                .iter()
                .position(|debt| debt.slot == *slot)
                .expect("only debts are observed");
            assert_eq!(
                self.expect_observation(at, false),
                *observation,
                "slot {slot}"
            );
        }
        let retained = self
            .debts
            .iter()
            .filter(|debt| debt.phase != Phase::Taken)
            .count();
        assert_eq!(sweep.retained, retained);
    }

    fn replace(&mut self, at: u8) {
        let at = usize::from(at) % self.ports.len();
        let old = self.ports[at].1;
        let watch = self.lanes[old].device.watch;
        let device = Device::new(watch);
        let answer = self.ports[at].0.replace(device.clone());
        assert_eq!(answer.is_ok(), self.lanes[old].closed);
        if answer.is_ok() {
            happened("replaced");
            let lane = self.new_lane(watch);
            self.lanes[lane].device = device;
            self.ports[at].1 = lane;
        }
    }

    fn abandon(&mut self) {
        let left = self.ledger.abandon();
        let mut expected = 0;
        for debt in &mut self.debts {
            if debt.phase != Phase::Taken {
                expected += 1;
                // Of what maintenance has settled only the handle is waited for.
                debt.listed = !debt.orphaned;
                self.lanes[debt.lane].closed = true;
            }
        }
        if expected > 0 {
            happened("left with debts");
        }
        assert_eq!(left, expected);
        self.abandoned = true;
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
