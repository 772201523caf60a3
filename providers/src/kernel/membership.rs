//! Joins and leaves groups on a kernel socket.
//!
//! Promises: the number of a failed join comes back as it was, with its step; [`Failure::explained`] makes the error of it. Does not
//! do: deciding what to do about a failure.

use std::net::IpAddr;

use lockgate::receive::Group;
use lockgate::{Errno, Error, Result};
use socket2::{InterfaceIndexOrAddress, Socket};

use super::{Interface, remedy, sys};

/// A join that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    error: Error,
    source: Option<IpAddr>,
}

impl Failure {
    /// The error with what is known about its cause.
    pub(crate) fn explained(self, group: &Group, interface: Option<&Interface>) -> Error {
        remedy::join(self.error, group, self.source, interface)
    }

    /// Whether the socket has as many groups as it may have.
    #[cfg(any(feature = "packet", feature = "xdp"))]
    pub(crate) fn is_full(&self) -> bool {
        self.source.is_none()
            && matches!(
                self.error.errno().map(Errno::raw),
                Some(libc::ENOBUFS | libc::ENOMEM)
            )
    }
}

/// Joins a group, for each of its sources if it names some.
pub(crate) fn join(
    socket: &Socket,
    group: &Group,
    interface: Option<&Interface>,
) -> Result<(), Failure> {
    let index = interface.map_or(0, |interface| interface.index);
    if group.sources.is_empty() {
        change(socket, group.address, index, true).map_err(|error| Failure {
            error: Error::from_io("join group", error),
            source: None,
        })?;
    }
    for source in &group.sources {
        change_source(socket, group.address, *source, index, true).map_err(|errno| Failure {
            error: Error::from_errno("join group for source", errno),
            source: Some(*source),
        })?;
    }
    Ok(())
}

/// Leaves a group. A membership that is gone already is none of the caller's business.
pub(crate) fn leave(socket: &Socket, group: &Group, index: u32) {
    if group.sources.is_empty() {
        // Fails with EADDRNOTAVAIL or ENODEV where there is nothing to leave.
        let _gone_already = change(socket, group.address, index, false);
    }
    for source in &group.sources {
        let _gone_already = change_source(socket, group.address, *source, index, false);
    }
}

fn change(socket: &Socket, group: IpAddr, index: u32, join: bool) -> std::io::Result<()> {
    let by_index = InterfaceIndexOrAddress::Index(index);
    match (group, join) {
        (IpAddr::V4(group), true) => socket.join_multicast_v4_n(&group, &by_index),
        (IpAddr::V4(group), false) => socket.leave_multicast_v4_n(&group, &by_index),
        (IpAddr::V6(group), true) => socket.join_multicast_v6(&group, index),
        (IpAddr::V6(group), false) => socket.leave_multicast_v6(&group, index),
    }
}

fn change_source(
    socket: &Socket,
    group: IpAddr,
    source: IpAddr,
    index: u32,
    join: bool,
) -> Result<(), Errno> {
    let level = if group.is_ipv4() {
        libc::SOL_IP
    } else {
        libc::SOL_IPV6
    };
    let name = if join {
        libc::MCAST_JOIN_SOURCE_GROUP
    } else {
        libc::MCAST_LEAVE_SOURCE_GROUP
    };
    let request = sys::source_request(index, group, source);
    sys::set_option(socket, level, name, &request)
}
