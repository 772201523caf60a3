//! The system calls beneath the owners of descriptors and mappings, and the checked accesses to mapped memory.
//!
//! Promises: an access through a [`View`] outside of its mapping answers `None` or `false`. Does not do: any unmapping or closing
//! by drop; only an owner's release may do it.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

use lockgate::Errno;
use lockgate::receive::Slab;

use super::Descriptor;

/// Closes the descriptor.
pub(super) fn close(descriptor: &mut Descriptor) -> Result<(), Errno> {
    // SAFETY:
    // - the number came from an owned descriptor that was forgotten, so that nobody else closes it;
    // - custody calls a release once, and drops the value after it.
    match unsafe { libc::close(descriptor.raw) } {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Borrows the descriptor for as long as its value is.
pub(super) fn borrow(descriptor: &Descriptor) -> BorrowedFd<'_> {
    // SAFETY:
    // - the descriptor is open while its value can be borrowed: custody drops the value right after the release;
    // - a number from an owned descriptor is not -1.
    unsafe { BorrowedFd::borrow_raw(descriptor.raw) }
}

/// Mapped memory. Has no drop: it stays mapped until [`unmap`](Self::unmap).
#[derive(Debug)]
pub(crate) struct Mapping {
    name: &'static str,
    base: NonNull<u8>,
    len: usize,
}

// SAFETY:
// - the mapping belongs to the process, not to a thread, and is reached through the value's borrows only.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes of a socket's rings, shared with the kernel and present from the start.
    pub(crate) fn shared(
        name: &'static str,
        fd: BorrowedFd<'_>,
        len: usize,
        offset: i64,
    ) -> Result<Self, Errno> {
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map(name, len, flags, fd.as_raw_fd(), offset)
    }

    /// Maps `len` bytes of fresh memory, present from the start.
    #[cfg(any(test, feature = "xdp"))]
    pub(crate) fn anonymous(name: &'static str, len: usize) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Self::map(name, len, flags, -1, 0)
    }

    fn map(
        name: &'static str,
        len: usize,
        flags: i32,
        fd: i32,
        offset: i64,
    ) -> Result<Self, Errno> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY:
        // - no address is asked for, so that nothing that is mapped is replaced;
        // - the descriptor is open, because `shared` borrows it, or -1 for anonymous memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, fd, offset) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { name, base, len })
    }

    /// What it is, for reports.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Where it lies.
    pub(crate) fn address(&self) -> usize {
        self.base.as_ptr().addr()
    }

    /// How long it is, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Its bytes, for checked accesses.
    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        View {
            base: self.base,
            len: self.len,
            borrow: PhantomData,
        }
    }

    /// Unmaps it. The value must not be used afterwards, and custody drops it.
    pub(crate) fn unmap(&mut self) -> Result<(), Errno> {
        // SAFETY:
        // - base and length are those of one mapping of our own;
        // - no view lives: it would borrow the value, which is borrowed exclusively here.
        match unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) } {
            0 => {
                // A second call, which custody does not make, would then be refused by the kernel.
                self.len = 0;
                Ok(())
            }
            _ => Err(Errno::last()),
        }
    }
}

/// Bytes that the kernel writes too, and checked accesses to them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    base: NonNull<u8>,
    len: usize,
    borrow: PhantomData<&'a Mapping>,
}

