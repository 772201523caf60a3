//! Packets with their own bytes, as a stream.
//!
//! Promises: buffers come from a pool and go back to it when a packet is dropped, so that a stream whose packets are dropped in time stops
//! allocating; at most one batch is taken ahead. Does not do: limiting how many packets the application keeps.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;
use lockgate::Result;
use lockgate::receive::{Batch, Descriptor, Packet};

use super::AsyncReceiver;

/// How many buffers the pool keeps; the largest batch that a configuration may ask for.
const SPARE: usize = 4096;

/// The packets of a receiver. Ends after the first error.
///
/// Dropping a `next` of it loses nothing: what was taken ahead stays in the stream.
#[derive(Debug)]
pub struct Packets {
    receiver: AsyncReceiver,
    ahead: VecDeque<OwnedPacket>,
    pool: Arc<Pool>,
    over: bool,
}

impl Packets {
    pub(super) fn new(receiver: AsyncReceiver) -> Self {
        Self {
            receiver,
            ahead: VecDeque::new(),
            pool: Arc::default(),
            over: false,
        }
    }

    /// The receiver, for statistics, events and the close. A close ends the stream behind what was taken ahead.
    pub fn receiver(&mut self) -> &mut AsyncReceiver {
        &mut self.receiver
    }

    /// Gives the receiver back, and the packets that were taken ahead of the application.
    #[must_use]
    pub fn into_parts(self) -> (AsyncReceiver, Vec<OwnedPacket>) {
        (self.receiver, self.ahead.into())
    }
}

impl Stream for Packets {
    type Item = Result<OwnedPacket>;

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<OwnedPacket>>> {
        let Self {
            receiver,
            ahead,
            pool,
            over,
        } = self.get_mut();
        if ahead.is_empty() && !*over {
            let took = ready!(receiver.poll_batch(context, |batch| {
                ahead.extend(batch.iter().map(|packet| OwnedPacket::copy(&packet, pool)));
            }));
            if let Err(error) = took {
                *over = true;
                return Poll::Ready(Some(Err(error)));
            }
        }
        Poll::Ready(ahead.pop_front().map(Ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let most = self.over.then_some(self.ahead.len());
        (self.ahead.len(), most)
    }
}

impl FusedStream for Packets {
    fn is_terminated(&self) -> bool {
        self.over && self.ahead.is_empty()
    }
}

/// A packet with its own bytes.
pub struct OwnedPacket {
    bytes: Vec<u8>,
    descriptor: Descriptor,
    pool: Arc<Pool>,
}

impl OwnedPacket {
    fn copy(packet: &Packet<'_>, pool: &Arc<Pool>) -> Self {
        let mut bytes = pool.take();
        bytes.extend_from_slice(packet.captured());
        Self {
            bytes,
            descriptor: Descriptor {
                slab: 0,
                offset: 0,
                ..*packet.descriptor()
            },
            pool: Arc::clone(pool),
        }
    }

    /// The packet: addresses, time, payload, frame.
    #[must_use]
    pub fn view(&self) -> Packet<'_> {
        let one = std::slice::from_ref(&self.descriptor);
        let batch = Batch::new(&self.bytes[..], one).ok();
        #[expect(
            clippy::expect_used,
            reason = "the descriptor was checked where the bytes came from, and copy took exactly the captured ones"
        )]
        batch
            .and_then(|batch| batch.get(0))
            .expect("a checked descriptor")
    }

    /// The UDP payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.view().payload()
    }
}

impl Drop for OwnedPacket {
    fn drop(&mut self) {
        self.pool.give_back(std::mem::take(&mut self.bytes));
    }
}

impl fmt::Debug for OwnedPacket {
    /// Addresses and lengths, never contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// Buffers of packets that are gone.
#[derive(Default)]
struct Pool {
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    fn take(&self) -> Vec<u8> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_default()
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < SPARE {
            spare.push(bytes);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
