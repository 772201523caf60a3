//! The parser: one pass from the outermost header to the UDP payload.
//!
//! Promises: no read outside the bytes given, no panic, no allocation; a bounded number of extension headers. The rules
//! and the order of the checks stand at the head of the parent module. Does not do: anything to the bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::checksum::Sum;
use super::{
    Addresses, BadSum, Check, Checksum, Fault, Frame, Ipv6Zero, Layer, Origin, Policy, Reject,
    Unsupported, VlanTag, VlanTags,
};

/// How many IPv6 extension headers a packet may have. RFC 8200 names six kinds and has each at most once, destination
/// options twice; a chain beyond that only costs time.
pub const MAX_EXTENSIONS: usize = 8;

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;

const HOP_BY_HOP: u8 = 0;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;

/// Finds the UDP packet in an Ethernet frame, without its frame check sequence.
///
/// # Errors
/// The first reason, in the order that the module's head gives, why it holds none that `policy` takes.
///
/// ```
/// use lockgate::receive::frame::{self, Policy, Reject};
/// # use lockgate::receive::{frame::{Builder, VlanTags}, mac::{self, MacAddress}};
/// # let mut bytes = [0; 64];
/// # let built = Builder::udp("192.0.2.1:4000".parse()?, "239.1.2.3:5000".parse()?)?
/// #     .ethernet(MacAddress::new([2, 0, 0, 0, 0, 1]), mac::multicast("239.1.2.3".parse()?).unwrap(), VlanTags::NONE)
/// #     .write(b"tick", &mut bytes)?;
/// # let bytes = &bytes[..built];
/// let frame = frame::parse(bytes, &Policy::default())?;
/// assert_eq!(frame.destination(), "239.1.2.3:5000".parse()?);
/// assert_eq!(frame.payload(bytes), b"tick");
///
/// let cut = frame::parse(&bytes[..40], &Policy::default()).unwrap_err();
/// assert!(matches!(cut, Reject::Truncated { needed: 46, captured: 40, .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline]
pub fn parse(frame: &[u8], policy: &Policy) -> Result<Frame, Reject> {
    let Some(head) = frame.first_chunk::<ETHERNET_LEN>() else {
        return Err(truncated(Layer::Ethernet, ETHERNET_LEN, frame));
    };
    // The common case first and by itself, so that all its places are known when it is compiled.
    match u16::from_be_bytes([head[12], head[13]]) {
        TYPE_IPV4 => ipv4(frame, ETHERNET_LEN, VlanTags::NONE, policy),
        TYPE_IPV6 => ipv6(frame, ETHERNET_LEN, VlanTags::NONE, policy),
        protocol if is_tag(protocol) => tagged(frame, protocol, policy),
        ether_type => Err(Reject::NotIp { ether_type }),
    }
}

/// Finds the UDP packet in an IP packet without a link header: from a tun device, a raw-IP capture, or a UDP tunnel.
///
/// # Errors
/// As [`parse`]. A version that is neither 4 nor 6 is [`Fault::IpVersion`].
#[inline]
pub fn parse_ip(packet: &[u8], policy: &Policy) -> Result<Frame, Reject> {
    match packet.first().map(|first| first >> 4) {
        None => Err(truncated(Layer::IpHeader, IPV4_LEN, packet)),
        Some(4) => ipv4(packet, 0, VlanTags::NONE, policy),
        Some(6) => ipv6(packet, 0, VlanTags::NONE, policy),
        Some(_) => Err(Reject::Malformed(Fault::IpVersion)),
    }
}

/// A frame whose first VLAN tag is of protocol `protocol`.
fn tagged(frame: &[u8], protocol: u16, policy: &Policy) -> Result<Frame, Reject> {
    let (ether_type, at, vlan) = tags(frame, protocol)?;
    match ether_type {
        TYPE_IPV4 => ipv4(frame, at, vlan, policy),
        TYPE_IPV6 => ipv6(frame, at, vlan, policy),
        _ => Err(Reject::NotIp { ether_type }),
    }
}

