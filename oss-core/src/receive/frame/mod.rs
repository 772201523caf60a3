//! What stands in a frame: the parser that every raw receiver uses, and the builder that replay and tests use.
//!
//! Promises: [`parse`] and [`parse_ip`] take any bytes, never panic, never allocate, and give either a [`Frame`] whose
//! offsets lie inside those bytes or a [`Reject`] that says at which place the packet is lost. What the standards leave
//! open is decided as Linux's UDP socket decides it; options are not judged.
//! Does not do: reassembly (a fragment is refused and counted), steering, filtering by address, IPsec, jumbograms.
//!
//! What is read, and where the rules come from:
//!
//! | layer | taken | refused |
//! | --- | --- | --- |
//! | Ethernet II | up to two VLAN tags (`0x8100`, `0x88a8`, `0x9100`), kept as they are | a third tag; IEEE 802.3 lengths |
//! | IPv4 (RFC 791) | options, skipped unread; padding after the packet | any fragment, the first one included |
//! | IPv6 (RFC 8200) | hop-by-hop options (first only), routing headers with no segment left, destination options, AH, an atomic fragment header (RFC 6946); at most [`MAX_EXTENSIONS`] of them | any other fragment, jumbograms (RFC 2675), segments left, ESP and every other header |
//! | UDP (RFC 768) | a length below what IP carries: the rest is surplus (RFC 9868) and not payload | a length below 8 or above what IP carries |
//!
//! An *atomic* fragment header, offset zero and no more fragments, belongs to a whole packet. Linux delivers it to the
//! socket, and RFC 6946 has it handled apart from all other fragments, so it is taken as if the header were not there.
//! The authentication header is skipped and nothing of it is verified.
//!
//! Checks run in the order of the kernel's: lengths of a header before its sum, the IPv4 header's sum before anything
//! that the header says, then the total length, then fragments, then the protocol, then UDP. So each packet is lost at
//! one place only, and at the same one always.

mod build;
mod checksum;
mod parse;
mod reject;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::mac::MacAddress;
use super::{ChecksumAction, ChecksumPolicy};

pub use build::{BuildError, Builder, Rewrite, RewriteError, complete_checksum, rewrite};
pub use parse::{MAX_EXTENSIONS, parse, parse_ip};
pub use reject::{BadSum, Fault, Layer, Place, Reject, Unsupported};

/// A UDP packet found in a frame: where its parts stand, who sent it, and what is known of its sums.
///
/// Offsets and lengths are in octets and count from the first one of the bytes that were parsed. They always lie inside
/// those bytes. A frame holds no borrow, so it can be kept beside the buffer it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// Source and destination address.
    pub addresses: Addresses,
    /// UDP source port; 0 means that the sender wants no answer.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// Where the IP header begins: 0 for [`parse_ip`], 14, 18 or 22 for [`parse`].
    pub l3_offset: u32,
    /// Where the UDP payload begins. The UDP header is the 8 octets before.
    pub payload_offset: u32,
    /// How many octets of UDP payload there are; may be 0.
    pub payload_len: u32,
    /// The VLAN tags in the frame. A tag that the device or the kernel took out is not here; see [`VlanTags::pushed`].
    pub vlan: VlanTags,
    /// The sum over the IPv4 header; [`Checksum::Absent`] for IPv6.
    pub ip_checksum: Checksum,
    /// The sum over UDP header, payload and pseudo-header.
    pub udp_checksum: Checksum,
}

impl Frame {
    /// Source address and port. The scope of an IPv6 address is not in a frame and reads 0.
    #[must_use]
    pub fn source(&self) -> SocketAddr {
        SocketAddr::new(self.addresses.source(), self.source_port)
    }

    /// Destination address and port. The scope of an IPv6 address is not in a frame and reads 0.
    #[must_use]
    pub fn destination(&self) -> SocketAddr {
        SocketAddr::new(self.addresses.destination(), self.destination_port)
    }

    /// The payload, cut from the bytes that were parsed. Empty if `bytes` are others, too short to hold it.
    #[must_use]
    pub fn payload<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        let start = self.payload_offset as usize;
        bytes
            .get(start..)
            .and_then(|rest| rest.get(..self.payload_len as usize))
            .unwrap_or(&[])
    }
}

