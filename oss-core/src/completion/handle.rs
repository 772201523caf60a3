//! The views of a slot that a user holds, and the outcome that is taken once.
//!
//! Promises: a handle owns nothing of the debt; dropping it releases nothing and stops nothing. A result that was not published
//! can be reached only through a name that says so. Does not do: waking up by itself on a lane that has to be asked;
//! somebody sweeps or drives the ledger then.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::answers::{Observation, SlotError};
use super::outcome::Cause;
use super::record::{Phase, Record};
use super::slot::SlotId;
use super::truth::{Look, Reason};
use crate::custody::{Core, Receipt};
use crate::sync::{Arc, lock};

/// A view of one slot.
pub struct Handle<T> {
    core: Arc<Core>,
    record: Arc<Record>,
    payload: PhantomData<fn() -> T>,
}

impl<T: Send + 'static> Handle<T> {
    pub(super) fn new(core: Arc<Core>, record: Arc<Record>) -> Self {
        Self {
            core,
            record,
            payload: PhantomData,
        }
    }

    /// The address of the debt, which outlives this handle.
    #[must_use]
    pub fn slot(&self) -> SlotId {
        self.record.slot
    }

    /// Observes without blocking.
    ///
    /// # Errors
    /// [`SlotError::Gone`] if the outcome was taken.
    pub fn poll(&self) -> Result<Observation, SlotError> {
        self.core
            .observe(&self.record, Look::Poll)
            .map(|seen| seen.observation)
    }

    /// Observes and blocks until the debt is no longer pending or the limit has passed. A time-out frees nothing.
    ///
    /// # Errors
    /// [`SlotError::Gone`] if the outcome was taken.
    pub fn wait(&self, limit: Option<Duration>) -> Result<Observation, SlotError> {
        self.core
            .observe(&self.record, Look::Wait(limit))
            .map(|seen| seen.observation)
    }

    /// A future, for any executor, that is ready once the debt is no longer pending. Dropping it changes nothing.
    ///
    /// On a lane that reports or is harvested, the report wakes it. On a lane that has to be asked, it is woken when a
    /// sweep, a driver or another view settles the debt.
    pub fn finished(&self) -> Finished<'_, T> {
        Finished { handle: self }
    }

    /// Closes the lane and drains it, if that is permissible; see [`Ledger::recover`](super::Ledger::recover).
    ///
    /// # Errors
    /// [`SlotError`] if the outcome was taken, or if a drain is not permissible.
    pub fn recover(&self) -> Result<Observation, SlotError> {
        self.core.recover(&self.record, Reason::Recovery)
    }

    /// Takes the outcome, once. `None` as long as the debt is not settled.
    ///
    /// # Errors
    /// [`SlotError::Gone`] if it was taken.
    pub fn take(&self) -> Result<Option<Outcome<T>>, SlotError> {
        self.core.take(&self.record)
    }

    /// Nobody wants the result: it is dropped as soon as the debt is settled. Releases nothing earlier.
    ///
    /// # Errors
    /// [`SlotError::Gone`] if the outcome was taken.
    pub fn cancel(self) -> Result<Observation, SlotError> {
        self.core.cancel(&self.record)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.record.state);
        state.detached = true;
        let orphaned = state.orphaned;
        drop(state);
        if orphaned {
            self.core.discard(&self.record);
        }
    }
}

impl<T> fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle(slot {})", self.record.slot)
    }
}

/// The future of [`Handle::finished`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Finished<'a, T> {
    handle: &'a Handle<T>,
}

impl<T: Send + 'static> Future for Finished<'_, T> {
    type Output = Result<Observation, SlotError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let record = &self.handle.record;
        {
            // Registered before the fence is looked at, so that a report in between is not lost.
            let mut state = lock(&record.state);
            if matches!(state.phase, Phase::InFlight | Phase::Reserved)
                && !state
                    .wakers
                    .iter()
                    .any(|waker| waker.will_wake(context.waker()))
            {
                state.wakers.push(context.waker().clone());
            }
        }
        match self.handle.poll() {
            Ok(Observation::Pending) => Poll::Pending,
            other => Poll::Ready(other),
        }
    }
}

/// How a debt ended.
#[derive(Debug)]
#[must_use = "an outcome that is not looked at hides a failure"]
pub enum Outcome<T> {
    /// A drain has proven that nothing runs any more. Whether the work had its effect is not known and never will be.
    AbandonedAfterDrain(Receipt, Poisoned<T>),
    /// The work failed, and nothing of it runs any more.
    FailedQuiescent(Cause, Poisoned<T>),
    /// The work had its effect.
    Succeeded(T),
}

impl<T> Outcome<T> {
    /// The published result; `None` if there is none.
    #[must_use]
    pub fn published(self) -> Option<T> {
        match self {
            Self::Succeeded(result) => Some(result),
            Self::AbandonedAfterDrain(..) | Self::FailedQuiescent(..) => None,
        }
    }
}

/// The value of a debt that was not published. What a device wrote to, or was to write to, holds anything.
///
/// Dropping it drops the value.
pub struct Poisoned<T>(T);

impl<T> Poisoned<T> {
    pub(super) fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, to reuse or to take apart what it owns. Its content is not a result.
    pub fn into_unpublished(self) -> T {
        self.0
    }
}

impl<T> fmt::Debug for Poisoned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Poisoned")
    }
}