/// Reads the VLAN tags, the first of protocol `protocol`: the EtherType behind them, where IP begins, the tags.
#[inline]
fn tags(frame: &[u8], protocol: u16) -> Result<(u16, usize, VlanTags), Reject> {
    let mut at = ETHERNET_LEN;
    let (outer, behind) = tag(frame, at, protocol)?;
    at += TAG_LEN;
    if !is_tag(behind) {
        return Ok((behind, at, VlanTags::single(outer)));
    }
    let (inner, behind) = tag(frame, at, behind)?;
    at += TAG_LEN;
    if is_tag(behind) {
        return Err(Reject::Unsupported(Unsupported::VlanDepth));
    }
    Ok((behind, at, VlanTags::double(outer, inner)))
}

const fn is_tag(ether_type: u16) -> bool {
    matches!(ether_type, 0x8100 | 0x88a8 | 0x9100)
}

/// One tag, and the EtherType behind it.
#[inline]
fn tag(frame: &[u8], at: usize, protocol: u16) -> Result<(VlanTag, u16), Reject> {
    let Some([a, b, c, d]) = frame.get(at..).and_then(|rest| rest.first_chunk()) else {
        return Err(truncated(Layer::Vlan, at + TAG_LEN, frame));
    };
    let tci = u16::from_be_bytes([*a, *b]);
    Ok((VlanTag { protocol, tci }, u16::from_be_bytes([*c, *d])))
}

#[inline]
fn ipv4(frame: &[u8], at: usize, vlan: VlanTags, policy: &Policy) -> Result<Frame, Reject> {
    let packet = frame.get(at..).unwrap_or_default();
    let Some(head) = packet.first_chunk::<IPV4_LEN>() else {
        return Err(truncated(Layer::IpHeader, at + IPV4_LEN, frame));
    };
    if head[0] >> 4 != 4 {
        return Err(Reject::Malformed(Fault::IpVersion));
    }
    let header_len = usize::from(head[0] & 0x0f) * 4;
    if header_len < IPV4_LEN {
        return Err(Reject::Malformed(Fault::IpHeaderLength));
    }
    let Some(header) = packet.get(..header_len) else {
        return Err(truncated(Layer::IpHeader, at + header_len, frame));
    };
    let ip_checksum = match policy.ip {
        Check::Trust => Checksum::NotChecked,
        check => {
            let fixed = Sum::default().bytes(head);
            // The fixed part has a length known here, so its sum needs no loop. Options are rare.
            let sum = if header_len == IPV4_LEN {
                fixed.fold()
            } else {
                with_options(fixed, header)
            };
            match (sum, check) {
                (0xffff, _) => Checksum::Verified,
                (_, Check::Drop) => return Err(Reject::Checksum(BadSum::IpHeader)),
                _ => Checksum::Bad,
            }
        }
    };
    let total_len = usize::from(u16::from_be_bytes([head[2], head[3]]));
    if total_len < header_len {
        return Err(Reject::Malformed(Fault::TotalLength));
    }
    let Some(body) = packet.get(header_len..total_len) else {
        return Err(truncated(Layer::IpPayload, at + total_len, frame));
    };
    let fragment = u16::from_be_bytes([head[6], head[7]]);
    if fragment & 0x3fff != 0 {
        return Err(Reject::Fragment {
            offset: (fragment & 0x1fff) << 3,
            more: fragment & 0x2000 != 0,
        });
    }
    if head[9] != UDP {
        return Err(Reject::NotUdp { protocol: head[9] });
    }
    let (mut source, mut destination) = ([0; 4], [0; 4]);
    source.copy_from_slice(&head[12..16]);
    destination.copy_from_slice(&head[16..20]);
    let found = Found {
        addresses: Addresses::V4 {
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
        },
        head,
        l3: at,
        udp: at + header_len,
        vlan,
        ip_checksum,
    };
    udp(body, found, policy)
}

