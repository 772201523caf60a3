//! What a provider implements for a native object, and the receipt it gives.
//!
//! Promises: the trait is all that custody asks of a provider. Does not do: creating objects; a provider creates one,
//! wraps its handle and hands it to an admission.

use std::fmt;

use serde::Serialize;

use super::identity::{Evidence, Identity};
use super::serials::Serial;
use super::stamp::Stamp;
use crate::Errno;

/// A thin handle of one native object.
///
/// The value owns the handle and does nothing by itself: its `Drop` makes no native call. Custody drops it after a receipt, and
/// never before.
pub trait Native: Send + 'static {
    /// Which object this is. Asked once, when the owner is made, on the thread that makes it.
    fn identity(&self) -> Identity;

    /// The native call that releases the object, and nothing else. Called at most once, except by an explicit retry after
    /// [`Release::NothingDone`]. It may run on any thread. A panic counts as ambiguous.
    fn release(&mut self) -> Release;

    /// The name of the call that [`release`](Native::release) makes, for evidence: `ibv_destroy_qp`.
    fn release_call(&self) -> &'static str {
        "release"
    }

    /// A live native query which shows whether the object still exists. It may run on any thread, and must change nothing.
    fn evidence(&self) -> Evidence {
        Evidence::none()
    }
}

impl Native for Box<dyn Native> {
    fn identity(&self) -> Identity {
        (**self).identity()
    }

    fn release(&mut self) -> Release {
        (**self).release()
    }

    fn release_call(&self) -> &'static str {
        (**self).release_call()
    }

    fn evidence(&self) -> Evidence {
        (**self).evidence()
    }
}

/// What the native release call did.
#[derive(Debug)]
#[must_use = "an unread outcome of a release loses the object"]
pub enum Release {
    /// It failed, and nobody knows what it did. Refused for ever.
    Ambiguous(Errno),
    /// It failed, and the number, from the short list of the provider, proves that it did nothing. May be retried by an explicit call.
    NothingDone(Errno),
    /// The object is gone.
    Released(Receipt),
}

/// The native proof that an object was released or a debt was settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Receipt {
    identity: Identity,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Serial>,
    bytes: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp: Option<Stamp>,
}

impl Receipt {
    /// A provider's receipt for the object of this identity. Custody adds serial, bytes, thread and time.
    #[must_use]
    pub fn of(identity: Identity) -> Self {
        Self {
            identity,
            object: None,
            bytes: 0,
            notes: Vec::new(),
            stamp: None,
        }
    }

    /// Adds what a reader must know to trust the proof, such as a setting under which the library answers without the device.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    pub(crate) fn stamped(mut self, object: Option<Serial>, bytes: u64, stamp: Stamp) -> Self {
        self.object = object;
        self.bytes = bytes;
        self.stamp = Some(stamp);
        self
    }

    /// Which native object.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The serial of the owner that was released; `None` for a drained lane.
    #[must_use]
    pub fn object(&self) -> Option<Serial> {
        self.object
    }

    /// The bytes of the charge that came back with it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What the provider wants a reader to know.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Who got it and when; `None` until custody has taken it.
    #[must_use]
    pub fn stamp(&self) -> Option<&Stamp> {
        self.stamp.as_ref()
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "receipt for {}", self.identity)?;
        if let Some(object) = self.object {
            write!(f, ", object {object}, {} bytes", self.bytes)?;
        }
        if let Some(stamp) = &self.stamp {
            write!(f, ", by {stamp}")?;
        }
        for note in &self.notes {
            write!(f, "; {note}")?;
        }
        Ok(())
    }
}
