//! What the failures of opening mean, and what to do about each.
//!
//! Promises: a cause is named only where the number together with the step proves it; everything else keeps its number and gets
//! no guess. Does not do: system calls, but for reading a limit that it names.

use std::io;
use std::net::{IpAddr, SocketAddr};

use lockgate::receive::Group;
use lockgate::{Errno, Error, ErrorKind};

use super::socket::Interface;

/// A kernel setting under /proc/sys, by its dotted name; nothing if it can't be read.
pub(super) fn sysctl(name: &str) -> Option<String> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// `limit NAME is VALUE`, as a detail.
fn limit(name: &str) -> String {
    match sysctl(name) {
        Some(value) => format!("{name} is {value}"),
        None => format!("{name} can't be read"),
    }
}

pub(super) fn resolve_interface(errno: Errno, name: &str) -> Error {
    let error = Error::from_errno("resolve interface", errno).with_object(name);
    if errno != Errno::NODEV {
        return error;
    }
    error
        .with_detail(format!("there are: {}", interfaces().join(", ")))
        .with_remedy("name one of these, or create it before the receiver is opened")
}

/// The names of the interfaces of the calling thread's network namespace.
pub(super) fn interfaces() -> Vec<String> {
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

pub(super) fn open_socket(error: io::Error, address: IpAddr) -> Error {
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

pub(super) fn bind(error: io::Error, address: SocketAddr) -> Error {
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

pub(super) fn join(
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

pub(super) fn tie(errno: Errno, interface: &str) -> Error {
    let error = Error::from_errno("bind to interface", errno).with_object(interface);
    match errno {
        Errno::PERM => error.with_remedy("needs Linux 5.7 or newer, or CAP_NET_RAW"),
        _ => error,
    }
}

pub(super) fn tie_again(errno: Errno, interface: &str) -> Error {
    let error = Error::from_errno("bind to interface again", errno).with_object(interface);
    match errno {
        Errno::PERM => error
            .with_detail("only CAP_NET_RAW may move a socket from one interface to another")
            .with_remedy("close the receiver and open it again, or give CAP_NET_RAW"),
        _ => error,
    }
}

pub(super) fn option(error: Error) -> Error {
    match error.errno().map(Errno::raw) {
        Some(libc::ENOPROTOOPT) => error
            .with_detail("this kernel does not know the option")
            .with_remedy("the provider needs Linux 5.7 or newer"),
        _ => error,
    }
}

pub(super) fn busy_poll(errno: Errno, micros: u32) -> Error {
    let error =
        Error::from_errno("set SO_BUSY_POLL", errno).with_object(format!("{micros} microseconds"));
    match errno {
        Errno::PERM => error
            .with_detail(limit("net.core.busy_read"))
            .with_remedy(format!(
                "more than that needs, on this kernel, CAP_NET_ADMIN, or: sysctl -w net.core.busy_read={micros}"
            )),
        _ => option(error),
    }
}

pub(super) fn force_buffer(errno: Errno, bytes: u32) -> Error {
    let error =
        Error::from_errno("set SO_RCVBUFFORCE", errno).with_object(format!("{bytes} bytes"));
    match errno {
        Errno::PERM => error.with_remedy(format!(
            "give CAP_NET_ADMIN, or leave force-receive-buffer out and: sysctl -w net.core.rmem_max={bytes}"
        )),
        _ => error,
    }
}

pub(super) fn link_news(errno: Errno, interface: &str) -> Error {
    Error::from_errno("watch interface", errno)
        .with_object(interface)
        .with_detail("a netlink socket tells when the interface loses its link or goes")
        .with_remedy("allow NETLINK_ROUTE sockets in the sandbox that refuses them")
}

pub(super) fn no_hardware_clock(errno: Option<Errno>, interface: &str) -> Error {
    let error = Error::new(ErrorKind::Device, "ask for hardware time stamps")
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

pub(super) fn hardware_clock_off(interface: &str) -> Error {
    Error::new(ErrorKind::Device, "ask for hardware time stamps")
        .with_object(interface)
        .with_detail("the interface could stamp received packets and is set not to")
        .with_remedy(format!(
            "turn it on as root: hwstamp_ctl -i {interface} -r 1"
        ))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn io(errno: i32) -> io::Error {
        io::Error::from_raw_os_error(errno)
    }

    /// What this machine does not produce: numbers of other kernels, and limits that tests must not exhaust.
    #[test]
    fn causes_are_named_where_number_and_step_prove_them() {
        let v4 = Ipv4Addr::LOCALHOST.into();
        let v6 = Ipv6Addr::LOCALHOST.into();
        let group: Group = "239.1.1.1:5000".parse().unwrap();
        let lo = Interface {
            name: "lo".to_owned(),
            index: 1,
        };
        let joining = |errno| Error::from_errno("join group", Errno::from_raw(errno));
        for (error, words) in [
            (open_socket(io(libc::EMFILE), v4), "ulimit -n"),
            (open_socket(io(libc::ENFILE), v4), "fs.file-max"),
            (open_socket(io(libc::EAFNOSUPPORT), v6), "ipv6.disable=1"),
            (busy_poll(Errno::PERM, 50), "net.core.busy_read=50"),
            (tie(Errno::PERM, "eth0"), "Linux 5.7"),
            (
                option(Error::from_errno("x", Errno::from_raw(libc::ENOPROTOOPT))),
                "Linux 5.7",
            ),
            (
                join(joining(libc::ENOMEM), &group, None, Some(&lo)),
                "net.core.optmem_max",
            ),
            (
                join(joining(libc::ENODEV), &group, None, Some(&lo)),
                "ip address",
            ),
            (
                bind(io(libc::EINVAL), (Ipv6Addr::LOCALHOST, 1).into()),
                "needs interface",
            ),
            (hardware_clock_off("eth0"), "hwstamp_ctl -i eth0 -r 1"),
            (link_news(Errno::PERM, "eth0"), "NETLINK_ROUTE"),
        ] {
            let remedy = error.remedy().unwrap_or_default();
            assert!(remedy.contains(words), "{error}");
        }
    }

    #[test]
    fn an_unknown_number_gets_no_guess() {
        let group: Group = "239.1.1.1:5000".parse().unwrap();
        for error in [
            open_socket(io(libc::EIO), Ipv4Addr::LOCALHOST.into()),
            bind(io(libc::EIO), (Ipv4Addr::LOCALHOST, 1).into()),
            bind(io(libc::EINVAL), (Ipv4Addr::LOCALHOST, 1).into()),
            join(
                Error::from_errno("join group", Errno::IO),
                &group,
                None,
                None,
            ),
            tie(Errno::IO, "eth0"),
            tie_again(Errno::IO, "eth0"),
            busy_poll(Errno::IO, 1),
            force_buffer(Errno::IO, 1),
            resolve_interface(Errno::IO, "eth0"),
        ] {
            assert!(error.errno().is_some(), "{error}");
            assert_eq!((error.remedy(), error.detail()), (None, None), "{error}");
        }
    }
}
