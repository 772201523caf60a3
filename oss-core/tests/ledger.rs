//! Lanes, slots, sweeps, batches, and the end of the ledger's user side.
#![cfg(not(loom))]
#![allow(clippy::expect_used, reason = "a test fails by panic")]

mod support;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use lockgate::Errno;
use lockgate::completion::{
    Cause, Debt, Direction, Fence, Handle, LaneHandle, Ledger, Loan, Observation, Outcome, Refusal,
    Rejected, SlotError, SlotId, Submission, SweepSize, Watch,
};
use lockgate::custody::{Class, Domain, EntryId, Held, Identity, Live};
use support::{Probe, Scripted, Woken};

fn scene(watch: Watch) -> (Arc<Domain>, Ledger, Arc<Scripted>, LaneHandle) {
    let domain = Domain::new("ledger", 0);
    let ledger = domain.ledger();
    let lane = Scripted::watched(watch);
    let port = ledger.attach(lane.clone());
    (domain, ledger, lane, port)
}

fn submit<T: Send + 'static>(ledger: &Ledger, port: &LaneHandle, payload: T) -> Handle<T> {
    ledger
        .submit(port, Debt::new(payload), |_| Submission::Submitted)
        .expect("submitted")
}

fn possibly<T: Send + 'static>(ledger: &Ledger, port: &LaneHandle, payload: T) -> Handle<T> {
    let cause = Cause::errno("post", Errno::IO);
    ledger
        .submit(port, Debt::new(payload), |_| {
            Submission::PossiblySubmitted(cause)
        })
        .expect("not refused")
}

fn loan(domain: &Domain, held: &Arc<Held>) -> Loan {
    let generation = domain.serials().take().expect("not exhausted").into();
    Loan::new(Arc::clone(held), generation, 0..8, Direction::Write)
}

#[test]
fn only_a_blocking_observation_in_vain_makes_a_drain_permissible() {
    let (_domain, ledger, lane, port) = scene(Watch::Query);
    let handle = submit(&ledger, &port, ());
    assert_eq!(handle.recover(), Err(SlotError::NotEligible));
    lane.set_all(Fence::Indeterminate);
    assert_eq!(handle.poll(), Ok(Observation::Indeterminate));
    let woken = Arc::new(Woken::default());
    let waker = woken.waker();
    assert_eq!(
        pin!(handle.finished()).poll(&mut Context::from_waker(&waker)),
        Poll::Ready(Ok(Observation::Indeterminate))
    );
    assert_eq!(ledger.sweep(1).expect("allowed").observations.len(), 1);
    assert_eq!(handle.recover(), Err(SlotError::NotEligible));
    assert_eq!(lane.drains(), 0);
    assert_eq!(handle.wait(None), Ok(Observation::Indeterminate));
    assert_eq!(handle.recover(), Ok(Observation::Ready));
    assert_eq!(lane.drains(), 1);
}

#[test]
fn an_indeterminate_fence_may_still_tell_later() {
    let (_domain, ledger, lane, port) = scene(Watch::Query);
    let handle = submit(&ledger, &port, 7);
    lane.set_all(Fence::Indeterminate);
    assert_eq!(handle.wait(None), Ok(Observation::Indeterminate));
    lane.set_all(Fence::Succeeded);
    assert_eq!(handle.poll(), Ok(Observation::Ready));
    let outcome = handle.take().expect("not taken").expect("ready");
    assert_eq!(outcome.published(), Some(7));
}

#[test]
fn a_time_out_frees_nothing_and_says_pending() {
    let (domain, ledger, _lane, port) = scene(Watch::Query);
    let held = Held::value(Identity::new("buffer"), 8, ());
    let debt = Debt::new(()).lend(loan(&domain, &held));
    let handle = ledger
        .submit(&port, debt, |_| Submission::Submitted)
        .expect("submitted");
    assert_eq!(
        handle.wait(Some(Duration::from_millis(1))),
        Ok(Observation::Pending)
    );
    assert_eq!(Arc::strong_count(&held), 2);
}

