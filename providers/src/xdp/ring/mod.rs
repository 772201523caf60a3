//! One queue's two rings, read and written in place: frames that arrived, and frames that the kernel may fill.
//!
//! Promises: every frame is either the kernel's or ours, and is marked; what the kernel's rings say never makes a frame be both, be
//! read outside of its chunk, or make the reader run for ever or panic. No allocation. Does not do: mapping; custody owns the
//! memory.
//!
//! The kernel's side is net/xdp/xsk_queue.h, the layout linux/if_xdp.h.

#[cfg(any(test, fuzzing))]
pub(super) mod hostile;

use lockgate::receive::frame::Origin;
use lockgate::receive::{Descriptor, Timestamp};

use super::sys::{self, RingOffsets};
use crate::kernel::custody::View;
use crate::raw::judge::{Arrival, Judge};

/// `struct xdp_desc`.
const ENTRY: usize = 16;
/// An address in the fill ring.
const ADDRESS: usize = 8;
/// Frames lie too far apart for the processor to see a pattern: so many ahead is fetched what most packets need.
const AHEAD: u32 = 6;
const LINES: usize = 4;
const NEED_WAKEUP: u32 = 1;
/// More of the same packet follows in the next entry: nobody asked the kernel for that.
const CONTINUED: u32 = 1;

/// Where a ring's parts lie in its mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    offsets: Places,
    /// A power of two.
    entries: u32,
}

#[derive(Clone, Copy, Debug)]
struct Places {
    producer: usize,
    consumer: usize,
    entries: usize,
    flags: usize,
}

impl Ring {
    /// A ring of so many entries, which is a power of two.
    pub(super) fn new(offsets: &RingOffsets, entries: u32) -> Self {
        let place = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        Self {
            offsets: Places {
                producer: place(offsets.producer),
                consumer: place(offsets.consumer),
                entries: place(offsets.entries),
                flags: place(offsets.flags),
            },
            entries,
        }
    }

    /// Where the entry of an index lies.
    #[inline]
    fn entry(&self, index: u32, size: usize) -> usize {
        let within = (index & (self.entries - 1)) as usize;
        self.offsets.entries.saturating_add(within * size)
    }
}

/// The frames of a queue: equal chunks, from one on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// The first chunk's number in the whole memory.
    pub(super) first: u32,
    pub(super) count: u32,
    /// A power of two.
    pub(super) chunk_bytes: u32,
}

/// The two rings' mappings and the frames' memory.
#[derive(Clone, Copy)]
pub(super) struct Views<'a> {
    pub(super) receive: View<'a>,
    pub(super) fill: View<'a>,
    pub(super) frames: View<'a>,
}

/// A queue.
#[derive(Debug)]
pub(super) struct Queue {
    receive: Ring,
    fill: Ring,
    frames: Frames,
    /// Which frames the kernel has.
    lent: Box<[bool]>,
    /// Which frames wait to go to the kernel, by their chunk; the first `waiting` are filled in.
    ours: Box<[u32]>,
    waiting: usize,
    /// The next entry that is read, and the next that is written.
    consumer: u32,
    producer: u32,
}

impl Queue {
    /// All frames are ours, and wait to go to the kernel.
    pub(super) fn new(receive: Ring, fill: Ring, frames: Frames) -> Self {
        let count = frames.count as usize;
        Self {
            receive,
            fill,
            lent: vec![false; count].into_boxed_slice(),
            ours: (frames.first..).take(count).collect(),
            frames,
            waiting: count,
            consumer: 0,
            producer: 0,
        }
    }

    /// Gives the kernel the frames that wait. Answers whether it has to be woken up to look.
    #[inline]
    pub(super) fn give_back(&mut self, views: Views<'_>) -> bool {
        if self.waiting == 0 {
            return false;
        }
        let places = self.fill.offsets;
        let Some(consumer) = views.fill.acquire(places.consumer) else {
            return false;
        };
        // An index that contradicts the ring leaves no room, and the frames stay with us.
        let used = self.producer.wrapping_sub(consumer);
        let room = self.fill.entries.saturating_sub(used) as usize;
        let count = room.min(self.waiting);
        for _ in 0..count {
            self.waiting -= 1;
            let Some(chunk) = self.ours.get(self.waiting).copied() else {
                continue;
            };
            let address = u64::from(chunk) * u64::from(self.frames.chunk_bytes);
            if !views
                .fill
                .put(self.fill.entry(self.producer, ADDRESS), address)
            {
                continue;
            }
            if let Some(lent) = self.lent.get_mut((chunk - self.frames.first) as usize) {
                *lent = true;
            }
            self.producer = self.producer.wrapping_add(1);
        }
        views.fill.publish(places.producer, self.producer);
        views
            .fill
            .acquire(places.flags)
            .is_some_and(|flags| flags & NEED_WAKEUP != 0)
    }

