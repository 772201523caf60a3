//! The arrays that `recvmmsg` fills, and the call itself.
//!
//! Promises: they are allocated and linked to each other once; a call allocates nothing; what is handed out as a slice is
//! initialised memory that nothing writes while it is borrowed. Does not do: reading what came; the parent module does.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use lockgate::{Errno, Error, ErrorKind, Result};

/// Room for every control message that the provider can ask for at once: time stamps (16 + 48), drop counter (16 + 8), IPv6
/// packet information (16 + 24) and the segment size (16 + 8).
pub(super) const CONTROL_BYTES: usize = 160;

/// The control messages of one message.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub(super) struct Control(pub(super) [u8; CONTROL_BYTES]);

/// A cache line. Buffers begin at one, so that the kernel copies to aligned addresses.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; Self::BYTES]);

impl Line {
    const BYTES: usize = 64;
}

/// Message headers with what they point to: one buffer, one address and one control buffer each.
pub(super) struct Messages {
    headers: Fixed<libc::mmsghdr>,
    /// Only the kernel reads these, through the headers.
    _vectors: Fixed<libc::iovec>,
    names: Fixed<libc::sockaddr_in6>,
    controls: Fixed<Control>,
    slab: Fixed<Line>,
    stride: usize,
}

/// The filled arrays, to read and to arm again.
pub(super) struct Parts<'a> {
    pub(super) headers: &'a mut [libc::mmsghdr],
    pub(super) names: &'a [libc::sockaddr_in6],
    pub(super) controls: &'a [Control],
}

impl Messages {
    /// `count` messages with `buffer_bytes` of payload each.
    pub(super) fn new(count: usize, buffer_bytes: usize) -> Result<Self> {
        // An odd number of lines, so that the beginnings of the buffers, where all of them are written and read, don't fall
        // into the same few sets of the cache.
        let lines = buffer_bytes.div_ceil(Line::BYTES) | 1;
        let stride = lines * Line::BYTES;
        let all = count
            .checked_mul(lines)
            .ok_or_else(|| no_memory(usize::MAX))?;
        let slab = Fixed::new(all, Line([0; Line::BYTES]))?;
        let names = Fixed::new(count, zero_name())?;
        let controls = Fixed::new(count, Control([0; CONTROL_BYTES]))?;
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut vectors = Fixed::new(count, empty)?;
        let mut headers = Fixed::new(count, zero_header())?;
        let (slab_base, names_base) = (slab.base(), names.base());
        let controls_base = controls.base();
        for (at, vector) in vectors.slice_mut().iter_mut().enumerate() {
            vector.iov_base = slab_base.wrapping_add(at * lines).cast();
            vector.iov_len = buffer_bytes;
        }
        let vectors_base = vectors.base();
        for (at, header) in headers.slice_mut().iter_mut().enumerate() {
            let header = &mut header.msg_hdr;
            header.msg_name = names_base.wrapping_add(at).cast();
            header.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
            header.msg_iov = vectors_base.wrapping_add(at);
            header.msg_iovlen = 1;
            header.msg_control = controls_base.wrapping_add(at).cast();
            header.msg_controllen = CONTROL_BYTES;
        }
        Ok(Self {
            headers,
            _vectors: vectors,
            names,
            controls,
            slab,
            stride,
        })
    }

    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        self.headers.base.len()
    }

    /// Takes what is queued at a socket, without waiting, into the messages from `from` on, at most `count`.
    ///
    /// The messages must be armed: address and control lengths as [`new`](Self::new) set them.
    #[inline]
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        from: usize,
        count: usize,
    ) -> Result<usize, Errno> {
        assert!(from <= self.len() && count <= self.len() - from);
        let first = self.headers.base().wrapping_add(from);
        // SAFETY:
        // - the descriptor is open: it is borrowed;
        // - `first` is followed by `count` headers, as asserted above;
        // - what they point to was linked in `new` and is owned by `self`: one vector, whose range lies in the slab, one
        //   address and one control buffer, each of at least the length that the header says, which is never raised;
        // - `self` is borrowed mutably, so that nobody reads these arrays during the call; a null time-out is allowed.
        let got = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                first,
                count as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        usize::try_from(got).map_err(|_| Errno::last())
    }

    /// Everything but the payload.
    #[inline]
    pub(super) fn parts(&mut self) -> Parts<'_> {
        Parts {
            headers: self.headers.slice_mut(),
            names: self.names.slice(),
            controls: self.controls.slice(),
        }
    }

    /// How far apart the buffers begin in the slab, in bytes.
    #[inline]
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The payload buffers, one after the other.
    #[inline]
    pub(super) fn slab(&self) -> &[u8] {
        let lines = self.slab.slice();
        // SAFETY:
        // - `lines` is borrowed from `self` for as long as the result; a line is 64 initialised bytes without padding, and a
        //   byte needs no alignment;
        // - the length is that of the same allocation, and so below `isize::MAX`.
        unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
    }
}