#[test]
fn an_outcome_is_taken_once_through_whichever_view() {
    let (_domain, ledger, lane, port) = scene(Watch::Query);
    lane.set_all(Fence::Succeeded);
    for handle_first in [true, false] {
        let handle = submit(&ledger, &port, 5_u32);
        let slot = handle.slot();
        assert!(
            matches!(ledger.take::<u32>(slot), Ok(None)),
            "nobody has looked yet"
        );
        assert_eq!(handle.poll(), Ok(Observation::Ready));
        assert_eq!(ledger.take::<u64>(slot).err(), Some(SlotError::OtherType));
        let first = if handle_first {
            handle.take()
        } else {
            ledger.take(slot)
        };
        assert_eq!(first.expect("once").and_then(Outcome::published), Some(5));
        assert_eq!(handle.take().err(), Some(SlotError::Gone));
        assert_eq!(ledger.take::<u32>(slot).err(), Some(SlotError::Gone));
        assert_eq!(ledger.poll(slot), Err(SlotError::Gone));
        assert_eq!(ledger.wait(slot, None), Err(SlotError::Gone));
        assert_eq!(ledger.recover(slot), Err(SlotError::Gone));
        assert_eq!(ledger.cancel(slot), Err(SlotError::Gone));
    }
    let unknown = SlotId::from_number(12 << 32 | 9_999);
    assert_eq!(ledger.poll(unknown), Err(SlotError::Unknown));
}

#[test]
fn no_number_is_ever_given_to_two_debts() {
    let (_domain, ledger, lane, port) = scene(Watch::Query);
    lane.set_all(Fence::Succeeded);
    let mut seen = std::collections::HashSet::new();
    for round in 0..1_000_u32 {
        let handle = submit(&ledger, &port, round);
        assert!(seen.insert(handle.slot()), "{} came twice", handle.slot());
        assert_eq!(handle.poll(), Ok(Observation::Ready));
        if round > 0 {
            let stale: Vec<_> = seen.iter().filter(|slot| **slot != handle.slot()).collect();
            let answer = ledger.take::<u32>(*stale[0]);
            assert_eq!(
                answer.err(),
                Some(SlotError::Gone),
                "a stale number reached a live debt"
            );
        }
        assert!(matches!(handle.take(), Ok(Some(Outcome::Succeeded(n))) if n == round));
    }
}

#[test]
fn dropping_views_releases_nothing_and_the_slot_recovers_the_debt() {
    let (domain, ledger, lane, port) = scene(Watch::Query);
    let held = Held::value(Identity::new("buffer"), 8, ());
    let drops = Arc::new(AtomicUsize::new(0));
    let debt = Debt::new(Probe(Arc::clone(&drops))).lend(loan(&domain, &held));
    let handle = ledger
        .submit(&port, debt, |_| Submission::Submitted)
        .expect("submitted");
    lane.set_all(Fence::Indeterminate);
    let slot = handle.slot();
    drop(handle.finished());
    drop(handle);
    let kept = || (Arc::strong_count(&held), drops.load(Ordering::SeqCst));
    assert_eq!(kept(), (2, 0));
    let sweep = ledger.sweep(1).expect("allowed");
    assert_eq!(sweep.observations, [(slot, Observation::Indeterminate)]);
    assert_eq!((sweep.retained, sweep.quarantined), (1, 0));
    assert_eq!(ledger.wait(slot, None), Ok(Observation::Indeterminate));
    lane.fail_drains(1);
    assert_eq!(ledger.recover(slot), Ok(Observation::Quarantined));
    assert_eq!(kept(), (2, 0));
    assert_eq!(ledger.recover(slot), Ok(Observation::Ready));
    assert_eq!(kept(), (1, 0));
    let outcome = ledger.take::<Probe>(slot).expect("once").expect("ready");
    let Outcome::AbandonedAfterDrain(_, poisoned) = outcome else {
        panic!("a drain never publishes");
    };
    assert_eq!(drops.load(Ordering::SeqCst), 0);
    drop(poisoned.into_unpublished());
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    assert_eq!(domain.live(), Live::default());
}

