//! Completion: who still owes an answer, and what an observation of a device permits.
//!
//! One model serves receivers, registered memory and device runtimes. A request has a [`Submission`] outcome, and the work that
//! it started has a [`Fence`] outcome; the truth table of the two says when owners may be released and when a result may
//! be published.

mod outcome;
mod slot;

pub use outcome::{Cause, Fence, Submission};
pub use slot::SlotId;
