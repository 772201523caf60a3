//! Writes UDP packets with right sums, and changes addresses and ports in those that are there.
//!
//! Promises: what [`Builder::write`] wrote, the parser takes and finds again; [`rewrite`] touches the fields it must and
//! nothing else, mends the sums from the difference alone (RFC 1624), and leaves a wrong sum wrong; a refused call leaves
//! the bytes as they were. Nothing is allocated.
//! Does not do: IP options, extension headers, fragments, padding to Ethernet's 60 octets, a frame check sequence.

use std::net::{IpAddr, SocketAddr};

use super::checksum::{Sum, replaced, update};
use super::{Addresses, Checksum, Frame, VlanTags};
use crate::receive::mac::MacAddress;

const UDP: u8 = 17;
const UDP_LEN: usize = 8;
/// Where the checksum stands in a UDP header.
const UDP_SUM: usize = 6;
/// Where the checksum stands in an IPv4 header.
const IPV4_SUM: usize = 10;

/// A description of UDP packets that differ in their payload only.
///
/// As it begins it writes IP packets without a link header; [`Builder::ethernet`] puts one in front.
///
/// ```
/// use lockgate::receive::frame::{Builder, Policy, VlanTag, VlanTags, parse};
/// use lockgate::receive::mac::{self, MacAddress};
///
/// let own = MacAddress::new([2, 0, 0, 0, 0, 7]);
/// let group = "239.1.2.3".parse()?;
/// let builder = Builder::udp("192.0.2.7:4000".parse()?, (group, 5000).into())?
///     .ethernet(own, mac::destination(group, own)?, VlanTags::single(VlanTag::customer(42)))
///     .hop_limit(8);
///
/// let mut bytes = vec![0; builder.len(4)];
/// let written = builder.write(b"tick", &mut bytes)?;
/// assert_eq!(written, 14 + 4 + 20 + 8 + 4);
/// assert_eq!(parse(&bytes, &Policy::default())?.payload(&bytes), b"tick");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    addresses: Addresses,
    source_port: u16,
    destination_port: u16,
    link: Option<Link>,
    hop_limit: u8,
    sum: bool,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    source: MacAddress,
    destination: MacAddress,
    vlan: VlanTags,
}

