//! Opening and closing `udp` receivers again and again leaks neither descriptors nor memberships. Alone in its process, because it counts
//! the process's descriptors.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::net::Ipv4Addr;

use lockgate::receive::{Group, Receiver, ReceiverConfig};
use lockgate::registry::Registry;

const CYCLES: usize = 1000;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Whether the host is a member of a group, by the kernel's own table, which has addresses as hexadecimal in network order.
fn is_member(group: Ipv4Addr) -> bool {
    let hex = format!("{:08X}", u32::from_ne_bytes(group.octets()));
    let table = std::fs::read_to_string("/proc/self/net/igmp").unwrap();
    table
        .lines()
        .any(|line| line.trim_start().starts_with(&hex))
}

fn open(config: &ReceiverConfig) -> Receiver {
    try_open(config).unwrap()
}

fn try_open(config: &ReceiverConfig) -> lockgate::Result<Receiver> {
    let mut registry = Registry::new();
    registry
        .register(lockgate_providers::udp::factory())
        .unwrap();
    registry.open_receiver("udp", config)
}

#[test]
fn a_thousand_cycles_leak_nothing() {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let address = |last| Ipv4Addr::new(239, high, low, last);
    let port = 20_000 + (std::process::id() % 10_000) as u16;
    // Two sockets, an epoll set and a netlink socket; one of the groups by source.
    let groups = [
        Group::new(address(1).into(), port),
        Group::new(address(2).into(), port),
        Group::new(address(3).into(), port + 1).from_sources([Ipv4Addr::LOCALHOST.into()]),
    ];
    let config = ReceiverConfig::multicast("lo", groups);
    drop(open(&config));
    let before = descriptors();
    for cycle in 0..CYCLES {
        let mut receiver = open(&config);
        if cycle == 0 {
            assert_eq!(descriptors(), before + 4);
            for last in 1..=3 {
                assert!(is_member(address(last)), "239.{high}.{low}.{last}");
            }
        }
        // Every other one is only dropped.
        if cycle % 2 == 0 {
            receiver.close().unwrap();
        }
    }
    assert_eq!(descriptors(), before);

    // An open that fails at its second socket gives back what the first had.
    let holder = std::net::UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port + 1)).unwrap();
    for _ in 0..CYCLES {
        let error = try_open(&config).unwrap_err();
        assert_eq!(error.operation(), "bind", "{error}");
    }
    drop(holder);
    assert_eq!(descriptors(), before);
    for last in 1..=3 {
        assert!(!is_member(address(last)), "239.{high}.{low}.{last}");
    }

    // A copy of the descriptor, as a child process may have, does not keep the membership.
    let config = ReceiverConfig::multicast("lo", [Group::new(address(1).into(), port)]);
    let mut receiver = open(&config);
    let copy = receiver.readiness_fd().unwrap().try_clone_to_owned();
    assert!(is_member(address(1)));
    receiver.close().unwrap();
    assert!(!is_member(address(1)));
    drop(copy);
}
