//! Which packets a configuration names: destinations with their ports and sources, and a VLAN.
//!
//! Promises: pure; the same answer for the filters that are made of it and for each packet that arrives. Does not do: reading frames.

use std::net::{IpAddr, SocketAddr};

use lockgate::receive::frame::{Addresses, Frame, VlanTag};
use lockgate::receive::{ConfigFaults, ReceiverConfig, TimestampMode};

/// One destination. Ordered by address, then port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    /// A group or an address of this host.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// Only from these, in order; from any if empty.
    pub(crate) sources: Vec<IpAddr>,
}

impl Target {
    /// Whether the targets of two addresses have the same ports and sources, so that a filter decides about both alike.
    pub(crate) fn decide_alike(one: &[Self], other: &[Self]) -> bool {
        one.len() == other.len()
            && one
                .iter()
                .zip(other)
                .all(|(a, b)| a.port == b.port && a.sources == b.sources)
    }
}

/// All destinations of a receiver, in order and each once, and the VLAN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    targets: Vec<Target>,
    vlan: Option<u16>,
}

impl Selection {
    /// What a configuration that has passed validation names.
    pub(crate) fn of(config: &ReceiverConfig) -> Self {
        let groups = config.groups.iter().map(|group| {
            let mut sources = group.sources.clone();
            sources.sort_unstable();
            Target {
                address: group.address,
                port: group.port,
                sources,
            }
        });
        let unicast = config.unicast.iter().map(|one: &SocketAddr| Target {
            address: one.ip(),
            port: one.port(),
            sources: Vec::new(),
        });
        let mut targets: Vec<Target> = groups.chain(unicast).collect();
        targets.sort_unstable();
        Self {
            targets,
            vlan: config.vlan,
        }
    }

    /// The only VLAN, if one is asked for.
    pub(crate) fn vlan(&self) -> Option<u16> {
        self.vlan
    }

    /// The destinations by address, each address once with all its ports.
    pub(crate) fn by_address(&self) -> impl Iterator<Item = &[Target]> {
        self.targets
            .chunk_by(|one, other| one.address == other.address)
    }

    /// Whether a packet is one that the configuration names. `outer` is its outer tag, wherever that stood.
    #[inline]
    pub(crate) fn takes(&self, frame: &Frame, outer: Option<VlanTag>) -> bool {
        let target = match &self.targets[..] {
            [only] => {
                if !(goes_to(frame.addresses, only.address) && frame.destination_port == only.port)
                {
                    return false;
                }
                only
            }
            all => match find(all, frame) {
                Some(target) => target,
                None => return false,
            },
        };
        if let Some(vlan) = self.vlan
            && outer.map(VlanTag::id) != Some(vlan)
        {
            return false;
        }
        target.sources.is_empty()
            || target
                .sources
                .binary_search(&frame.addresses.source())
                .is_ok()
    }
}

#[inline]
fn goes_to(addresses: Addresses, wanted: IpAddr) -> bool {
    match (addresses, wanted) {
        (Addresses::V4 { destination, .. }, IpAddr::V4(wanted)) => destination == wanted,
        (Addresses::V6 { destination, .. }, IpAddr::V6(wanted)) => destination == wanted,
        _ => false,
    }
}

#[inline(never)]
fn find<'a>(targets: &'a [Target], frame: &Frame) -> Option<&'a Target> {
    let wanted = (frame.addresses.destination(), frame.destination_port);
    let at = targets
        .binary_search_by(|one| (one.address, one.port).cmp(&wanted))
        .ok()?;
    targets.get(at)
}

/// Adds what is wrong with the fields that mean something else, or nothing, to a receiver of whole frames.
pub(crate) fn check(config: &ReceiverConfig, faults: &mut ConfigFaults) {
    if let Some(device) = &config.device {
        faults.push(
            "device",
            format!("{device:?}"),
            "means nothing to packet sockets",
            "no device; the interface goes into interface",
        );
    }
    if let Some(unicast) = config.unicast.filter(|one| one.ip().is_unspecified()) {
        faults.push(
            "unicast",
            unicast,
            "is a wildcard, which no frame is addressed to",
            "one address of the interface",
        );
    }
    if config.timestamps == TimestampMode::Hardware && config.interface.is_none() {
        faults.push(
            "timestamps",
            "\"hardware\"",
            "asks for an interface's clock without an interface",
            "hardware together with interface",
        );
    }
}

#[cfg(test)]
mod tests {
    use lockgate::receive::frame::{Builder, Policy, VlanTags, parse};
    use lockgate::receive::mac::MacAddress;

    use super::*;

    fn takes(selection: &Selection, from: &str, to: &str, tag: Option<u16>) -> bool {
        let vlan = tag.map_or(VlanTags::NONE, |id| VlanTags::single(VlanTag::customer(id)));
        let mut bytes = [0; 128];
        let len = Builder::udp(from.parse().unwrap(), to.parse().unwrap())
            .unwrap()
            .ethernet(MacAddress::ZERO, MacAddress::BROADCAST, vlan)
            .write(b"x", &mut bytes)
            .unwrap();
        let frame = parse(&bytes[..len], &Policy::default()).unwrap();
        selection.takes(&frame, frame.vlan.outer())
    }

    #[test]
    fn only_what_is_named_is_taken() {
        let config = ReceiverConfig::multicast(
            "lo",
            [
                "239.1.1.1:5000".parse().unwrap(),
                "239.1.1.1:5001".parse().unwrap(),
                "[ff15::1]:5000".parse().unwrap(),
                lockgate::receive::Group::new("239.1.1.2".parse().unwrap(), 5000)
                    .from_sources(["10.0.0.2".parse().unwrap(), "10.0.0.1".parse().unwrap()]),
            ],
        );
        let all = Selection::of(&config);
        for (from, to, taken) in [
            ("10.0.0.1:1", "239.1.1.1:5000", true),
            ("10.0.0.1:1", "239.1.1.1:5001", true),
            ("10.0.0.1:1", "239.1.1.1:5002", false),
            ("10.0.0.1:1", "239.1.1.2:5000", true),
            ("10.0.0.2:1", "239.1.1.2:5000", true),
            ("10.0.0.3:1", "239.1.1.2:5000", false),
            ("[fe80::1]:1", "[ff15::1]:5000", true),
            ("[fe80::1]:1", "[ff15::2]:5000", false),
        ] {
            assert_eq!(takes(&all, from, to, None), taken, "{from} to {to}");
            assert_eq!(takes(&all, from, to, Some(7)), taken, "tagged {to}");
        }
        let vlan = ReceiverConfig {
            vlan: Some(7),
            ..config
        };
        let tagged = Selection::of(&vlan);
        for (tag, taken) in [(None, false), (Some(7), true), (Some(8), false)] {
            assert_eq!(
                takes(&tagged, "10.0.0.1:1", "239.1.1.1:5000", tag),
                taken,
                "{tag:?}"
            );
        }
    }

    #[test]
    fn addresses_come_once_with_all_their_ports() {
        let groups = ["239.1.1.2:3", "239.1.1.1:2", "239.1.1.2:1"].map(|one| one.parse().unwrap());
        let selection = Selection::of(&ReceiverConfig::multicast("lo", groups));
        let ports: Vec<Vec<u16>> = selection
            .by_address()
            .map(|targets| targets.iter().map(|one| one.port).collect())
            .collect();
        assert_eq!(ports, [vec![2], vec![1, 3]]);
    }
}
