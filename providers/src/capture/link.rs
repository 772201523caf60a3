//! Link types: what stands in front of the IP packet.
//!
//! Numbers are those of <https://www.tcpdump.org/linktypes.html>, which pcap and pcapng share.

use std::fmt;

/// The number of a link type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkType(pub u32);

impl LinkType {
    /// BSD loopback: four octets of address family.
    pub const NULL: Self = Self(0);
    /// Ethernet II or IEEE 802.3.
    pub const ETHERNET: Self = Self(1);
    /// OpenBSD loopback: four octets of address family.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked", as `tcpdump -i any` wrote it: 16 octets.
    pub const LINUX_SLL: Self = Self(113);
    /// IPv4 or IPv6 without a link header.
    pub const RAW: Self = Self(101);
    /// IPv4 without a link header.
    pub const IPV4: Self = Self(228);
    /// IPv6 without a link header.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" version 2, as `tcpdump -i any` writes it: 20 octets.
    pub const LINUX_SLL2: Self = Self(276);

    /// How many octets stand in front of the IP packet, if that is the same for every packet; nothing for Ethernet,
    /// whose VLAN tags vary, and for types that are not known here.
    #[must_use]
    pub const fn header_len(self) -> Option<usize> {
        match self {
            Self::RAW | Self::IPV4 | Self::IPV6 => Some(0),
            Self::NULL | Self::LOOP => Some(4),
            Self::LINUX_SLL => Some(16),
            Self::LINUX_SLL2 => Some(20),
            _ => None,
        }
    }

    /// The name, where it is known here.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::NULL => "NULL",
            Self::ETHERNET => "ETHERNET",
            Self::LOOP => "LOOP",
            Self::LINUX_SLL => "LINUX_SLL",
            Self::RAW => "RAW",
            Self::IPV4 => "IPV4",
            Self::IPV6 => "IPV6",
            Self::LINUX_SLL2 => "LINUX_SLL2",
            _ => return None,
        })
    }

    /// Values 12 and 14 stand for raw IP in files that took them from a header instead of the list.
    pub(super) const fn from_file(number: u32) -> Self {
        match number {
            12 | 14 => Self::RAW,
            other => Self(other),
        }
    }
}

impl fmt::Display for LinkType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "link type {}", self.0),
        }
    }
}
