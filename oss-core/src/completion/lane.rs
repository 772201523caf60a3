//! The completion domain: what one drain proves quiet.
//!
//! A provider implements [`Lane`] for a device stream, a queue pair with its completion queue, an endpoint. The application attaches
//! it to a ledger and submits through the [`LaneHandle`].
//!
//! Promises: a lane on which something was possibly submitted is closed at once and admits nothing more; a drain is called only on
//! a closed lane with nobody inside a submission, and once it has succeeded it is never called again; a handle can be pointed
//! to a new lane only after the old one is closed, and old debts keep the old one. Does not do: progress by itself.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::outcome::{Cause, Fence};
use super::reports::Reports;
use super::slot::SlotId;
use super::table::Lists;
use crate::custody::{Evidence, Gate, Identity, Receipt, panic_text};
use crate::sync::{Arc, Mutex, lock};

/// What a provider implements for a completion domain.
///
/// A fence is addressed by the slot that the submission was given. No method is called under a lock of the ledger; all may run
/// on any thread, and several at the same time. A panic counts as [`Fence::Indeterminate`] or as a failed drain.
pub trait Lane: Send + Sync + 'static {
    /// Which native object this is.
    fn identity(&self) -> Identity;

    /// Observes one submission without blocking. [`Fence::Succeeded`] is answered only if the work had its effect, also after
    /// a drain.
    fn query(&self, slot: SlotId) -> Fence;

    /// Observes one submission and blocks until it is no longer pending, or until the limit has passed, which is
    /// answered with [`Fence::Pending`].
    fn wait(&self, slot: SlotId, limit: Option<Duration>) -> Fence;

    /// Makes everything that was ever submitted here quiet and proves it, such as by the flush of a queue pair in error
    /// state. Blocks. Nothing is submitted while it runs or after it.
    ///
    /// # Errors
    /// The cause why nothing is proven. It may be called again then, by an explicit call.
    fn drain(&self) -> Result<Receipt, Cause>;

    /// How the ledger learns that a fence has changed.
    fn watch(&self) -> Watch {
        Watch::Query
    }

    /// Collects at most `most` completions and reports each. Called by a sweep on a lane that is watched by
    /// [`Watch::Harvest`].
    fn harvest(&self, reports: &Reports, most: usize) {
        let _ = (reports, most);
    }

    /// The slot is settled, and its fence is never asked for again.
    fn settled(&self, slot: SlotId) {
        let _ = slot;
    }

    /// A live native query which shows what the lane is doing. It must change nothing.
    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}

/// How the ledger learns that fences of a lane have changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A sweep calls [`Lane::harvest`], which reports what has changed.
    Harvest,
    /// A sweep asks slot after slot, in a fair round.
    Query,
    /// The lane reports by itself through [`Reports`], from a callback or a thread of its own.
    Report,
}

/// One attached lane: what debts keep.
pub(super) struct LaneCell {
    pub(super) lane: Arc<dyn Lane>,
    pub(super) watch: Watch,
    /// Submissions are inside. Closed for ever once anything was possibly submitted, or before a drain.
    pub(super) gate: Gate,
    /// Held while a drain runs, so that there is one at a time.
    draining: Mutex<()>,
    /// The receipt of the drain that succeeded.
    proof: Mutex<Option<Receipt>>,
    /// Its slots; locked only under the lock of the table.
    pub(super) lists: Mutex<Lists>,
}

impl LaneCell {
    pub(super) fn new(lane: Arc<dyn Lane>) -> Arc<Self> {
        Arc::new(Self {
            watch: lane.watch(),
            lane,
            gate: Gate::new(),
            draining: Mutex::new(()),
            proof: Mutex::new(None),
            lists: Mutex::new(Lists::default()),
        })
    }

    /// The receipt of a drain that succeeded.
    pub(super) fn proof(&self) -> Option<Receipt> {
        lock(&self.proof).clone()
    }

    /// Whether a drain has succeeded. An open gate spares the lock: a lane is closed before it is drained.
    pub(super) fn is_proven(&self) -> bool {
        self.gate.is_closed() && lock(&self.proof).is_some()
    }