#[cold]
fn with_options(fixed: Sum, header: &[u8]) -> u16 {
    fixed
        .bytes(header.get(IPV4_LEN..).unwrap_or_default())
        .fold()
}

fn ipv6(frame: &[u8], at: usize, vlan: VlanTags, policy: &Policy) -> Result<Frame, Reject> {
    let packet = frame.get(at..).unwrap_or_default();
    let Some(head) = packet.first_chunk::<IPV6_LEN>() else {
        return Err(truncated(Layer::IpHeader, at + IPV6_LEN, frame));
    };
    if head[0] >> 4 != 6 {
        return Err(Reject::Malformed(Fault::IpVersion));
    }
    let payload_len = usize::from(u16::from_be_bytes([head[4], head[5]]));
    let next = head[6];
    if payload_len == 0 && next == HOP_BY_HOP {
        // RFC 2675, section 3: the length is in an option. Hop-by-hop options do not fit into nothing otherwise.
        return Err(Reject::Unsupported(Unsupported::Jumbogram));
    }
    let Some(body) = packet.get(IPV6_LEN..IPV6_LEN + payload_len) else {
        return Err(truncated(
            Layer::IpPayload,
            at + IPV6_LEN + payload_len,
            frame,
        ));
    };
    let skipped = if next == UDP {
        0
    } else {
        extensions(next, body)?
    };
    let (mut source, mut destination) = ([0; 16], [0; 16]);
    source.copy_from_slice(&head[8..24]);
    destination.copy_from_slice(&head[24..40]);
    let found = Found {
        addresses: Addresses::V6 {
            source: Ipv6Addr::from(source),
            destination: Ipv6Addr::from(destination),
        },
        head,
        l3: at,
        udp: at + IPV6_LEN + skipped,
        vlan,
        ip_checksum: Checksum::Absent,
    };
    let body = body.get(skipped..).unwrap_or_default();
    udp(body, found, policy)
}

/// How many octets of extension headers stand before UDP.
fn extensions(mut next: u8, body: &[u8]) -> Result<usize, Reject> {
    const BEYOND: Reject = Reject::Malformed(Fault::ExtensionLength);
    let mut at = 0;
    let mut seen = 0;
    while next != UDP {
        let known = matches!(
            next,
            HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION_OPTIONS
        );
        if !known {
            return Err(Reject::NotUdp { protocol: next });
        }
        if seen == MAX_EXTENSIONS {
            return Err(Reject::Unsupported(Unsupported::ExtensionChain));
        }
        // Every kind is at least 8 octets long and begins with the next header and a length.
        let rest = body.get(at..).ok_or(BEYOND)?;
        let head = rest.first_chunk::<8>().ok_or(BEYOND)?;
        let len = match next {
            FRAGMENT => 8,
            AUTHENTICATION => (usize::from(head[1]) + 2) * 4,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        let header = rest.get(..len).ok_or(BEYOND)?;
        match next {
            HOP_BY_HOP if seen > 0 => return Err(Reject::Malformed(Fault::HopByHopPlace)),
            HOP_BY_HOP if has_jumbo_option(header) => {
                return Err(Reject::Unsupported(Unsupported::Jumbogram));
            }
            ROUTING if head[3] != 0 => return Err(Reject::Unsupported(Unsupported::RoutingHeader)),
            FRAGMENT => {
                let field = u16::from_be_bytes([head[2], head[3]]);
                // Bits 1 and 2 are reserved. What is left is zero in an atomic fragment.
                if field & 0xfff9 != 0 {
                    return Err(Reject::Fragment {
                        offset: field & 0xfff8,
                        more: field & 1 != 0,
                    });
                }
            }
            _ => {}
        }
        next = head[0];
        at += len;
        seen += 1;
    }
    Ok(at)
}

/// Whether hop-by-hop options hold the jumbo payload option (RFC 2675), which contradicts a payload length above zero.
fn has_jumbo_option(header: &[u8]) -> bool {
    const PAD: u8 = 0;
    const JUMBO: u8 = 0xc2;
    let mut rest = header.get(2..).unwrap_or_default();
    loop {
        rest = match rest {
            [PAD, rest @ ..] => rest,
            [JUMBO, ..] => return true,
            [_, len, rest @ ..] => rest.get(usize::from(*len)..).unwrap_or_default(),
            _ => return false,
        };
    }
}

/// What is known before UDP is looked at.
struct Found<'a, const N: usize> {
    addresses: Addresses,
    /// The IP header without options, whose end the addresses are.
    head: &'a [u8; N],
    l3: usize,
    udp: usize,
    vlan: VlanTags,
    ip_checksum: Checksum,
}