impl Builder {
    /// UDP from `source` to `destination`, hop limit 64, with a checksum. The scope of an IPv6 address is not sent.
    ///
    /// # Errors
    /// [`BuildError::Families`] when one address is IPv4 and the other IPv6.
    pub fn udp(source: SocketAddr, destination: SocketAddr) -> Result<Self, BuildError> {
        let addresses = match (source.ip(), destination.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
                source,
                destination,
            },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 {
                source,
                destination,
            },
            _ => {
                return Err(BuildError::Families {
                    sender: source,
                    receiver: destination,
                });
            }
        };
        Ok(Self {
            addresses,
            source_port: source.port(),
            destination_port: destination.port(),
            link: None,
            hop_limit: 64,
            sum: true,
        })
    }

    /// With an Ethernet header and these VLAN tags in front.
    #[must_use]
    pub const fn ethernet(
        self,
        source: MacAddress,
        destination: MacAddress,
        vlan: VlanTags,
    ) -> Self {
        Self {
            link: Some(Link {
                source,
                destination,
                vlan,
            }),
            ..self
        }
    }

    /// With this time to live (IPv4) or hop limit (IPv6).
    #[must_use]
    pub const fn hop_limit(self, hop_limit: u8) -> Self {
        Self { hop_limit, ..self }
    }

    /// With UDP's zero in place of a checksum. Over IPv6 receivers refuse that unless told otherwise.
    #[must_use]
    pub const fn without_checksum(self) -> Self {
        Self { sum: false, ..self }
    }

    /// The greatest payload in octets: 65,507 for IPv4, 65,527 for IPv6.
    #[must_use]
    pub const fn max_payload(&self) -> usize {
        match self.addresses {
            Addresses::V4 { .. } => 65_535 - 20 - UDP_LEN,
            Addresses::V6 { .. } => 65_535 - UDP_LEN,
        }
    }

    /// The octets that a packet with `payload_len` octets of payload takes.
    #[must_use]
    pub fn len(&self, payload_len: usize) -> usize {
        let link = self.link.map_or(0, |link| 14 + 4 * link.vlan.count());
        let ip = match self.addresses {
            Addresses::V4 { .. } => 20,
            Addresses::V6 { .. } => 40,
        };
        link + ip + UDP_LEN + payload_len
    }

    /// Writes one packet to the beginning of `out` and gives its length; what lies behind is left alone.
    ///
    /// # Errors
    /// [`BuildError::Payload`] above [`Builder::max_payload`], [`BuildError::Space`] when `out` is shorter than
    /// [`Builder::len`]; then nothing was written.
    pub fn write(&self, payload: &[u8], out: &mut [u8]) -> Result<usize, BuildError> {
        let max = self.max_payload();
        if payload.len() > max {
            return Err(BuildError::Payload {
                len: payload.len(),
                max,
            });
        }
        let needed = self.len(payload.len());
        let have = out.len();
        let mut out = Cursor {
            rest: out
                .get_mut(..needed)
                .ok_or(BuildError::Space { needed, have })?,
        };
        if let Some(link) = &self.link {
            out.put(&link.destination.octets());
            out.put(&link.source.octets());
            for tag in link.vlan.iter() {
                out.put(&tag.protocol.to_be_bytes());
                out.put(&tag.tci.to_be_bytes());
            }
            let ether_type: u16 = match self.addresses {
                Addresses::V4 { .. } => 0x0800,
                Addresses::V6 { .. } => 0x86dd,
            };
            out.put(&ether_type.to_be_bytes());
        }
        // Not above 65,535: the payload is within its limit.
        let udp_len = (UDP_LEN + payload.len()) as u16;
        match self.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let mut head = [0; 20];
                head[0] = 0x45;
                head[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
                // Never to be fragmented, so it needs no identification (RFC 6864).
                head[6] = 0x40;
                head[8] = self.hop_limit;
                head[9] = UDP;
                head[12..16].copy_from_slice(&source.octets());
                head[16..20].copy_from_slice(&destination.octets());
                let sum = !Sum::default().bytes(&head).fold();
                head[IPV4_SUM..IPV4_SUM + 2].copy_from_slice(&sum.to_be_bytes());
                out.put(&head);
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let mut head = [0; 40];
                head[0] = 0x60;
                head[4..6].copy_from_slice(&udp_len.to_be_bytes());
                head[6] = UDP;
                head[7] = self.hop_limit;
                head[8..24].copy_from_slice(&source.octets());
                head[24..40].copy_from_slice(&destination.octets());
                out.put(&head);
            }
        }
        let mut head = [0; UDP_LEN];
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..6].copy_from_slice(&udp_len.to_be_bytes());
        if self.sum {
            let sum = never_zero(
                !pseudo(self.addresses, udp_len)
                    .bytes(&head)
                    .bytes(payload)
                    .fold(),
            );
            head[UDP_SUM..].copy_from_slice(&sum.to_be_bytes());
        }
        out.put(&head);
        out.put(payload);
        Ok(needed)
    }
}

/// What to change in a packet; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The new source address and port.
    pub source: Option<SocketAddr>,
    /// The new destination address and port. The Ethernet destination does not follow by itself.
    pub destination: Option<SocketAddr>,
    /// The new Ethernet source.
    pub source_mac: Option<MacAddress>,
    /// The new Ethernet destination, such as [`mac::destination`](crate::receive::mac::destination) gives.
    pub destination_mac: Option<MacAddress>,
}

