//! The one owner of all debts of a domain until a proven outcome.
//!
//! Promises:
//! - a slot is reserved, and its loans are in the ledger, before the device sees the request;
//! - loans come back, and a result becomes ready, only as the truth table permits: a fence that succeeded publishes, a fence
//!   that failed but is quiet and a drain that succeeded only release, everything else keeps;
//! - a drain is made only after a blocking observation in vain, for a request that was possibly submitted, or as an explicit retry;
//! - handles, futures and blocking calls are views of a slot: dropping one releases nothing, and the slot can be waited for,
//!   recovered and taken by its number alone;
//! - a sweep costs the same however many debts there are.
//!
//! Does not do: anything by itself. Somebody polls, waits, sweeps, or starts a [`Driver`](super::Driver).

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::answers::{MOST_SWEPT, Observation, Refusal, Rejected, SlotError, Sweep, SweepSize};
use super::handle::{Handle, Outcome};
use super::lane::{Lane, LaneCell, LaneHandle};
use super::loan::Debt;
use super::outcome::{Cause, Submission};
use super::record::{Phase, Record};
use super::reports::Reports;
use super::slot::SlotId;
use super::table::{Full, Lookup, Table};
use super::truth::{Look, Reason, own_payload};
use crate::custody::{Class, Core, EntryId, panic_text};
use crate::sync::{Arc, AtomicU64, Condvar, Mutex, MutexGuard, Ordering, lock};

/// A view of the ledger of one domain. Clones are the same ledger; none of them keeps the domain open.
#[derive(Clone)]
pub struct Ledger {
    core: Arc<Core>,
}

/// The ledger's part of a domain.
pub(crate) struct LedgerState {
    table: Mutex<Table>,
    pub(super) quarantined: AtomicU64,
    /// The same as the table's flag, readable without its lock; set before any debt is listed for it.
    abandoned: AtomicU64,
    /// Drivers that want to be woken by news.
    pub(super) drivers: AtomicU64,
    pub(super) news: Mutex<u64>,
    pub(super) told: Condvar,
}

impl LedgerState {
    pub(crate) fn new() -> Self {
        Self {
            table: Mutex::new(Table::new()),
            quarantined: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            drivers: AtomicU64::new(0),
            news: Mutex::new(0),
            told: Condvar::new(),
        }
    }

    pub(crate) fn retained(&self) -> usize {
        lock(&self.table).occupied()
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.table)
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::SeqCst) != 0
    }

    /// Wakes drivers, if there are any.
    pub(super) fn tell(&self) {
        if self.drivers.load(Ordering::Acquire) > 0 {
            *lock(&self.news) += 1;
            self.told.notify_all();
        }
    }
}

impl Drop for LedgerState {
    /// What a device may still touch is never freed, not even when nobody can reach it any more.
    fn drop(&mut self) {
        std::mem::forget(self.table().take_all());
    }
}