/// Source and destination of a packet. IPv4 stays four octets wide, so that the common case moves little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// Of an IPv4 packet.
    V4 {
        /// Who sent it.
        source: Ipv4Addr,
        /// Whom it is for: a group or a unicast address.
        destination: Ipv4Addr,
    },
    /// Of an IPv6 packet.
    V6 {
        /// Who sent it.
        source: Ipv6Addr,
        /// Whom it is for: a group or a unicast address.
        destination: Ipv6Addr,
    },
}

impl Addresses {
    /// Who sent it, as the wider type.
    #[must_use]
    pub const fn source(self) -> IpAddr {
        match self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// Whom it is for, as the wider type.
    #[must_use]
    pub const fn destination(self) -> IpAddr {
        match self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }
}

/// One VLAN tag (IEEE 802.1Q) as it stands in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// The tag protocol: `0x8100`, `0x88a8` or `0x9100`.
    pub protocol: u16,
    /// Tag control information: priority (3 bits), drop eligible (1 bit), VLAN (12 bits).
    pub tci: u16,
}

impl VlanTag {
    /// A customer tag, protocol `0x8100`.
    #[must_use]
    pub const fn customer(tci: u16) -> Self {
        Self {
            protocol: 0x8100,
            tci,
        }
    }

    /// A service tag, protocol `0x88a8`, as the outer one of two.
    #[must_use]
    pub const fn service(tci: u16) -> Self {
        Self {
            protocol: 0x88a8,
            tci,
        }
    }

    /// The VLAN, 0 to 4095. 0 carries a priority only; 4095 is reserved.
    #[must_use]
    pub const fn id(self) -> u16 {
        self.tci & 0x0fff
    }

    /// The priority, 0 to 7.
    #[must_use]
    pub const fn priority(self) -> u8 {
        (self.tci >> 13) as u8
    }

    /// Whether the frame may be dropped first when a queue is full.
    #[must_use]
    pub const fn is_drop_eligible(self) -> bool {
        self.tci & 0x1000 != 0
    }
}

/// Zero, one or two VLAN tags, the outer one first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct VlanTags {
    outer: Option<VlanTag>,
    inner: Option<VlanTag>,
}

impl VlanTags {
    /// No tag.
    pub const NONE: Self = Self {
        outer: None,
        inner: None,
    };

    /// One tag.
    #[must_use]
    pub const fn single(tag: VlanTag) -> Self {
        Self {
            outer: Some(tag),
            inner: None,
        }
    }

    /// Two tags.
    #[must_use]
    pub const fn double(outer: VlanTag, inner: VlanTag) -> Self {
        Self {
            outer: Some(outer),
            inner: Some(inner),
        }
    }

    /// The tag next to the Ethernet addresses.
    #[must_use]
    pub const fn outer(self) -> Option<VlanTag> {
        self.outer
    }

    /// The second tag of two.
    #[must_use]
    pub const fn inner(self) -> Option<VlanTag> {
        self.inner
    }

    /// How many there are, 0 to 2.
    #[must_use]
    pub const fn count(self) -> usize {
        self.outer.is_some() as usize + self.inner.is_some() as usize
    }

    /// The tags, the outer one first.
    pub fn iter(self) -> impl Iterator<Item = VlanTag> {
        self.outer.into_iter().chain(self.inner)
    }

    /// The same with `tag` outside: for a device or kernel that takes the outer tag out of the frame and reports it
    /// beside it. `None` when there are two already.
    #[must_use]
    pub const fn pushed(self, tag: VlanTag) -> Option<Self> {
        if self.inner.is_some() {
            return None;
        }
        Some(Self {
            outer: Some(tag),
            inner: self.outer,
        })
    }
}