/// Reads the UDP header at the beginning of `body`, all that IP carries.
#[inline]
fn udp<const N: usize>(body: &[u8], found: Found<'_, N>, policy: &Policy) -> Result<Frame, Reject> {
    let Some(head) = body.first_chunk::<UDP_LEN>() else {
        return Err(Reject::Malformed(Fault::UdpHeader));
    };
    let length = u16::from_be_bytes([head[4], head[5]]);
    let datagram = match body.get(..usize::from(length)) {
        Some(datagram) if datagram.len() >= UDP_LEN => datagram,
        _ => return Err(Reject::Malformed(Fault::UdpLength)),
    };
    let field = u16::from_be_bytes([head[6], head[7]]);
    let udp_checksum = match (policy.origin, policy.udp) {
        (Origin::Partial, _) => Checksum::Partial,
        _ if field == 0 => match (policy.ipv6_zero, found.addresses) {
            (Ipv6Zero::Drop, Addresses::V6 { .. }) => {
                return Err(Reject::Checksum(BadSum::Ipv6Zero));
            }
            _ => Checksum::Zero,
        },
        (Origin::Verified, _) => Checksum::Vouched,
        (_, Check::Trust) => Checksum::NotChecked,
        (origin, check) => match (udp_sum(found.head, datagram, length, origin), check) {
            (Checksum::Bad, Check::Drop) => return Err(Reject::Checksum(BadSum::Udp)),
            (checksum, _) => checksum,
        },
    };
    Ok(Frame {
        addresses: found.addresses,
        source_port: u16::from_be_bytes([head[0], head[1]]),
        destination_port: u16::from_be_bytes([head[2], head[3]]),
        // None of these exceeds 22 + 40 + 65,535.
        l3_offset: found.l3 as u32,
        payload_offset: (found.udp + UDP_LEN) as u32,
        payload_len: (datagram.len() - UDP_LEN) as u32,
        vlan: found.vlan,
        ip_checksum: found.ip_checksum,
        udp_checksum,
    })
}

/// Whether UDP's sum is right. Apart from its callers, so that who trusts sums does not pay for its registers.
#[inline(never)]
fn udp_sum<const N: usize>(
    head: &[u8; N],
    datagram: &[u8],
    length: u16,
    origin: Origin,
) -> Checksum {
    // The addresses are the last 8 octets of the 20 of IPv4, and the last 32 of the 40 of IPv6.
    let from = if N == IPV4_LEN { 12 } else { 8 };
    let pseudo = Sum::default()
        .bytes(&head[from..])
        .word(u16::from(UDP))
        .word(length);
    if pseudo.bytes(datagram).fold() == 0xffff {
        return Checksum::Verified;
    }
    let field = datagram
        .get(6..8)
        .map(|field| u16::from_be_bytes([field[0], field[1]]));
    if origin == Origin::MayBePartial && field == Some(pseudo.fold()) {
        return Checksum::Partial;
    }
    Checksum::Bad
}

#[cold]
fn truncated(layer: Layer, needed: usize, frame: &[u8]) -> Reject {
    // Both stay below 22 + 40 + 65,535: what is captured is below what is needed.
    Reject::Truncated {
        layer,
        needed: needed as u32,
        captured: frame.len() as u32,
    }
}
