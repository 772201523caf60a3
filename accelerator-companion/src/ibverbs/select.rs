//! Which device, which port, which GID, which path MTU: rules over data that was read before.
//!
//! Promises: a rule gives exactly one answer or an error that lists the candidates with the reason for each; nothing is taken
//! because it is the first. Does not do: reading a device; `owners` does, and hands the data in.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use lockgate::{Error, ErrorKind};
use lockgate_verbs_shim::{GidEntry, GidType};

/// How a device is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// By its node GUID, as `ibv_devinfo` prints it: `5054:00ff:feaa:0001`.
    Guid([u8; 8]),
    /// By its own name: `mlx5_0`.
    Name(String),
    /// By the network interface that one of its ports runs over: `eth2`.
    Netdev(String),
}

impl Selector {
    /// Reads a GUID of four groups of four hexadecimal digits.
    #[must_use]
    pub fn guid(text: &str) -> Option<Self> {
        let mut guid = [0; 8];
        let mut groups = text.split(':');
        for two in guid.chunks_exact_mut(2) {
            let group = groups.next()?;
            if group.len() != 4 || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return None;
            }
            two.copy_from_slice(&u16::from_str_radix(group, 16).ok()?.to_be_bytes());
        }
        groups.next().is_none().then_some(Self::Guid(guid))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Guid(guid) => write!(f, "with GUID {}", guid_text(guid)),
            Self::Name(name) => write!(f, "{name}"),
            Self::Netdev(netdev) => write!(f, "of interface {netdev}"),
        }
    }
}

fn guid_text(guid: &[u8; 8]) -> String {
    let groups: Vec<_> = guid
        .chunks_exact(2)
        .map(|two| format!("{:02x}{:02x}", two[0], two[1]))
        .collect();
    groups.join(":")
}

/// What is known of a device before it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) name: String,
    pub(crate) guid: [u8; 8],
    /// Ports with the interface that each runs over.
    pub(crate) netdevs: Vec<(u8, String)>,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (GUID {}", self.name, guid_text(&self.guid))?;
        for (port, netdev) in &self.netdevs {
            write!(f, ", port {port} over {netdev}")?;
        }
        f.write_str(")")
    }
}

/// The one candidate that is meant, and the port where the interface tells it.
pub(crate) fn choose_device(
    selector: &Selector,
    candidates: &[Candidate],
) -> Result<(usize, Option<u8>), Error> {
    const STEP: &str = "select device";
    let found: Vec<(usize, Option<u8>)> = candidates
        .iter()
        .enumerate()
        .flat_map(|(at, one)| -> Vec<(usize, Option<u8>)> {
            match selector {
                Selector::Guid(guid) if *guid == one.guid => vec![(at, None)],
                Selector::Name(name) if *name == one.name => vec![(at, None)],
                Selector::Netdev(netdev) => one
                    .netdevs
                    .iter()
                    .filter(|(_, over)| over == netdev)
                    .map(|(port, _)| (at, Some(*port)))
                    .collect(),
                Selector::Guid(_) | Selector::Name(_) => Vec::new(),
            }
        })
        .collect();
    let list = || {
        let texts: Vec<_> = candidates.iter().map(ToString::to_string).collect();
        format!("there are: {}", texts.join("; "))
    };
    match found[..] {
        [one] => Ok(one),
        [] => Err(Error::new(ErrorKind::Device, STEP)
            .with_object(selector.to_string())
            .with_detail(list())
            .with_remedy("name one of these")),
        _ => Err(Error::new(ErrorKind::Device, STEP)
            .with_object(selector.to_string())
            .with_detail(format!("{} match; {}", found.len(), list()))
            .with_remedy("name the device itself")),
    }
}

/// The one port that is meant.
pub(crate) fn choose_port(asked: Option<u8>, told: Option<u8>, count: u8) -> Result<u8, Error> {
    let refuse = |detail: String| {
        Err(Error::new(ErrorKind::Device, "select port")
            .with_detail(detail)
            .with_remedy(format!("name a port, 1 to {count}")))
    };
    match (asked, told) {
        (Some(asked), Some(told)) if asked != told => refuse(format!(
            "port {asked} was asked for, and the interface belongs to port {told}"
        )),
        (Some(port), _) | (None, Some(port)) if (1..=count).contains(&port) => Ok(port),
        (Some(port), _) | (None, Some(port)) => {
            refuse(format!("there is no port {port}; the device has {count}"))
        }
        (None, None) if count == 1 => Ok(1),
        (None, None) => refuse(format!("the device has {count} ports, and none was named")),
    }
}

