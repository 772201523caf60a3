//! The network interfaces of this process's network namespace.
//!
//! Promises: state, addresses and counters are the kernel's own, from rtnetlink; memberships from `/proc/net/igmp` and `igmp6`.
//! Does not do: asking drivers or devices.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::membership::{self, Memberships};
use super::netlink::{self, Dump, Entry, attributes, u32_at, u64_at};
use super::reading::{self, Reading};

const IFF_UP: u32 = 1;
const IFF_LOOPBACK: u32 = 1 << 3;
const IFF_POINTOPOINT: u32 = 1 << 4;
const IFF_RUNNING: u32 = 1 << 6;
const IFF_NOARP: u32 = 1 << 7;
const IFF_PROMISC: u32 = 1 << 8;
const IFF_ALLMULTI: u32 = 1 << 9;
const IFF_MULTICAST: u32 = 1 << 12;

const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_STATS64: u16 = 23;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;

/// One interface.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Interface {
    /// The kernel's index.
    pub(crate) index: u32,
    /// Its name.
    pub(crate) name: String,
    /// What kind of software interface it is, such as `vlan`, `veth`, `bridge`; none for hardware.
    pub(crate) kind: Option<String>,
    /// Whether an administrator has set it up.
    pub(crate) up: bool,
    /// Whether it has what it needs to carry packets: a link, a peer.
    pub(crate) running: bool,
    /// The operational state, RFC 2863.
    pub(crate) operational: &'static str,
    /// Whether it is the loopback interface.
    pub(crate) loopback: bool,
    /// Whether its flags say that it can carry multicast. The loopback interface's don't, and joins work on it all the same.
    pub(crate) multicast: bool,
    /// Whether it takes every multicast frame.
    pub(crate) all_multicast: bool,
    /// The flags that are set, by name.
    pub(crate) flags: Vec<&'static str>,
    /// The largest packet, in bytes.
    pub(crate) mtu: u32,
    /// Its addresses.
    pub(crate) addresses: Vec<Address>,
    /// The groups that the kernel has joined on it.
    pub(crate) memberships: Reading<Memberships>,
    /// The reverse-path filter that holds for IPv4 on it: 0 none, 1 strict, 2 loose.
    pub(crate) rp_filter: Reading<u64>,
    /// Counters since it came up.
    pub(crate) counters: Option<Counters>,
}

/// An address with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Address {
    /// The address.
    pub(crate) address: IpAddr,
    /// How many leading bits are the network's.
    pub(crate) prefix: u8,
}

/// Counters of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counters {
    /// Packets received.
    pub(crate) rx_packets: u64,
    /// Packets dropped on receive because there was no room.
    pub(crate) rx_dropped: u64,
    /// Packets received with errors.
    pub(crate) rx_errors: u64,
    /// Multicast packets received, where the driver counts them.
    pub(crate) rx_multicast: u64,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl Interface {
    /// Whether it has an address of that family.
    pub(crate) fn has_family(&self, v4: bool) -> bool {
        self.addresses.iter().any(|one| one.address.is_ipv4() == v4)
    }
}

/// Every interface, by index.
pub(super) fn read() -> Reading<Vec<Interface>> {
    let links = match netlink::dump(Dump::Links) {
        Ok(links) => links,
        Err(error) => return Reading::Unreadable(format!("rtnetlink links: {error}")),
    };
    let addresses = match netlink::dump(Dump::Addresses) {
        Ok(addresses) => addresses,
        Err(error) => return Reading::Unreadable(format!("rtnetlink addresses: {error}")),
    };
    let memberships = membership::read();
    let mut all: Vec<_> = links.iter().filter_map(interface).collect();
    for (index, address) in addresses.iter().filter_map(address) {
        if let Some(interface) = all.iter_mut().find(|one| one.index == index) {
            interface.addresses.push(address);
        }
    }
    for interface in &mut all {
        interface.memberships = memberships.of(&interface.name);
        interface.rp_filter = rp_filter(&interface.name);
    }
    all.sort_by_key(|one| one.index);
    Reading::Value(all)
}

