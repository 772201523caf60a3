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
//!
//! # How a provider owns a native object
//!
//! ```
//! use lockgate::Errno;
//! use lockgate::custody::{Class, Domain, Identity, Native, Receipt, Release, RetryError};
//!
//! /// A handle of the native library; its drop makes no native call.
//! struct Queue {
//!     handle: u64,
//!     busy: bool,
//! }
//!
//! impl Queue {
//!     /// Stands for the native destroy call.
//!     fn destroy(&mut self) -> Result<(), Errno> {
//!         if std::mem::take(&mut self.busy) { Err(Errno::BUSY) } else { Ok(()) }
//!     }
//! }
//!
//! impl Native for Queue {
//!     fn identity(&self) -> Identity {
//!         Identity::new("queue").named("dev0").with("handle", self.handle)
//!     }
//!
//!     fn release(&mut self) -> Release {
//!         match self.destroy() {
//!             Ok(()) => Release::Released(Receipt::of(self.identity())),
//!             // This library's source proves that EBUSY means "nothing was done".
//!             Err(errno) if errno == Errno::BUSY => Release::NothingDone(errno),
//!             Err(errno) => Release::Ambiguous(errno),
//!         }
//!     }
//!
//!     fn release_call(&self) -> &'static str {
//!         "destroy_queue"
//!     }
//! }
//!
//! let domain = Domain::new("feed", 1 << 20);
//! // Admitted and charged before the native call that makes the object.
//! let admission = domain.admit()?;
//! let claim = domain.budget().reserve(4096)?;
//! let queue = admission.own(Queue { handle: 7, busy: true }, Vec::new(), claim.commit());
//!
//! // The one native call fails; everything comes back inside the error.
//! let unreleased = queue.close().expect_err("it is busy");
//! assert_eq!(unreleased.class(), Class::Retryable);
//! // Closing again answers the same failure, without a native call.
//! let unreleased = unreleased.close().expect_err("the same failure");
//! // The quarantine keeps handle and charge, and tells what is known.
//! let entry = unreleased.quarantine();
//! assert_eq!(domain.live().bytes, 4096);
//! assert!(domain.quarantine().text().contains("tried: destroy_queue: EBUSY (16)"));
//! // This failure proves that nothing was done, so an explicit retry is allowed.
//! let receipt = domain.quarantine().retry(entry)?;
//! assert_eq!(receipt.identity().number("handle"), Some(7));
//! assert_eq!(domain.quarantine().retry(entry), Err(RetryError::Unknown(entry)));
//! domain.quarantine().assert_empty();
//! assert_eq!(domain.live().bytes, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use domain::{Admission, Domain, Live, Refused, Shutdown};
pub use gate::{Closed, Gate, Quiet, Ticket};
pub use held::Held;
pub use identity::{Alive, Evidence, Identity};
pub use native::{Native, Receipt, Release};
pub use owner::{Owner, Releasing, Unreleased};
pub(crate) use owner::{held_report, panic_text};
pub use quarantine::{EntryId, Maintenance, NotEmpty, Quarantine, RetryError};
pub(crate) use quarantine::{Keep, Withdrawn};
pub use report::{Attempt, Class, Failure, HeldReport, Report};
pub use serials::{Exhausted, Generation, Serial, Serials};
pub use stamp::Stamp;
