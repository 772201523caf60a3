//! Ethernet addresses, and which of them the frames for an IP address carry.
//!
//! Promises: the multicast mappings of RFC 1112 (IPv4) and RFC 2464 (IPv6) exactly, the choice of the destination address
//! that a steering rule must match, and an answer to the question which groups a steering rule cannot tell apart.
//! Does not do: reading an interface's own address, or neighbour discovery; the provider knows its interface.
//!
//! ```
//! use lockgate::receive::mac::{self, MacAddress};
//!
//! let own: MacAddress = "02:00:00:00:00:07".parse()?;
//! assert_eq!(mac::destination("239.1.2.3".parse()?, own)?.to_string(), "01:00:5e:01:02:03");
//! assert_eq!(mac::destination("ff02::1:3".parse()?, own)?.to_string(), "33:33:00:01:00:03");
//! assert_eq!(mac::destination("192.0.2.9".parse()?, own)?, own);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A 48-bit Ethernet address, first octet on the wire first.
///
/// It prints as `01:00:5e:01:02:03` and is a string of that form in configurations. Reading also takes upper case, and
/// `-` in place of every `:`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MacAddress([u8; 6]);

impl MacAddress {
    /// `ff:ff:ff:ff:ff:ff`: every station of the link.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// `00:00:00:00:00:00`: what Linux's loopback device has.
    pub const ZERO: Self = Self([0; 6]);

    /// Takes six octets in the order of the wire.
    #[must_use]
    pub const fn new(octets: [u8; 6]) -> Self {
        Self(octets)
    }

    /// The six octets in the order of the wire.
    #[must_use]
    pub const fn octets(self) -> [u8; 6] {
        self.0
    }

    /// Whether more than one station may listen to it: the lowest bit of the first octet (IEEE 802.3, group bit). The
    /// broadcast address is one of these.
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether it is [`MacAddress::BROADCAST`].
    #[must_use]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether it was given out locally and not by a maker: the second lowest bit of the first octet.
    #[must_use]
    pub const fn is_local(self) -> bool {
        self.0[0] & 2 == 2
    }
}

/// The Ethernet address that frames for an IPv4 multicast group carry: `01:00:5e` and the group's lower 23 bits
/// (RFC 1112, section 6.4). `None` when `group` is not multicast.
///
/// Thirty-two groups share each address: see [`shares_mac`].
#[must_use]
pub const fn multicast_v4(group: Ipv4Addr) -> Option<MacAddress> {
    if !group.is_multicast() {
        return None;
    }
    let [_, b, c, d] = group.octets();
    Some(MacAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d]))
}

/// The Ethernet address that frames for an IPv6 multicast group carry: `33:33` and the group's last four octets
/// (RFC 2464, section 7). `None` when `group` is not multicast.
///
/// Groups that differ only before their last 32 bits share an address: see [`shares_mac`].
#[must_use]
pub const fn multicast_v6(group: Ipv6Addr) -> Option<MacAddress> {
    if !group.is_multicast() {
        return None;
    }
    let [.., a, b, c, d] = group.octets();
    Some(MacAddress([0x33, 0x33, a, b, c, d]))
}

/// [`multicast_v4`] or [`multicast_v6`], as the address is.
#[must_use]
pub const fn multicast(group: IpAddr) -> Option<MacAddress> {
    match group {
        IpAddr::V4(group) => multicast_v4(group),
        IpAddr::V6(group) => multicast_v6(group),
    }
}

/// The destination that a steering rule for `address` must match: the mapped address of a multicast group, broadcast for
/// `255.255.255.255`, and for a unicast address the interface's own address `interface`.
///
/// An interface address of zero is taken: Linux's loopback device has it.
///
/// # Errors
/// [`SteeringError::Unspecified`] for `0.0.0.0` and `::`, which no frame is addressed to, and
/// [`SteeringError::GroupInterface`] when `interface` is a multicast address, which no interface has.
pub fn destination(address: IpAddr, interface: MacAddress) -> Result<MacAddress, SteeringError> {
    if address.is_unspecified() {
        return Err(SteeringError::Unspecified { address });
    }
    if let Some(mapped) = multicast(address) {
        return Ok(mapped);
    }
    if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Ok(MacAddress::BROADCAST);
    }
    if interface.is_multicast() {
        return Err(SteeringError::GroupInterface { interface });
    }
    Ok(interface)
}