/// Changes addresses and ports in `bytes`, where the parser found `frame`, and mends the sums from the difference.
///
/// A right sum stays right, a wrong one wrong, UDP's zero stays zero, and a [`Checksum::Partial`] stays partial:
/// [`complete_checksum`] fills it in. Gives the frame as it now is.
///
/// # Errors
/// [`RewriteError`]; the bytes are then as they were.
pub fn rewrite(bytes: &mut [u8], frame: &Frame, change: &Rewrite) -> Result<Frame, RewriteError> {
    let packet = Parts::find(bytes, frame)?;
    let source = change.source.unwrap_or(frame.source());
    let destination = change.destination.unwrap_or(frame.destination());
    let addresses = match (frame.addresses, source.ip(), destination.ip()) {
        (Addresses::V4 { .. }, IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 {
            source,
            destination,
        },
        (Addresses::V6 { .. }, IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 {
            source,
            destination,
        },
        (Addresses::V4 { .. }, IpAddr::V4(_), _) | (Addresses::V6 { .. }, IpAddr::V6(_), _) => {
            return Err(RewriteError::Family { value: destination });
        }
        _ => return Err(RewriteError::Family { value: source }),
    };
    if change.source_mac.or(change.destination_mac).is_some() && packet.link.len() < 14 {
        return Err(RewriteError::NoEthernet);
    }

    let (old_addresses, old_len) = octets(frame.addresses);
    let (new_addresses, _) = octets(addresses);
    let (old_addresses, new_addresses) = (&old_addresses[..old_len], &new_addresses[..old_len]);
    let old_ports = ports(frame.source_port, frame.destination_port);
    let new_ports = ports(source.port(), destination.port());

    let sum = word(packet.udp, UDP_SUM);
    let sum = match frame.udp_checksum {
        Checksum::Zero => sum,
        // Neither complemented nor over the ports: those are the device's to add.
        Checksum::Partial => replaced(sum, old_addresses, new_addresses),
        _ => never_zero(update(
            update(sum, old_addresses, new_addresses),
            &old_ports,
            &new_ports,
        )),
    };
    packet.udp[..4].copy_from_slice(&new_ports);
    packet.udp[UDP_SUM..UDP_LEN].copy_from_slice(&sum.to_be_bytes());
    if matches!(addresses, Addresses::V4 { .. }) {
        let sum = update(word(packet.ip, IPV4_SUM), old_addresses, new_addresses);
        packet.ip[IPV4_SUM..IPV4_SUM + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let at = addresses_at(addresses);
    packet.ip[at..at + new_addresses.len()].copy_from_slice(new_addresses);
    if let Some(mac) = change.destination_mac {
        packet.link[..6].copy_from_slice(&mac.octets());
    }
    if let Some(mac) = change.source_mac {
        packet.link[6..12].copy_from_slice(&mac.octets());
    }
    Ok(Frame {
        addresses,
        source_port: source.port(),
        destination_port: destination.port(),
        ..*frame
    })
}

/// Computes UDP's sum in `bytes`, where the parser found `frame`, and writes it in: for a packet whose sum was left to a
/// device, or that has none. Gives the frame as it now is.
///
/// # Errors
/// [`RewriteError::Foreign`]; the bytes are then as they were.
pub fn complete_checksum(bytes: &mut [u8], frame: &Frame) -> Result<Frame, RewriteError> {
    let packet = Parts::find(bytes, frame)?;
    let length = word(packet.udp, 4);
    packet.udp[UDP_SUM..UDP_LEN].fill(0);
    let sum = never_zero(!pseudo(frame.addresses, length).bytes(packet.udp).fold());
    packet.udp[UDP_SUM..UDP_LEN].copy_from_slice(&sum.to_be_bytes());
    Ok(Frame {
        udp_checksum: Checksum::Verified,
        ..*frame
    })
}

/// Why a packet can't be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// One address is IPv4, the other IPv6.
    #[error(
        "source {sender} and destination {receiver} are of different families; both must be IPv4 or both IPv6"
    )]
    Families {
        /// The source as given.
        sender: SocketAddr,
        /// The destination as given.
        receiver: SocketAddr,
    },
    /// The payload does not fit into one packet.
    #[error("payload has {len} octets; at most {max} fit")]
    Payload {
        /// Its octets.
        len: usize,
        /// The most there may be.
        max: usize,
    },
    /// The output is too short.
    #[error("output has {have} octets; the packet takes {needed}")]
    Space {
        /// What the packet takes.
        needed: usize,
        /// What the output has.
        have: usize,
    },
}

/// Why a packet can't be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// A new address is of the other family.
    #[error("address {value} is of another family than the packet")]
    Family {
        /// The address as given.
        value: SocketAddr,
    },
    /// The frame was not found in these bytes, or they have changed since.
    #[error("the frame was not found in these bytes")]
    Foreign,
    /// An Ethernet address is to be changed where there is no Ethernet header.
    #[error("the packet has no Ethernet header whose addresses could be changed")]
    NoEthernet,
}

