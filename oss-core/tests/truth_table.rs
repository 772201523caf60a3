//! The truth table of submission and fence outcomes, row by row, through every kind of view of a slot.
#![cfg(not(loom))]
#![allow(clippy::expect_used, reason = "a test fails by panic")]

mod support;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lockgate::Errno;
use lockgate::completion::{
    Cause, Debt, Direction, Fence, Handle, Ledger, Loan, Observation, Outcome, Refusal, SlotError,
    SlotId, Submission,
};
use lockgate::custody::{Class, Domain, EntryId, Owner};
use lockgate::fault::Plan;
use support::{Calls, Fake, Probe, Scripted, Woken};

/// A row of the table: what happens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Row {
    Pending,
    Succeeded,
    FailedQuiescent,
    Indeterminate,
    NotSubmitted,
    PossiblySubmitted,
    SubmitPanics,
    DrainSucceeded,
    DrainFailed,
}

/// Through what the slot is looked at and its outcome taken.
#[derive(Clone, Copy, Debug)]
enum View {
    Handle,
    Future,
    Blocking,
    /// By number; the handle is dropped first.
    Slot,
    /// By sweeps; the handle is dropped first.
    Sweep,
}

const VIEWS: [View; 5] = [
    View::Handle,
    View::Future,
    View::Blocking,
    View::Slot,
    View::Sweep,
];

struct Scene {
    domain: Arc<Domain>,
    ledger: Ledger,
    lane: Arc<Scripted>,
    region: Owner<Fake>,
    calls: Arc<Calls>,
    payload_drops: Arc<AtomicUsize>,
}

impl Scene {
    fn new() -> Self {
        let domain = Domain::new("truth", 1 << 20);
        let calls = Arc::new(Calls::default());
        let charge = domain.budget().reserve(4096).expect("fits").commit();
        let region = domain.admit().expect("open").own(
            Fake::new("MR", Plan::quiet().site("mr.release"), &calls),
            Vec::new(),
            charge,
        );
        Self {
            ledger: domain.ledger(),
            domain,
            lane: Scripted::new(),
            region,
            calls,
            payload_drops: Arc::default(),
        }
    }

    fn debt(&self) -> Debt<Probe> {
        let generation = self.domain.serials().take().expect("not exhausted").into();
        Debt::new(Probe(Arc::clone(&self.payload_drops))).lend(Loan::new(
            self.region.hold(),
            generation,
            0..64,
            Direction::Write,
        ))
    }
}

fn look(
    scene: &Scene,
    handle: &mut Option<Handle<Probe>>,
    slot: SlotId,
    view: View,
) -> Observation {
    let short = Some(Duration::from_millis(1));
    match (view, &*handle) {
        (View::Handle, Some(handle)) => handle.poll().expect("not taken"),
        (View::Blocking, Some(handle)) => handle.wait(short).expect("not taken"),
        (View::Future, Some(handle)) => {
            let woken = Arc::new(Woken::default());
            let waker = woken.waker();
            match pin!(handle.finished()).poll(&mut Context::from_waker(&waker)) {
                Poll::Pending => Observation::Pending,
                Poll::Ready(observation) => observation.expect("not taken"),
            }
        }
        (View::Slot, _) => {
            *handle = None;
            scene.ledger.poll(slot).expect("not taken")
        }
        (View::Sweep, _) => {
            *handle = None;
            let sweep = scene.ledger.sweep(1).expect("1 is allowed");
            match sweep.observations[..] {
                [(seen, observation)] => {
                    assert_eq!(seen, slot);
                    observation
                }
                // It has told of this slot before.
                _ => scene.ledger.poll(slot).expect("not taken"),
            }
        }
        (_, None) => unreachable!("only views by number drop the handle"),
    }
}

fn take(scene: &Scene, handle: &Option<Handle<Probe>>, slot: SlotId) -> Option<Outcome<Probe>> {
    match handle {
        Some(handle) => handle.take().expect("not taken before"),
        None => scene.ledger.take(slot).expect("not taken before"),
    }
}

