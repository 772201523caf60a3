//! The two promises about quiet memory that the readers of packet rings keep.
//!
//! Promises: a frame's bytes are borrowed only between the kernel's handing over and the giving back. Does not do: the order of these
//! two, which is in `v2` and `v3` and is what their tests hold.
#![allow(unsafe_code)]

use lockgate::receive::Slab;

use crate::kernel::custody::View;

/// The bytes of a frame that the kernel has handed over.
#[inline]
pub(super) fn frame(view: View<'_>, at: usize, len: usize) -> Option<&[u8]> {
    // SAFETY:
    // - the callers, `V2::fill` and `V3::fill`, have read the user bit of the slot's or block's status with acquire and give it
    //   back only in `release`, which takes the reader exclusively; the kernel does not touch it in between;
    // - the result is used within that one call of `fill`.
    unsafe { view.bytes(at, len) }
}

/// The ring as the memory of a batch.
#[inline]
pub(super) fn slab(view: View<'_>) -> Slab<'_> {
    // SAFETY:
    // - descriptors of a batch name only frames that `fill` found handed over; they are given back by the next call to `release`,
    //   for which the receiver must be borrowed exclusively, and so after the batch is gone.
    unsafe { view.slab() }
}
