//! The C loops of `c/raw.c`, called from the driver's process so that both sides alternate.
//!
//! Promises: what C opened is closed once. Does not do: anything that the C loops don't.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int};
use std::net::Ipv4Addr;
use std::ptr::NonNull;

use socket2::{SockAddr, SockAddrStorage};

use crate::Totals;

#[repr(C)]
struct Raw {
    opaque: [u8; 0],
}

// SAFETY:
// - the three functions stand in c/raw.c with these types; `Totals` is `struct c_totals`.
#[link(name = "lockgate_bench_raw", kind = "static")]
unsafe extern "C" {
    fn c_raw_open(
        mechanism: c_int,
        group: u32,
        port: u16,
        interface: c_int,
        name: *const c_char,
        block_bytes: u32,
        blocks: u32,
        slot_bytes: u32,
        native: c_int,
        out: *mut *mut Raw,
    ) -> c_int;
    fn c_raw_drain(receiver: *mut Raw, want: u64, totals: *mut Totals) -> c_int;
    fn c_raw_close(receiver: *mut Raw);
}

/// A mechanism, as `enum mechanism` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Tpacket2 = 0,
    Tpacket3 = 1,
    Xsk = 2,
    Pcap = 3,
}

/// What a ring measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measures {
    pub(crate) block_bytes: u32,
    /// Or, of an XDP socket, the frames.
    pub(crate) blocks: u32,
    pub(crate) slot_bytes: u32,
    pub(crate) native: bool,
}

/// A hand-written receiver.
pub(crate) struct Plain {
    raw: NonNull<Raw>,
}

impl Plain {
    pub(crate) fn open(
        mechanism: Mechanism,
        group: Ipv4Addr,
        port: u16,
        interface: (&str, u32),
        measures: Measures,
    ) -> Result<Self, String> {
        let mut raw = std::ptr::null_mut();
        let name = CString::new(interface.0).map_err(|error| error.to_string())?;
        // SAFETY:
        // - `raw` lives through the call, which writes it only on success;
        // - `name` ends in zero and lives through the call, which keeps no pointer to it.
        let result = unsafe {
            c_raw_open(
                mechanism as c_int,
                u32::from_ne_bytes(group.octets()),
                port.to_be(),
                interface.1 as c_int,
                name.as_ptr(),
                measures.block_bytes,
                measures.blocks,
                measures.slot_bytes,
                measures.native.into(),
                &mut raw,
            )
        };
        match NonNull::new(raw) {
            Some(raw) if result == 0 => Ok(Self { raw }),
            _ => Err(format!(
                "open {mechanism:?} in C: {}",
                std::io::Error::from_raw_os_error(-result)
            )),
        }
    }

    /// Takes `want` packets, or what is there.
    pub(crate) fn drain(&mut self, want: u64) -> Result<Totals, String> {
        let mut totals = Totals::default();
        // SAFETY:
        // - `raw` came from `c_raw_open` and is closed only in `drop`; `self` is borrowed mutably;
        // - `totals` lives through the call.
        let result = unsafe { c_raw_drain(self.raw.as_ptr(), want, &mut totals) };
        if result == 0 {
            Ok(totals)
        } else {
            Err(format!(
                "drain in C: {}",
                std::io::Error::from_raw_os_error(-result)
            ))
        }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY:
        // - `raw` came from `c_raw_open`, and this is the only close.
        unsafe { c_raw_close(self.raw.as_ptr()) };
    }
}

/// The address for sending whole frames through an interface.
pub(crate) fn link_address(interface: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY:
    // - `sockaddr_ll` is a socket address, made of integers, and smaller than the storage.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_ifindex = interface as i32;
    // SAFETY:
    // - the storage holds a `sockaddr_ll` whose family says so, and the length is that of the type.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}
