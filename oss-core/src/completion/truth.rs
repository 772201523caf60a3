//! The truth table at work: observing, settling, recovering and taking one debt.
//!
//! Promises: the one place that moves a debt from one phase to the next after its submission; no lock is held while a provider,
//! a waker or the drop of a user's value runs. Does not do: choosing what to look at; views and sweeps do.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::answers::{Observation, SlotError};
use super::handle::{Outcome, Poisoned};
use super::kept::KeptDebt;
use super::loan::Loan;
use super::outcome::{Cause, Fence};
use super::record::{Phase, Record, Settled, State};
use crate::custody::{Attempt, Class, Core, EntryId, Failure, Held, Stamp, Withdrawn, panic_text};
use crate::sync::{Arc, MutexGuard, Ordering, Weak, lock};

/// What an internal observation saw, and whether it is what settled the debt.
pub(super) struct Seen {
    pub(super) observation: Observation,
    pub(super) settled_now: bool,
    pub(super) reserved: bool,
}

impl Seen {
    fn plain(observation: Observation) -> Self {
        Self {
            observation,
            settled_now: false,
            reserved: false,
        }
    }
}

/// How to look at a fence.
#[derive(Clone, Copy)]
pub(super) enum Look {
    Poll,
    Wait(Option<Duration>),
}

/// Why a drain is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    /// An explicit call: allowed only where the truth table allows it.
    Recovery,
    /// The quarantine makes the attempt for a debt that its ledger left behind.
    Maintenance,
}

/// Everything here takes a record that the table has, or had a moment ago.
impl Core {
    pub(super) fn observe(&self, record: &Arc<Record>, look: Look) -> Result<Seen, SlotError> {
        // Read before the fence is asked: an answer that is not quiet after a proven drain is worth nothing.
        let proven = record.lane.is_proven();
        let reported = {
            let mut state = lock(&record.state);
            let stuck = match &state.phase {
                Phase::Reserved => {
                    return Ok(Seen {
                        reserved: true,
                        ..Seen::plain(Observation::Pending)
                    });
                }
                Phase::Ready(_) => return Ok(Seen::plain(Observation::Ready)),
                Phase::Taken => return Err(SlotError::Gone),
                Phase::InFlight => None,
                Phase::Unknown(_) => Some(Observation::Indeterminate),
                Phase::Quarantined => Some(Observation::Quarantined),
            };
            match stuck {
                Some(observation) if !proven => return Ok(Seen::plain(observation)),
                Some(_) => Err(()),
                // A quiet report stays, so that everybody who looks before the debt is settled sees the same.
                None => match &state.reported {
                    Some(fence) if fence.is_quiet() => Ok(Some(fence.clone())),
                    _ => Ok(state.reported.take()),
                },
            }
        };
        let Ok(reported) = reported else {
            return Ok(self.settle_by_proof(record));
        };
        let fence = match (reported, look) {
            (Some(fence), _) if fence.is_quiet() => fence,
            (Some(Fence::Indeterminate), Look::Poll) => Fence::Indeterminate,
            (_, Look::Poll) => record.lane.query(record.slot),
            (_, Look::Wait(limit)) => record.lane.wait(record.slot, limit),
        };
        let settled = match fence {
            Fence::Succeeded => Settled::Succeeded,
            Fence::FailedQuiescent(cause) => Settled::Failed(cause),
            Fence::Pending | Fence::Indeterminate if proven => {
                return Ok(self.settle_by_proof(record));
            }
            Fence::Pending => return Ok(Seen::plain(Observation::Pending)),
            Fence::Indeterminate => {
                if matches!(look, Look::Wait(_)) {
                    lock(&record.state).blocked_in_vain = true;
                }
                return Ok(Seen::plain(Observation::Indeterminate));
            }
        };
        Ok(self.settle(record, settled))
    }

    /// The lane was proven quiet, for whichever of its debts.
    fn settle_by_proof(&self, record: &Arc<Record>) -> Seen {
        match record.lane.proof() {
            Some(receipt) => self.settle(record, Settled::Abandoned(receipt)),
            None => Seen::plain(Observation::Indeterminate),
        }
    }

