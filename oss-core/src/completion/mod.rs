//! Completion: who still owes an answer, and what an observation of a device permits.
//!
//! One model serves receivers, registered memory and device runtimes. A request has a [`Submission`] outcome, and the work that
//! it started has a [`Fence`] outcome; the truth table of the two says when owners may be released and when a result may
//! be published:
//!
//! | observation | owners may be released | result may be published |
//! | --- | --- | --- |
//! | pending | no | no |
//! | succeeded | yes | yes |
//! | failed but quiescent | yes (destination poisoned) | no |
//! | indeterminate | no | no |
//! | definitely not submitted | yes, full roll-back to the state before | no |
//! | possibly submitted | no; only a proven drain | no |
//! | drain succeeded | yes | never ("abandoned after drain") |
//! | drain failed | no: quarantined, an explicit retry is allowed | no |
//!
//! A [`Debt`] lends ranges of owners ([`Loan`]) and carries a value to publish. It is submitted through the [`LaneHandle`] of a [`Lane`]
//! to the [`Ledger`] of a domain, which keeps it in a slot. [`Handle`], [`Finished`], the blocking calls and the ledger's own
//! calls by [`SlotId`] are views of that slot.

mod answers;
mod driver;
mod handle;
mod kept;
mod lane;
mod ledger;
mod loan;
mod outcome;
mod record;
mod reports;
mod slot;
mod table;
mod truth;

pub use answers::{Observation, Refusal, Rejected, SlotError, Sweep, SweepSize};
pub use driver::{Driver, Policy, Progress, Recovery};
pub use handle::{Finished, Handle, Outcome, Poisoned};
pub use lane::{Lane, LaneHandle, StillOpen, Watch};
pub use ledger::Ledger;
pub(crate) use ledger::LedgerState;
pub use loan::{Debt, Direction, Loan};
pub use outcome::{Cause, Fence, Submission};
pub use reports::Reports;
pub use slot::SlotId;
