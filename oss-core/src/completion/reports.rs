//! How a lane tells the ledger that a fence has changed.
//!
//! Promises: a report is short, runs nothing of a user but wakers, and may come from a callback of a device. Does not do:
//! settling; whoever looks at the debt next does.

use std::fmt;

use super::outcome::Fence;
use super::record::Phase;
use super::slot::SlotId;
use super::table::Lookup;
use crate::custody::Core;
use crate::sync::{Arc, Weak, lock};

/// Where lanes report. It does not keep the ledger alive; a report to a ledger that is gone is dropped.
#[derive(Clone)]
pub struct Reports {
    core: Weak<Core>,
}

impl Reports {
    pub(super) fn to(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::downgrade(core),
        }
    }

    /// The fence of a slot has changed. The debt is not settled here but by the next one who looks at it; whoever waits
    /// for it in a future is woken. May be called from a callback of a device: it takes short locks and runs
    /// nothing but wakers.
    ///
    /// A report about a slot that is possibly submitted, settled or unknown changes nothing.
    pub fn changed(&self, slot: SlotId, fence: Fence) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        if fence == Fence::Pending {
            return;
        }
        let mut table = core.ledger.table();
        let Lookup::Found(record) = table.get(slot) else {
            return;
        };
        let mut state = lock(&record.state);
        if !matches!(state.phase, Phase::InFlight | Phase::Reserved) {
            return;
        }
        // The first quiet report stands: a device that reports twice does not change an outcome.
        let news = state.reported.is_none();
        if !state.reported.as_ref().is_some_and(Fence::is_quiet) {
            state.reported = Some(fence);
        }
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        if news {
            table.report(slot);
        }
        drop(table);
        // The last reference to a record may not be dropped under the lock of the table.
        drop(record);
        core.ledger.tell();
        for waker in wakers {
            waker.wake();
        }
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reports")
    }
}
