//! Mapping pages, and copying in and out of them.
//!
//! Promises: no reference to the bytes is ever made, since a device may write them at any time; they are copied through raw
//! pointers, and every range is checked. Does not do: ordering with a device; a completion does that.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};

/// Zeroed whole pages of this process, which a device may read and write while they are registered.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY:
// - The mapping belongs to the process, and the value is its only owner.
unsafe impl Send for Pages {}
// SAFETY:
// - Through a shared reference bytes are only copied, with raw pointers; concurrent copies of one range may give a mixture
//   of both, as those of a device may, and never anything but bytes.
unsafe impl Sync for Pages {}

impl Pages {
    /// Maps at least so many bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// What `mmap` says; `EINVAL` for no bytes.
    pub fn map(bytes: usize) -> io::Result<Self> {
        let page = page_size();
        let length = bytes
            .checked_next_multiple_of(page)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY:
        // - A new anonymous mapping at an address of the kernel's choice touches no other memory.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, length })
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a mapping has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY:
        // - `at` has checked that the range lies in the mapping.
        // - `bytes` can't overlap it: no reference to the mapping exists.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies from `offset` into `bytes`.
    ///
    /// # Panics
    /// If the range lies outside.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY:
        // - `at` has checked that the range lies in the mapping.
        // - `bytes` can't overlap it: no reference to the mapping exists.
        unsafe { ptr::copy_nonoverlapping(from.cast_const(), bytes.as_mut_ptr(), bytes.len()) };
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.length),
            "{length} bytes at {offset} lie outside of {} bytes",
            self.length
        );
        // SAFETY:
        // - The offset was checked to lie in the mapping, which is one allocation.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY:
        // - The mapping was made by `map` and is given back once.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

fn page_size() -> usize {
    // SAFETY:
    // - Reads a constant of the system.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// A mark that the kernel wipes in a child, so that a fork is seen by one load, however the child was made.
#[derive(Debug)]
pub(crate) struct ForkMark(Pages);

impl ForkMark {
    /// Sets the mark in this process.
    ///
    /// # Errors
    /// What `mmap` or `madvise` says; the latter needs Linux 4.14.
    pub(crate) fn set() -> io::Result<Self> {
        let pages = Pages::map(1)?;
        // SAFETY:
        // - The range is exactly the mapping, which nothing else uses.
        let wiped = unsafe {
            libc::madvise(
                pages.start.as_ptr().cast(),
                pages.length,
                libc::MADV_WIPEONFORK,
            )
        };
        if wiped != 0 {
            return Err(io::Error::last_os_error());
        }
        pages.write(0, &[1]);
        Ok(Self(pages))
    }

    /// Whether this is still the process that set it.
    #[inline]
    pub(crate) fn is_home(&self) -> bool {
        // SAFETY:
        // - The mapping has at least one byte and lives as long as `self`; nobody writes it after `set`.
        unsafe { self.0.start.as_ptr().read_volatile() == 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_out_and_no_further() {
        let pages = Pages::map(5).unwrap();
        assert_eq!(pages.len(), page_size());
        assert_eq!(pages.address() % page_size() as u64, 0);
        pages.write(3, b"abc");
        let mut got = [9; 5];
        pages.read(2, &mut got);
        assert_eq!(&got, b"\0abc\0");
        for (offset, length) in [(page_size(), 1), (usize::MAX, 2), (page_size() - 1, 2)] {
            let caught = std::panic::catch_unwind(|| pages.write(offset, &vec![0; length]));
            assert!(caught.is_err(), "{length} bytes at {offset}");
        }
        assert_eq!(
            Pages::map(0).unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
        assert!(Pages::map(usize::MAX).is_err());
    }

    #[test]
    fn a_child_does_not_find_the_mark() {
        let mark = ForkMark::set().unwrap();
        assert!(mark.is_home());
        // SAFETY:
        // - The child only reads its own memory and ends without unwinding or running exit handlers.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY:
            // - Ends the child at once.
            unsafe { libc::_exit(i32::from(mark.is_home())) };
        }
        let mut status = -1;
        // SAFETY:
        // - `child` is ours, `status` a valid output.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
        assert!(mark.is_home());
    }
}
