//! The ring that lies between the senders of a network and one receiver: slots in one slab, handed over by two counters.
//!
//! Promises: a slot belongs either to the [`Producer`] or to the [`Consumer`], never to both; neither takes a lock or allocates.
//! There is one of each by construction: both are made together, neither can be cloned, and each works through `&mut self`.
//! Does not do: waking anybody.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lockgate::receive::{Descriptor, Slab};

/// Makes both ends of a ring of `slots` slots of `slot_bytes` bytes; both numbers are at least 1. Nothing if the system has no
/// memory for it.
pub(super) fn ring(slots: usize, slot_bytes: usize) -> Option<(Producer, Consumer)> {
    let mut descriptors = Vec::new();
    descriptors.try_reserve_exact(slots).ok()?;
    descriptors.resize_with(slots, || UnsafeCell::new(Descriptor::default()));
    let ring = Arc::new(Ring {
        bytes: Bytes::zeroed(slots.checked_mul(slot_bytes)?)?,
        descriptors: descriptors.into_boxed_slice(),
        slot_bytes,
        published: Line::default(),
        released: Line::default(),
    });
    let producer = Producer {
        ring: Arc::clone(&ring),
        published: 0,
    };
    let consumer = Consumer {
        ring,
        taken: 0,
        released: 0,
    };
    Some((producer, consumer))
}

/// Memory that starts out as zeroes. The system gives pages as they are first written, so that a large ring costs little until
/// it is used.
struct Bytes {
    base: NonNull<u8>,
    layout: Layout,
}

impl Bytes {
    fn zeroed(len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len.max(1), 64).ok()?;
        // SAFETY:
        // - the size is not zero, by the line above.
        let base = unsafe { alloc_zeroed(layout) };
        NonNull::new(base).map(|base| Self { base, layout })
    }

    fn len(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY:
        // - `base` came from `alloc_zeroed` with this layout, in the only place that makes a `Bytes`, and is freed once.
        unsafe { dealloc(self.base.as_ptr(), self.layout) };
    }
}

/// A counter on a cache line of its own, so that the two sides don't slow each other down.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicU64);

/// Both counters only grow. Slot `n % slots` is the consumer's for every `n` from `released` up to `published`, and the
/// producer's otherwise; `published` is never more than `slots` ahead.
struct Ring {
    bytes: Bytes,
    descriptors: Box<[UnsafeCell<Descriptor>]>,
    slot_bytes: usize,
    /// How many slots were ever filled. Only the producer writes it.
    published: Line,
    /// How many slots were ever given back. Only the consumer writes it.
    released: Line,
}

// SAFETY:
// - the bytes belong to the ring as a boxed slice would; nothing in it is bound to a thread.
unsafe impl Send for Ring {}
// SAFETY:
// - bytes and cells are the only fields that are not `Sync`; those of a slot are touched by the side alone that owns it, and a
//   slot changes hands by a release store and an acquire load of `published` (to the consumer) or `released` (to the producer).
unsafe impl Sync for Ring {}

impl Ring {
    fn slots(&self) -> u64 {
        self.descriptors.len() as u64
    }

    fn place(&self, count: u64) -> usize {
        // Below the number of slots, which is a usize.
        (count % self.slots()) as usize
    }
}

/// The end that fills slots.
pub(super) struct Producer {
    ring: Arc<Ring>,
    /// The same value as the ring's, which nobody else writes.
    published: u64,
}

impl Producer {
    /// How many bytes a slot has.
    pub(super) fn slot_bytes(&self) -> usize {
        self.ring.slot_bytes
    }

    /// Fills the next slot and hands it over; says no, without calling `fill`, if every slot is the consumer's.
    ///
    /// The offset of the descriptor that `fill` returns counts from the beginning of the slot, and what it names lies in it.
    #[must_use]
    pub(super) fn push(&mut self, fill: impl FnOnce(&mut [u8]) -> Descriptor) -> bool {
        let ring = &*self.ring;
        if self.published - ring.released.0.load(Ordering::Acquire) >= ring.slots() {
            return false;
        }
        let place = ring.place(self.published);
        let start = place * ring.slot_bytes;
        // SAFETY:
        // - `place` is below the number of slots, so that the slot from `start` lies inside the allocation.
        let base = unsafe { ring.bytes.base.add(start) };
        // SAFETY:
        // - the slot's bytes lie inside the live allocation, as above, and are initialised, at first as zeroes;
        // - the slot is the producer's: the check above saw it released (acquire), and `published` doesn't cover it yet;
        // - `&mut self` keeps every other use of the producer away while the slice lives, which is until `fill` returns.
        let slot = unsafe { slice::from_raw_parts_mut(base.as_ptr(), ring.slot_bytes) };
        let mut descriptor = fill(slot);
        let end = descriptor
            .offset
            .checked_add(u64::from(descriptor.frame_len));
        if end.is_none_or(|end| end > ring.slot_bytes as u64) {
            debug_assert!(false, "the descriptor reaches outside of its slot");
            return false;
        }
        descriptor.offset += start as u64;
        // SAFETY:
        // - the pointer comes from a live cell, and the descriptor's slot is the producer's, as above.
        unsafe { ring.descriptors[place].get().write(descriptor) };
        self.published += 1;
        ring.published.0.store(self.published, Ordering::Release);
        true
    }
}

/// The end that reads slots and gives them back.
pub(super) struct Consumer {
    ring: Arc<Ring>,
    /// Up to here slots were lent out by [`take`](Self::take).
    taken: u64,
    /// The same value as the ring's, which nobody else writes.
    released: u64,
}

impl Consumer {
    /// Whether a [`take`](Self::take) would find something.
    pub(super) fn has_some(&self) -> bool {
        self.ring.published.0.load(Ordering::Acquire) != self.taken
    }

    /// Gives back what the last [`take`](Self::take) lent.
    pub(super) fn release(&mut self) {
        if self.released != self.taken {
            self.released = self.taken;
            self.ring.released.0.store(self.released, Ordering::Release);
        }
    }

    /// Gives back what was lent before and lends the next filled slots: at most `most`, and at most up to the end of the ring,
    /// so that the descriptors lie side by side.
    pub(super) fn take(&mut self, most: usize) -> (Slab<'_>, &[Descriptor]) {
        self.release();
        let ring = &*self.ring;
        let filled = ring.published.0.load(Ordering::Acquire) - self.taken;
        let place = ring.place(self.taken);
        let to_end = ring.descriptors.len() - place;
        let count = usize::try_from(filled)
            .map_or(to_end, |filled| filled.min(to_end))
            .min(most);
        self.taken += count as u64;
        let cells = &ring.descriptors[place..place + count];
        // SAFETY:
        // - the pointer and the length are those of `cells`, a live slice; `UnsafeCell<Descriptor>` has the layout of
        //   `Descriptor`;
        // - these slots are the consumer's: `published` covered them (acquire), and `released` does not until the next
        //   `release`, which needs the `&mut self` that the result borrows; so nothing writes them while it lives.
        let descriptors = unsafe {
            slice::from_raw_parts(UnsafeCell::raw_get(cells.as_ptr()).cast_const(), count)
        };
        // SAFETY:
        // - base and length are those of the ring's one allocation of bytes, which lives as long as `self.ring`;
        // - all bytes are initialised, at first as zeroes; the ranges that the descriptors name lie in the slots lent here, because
        //   `push` refuses others, and nothing writes those slots for the reason above. That a payload lies within what was
        //   captured is what `Batch::new` checks.
        let slab = unsafe { Slab::from_raw(ring.bytes.base, ring.bytes.len()) };
        (slab, descriptors)
    }
}
