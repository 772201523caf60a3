//! The C loop of `c/recvmmsg.c`, called from the driver's process so that the two alternate.
//!
//! Promises: what C opened is closed once. Does not do: anything that the C loop doesn't.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use crate::Totals;

#[repr(C)]
struct Raw {
    opaque: [u8; 0],
}

// SAFETY:
// - the three functions stand in c/recvmmsg.c with these types; `Totals` is `struct c_totals`.
#[link(name = "lockgate_bench_recvmmsg", kind = "static")]
unsafe extern "C" {
    fn c_receiver_open(
        group: u32,
        port: u16,
        interface: c_int,
        buffer_bytes: c_int,
        stamps: c_int,
        out: *mut *mut Raw,
    ) -> c_int;
    fn c_receiver_drain(receiver: *mut Raw, want: u64, totals: *mut Totals) -> c_int;
    fn c_receiver_close(receiver: *mut Raw);
}

/// The hand-written receiver.
pub(crate) struct Plain {
    raw: NonNull<Raw>,
}

impl Plain {
    pub(crate) fn open(
        group: Ipv4Addr,
        port: u16,
        interface: u32,
        buffer_bytes: u32,
        stamps: bool,
    ) -> Result<Self, String> {
        let mut raw = std::ptr::null_mut();
        // SAFETY:
        // - `raw` lives through the call, which writes it only on success.
        let result = unsafe {
            c_receiver_open(
                u32::from_ne_bytes(group.octets()),
                port.to_be(),
                interface as c_int,
                buffer_bytes as c_int,
                stamps.into(),
                &mut raw,
            )
        };
        match NonNull::new(raw) {
            Some(raw) if result == 0 => Ok(Self { raw }),
            _ => Err(format!(
                "open the C receiver: {}",
                std::io::Error::from_raw_os_error(-result)
            )),
        }
    }

    /// Takes `want` datagrams, or what is queued.
    pub(crate) fn drain(&mut self, want: u64) -> Result<Totals, String> {
        let mut totals = Totals::default();
        // SAFETY:
        // - `raw` came from `c_receiver_open` and is closed only in `drop`; `self` is borrowed mutably;
        // - `totals` lives through the call.
        let result = unsafe { c_receiver_drain(self.raw.as_ptr(), want, &mut totals) };
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
        // - `raw` came from `c_receiver_open`, and this is the only close.
        unsafe { c_receiver_close(self.raw.as_ptr()) };
    }
}

/// Makes the kernel cut what is sent into datagrams of `size` bytes: `UDP_SEGMENT`.
pub(crate) fn segment(socket: &UdpSocket, size: usize) -> std::io::Result<()> {
    let size = size as c_int;
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - pointer and length describe `size`, which lives through the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            std::ptr::from_ref(&size).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}
