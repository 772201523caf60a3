//! What the failures of opening over kernel sockets mean, and what to do about each: the part that providers share.
//!
//! Promises: a cause is named only where the number together with the step proves it; everything else keeps its number and gets
//! no guess. Does not do: system calls, but for reading a limit that it names.

use std::io;
use std::net::{IpAddr, SocketAddr};

use lockgate::receive::Group;
use lockgate::{Errno, Error};

use super::Interface;

/// A kernel setting under /proc/sys, by its dotted name; nothing if it can't be read.
pub(crate) fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// `limit NAME is VALUE`, as a detail.
pub(crate) fn limit(name: &str) -> String {
    match sysctl(name) {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} can't be read"),
    }
}

pub(crate) fn resolve_interface(errno: Errno, name: &str) -> Error {
    let error = Error::from_errno("resolve interface", errno).with_object(name);
    if errno != Errno::NODEV {
        return error;
    }
    error
        .with_detail(format!("there are: {}", interfaces().join(", ")))
        .with_remedy("name one of these, or create it before the receiver is opened")
}

/// The names of the interfaces of the calling thread's network namespace.
pub(crate) fn interfaces() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    // Two lines of head; then the name ends at a colon.
    let mut names: Vec<String> = text
        .lines()
        .skip(2)
        .filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned()))
        .collect();
    names.sort();
    names
}

pub(crate) fn open_socket(error: io::Error, address: IpAddr) -> Error {
    let error = Error::from_io("open socket", error);
    match error.errno().map(Errno::raw) {
        Some(libc::EMFILE) => error.with_remedy(
            "raise the limit on open files: ulimit -n, or LimitNOFILE= of the service",
        ),
        Some(libc::ENFILE) => error
            .with_detail(limit("fs.file-max"))
            .with_remedy("raise it: sysctl -w fs.file-max=N"),
        Some(libc::EAFNOSUPPORT) if address.is_ipv6() => {
            error.with_remedy("boot the kernel without ipv6.disable=1, or receive IPv4")
        }
        _ => error,
    }
}

pub(crate) fn join(
    error: Error,
    group: &Group,
    source: Option<IpAddr>,
    interface: Option<&Interface>,
) -> Error {
    let mut object = group.address.to_string();
    if let Some(source) = source {
        object += &format!(" from {source}");
    }
    if let Some(interface) = interface {
        object += &format!(" on {}", interface.name);
    }
    let error = error.with_object(object);
    let with_sources = !group.sources.is_empty();
    match (error.errno().map(Errno::raw), interface) {
        (Some(libc::ENODEV), None) => error
            .with_detail("no interface is named and no route leads to the group")
            .with_remedy("name the interface, or add a route: ip route add 224.0.0.0/4 dev NAME"),
        (Some(libc::ENODEV), Some(_)) => error.with_remedy(
            "the interface went away while the receiver was opened, or does no IP; see `ip address`",
        ),
        (Some(libc::ENOBUFS), _) => {
            let setting = match (group.address, with_sources) {
                (IpAddr::V4(_), false) => "net.ipv4.igmp_max_memberships",
                (IpAddr::V4(_), true) => "net.ipv4.igmp_max_msf",
                (IpAddr::V6(_), _) => "net.ipv6.mld_max_msf",
            };
            let error = if with_sources {
                error.with_detail(format!(
                    "{} sources are asked for; {}",
                    group.sources.len(),
                    limit(setting)
                ))
            } else {
                error.with_detail(format!("more groups on one socket than allowed; {}", limit(setting)))
            };
            let other = if with_sources { "" } else { ", or set sockets to per-group" };
            error.with_remedy(format!("raise it: sysctl -w {setting}=N{other}"))
        }
        (Some(libc::ENOMEM), _) => error
            .with_detail(limit("net.core.optmem_max"))
            .with_remedy("raise it: sysctl -w net.core.optmem_max=N, or set sockets to per-group"),
        _ => error,
    }
}

#[cfg(any(feature = "packet", feature = "udp"))]
pub(crate) fn option(error: Error) -> Error {
    match error.errno().map(Errno::raw) {
        Some(libc::ENOPROTOOPT) => error
            .with_detail("this kernel does not know the option")
            .with_remedy("the provider needs Linux 5.7 or newer"),
        _ => error,
    }
}

pub(crate) fn link_news(errno: Errno, interface: &str) -> Error {
    Error::from_errno("watch interface", errno)
        .with_object(interface)
        .with_detail("a netlink socket tells when the interface loses its link or goes")
        .with_remedy("allow NETLINK_ROUTE sockets in the sandbox that refuses them")
}

#[cfg(any(feature = "packet", feature = "udp"))]
pub(crate) fn no_hardware_clock(errno: Option<Errno>, interface: &str) -> Error {
    let error = Error::new(lockgate::ErrorKind::Device, "ask for hardware time stamps")
        .with_object(interface)
        .with_detail("the interface stamps no received packets")
        .with_remedy(format!(
            "set timestamps to \"software\", or use an interface for which `ethtool -T {interface}` lists hardware-receive"
        ));
    match errno {
        Some(errno) => error.with_errno(errno),
        None => error,
    }
}

#[cfg(any(feature = "packet", feature = "udp"))]
pub(crate) fn hardware_clock_off(interface: &str) -> Error {
    Error::new(lockgate::ErrorKind::Device, "ask for hardware time stamps")
        .with_object(interface)
        .with_detail("the interface could stamp received packets and is set not to")
        .with_remedy(format!(
            "turn it on as root: hwstamp_ctl -i {interface} -r 1"
        ))
}

pub(crate) fn bind(error: io::Error, address: SocketAddr) -> Error {
    let port = address.port();
    let error = Error::from_io("bind", error).with_object(address.to_string());
    match error.errno().map(Errno::raw) {
        Some(libc::EADDRINUSE) => error
            .with_detail("another socket holds the port and does not share it")
            .with_remedy(format!(
                "see who with `ss -uanp 'sport = :{port}'`; sockets share a port if all of them set SO_REUSEADDR (groups) or \
                 all of them set reuse-port"
            )),
        Some(libc::EADDRNOTAVAIL) => error
            .with_detail("no interface of this network namespace has the address")
            .with_remedy("use an address that `ip address` shows"),
        Some(libc::EACCES) => error
            .with_detail(limit("net.ipv4.ip_unprivileged_port_start"))
            .with_remedy("use a port from there on, or give CAP_NET_BIND_SERVICE"),
        Some(libc::EINVAL) if address.is_ipv6() => {
            error.with_remedy("an address of link or interface scope needs interface")
        }
        _ => error,
    }
}