/// The pairs of different groups that share an Ethernet address, as places in `groups`, the lower one first.
///
/// A steering rule by Ethernet address alone lets the packets of both in, so whoever has such a pair must look at the IP
/// address of each packet. Unicast addresses and a group listed twice make no pair. Takes time quadratic in the number of
/// groups and allocates nothing.
///
/// ```
/// use lockgate::receive::mac::shares_mac;
///
/// let groups = ["224.1.1.1".parse()?, "239.9.9.9".parse()?, "239.129.1.1".parse()?];
/// assert_eq!(shares_mac(&groups).collect::<Vec<_>>(), [(0, 2)]);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn shares_mac(groups: &[IpAddr]) -> impl Iterator<Item = (usize, usize)> + '_ {
    groups.iter().enumerate().flat_map(move |(first, a)| {
        groups
            .iter()
            .enumerate()
            .skip(first + 1)
            .filter(move |(_, b)| {
                a != *b && multicast(*a).is_some_and(|mac| multicast(**b) == Some(mac))
            })
            .map(move |(second, _)| (first, second))
    })
}

/// Why no destination can be steered to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// The interface's own address is a multicast address.
    #[error(
        "interface address {interface} is multicast; an interface's own address must be unicast"
    )]
    GroupInterface {
        /// The address that was given as the interface's own.
        interface: MacAddress,
    },
    /// The address to receive on is the unspecified one.
    #[error(
        "address {address} is unspecified; no frame is addressed to it: name a group or a unicast address"
    )]
    Unspecified {
        /// The address that was asked for.
        address: IpAddr,
    },
}

/// Why a text is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{value:?} is not an Ethernet address; six octets of two hexadecimal digits are, such as 01:00:5e:01:02:03"
)]
pub struct MacParseError {
    /// The text as it was given.
    pub value: String,
}

impl FromStr for MacAddress {
    type Err = MacParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_octets(text).map(Self).ok_or_else(|| MacParseError {
            value: text.to_owned(),
        })
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MacAddress({self})")
    }
}

impl From<[u8; 6]> for MacAddress {
    fn from(octets: [u8; 6]) -> Self {
        Self(octets)
    }
}

impl serde::Serialize for MacAddress {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for MacAddress {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl serde::de::Visitor<'_> for Text {
            type Value = MacAddress;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an Ethernet address such as 01:00:5e:01:02:03")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MacAddress, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// Exactly `hh:hh:hh:hh:hh:hh`, or the same with `-` throughout.
fn parse_octets(text: &str) -> Option<[u8; 6]> {
    let text: &[u8; 17] = text.as_bytes().try_into().ok()?;
    let separator = text[2];
    if !matches!(separator, b':' | b'-') {
        return None;
    }
    let mut octets = [0; 6];
    for (octet, part) in octets.iter_mut().zip(text.chunks(3)) {
        let (high, low) = match part {
            [high, low] => (high, low),
            [high, low, end] if *end == separator => (high, low),
            _ => return None,
        };
        *octet = hex(*high)? << 4 | hex(*low)?;
    }
    Some(octets)
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn mac(text: &str) -> MacAddress {
        text.parse().unwrap()
    }

    #[test]
    fn maps_groups_as_the_standards_do() {
        for (group, expected) in [
            ("224.0.0.0", "01:00:5e:00:00:00"),
            ("224.0.0.251", "01:00:5e:00:00:fb"),
            // The bit above the lower 23 is dropped.
            ("224.128.0.1", "01:00:5e:00:00:01"),
            ("239.255.255.255", "01:00:5e:7f:ff:ff"),
            ("232.1.2.3", "01:00:5e:01:02:03"),
            ("ff02::1", "33:33:00:00:00:01"),
            ("ff02::1:ff12:3456", "33:33:ff:12:34:56"),
            ("ff3e:40:2001:db8:cafe:1:11ff:11ee", "33:33:11:ff:11:ee"),
        ] {
            assert_eq!(multicast(ip(group)), Some(mac(expected)), "{group}");
            assert!(mac(expected).is_multicast());
        }
        for unicast in [
            "0.0.0.0",
            "223.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "::",
            "fe80::1",
            "::ffff:224.0.0.1",
        ] {
            assert_eq!(multicast(ip(unicast)), None, "{unicast}");
        }
    }

    #[test]
    fn chooses_the_destination_of_a_steering_rule() {
        let own = mac("02:00:00:00:00:07");
        for (address, expected) in [
            ("10.0.0.1", "02:00:00:00:00:07"),
            ("fe80::1", "02:00:00:00:00:07"),
            ("239.1.2.3", "01:00:5e:01:02:03"),
            ("ff02::fb", "33:33:00:00:00:fb"),
            ("255.255.255.255", "ff:ff:ff:ff:ff:ff"),
        ] {
            assert_eq!(
                destination(ip(address), own),
                Ok(mac(expected)),
                "{address}"
            );
        }
        assert_eq!(
            destination(ip("127.0.0.1"), MacAddress::ZERO),
            Ok(MacAddress::ZERO)
        );
        for address in ["0.0.0.0", "::"] {
            let error = destination(ip(address), own).unwrap_err();
            assert_eq!(
                error,
                SteeringError::Unspecified {
                    address: ip(address)
                }
            );
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("address {address} is unspecified"))
            );
        }
        let group = mac("01:00:5e:00:00:01");
        let error = destination(ip("10.0.0.1"), group).unwrap_err();
        assert_eq!(error, SteeringError::GroupInterface { interface: group });
        assert!(error.to_string().contains("01:00:5e:00:00:01 is multicast"));
    }

