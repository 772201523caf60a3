//! What must stay alive while somebody is unresolved.
//!
//! A [`Held`] value is shared by all who need it: a protection domain by its queue pairs and memory regions, a slab of memory by the
//! registration and by the requests that were posted over it. As long as one clone of the `Arc` exists, the owner it came from
//! is not released, and a value that was given to it is not dropped.
//!
//! Promises: nothing but the clones of its own `Arc` keeps it. Does not do: access. A holder keeps, it does not use.

use std::any::Any;
use std::fmt;

use super::identity::Identity;
use super::serials::Serial;
use crate::sync::Arc;

/// Something that stays alive while a clone of its `Arc` exists.
pub struct Held {
    identity: Identity,
    object: Option<Serial>,
    bytes: u64,
    value: Option<Box<dyn Any + Send + Sync>>,
}

impl Held {
    /// Keeps any value, such as a slab, a socket or a file: it is dropped with the last clone.
    ///
    /// `bytes` is what the value pins or occupies, for the listing of the quarantine; a value that is charged to a budget carries
    /// its [`Charge`](super::Charge) itself.
    #[must_use]
    pub fn value<T: Any + Send + Sync>(identity: Identity, bytes: u64, value: T) -> Arc<Self> {
        Arc::new(Self {
            identity,
            object: None,
            bytes,
            value: Some(Box::new(value)),
        })
    }

    pub(super) fn owner(identity: Identity, object: Serial) -> Arc<Self> {
        Arc::new(Self {
            identity,
            object: Some(object),
            bytes: 0,
            value: None,
        })
    }

    /// What is held.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The serial of the owner that is kept from being released; `None` for a plain value.
    #[must_use]
    pub fn object(&self) -> Option<Serial> {
        self.object
    }

    /// The bytes that a plain value occupies; 0 for an owner, whose charge is its own.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The value that is kept, if it is of this type.
    #[must_use]
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        self.value.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Held({}, {} bytes)", self.identity, self.bytes)
    }
}
