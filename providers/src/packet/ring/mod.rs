//! The rings of a packet socket, read in place.
//!
//! Promises: nothing that stands in the ring makes a reader look outside of it, run for ever, or panic: numbers are copied out once,
//! checked, and used as copied. Slots go back to the kernel when the batch that names them is over, in the order in which they
//! came. No allocation. Does not do: mapping the ring; custody owns it.
//!
//! The kernel's side is `tpacket_rcv` in net/packet/af_packet.c, the layout linux/if_packet.h, the protocol
//! Documentation/networking/packet_mmap.rst.

#[cfg(any(test, fuzzing))]
pub(super) mod hostile;
mod sys;
mod v2;
mod v3;

use lockgate::receive::frame::{Origin, VlanTag};
use lockgate::receive::{Descriptor, Slab, Stamp, Timestamp};

use super::layout::Layout;
use super::options::Version;
use crate::kernel::Clock;
use crate::kernel::custody::View;
use crate::raw::judge::Judge;

/// A reader of either kind.
#[derive(Debug)]
pub(super) enum Ring {
    V2(v2::V2),
    V3(v3::V3),
}

impl Ring {
    pub(super) fn new(layout: Layout, clock: Option<Clock>) -> Self {
        match layout.version {
            Version::V2 => Self::V2(v2::V2::new(layout, clock)),
            Version::V3 => Self::V3(v3::V3::new(layout, clock)),
        }
    }

    /// Gives everything back that earlier batches named.
    #[inline]
    pub(super) fn release(&mut self, view: View<'_>) {
        match self {
            Self::V2(ring) => ring.release(view),
            Self::V3(ring) => ring.release(view),
        }
    }

    /// Whether there is something to take.
    #[inline]
    pub(super) fn is_ready(&self, view: View<'_>) -> bool {
        match self {
            Self::V2(ring) => ring.is_ready(view),
            Self::V3(ring) => ring.is_ready(view),
        }
    }

    /// Takes what has arrived, and answers how many descriptors it wrote. They name ranges that stay quiet until
    /// [`release`](Self::release).
    #[inline]
    pub(super) fn fill(
        &mut self,
        view: View<'_>,
        judge: &mut Judge,
        out: &mut [Descriptor],
    ) -> usize {
        match self {
            Self::V2(ring) => ring.fill(view, judge, out),
            Self::V3(ring) => ring.fill(view, judge, out),
        }
    }
}

/// The ring as a batch takes it.
#[inline]
pub(super) fn slab(view: View<'_>) -> Slab<'_> {
    sys::slab(view)
}

/// What a packet's status says about its sum.
#[inline]
fn origin(status: u32) -> Origin {
    if status & libc::TP_STATUS_CSUMNOTREADY != 0 {
        Origin::Partial
    } else if status & libc::TP_STATUS_CSUM_VALID != 0 {
        Origin::Verified
    } else {
        Origin::Wire
    }
}

/// The tag that the kernel took out of the frame.
#[inline]
fn tag(status: u32, tci: u32, protocol: u16) -> Option<VlanTag> {
    if status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    Some(VlanTag {
        protocol: if known { protocol } else { 0x8100 },
        // The upper half of V3's field is unused.
        tci: tci as u16,
    })
}

/// The time that the kernel wrote, if it is of the clock that is asked for.
#[inline]
fn stamp(clock: Option<Clock>, status: u32, seconds: u32, nanos: u32) -> Timestamp {
    /// `TP_STATUS_TS_RAW_HARDWARE`: the device's time; anything else is the system's.
    const HARDWARE: u32 = 1 << 31;
    let raw = || u64::from(seconds) * 1_000_000_000 + u64::from(nanos);
    match (clock, status & HARDWARE != 0) {
        (Some(Clock::System), false) => Timestamp::System(Stamp::from_raw(raw())),
        (Some(Clock::DeviceFreeRunning), true) => {
            Timestamp::DeviceFreeRunning(Stamp::from_raw(raw()))
        }
        (Some(Clock::DeviceRealTime), true) => Timestamp::DeviceRealTime(Stamp::from_raw(raw())),
        _ => Timestamp::Unavailable,
    }
}

/// A word of a header that was copied.
#[inline]
fn word<const N: usize>(head: &[u8; N], at: usize) -> u32 {
    head.get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// Half a word of a header that was copied.
#[inline]
fn half<const N: usize>(head: &[u8; N], at: usize) -> u16 {
    head.get(at..)
        .and_then(|rest| rest.first_chunk())
        .map_or(0, |bytes| u16::from_ne_bytes(*bytes))
}