/// The one check: what is observed, whether the loan is back, whether the result is published.
fn check(row: Row, view: View) {
    let told = format!("{row:?} through {view:?}");
    let scene = Scene::new();
    let port = scene.ledger.attach(scene.lane.clone());
    let submission = match row {
        Row::NotSubmitted => Submission::NotSubmitted(Cause::errno("post", Errno::AGAIN)),
        Row::PossiblySubmitted => Submission::PossiblySubmitted(Cause::errno("post", Errno::IO)),
        _ => Submission::Submitted,
    };
    let submitted = scene.ledger.submit(&port, scene.debt(), |slot| {
        assert_ne!(row, Row::SubmitPanics, "planned panic");
        scene.lane.set(slot, Fence::Pending);
        submission
    });
    let (mut handle, slot) = match (row, submitted) {
        (Row::NotSubmitted, Err(rejected)) => {
            assert!(
                matches!(rejected.refusal, Refusal::NotSubmitted(_)),
                "{told}"
            );
            assert_eq!(scene.region.holders(), 1, "the debt still has its loan");
            assert_eq!(scene.ledger.retained(), 0, "{told}");
            assert!(!port.is_closed(), "{told}");
            let (payload, loans) = rejected.debt.into_parts();
            assert_eq!((loans.len(), loans[0].range()), (1, 0..64), "{told}");
            assert_eq!(scene.payload_drops.load(Ordering::SeqCst), 0, "{told}");
            drop((payload, loans));
            assert_eq!(scene.region.holders(), 0, "{told}");
            return;
        }
        (_, submitted) => {
            let handle = submitted.expect("not certainly refused");
            let slot = handle.slot();
            (Some(handle), slot)
        }
    };
    match row {
        Row::Pending | Row::NotSubmitted | Row::PossiblySubmitted | Row::SubmitPanics => {}
        Row::Succeeded => scene.lane.set(slot, Fence::Succeeded),
        Row::FailedQuiescent => {
            let cause = Cause::errno("completion", Errno::IO);
            scene.lane.set(slot, Fence::FailedQuiescent(cause));
        }
        Row::Indeterminate => scene.lane.set(slot, Fence::Indeterminate),
        Row::DrainSucceeded | Row::DrainFailed => {
            scene.lane.set(slot, Fence::Indeterminate);
            if row == Row::DrainFailed {
                scene.lane.fail_drains(1);
            }
            let waited = scene.ledger.wait(slot, None);
            assert_eq!(waited, Ok(Observation::Indeterminate), "{told}");
            // From here on the device would even claim success: a drain still publishes nothing.
            scene.lane.set(slot, Fence::Succeeded);
            scene.ledger.recover(slot).expect("permissible");
        }
    }
    let (observation, released, published) = match row {
        Row::Pending => (Observation::Pending, false, false),
        Row::Succeeded => (Observation::Ready, true, true),
        Row::FailedQuiescent | Row::DrainSucceeded => (Observation::Ready, true, false),
        Row::Indeterminate | Row::PossiblySubmitted | Row::SubmitPanics => {
            (Observation::Indeterminate, false, false)
        }
        Row::DrainFailed => (Observation::Quarantined, false, false),
        Row::NotSubmitted => unreachable!("checked above"),
    };
    for _ in 0..2 {
        assert_eq!(look(&scene, &mut handle, slot, view), observation, "{told}");
        assert_eq!(scene.region.holders() == 0, released, "{told}");
        assert_eq!(scene.payload_drops.load(Ordering::SeqCst), 0, "{told}");
    }
    let outcome = take(&scene, &handle, slot);
    assert_eq!(outcome.is_some(), released, "{told}");
    match (&outcome, row) {
        (Some(Outcome::FailedQuiescent(cause, _)), Row::FailedQuiescent) => {
            assert_eq!(cause.errno, Some(Errno::IO), "{told}");
        }
        (Some(Outcome::AbandonedAfterDrain(receipt, _)), Row::DrainSucceeded) => {
            assert_eq!(receipt.identity().kind(), "lane", "{told}");
        }
        (Some(Outcome::Succeeded(_)), Row::Succeeded) => {}
        (outcome, _) => assert!(
            outcome.is_none(),
            "{told}: {outcome:?}",
            outcome = outcome.is_some()
        ),
    }
    assert_eq!(
        outcome.and_then(Outcome::published).is_some(),
        published,
        "{told}"
    );

    // What the rest of the world sees.
    let closed = matches!(
        row,
        Row::PossiblySubmitted | Row::SubmitPanics | Row::DrainSucceeded | Row::DrainFailed
    );
    assert_eq!(port.is_closed(), closed, "{told}");
    let quarantined = usize::from(row == Row::DrainFailed);
    assert_eq!(scene.ledger.quarantined(), quarantined, "{told}");
    assert_eq!(scene.domain.quarantine().count(), quarantined, "{told}");
    if released {
        assert_eq!(
            scene.ledger.take::<Probe>(slot).err(),
            Some(SlotError::Gone),
            "{told}"
        );
        assert_eq!(scene.ledger.retained(), 0, "{told}");
        assert_eq!(scene.lane.settled_slots(), [slot], "{told}");
        scene.region.close().expect("quiet");
        assert_eq!(scene.calls.releases("MR"), 1, "{told}");
        assert_eq!(scene.domain.live().bytes, 0, "{told}");
    } else {
        assert_eq!(scene.ledger.retained(), 1, "{told}");
        let unreleased = scene.region.close().expect_err("a device may still use it");
        assert_eq!(unreleased.class(), Class::NeverAttempted, "{told}");
        assert_eq!(scene.calls.releases("MR"), 0, "{told}");
        assert_eq!(scene.domain.live().bytes, 4096, "{told}");
    }
}

