//! The owners: what a program holds.
//!
//! Promises: each is made through an admission of the domain that is named, holds its parents, and closes with a receipt or with
//! itself inside the error. Does not do: closing children; who made them does, first.

mod context;
mod lane;
mod memory;
mod queue;
mod sys;

pub use context::{Context, Event};
pub use lane::{CqLane, LaneOptions, LaneReceipts, LaneUnreleased};
pub use memory::{MemoryRegion, MemoryWindow, ProtectionDomain};
pub use queue::{Endpoint, FlowSteering, MulticastAttachment, QueuePair};

use lockgate::custody::{Admission, Charge, Domain};
use lockgate::{Error, ErrorKind};
use lockgate_verbs_shim as shim;

use super::native::core_errno;

/// Admits one object before it is made.
fn admit(domain: &Domain, step: &'static str) -> Result<Admission, Error> {
    domain.admit().map_err(|refused| {
        Error::new(ErrorKind::Closed, step)
            .with_object(format!("domain {:?}", domain.name()))
            .with_source(refused)
    })
}

/// Charges bytes before they are pinned.
fn charge(domain: &Domain, step: &'static str, bytes: u64) -> Result<Charge, Error> {
    let claim = domain.budget().reserve(bytes).map_err(|exceeded| {
        Error::new(ErrorKind::MemoryLimit, step)
            .with_object(format!("domain {:?}", domain.name()))
            .with_detail(exceeded.to_string())
            .with_remedy("give the domain a larger budget, or ask for less")
    })?;
    Ok(claim.commit())
}

/// The error of a call that failed.
fn failed(step: &'static str, errno: shim::Errno) -> Error {
    Error::from_errno(step, core_errno(errno))
}

/// Defines what all owners of one native object have.
macro_rules! common {
    ($owner:ident, $native:path) => {
        impl $owner {
            /// Keeps it from being released as long as the returned value or a clone of it exists.
            #[must_use]
            pub fn hold(&self) -> std::sync::Arc<lockgate::custody::Held> {
                self.owner.hold()
            }

            /// Which native object it is: device, handles, numbers.
            #[must_use]
            pub fn identity(&self) -> &lockgate::custody::Identity {
                self.owner.identity()
            }

            /// What a live native query says, from any thread.
            #[must_use]
            pub fn evidence(&self) -> lockgate::custody::Evidence {
                lockgate::custody::Native::evidence(self.owner.native())
            }

            /// Makes the one native release call.
            ///
            /// # Errors
            /// Everything inside: somebody holds it, or the call failed.
            pub fn close(
                self,
            ) -> Result<lockgate::custody::Receipt, lockgate::custody::Unreleased<$native>> {
                self.owner.close()
            }
        }
    };
}
use common;