/// The three parts of a packet that change: before IP, from the IP header to UDP, and UDP with its payload.
struct Parts<'a> {
    link: &'a mut [u8],
    ip: &'a mut [u8],
    udp: &'a mut [u8],
}

impl<'a> Parts<'a> {
    /// Cuts `bytes` at the frame's offsets, once it is sure that the frame's addresses, ports and length stand there.
    /// Then `ip` holds a whole IP header and `udp` a whole UDP header.
    fn find(bytes: &'a mut [u8], frame: &Frame) -> Result<Self, RewriteError> {
        let (l3, payload) = (frame.l3_offset as usize, frame.payload_offset as usize);
        let end = payload + frame.payload_len as usize;
        let udp = payload.checked_sub(UDP_LEN).filter(|udp| l3 <= *udp);
        let (Some(udp), Some(bytes)) = (udp, bytes.get_mut(..end)) else {
            return Err(RewriteError::Foreign);
        };
        let (head, udp) = bytes.split_at_mut(udp);
        let (link, ip) = head.split_at_mut(l3);
        let (version, header_len) = match frame.addresses {
            Addresses::V4 { .. } => (4, 20),
            Addresses::V6 { .. } => (6, 40),
        };
        let (addresses, len) = octets(frame.addresses);
        let at = addresses_at(frame.addresses);
        let fits = ip.len() >= header_len
            && ip[0] >> 4 == version
            && ip[at..at + len] == addresses[..len]
            && udp[..4] == ports(frame.source_port, frame.destination_port)
            && usize::from(word(udp, 4)) == udp.len();
        if fits {
            Ok(Self { link, ip, udp })
        } else {
            Err(RewriteError::Foreign)
        }
    }
}

/// Writes forward into a slice that was measured for what is written.
struct Cursor<'a> {
    rest: &'a mut [u8],
}

impl Cursor<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (here, rest) = std::mem::take(&mut self.rest).split_at_mut(bytes.len());
        here.copy_from_slice(bytes);
        self.rest = rest;
    }
}

/// Both addresses as they stand in the IP header, and how many octets they take.
fn octets(addresses: Addresses) -> ([u8; 32], usize) {
    let mut all = [0; 32];
    let len = match addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            all[..4].copy_from_slice(&source.octets());
            all[4..8].copy_from_slice(&destination.octets());
            8
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            all[..16].copy_from_slice(&source.octets());
            all[16..].copy_from_slice(&destination.octets());
            32
        }
    };
    (all, len)
}

/// Where the addresses begin in the IP header.
const fn addresses_at(addresses: Addresses) -> usize {
    match addresses {
        Addresses::V4 { .. } => 12,
        Addresses::V6 { .. } => 8,
    }
}

fn ports(source: u16, destination: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
    [a, b, c, d]
}

/// The 16-bit word at `at`, which the caller has measured.
fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// The sum of the pseudo-header.
fn pseudo(addresses: Addresses, udp_len: u16) -> Sum {
    let (octets, len) = octets(addresses);
    Sum::default()
        .bytes(&octets[..len])
        .word(u16::from(UDP))
        .word(udp_len)
}

/// UDP sends a sum of zero as its other form, because zero means that there is none (RFC 768).
const fn never_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}
