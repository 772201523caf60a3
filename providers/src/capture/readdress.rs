//! Finds the UDP packet in what was captured, and sends it elsewhere.
//!
//! Promises: the payload is untouched; right sums stay right and wrong ones wrong, and a sum that the sender's kernel had left to
//! a device is filled in; all by the core's own parser and builder. The Ethernet destination follows the new address where
//! it can be derived. Does not do: fragments, other protocols than UDP.

use std::net::SocketAddr;

use lockgate::receive::frame::{
    self, Check, Checksum, Frame, Ipv6Zero, Origin, Policy, Reject, Rewrite, RewriteError, parse,
    parse_ip,
};
use lockgate::receive::mac::{self, MacAddress};

use super::link::LinkType;

/// A UDP packet found in a captured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Who sent it.
    pub source: SocketAddr,
    /// Whom it was sent to.
    pub destination: SocketAddr,
    /// What it carries.
    pub payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Finds it. Sums are not judged.
    ///
    /// # Errors
    /// [`ReaddressError::LinkType`] and [`ReaddressError::NotUdp`].
    pub fn find(link: LinkType, bytes: &'a [u8]) -> Result<Self, ReaddressError> {
        let (start, frame) = find(link, bytes)?;
        Ok(Self {
            source: frame.source(),
            destination: frame.destination(),
            payload: frame.payload(&bytes[start..]),
        })
    }
}

/// Where packets shall come from and go to instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Readdress {
    /// The new source; the old one if not given.
    pub source: Option<SocketAddr>,
    /// The new destination; the old one if not given.
    pub destination: Option<SocketAddr>,
    /// The new Ethernet source, for captures that have one.
    pub source_mac: Option<MacAddress>,
    /// The new Ethernet destination. If not given, a multicast destination gives its own, and a unicast one keeps the old.
    pub destination_mac: Option<MacAddress>,
}

impl Readdress {
    /// Changes a captured packet in place and mends its sums.
    ///
    /// # Errors
    /// [`ReaddressError`]; the bytes are then as they were.
    pub fn apply(&self, link: LinkType, bytes: &mut [u8]) -> Result<(), ReaddressError> {
        let (start, frame) = find(link, bytes)?;
        let ethernet = link == LinkType::ETHERNET;
        let derived = self
            .destination
            .and_then(|destination| mac::multicast(destination.ip()));
        let change = Rewrite {
            source: self.source,
            destination: self.destination,
            source_mac: self.source_mac.filter(|_| ethernet),
            destination_mac: self.destination_mac.or(derived).filter(|_| ethernet),
        };
        let bytes = &mut bytes[start..];
        let changed = frame::rewrite(bytes, &frame, &change)?;
        if changed.udp_checksum == Checksum::Partial {
            frame::complete_checksum(bytes, &changed)?;
        }
        Ok(())
    }
}

/// Why a captured packet can't be sent elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReaddressError {
    /// What stands in front of IP is not known here.
    #[error("{0} is not read; allowed: Ethernet, raw IP, Linux cooked, BSD loopback")]
    LinkType(LinkType),
    /// It holds no whole UDP packet.
    #[error("no whole UDP packet: {0}")]
    NotUdp(#[source] Reject),
    /// The new address does not fit.
    #[error(transparent)]
    Rewrite(#[from] RewriteError),
}

/// Where the bytes of the parser begin, and what it found there.
fn find(link: LinkType, bytes: &[u8]) -> Result<(usize, Frame), ReaddressError> {
    let policy = Policy {
        ip: Check::Trust,
        udp: Check::Flag,
        ipv6_zero: Ipv6Zero::Accept,
        // A capture that was taken on the sender shows packets before the device has seen them.
        origin: Origin::MayBePartial,
    };
    if link == LinkType::ETHERNET {
        let frame = parse(bytes, &policy).map_err(ReaddressError::NotUdp)?;
        return Ok((0, frame));
    }
    let start = link.header_len().ok_or(ReaddressError::LinkType(link))?;
    let packet = bytes.get(start..).unwrap_or(&[]);
    let frame = parse_ip(packet, &policy).map_err(ReaddressError::NotUdp)?;
    Ok((start.min(bytes.len()), frame))
}