/// Which entry of a port's GID table is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidRule {
    /// The address that the entry must stand for.
    pub address: IpAddr,
    /// The entry itself. It must be of the address and of RoCE v2 all the same.
    pub index: Option<u32>,
}

/// The entry that a rule chose, and why the others were passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GidChoice {
    /// The entry.
    pub entry: GidEntry,
    /// One line for each entry of the table.
    pub explanation: Vec<String>,
}

/// The sixteen bytes by which RoCE knows an address.
#[must_use]
pub fn gid_of(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Chooses the entry of RoCE v2 that stands for the address asked for.
///
/// # Errors
/// No entry, or several, with the whole table and the reason for each entry.
pub fn choose_gid(entries: &[GidEntry], rule: GidRule) -> Result<GidChoice, Error> {
    let wanted = gid_of(rule.address);
    let mut chosen = Vec::new();
    let mut explanation = Vec::new();
    for entry in entries {
        let reason = if entry.kind != GidType::RoceV2 {
            "not RoCE v2"
        } else if entry.gid != wanted {
            "another address"
        } else if rule.index.is_some_and(|index| index != entry.index) {
            "not the index asked for"
        } else {
            chosen.push(*entry);
            "matches"
        };
        let address = Ipv6Addr::from(entry.gid);
        let kind = entry.kind;
        explanation.push(format!(
            "index {}: {kind:?} {address}: {reason}",
            entry.index
        ));
    }
    let refuse = |detail: String, remedy: &'static str| {
        Err(Error::new(ErrorKind::Device, "select GID")
            .with_object(format!("RoCE v2 {}", rule.address))
            .with_detail(format!("{detail}: {}", explanation.join("; ")))
            .with_remedy(remedy))
    };
    match chosen[..] {
        [entry] => Ok(GidChoice { entry, explanation }),
        [] => refuse(
            format!("none of {} entries", entries.len()),
            "ask for an address of the interface beneath the device; see `rdma link` and `ip address`",
        ),
        _ => refuse(
            format!("{} entries match", chosen.len()),
            "name the index of one of them",
        ),
    }
}

/// A path MTU of RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMtu {
    /// 256 bytes.
    Bytes256,
    /// 512 bytes.
    Bytes512,
    /// 1,024 bytes.
    Bytes1024,
    /// 2,048 bytes.
    Bytes2048,
    /// 4,096 bytes.
    Bytes4096,
}

impl PathMtu {
    const ALL: [Self; 5] = [
        Self::Bytes256,
        Self::Bytes512,
        Self::Bytes1024,
        Self::Bytes2048,
        Self::Bytes4096,
    ];

    /// From the library's number, 1 to 5.
    #[must_use]
    pub fn from_raw(raw: u32) -> Option<Self> {
        let at = usize::try_from(raw).ok()?.checked_sub(1)?;
        Self::ALL.get(at).copied()
    }

    /// The library's number.
    #[must_use]
    pub fn raw(self) -> u32 {
        self as u32 + 1
    }

