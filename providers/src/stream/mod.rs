//! Receivers in tokio's tasks: batches lent to a closure, or a `Stream` of packets with their own bytes.
//!
//! Promises: every future here may be dropped at any time, and no packet is lost by it: a packet leaves the receiver only in the call that
//! hands it over. A receiver without a readiness descriptor is refused and given back. While nothing arrives, no thread
//! spins and none is blocked. Does not do: a runtime of its own; waking up for events besides packets.
//!
//! A batch borrows the receiver's memory, so it can't leave a `Stream`. [`AsyncReceiver::next_batch`] lends it to a closure instead,
//! without a copy. [`Packets`] copies each packet into a buffer that is used again once the packet is dropped.
//!
//! ```
//! # async fn example(receiver: lockgate::receive::Receiver) -> Result<(), Box<dyn std::error::Error>> {
//! use lockgate_providers::stream::AsyncReceiver;
//! let mut receiver = AsyncReceiver::new(receiver)?;
//! let bytes = receiver
//!     .next_batch(|batch| batch.iter().map(|packet| packet.payload().len()).sum::<usize>())
//!     .await?;
//! println!("{bytes} octets of payload");
//! receiver.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! The descriptor is watched through a duplicate, which is closed before the receiver is: a watch must not keep a socket alive.
//! tokio watches for edges, so a receiver's descriptor has to become readable anew when something arrives after a poll that
//! found nothing. Kernel sockets, epoll sets and event descriptors do.

mod packets;
mod sys;
#[cfg(test)]
mod tests;

use std::fmt;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use lockgate::receive::{Batch, Event, Receiver, Setting, State, Statistics};
use lockgate::registry::Capability;
use lockgate::{Error, ErrorKind, Result};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

pub use packets::{OwnedPacket, Packets};

/// A receiver whose packets are awaited.
#[derive(Debug)]
pub struct AsyncReceiver {
    /// A duplicate of the readiness descriptor; gone after a close. Stands before the receiver because fields are dropped in
    /// order.
    watch: Option<AsyncFd<OwnedFd>>,
    receiver: Receiver,
}

impl AsyncReceiver {
    /// Watches a receiver's readiness descriptor in the runtime of the calling task.
    ///
    /// # Errors
    /// [`Refused`], with the receiver in it: it is closed, it has no readiness descriptor ([`ErrorKind::Capability`]), there is no
    /// runtime here ([`ErrorKind::Library`]), or the descriptor can't be watched.
    ///
    /// # Panics
    /// tokio panics if the runtime was built without I/O; see `tokio::runtime::Builder::enable_io`.
    pub fn new(receiver: Receiver) -> Result<Self, Box<Refused>> {
        match watch(&receiver) {
            Ok(watch) => Ok(Self {
                watch: Some(watch),
                receiver,
            }),
            Err(error) => {
                let error = error.with_provider(receiver.provider());
                Err(Box::new(Refused { error, receiver }))
            }
        }
    }

    /// Waits until a batch may be there. May wake up early.
    ///
    /// Takes nothing. Follow it with [`next_batch`](Self::next_batch), which waits on if the wake-up was early.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after a close, or when the runtime has shut down.
    pub async fn readable(&mut self) -> Result<()> {
        let watch = self.watch.as_ref().ok_or_else(|| closed("wait"))?;
        // The guard goes without clearing anything: nobody has looked whether something is there.
        let _ready = watch.readable().await.map_err(gone)?;
        Ok(())
    }

    /// Waits for the next batch that is not empty and lends it to `take`.
    ///
    /// Dropped before it is ready, it has taken nothing from the receiver, and `take` was not called.
    ///
    /// # Errors
    /// Those of [`Receiver::poll`], and those of [`readable`](Self::readable).
    pub async fn next_batch<R>(&mut self, take: impl FnOnce(Batch<'_>) -> R) -> Result<R> {
        let watch = self.watch.as_ref().ok_or_else(|| closed("poll"))?;
        loop {
            let mut ready = watch.readable().await.map_err(gone)?;
            let batch = self.receiver.poll()?;
            if !batch.is_empty() {
                // Still ready: there may be more.
                return Ok(take(batch));
            }
            // Forgets the readiness seen before the poll; one that came since stays.
            ready.clear_ready();
        }
    }

    /// The same as a stream of packets with their own bytes.
    #[must_use]
    pub fn packets(self) -> Packets {
        Packets::new(self)
    }

    /// Totals; see [`Receiver::statistics`].
    pub fn statistics(&mut self) -> Statistics {
        self.receiver.statistics()
    }

    /// What happened besides packets; see [`Receiver::take_event`]. Events wake nobody up: ask from time to time.
    pub fn take_event(&mut self) -> Option<Event> {
        self.receiver.take_event()
    }

    /// What was granted; see [`Receiver::settings`].
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        self.receiver.settings()
    }

    /// Where the receiver stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.receiver.state()
    }

    /// Ends the watch and closes the receiver; see [`Receiver::close`]. Idempotent as that is.
    ///
    /// # Errors
    /// Those of [`Receiver::close`].
    pub fn close(&mut self) -> Result<()> {
        self.watch = None;
        self.receiver.close()
    }

    /// Ends the watch and gives the receiver back, open as it was.
    #[must_use]
    pub fn into_inner(self) -> Receiver {
        self.receiver
    }

    /// For the stream: as [`next_batch`](Self::next_batch).
    fn poll_batch<R>(
        &mut self,
        context: &mut Context<'_>,
        take: impl FnOnce(Batch<'_>) -> R,
    ) -> Poll<Result<R>> {
        let watch = self.watch.as_ref().ok_or_else(|| closed("poll"))?;
        loop {
            let mut ready = ready!(watch.poll_read_ready(context)).map_err(gone)?;
            let batch = self.receiver.poll()?;
            if !batch.is_empty() {
                return Poll::Ready(Ok(take(batch)));
            }
            ready.clear_ready();
        }
    }
}

/// A receiver that can't be awaited, given back.
pub struct Refused {
    /// Why.
    pub error: Error,
    /// The receiver, as it was.
    pub receiver: Receiver,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("error", &self.error)
            .field("receiver", &self.receiver)
            .finish()
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

fn watch(receiver: &Receiver) -> Result<AsyncFd<OwnedFd>> {
    const OPERATION: &str = "await receiver";
    if receiver.state() != State::Open {
        return Err(closed(OPERATION));
    }
    let fd = receiver.readiness_fd().ok_or_else(|| {
        Error::new(ErrorKind::Capability, OPERATION)
            .with_object(Capability::ReadinessFd.name())
            .with_detail("the receiver has no descriptor that an event loop can wait on")
            .with_remedy("open a provider that claims it, or wait in a thread of its own")
    })?;
    Handle::try_current().map_err(|error| {
        Error::new(ErrorKind::Library, OPERATION)
            .with_detail("no tokio runtime runs this thread")
            .with_remedy("call it from a task, or from within Handle::enter")
            .with_source(error)
    })?;
    let fd = fd
        .try_clone_to_owned()
        .map_err(|error| Error::from_io("duplicate readiness descriptor", error))?;
    sys::watch(fd).map_err(|error| Error::from_io("watch readiness descriptor", error))
}

fn closed(operation: &'static str) -> Error {
    Error::new(ErrorKind::Closed, operation)
}

/// tokio fails a wait only when its runtime has shut down.
fn gone(error: std::io::Error) -> Error {
    Error::new(ErrorKind::Closed, "wait")
        .with_detail("the tokio runtime of the receiver has shut down")
        .with_source(error)
}
