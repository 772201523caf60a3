//! Tests of the driver: its decisions on a clock that stands still, and its thread.
#![allow(clippy::expect_used, reason = "a test fails by panic")]

use std::sync::Condvar;
use std::sync::mpsc;

use super::*;
use crate::Errno;
use crate::clock::ManualClock;
use crate::completion::{Cause, Debt, Fence, Handle, Lane, Outcome, Submission, Watch};
use crate::custody::{Identity, Receipt};
use crate::sync::Mutex;

const SECOND: Duration = Duration::from_secs(1);

/// A lane whose fence and drains a test sets.
struct Knobs {
    watch: Watch,
    fence: Mutex<Fence>,
    failing_drains: Mutex<u32>,
    drained_at: Mutex<Vec<Duration>>,
    clock: Arc<ManualClock>,
    told: Mutex<Option<mpsc::Sender<()>>>,
}

impl Lane for Knobs {
    fn identity(&self) -> Identity {
        Identity::new("knobs")
    }
    fn query(&self, _: SlotId) -> Fence {
        lock(&self.fence).clone()
    }
    fn wait(&self, slot: SlotId, _: Option<Duration>) -> Fence {
        self.query(slot)
    }
    fn drain(&self) -> Result<Receipt, Cause> {
        use crate::clock::Clock as _;
        lock(&self.drained_at).push(self.clock.now());
        let mut failing = lock(&self.failing_drains);
        if *failing > 0 {
            *failing -= 1;
            return Err(Cause::errno("drain", Errno::IO));
        }
        Ok(Receipt::of(self.identity()))
    }
    fn watch(&self) -> Watch {
        self.watch
    }
    fn settled(&self, _: SlotId) {
        if let Some(told) = &*lock(&self.told) {
            told.send(()).expect("the test listens");
        }
    }
}

struct Scene {
    domain: Arc<Domain>,
    clock: Arc<ManualClock>,
    lane: Arc<Knobs>,
    handle: Handle<()>,
    rounds: Rounds,
    shared: Shared,
}

fn scene(policy: Policy, watch: Watch) -> Scene {
    let clock = Arc::new(ManualClock::new());
    let domain = Domain::on_clock("driven", 0, Arc::clone(&clock) as Arc<_>);
    let lane = Arc::new(Knobs {
        watch,
        fence: Mutex::new(Fence::Pending),
        failing_drains: Mutex::new(0),
        drained_at: Mutex::default(),
        clock: Arc::clone(&clock),
        told: Mutex::default(),
    });
    let ledger = domain.ledger();
    let port = ledger.attach(Arc::clone(&lane) as Arc<_>);
    let handle = ledger
        .submit(&port, Debt::new(()), |_| Submission::Submitted)
        .expect("submitted");
    let shared = Shared {
        core: Arc::downgrade(domain.core()),
        stop: AtomicU64::new(0),
        sweeps: AtomicU64::new(0),
        settled: AtomicU64::new(0),
        failed_drains: AtomicU64::new(0),
        given_up: AtomicU64::new(0),
    };
    Scene {
        domain,
        clock,
        lane,
        handle,
        rounds: Rounds::new(policy),
        shared,
    }
}

impl Scene {
    fn round(&mut self) -> Option<Duration> {
        self.rounds.round(self.domain.core(), &self.shared)
    }

    /// Rounds every quarter of a second for this many seconds.
    fn rounds_for(&mut self, seconds: u32) {
        for _ in 0..seconds * 4 {
            self.round();
            self.clock.advance(SECOND / 4);
        }
    }

    fn drained_at(&self) -> Vec<f64> {
        let at = lock(&self.lane.drained_at);
        at.iter().map(Duration::as_secs_f64).collect()
    }
}

fn recovering(attempts: u32) -> Policy {
    Policy::sweeping().recovering(Recovery {
        after: SECOND,
        wait: Duration::ZERO,
        back_off: 2 * SECOND,
        longest_back_off: 5 * SECOND,
        attempts,
    })
}

#[test]
fn rests_grow_while_nothing_settles_and_start_again_after_it() {
    let mut scene = scene(Policy::sweeping(), Watch::Query);
    let rests: Vec<_> = (0..13).filter_map(|_| scene.round()).collect();
    assert_eq!(rests[0], Duration::from_micros(50));
    assert_eq!(rests[1], Duration::from_micros(100));
    assert_eq!(
        rests[12],
        Duration::from_millis(100),
        "bounded by the longest"
    );
    *lock(&scene.lane.fence) = Fence::Succeeded;
    assert_eq!(scene.round(), None, "there may be more at once");
    assert_eq!(scene.round(), Some(Duration::from_micros(50)));
    assert!(matches!(
        scene.handle.take(),
        Ok(Some(Outcome::Succeeded(())))
    ));
}

#[test]
fn without_recovery_nothing_is_ever_drained() {
    let mut scene = scene(Policy::sweeping(), Watch::Query);
    *lock(&scene.lane.fence) = Fence::Indeterminate;
    scene.rounds_for(1_000);
    assert_eq!(scene.drained_at(), [0.0; 0]);
    assert_eq!(scene.handle.poll(), Ok(Observation::Indeterminate));
}