#[test]
fn a_partial_batch_has_one_outcome_each_and_silence_counts_as_possible() {
    let (_domain, ledger, _lane, port) = scene(Watch::Query);
    let debts = (0..4).map(Debt::new).collect();
    let mut slots = Vec::new();
    let results = ledger.submit_batch(&port, debts, |given| {
        slots = given.to_vec();
        vec![
            Submission::Submitted,
            Submission::NotSubmitted(Cause::errno("post", Errno::NOMEM)),
            Submission::PossiblySubmitted(Cause::errno("post", Errno::IO)),
        ]
    });
    let seen: Vec<_> = results
        .iter()
        .map(|result| match result {
            Ok(handle) => Ok((handle.slot(), handle.poll().expect("not taken"))),
            Err(Rejected {
                refusal: Refusal::NotSubmitted(cause),
                ..
            }) => Err(cause.errno),
            Err(other) => panic!("{other}"),
        })
        .collect();
    assert_eq!(
        seen,
        [
            Ok((slots[0], Observation::Pending)),
            Err(Some(Errno::NOMEM)),
            Ok((slots[2], Observation::Indeterminate)),
            Ok((slots[3], Observation::Indeterminate)),
        ]
    );
    assert!(port.is_closed());
    assert_eq!((ledger.retained(), port.in_flight()), (3, 3));
    // A batch call that panics may have submitted any of them.
    let (_domain, ledger, _lane, port) = scene(Watch::Query);
    let results = ledger.submit_batch(&port, vec![Debt::new(()), Debt::new(())], |_| {
        panic!("planned")
    });
    assert!(results.into_iter().all(|result| {
        result.expect("possibly submitted").poll() == Ok(Observation::Indeterminate)
    }));
}

#[test]
fn a_lane_fails_closed_and_is_replaced_only_then_while_old_debts_keep_it() {
    let (_domain, ledger, old, port) = scene(Watch::Query);
    let before = submit(&ledger, &port, "before");
    let still_open = port.replace(Scripted::new()).expect_err("it admits work");
    assert!(still_open.to_string().contains("close it"));
    let unknown = possibly(&ledger, &port, "unknown");
    let Err(rejected) = ledger.submit(&port, Debt::new("late"), |_| panic!("must not be posted"))
    else {
        panic!("a closed lane admits nothing");
    };
    assert_eq!(rejected.refusal, Refusal::LaneClosed);
    assert_eq!(rejected.debt.into_parts().0, "late");
    let new = Scripted::new();
    port.replace(new.clone()).expect("closed");
    assert_eq!((port.is_closed(), port.in_flight()), (false, 0));
    let after = submit(&ledger, &port, "after");
    new.set_all(Fence::Succeeded);
    assert_eq!(after.poll(), Ok(Observation::Ready));
    // The new lane's success says nothing of the old lane's debts.
    assert_eq!(before.poll(), Ok(Observation::Pending));
    assert_eq!(unknown.poll(), Ok(Observation::Indeterminate));
    assert_eq!(unknown.recover(), Ok(Observation::Ready));
    assert_eq!((old.drains(), new.drains()), (1, 0));
    assert!(
        !port.is_closed(),
        "draining the old lane does not touch the new one"
    );
}

#[test]
fn one_drain_settles_the_whole_lane_and_success_that_a_fence_proves_is_published() {
    let (_domain, ledger, lane, port) = scene(Watch::Report);
    let pending = submit(&ledger, &port, "pending");
    let done = submit(&ledger, &port, "done");
    let failed = submit(&ledger, &port, "failed");
    let lost = possibly(&ledger, &port, "lost");
    lane.set(done.slot(), Fence::Succeeded);
    lane.set(
        failed.slot(),
        Fence::FailedQuiescent(Cause::step("flushed")),
    );
    assert_eq!(lost.recover(), Ok(Observation::Ready));
    // A lane that reports by itself is not asked by sweeps; a drained one is.
    let mut settled: Vec<_> = ledger.sweep(64).expect("allowed").observations;
    settled.sort_unstable_by_key(|(slot, _)| *slot);
    let mut expected =
        [pending.slot(), done.slot(), failed.slot()].map(|slot| (slot, Observation::Ready));
    expected.sort_unstable_by_key(|(slot, _)| *slot);
    assert_eq!(settled, expected);
    assert!(matches!(
        pending.take(),
        Ok(Some(Outcome::AbandonedAfterDrain(..)))
    ));
    assert!(matches!(done.take(), Ok(Some(Outcome::Succeeded("done")))));
    assert!(matches!(
        failed.take(),
        Ok(Some(Outcome::FailedQuiescent(..)))
    ));
    assert!(matches!(
        lost.take(),
        Ok(Some(Outcome::AbandonedAfterDrain(..)))
    ));
    assert_eq!(lane.drains(), 1);
}