fn row(row: Row) {
    for view in VIEWS {
        check(row, view);
    }
}

#[test]
fn pending_keeps_everything() {
    row(Row::Pending);
}

#[test]
fn succeeded_releases_and_publishes() {
    row(Row::Succeeded);
}

#[test]
fn failed_but_quiescent_releases_and_publishes_nothing() {
    row(Row::FailedQuiescent);
}

#[test]
fn indeterminate_keeps_everything() {
    row(Row::Indeterminate);
}

#[test]
fn definitely_not_submitted_rolls_back_in_full() {
    row(Row::NotSubmitted);
}

#[test]
fn possibly_submitted_keeps_everything_until_a_drain() {
    row(Row::PossiblySubmitted);
    row(Row::SubmitPanics);
}

#[test]
fn a_drain_releases_and_never_publishes() {
    row(Row::DrainSucceeded);
}

#[test]
fn a_failed_drain_quarantines_and_may_be_retried() {
    row(Row::DrainFailed);
    for through_quarantine in [false, true] {
        let scene = Scene::new();
        let port = scene.ledger.attach(scene.lane.clone());
        let handle = scene
            .ledger
            .submit(&port, scene.debt(), |_| {
                Submission::PossiblySubmitted(Cause::step("post"))
            })
            .expect("possibly submitted is not refused");
        let slot = handle.slot();
        scene.lane.fail_drains(2);
        for failed in 1..=2 {
            assert_eq!(handle.recover(), Ok(Observation::Quarantined));
            assert_eq!(scene.lane.drains(), failed);
            assert_eq!(scene.domain.quarantine().count(), 1);
        }
        let report = scene
            .domain
            .quarantine()
            .report(EntryId::Slot(slot))
            .expect("listed");
        assert_eq!((report.class, report.attempts.len()), (Class::Retryable, 2));
        assert_eq!(
            report.failure().and_then(|failure| failure.errno),
            Some(Errno::IO)
        );
        assert_eq!(report.held.len(), 1);
        if through_quarantine {
            let receipt = scene.domain.quarantine().retry(EntryId::Slot(slot));
            assert_eq!(
                receipt.expect("the third drain succeeds").identity().kind(),
                "lane"
            );
        } else {
            assert_eq!(scene.ledger.recover(slot), Ok(Observation::Ready));
        }
        assert_eq!(scene.lane.drains(), 3);
        scene.domain.quarantine().assert_empty();
        assert_eq!(scene.ledger.quarantined(), 0);
        assert!(matches!(
            handle.take(),
            Ok(Some(Outcome::AbandonedAfterDrain(..)))
        ));
    }
}
