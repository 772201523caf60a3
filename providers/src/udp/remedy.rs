//! What the failures of opening mean that only this provider knows, and what to do about each.
//!
//! Promises: a cause is named only where the number together with the step proves it; everything else keeps its number and gets
//! no guess. Does not do: system calls, but for reading a limit that it names.

use lockgate::{Errno, Error};

pub(super) use crate::kernel::remedy::{
    bind, interfaces, limit, link_news, open_socket, option, resolve_interface, sysctl,
};

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

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{Ipv4Addr, Ipv6Addr};

    use lockgate::receive::Group;

    use super::*;
    use crate::kernel::Interface;
    use crate::kernel::remedy::{hardware_clock_off, join};

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
