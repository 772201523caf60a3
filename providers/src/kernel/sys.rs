//! The system calls that providers over kernel sockets share and that neither the standard library nor socket2 has: options,
//! ioctls, waiting, netlink.
//!
//! Promises: every call is a thin function over one system call; what comes from the kernel is copied out and checked for
//! its length. Does not do: the data paths, which each provider has for itself, or explaining errors.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int};
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use lockgate::Errno;

/// Values that may be handed to `setsockopt` and `getsockopt` as they lie in memory.
///
/// # Safety
/// The type has no padding that the kernel would read as data, holds no pointer, and every bit pattern is a value.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY:
// - an integer has no padding and no invalid bit pattern.
unsafe impl Plain for c_int {}
// SAFETY:
// - as for one integer; an array adds no padding.
unsafe impl Plain for [u32; 9] {}
// SAFETY:
// - made only by `source_request`, from zeroed memory, so that its padding is zero; the kernel reads integers.
unsafe impl Plain for libc::group_source_req {}

/// Sets a socket option.
pub(crate) fn set_option<T: Plain>(
    fd: impl AsFd,
    level: c_int,
    name: c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - the pointer and the length describe `value`, which is borrowed and, by `Plain`, has no bytes that may not be read.
    let result = unsafe {
        libc::setsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::last())
    }
}

/// Reads a socket option; what the kernel doesn't fill stays as in `initial`.
pub(crate) fn option<T: Plain>(
    fd: impl AsFd,
    level: c_int,
    name: c_int,
    initial: T,
) -> Result<T, Errno> {
    let mut value = initial;
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - the kernel writes at most `len` bytes at the pointer, and `value` has as many; by `Plain` every pattern is a value.
    let result = unsafe {
        libc::getsockopt(
            fd.as_fd().as_raw_fd(),
            level,
            name,
            std::ptr::from_mut(&mut value).cast(),
            &mut len,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(Errno::last())
    }
}

/// The request that joins or leaves a group for one source.
pub(crate) fn source_request(
    interface: u32,
    group: IpAddr,
    source: IpAddr,
) -> libc::group_source_req {
    // SAFETY:
    // - integers and arrays of integers: all zero is a value of it.
    let mut request: libc::group_source_req = unsafe { MaybeUninit::zeroed().assume_init() };
    request.gsr_interface = interface;
    request.gsr_group = storage(group);
    request.gsr_source = storage(source);
    request
}

fn storage(address: IpAddr) -> libc::sockaddr_storage {
    // socket2 writes the address into zeroed storage.
    let address = socket2::SockAddr::from(SocketAddr::new(address, 0));
    // SAFETY:
    // - integers and arrays of integers: all zero is a value of it.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY:
    // - the source is valid for reads of its own length, which is at most that of the storage;
    // - the destination is a local variable of that size, and the two don't overlap.
    unsafe {
        std::ptr::copy_nonoverlapping(
            address.as_ptr().cast::<u8>(),
            std::ptr::from_mut(&mut storage).cast::<u8>(),
            (address.len() as usize).min(size_of::<libc::sockaddr_storage>()),
        );
    }
    storage
}

/// The kernel's index of an interface.
pub(crate) fn interface_index(name: &str) -> Result<u32, Errno> {
    let name = CString::new(name).map_err(|_| Errno::INVAL)?;
    // SAFETY:
    // - the pointer is to a string that ends in zero and lives through the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Errno::last()),
        index => Ok(index),
    }
}

/// What an interface says about its receive time stamps.
#[cfg(any(feature = "packet", feature = "udp"))]
pub(crate) struct HardwareClock {
    /// The `SOF_TIMESTAMPING_*` bits that it supports.
    pub(crate) supported: u32,
    /// The index of its PTP clock; negative if it has none.
    pub(crate) ptp_clock: i32,
    /// Which packets it stamps now, `HWTSTAMP_FILTER_*`; `None` if its driver can't tell.
    pub(crate) filter: Option<i32>,
}