impl Ledger {
    pub(crate) fn of(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
        }
    }

    /// Attaches a lane. What is submitted through the handle is owed by this lane.
    #[must_use]
    pub fn attach(&self, lane: Arc<dyn Lane>) -> LaneHandle {
        LaneHandle::new(LaneCell::new(lane))
    }

    /// Submits one request. `post` hands it to the device under the number of the slot and says what became of it; it
    /// must not wait for the lane or for the domain's gate.
    ///
    /// A possible submission, which a panic of `post` also is, closes the lane and gives a handle whose observation is
    /// [`Observation::Indeterminate`].
    ///
    /// # Errors
    /// [`Rejected`] with the whole debt, if certainly nothing was submitted: everything is as before.
    pub fn submit<T: Send + 'static>(
        &self,
        lane: &LaneHandle,
        debt: Debt<T>,
        post: impl FnOnce(SlotId) -> Submission,
    ) -> Result<Handle<T>, Rejected<T>> {
        let Ok(_inside_domain) = self.core.gate.enter() else {
            return Err(Rejected::new(Refusal::GateClosed, debt));
        };
        let cell = lane.cell();
        let Ok(_inside_lane) = cell.gate.enter() else {
            return Err(Rejected::new(Refusal::LaneClosed, debt));
        };
        let record = self.reserve(&cell, debt)?;
        let submission =
            catch_unwind(AssertUnwindSafe(|| post(record.slot))).unwrap_or_else(|panic| {
                Submission::PossiblySubmitted(Cause::step(panic_text(&*panic)))
            });
        self.conclude(record, submission)
    }

    /// Submits several requests with one call of the device. `post` gets the slots in the order of the debts and says of each
    /// request what became of it. A request of which it says nothing counts as possibly submitted.
    ///
    /// The answers stand in the order of the debts.
    pub fn submit_batch<T: Send + 'static>(
        &self,
        lane: &LaneHandle,
        debts: Vec<Debt<T>>,
        post: impl FnOnce(&[SlotId]) -> Vec<Submission>,
    ) -> Vec<Result<Handle<T>, Rejected<T>>> {
        let refuse = |refusal: &Refusal, debts: Vec<Debt<T>>| {
            debts
                .into_iter()
                .map(|debt| Err(Rejected::new(refusal.clone(), debt)))
                .collect()
        };
        let Ok(_inside_domain) = self.core.gate.enter() else {
            return refuse(&Refusal::GateClosed, debts);
        };
        let cell = lane.cell();
        let Ok(_inside_lane) = cell.gate.enter() else {
            return refuse(&Refusal::LaneClosed, debts);
        };
        let reserved: Vec<_> = debts
            .into_iter()
            .map(|debt| self.reserve(&cell, debt))
            .collect();
        let slots: Vec<SlotId> = reserved
            .iter()
            .filter_map(|record| record.as_ref().ok().map(|record| record.slot))
            .collect();
        let mut silence = Cause::step("the batch call said nothing of this request");
        let mut told = catch_unwind(AssertUnwindSafe(|| post(&slots)))
            .unwrap_or_else(|panic| {
                silence = Cause::step(panic_text(&*panic));
                Vec::new()
            })
            .into_iter();
        reserved
            .into_iter()
            .map(|record| {
                let record = record?;
                let submission = told
                    .next()
                    .unwrap_or_else(|| Submission::PossiblySubmitted(silence.clone()));
                self.conclude(record, submission)
            })
            .collect()
    }

    fn reserve<T: Send + 'static>(
        &self,
        cell: &Arc<LaneCell>,
        debt: Debt<T>,
    ) -> Result<Arc<Record>, Rejected<T>> {
        let mut waiting = Some(debt);
        let mut table = self.core.ledger.table();
        let inserted = table.insert(cell, |slot| {
            let (loans, payload): (_, Option<Box<dyn Any + Send>>) = match waiting.take() {
                Some(debt) => (debt.loans, Some(Box::new(debt.payload))),
                None => (Vec::new(), None),
            };
            Record::new(slot, Arc::clone(cell), loans, payload)
        });
        drop(table);
        match (inserted, waiting) {
            (Ok(record), _) => Ok(record),
            (Err(full), Some(debt)) => Err(Rejected::new(
                match full {
                    Full::Abandoned => Refusal::GateClosed,
                    Full::Exhausted => Refusal::Exhausted,
                },
                debt,
            )),
            (Err(_), None) => unreachable!("a table that is full does not make the record"),
        }
    }

    fn conclude<T: Send + 'static>(
        &self,
        record: Arc<Record>,
        submission: Submission,
    ) -> Result<Handle<T>, Rejected<T>> {
        let reported = lock(&record.state).reported.is_some();
        let submission = match submission {
            // The device has completed what its provider says it never got: nobody knows what it is doing.
            Submission::NotSubmitted(_) if reported => Submission::PossiblySubmitted(Cause::step(
                "refused, yet its completion was reported",
            )),
            other => other,
        };
        match submission {
            Submission::Submitted => {
                let mut state = lock(&record.state);
                state.phase = Phase::InFlight;
                let reported = state.reported.is_some();
                drop(state);
                if reported {
                    // A sweep may have met the report too early.
                    self.core.ledger.table().report(record.slot);
                }
            }
            Submission::NotSubmitted(cause) => {
                let mut state = lock(&record.state);
                state.phase = Phase::Taken;
                let loans = std::mem::take(&mut state.loans);
                let payload = state.payload.take();
                self.core.close_slot(&record, state);
                let debt = Debt {
                    loans,
                    payload: own_payload(payload),
                };
                return Err(Rejected::new(Refusal::NotSubmitted(cause), debt));
            }
            Submission::PossiblySubmitted(cause) => {
                record.lane.gate.close();
                tracing::error!(slot = %record.slot, %cause, "possibly submitted, its lane is closed");
                lock(&record.state).phase = Phase::Unknown(cause);
                self.core.ledger.table().stick(record.slot);
            }
        }
        self.core.ledger.tell();
        Ok(Handle::new(Arc::clone(&self.core), record))
    }

    /// Observes a slot without blocking.
    ///
    /// # Errors
    /// [`SlotError`] if the number is no debt, or no longer.
    pub fn poll(&self, slot: SlotId) -> Result<Observation, SlotError> {
        let record = self.find(slot)?;
        self.core
            .observe(&record, Look::Poll)
            .map(|seen| seen.observation)
    }

    /// Observes a slot and blocks until it is no longer pending or the limit has passed. A time-out frees nothing:
    /// it answers [`Observation::Pending`]. [`Observation::Indeterminate`] makes a drain permissible.
    ///
    /// # Errors
    /// [`SlotError`] if the number is no debt, or no longer.
    pub fn wait(&self, slot: SlotId, limit: Option<Duration>) -> Result<Observation, SlotError> {
        let record = self.find(slot)?;
        self.core
            .observe(&record, Look::Wait(limit))
            .map(|seen| seen.observation)
    }

    /// Closes the lane of a slot and drains it, if that is permissible. Blocks as long as the drain does.
    ///
    /// A drain proves that the lane is quiet, never that anything succeeded: the outcome is "abandoned after drain".
    /// If the drain fails, the debt is quarantined with everything, and this may be called again.
    ///
    /// # Errors
    /// [`SlotError`] if the number is no debt, or if a drain is not permissible.
    pub fn recover(&self, slot: SlotId) -> Result<Observation, SlotError> {
        let record = self.find(slot)?;
        self.core.recover(&record, Reason::Recovery)
    }

    /// Takes the outcome of a settled debt, once. `None` as long as it is not settled.
    ///
    /// # Errors
    /// [`SlotError`] if the number is no debt, if it was taken before, or if its value is of another type.
    pub fn take<T: Send + 'static>(&self, slot: SlotId) -> Result<Option<Outcome<T>>, SlotError> {
        let record = self.find(slot)?;
        self.core.take(&record)
    }

    /// Nobody wants the result: it is dropped as soon as the debt is settled, at once if it is. Releases nothing earlier.
    /// Answers what was known at this moment.
    ///
    /// # Errors
    /// [`SlotError`] if the number is no debt, or no longer.
    pub fn cancel(&self, slot: SlotId) -> Result<Observation, SlotError> {
        let record = self.find(slot)?;
        self.core.cancel(&record)
    }

    /// Observes at most `most` slots: those that lanes reported, and the next ones of a fair round over lanes that have
    /// to be asked. Costs the same however many debts there are.
    ///
    /// # Errors
    /// [`SweepSize`] unless `most` is 1 to 64.
    pub fn sweep(&self, most: usize) -> Result<Sweep, SweepSize> {
        self.check_sweep(most)?;
        let ledger = &self.core.ledger;
        let mut records = Vec::with_capacity(most);
        let (cells, spent) = {
            let mut table = ledger.table();
            let cells = table.next_to_harvest(most);
            if cells.is_empty() {
                table.gather(most, &mut records);
            }
            (cells, table.spent())
        };
        drop(spent);
        if !cells.is_empty() {
            let reports = self.reports();
            for cell in cells {
                cell.harvest(&reports, most);
            }
            let spent = {
                let mut table = ledger.table();
                table.gather(most, &mut records);
                table.spent()
            };
            drop(spent);
        }
        let mut observations = Vec::new();
        for record in records {
            match self.core.observe(&record, Look::Poll) {
                Ok(seen) if seen.reserved => {}
                Ok(seen) if seen.observation == Observation::Ready && !seen.settled_now => {}
                Ok(seen) => observations.push((record.slot, seen.observation)),
                Err(_) => {}
            }
        }
        Ok(Sweep {
            observations,
            retained: self.retained(),
            quarantined: self.quarantined(),
        })
    }

    pub(super) fn check_sweep(&self, most: usize) -> Result<(), SweepSize> {
        if (1..=MOST_SWEPT).contains(&most) {
            Ok(())
        } else {
            Err(SweepSize { asked: most })
        }
    }

    /// How many debts are not settled, or have a result that nobody has taken.
    #[must_use]
    pub fn retained(&self) -> usize {
        self.core.ledger.retained()
    }

    /// How many debts are quarantined after a failed drain.
    #[must_use]
    pub fn quarantined(&self) -> usize {
        usize::try_from(self.core.ledger.quarantined.load(Ordering::Acquire)).unwrap_or(usize::MAX)
    }

    /// Where lanes report that fences have changed.
    #[must_use]
    pub fn reports(&self) -> Reports {
        Reports::to(&self.core)
    }

    /// The user's side ends: every lane with a debt is closed, nothing more is submitted, and each debt that is left becomes an
    /// entry of the quarantine that maintenance settles. Blocks on nothing. Dropping the domain does the same.
    /// Says how many debts were left.
    pub fn abandon(&self) -> usize {
        let records = {
            let mut table = self.core.ledger.table();
            table.abandoned = true;
            self.core.ledger.abandoned.store(1, Ordering::SeqCst);
            table.all()
        };
        let mut left = 0;
        for record in records {
            record.lane.gate.close();
            let since = self.core.stamp();
            let mut state = lock(&record.state);
            if matches!(state.phase, Phase::Taken) {
                continue;
            }
            left += 1;
            if !state.listed && !state.orphaned {
                self.core
                    .list(&record, &mut state, Class::NeverAttempted, since);
                drop(state);
                let entry = EntryId::Slot(record.slot);
                self.core
                    .quarantine
                    .announce(entry, Class::NeverAttempted, None);
            }
        }
        left
    }

    /// Nobody will maintain the quarantine any more: what is settled is proven quiet, so its result is not leaked but goes with
    /// its handle, or now if there is none.
    pub(crate) fn orphan_settled(&self) {
        let records = self.core.ledger.table().all();
        for record in records {
            self.core.orphan_if_settled(&record);
        }
    }

    fn find(&self, slot: SlotId) -> Result<Arc<Record>, SlotError> {
        match self.core.ledger.table().get(slot) {
            Lookup::Found(record) => Ok(record),
            Lookup::Gone => Err(SlotError::Gone),
            Lookup::Unknown => Err(SlotError::Unknown),
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("retained", &self.retained())
            .field("quarantined", &self.quarantined())
            .finish()
    }
}