    /// Gives the loans back and makes the outcome ready, if it still is to be settled.
    fn settle(&self, record: &Arc<Record>, settled: Settled) -> Seen {
        let mut state = lock(&record.state);
        let was_quarantined = match &state.phase {
            Phase::InFlight => false,
            // Without a fence, and after a drain was needed, no observation but a drain settles anything.
            Phase::Unknown(_) if matches!(settled, Settled::Abandoned(_)) => false,
            Phase::Quarantined if matches!(settled, Settled::Abandoned(_)) => true,
            Phase::Unknown(_) => return Seen::plain(Observation::Indeterminate),
            Phase::Quarantined => return Seen::plain(Observation::Quarantined),
            Phase::Reserved => return Seen::plain(Observation::Pending),
            Phase::Ready(_) | Phase::Taken => return Seen::plain(Observation::Ready),
        };
        // Whoever sees "ready" may rely on it that the loans are back and the entry is gone, so both happen under the lock.
        // What a user's drop may hang on is only taken out here, and dropped further down.
        let last: Vec<Held> = std::mem::take(&mut state.loans)
            .into_iter()
            .filter_map(Loan::give_back)
            .collect();
        let wakers = std::mem::take(&mut state.wakers);
        let cancelled = state.cancelled;
        let unwanted = if cancelled {
            state.phase = Phase::Taken;
            state.payload.take()
        } else {
            state.phase = Phase::Ready(settled);
            None
        };
        if was_quarantined {
            self.ledger.quarantined.fetch_sub(1, Ordering::AcqRel);
        }
        let entry = if cancelled || !self.ledger.is_abandoned() {
            self.unlist(record, &mut state)
        } else {
            None
        };
        drop(state);

        let mut table = self.ledger.table();
        let gone = if cancelled {
            table.remove(record.slot)
        } else {
            table.unlink(record.slot);
            None
        };
        drop(table);
        record.lane.settled(record.slot);
        let dropped = catch_unwind(AssertUnwindSafe(|| drop((last, unwanted, entry, gone))));
        if let Err(panic) = dropped {
            let text = panic_text(&*panic);
            tracing::error!(slot = %record.slot, "what a settled debt had kept {text}");
        }
        for waker in wakers {
            waker.wake();
        }
        Seen {
            settled_now: true,
            ..Seen::plain(Observation::Ready)
        }
    }

    pub(super) fn recover(
        &self,
        record: &Arc<Record>,
        reason: Reason,
    ) -> Result<Observation, SlotError> {
        {
            let state = lock(&record.state);
            match &state.phase {
                Phase::Ready(_) => return Ok(Observation::Ready),
                Phase::Taken => return Err(SlotError::Gone),
                Phase::Unknown(_) | Phase::Quarantined => {}
                Phase::InFlight if state.blocked_in_vain => {}
                Phase::InFlight | Phase::Reserved => {
                    if reason == Reason::Recovery {
                        return Err(SlotError::NotEligible);
                    }
                }
            }
        }
        if reason == Reason::Maintenance {
            // The lane is closed for good; perhaps the work has simply finished.
            let seen = self.observe(record, Look::Poll)?;
            if seen.observation == Observation::Ready {
                return Ok(Observation::Ready);
            }
        }
        match record.lane.drain() {
            Ok((receipt, first)) => {
                let seen = self.settle(record, Settled::Abandoned(receipt));
                if first {
                    self.ledger.table().drained(&record.lane);
                    self.ledger.tell();
                }
                Ok(seen.observation)
            }
            Err(cause) => Ok(self.drain_failed(record, cause)),
        }
    }

    fn drain_failed(&self, record: &Arc<Record>, cause: Cause) -> Observation {
        let failure = Failure {
            call: "drain".into(),
            errno: cause.errno,
            class: Class::Retryable,
            detail: Some(cause.to_string()),
        };
        let by = self.stamp();
        let mut state = lock(&record.state);
        match state.phase {
            // Settled meanwhile by somebody else.
            Phase::Ready(_) | Phase::Taken => return Observation::Ready,
            Phase::Quarantined => {}
            Phase::Reserved | Phase::InFlight | Phase::Unknown(_) => {
                state.phase = Phase::Quarantined;
                self.ledger.quarantined.fetch_add(1, Ordering::AcqRel);
            }
        }
        state.attempts.push(Attempt {
            failure: failure.clone(),
            by: by.clone(),
        });
        let wakers = std::mem::take(&mut state.wakers);
        let news = !state.listed;
        if news {
            self.list(record, &mut state, Class::Retryable, by.clone());
        }
        drop(state);
        self.ledger.table().stick(record.slot);
        self.quarantine.tried(EntryId::Slot(record.slot));
        if news {
            let entry = EntryId::Slot(record.slot);
            self.quarantine
                .announce(entry, Class::Retryable, Some(&failure));
        }
        for waker in wakers {
            waker.wake();
        }
        Observation::Quarantined
    }

