//! Models of admission, lanes and the ledger: every order of their lock and atomic operations, up to a bound on preemptions.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p lockgate --release --test loom`. Without the flag this file is empty.
#![cfg(loom)]
#![allow(clippy::expect_used, reason = "a model fails by panic")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lockgate::completion::{
    Cause, Debt, Direction, Fence, Handle, Lane, LaneHandle, Ledger, Loan, Observation, Outcome,
    SlotId, Submission, Watch,
};
use lockgate::custody::{Charge, Domain, Gate, Identity, Native, Receipt, Release};
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use loom::thread;

/// Three preemptions find every fault that is planted here, and keep each model well under a minute.
fn model(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(check);
}

#[test]
fn after_quiet_nobody_is_inside_and_nobody_comes() {
    model(3, || {
        let gate = Gate::new();
        let inside = Arc::new(AtomicUsize::new(0));
        let shut = Arc::new(AtomicBool::new(false));
        let entrants: Vec<_> = (0..2)
            .map(|_| {
                let (gate, inside, shut) = (gate.clone(), inside.clone(), shut.clone());
                thread::spawn(move || {
                    if let Ok(ticket) = gate.enter() {
                        inside.fetch_add(1, SeqCst);
                        assert!(!shut.load(SeqCst), "admitted after the gate was quiet");
                        inside.fetch_sub(1, SeqCst);
                        drop(ticket);
                    }
                })
            })
            .collect();
        gate.close();
        // A wake-up that is lost shows as a deadlock.
        assert!(gate.wait_quiet(None));
        shut.store(true, SeqCst);
        assert_eq!(inside.load(SeqCst), 0);
        for entrant in entrants {
            entrant.join().expect("no panic");
        }
        assert!(gate.enter().is_err());
    });
}

struct Nothing;

impl Native for Nothing {
    fn identity(&self) -> Identity {
        Identity::new("nothing")
    }
    fn release(&mut self) -> Release {
        Release::Released(Receipt::of(self.identity()))
    }
}

#[test]
fn a_shutdown_misses_no_object_that_is_just_being_made() {
    model(3, || {
        let domain = Domain::new("model", 0);
        let made = {
            let domain = Arc::clone(&domain);
            thread::spawn(move || {
                let admission = domain.admit().ok()?;
                Some(admission.own(Nothing, Vec::new(), Charge::none()))
            })
        };
        domain.gate().close();
        assert!(domain.gate().wait_quiet(None));
        let owners = domain.live().owners;
        let owner = made.join().expect("no panic");
        assert_eq!(
            owners,
            u64::from(owner.is_some()),
            "made after the shutdown had counted"
        );
    });
}

/// A lane that checks that no submission is inside while it drains or after it.
struct Watchful {
    watch: Watch,
    inside: AtomicUsize,
    drained: AtomicBool,
    drains: AtomicUsize,
    settled: AtomicUsize,
}

impl Watchful {
    fn new(watch: Watch) -> Arc<Self> {
        Arc::new(Self {
            watch,
            inside: AtomicUsize::new(0),
            drained: AtomicBool::new(false),
            drains: AtomicUsize::new(0),
            settled: AtomicUsize::new(0),
        })
    }

    fn post(&self, submission: Submission) -> Submission {
        self.inside.fetch_add(1, SeqCst);
        assert!(!self.drained.load(SeqCst), "posted after the drain");
        self.inside.fetch_sub(1, SeqCst);
        submission
    }
}

impl Lane for Watchful {
    fn identity(&self) -> Identity {
        Identity::new("watchful")
    }
    fn query(&self, _: SlotId) -> Fence {
        Fence::Pending
    }
    fn wait(&self, _: SlotId, _: Option<Duration>) -> Fence {
        Fence::Indeterminate
    }
    fn drain(&self) -> Result<Receipt, Cause> {
        assert_eq!(self.inside.load(SeqCst), 0, "drained under a submission");
        self.drained.store(true, SeqCst);
        self.drains.fetch_add(1, SeqCst);
        Ok(Receipt::of(self.identity()))
    }
    fn watch(&self) -> Watch {
        self.watch
    }
    fn settled(&self, _: SlotId) {
        self.settled.fetch_add(1, SeqCst);
    }
}