impl<'a> View<'a> {
    /// A view of ordinary memory, aligned as mappings are to words, for tests and fuzzing.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn of_words(words: &'a mut [u64]) -> Self {
        Self {
            len: size_of_val(words),
            base: NonNull::from(words).cast(),
            borrow: PhantomData,
        }
    }

    /// How many bytes there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn word(&self, at: usize) -> Option<&'a AtomicU32> {
        let end = at.checked_add(size_of::<u32>())?;
        if end > self.len || !at.is_multiple_of(align_of::<u32>()) {
            return None;
        }
        // SAFETY:
        // - `at` is below `len`, so that the result stays inside the memory that `base` points to.
        let pointer = unsafe { self.base.add(at) };
        // SAFETY:
        // - four bytes from there lie inside, as checked above, for 'a, which borrows the mapping;
        // - the address is aligned: mappings begin on pages, tests' memory on words, and `at` is a multiple of four;
        // - whoever else accesses the word does it atomically: the kernel, and this type.
        Some(unsafe { AtomicU32::from_ptr(pointer.cast().as_ptr()) })
    }

    /// The word at an offset, with everything that was written before it.
    #[inline]
    pub(crate) fn acquire(&self, at: usize) -> Option<u32> {
        Some(self.word(at)?.load(Ordering::Acquire))
    }

    /// Writes the word at an offset, after everything that was read and written before. Answers whether it lies inside.
    #[inline]
    pub(crate) fn publish(&self, at: usize, value: u32) -> bool {
        let Some(word) = self.word(at) else {
            return false;
        };
        word.store(value, Ordering::Release);
        true
    }

    /// A copy of `N` bytes at an offset: what is checked afterwards is what was read.
    #[inline]
    pub(crate) fn head<const N: usize>(&self, at: usize) -> Option<[u8; N]> {
        if at.checked_add(N)? > self.len {
            return None;
        }
        // SAFETY:
        // - `at` is at most `len`, so that the result stays inside the memory that `base` points to.
        let pointer = unsafe { self.base.add(at) };
        // SAFETY:
        // - `N` bytes from there lie inside, as checked above, and are initialised: the kernel and `mmap` hand out zeroed
        //   pages;
        // - an array of bytes needs no alignment;
        // - the kernel has handed the bytes over, by a status or an index that the caller has acquired, and writes them no more.
        Some(unsafe { pointer.cast::<[u8; N]>().as_ptr().read() })
    }

    /// Has the processor fetch `lines` lines of its cache from an offset on, which will be read soon. Changes nothing else.
    #[inline]
    pub(crate) fn fetch(&self, at: usize, lines: usize) {
        const LINE: usize = 64;
        #[cfg(target_arch = "x86_64")]
        for line in 0..lines {
            let at = at.saturating_add(line * LINE);
            if at >= self.len {
                return;
            }
            // SAFETY:
            // - `at` is below `len`, so that the result stays inside the memory that `base` points to.
            let pointer = unsafe { self.base.add(at) };
            // SAFETY:
            // - every x86-64 processor has the instruction, and it neither faults nor changes memory, whatever the address.
            unsafe {
                std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(
                    pointer.as_ptr().cast(),
                );
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (at, lines, LINE);
    }

    /// Writes a long word at an offset that the kernel reads only after a later [`publish`](Self::publish). Answers whether it lies
    /// inside.
    #[cfg(feature = "xdp")]
    #[inline]
    pub(crate) fn put(&self, at: usize, value: u64) -> bool {
        let inside = at
            .checked_add(size_of::<u64>())
            .is_some_and(|end| end <= self.len);
        if !inside {
            return false;
        }
        // SAFETY:
        // - `at` is below `len`, so that the result stays inside the memory that `base` points to.
        let pointer = unsafe { self.base.add(at) };
        // SAFETY:
        // - eight bytes from there lie inside, as checked above;
        // - no reference to them exists: `bytes` is only taken of packets, which lie in another mapping than what is
        //   written here.
        unsafe { pointer.cast::<u64>().as_ptr().write_unaligned(value) };
        true
    }

    /// The bytes of a range, if it lies inside.
    ///
    /// # Safety
    /// Nobody writes the range for the whole of `'a`, the kernel included.
    #[inline]
    pub(crate) unsafe fn bytes(&self, at: usize, len: usize) -> Option<&'a [u8]> {
        if at.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY:
        // - `at` is at most `len`, so that the result stays inside the memory that `base` points to.
        let pointer = unsafe { self.base.add(at) };
        // SAFETY:
        // - `len` bytes from there lie inside, as checked above, for 'a, and are initialised, as mapped memory is;
        // - nobody writes them for 'a: the caller's promise.
        Some(unsafe { slice::from_raw_parts(pointer.as_ptr(), len) })
    }

    /// The memory as a batch takes it.
    ///
    /// # Safety
    /// Nobody writes, for the whole of `'a`, a range that a descriptor of the batch names.
    #[inline]
    pub(crate) unsafe fn slab(&self) -> Slab<'a> {
        // SAFETY:
        // - the memory is valid for reads of `len` bytes for 'a and initialised, as in `bytes`;
        // - the ranges that descriptors name are quiet: the caller's promise.
        unsafe { Slab::from_raw(self.base, self.len) }
    }
}