    #[test]
    fn finds_every_pair_that_shares_an_address() {
        let groups: Vec<IpAddr> = [
            "224.0.0.1",
            "ff02::1",
            "239.128.0.1",
            "10.0.0.1",
            "224.0.0.1",
            "ff05::1",
            "224.0.0.2",
            "225.0.0.1",
        ]
        .map(ip)
        .to_vec();
        let pairs: Vec<_> = shares_mac(&groups).collect();
        // Place 4 repeats place 0: no pair with it, but one with the others of the same Ethernet address.
        assert_eq!(pairs, [(0, 2), (0, 7), (1, 5), (2, 4), (2, 7), (4, 7)]);
        assert_eq!(shares_mac(&[]).count(), 0);
    }

    #[test]
    fn thirty_two_groups_share_each_ipv4_mapping() {
        let groups: Vec<IpAddr> = (0u8..16)
            .flat_map(|high| {
                [1u8, 129].map(|second| Ipv4Addr::new(224 + high, second, 2, 3).into())
            })
            .collect();
        assert_eq!(shares_mac(&groups).count(), 32 * 31 / 2);
    }

    #[test]
    fn text_round_trips_and_bad_text_is_refused_with_the_value() {
        for text in [
            "01:00:5e:01:02:03",
            "ff:ff:ff:ff:ff:ff",
            "00:00:00:00:00:00",
        ] {
            assert_eq!(mac(text).to_string(), text);
            let json = serde_json::to_string(&mac(text)).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(
                serde_json::from_str::<MacAddress>(&json).unwrap(),
                mac(text)
            );
        }
        assert_eq!(
            mac("0A-0b-0C-0d-0E-0f"),
            MacAddress::new([10, 11, 12, 13, 14, 15])
        );
        assert_eq!(
            format!("{:?}", mac("0a:0b:0c:0d:0e:0f")),
            "MacAddress(0a:0b:0c:0d:0e:0f)"
        );
        for text in [
            "",
            "01:00:5e:01:02",
            "01:00:5e:01:02:03:04",
            "01:00:5e:01:02:0",
            "01:00:5e:01:02:0g",
            "01:00-5e:01:02:03",
            "01.00.5e.01.02.03",
            "01005e010203",
            " 1:00:5e:01:02:03",
            "+1:00:5e:01:02:03",
            "01:00:5e:01:02:é3",
        ] {
            let error = text.parse::<MacAddress>().unwrap_err();
            assert_eq!(error.value, text);
            assert!(error.to_string().contains("six octets"), "{error}");
            assert!(serde_json::from_str::<MacAddress>(&format!("{text:?}")).is_err());
        }
        assert!(serde_json::from_str::<MacAddress>("7").is_err());
    }

    #[test]
    fn bits_of_the_first_octet() {
        assert!(MacAddress::BROADCAST.is_broadcast() && MacAddress::BROADCAST.is_multicast());
        assert!(mac("02:00:00:00:00:01").is_local() && !mac("02:00:00:00:00:01").is_multicast());
        assert!(!mac("00:1b:21:00:00:01").is_local());
        assert_eq!(
            MacAddress::from([1, 2, 3, 4, 5, 6]).octets(),
            [1, 2, 3, 4, 5, 6]
        );
    }
}
