//! What a recording has come to, for whoever holds the receiver and whoever doesn't.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use lockgate::{Error, ErrorKind, Result};

/// Reads the counts of one recording, from any thread. Clones read the same recording.
#[derive(Clone, Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
}

/// What a recording that has everything came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Packets in the file.
    pub recorded: u64,
    /// Its length in octets.
    pub bytes: u64,
}

/// Written by the receiver's thread alone, and read by any. Each count stands for itself, so no order between them is needed.
#[derive(Debug, Default)]
pub(super) struct Shared {
    recorded: AtomicU64,
    pending: AtomicU64,
    unrecorded: AtomicU64,
    bytes: AtomicU64,
    failure: OnceLock<Error>,
}

impl Monitor {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
        }
    }

    /// Packets that have been written to the file.
    #[must_use]
    pub fn recorded(&self) -> u64 {
        self.shared.recorded.load(Ordering::Relaxed)
    }

    /// Packets in the buffer.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.shared.pending.load(Ordering::Relaxed)
    }

    /// Packets that were delivered and are not in the file.
    #[must_use]
    pub fn unrecorded(&self) -> u64 {
        self.shared.unrecorded.load(Ordering::Relaxed)
    }

    /// The length of the file, in octets.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Why the recording stopped, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure.get().cloned()
    }

    /// Whether every delivered packet is in the file. To be asked after the close.
    ///
    /// # Errors
    /// The failure that stopped it; or [`ErrorKind::Resource`] with the counts where packets are missing for another reason: they are
    /// still in the buffer, or they did not fit into an IP packet.
    pub fn outcome(&self) -> Result<Outcome> {
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let (pending, unrecorded) = (self.pending(), self.unrecorded());
        if pending + unrecorded > 0 {
            return Err(
                Error::new(ErrorKind::Resource, "record").with_detail(format!(
                    "{unrecorded} packets could not be recorded, {pending} are not written yet"
                )),
            );
        }
        Ok(Outcome {
            recorded: self.recorded(),
            bytes: self.bytes(),
        })
    }
}

impl Shared {
    /// Takes over what stands in the file, in the buffer, and in neither.
    pub(super) fn set(&self, recorded: u64, pending: u64, unrecorded: u64, bytes: u64) {
        self.recorded.store(recorded, Ordering::Relaxed);
        self.pending.store(pending, Ordering::Relaxed);
        self.unrecorded.store(unrecorded, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn fail(&self, error: Error) {
        // Only the first failure is one: nothing is written after it.
        let _ = self.failure.set(error);
    }

    pub(super) fn failure(&self) -> Option<&Error> {
        self.failure.get()
    }
}