fn scene(watch: Watch) -> (Arc<Domain>, Ledger, Arc<Watchful>, LaneHandle) {
    let domain = Domain::new("model", 0);
    let ledger = domain.ledger();
    let lane = Watchful::new(watch);
    let port = ledger.attach(lane.clone());
    (domain, ledger, lane, port)
}

fn submit(ledger: &Ledger, lane: &Watchful, port: &LaneHandle) -> Handle<u32> {
    ledger
        .submit(port, Debt::new(7), |_| lane.post(Submission::Submitted))
        .expect("submitted")
}

#[test]
fn no_submission_is_inside_a_drain_or_after_it() {
    model(2, || {
        let (_domain, ledger, lane, port) = scene(Watch::Report);
        let unknown = ledger
            .submit(&port, Debt::new(7), |_| Submission::Submitted)
            .expect("submitted");
        assert_eq!(unknown.wait(None), Ok(Observation::Indeterminate));
        let racing = {
            let (ledger, lane, port) = (ledger.clone(), lane.clone(), port.clone());
            thread::spawn(move || {
                ledger
                    .submit(&port, Debt::new(7), |_| lane.post(Submission::Submitted))
                    .ok()
            })
        };
        assert_eq!(unknown.recover(), Ok(Observation::Ready));
        if let Some(handle) = racing.join().expect("no panic") {
            // It was inside before the drain, so the drain has proven it quiet, too.
            assert_eq!(handle.poll(), Ok(Observation::Ready));
            assert!(matches!(
                handle.take(),
                Ok(Some(Outcome::AbandonedAfterDrain(..)))
            ));
        }
        assert_eq!(lane.drains.load(SeqCst), 1);
    });
}

#[test]
fn a_possible_submission_closes_its_lane_before_anyone_else_posts() {
    model(2, || {
        let (_domain, ledger, _lane, port) = scene(Watch::Report);
        let closed = Arc::new(AtomicBool::new(false));
        let racing = {
            let (ledger, port, closed) = (ledger.clone(), port.clone(), closed.clone());
            thread::spawn(move || {
                // What is read before the attempt must not be contradicted by it.
                let was_closed = closed.load(SeqCst);
                let admitted = ledger
                    .submit(&port, Debt::new(1), |_| Submission::Submitted)
                    .is_ok();
                assert!(
                    !(was_closed && admitted),
                    "admitted to a lane that had failed closed"
                );
            })
        };
        let cause = Cause::step("post");
        let unknown = ledger
            .submit(&port, Debt::new(7), |_| {
                Submission::PossiblySubmitted(cause)
            })
            .expect("not refused");
        closed.store(true, SeqCst);
        assert_eq!(unknown.poll(), Ok(Observation::Indeterminate));
        racing.join().expect("no panic");
    });
}

#[test]
fn a_report_is_never_lost_and_settles_once() {
    model(2, || {
        let (_domain, ledger, lane, port) = scene(Watch::Report);
        let reports = ledger.reports();
        let mut reporter = None;
        let handle = ledger
            .submit(&port, Debt::new(7), |slot| {
                let reports = reports.clone();
                reporter = Some(thread::spawn(move || {
                    reports.changed(slot, Fence::Succeeded)
                }));
                Submission::Submitted
            })
            .expect("submitted");
        let sweeper = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.sweep(1).expect("allowed").observations.len())
        };
        reporter.expect("posted").join().expect("no panic");
        let seen = sweeper.join().expect("no panic");
        let left = ledger.sweep(1).expect("allowed").observations;
        assert_eq!(seen + left.len(), 1, "one sweep tells of it, and one only");
        assert_eq!(lane.settled.load(SeqCst), 1);
        assert!(matches!(handle.take(), Ok(Some(Outcome::Succeeded(7)))));
    });
}