    /// How many entries the kernel has written that were not read, as it says.
    #[inline]
    fn there(&self, views: Views<'_>) -> u32 {
        let producer = views.receive.acquire(self.receive.offsets.producer);
        let there = producer.map_or(0, |producer| producer.wrapping_sub(self.consumer));
        // More than the ring holds contradicts it: then no more than one round.
        there.min(self.receive.entries)
    }

    /// Whether something arrived.
    #[inline]
    pub(super) fn is_ready(&self, views: Views<'_>) -> bool {
        self.there(views) > 0
    }

    /// Takes what arrived, and answers how many descriptors it wrote.
    #[inline]
    pub(super) fn take(
        &mut self,
        views: Views<'_>,
        stamp: &mut impl FnMut() -> Timestamp,
        judge: &mut Judge,
        out: &mut [Descriptor],
    ) -> usize {
        let there = self.there(views);
        if there == 0 {
            return 0;
        }
        let stamp = stamp();
        let (mut filled, mut read) = (0, 0);
        while read < there {
            let Some(one) = out.get_mut(filled) else {
                break;
            };
            let at = self.receive.entry(self.consumer, ENTRY);
            self.consumer = self.consumer.wrapping_add(1);
            read += 1;
            let entry = views.receive.head::<ENTRY>(at);
            // Only entries that are published: the kernel may be writing the others.
            if read + AHEAD < there {
                let ahead = self.receive.entry(self.consumer.wrapping_add(AHEAD), ENTRY);
                if let Some(address) = views.receive.head::<8>(ahead) {
                    let frame = usize::try_from(u64::from_ne_bytes(address)).unwrap_or(usize::MAX);
                    views.frames.fetch(frame, LINES);
                }
            }
            match entry.and_then(|entry| self.packet(views, &entry)) {
                Some((bytes, offset)) => {
                    let arrival = Arrival {
                        offset,
                        // No frame is longer than its chunk.
                        wire_len: bytes.len() as u32,
                        origin: Origin::MayBePartial,
                        tag: None,
                        stamp,
                    };
                    filled += usize::from(judge.takes(bytes, &arrival, one));
                }
                None => judge.broken(),
            }
        }
        views
            .receive
            .publish(self.receive.offsets.consumer, self.consumer);
        filled
    }

    /// The frame of an entry; nothing if the kernel didn't have its chunk, or if it reaches beyond it.
    #[inline]
    fn packet<'a>(&mut self, views: Views<'a>, entry: &[u8; ENTRY]) -> Option<(&'a [u8], u64)> {
        let [address, rest] = [entry.first_chunk::<8>()?, entry.last_chunk::<8>()?];
        let offset = u64::from_ne_bytes(*address);
        let len = u32::from_ne_bytes(*rest.first_chunk::<4>()?);
        let flags = u32::from_ne_bytes(*rest.last_chunk::<4>()?);
        let chunk_bytes = u64::from(self.frames.chunk_bytes);
        let chunk = u32::try_from(offset / chunk_bytes).ok()?;
        let lent = self
            .lent
            .get_mut(chunk.checked_sub(self.frames.first)? as usize)
            .filter(|lent| **lent)?;
        let place = self.ours.get_mut(self.waiting)?;
        // Whatever it says about its length, the frame is ours again, and goes back with the next batch.
        *lent = false;
        *place = chunk;
        self.waiting += 1;
        let fits = offset % chunk_bytes + u64::from(len) <= chunk_bytes;
        if !fits || flags & CONTINUED != 0 {
            return None;
        }
        let at = usize::try_from(offset).ok()?;
        Some((sys::frame(views.frames, at, len as usize)?, offset))
    }
}