#[test]
fn a_report_about_a_possible_submission_settles_nothing() {
    let (_domain, ledger, lane, port) = scene(Watch::Report);
    let handle = possibly(&ledger, &port, ());
    lane.set(handle.slot(), Fence::Succeeded);
    ledger.reports().changed(handle.slot(), Fence::Succeeded);
    for _ in 0..2 {
        let _ = ledger.sweep(64).expect("allowed");
        assert_eq!(handle.poll(), Ok(Observation::Indeterminate));
        assert_eq!(handle.wait(None), Ok(Observation::Indeterminate));
    }
    assert_eq!(lane.queries(), 0);
}

#[test]
fn a_refusal_that_a_completion_contradicts_counts_as_possible() {
    let (_domain, ledger, _lane, port) = scene(Watch::Report);
    let reports = ledger.reports();
    let handle = ledger
        .submit(&port, Debt::new(()), |slot| {
            reports.changed(slot, Fence::Succeeded);
            Submission::NotSubmitted(Cause::errno("post", Errno::AGAIN))
        })
        .expect("the refusal is not believed");
    assert_eq!(handle.poll(), Ok(Observation::Indeterminate));
    assert!(port.is_closed());
}

#[test]
fn reports_settle_through_the_next_look_and_wake_futures() {
    let (_domain, ledger, lane, port) = scene(Watch::Report);
    let reports = ledger.reports();
    // The completion may come before the submission call has returned.
    let early = ledger
        .submit(&port, Debt::new(1), |slot| {
            reports.changed(slot, Fence::Succeeded);
            assert_eq!(ledger.sweep(1).expect("allowed").observations, []);
            Submission::Submitted
        })
        .expect("submitted");
    let sweep = ledger.sweep(1).expect("allowed");
    assert_eq!(sweep.observations, [(early.slot(), Observation::Ready)]);

    let handle = submit(&ledger, &port, 2);
    let woken = Arc::new(Woken::default());
    let waker = woken.waker();
    let mut context = Context::from_waker(&waker);
    let mut finished = pin!(handle.finished());
    assert_eq!(finished.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(finished.as_mut().poll(&mut context), Poll::Pending);
    assert_eq!(ledger.sweep(64).expect("allowed").observations, []);
    reports.changed(handle.slot(), Fence::Pending);
    assert_eq!(woken.count(), 0);
    reports.changed(handle.slot(), Fence::Succeeded);
    // A second, contradicting report changes nothing.
    reports.changed(handle.slot(), Fence::FailedQuiescent(Cause::step("late")));
    assert_eq!(woken.count(), 1);
    assert_eq!(
        finished.as_mut().poll(&mut context),
        Poll::Ready(Ok(Observation::Ready))
    );
    assert!(matches!(handle.take(), Ok(Some(Outcome::Succeeded(2)))));
    reports.changed(handle.slot(), Fence::Succeeded);
    reports.changed(SlotId::from_number(u64::MAX), Fence::Succeeded);
    assert_eq!(ledger.sweep(64).expect("allowed").observations, []);
    assert_eq!(lane.settled_slots().len(), 2);
}

#[test]
fn a_future_on_an_asked_lane_is_woken_by_the_sweep_that_settles_it() {
    let (_domain, ledger, lane, port) = scene(Watch::Query);
    let handle = submit(&ledger, &port, ());
    let woken = Arc::new(Woken::default());
    let waker = woken.waker();
    let mut finished = pin!(handle.finished());
    let mut context = Context::from_waker(&waker);
    assert_eq!(finished.as_mut().poll(&mut context), Poll::Pending);
    lane.set_all(Fence::Succeeded);
    assert_eq!(woken.count(), 0);
    let _ = ledger.sweep(1).expect("allowed");
    assert_eq!(woken.count(), 1);
    assert_eq!(
        finished.as_mut().poll(&mut context),
        Poll::Ready(Ok(Observation::Ready))
    );
}

#[test]
fn harvested_lanes_are_harvested_only_while_they_owe_something() {
    let (_domain, ledger, lane, port) = scene(Watch::Harvest);
    let _ = ledger.sweep(64).expect("allowed");
    assert_eq!(lane.harvests(), 0);
    let handle = submit(&ledger, &port, ());
    lane.will_harvest(handle.slot(), Fence::Succeeded);
    let sweep = ledger.sweep(1).expect("allowed");
    assert_eq!(sweep.observations, [(handle.slot(), Observation::Ready)]);
    assert_eq!((lane.harvests(), lane.queries()), (1, 0));
    let _ = ledger.sweep(64).expect("allowed");
    assert_eq!(lane.harvests(), 1);
}

#[test]
fn a_sweep_is_bounded_and_its_cursor_is_fair() {
    let (_domain, ledger, _lane, port) = scene(Watch::Query);
    for asked in [0, 65, usize::MAX] {
        assert_eq!(ledger.sweep(asked), Err(SweepSize { asked }));
    }
    let handles: Vec<_> = (0..100).map(|n| submit(&ledger, &port, n)).collect();
    let other = ledger.attach(Scripted::new());
    let lonely = submit(&ledger, &other, 100);
    for most in [1, 3, 64] {
        let mut times: BTreeMap<SlotId, usize> = BTreeMap::new();
        for _ in 0..300 {
            let sweep = ledger.sweep(most).expect("allowed");
            assert_eq!(sweep.observations.len(), most, "there is enough to ask");
            for (slot, observation) in sweep.observations {
                assert_eq!(observation, Observation::Pending);
                *times.entry(slot).or_default() += 1;
            }
        }
        let lonely_times = times.remove(&lonely.slot()).unwrap_or(0);
        assert_eq!(times.len(), handles.len(), "every slot was met");
        let (least, most_met) = (times.values().min(), times.values().max());
        assert!(
            most_met
                .zip(least)
                .is_some_and(|(most, least)| most - least <= 1),
            "{least:?} to {most_met:?} times"
        );
        // Lanes take turns, so the one slot of the other lane is met at least in every second sweep.
        assert!(lonely_times >= 149, "{lonely_times}");
    }
}

#[test]
fn reported_and_asked_slots_do_not_starve_each_other() {
    let (_domain, ledger, asked, port) = scene(Watch::Query);
    let waiting: Vec<_> = (0..10).map(|_| submit(&ledger, &port, ())).collect();
    let reporting = ledger.attach(Scripted::watched(Watch::Report));
    let reported: Vec<_> = (0..100).map(|_| submit(&ledger, &reporting, ())).collect();
    for handle in &reported {
        ledger.reports().changed(handle.slot(), Fence::Succeeded);
    }
    let mut ready = 0;
    for _ in 0..100 {
        let sweep = ledger.sweep(1).expect("allowed");
        ready += sweep
            .observations
            .iter()
            .filter(|(_, seen)| *seen == Observation::Ready)
            .count();
    }
    assert_eq!((ready, asked.queries()), (50, 50));
    drop(waiting);
}

#[test]
fn a_cancelled_debt_is_dropped_when_it_is_settled_and_not_before() {
    let (domain, ledger, lane, port) = scene(Watch::Query);
    let held = Held::value(Identity::new("buffer"), 8, ());
    let drops = Arc::new(AtomicUsize::new(0));
    let debt = |domain: &Domain| Debt::new(Probe(Arc::clone(&drops))).lend(loan(domain, &held));
    let handle = ledger
        .submit(&port, debt(&domain), |_| Submission::Submitted)
        .expect("submitted");
    let slot = handle.slot();
    assert_eq!(handle.cancel(), Ok(Observation::Pending));
    assert_eq!(ledger.poll(slot), Ok(Observation::Pending));
    assert_eq!(
        (Arc::strong_count(&held), drops.load(Ordering::SeqCst)),
        (2, 0)
    );
    lane.set_all(Fence::Succeeded);
    assert_eq!(
        ledger.sweep(1).expect("allowed").observations,
        [(slot, Observation::Ready)]
    );
    assert_eq!(
        (Arc::strong_count(&held), drops.load(Ordering::SeqCst)),
        (1, 1)
    );
    assert_eq!(ledger.take::<Probe>(slot).err(), Some(SlotError::Gone));
    // A result that is ready goes at once.
    let handle = ledger
        .submit(&port, debt(&domain), |_| Submission::Submitted)
        .expect("submitted");
    assert_eq!(handle.poll(), Ok(Observation::Ready));
    assert_eq!(handle.cancel(), Ok(Observation::Ready));
    assert_eq!((drops.load(Ordering::SeqCst), ledger.retained()), (2, 0));
    // A quarantined one goes, with its entry, when a drain settles it.
    let handle = ledger
        .submit(&port, debt(&domain), |_| {
            Submission::PossiblySubmitted(Cause::step("post"))
        })
        .expect("not refused");
    let slot = handle.slot();
    lane.fail_drains(1);
    assert_eq!(handle.recover(), Ok(Observation::Quarantined));
    assert_eq!(handle.cancel(), Ok(Observation::Quarantined));
    assert_eq!(
        (Arc::strong_count(&held), drops.load(Ordering::SeqCst)),
        (2, 2)
    );
    domain
        .quarantine()
        .retry(EntryId::Slot(slot))
        .expect("the second drain works");
    assert_eq!(
        (Arc::strong_count(&held), drops.load(Ordering::SeqCst)),
        (1, 3)
    );
    assert_eq!(domain.live(), Live::default());
}

#[test]
fn leaving_the_ledger_blocks_on_nothing_and_maintenance_settles_what_is_left() {
    let (domain, ledger, lane, port) = scene(Watch::Query);
    let drops = Arc::new(AtomicUsize::new(0));
    let probe = || Probe(Arc::clone(&drops));
    let ready = submit(&ledger, &port, probe());
    lane.set(ready.slot(), Fence::Succeeded);
    assert_eq!(ready.poll(), Ok(Observation::Ready));
    let finishing = submit(&ledger, &port, probe());
    lane.set(finishing.slot(), Fence::Succeeded);
    let stuck = submit(&ledger, &port, probe());
    let wanted = submit(&ledger, &port, probe());
    let slots = [ready.slot(), finishing.slot(), stuck.slot(), wanted.slot()];
    drop((ready, finishing, stuck));
    assert_eq!(ledger.abandon(), 4);
    assert_eq!((lane.drains(), drops.load(Ordering::SeqCst)), (0, 0));
    assert!(port.is_closed());
    let refused = ledger.submit(&ledger.attach(Scripted::new()), Debt::new(()), |_| {
        panic!("nothing is submitted any more")
    });
    assert_eq!(refused.expect_err("left").refusal, Refusal::GateClosed);
    let classes: Vec<_> = domain
        .quarantine()
        .list()
        .iter()
        .map(|report| report.class)
        .collect();
    assert_eq!(classes, [Class::NeverAttempted; 4]);
    // Two results that nobody can take any more are dropped, the third entry needs a drain, which fails.
    lane.fail_drains(1);
    let done = domain.quarantine().maintain(3);
    assert_eq!(done.receipts.len(), 2);
    assert_eq!(done.failed, [EntryId::Slot(slots[2])]);
    assert_eq!(drops.load(Ordering::SeqCst), 2);
    domain
        .quarantine()
        .retry(EntryId::Slot(slots[2]))
        .expect("the second drain works");
    assert_eq!(drops.load(Ordering::SeqCst), 3);
    // The last one has a handle, so its result is left for it.
    let done = domain.quarantine().maintain(3);
    assert_eq!((done.receipts.len(), drops.load(Ordering::SeqCst)), (1, 3));
    assert!(matches!(
        wanted.take(),
        Ok(Some(Outcome::AbandonedAfterDrain(..)))
    ));
    assert_eq!(lane.drains(), 2);
    assert_eq!(domain.live(), Live::default());
}

#[test]
fn a_handle_outlives_its_domain() {
    let (domain, ledger, lane, port) = scene(Watch::Query);
    let handle = submit(&ledger, &port, 3);
    drop((domain, ledger));
    assert_eq!(handle.poll(), Ok(Observation::Pending));
    lane.set_all(Fence::Succeeded);
    assert_eq!(handle.wait(None), Ok(Observation::Ready));
    assert!(matches!(handle.take(), Ok(Some(Outcome::Succeeded(3)))));
}

#[test]
fn a_closed_domain_admits_no_submission() {
    let (domain, ledger, _lane, port) = scene(Watch::Query);
    domain.gate().close();
    let refused = ledger.submit(&port, Debt::new(4), |_| panic!("must not be posted"));
    let rejected = refused.expect_err("closed");
    assert_eq!(rejected.refusal, Refusal::GateClosed);
    assert_eq!(
        rejected.to_string(),
        "not submitted: the domain is shutting down"
    );
    assert!(!port.is_closed());
}

#[test]
fn a_lane_that_panics_proves_nothing() {
    struct Panicking;
    impl lockgate::completion::Lane for Panicking {
        fn identity(&self) -> Identity {
            Identity::new("panicking")
        }
        fn query(&self, _: SlotId) -> Fence {
            panic!("planned query")
        }
        fn wait(&self, _: SlotId, _: Option<Duration>) -> Fence {
            panic!("planned wait")
        }
        fn drain(&self) -> Result<lockgate::custody::Receipt, Cause> {
            panic!("planned drain")
        }
    }
    let domain = Domain::new("panicking", 0);
    let ledger = domain.ledger();
    let port = ledger.attach(Arc::new(Panicking));
    let handle = submit(&ledger, &port, ());
    assert_eq!(handle.poll(), Ok(Observation::Indeterminate));
    assert_eq!(handle.wait(None), Ok(Observation::Indeterminate));
    assert_eq!(handle.recover(), Ok(Observation::Quarantined));
    let report = domain
        .quarantine()
        .report(EntryId::Slot(handle.slot()))
        .expect("listed");
    assert!(report.to_string().contains("planned drain"), "{report}");
}

#[test]
fn two_recoveries_at_once_drain_once() {
    let (_domain, ledger, lane, port) = scene(Watch::Query);
    let first = possibly(&ledger, &port, ());
    lane.set_all(Fence::Indeterminate);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| first.recover())).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(Observation::Ready));
        }
    });
    assert_eq!(lane.drains(), 1);
}