#[test]
fn failing_drains_back_off_and_end_with_the_quarantine() {
    let mut scene = scene(recovering(4), Watch::Query);
    *lock(&scene.lane.fence) = Fence::Indeterminate;
    *lock(&scene.lane.failing_drains) = u32::MAX;
    scene.rounds_for(100);
    assert_eq!(scene.drained_at(), [1.0, 3.0, 7.0, 12.0]);
    assert_eq!(scene.shared.given_up.load(Ordering::Acquire), 1);
    assert_eq!(scene.domain.quarantine().count(), 1);
    // The explicit retry is still there.
    *lock(&scene.lane.failing_drains) = 0;
    assert_eq!(scene.handle.recover(), Ok(Observation::Ready));
    scene.round();
    assert!(scene.rounds.trouble.is_empty());
}

#[test]
fn a_debt_that_can_tell_again_is_not_drained() {
    let mut scene = scene(recovering(4), Watch::Query);
    *lock(&scene.lane.fence) = Fence::Indeterminate;
    scene.round();
    *lock(&scene.lane.fence) = Fence::Pending;
    scene.rounds_for(10);
    assert_eq!(scene.drained_at(), [0.0; 0]);
    *lock(&scene.lane.fence) = Fence::Succeeded;
    scene.round();
    assert!(matches!(
        scene.handle.take(),
        Ok(Some(Outcome::Succeeded(())))
    ));
}

#[test]
fn a_possible_submission_on_a_reporting_lane_is_recovered() {
    let mut scene = scene(recovering(4), Watch::Report);
    let ledger = scene.domain.ledger();
    let port = ledger.attach(Arc::clone(&scene.lane) as Arc<_>);
    let lost = ledger
        .submit(&port, Debt::new(()), |_| {
            Submission::PossiblySubmitted(Cause::step("post"))
        })
        .expect("not refused");
    scene.rounds_for(3);
    assert_eq!(scene.drained_at(), [1.0]);
    assert!(matches!(
        lost.take(),
        Ok(Some(Outcome::AbandonedAfterDrain(..)))
    ));
    assert_eq!(scene.shared.settled.load(Ordering::Acquire), 1);
}

#[test]
fn the_thread_settles_what_is_reported_and_stops_when_told() {
    let scene = scene(
        Policy {
            rest: Duration::from_secs(3_600),
            longest_rest: Duration::from_secs(3_600),
            ..Policy::sweeping()
        },
        Watch::Report,
    );
    let (told, is_settled) = mpsc::channel();
    *lock(&scene.lane.told) = Some(told);
    // It rests for an hour; the report ends the rest.
    let driver = Driver::start(&scene.domain, scene.rounds.policy).expect("a thread");
    scene
        .domain
        .ledger()
        .reports()
        .changed(scene.handle.slot(), Fence::Succeeded);
    is_settled.recv().expect("settled by the driver");
    let progress = driver.stop();
    assert_eq!(progress.settled, 1);
    assert!(progress.sweeps >= 1);
    assert_eq!(
        scene.domain.core().ledger.drivers.load(Ordering::Acquire),
        0
    );
    assert!(matches!(
        scene.handle.take(),
        Ok(Some(Outcome::Succeeded(())))
    ));
}

/// A lane whose drain hangs until it is let go.
struct Hanging {
    entered: Mutex<bool>,
    changed: Condvar,
    go: Mutex<bool>,
}

impl Lane for Hanging {
    fn identity(&self) -> Identity {
        Identity::new("hanging")
    }
    fn query(&self, _: SlotId) -> Fence {
        Fence::Indeterminate
    }
    fn wait(&self, _: SlotId, _: Option<Duration>) -> Fence {
        Fence::Indeterminate
    }
    fn drain(&self) -> Result<Receipt, Cause> {
        *lock(&self.entered) = true;
        self.changed.notify_all();
        let mut go = lock(&self.go);
        while !*go {
            go = wait(&self.changed, go, None);
        }
        Ok(Receipt::of(self.identity()))
    }
}

#[test]
fn dropping_driver_and_domain_waits_for_no_drain() {
    let domain = Domain::new("hanging", 0);
    let lane = Arc::new(Hanging {
        entered: Mutex::new(false),
        changed: Condvar::new(),
        go: Mutex::new(false),
    });
    let ledger = domain.ledger();
    let port = ledger.attach(Arc::clone(&lane) as Arc<_>);
    let handle = ledger
        .submit(&port, Debt::new(()), |_| Submission::Submitted)
        .expect("submitted");
    let policy = Policy::sweeping().recovering(Recovery {
        after: Duration::ZERO,
        ..Recovery::patient()
    });
    let driver = Driver::start(&domain, policy).expect("a thread");
    let mut entered = lock(&lane.entered);
    while !*entered {
        entered = wait(&lane.changed, entered, None);
    }
    drop(entered);
    // The drain hangs; none of these may.
    drop((driver, domain, ledger, port));
    assert_eq!(handle.poll(), Ok(Observation::Indeterminate));
    *lock(&lane.go) = true;
    lane.changed.notify_all();
    assert_eq!(handle.recover(), Ok(Observation::Ready));
}

#[test]
fn a_sweep_size_that_is_not_allowed_starts_no_thread() {
    let domain = Domain::new("driven", 0);
    for sweep in [0, 65] {
        let policy = Policy {
            sweep,
            ..Policy::sweeping()
        };
        let error = Driver::start(&domain, policy).expect_err("not allowed");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(domain.core().ledger.drivers.load(Ordering::Acquire), 0);
}