impl fmt::Debug for VlanTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// What is known of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Checksum {
    /// The protocol has none.
    Absent,
    /// It was computed and is wrong; only [`Check::Flag`] lets such a packet through.
    Bad,
    /// The policy is not to compute it.
    NotChecked,
    /// The sender's kernel left it to a device that the packet never reached: the field holds the sum of the
    /// pseudo-header alone. The packet came from this machine's memory, not from a wire.
    Partial,
    /// It was computed and is right.
    Verified,
    /// The device or the kernel said that it is right; it was not computed here.
    Vouched,
    /// The sender sent none (UDP's zero).
    Zero,
}

/// What to do about a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Check {
    /// Compute it, and refuse the packet when it is wrong.
    #[default]
    Drop,
    /// Compute it, and let the packet through marked [`Checksum::Bad`] when it is wrong.
    Flag,
    /// Do not compute it.
    Trust,
}

/// What to do with an IPv6 packet whose UDP checksum is zero. RFC 8200 forbids it, RFC 6935 allows it for tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ipv6Zero {
    /// Let it through marked [`Checksum::Zero`].
    Accept,
    /// Refuse it, as Linux's socket does.
    #[default]
    Drop,
}

/// What whoever delivered the frame knows about its UDP checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The packet may come from this machine with its sum left to a device, and nobody says so for each packet: an XDP
    /// program on a veth pair. A field that holds exactly the pseudo-header's sum is then [`Checksum::Partial`]; all
    /// else is checked as the policy says. A corrupted packet passes with a chance of 1 in 65,536.
    MayBePartial,
    /// The sum was left to a device and is known to be so, such as by `TP_STATUS_CSUMNOTREADY` (packet(7)): valid data
    /// under a field that is not filled in.
    Partial,
    /// The sum was verified before delivery, such as by `TP_STATUS_CSUM_VALID` or `IBV_WC_IP_CSUM_OK`.
    Verified,
    /// Nothing is known.
    #[default]
    Wire,
}

/// How strict the parser is about sums. The default computes both, refuses bad ones, and refuses IPv6 without one.
///
/// A configuration says it with a [`ChecksumPolicy`], which turns into one of these. The origin is a fact about each
/// delivery and no setting, so the provider sets it with [`Policy::delivered`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The IPv4 header's sum.
    pub ip: Check,
    /// UDP's sum, where it is not zero.
    pub udp: Check,
    /// UDP's zero sum over IPv6. Over IPv4 it is legal (RFC 768) and always taken.
    pub ipv6_zero: Ipv6Zero,
    /// What is known of the UDP sum beforehand.
    pub origin: Origin,
}

impl Policy {
    /// The same for a packet of this origin.
    #[must_use]
    pub const fn delivered(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }
}

impl From<ChecksumPolicy> for Policy {
    /// Computes both sums, because either action needs to know, of a packet with nothing known beforehand.
    fn from(policy: ChecksumPolicy) -> Self {
        let bad = match policy.bad {
            ChecksumAction::Deliver => Check::Flag,
            ChecksumAction::Drop => Check::Drop,
        };
        Self {
            ip: bad,
            udp: bad,
            ipv6_zero: match policy.absent_ipv6 {
                ChecksumAction::Deliver => Ipv6Zero::Accept,
                ChecksumAction::Drop => Ipv6Zero::Drop,
            },
            origin: Origin::Wire,
        }
    }
}

impl From<Checksum> for super::Checksum {
    /// What a packet's descriptor says of UDP's sum. A partial one is unknown: nobody has looked, though no wire can have
    /// damaged the packet.
    fn from(checksum: Checksum) -> Self {
        match checksum {
            Checksum::Absent | Checksum::Zero => Self::Absent,
            Checksum::Bad => Self::Bad,
            Checksum::NotChecked | Checksum::Partial => Self::Unknown,
            Checksum::Verified | Checksum::Vouched => Self::Good,
        }
    }
}

/// Destination and source in the Ethernet header, in the order of the wire. `None` when `frame` is too short for them.
#[must_use]
pub fn ethernet(frame: &[u8]) -> Option<(MacAddress, MacAddress)> {
    let (destination, rest) = frame.split_first_chunk::<6>()?;
    let source = rest.first_chunk::<6>()?;
    Some((MacAddress::new(*destination), MacAddress::new(*source)))
}
