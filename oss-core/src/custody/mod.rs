//! Custody: who owns a native object, what it needs to stay alive, and what happens when it cannot be let go.
//!
//! A [`Domain`] owns a [`Budget`], a [`Gate`], serials and a [`Quarantine`]; nothing is shared between two domains. A provider
//! implements [`Native`] for a thin handle of an object, is admitted with [`Domain::admit`], and gets an [`Owner`]. An owner keeps
//! what it depends on alive through [`Held`] values and carries its [`Charge`]. Closing it yields a [`Receipt`], or an
//! [`Unreleased`] with everything still inside.
//!
//! Promises:
//! - a native release call is made at most once for one owner, except by an explicit [`Quarantine::retry`] after a failure
//!   whose number proves that nothing was done;
//! - an owner that somebody still holds is never released;
//! - dropping an owner never panics, never waits on a device and loses nothing: what cannot be proven quiet moves to
//!   the quarantine of its domain with its handle, dependants, charge and evidence;
//! - what was charged is what is released.
//!
//! Does not do: knowing any kind of native object, deciding when to close, or retrying by itself.

mod budget;
mod domain;
mod gate;
mod held;
mod identity;
mod native;
mod owner;
mod quarantine;
mod report;
mod serials;
mod stamp;

pub use budget::{Budget, BudgetExceeded, Charge, Raise, Reservation};
pub(crate) use domain::Core;
pub use domain::{Admission, Domain, Live, Refused};
pub use gate::{Closed, Gate, Quiet, Ticket};
pub use held::Held;
pub use identity::{Alive, Evidence, Identity};
pub use native::{Native, Receipt, Release};
pub use owner::{Owner, Unreleased};
pub(crate) use owner::{held_report, panic_text};
pub use quarantine::{EntryId, Maintenance, NotEmpty, Quarantine, RetryError};
pub(crate) use quarantine::{Keep, Withdrawn};
pub use report::{Attempt, Class, Failure, HeldReport, Report};
pub use serials::{Exhausted, Generation, Serial, Serials};
pub use stamp::Stamp;
