//! The number of a failed call.
//!
//! Promises: the number is kept as it came. Does not do: names and causes; the core has the names, and the caller who
//! knows which call it was has the causes.

use std::fmt;
use std::io;

/// A positive error number, such as 12 for `ENOMEM`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// `EAGAIN`: nothing there now.
    pub const AGAIN: Self = Self(11);
    /// `EBUSY`: something depends on the object.
    pub const BUSY: Self = Self(16);
    /// `ECHILD`: this process is a child of the one that opened the device. The shim never gives it; owners above it do.
    pub const IN_CHILD: Self = Self(10);
    /// `EINVAL`: an argument was refused.
    pub const INVALID: Self = Self(22);
    /// `EIO`: a broken completion queue, or a device that fails.
    pub const IO: Self = Self(5);
    /// `ENOMEM`: no memory, a full queue, or a limit.
    pub const NO_MEMORY: Self = Self(12);
    /// `ELIBACC`: this build is a link stub, without the library.
    pub const NOT_LINKED: Self = Self(79);
    /// `EOPNOTSUPP`: library, kernel or device lacks the verb.
    pub const NOT_SUPPORTED: Self = Self(95);
    /// `ENODATA`: the entry of a table is empty.
    pub const NO_DATA: Self = Self(61);
    /// `ENOSYS`: the kernel has no RDMA subsystem.
    pub const NO_SYSTEM: Self = Self(38);
    /// `EPROTO`: the call failed and said nothing about why.
    pub const SILENT: Self = Self(71);

    /// The number.
    #[must_use]
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// What a shim call gave: `Ok` with the count for 0 and above, the number otherwise.
    pub(crate) fn check(answer: i32) -> Result<u32, Self> {
        u32::try_from(answer).map_err(|_| Self(answer.saturating_neg()))
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl std::error::Error for Errno {}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn counts_and_numbers_are_told_apart() {
        assert_eq!(Errno::check(0), Ok(0));
        assert_eq!(Errno::check(7), Ok(7));
        assert_eq!(Errno::check(-16), Err(Errno::BUSY));
        assert_eq!(Errno::check(i32::MIN), Err(Errno(i32::MAX)));
    }

    #[test]
    fn the_numbers_are_those_of_linux() {
        for (ours, theirs) in [
            (Errno::AGAIN, libc::EAGAIN),
            (Errno::BUSY, libc::EBUSY),
            (Errno::IN_CHILD, libc::ECHILD),
            (Errno::INVALID, libc::EINVAL),
            (Errno::IO, libc::EIO),
            (Errno::NO_MEMORY, libc::ENOMEM),
            (Errno::NOT_LINKED, libc::ELIBACC),
            (Errno::NOT_SUPPORTED, libc::EOPNOTSUPP),
            (Errno::NO_DATA, libc::ENODATA),
            (Errno::NO_SYSTEM, libc::ENOSYS),
            (Errno::SILENT, libc::EPROTO),
        ] {
            assert_eq!(ours.raw(), theirs);
        }
    }
}
