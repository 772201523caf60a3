//! The address of a packet socket, which the libraries in use here can't write.
#![allow(unsafe_code)]

use socket2::{SockAddr, SockAddrStorage};

/// An address for sending whole frames through an interface.
pub fn link_address(interface: u32) -> SockAddr {
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