    /// Closes the lane, waits until nobody is inside a submission, and drains it unless that was proven before.
    /// Says whether this call brought the proof.
    pub(super) fn drain(&self) -> Result<(Receipt, bool), Cause> {
        self.gate.close();
        let quiet = self.gate.wait_quiet(None);
        debug_assert!(quiet, "a wait without a limit ends only when it is quiet");
        let _one_at_a_time = lock(&self.draining);
        if let Some(receipt) = self.proof() {
            return Ok((receipt, false));
        }
        let receipt = catch_unwind(AssertUnwindSafe(|| self.lane.drain()))
            .unwrap_or_else(|panic| Err(Cause::step(panic_text(&*panic))))?;
        *lock(&self.proof) = Some(receipt.clone());
        Ok((receipt, true))
    }

    pub(super) fn query(&self, slot: SlotId) -> Fence {
        guarded(slot, || self.lane.query(slot))
    }

    pub(super) fn wait(&self, slot: SlotId, limit: Option<Duration>) -> Fence {
        guarded(slot, || self.lane.wait(slot, limit))
    }

    pub(super) fn harvest(&self, reports: &Reports, most: usize) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.lane.harvest(reports, most))) {
            tracing::error!("harvest of a lane {}", panic_text(&*panic));
        }
    }

    pub(super) fn settled(&self, slot: SlotId) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.lane.settled(slot))) {
            tracing::error!(%slot, "a lane told of a settled slot {}", panic_text(&*panic));
        }
    }

    pub(super) fn evidence(&self) -> Evidence {
        catch_unwind(AssertUnwindSafe(|| self.lane.evidence())).unwrap_or_else(|panic| {
            Evidence::new(
                crate::custody::Alive::Unknown,
                format!("the query {}", panic_text(&*panic)),
            )
        })
    }
}

fn guarded(slot: SlotId, observe: impl FnOnce() -> Fence) -> Fence {
    catch_unwind(AssertUnwindSafe(observe)).unwrap_or_else(|panic| {
        tracing::error!(%slot, "an observation {}", panic_text(&*panic));
        Fence::Indeterminate
    })
}

/// The application's side of a lane: where it submits, and what it points to a new lane when the old one has failed closed.
/// Clones point to the same lane.
#[derive(Clone)]
pub struct LaneHandle {
    current: Arc<Mutex<Arc<LaneCell>>>,
}

impl LaneHandle {
    pub(super) fn new(cell: Arc<LaneCell>) -> Self {
        Self {
            current: Arc::new(Mutex::new(cell)),
        }
    }

    pub(super) fn cell(&self) -> Arc<LaneCell> {
        Arc::clone(&lock(&self.current))
    }

    /// Whether the lane admits nothing any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.cell().gate.is_closed()
    }

    /// Closes the lane, such as after a fatal event of its device. Debts stay as they are.
    pub fn close(&self) {
        self.cell().gate.close();
    }

    /// How many debts of the current lane are not settled.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        lock(&self.cell().lists).unsettled()
    }

    /// Which native object this is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.cell().lane.identity()
    }

    /// Points the handle to a new lane. Old debts keep the old lane and are settled there.
    ///
    /// # Errors
    /// [`StillOpen`] if the current lane has not been closed; the new one is given back.
    pub fn replace(&self, lane: Arc<dyn Lane>) -> Result<(), StillOpen> {
        let mut current = lock(&self.current);
        if !current.gate.is_closed() {
            drop(current);
            return Err(StillOpen { lane });
        }
        let old = std::mem::replace(&mut *current, LaneCell::new(lane));
        drop(current);
        // The last reference may run the provider's drop, so it goes outside the lock.
        drop(old);
        Ok(())
    }
}

impl fmt::Debug for LaneHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneHandle")
            .field("closed", &self.is_closed())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}

/// A lane that still admits work cannot be replaced.
pub struct StillOpen {
    /// The lane that was offered.
    pub lane: Arc<dyn Lane>,
}

impl fmt::Debug for StillOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillOpen")
    }
}

impl fmt::Display for StillOpen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lane still admits work; close it before it is replaced")
    }
}

impl std::error::Error for StillOpen {}
