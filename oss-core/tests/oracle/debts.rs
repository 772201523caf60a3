//! Debts and lanes: what the truth table expects, and the real ledger asked the same.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lockgate::completion::{
    Cause, Debt, Direction, Handle, Loan, Observation, Outcome, Refusal, SlotError, Submission,
};

use super::device::{Device, Payload, fence};
use super::known::{End, KnownDebt, Phase, Real};
use super::steps::{How, Truth, View};
use super::{World, happened};

impl World {
    pub(super) fn debt(&self, at: u8) -> Option<usize> {
        (!self.debts.is_empty()).then(|| usize::from(at) % self.debts.len())
    }

    pub(super) fn make_debt(&self, loans: &[usize]) -> (Debt<Payload>, Arc<AtomicU64>) {
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

    pub(super) fn loans(&self, wanted: &[u8]) -> Vec<usize> {
        wanted
            .iter()
            .filter(|at| !at.is_multiple_of(4))
            .filter_map(|at| self.pick(*at, |owner| matches!(owner.real, Real::Owner(_))))
            .collect()
    }

    pub(super) fn refusal(&self, lane: usize) -> Option<Refusal> {
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

    pub(super) fn submit(&mut self, port: u8, wanted: [u8; 2], how: How) {
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

    pub(super) fn rolled_back(&self, debt: Debt<Payload>, loans: &[usize], drops: &AtomicU64) {
        happened("rolled back");
        let (payload, back) = debt.into_parts();
        assert_eq!(back.len(), loans.len(), "a loan was lost");
        assert_eq!(drops.load(Ordering::SeqCst), 0, "the payload was lost");
        drop((payload, back));
    }

    pub(super) fn note(
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

    pub(super) fn batch(&mut self, port: u8, loan: u8, how: [How; 3]) {
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
    pub(super) fn set_truth(&mut self, at: usize, truth: Truth) {
        let debt = &mut self.debts[at];
        if !matches!(debt.truth, Truth::Succeeded | Truth::Failed) {
            debt.truth = truth;
            let device = &self.lanes[debt.lane].device;
            device.state().fences.insert(debt.slot, truth);
        }
    }

    pub(super) fn report(&mut self, at: u8, truth: Truth) {
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

    pub(super) fn settle(&mut self, at: usize, end: End) -> Observation {
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
    pub(super) fn expect_observation(&mut self, at: usize, blocking: bool) -> Observation {
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
    pub(super) fn expect_drain(&mut self, at: usize) -> bool {
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

    pub(super) fn look(&mut self, at: u8, view: View, blocking: bool) {
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

    pub(super) fn recover(&mut self, at: u8, view: View) {
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

    pub(super) fn take(&mut self, at: usize, view: View) {
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

    pub(super) fn cancel(&mut self, at: u8, view: View) {
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

    pub(super) fn drop_handle(&mut self, at: u8) {
        let Some(at) = self.debt(at) else {
            return;
        };
        let debt = &mut self.debts[at];
        if debt.handle.take().is_some() && debt.orphaned && matches!(debt.phase, Phase::Ready(_)) {
            debt.phase = Phase::Taken;
        }
    }

    pub(super) fn sweep(&mut self, most: usize) {
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

    pub(super) fn replace(&mut self, at: u8) {
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

    pub(super) fn abandon(&mut self) {
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
}
