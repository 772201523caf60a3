//! Memory that packets lie in, borrowed from a provider.
//!
//! Promises: a [`Slab`] hands out only ranges that lie inside it. It exists because a ring that the kernel or a device writes
//! can't be one `&[u8]`: only the ranges that a batch names are quiet while the batch lives. Does not do: keeping the memory
//! alive. The lifetime does that.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

/// A piece of memory that descriptors point into, valid for `'a`.
///
/// From ordinary memory by `Slab::from(&bytes[..])`.
#[derive(Clone, Copy, Debug)]
pub struct Slab<'a> {
    base: NonNull<u8>,
    len: usize,
    borrow: PhantomData<&'a [u8]>,
}

// SAFETY:
// - a slab is a shared borrow of bytes, as `&'a [u8]` is, and `&[u8]` is `Send`: nothing is written through it.
unsafe impl Send for Slab<'_> {}
// SAFETY:
// - shared use from several threads only reads, as with `&[u8]`.
unsafe impl Sync for Slab<'_> {}

impl<'a> Slab<'a> {
    /// Borrows `len` bytes at `base` of which parts may be written by a device while the slab lives.
    ///
    /// # Safety
    /// - `base` is valid for reads of `len` bytes for the whole of `'a`, within one allocation or mapping;
    /// - every range that a descriptor of a batch over this slab names is initialised, and nothing writes it, device and
    ///   kernel included, for the whole of `'a`.
    #[must_use]
    pub const unsafe fn from_raw(base: NonNull<u8>, len: usize) -> Self {
        Self {
            base,
            len,
            borrow: PhantomData,
        }
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether `len` bytes at `offset` lie inside.
    #[must_use]
    pub(super) const fn holds(&self, offset: u64, len: u64) -> bool {
        match offset.checked_add(len) {
            Some(end) => end <= self.len as u64,
            None => false,
        }
    }

    /// The bytes that a descriptor names.
    ///
    /// # Safety
    /// - [`holds`](Self::holds) said yes to this range;
    /// - the range is one that a descriptor of the batch names, so that the promise of [`from_raw`](Self::from_raw) covers it.
    #[must_use]
    pub(super) unsafe fn range(&self, offset: u64, len: u32) -> &'a [u8] {
        debug_assert!(self.holds(offset, u64::from(len)));
        // SAFETY:
        // - `offset` is at most `self.len`, which fits a `usize`, by the first precondition;
        // - the result stays inside the allocation that `base` points into, by the same.
        let start = unsafe { self.base.add(offset as usize) };
        // SAFETY:
        // - `start` is valid for reads of `len` bytes for 'a: `holds` and the first precondition of `from_raw`;
        // - the bytes are initialised and not written for 'a: the second precondition of `from_raw`;
        // - `u8` needs no alignment, and `len` is below `isize::MAX` on the 64-bit and 32-bit targets because it lies in one
        //   allocation.
        unsafe { slice::from_raw_parts(start.as_ptr(), len as usize) }
    }
}

impl<'a> From<&'a [u8]> for Slab<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self {
            base: NonNull::from(bytes).cast(),
            len: bytes.len(),
            borrow: PhantomData,
        }
    }
}

/// The bytes of a packet that a batch has checked; see [`Batch`](super::Batch).
pub(super) fn checked<'a>(slab: Slab<'a>, offset: u64, len: u32) -> &'a [u8] {
    // SAFETY:
    // - `Batch::new` has called `holds` for every range of every descriptor, and a batch's slabs and descriptors are
    //   borrowed and can't change; only `Packet`, which a batch makes, calls this;
    // - the range comes from a descriptor of that batch.
    unsafe { slab.range(offset, len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_is_exact_and_does_not_overflow() {
        let bytes = [7u8; 16];
        let slab = Slab::from(&bytes[..]);
        assert!(slab.holds(0, 16));
        assert!(slab.holds(16, 0));
        assert!(!slab.holds(1, 16));
        assert!(!slab.holds(17, 0));
        assert!(!slab.holds(u64::MAX, 2));
        assert_eq!(checked(slab, 4, 3), &[7, 7, 7]);
    }
}