    /// Lists a debt in the quarantine. The caller holds the record's lock, so that nobody settles it in between.
    pub(super) fn list(&self, record: &Arc<Record>, state: &mut State, class: Class, since: Stamp) {
        state.listed = true;
        let kept = KeptDebt::new(Weak::clone(&self.me), Arc::clone(record));
        let entry = EntryId::Slot(record.slot);
        self.quarantine.insert(entry, Box::new(kept), class, since);
    }

    /// Takes the debt off the quarantine's list. The entry is returned, to be dropped after the record's lock.
    #[must_use]
    fn unlist(&self, record: &Record, state: &mut State) -> Option<Withdrawn> {
        std::mem::take(&mut state.listed)
            .then(|| self.quarantine.withdraw(EntryId::Slot(record.slot)))
            .flatten()
    }

    pub(super) fn take<T: Send + 'static>(
        &self,
        record: &Arc<Record>,
    ) -> Result<Option<Outcome<T>>, SlotError> {
        let mut state = lock(&record.state);
        match &state.phase {
            Phase::Ready(_) => {}
            Phase::Taken => return Err(SlotError::Gone),
            Phase::Reserved | Phase::InFlight | Phase::Unknown(_) | Phase::Quarantined => {
                return Ok(None);
            }
        }
        if !state
            .payload
            .as_ref()
            .is_some_and(|payload| payload.is::<T>())
        {
            return Err(SlotError::OtherType);
        }
        let payload = own_payload(state.payload.take());
        let phase = std::mem::replace(&mut state.phase, Phase::Taken);
        self.close_slot(record, state);
        Ok(match phase {
            Phase::Ready(Settled::Succeeded) => Some(Outcome::Succeeded(payload)),
            Phase::Ready(Settled::Failed(cause)) => {
                Some(Outcome::FailedQuiescent(cause, Poisoned::new(payload)))
            }
            Phase::Ready(Settled::Abandoned(receipt)) => Some(Outcome::AbandonedAfterDrain(
                receipt,
                Poisoned::new(payload),
            )),
            _ => None,
        })
    }

    pub(super) fn cancel(&self, record: &Arc<Record>) -> Result<Observation, SlotError> {
        let mut state = lock(&record.state);
        let observation = match &state.phase {
            Phase::Ready(_) => Observation::Ready,
            Phase::Taken => return Err(SlotError::Gone),
            Phase::Reserved | Phase::InFlight => Observation::Pending,
            Phase::Unknown(_) => Observation::Indeterminate,
            Phase::Quarantined => Observation::Quarantined,
        };
        state.cancelled = true;
        drop(state);
        if observation == Observation::Ready {
            self.discard(record);
        }
        Ok(observation)
    }

    pub(super) fn orphan_if_settled(&self, record: &Arc<Record>) {
        let mut state = lock(&record.state);
        if matches!(state.phase, Phase::Ready(_)) {
            let entry = self.unlist(record, &mut state);
            drop(state);
            drop(entry);
            let dropped = catch_unwind(AssertUnwindSafe(|| self.orphan(record)));
            if let Err(panic) = dropped {
                let text = panic_text(&*panic);
                tracing::error!(slot = %record.slot, "a result that nobody took {text}");
            }
        }
    }

    /// The ledger was left, so nobody but a handle that still exists can take the result.
    pub(super) fn orphan(&self, record: &Arc<Record>) {
        let mut state = lock(&record.state);
        state.orphaned = true;
        // The attempt that brought us here takes the entry out.
        state.listed = false;
        let detached = state.detached;
        drop(state);
        if detached {
            self.discard(record);
        }
    }

    /// Drops a result that is ready and that nobody wants.
    pub(super) fn discard(&self, record: &Arc<Record>) {
        let mut state = lock(&record.state);
        if !matches!(state.phase, Phase::Ready(_)) {
            return;
        }
        state.phase = Phase::Taken;
        let payload = state.payload.take();
        self.close_slot(record, state);
        drop(payload);
    }

    /// The slot is finished for good: its phase says taken. Lets go of the record's lock.
    pub(super) fn close_slot(&self, record: &Record, mut state: MutexGuard<'_, State>) {
        let entry = self.unlist(record, &mut state);
        drop(state);
        let gone = self.ledger.table().remove(record.slot);
        drop((entry, gone));
    }
}

pub(super) fn own_payload<T: Send + 'static>(payload: Option<Box<dyn Any + Send>>) -> T {
    #[expect(
        clippy::expect_used,
        reason = "a record keeps the payload that its debt came with until its phase says taken, \
                  and the type was checked against that debt's"
    )]
    *payload
        .and_then(|payload| payload.downcast().ok())
        .expect("the payload is here and of this type")
}
