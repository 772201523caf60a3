//! Why a frame is refused, and at which place it is counted as lost.
//!
//! Promises: one reason for each refusal and one place for each reason, with the values that show it. Does not do:
//! counting; whoever calls the parser does.

use std::fmt;

use super::MAX_EXTENSIONS;

/// Why a frame holds no packet for a receiver. Each belongs to one [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reject {
    /// A sum is wrong, or missing where it must be there.
    #[error("checksum: {0}")]
    Checksum(BadSum),
    /// The packet is one of several fragments.
    #[error("fragment at octet {offset} of its packet{}", if *.more { ", more follow" } else { ", the last one" })]
    Fragment {
        /// Where in the whole packet's payload it begins, in octets; a multiple of 8.
        offset: u16,
        /// Whether more follow.
        more: bool,
    },
    /// The packet contradicts itself or its standard.
    #[error("malformed: {0}")]
    Malformed(Fault),
    /// Another protocol over Ethernet.
    #[error("not IP: EtherType {ether_type:#06x}")]
    NotIp {
        /// The EtherType behind the VLAN tags; below `0x0600` it is an IEEE 802.3 length.
        ether_type: u16,
    },
    /// Another protocol over IP.
    #[error("not UDP: IP protocol {protocol}")]
    NotUdp {
        /// The protocol, or for IPv6 the first next header that is not walked; 50 is ESP, 59 no next header.
        protocol: u8,
    },
    /// Fewer octets were captured than the packet has.
    #[error("truncated in {layer}: {captured} octets of {needed}")]
    Truncated {
        /// Where it breaks off.
        layer: Layer,
        /// How many octets the frame needs at least to hold what was being read, counted from its first.
        needed: u32,
        /// How many there are.
        captured: u32,
    },
    /// Legal, and not done here.
    #[error("unsupported: {0}")]
    Unsupported(Unsupported),
}

impl Reject {
    /// The place at which the packet is counted as lost.
    #[must_use]
    pub const fn place(&self) -> Place {
        match self {
            Self::Checksum(_) => Place::Checksum,
            Self::Fragment { .. } => Place::Fragment,
            Self::Malformed(_) => Place::Malformed,
            Self::NotIp { .. } => Place::NotIp,
            Self::NotUdp { .. } => Place::NotUdp,
            Self::Truncated { .. } => Place::Truncated,
            Self::Unsupported(_) => Place::Unsupported,
        }
    }
}

/// Where packets are lost, for counters. `place as usize` is its position in [`Place::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// See [`Reject::Checksum`].
    Checksum,
    /// See [`Reject::Fragment`].
    Fragment,
    /// See [`Reject::Malformed`].
    Malformed,
    /// See [`Reject::NotIp`].
    NotIp,
    /// See [`Reject::NotUdp`].
    NotUdp,
    /// See [`Reject::Truncated`].
    Truncated,
    /// See [`Reject::Unsupported`].
    Unsupported,
}

impl Place {
    /// Every place, in order.
    pub const ALL: [Self; 7] = [
        Self::Checksum,
        Self::Fragment,
        Self::Malformed,
        Self::NotIp,
        Self::NotUdp,
        Self::Truncated,
        Self::Unsupported,
    ];

    /// The name in text and JSON output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Checksum => "checksum",
            Self::Fragment => "fragment",
            Self::Malformed => "malformed",
            Self::NotIp => "not-ip",
            Self::NotUdp => "not-udp",
            Self::Truncated => "truncated",
            Self::Unsupported => "unsupported",
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Which sum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum BadSum {
    /// UDP over IPv6 has none.
    #[error("UDP over IPv6 carries none")]
    Ipv6Zero,
    /// The IPv4 header's.
    #[error("IPv4 header")]
    IpHeader,
    /// UDP's.
    #[error("UDP")]
    Udp,
}

/// What contradicts itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An IPv6 extension header ends beyond the packet that the IPv6 header announces.
    #[error("an IPv6 extension header reaches beyond the packet")]
    ExtensionLength,
    /// Hop-by-hop options stand elsewhere than right after the IPv6 header (RFC 8200, section 4.1).
    #[error("hop-by-hop options are not the first extension header")]
    HopByHopPlace,
    /// The IPv4 header length is below 20.
    #[error("IPv4 header length is below 20")]
    IpHeaderLength,
    /// The version is not the one that the EtherType announces, or for raw IP neither 4 nor 6.
    #[error("IP version does not fit")]
    IpVersion,
    /// The IPv4 total length is below the header length.
    #[error("IPv4 total length is below the header length")]
    TotalLength,
    /// IP carries less than the 8 octets of a UDP header.
    #[error("IP carries less than a UDP header")]
    UdpHeader,
    /// The UDP length is below 8 or above what IP carries.
    #[error("UDP length is below 8 or above what IP carries")]
    UdpLength,
}

/// In which layer a frame breaks off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Layer {
    /// The 14 octets of the Ethernet header.
    Ethernet,
    /// A VLAN tag.
    Vlan,
    /// The IP header with its options.
    IpHeader,
    /// What the IP header announces: extension headers, UDP header, payload.
    IpPayload,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ethernet => "the Ethernet header",
            Self::Vlan => "a VLAN tag",
            Self::IpHeader => "the IP header",
            Self::IpPayload => "the IP payload",
        })
    }
}

/// What is legal and not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// More than [`MAX_EXTENSIONS`] extension headers.
    #[error("more than {MAX_EXTENSIONS} IPv6 extension headers")]
    ExtensionChain,
    /// A packet above 65,535 octets (RFC 2675).
    #[error("IPv6 jumbogram")]
    Jumbogram,
    /// A routing header with segments left: the packet is on its way to another host.
    #[error("IPv6 routing header with segments left")]
    RoutingHeader,
    /// A third VLAN tag.
    #[error("more than two VLAN tags")]
    VlanDepth,
}