    /// In bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        128 << self.raw()
    }

    /// What both ends use: the smaller one. Two ends that differ lose every larger message without a word.
    #[must_use]
    pub fn agree(self, peer: Self) -> Self {
        self.min(peer)
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates() -> Vec<Candidate> {
        let one = |name: &str, last, netdevs: &[(u8, &str)]| Candidate {
            name: name.to_owned(),
            guid: [0x50, 0x54, 0, 0xff, 0xfe, 0xaa, 0, last],
            netdevs: netdevs
                .iter()
                .map(|(port, over)| (*port, (*over).to_owned()))
                .collect(),
        };
        vec![
            one("a0", 1, &[(1, "eth0"), (2, "eth1")]),
            one("a1", 2, &[(1, "eth2")]),
            one("a2", 2, &[(1, "eth2")]),
        ]
    }

    #[test]
    fn a_device_is_found_by_each_of_its_names() {
        let all = candidates();
        let guid = Selector::guid("5054:00ff:feaa:0001").unwrap();
        for (selector, expected) in [
            (Selector::Name("a1".to_owned()), (1, None)),
            (guid, (0, None)),
            (Selector::Netdev("eth1".to_owned()), (0, Some(2))),
        ] {
            assert_eq!(choose_device(&selector, &all).unwrap(), expected);
        }
    }

    #[test]
    fn an_absent_or_unclear_device_lists_those_that_are_there() {
        let all = candidates();
        for (selector, words) in [
            (Selector::Name("a9".to_owned()), "a9: no such device"),
            (Selector::Netdev("eth2".to_owned()), "2 match"),
            (Selector::guid("5054:00ff:feaa:0002").unwrap(), "2 match"),
        ] {
            let text = choose_device(&selector, &all).unwrap_err().to_string();
            assert!(text.contains(words), "{text}");
            assert!(text.contains("port 2 over eth1"), "{text}");
        }
    }

    #[test]
    fn only_a_whole_guid_is_read() {
        for bad in [
            "",
            "5054:00ff:feaa",
            "5054:00ff:feaa:0001:2",
            "5054:00ff:feaa:+001",
        ] {
            assert_eq!(Selector::guid(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_port_is_never_guessed() {
        assert_eq!(choose_port(None, None, 1).unwrap(), 1);
        assert_eq!(choose_port(Some(2), None, 2).unwrap(), 2);
        assert_eq!(choose_port(None, Some(2), 2).unwrap(), 2);
        for (asked, told, count) in [
            (None, None, 2),
            (Some(3), None, 2),
            (Some(0), None, 2),
            (Some(1), Some(2), 2),
        ] {
            let error = choose_port(asked, told, count).unwrap_err();
            assert!(error.remedy().unwrap().contains("1 to 2"), "{error}");
        }
    }

    fn entry(index: u32, kind: GidType, address: &str) -> GidEntry {
        GidEntry {
            index,
            gid: gid_of(address.parse().unwrap()),
            kind,
            netdev: Some(3),
        }
    }

    #[test]
    fn the_gid_is_of_roce_v2_and_of_the_address() {
        let table = [
            entry(0, GidType::RoceV1, "fe80::1"),
            entry(1, GidType::RoceV2, "fe80::1"),
            entry(2, GidType::RoceV1, "10.77.0.1"),
            entry(3, GidType::RoceV2, "10.77.0.1"),
        ];
        let rule = |address: &str, index| GidRule {
            address: address.parse().unwrap(),
            index,
        };
        let choice = choose_gid(&table, rule("10.77.0.1", None)).unwrap();
        assert_eq!(choice.entry.index, 3);
        assert_eq!(
            choice.explanation[2],
            "index 2: RoceV1 ::ffff:10.77.0.1: not RoCE v2"
        );
        assert_eq!(
            choose_gid(&table, rule("fe80::1", None))
                .unwrap()
                .entry
                .index,
            1
        );
        // An index that was named is checked like any other.
        let error = choose_gid(&table, rule("10.77.0.1", Some(2))).unwrap_err();
        assert!(
            error.to_string().contains("not the index asked for"),
            "{error}"
        );
        let error = choose_gid(&table, rule("10.77.0.9", None)).unwrap_err();
        assert!(error.to_string().contains("none of 4 entries"), "{error}");
        let twice = [table[3], entry(4, GidType::RoceV2, "10.77.0.1")];
        let error = choose_gid(&twice, rule("10.77.0.1", None)).unwrap_err();
        assert!(error.to_string().contains("2 entries match"), "{error}");
        assert_eq!(
            choose_gid(&twice, rule("10.77.0.1", Some(4)))
                .unwrap()
                .entry
                .index,
            4
        );
    }

    #[test]
    fn the_smaller_path_mtu_is_agreed() {
        let bytes: Vec<u32> = (1..=5)
            .map(|raw| PathMtu::from_raw(raw).unwrap().bytes())
            .collect();
        assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
        assert_eq!((PathMtu::from_raw(0), PathMtu::from_raw(6)), (None, None));
        assert_eq!(
            PathMtu::Bytes4096.agree(PathMtu::Bytes1024),
            PathMtu::Bytes1024
        );
    }
}