#[test]
fn leaving_twice_lists_nothing_twice_and_nothing_anew() {
    let (domain, ledger, _lane, port) = scene(Watch::Query);
    let handle = submit(&ledger, &port, ());
    assert_eq!(ledger.abandon(), 1);
    assert_eq!(ledger.abandon(), 1);
    assert_eq!(domain.quarantine().count(), 1);
    domain
        .quarantine()
        .retry(EntryId::Slot(handle.slot()))
        .expect("the drain works");
    // Settled by maintenance; only its handle is waited for.
    assert_eq!(ledger.abandon(), 1);
    domain.quarantine().assert_empty();
    drop(handle);
    assert_eq!(domain.live(), Live::default());
}

#[test]
fn a_debt_that_was_drained_in_vain_is_no_longer_one_that_was_never_attempted() {
    let (domain, ledger, lane, port) = scene(Watch::Query);
    let handle = possibly(&ledger, &port, ());
    ledger.abandon();
    lane.fail_drains(1);
    assert_eq!(handle.recover(), Ok(Observation::Quarantined));
    let done = domain.quarantine().maintain(5);
    assert_eq!((done.attempted(), done.left), (0, 0));
    assert_eq!(domain.quarantine().list()[0].class, Class::Retryable);
    domain
        .quarantine()
        .retry(EntryId::Slot(handle.slot()))
        .expect("the drain works");
}