#[test]
fn who_sees_a_debt_ready_finds_its_loans_back() {
    model(3, || {
        let (domain, ledger, lane, port) = scene(Watch::Report);
        let admission = domain.admit().expect("open");
        let owner = admission.own(Nothing, Vec::new(), Charge::none());
        let generation = domain.serials().take().expect("not exhausted").into();
        let loan = Loan::new(owner.hold(), generation, 0..1, Direction::Write);
        let debt = Debt::new(7).lend(loan);
        let handle = ledger
            .submit(&port, debt, |_| Submission::Submitted)
            .expect("submitted");
        ledger.reports().changed(handle.slot(), Fence::Succeeded);
        let sweeper = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.sweep(1).expect("allowed").retained)
        };
        assert_eq!(handle.poll(), Ok(Observation::Ready));
        // The counts of holders are not loom's. This read is: the lane is told of the settlement after the loans must be back,
        // so loom also tries the order in which it has not been told yet.
        let _ = lane.settled.load(SeqCst);
        owner.close().expect("nothing holds it any more");
        sweeper.join().expect("no panic");
    });
}

#[test]
fn two_takers_get_one_outcome() {
    model(3, || {
        let (_domain, ledger, lane, port) = scene(Watch::Report);
        let handle = submit(&ledger, &lane, &port);
        ledger.reports().changed(handle.slot(), Fence::Succeeded);
        let slot = handle.slot();
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || {
                let _ = ledger.poll(slot);
                matches!(ledger.take::<u32>(slot), Ok(Some(Outcome::Succeeded(7))))
            })
        };
        let _ = handle.poll();
        let mine = matches!(handle.take(), Ok(Some(Outcome::Succeeded(7))));
        let theirs = other.join().expect("no panic");
        assert!(mine ^ theirs, "mine {mine}, theirs {theirs}");
        assert_eq!(ledger.retained(), 0);
    });
}

#[test]
fn a_drain_and_a_report_settle_once_and_publish_only_what_a_fence_proves() {
    model(2, || {
        let (_domain, ledger, lane, port) = scene(Watch::Report);
        let handle = submit(&ledger, &lane, &port);
        assert_eq!(handle.wait(None), Ok(Observation::Indeterminate));
        let slot = handle.slot();
        let reports = ledger.reports();
        let (told, looked) = (Arc::new(AtomicBool::new(false)), ledger.clone());
        let reporter = {
            let told = told.clone();
            thread::spawn(move || {
                told.store(true, SeqCst);
                reports.changed(slot, Fence::Succeeded);
                let _ = looked.poll(slot);
            })
        };
        assert_eq!(handle.recover(), Ok(Observation::Ready));
        let outcome = handle.take().expect("once").expect("ready");
        if matches!(outcome, Outcome::Succeeded(_)) {
            assert!(told.load(SeqCst), "published without a report");
        }
        reporter.join().expect("no panic");
        assert_eq!(lane.settled.load(SeqCst), 1);
        assert_eq!(ledger.retained(), 0);
    });
}

#[test]
fn a_future_is_woken_by_a_report_that_comes_while_it_is_polled() {
    struct Flag(AtomicBool);
    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }
    model(3, || {
        let (_domain, ledger, lane, port) = scene(Watch::Report);
        let handle = submit(&ledger, &lane, &port);
        let (slot, reports) = (handle.slot(), ledger.reports());
        let reporter = thread::spawn(move || reports.changed(slot, Fence::Succeeded));
        let flag = Arc::new(Flag(AtomicBool::new(false)));
        let waker = Waker::from(flag.clone());
        let mut finished = pin!(handle.finished());
        let first = finished.as_mut().poll(&mut Context::from_waker(&waker));
        reporter.join().expect("no panic");
        if first == Poll::Pending {
            assert!(flag.0.load(SeqCst), "the wake-up was lost");
            let second = finished.poll(&mut Context::from_waker(&waker));
            assert_eq!(second, Poll::Ready(Ok(Observation::Ready)));
        }
    });
}

#[test]
fn leaving_the_ledger_misses_no_submission() {
    model(2, || {
        let (domain, ledger, lane, port) = scene(Watch::Report);
        let racing = {
            let (ledger, lane, port) = (ledger.clone(), lane.clone(), port.clone());
            thread::spawn(move || {
                let handle = ledger
                    .submit(&port, Debt::new(7), |_| lane.post(Submission::Submitted))
                    .ok();
                handle.is_some()
            })
        };
        ledger.abandon();
        let submitted = racing.join().expect("no panic");
        assert_eq!(domain.quarantine().count(), usize::from(submitted));
        let done = domain.quarantine().maintain(2);
        assert_eq!(done.receipts.len(), usize::from(submitted));
        assert_eq!(ledger.retained(), 0);
        domain.quarantine().assert_empty();
    });
}