/// Asks an interface about its time stamps. `fd` is any socket of the network namespace.
#[cfg(any(feature = "packet", feature = "udp"))]
pub(crate) fn hardware_clock(fd: impl AsFd, interface: &str) -> Result<HardwareClock, Errno> {
    /// `struct ethtool_ts_info` of linux/ethtool.h.
    #[repr(C)]
    #[derive(Default)]
    struct TimestampInfo {
        command: u32,
        supported: u32,
        ptp_clock: i32,
        tx_types: u32,
        tx_reserved: [u32; 3],
        rx_filters: u32,
        rx_reserved: [u32; 3],
    }
    const ETHTOOL_GET_TS_INFO: u32 = 0x41;

    let mut info = TimestampInfo {
        command: ETHTOOL_GET_TS_INFO,
        ..TimestampInfo::default()
    };
    interface_ioctl(
        fd.as_fd(),
        libc::SIOCETHTOOL as libc::c_ulong,
        interface,
        std::ptr::from_mut(&mut info).cast(),
    )?;
    let mut config = libc::hwtstamp_config {
        flags: 0,
        tx_type: 0,
        rx_filter: 0,
    };
    let asked = interface_ioctl(
        fd.as_fd(),
        libc::SIOCGHWTSTAMP,
        interface,
        std::ptr::from_mut(&mut config).cast(),
    );
    Ok(HardwareClock {
        supported: info.supported,
        ptp_clock: info.ptp_clock,
        filter: asked.is_ok().then_some(config.rx_filter),
    })
}

/// How many receive queues an interface has; an error if its driver can't tell.
#[cfg(feature = "xdp")]
pub(crate) fn receive_queues(fd: impl AsFd, interface: &str) -> Result<u32, Errno> {
    /// `struct ethtool_channels` of linux/ethtool.h.
    #[repr(C)]
    #[derive(Default)]
    struct Channels {
        command: u32,
        max: [u32; 4],
        receive: u32,
        transmit: u32,
        other: u32,
        combined: u32,
    }
    const ETHTOOL_GCHANNELS: u32 = 0x3c;
    let mut channels = Channels {
        command: ETHTOOL_GCHANNELS,
        ..Channels::default()
    };
    interface_ioctl(
        fd.as_fd(),
        libc::SIOCETHTOOL as libc::c_ulong,
        interface,
        std::ptr::from_mut(&mut channels).cast(),
    )?;
    Ok(channels.receive.saturating_add(channels.combined))
}

/// Whether an interface takes VLAN tags out of received frames; an error if its driver can't tell.
#[cfg(feature = "xdp")]
pub(crate) fn strips_tags(fd: impl AsFd, interface: &str) -> Result<bool, Errno> {
    /// `struct ethtool_value` of linux/ethtool.h.
    #[repr(C)]
    struct Value {
        command: u32,
        data: u32,
    }
    const ETHTOOL_GFLAGS: u32 = 0x25;
    const ETH_FLAG_RXVLAN: u32 = 1 << 8;
    let mut value = Value {
        command: ETHTOOL_GFLAGS,
        data: 0,
    };
    interface_ioctl(
        fd.as_fd(),
        libc::SIOCETHTOOL as libc::c_ulong,
        interface,
        std::ptr::from_mut(&mut value).cast(),
    )?;
    Ok(value.data & ETH_FLAG_RXVLAN != 0)
}

/// An ioctl whose request holds an interface's name and a pointer to data that the kernel reads and writes. All requests that
/// come here use structures that the callers above declare in full.
fn interface_ioctl(
    fd: BorrowedFd<'_>,
    request: libc::c_ulong,
    interface: &str,
    data: *mut libc::c_char,
) -> Result<(), Errno> {
    // SAFETY:
    // - integers, arrays and pointers: all zero is a value of it.
    let mut argument: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    if interface.len() >= argument.ifr_name.len() {
        return Err(Errno::INVAL);
    }
    for (to, from) in argument.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    argument.ifr_ifru.ifru_data = data;
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - `argument` is a whole `ifreq` with a name that ends in zero;
    // - `data` points to a live structure of the size that the request reads and writes: the three callers, all above, declare
    //   theirs in full.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), request as _, &mut argument) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::last())
    }
}

