//! What the ledger keeps for one debt.
//!
//! Promises: loans and payload stay here until the debt is settled, whatever becomes of handles. Does not do: deciding;
//! the ledger moves the phase.

use std::any::Any;
use std::task::Waker;

use super::lane::LaneCell;
use super::loan::Loan;
use super::outcome::{Cause, Fence};
use super::slot::SlotId;
use crate::custody::{Attempt, Receipt};
use crate::sync::{Arc, Mutex};

pub(super) struct Record {
    pub(super) slot: SlotId,
    pub(super) lane: Arc<LaneCell>,
    pub(super) state: Mutex<State>,
}

pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) loans: Vec<Loan>,
    pub(super) payload: Option<Box<dyn Any + Send>>,
    pub(super) wakers: Vec<Waker>,
    /// What the lane reported and nobody has acted on yet.
    pub(super) reported: Option<Fence>,
    /// A blocking observation could not tell: a drain is allowed.
    pub(super) blocked_in_vain: bool,
    /// Nobody wants the result: it is dropped as soon as the debt is settled.
    pub(super) cancelled: bool,
    /// The handle is gone; the slot is the only way to the result.
    pub(super) detached: bool,
    /// The ledger was left, and only the handle can still take the result: it is dropped with the handle.
    pub(super) orphaned: bool,
    /// The quarantine lists this debt.
    pub(super) listed: bool,
    /// Drains that failed.
    pub(super) attempts: Vec<Attempt>,
}

pub(super) enum Phase {
    /// The submission is being made.
    Reserved,
    /// Submitted; the fence can be asked.
    InFlight,
    /// Possibly submitted; there is no fence to ask.
    Unknown(Cause),
    /// A drain has failed.
    Quarantined,
    /// Settled, with a result that nobody has taken yet.
    Ready(Settled),
    /// The result is taken, or was dropped because nobody wanted it, or nothing was submitted.
    Taken,
}

/// How a debt was settled.
#[derive(Clone, Debug)]
pub(super) enum Settled {
    Abandoned(Receipt),
    Failed(Cause),
    Succeeded,
}

impl Record {
    pub(super) fn new(
        slot: SlotId,
        lane: Arc<LaneCell>,
        loans: Vec<Loan>,
        payload: Option<Box<dyn Any + Send>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            slot,
            lane,
            state: Mutex::new(State {
                phase: Phase::Reserved,
                loans,
                payload,
                wakers: Vec::new(),
                reported: None,
                blocked_in_vain: false,
                cancelled: false,
                detached: false,
                orphaned: false,
                listed: false,
                attempts: Vec::new(),
            }),
        })
    }
}