/// An array that is allocated once and never moves, so that pointers into it may be kept.
///
/// It is not a `Box`: moving a box asserts that nobody else points into it, and here the headers do.
struct Fixed<T> {
    base: NonNull<[T]>,
}

// SAFETY:
// - it owns its array as a box does; the pointers in headers and vectors lead only into arrays of the same `Messages`, which
//   moves to another thread as a whole and is used by one thread at a time.
unsafe impl<T> Send for Fixed<T> {}

impl<T: Copy> Fixed<T> {
    fn new(len: usize, value: T) -> Result<Self> {
        let mut all = Vec::new();
        if all.try_reserve_exact(len).is_err() {
            return Err(no_memory(len.saturating_mul(size_of::<T>())));
        }
        // Writes every element, and so touches every page before the first packet.
        all.resize(len, value);
        Ok(Self {
            base: NonNull::from(Box::leak(all.into_boxed_slice())),
        })
    }
}

impl<T> Fixed<T> {
    fn base(&self) -> *mut T {
        self.base.as_ptr().cast()
    }

    #[inline]
    fn slice(&self) -> &[T] {
        // SAFETY:
        // - `base` came from a leaked box, is freed only in `drop`, and every element is initialised;
        // - the kernel writes only in `receive`, which borrows the whole mutably.
        unsafe { self.base.as_ref() }
    }

    #[inline]
    fn slice_mut(&mut self) -> &mut [T] {
        // SAFETY:
        // - as in `slice`; `self` is borrowed mutably, so that this is the only reference.
        unsafe { self.base.as_mut() }
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY:
        // - `base` came from `Box::leak` in `new` and is given back exactly once; no slice outlives `self`.
        drop(unsafe { Box::from_raw(self.base.as_ptr()) });
    }
}

fn zero_name() -> libc::sockaddr_in6 {
    // SAFETY:
    // - integers: all zero is a value of it.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn zero_header() -> libc::mmsghdr {
    // SAFETY:
    // - integers and pointers: all zero is a value of it.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn no_memory(bytes: usize) -> Error {
    Error::new(ErrorKind::Resource, "allocate buffers")
        .with_errno(Errno::NOMEM)
        .with_detail(format!("{bytes} bytes asked for"))
        .with_remedy("lower batch or buffer_bytes")
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_keep_their_memory_when_they_move_to_another_thread() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        for byte in 0..5_u8 {
            sender.send_to(&[byte; 3], to).unwrap();
        }
        let mut messages = Messages::new(8, 16).unwrap();
        assert_eq!(messages.receive(receiver.as_fd(), 2, 3), Ok(3));
        let mut moved = std::thread::spawn(move || messages).join().unwrap();
        assert_eq!(moved.receive(receiver.as_fd(), 5, 3), Ok(2));
        for byte in 0..5_u8 {
            let start = (2 + usize::from(byte)) * moved.stride();
            assert_eq!(moved.slab()[start..start + 4], [byte, byte, byte, 0]);
        }
        let parts = moved.parts();
        assert_eq!(parts.headers[6].msg_len, 3);
        assert_eq!(parts.headers[7].msg_len, 0);
        assert_eq!(moved.receive(receiver.as_fd(), 0, 8), Err(Errno::AGAIN));
        assert_eq!(moved.stride(), 64);
        assert_eq!(moved.slab().len(), 8 * 64);
        assert_eq!(moved.slab().as_ptr().align_offset(64), 0);
        assert_eq!(Messages::new(1, 2048).unwrap().stride(), 33 * 64);
    }

    #[test]
    fn an_absurd_size_is_an_error_and_not_an_abort() {
        let error = Messages::new(1 << 40, 1 << 23).err().unwrap();
        assert_eq!(error.errno(), Some(Errno::NOMEM));
        assert!(error.remedy().is_some());
    }
}
