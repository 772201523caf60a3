//! The multicast groups that the kernel has joined, by interface: `/proc/net/igmp` and `/proc/net/igmp6`.
//!
//! Does not do: saying which process joined; the kernel doesn't tell.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Serialize;

use super::reading::{self, Reading};

/// What is joined on one interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Memberships {
    /// The version of IGMP that is spoken, as the kernel names it: `V2`, `V3`. None if IPv4 is not configured.
    pub(crate) igmp: Option<String>,
    /// The groups.
    pub(crate) groups: Vec<IpAddr>,
}

/// What is joined on every interface.
pub(super) struct AllMemberships {
    igmp: Reading<Vec<(String, Memberships)>>,
    igmp6: Reading<Vec<(String, Ipv6Addr)>>,
}

impl AllMemberships {
    /// What is joined on this one.
    pub(super) fn of(&self, interface: &str) -> Reading<Memberships> {
        let igmp = match &self.igmp {
            Reading::Value(igmp) => igmp,
            Reading::Unreadable(reason) => return Reading::Unreadable(reason.clone()),
        };
        let mut found = igmp
            .iter()
            .find(|(name, _)| name == interface)
            .map(|(_, memberships)| memberships.clone())
            .unwrap_or_default();
        // A kernel without IPv6 has no igmp6: nothing can be joined there, and the IPv4 groups stand.
        if let Reading::Value(igmp6) = &self.igmp6 {
            let groups = igmp6.iter().filter(|(name, _)| name == interface);
            found
                .groups
                .extend(groups.map(|(_, group)| IpAddr::V6(*group)));
        }
        Reading::Value(found)
    }
}

/// Reads both files.
pub(super) fn read() -> AllMemberships {
    AllMemberships {
        igmp: reading::file("/proc/net/igmp").and_then(|text| parse_igmp(&text)),
        igmp6: reading::file("/proc/net/igmp6").and_then(|text| parse_igmp6(&text)),
    }
}

/// ```text
/// Idx  Device    : Count Querier  Group    Users Timer  Reporter
/// 1    lo        :     1      V3
///                 010000E0     1 0:00000000        0
/// ```
fn parse_igmp(text: &str) -> Reading<Vec<(String, Memberships)>> {
    let mut all: Vec<(String, Memberships)> = Vec::new();
    for line in text.lines().skip(1) {
        let mut words = line.split_whitespace();
        let unreadable =
            || Reading::Unreadable(format!("/proc/net/igmp: {line:?} is not understood"));
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            let Some((head, tail)) = line.split_once(':') else {
                return unreadable();
            };
            let Some(name) = head.split_whitespace().nth(1) else {
                return unreadable();
            };
            let igmp = tail.split_whitespace().nth(1).map(str::to_owned);
            let groups = Vec::new();
            all.push((name.to_owned(), Memberships { igmp, groups }));
        } else if let Some(word) = words.next() {
            // The kernel prints the four bytes of the address as one number of the host's order.
            let Ok(number) = u32::from_str_radix(word, 16) else {
                return unreadable();
            };
            let Some((_, last)) = all.last_mut() else {
                return unreadable();
            };
            last.groups
                .push(Ipv4Addr::from(number.to_ne_bytes()).into());
        }
    }
    Reading::Value(all)
}

/// `1    lo              ff020000000000000000000000000001     1 0000000C 0`
fn parse_igmp6(text: &str) -> Reading<Vec<(String, Ipv6Addr)>> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace().skip(1);
        let parsed = words
            .next()
            .zip(words.next())
            .and_then(|(name, group)| Some((name, u128::from_str_radix(group, 16).ok()?)));
        let Some((name, group)) = parsed else {
            return Reading::Unreadable(format!("/proc/net/igmp6: {line:?} is not understood"));
        };
        all.push((name.to_owned(), Ipv6Addr::from(group)));
    }
    Reading::Value(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_endian = "little")]
    const IGMP: &str = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n\
        1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n\
        14\teth0.100  :     2      V2\n\t\t\t\t070707EF     1 0:00000000\t\t0\n\t\t\t\t010000E0     1 0:00000000\t\t0\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_ipv4_file_is_read() {
        let Reading::Value(all) = parse_igmp(IGMP) else {
            panic!("unreadable");
        };
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].0, "eth0.100");
        assert_eq!(all[1].1.igmp.as_deref(), Some("V2"));
        let group: IpAddr = "239.7.7.7".parse().unwrap();
        assert_eq!(all[1].1.groups[0], group);
    }

    #[test]
    fn the_ipv6_file_is_read() {
        let text = "1    lo              ff020000000000000000000000000001     1 0000000C 0\n";
        let expected = vec![("lo".to_owned(), "ff02::1".parse().unwrap())];
        assert_eq!(parse_igmp6(text), Reading::Value(expected));
    }

    #[test]
    fn lines_that_are_not_understood_are_named() {
        for text in ["head\n1 lo\n", "head\n\tXYZ\n", "head\n\t010000E0 1\n"] {
            assert!(
                matches!(parse_igmp(text), Reading::Unreadable(reason) if reason.contains("not understood")),
                "{text:?}"
            );
        }
        assert!(matches!(parse_igmp6("1 lo zz\n"), Reading::Unreadable(_)));
    }
}
