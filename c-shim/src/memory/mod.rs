//! Protection domains, memory regions and memory windows.
//!
//! Promises: access rights are the library's bits. Does not do: keeping memory mapped while it is registered.

pub(crate) mod sys;

use crate::ffi;
use crate::sys::sized;

sized!(
    pub lgv_mr_info,
    pub(crate) lgv_mr_reg,
    pub(crate) lgv_mw_bind,
    pub lgv_mw_info,
);

/// Rights to registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Access(u32);

impl Access {
    /// The device may read it for the local side; always granted.
    pub const NONE: Self = Self(0);
    /// The device may write what is received or read from a peer.
    pub const LOCAL_WRITE: Self = Self(ffi::LGV_ACCESS_LOCAL_WRITE);
    /// Windows may be bound in it.
    pub const BIND: Self = Self(ffi::LGV_ACCESS_MW_BIND);
    /// Peers may run atomic operations on it; needs [`LOCAL_WRITE`](Self::LOCAL_WRITE).
    pub const REMOTE_ATOMIC: Self = Self(ffi::LGV_ACCESS_REMOTE_ATOMIC);
    /// Peers may read it.
    pub const REMOTE_READ: Self = Self(ffi::LGV_ACCESS_REMOTE_READ);
    /// Peers may write it; needs [`LOCAL_WRITE`](Self::LOCAL_WRITE).
    pub const REMOTE_WRITE: Self = Self(ffi::LGV_ACCESS_REMOTE_WRITE);
    /// Peers address a window from 0.
    pub const ZERO_BASED: Self = Self(ffi::LGV_ACCESS_ZERO_BASED);
    /// Pages are faulted in by the device instead of being pinned.
    pub const ON_DEMAND: Self = Self(ffi::LGV_ACCESS_ON_DEMAND);
    /// All pages are huge; only with [`ON_DEMAND`](Self::ON_DEMAND).
    pub const HUGE_PAGES: Self = Self(ffi::LGV_ACCESS_HUGETLB);
    /// Writes of the device may be seen out of order; a request, not a demand.
    pub const RELAXED_ORDERING: Self = Self(ffi::LGV_ACCESS_RELAXED_ORDERING);

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Rights from bits; unknown ones are kept, and refused by the call that is given them.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether all of `other` is granted.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Access {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// What is to be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MrOptions {
    /// Where the memory lies; the offset in the buffer for another device's.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// The address that peers use, usually the same.
    pub remote_address: u64,
    /// The rights.
    pub access: Access,
}

impl MrOptions {
    fn native(&self, dmabuf: i32) -> ffi::lgv_mr_reg {
        ffi::lgv_mr_reg {
            access: self.access.bits(),
            addr: self.address,
            length: self.length,
            iova: self.remote_address,
            dmabuf_fd: dmabuf,
            ..ffi::lgv_mr_reg::new()
        }
    }
}

/// Keys and place of a region; see `struct lgv_mr_info`.
pub type MrInfo = ffi::lgv_mr_info;

/// Key and kind of a window; see `struct lgv_mw_info`.
pub type MwInfo = ffi::lgv_mw_info;

/// The kind of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowType {
    /// Bound by a verb of its own; belongs to the protection domain.
    One,
    /// Bound by a request on a queue pair, which it then belongs to; can be invalidated.
    Two,
}

/// A bind of a window of type 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwBind {
    /// Comes back with the completion.
    pub wr_id: u64,
    /// The region that the window opens.
    pub mr: sys::MrHandle,
    /// Where it begins.
    pub address: u64,
    /// How many bytes; 0 takes the window's rights away.
    pub length: u64,
    /// What peers may do.
    pub access: Access,
    /// [`send_flags`](crate::send_flags).
    pub flags: u32,
}

/// The key that the next bind of a window of type 2 should use, so that holders of the last one are refused.
#[must_use]
pub fn rkey_next(rkey: u32) -> u32 {
    sys::rkey_next(rkey)
}

#[cfg(test)]
mod tests {
    use super::rkey_next;

    #[test]
    fn only_the_low_eight_bits_of_a_key_are_counted_up() {
        assert_eq!(rkey_next(0x1234_5600), 0x1234_5601);
        assert_eq!(rkey_next(0x1234_56ff), 0x1234_5600);
    }
}
