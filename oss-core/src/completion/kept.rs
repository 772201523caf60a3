//! A debt as an entry of the quarantine.
//!
//! Promises: the entry and the slot are the same debt; whichever of the two is settled first takes the other with it. Does not
//! do: keeping the loans; the record does.

use std::borrow::Cow;

use super::answers::Observation;
use super::record::{Phase, Record, Settled};
use super::truth::Reason;
use crate::custody::{
    Class, Core, EntryId, Failure, Held, Keep, Receipt, Report, Stamp, held_report,
};
use crate::sync::{Arc, Weak, lock};

pub(super) struct KeptDebt {
    /// Weak, because the quarantine that keeps this is a part of it.
    core: Weak<Core>,
    record: Arc<Record>,
}

impl KeptDebt {
    pub(super) fn new(core: Weak<Core>, record: Arc<Record>) -> Self {
        Self { core, record }
    }

    /// The receipt of what settled the debt.
    fn receipt(&self, stamp: &dyn Fn() -> Stamp) -> Receipt {
        let slot = self.record.slot;
        let settled_by = match &lock(&self.record.state).phase {
            Phase::Ready(Settled::Abandoned(receipt)) => return receipt.clone(),
            Phase::Ready(Settled::Failed(cause)) => format!("its fence, failed: {cause}"),
            Phase::Ready(Settled::Succeeded) => "its fence, succeeded".to_owned(),
            _ => "another call".to_owned(),
        };
        Receipt::of(self.record.lane.lane.identity())
            .note(format!("slot {slot} was settled by {settled_by}"))
            .stamped(None, 0, stamp())
    }
}

impl Keep for KeptDebt {
    fn class(&self) -> Class {
        if lock(&self.record.state).attempts.is_empty() {
            Class::NeverAttempted
        } else {
            Class::Retryable
        }
    }

    fn failure(&self) -> Option<Failure> {
        let state = lock(&self.record.state);
        state.attempts.last().map(|last| last.failure.clone())
    }

    fn holders(&mut self) -> usize {
        0
    }

    fn attempt(&mut self, stamp: &dyn Fn() -> Stamp) -> Result<Receipt, Failure> {
        let unsettled = |this: &Self| {
            this.failure().unwrap_or_else(|| Failure {
                call: Cow::Borrowed("drain"),
                errno: None,
                class: Class::Retryable,
                detail: Some("the debt is still unsettled".to_owned()),
            })
        };
        let Some(core) = self.core.upgrade() else {
            return Err(unsettled(self));
        };
        match core.recover(&self.record, Reason::Maintenance) {
            Ok(Observation::Ready) | Err(_) => {
                let receipt = self.receipt(stamp);
                if core.ledger.is_abandoned() {
                    core.orphan(&self.record);
                }
                Ok(receipt)
            }
            Ok(Observation::Quarantined | Observation::Pending | Observation::Indeterminate) => {
                Err(unsettled(self))
            }
        }
    }

    fn report(&self, since: &Stamp) -> Report {
        let class = self.class();
        let evidence = self.record.lane.evidence();
        let identity = self.record.lane.lane.identity();
        let state = lock(&self.record.state);
        Report {
            entry: EntryId::Slot(self.record.slot),
            identity,
            class,
            waits_for: match (&state.phase, class) {
                (Phase::Ready(_), _) => "somebody to take its result, or maintenance".into(),
                (Phase::Unknown(cause), _) => {
                    format!("a drain, possibly submitted: {cause}").into()
                }
                (_, Class::NeverAttempted) => "maintenance".into(),
                _ => "".into(),
            },
            attempts: state.attempts.clone(),
            since: since.clone(),
            bytes: 0,
            held: state
                .loans
                .iter()
                .map(|loan| held_report(loan.owner()))
                .collect(),
            holders: 0,
            evidence,
            in_progress: false,
        }
    }

    fn deps(&self) -> Vec<Arc<Held>> {
        lock(&self.record.state)
            .loans
            .iter()
            .map(|loan| Arc::clone(loan.owner()))
            .collect()
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn counts_as_owner(&self) -> bool {
        false
    }
}
