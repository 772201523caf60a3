//! The structures that packet sockets take and give by socket options.
//!
//! Promises: each is declared in full, as linux/if_packet.h has it. Does not do: calling; the shared system calls do.
#![allow(unsafe_code)]

use socket2::{SockAddr, SockAddrStorage};

use crate::kernel::sys::Plain;

/// An address for everything of one protocol, in network order, on an interface.
pub(super) fn link_address(protocol: u16, interface: u32) -> SockAddr {
    let mut storage = SockAddrStorage::zeroed();
    // SAFETY:
    // - `sockaddr_ll` is a socket address, made of integers, and smaller than the storage.
    let address = unsafe { storage.view_as::<libc::sockaddr_ll>() };
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = protocol;
    address.sll_ifindex = interface as i32;
    // SAFETY:
    // - the storage holds a `sockaddr_ll` whose family says so, and the length is that of the type.
    unsafe { SockAddr::new(storage, size_of::<libc::sockaddr_ll>() as libc::socklen_t) }
}

/// `struct tpacket_req`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct RingRequest {
    pub(super) block_bytes: u32,
    pub(super) blocks: u32,
    pub(super) slot_bytes: u32,
    pub(super) slots: u32,
}

/// `struct tpacket_req3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct BlockRequest {
    pub(super) ring: RingRequest,
    pub(super) timeout: u32,
    pub(super) private_bytes: u32,
    pub(super) features: u32,
}

/// `struct packet_mreq`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Membership {
    pub(super) interface: i32,
    pub(super) kind: u16,
    pub(super) address_len: u16,
    pub(super) address: [u8; 8],
}

/// `struct tpacket_stats_v3`, whose beginning is `struct tpacket_stats`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Counters {
    pub(super) packets: u32,
    pub(super) drops: u32,
    pub(super) freezes: u32,
}

// SAFETY:
// - four integers of one size: no padding, no pointer, every bit pattern is a value.
unsafe impl Plain for RingRequest {}
// SAFETY:
// - seven integers of one size: no padding, no pointer, every bit pattern is a value.
unsafe impl Plain for BlockRequest {}
// SAFETY:
// - integers and an array of bytes that lie at multiples of their sizes and fill 16 bytes: no padding, no pointer, every bit
//   pattern is a value.
unsafe impl Plain for Membership {}
// SAFETY:
// - three integers of one size: no padding, no pointer, every bit pattern is a value.
unsafe impl Plain for Counters {}

const _: () = assert!(size_of::<RingRequest>() == 16);
const _: () = assert!(size_of::<BlockRequest>() == 28);
const _: () = assert!(size_of::<Membership>() == 16);
const _: () = assert!(size_of::<Counters>() == 12);

/// Code, both jumps and value of an instruction, for tests that run a program by themselves.
#[cfg(test)]
pub(super) fn filter_fields(one: &socket2::SockFilter) -> (u16, u8, u8, u32) {
    const _: () = assert!(size_of::<socket2::SockFilter>() == size_of::<libc::sock_filter>());
    let raw: *const libc::sock_filter = std::ptr::from_ref(one).cast();
    // SAFETY:
    // - `SockFilter` is a transparent wrapper of `sock_filter`, of the same size, as asserted above;
    // - the pointer comes from a reference, and the value is copied.
    let raw = unsafe { raw.read() };
    (raw.code, raw.jt, raw.jf, raw.k)
}