/// Waits until one of at most two descriptors is readable. Answers which.
///
/// # Errors
/// `EINTR` like every other number; the caller knows the deadline.
pub(crate) fn wait_readable(
    first: BorrowedFd<'_>,
    second: Option<BorrowedFd<'_>>,
    timeout: Option<Duration>,
) -> Result<[bool; 2], Errno> {
    let entry = |fd: Option<BorrowedFd<'_>>| libc::pollfd {
        // The kernel skips negative descriptors.
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut fds = [entry(Some(first)), entry(second)];
    let timeout = timeout.map(|left| libc::timespec {
        tv_sec: libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    let timeout = timeout
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY:
    // - `fds` has two entries and lives through the call;
    // - `timeout` is null or points to the value above, which lives as long; a null signal mask changes nothing.
    let result = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, timeout, std::ptr::null()) };
    if result < 0 {
        return Err(Errno::last());
    }
    // POLLERR and POLLHUP wake too: the receive call that follows tells what they are.
    Ok(fds.map(|entry| entry.revents != 0))
}

/// A set of descriptors that is itself readable when one of them is.
#[cfg(any(feature = "udp", feature = "xdp"))]
pub(crate) struct Epoll(OwnedFd);

#[cfg(any(feature = "udp", feature = "xdp"))]
impl Epoll {
    pub(crate) fn new() -> Result<Self, Errno> {
        // SAFETY:
        // - no precondition.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(Errno::last());
        }
        // SAFETY:
        // - the descriptor was just opened, and nobody else has it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Adds a descriptor under a token, level-triggered.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64) -> Result<(), Errno> {
        let mut event = libc::epoll_event {
            events: libc::EPOLLIN as u32,
            u64: token,
        };
        // SAFETY:
        // - both descriptors are open: they are borrowed;
        // - `event` lives through the call.
        let result = unsafe {
            libc::epoll_ctl(
                self.0.as_raw_fd(),
                libc::EPOLL_CTL_ADD,
                fd.as_fd().as_raw_fd(),
                &mut event,
            )
        };
        if result == 0 {
            Ok(())
        } else {
            Err(Errno::last())
        }
    }

    /// Fills in what is readable now, without waiting, and answers how many.
    #[cfg(feature = "udp")]
    pub(crate) fn ready(&self, events: &mut [libc::epoll_event]) -> Result<usize, Errno> {
        let room = c_int::try_from(events.len()).unwrap_or(c_int::MAX);
        // SAFETY:
        // - the descriptor is open: it is owned;
        // - the kernel writes at most `room` events, and the slice has as many.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), room, 0) };
        usize::try_from(count).map_err(|_| Errno::last())
    }
}

#[cfg(any(feature = "udp", feature = "xdp"))]
impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Opens a netlink socket that hears about links.
pub(crate) fn open_link_news() -> Result<OwnedFd, Errno> {
    // SAFETY:
    // - no precondition.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            libc::NETLINK_ROUTE,
        )
    };
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY:
    // - the descriptor was just opened, and nobody else has it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY:
    // - integers: all zero is a value of it.
    let mut address: libc::sockaddr_nl = unsafe { MaybeUninit::zeroed().assume_init() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    address.nl_groups = libc::RTMGRP_LINK as u32;
    // SAFETY:
    // - the descriptor is open: it is owned;
    // - pointer and length describe `address`, which lives through the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_nl>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(fd)
    } else {
        Err(Errno::last())
    }
}

/// Sends a netlink request to the kernel.
pub(crate) fn send(fd: impl AsFd, bytes: &[u8]) -> Result<(), Errno> {
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - pointer and length describe the slice.
    let sent = unsafe {
        libc::send(
            fd.as_fd().as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            libc::MSG_NOSIGNAL,
        )
    };
    if sent < 0 { Err(Errno::last()) } else { Ok(()) }
}

/// Takes one datagram, without waiting. Its length may exceed the buffer's: then it was cut.
pub(crate) fn receive_datagram(fd: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - the kernel writes at most `buffer.len()` bytes into the slice, whatever length it answers for MSG_TRUNC.
    let got = unsafe {
        libc::recv(
            fd.as_fd().as_raw_fd(),
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            libc::MSG_DONTWAIT | libc::MSG_TRUNC,
        )
    };
    usize::try_from(got).map_err(|_| Errno::last())
}