#[test]
fn a_lane_is_never_dropped_under_a_lock_of_the_ledger() {
    /// Its drop asks the ledger something, from another thread, so that a lock that is held shows as a time-out.
    struct Asking {
        watch: Watch,
        ledger: Ledger,
        answered: Arc<AtomicUsize>,
    }
    impl lockgate::completion::Lane for Asking {
        fn identity(&self) -> Identity {
            Identity::new("asking")
        }
        fn query(&self, _: SlotId) -> Fence {
            Fence::Succeeded
        }
        fn wait(&self, _: SlotId, _: Option<Duration>) -> Fence {
            Fence::Succeeded
        }
        fn drain(&self) -> Result<lockgate::custody::Receipt, Cause> {
            Err(Cause::step("not planned"))
        }
        fn watch(&self) -> Watch {
            self.watch
        }
    }
    impl Drop for Asking {
        fn drop(&mut self) {
            let (ledger, (answer, answered)) = (self.ledger.clone(), std::sync::mpsc::channel());
            std::thread::spawn(move || answer.send(ledger.retained()));
            let told = answered.recv_timeout(Duration::from_secs(10));
            self.answered
                .fetch_add(usize::from(told.is_ok()), Ordering::SeqCst);
        }
    }
    for watch in [Watch::Query, Watch::Harvest, Watch::Report] {
        let domain = Domain::new("asking", 0);
        let ledger = domain.ledger();
        let answered = Arc::new(AtomicUsize::new(0));
        let port = ledger.attach(Arc::new(Asking {
            watch,
            ledger: ledger.clone(),
            answered: Arc::clone(&answered),
        }));
        let handle = submit(&ledger, &port, ());
        assert_eq!(handle.poll(), Ok(Observation::Ready));
        assert!(matches!(handle.take(), Ok(Some(_))));
        drop((handle, port));
        // The sweep finds nothing more to do on the lane and lets go of it.
        let _ = ledger.sweep(1).expect("allowed");
        assert_eq!(answered.load(Ordering::SeqCst), 1, "{watch:?}");
    }
}
