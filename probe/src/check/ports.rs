//! The ports of a device: state, link, and the GID table with the rule by which a GID is chosen from it.
//!
//! Promises: everything is read from sysfs; empty entries of the table are left out. The rule: RoCE v2 and the address asked for; with
//! no address, the first of an IPv4 address, then the first global IPv6 one; never RoCE v1, never link-local, never a fixed index.
//! Does not do: the MTU that the port uses, which only the opened device tells; what the network interface allows is told.

use std::net::Ipv6Addr;
use std::path::Path;

use serde::Serialize;

use super::devices::{attribute, names};

/// One port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Port {
    /// Its number, from 1.
    pub(crate) number: u32,
    /// Such as `ACTIVE`.
    pub(crate) state: Option<String>,
    /// Such as `LinkUp`.
    pub(crate) physical: Option<String>,
    /// `Ethernet` or `InfiniBand`.
    pub(crate) link_layer: Option<String>,
    /// Such as `100 Gb/sec (4X EDR)`.
    pub(crate) rate: Option<String>,
    /// The network interface of its first GID that has one.
    pub(crate) netdev: Option<String>,
    /// The MTU of that interface.
    pub(crate) netdev_mtu: Option<u32>,
    /// The largest RDMA MTU that fits into it with RoCE v2's headers.
    pub(crate) fitting_mtu: Option<u32>,
    /// The GIDs that are not empty.
    pub(crate) gids: Vec<Gid>,
    /// The choice without an address asked for, and why.
    pub(crate) choice: Choice,
}

/// A GID of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Gid {
    /// Its index.
    pub(crate) index: u32,
    /// The GID.
    pub(crate) gid: String,
    /// `RoCE v2`, `IB/RoCE v1` or what else the kernel says.
    #[serde(rename = "type")]
    pub(crate) kind: Option<String>,
    /// Its network interface.
    pub(crate) netdev: Option<String>,
    /// What kind of address it is.
    pub(crate) address: AddressKind,
}

/// What kind of address a GID is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AddressKind {
    /// An IPv6 address, or a subnet prefix and a GUID.
    Global,
    /// An IPv4 address in IPv6's clothes.
    Ipv4,
    /// `fe80::/10`.
    LinkLocal,
}

/// Which GID the rule takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Choice {
    /// The index; none if the rule takes none.
    pub(crate) index: Option<u32>,
    /// Why.
    pub(crate) why: String,
}

impl Port {
    /// Whether it may carry anything.
    pub(crate) fn active(&self) -> bool {
        self.state.as_deref() == Some("ACTIVE")
    }

    /// Whether it is an Ethernet port, where GIDs are chosen.
    pub(crate) fn ethernet(&self) -> bool {
        self.link_layer.as_deref() == Some("Ethernet")
    }
}

impl Gid {
    /// Whether it is of RoCE v2.
    pub(crate) fn v2(&self) -> bool {
        self.kind.as_deref() == Some("RoCE v2")
    }
}

/// Reads the ports of a device.
pub(super) fn read(device: &Path) -> Vec<Port> {
    let folder = device.join("ports");
    let names = names(&folder).unwrap_or_default();
    names
        .iter()
        .filter_map(|name| Some(read_port(&folder.join(name), name.parse().ok()?)))
        .collect()
}

fn read_port(folder: &Path, number: u32) -> Port {
    let read = |file: &str| attribute(&folder.join(file));
    let gids = read_gids(folder);
    let netdev = gids.iter().find_map(|gid| gid.netdev.clone());
    let netdev_mtu = netdev
        .as_ref()
        .and_then(|name| attribute(&Path::new("/sys/class/net").join(name).join("mtu")))
        .and_then(|text| text.parse().ok());
    let link_layer = read("link_layer");
    Port {
        number,
        state: read("state").map(word),
        physical: read("phys_state").map(word),
        rate: read("rate"),
        netdev,
        netdev_mtu,
        fitting_mtu: netdev_mtu.and_then(fitting),
        choice: choose(link_layer.as_deref(), &gids),
        gids,
        link_layer,
    }
}

/// `4: ACTIVE` is `ACTIVE`.
fn word(text: String) -> String {
    match text.split_once(':') {
        Some((_, word)) => word.trim().to_owned(),
        None => text,
    }
}