fn interface(entry: &Entry) -> Option<Interface> {
    let index = u32_at(&entry.fixed, 4)?;
    let flags = u32_at(&entry.fixed, 8)?;
    let has = |flag: u32| flags & flag != 0;
    let kind = entry
        .attribute(IFLA_LINKINFO)
        .and_then(|info| attributes(info).find(|(number, _)| *number == IFLA_INFO_KIND))
        .map(|(_, kind)| text(kind));
    Some(Interface {
        index,
        name: text(entry.attribute(IFLA_IFNAME)?),
        kind,
        up: has(IFF_UP),
        running: has(IFF_RUNNING),
        operational: operational(entry.attribute(IFLA_OPERSTATE)),
        loopback: has(IFF_LOOPBACK),
        multicast: has(IFF_MULTICAST),
        all_multicast: has(IFF_ALLMULTI),
        flags: flag_names(flags),
        mtu: u32_at(entry.attribute(IFLA_MTU)?, 0)?,
        addresses: Vec::new(),
        memberships: Reading::Unreadable("not read yet".to_owned()),
        rp_filter: Reading::Unreadable("not read yet".to_owned()),
        counters: entry.attribute(IFLA_STATS64).and_then(counters),
    })
}

fn address(entry: &Entry) -> Option<(u32, Address)> {
    let prefix = *entry.fixed.get(1)?;
    let index = u32_at(&entry.fixed, 4)?;
    // On a point-to-point link IFA_ADDRESS is the peer's; the own one is IFA_LOCAL. IPv6 has only IFA_ADDRESS.
    let bytes = entry
        .attribute(IFA_LOCAL)
        .or_else(|| entry.attribute(IFA_ADDRESS))?;
    let address = match *entry.fixed.first()? {
        2 => Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into(),
        10 => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into(),
        _ => return None,
    };
    Some((index, Address { address, prefix }))
}

/// `rtnl_link_stats64`: rx_packets, tx_packets, rx_bytes, tx_bytes, rx_errors, tx_errors, rx_dropped, tx_dropped, multicast, …
fn counters(bytes: &[u8]) -> Option<Counters> {
    let field = |at: usize| u64_at(bytes, at * 8);
    Some(Counters {
        rx_packets: field(0)?,
        rx_errors: field(4)?,
        rx_dropped: field(6)?,
        rx_multicast: field(8)?,
    })
}

/// The kernel takes the larger of the value for all and the one for the interface.
fn rp_filter(interface: &str) -> Reading<u64> {
    let value = |name: &str| reading::number(&format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"));
    match (value("all"), value(interface)) {
        (Reading::Value(all), Reading::Value(own)) => Reading::Value(all.max(own)),
        (Reading::Unreadable(reason), _) | (_, Reading::Unreadable(reason)) => {
            Reading::Unreadable(reason)
        }
    }
}

fn operational(attribute: Option<&[u8]>) -> &'static str {
    match attribute.and_then(|bytes| bytes.first()) {
        Some(1) => "not-present",
        Some(2) => "down",
        Some(3) => "lower-layer-down",
        Some(4) => "testing",
        Some(5) => "dormant",
        Some(6) => "up",
        _ => "unknown",
    }
}

fn flag_names(flags: u32) -> Vec<&'static str> {
    [
        (IFF_UP, "up"),
        (IFF_LOOPBACK, "loopback"),
        (IFF_POINTOPOINT, "point-to-point"),
        (IFF_RUNNING, "running"),
        (IFF_NOARP, "no-arp"),
        (IFF_PROMISC, "promiscuous"),
        (IFF_ALLMULTI, "all-multicast"),
        (IFF_MULTICAST, "multicast"),
    ]
    .into_iter()
    .filter(|(flag, _)| flags & flag != 0)
    .map(|(_, name)| name)
    .collect()
}

/// A name with its closing zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_with_a_loopback_interface() {
        let Reading::Value(all) = read() else {
            panic!("unreadable: {:?}", read());
        };
        let lo = all
            .iter()
            .find(|one| one.loopback)
            .expect("a network namespace has a loopback interface");
        assert_eq!(lo.name, "lo");
        assert!(lo.flags.contains(&"loopback"));
        assert!(lo.mtu >= 1280, "mtu {}", lo.mtu);
        if lo.up {
            let local: IpAddr = Ipv4Addr::LOCALHOST.into();
            assert!(
                lo.addresses.iter().any(|one| one.address == local) || lo.has_family(false),
                "{:?}",
                lo.addresses
            );
        }
    }

    #[test]
    fn names_agree_with_the_kernels_own_list() {
        // /proc/net/dev is of the same namespace, by another road.
        let dev = std::fs::read_to_string("/proc/net/dev").unwrap();
        let mut expected: Vec<_> = dev
            .lines()
            .skip(2)
            .filter_map(|line| line.split(':').next())
            .map(str::trim)
            .collect();
        expected.sort_unstable();
        let Reading::Value(all) = read() else {
            panic!("unreadable");
        };
        let mut names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, expected);
    }
}