/// As the kernel's `iboe_get_mtu` reckons: the route header's 40 bytes, which IPv6's and IPv4's fit into, UDP, the base transport
/// header, the longest extended one, and the checksum.
fn fitting(netdev: u32) -> Option<u32> {
    const HEADERS: u32 = 40 + 8 + 12 + 28 + 4;
    let room = netdev.checked_sub(HEADERS)?;
    [4096, 2048, 1024, 512, 256]
        .into_iter()
        .find(|size| *size <= room)
}

fn read_gids(folder: &Path) -> Vec<Gid> {
    let mut gids = Vec::new();
    let files = std::fs::read_dir(folder.join("gids"));
    let names = files.into_iter().flatten().flatten();
    let mut indexes: Vec<u32> = names
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    indexes.sort_unstable();
    for index in indexes {
        let about = |what: &str| attribute(&folder.join(format!("{what}/{index}")));
        let Some(gid) = about("gids").and_then(|text| text.parse::<Ipv6Addr>().ok()) else {
            continue;
        };
        if gid.is_unspecified() {
            continue;
        }
        gids.push(Gid {
            index,
            // The kernel's own form, which tools print as well.
            gid: about("gids").unwrap_or_default(),
            kind: about("gid_attrs/types"),
            netdev: about("gid_attrs/ndevs"),
            address: kind_of(gid),
        });
    }
    gids
}

fn kind_of(gid: Ipv6Addr) -> AddressKind {
    if gid.to_ipv4_mapped().is_some() {
        AddressKind::Ipv4
    } else if gid.segments()[0] & 0xffc0 == 0xfe80 {
        AddressKind::LinkLocal
    } else {
        AddressKind::Global
    }
}

fn choose(link_layer: Option<&str>, gids: &[Gid]) -> Choice {
    let choice = |gid: Option<&Gid>, why: String| Choice {
        index: gid.map(|gid| gid.index),
        why,
    };
    if link_layer != Some("Ethernet") {
        let first = gids.first();
        return choice(
            first,
            "the link is not Ethernet: the first GID is the port's own".to_owned(),
        );
    }
    let v2: Vec<&Gid> = gids.iter().filter(|gid| gid.v2()).collect();
    let of = |kind| v2.iter().copied().find(|gid: &&Gid| gid.address == kind);
    let why = |what: &str| {
        let others = gids.len() - v2.len();
        let local = v2
            .iter()
            .filter(|gid| gid.address == AddressKind::LinkLocal)
            .count();
        format!("{what}; passed over: {others} not of RoCE v2, {local} link-local")
    };
    if let Some(gid) = of(AddressKind::Ipv4) {
        choice(Some(gid), why("the first RoCE v2 GID of an IPv4 address"))
    } else if let Some(gid) = of(AddressKind::Global) {
        choice(
            Some(gid),
            why("the first RoCE v2 GID of a global IPv6 address"),
        )
    } else if v2.is_empty() {
        choice(None, "no GID is of RoCE v2".to_owned())
    } else {
        choice(None, "the RoCE v2 GIDs are link-local".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gid(index: u32, gid: &str, kind: &str) -> Gid {
        Gid {
            index,
            gid: gid.to_owned(),
            kind: Some(kind.to_owned()),
            netdev: None,
            address: kind_of(gid.parse().unwrap()),
        }
    }

    #[test]
    fn the_rule_passes_over_v1_and_link_local_and_prefers_ipv4() {
        let table = [
            gid(0, "fe80::1", "IB/RoCE v1"),
            gid(1, "fe80::1", "RoCE v2"),
            gid(2, "::ffff:10.0.0.1", "IB/RoCE v1"),
            gid(3, "2001:db8::1", "RoCE v2"),
            gid(5, "::ffff:10.0.0.1", "RoCE v2"),
        ];
        let chosen = |gids: &[Gid]| choose(Some("Ethernet"), gids).index;
        assert_eq!(chosen(&table), Some(5));
        assert_eq!(chosen(&table[..4]), Some(3));
        let none = choose(Some("Ethernet"), &table[..2]);
        assert_eq!(
            (none.index, none.why.as_str()),
            (None, "the RoCE v2 GIDs are link-local")
        );
        let none = choose(Some("Ethernet"), &table[..1]);
        assert_eq!(none.why, "no GID is of RoCE v2");
        assert_eq!(choose(Some("InfiniBand"), &table).index, Some(0));
    }

    #[test]
    fn the_mtu_that_fits_leaves_room_for_the_headers() {
        for (netdev, expected) in [
            (1500, Some(1024)),
            (4200, Some(4096)),
            (9000, Some(4096)),
            (300, None),
            (50, None),
        ] {
            assert_eq!(fitting(netdev), expected, "{netdev}");
        }
    }
}
