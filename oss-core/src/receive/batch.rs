//! Borrowed packets: the descriptor, the batch and the view of one packet.
//!
//! Promises: a batch allocates nothing and copies nothing; every descriptor of a batch has been checked against its slabs, so
//! that no view reaches outside. [`Descriptor`] has a fixed layout and is also what crosses the plugin boundary: there is no second
//! packet type. Does not do: keeping packets beyond the next poll. Who wants to keep one copies it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use super::sys::{Slab, checked};
use super::timestamp::Timestamp;

/// One packet in a slab. All numbers are in the host's byte order; lengths and offsets in bytes.
///
/// Every field is public because every bit pattern is allowed: what a descriptor says is checked when a [`Batch`] is made of it,
/// and values that this version doesn't know are kept and reported as unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Where the captured bytes start in the slab.
    pub offset: u64,
    /// When it arrived, in the units of `clock`.
    pub timestamp: u64,
    /// How many bytes were captured: the whole frame with [`FRAME`](Self::FRAME), else the payload.
    pub frame_len: u32,
    /// How many of them are UDP payload.
    pub payload_len: u32,
    /// How long it was on the wire, counted as `frame_len` is; larger if it was cut.
    pub wire_len: u32,
    /// Which slab.
    pub slab: u32,
    /// The kernel's index of the interface that it came in through; 0 if unknown. Also the scope of link-local addresses.
    pub interface: u32,
    /// The `FRAME`, `VLAN`, … bits below.
    pub flags: u32,
    /// Where the payload starts, from `offset`.
    pub payload_offset: u16,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// The outer VLAN tag's control information, with [`VLAN`](Self::VLAN).
    pub vlan: u16,
    /// Source address; IPv4 in the first four bytes.
    pub source: [u8; 16],
    /// Destination address; IPv4 in the first four bytes.
    pub destination: [u8; 16],
    /// Which clock `timestamp` is of: 0 none, 1 system, 2 device free-running, 3 device real-time.
    pub clock: u8,
    /// 4 or 6; 0 if the addresses are not known.
    pub family: u8,
    /// Zero. For later versions.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<Descriptor>() == 88);

impl Descriptor {
    /// The captured bytes are a whole Ethernet frame.
    pub const FRAME: u32 = 1;
    /// The frame carried a VLAN tag, in the frame itself or taken out of it by the device.
    pub const VLAN: u32 = 1 << 1;
    /// The packet was longer than the buffer; the end is missing.
    pub const TRUNCATED: u32 = 1 << 2;
    /// The UDP checksum was verified, by the provider, the kernel or the device.
    pub const CHECKSUM_GOOD: u32 = 1 << 3;
    /// The UDP checksum is wrong, and the policy lets it through.
    pub const CHECKSUM_BAD: u32 = 1 << 4;
    /// The sender sent no UDP checksum.
    pub const CHECKSUM_ABSENT: u32 = 1 << 5;
    /// The captured bytes are a whole IP packet without a link-layer header.
    pub const IP_PACKET: u32 = 1 << 6;

    /// A descriptor of a payload alone, such as a socket delivers.
    #[must_use]
    pub const fn payload(slab: u32, offset: u64, len: u32) -> Self {
        Self {
            offset,
            timestamp: 0,
            frame_len: len,
            payload_len: len,
            wire_len: len,
            slab,
            interface: 0,
            flags: 0,
            payload_offset: 0,
            source_port: 0,
            destination_port: 0,
            vlan: 0,
            source: [0; 16],
            destination: [0; 16],
            clock: 0,
            family: 0,
            reserved: [0; 6],
        }
    }

    /// Sets the source address and port, and the family.
    pub fn set_source(&mut self, address: IpAddr, port: u16) {
        self.family = store(&mut self.source, address);
        self.source_port = port;
    }

    /// Sets the destination address and port, and the family.
    pub fn set_destination(&mut self, address: IpAddr, port: u16) {
        self.family = store(&mut self.destination, address);
        self.destination_port = port;
    }

    /// Sets the time of arrival.
    pub fn set_timestamp(&mut self, timestamp: Timestamp) {
        (self.clock, self.timestamp) = timestamp.parts();
    }

    fn address(&self, bytes: &[u8; 16]) -> Option<IpAddr> {
        match self.family {
            4 => Some(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            6 => Some(Ipv6Addr::from(*bytes).into()),
            _ => None,
        }
    }

    fn socket_address(&self, bytes: &[u8; 16], port: u16) -> Option<SocketAddr> {
        Some(match self.address(bytes)? {
            IpAddr::V4(address) => SocketAddr::from((address, port)),
            IpAddr::V6(address) => {
                let scoped = address.is_unicast_link_local() || address.is_multicast();
                let scope = if scoped { self.interface } else { 0 };
                SocketAddrV6::new(address, port, 0, scope).into()
            }
        })
    }
}

fn store(bytes: &mut [u8; 16], address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(address) => {
            *bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            4
        }
        IpAddr::V6(address) => {
            *bytes = address.octets();
            6
        }
    }
}

/// The memory that the descriptors of one batch point into.
#[derive(Clone, Copy, Debug)]
pub enum Slabs<'a> {
    /// One slab, number 0.
    One(Slab<'a>),
    /// Any number of slabs, by their place.
    Many(&'a [Slab<'a>]),
}

impl<'a> Slabs<'a> {
    fn get(&self, at: u32) -> Option<Slab<'a>> {
        match self {
            Self::One(slab) => (at == 0).then_some(*slab),
            Self::Many(all) => all.get(at as usize).copied(),
        }
    }
}

impl<'a> From<&'a [u8]> for Slabs<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::One(Slab::from(bytes))
    }
}

/// Packets that a poll returned. They lie in the provider's memory and are gone with the next call on the receiver.
///
/// ```
/// # use lockgate::receive::Receiver;
/// fn two(receiver: &mut Receiver) -> lockgate::Result<usize> {
///     let first = receiver.poll()?.len();
///     let second = receiver.poll()?;
///     Ok(first + second.len())
/// }
/// ```
///
/// To keep the batch itself over another poll doesn't compile:
///
/// ```compile_fail
/// # use lockgate::receive::Receiver;
/// fn two(receiver: &mut Receiver) -> lockgate::Result<usize> {
///     let first = receiver.poll()?;
///     let second = receiver.poll()?;
///     Ok(first.len() + second.len())
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    slabs: Slabs<'a>,
    descriptors: &'a [Descriptor],
}

/// A descriptor that points outside of its slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "descriptor {index}: value slab {slab} offset {offset} length {len} payload {payload_offset}+{payload_len}; allowed: within the {} slab bytes",
    slab_len.map_or_else(|| "0 (no such slab)".to_owned(), |len| len.to_string())
)]
pub struct BadDescriptor {
    /// Its place in the batch.
    pub index: usize,
    /// The slab that it names.
    pub slab: u32,
    /// Its offset in the slab.
    pub offset: u64,
    /// Its captured length.
    pub len: u32,
    /// Where its payload starts.
    pub payload_offset: u16,
    /// How long its payload is.
    pub payload_len: u32,
    /// How long the slab is, if there is one of that number.
    pub slab_len: Option<usize>,
}

impl<'a> Batch<'a> {
    /// A batch without packets.
    pub const EMPTY: Batch<'static> = Batch {
        slabs: Slabs::Many(&[]),
        descriptors: &[],
    };

    /// Checks every descriptor against the slabs, once.
    ///
    /// # Errors
    /// The first descriptor that names no slab, or bytes outside of its slab.
    pub fn new(
        slabs: impl Into<Slabs<'a>>,
        descriptors: &'a [Descriptor],
    ) -> Result<Self, BadDescriptor> {
        let slabs = slabs.into();
        for (index, one) in descriptors.iter().enumerate() {
            let slab = slabs.get(one.slab);
            let payload_end = u64::from(one.payload_offset) + u64::from(one.payload_len);
            let fits = slab.is_some_and(|slab| slab.holds(one.offset, u64::from(one.frame_len)))
                && payload_end <= u64::from(one.frame_len);
            if !fits {
                return Err(BadDescriptor {
                    index,
                    slab: one.slab,
                    offset: one.offset,
                    len: one.frame_len,
                    payload_offset: one.payload_offset,
                    payload_len: one.payload_len,
                    slab_len: slab.map(|slab| slab.len()),
                });
            }
        }
        Ok(Self { slabs, descriptors })
    }

    /// How many packets.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.descriptors.len()
    }

    /// Whether nothing has arrived yet. That is not a failure.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.descriptors.is_empty()
    }

    /// The packet at a place.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<Packet<'a>> {
        self.descriptors.get(at).map(|one| self.view(one))
    }

    /// The packets, in the order in which the provider saw them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Packet<'a>> + use<'a> {
        let batch = *self;
        self.descriptors.iter().map(move |one| batch.view(one))
    }

    /// The raw descriptors.
    #[must_use]
    pub const fn descriptors(&self) -> &'a [Descriptor] {
        self.descriptors
    }

    /// The memory that they point into.
    #[must_use]
    pub const fn slabs(&self) -> Slabs<'a> {
        self.slabs
    }

    /// The first `len` packets, or all if there are fewer.
    #[must_use]
    pub fn truncate(self, len: usize) -> Self {
        Self {
            descriptors: self.descriptors.get(..len).unwrap_or(self.descriptors),
            ..self
        }
    }

    #[inline]
    fn view(&self, descriptor: &'a Descriptor) -> Packet<'a> {
        let slab = match self.slabs {
            Slabs::One(slab) => slab,
            // `new` has looked every number up.
            Slabs::Many(all) => all[descriptor.slab as usize],
        };
        Packet { slab, descriptor }
    }
}

impl fmt::Debug for Batch<'_> {
    /// Counts and lengths, never contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for Batch<'a> {
    type Item = Packet<'a>;
    type IntoIter = Packets<'a>;

    fn into_iter(self) -> Packets<'a> {
        Packets { batch: self, at: 0 }
    }
}

/// Goes over the packets of a batch.
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    batch: Batch<'a>,
    at: usize,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    fn next(&mut self) -> Option<Packet<'a>> {
        let packet = self.batch.get(self.at)?;
        self.at += 1;
        Some(packet)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.batch.len() - self.at;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Packets<'_> {}

/// What is known of a packet's UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Checksum {
    /// The sender sent none.
    Absent,
    /// It is wrong.
    Bad,
    /// It was verified.
    Good,
    /// Nobody told.
    Unknown,
}

/// One packet of a batch.
#[derive(Clone, Copy)]
pub struct Packet<'a> {
    slab: Slab<'a>,
    descriptor: &'a Descriptor,
}

impl<'a> Packet<'a> {
    /// The UDP payload.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let one = self.descriptor;
        checked(
            self.slab,
            one.offset + u64::from(one.payload_offset),
            one.payload_len,
        )
    }

    /// The whole Ethernet frame, where the provider has it.
    #[must_use]
    pub fn frame(&self) -> Option<&'a [u8]> {
        (self.descriptor.flags & Descriptor::FRAME != 0).then(|| self.captured())
    }

    /// The whole IP packet without a link-layer header, where that is what the provider has.
    #[must_use]
    pub fn ip_packet(&self) -> Option<&'a [u8]> {
        (self.descriptor.flags & Descriptor::IP_PACKET != 0).then(|| self.captured())
    }

    /// Everything that was captured: the frame, the IP packet or the payload.
    #[must_use]
    pub fn captured(&self) -> &'a [u8] {
        checked(self.slab, self.descriptor.offset, self.descriptor.frame_len)
    }

    /// Where it came from.
    #[must_use]
    pub fn source(&self) -> Option<SocketAddr> {
        self.descriptor
            .socket_address(&self.descriptor.source, self.descriptor.source_port)
    }

    /// Where it was sent to: the group, or the unicast address.
    #[must_use]
    pub fn destination(&self) -> Option<SocketAddr> {
        self.descriptor.socket_address(
            &self.descriptor.destination,
            self.descriptor.destination_port,
        )
    }

    /// The VLAN that it was tagged with, 0 to 4095.
    #[must_use]
    pub fn vlan(&self) -> Option<u16> {
        (self.descriptor.flags & Descriptor::VLAN != 0).then_some(self.descriptor.vlan & 0x0fff)
    }

    /// When it arrived, and by which clock.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        Timestamp::from_parts(self.descriptor.clock, self.descriptor.timestamp)
    }

    /// What is known of its UDP checksum.
    #[must_use]
    pub const fn checksum(&self) -> Checksum {
        let flags = self.descriptor.flags;
        if flags & Descriptor::CHECKSUM_BAD != 0 {
            Checksum::Bad
        } else if flags & Descriptor::CHECKSUM_ABSENT != 0 {
            Checksum::Absent
        } else if flags & Descriptor::CHECKSUM_GOOD != 0 {
            Checksum::Good
        } else {
            Checksum::Unknown
        }
    }

    /// Whether its end is missing.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.descriptor.flags & Descriptor::TRUNCATED != 0
    }

    /// The kernel's index of the interface that it came in through.
    #[must_use]
    pub const fn interface(&self) -> Option<u32> {
        match self.descriptor.interface {
            0 => None,
            index => Some(index),
        }
    }

    /// The raw descriptor.
    #[must_use]
    pub const fn descriptor(&self) -> &'a Descriptor {
        self.descriptor
    }
}

impl fmt::Debug for Packet<'_> {
    /// Addresses and lengths, never contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet")
            .field("source", &self.source())
            .field("destination", &self.destination())
            .field("payload_len", &self.descriptor.payload_len)
            .field("timestamp", &self.timestamp())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame() -> (Vec<u8>, Descriptor) {
        let bytes: Vec<u8> = (0..64).collect();
        let mut one = Descriptor::payload(0, 10, 20);
        one.payload_offset = 5;
        one.payload_len = 15;
        one.flags = Descriptor::FRAME | Descriptor::VLAN | Descriptor::CHECKSUM_GOOD;
        one.vlan = 0xe07b;
        one.interface = 3;
        one.set_source("10.0.0.1".parse().unwrap(), 1234);
        one.set_destination("239.1.1.1".parse().unwrap(), 5000);
        (bytes, one)
    }

    #[test]
    fn a_view_shows_what_the_descriptor_says() {
        let (bytes, one) = frame();
        let all = [one];
        let batch = Batch::new(&bytes[..], &all).unwrap();
        let packet = batch.get(0).unwrap();
        assert_eq!(packet.payload(), &bytes[15..30]);
        assert_eq!(packet.frame(), Some(&bytes[10..30]));
        assert_eq!(packet.ip_packet(), None);
        assert_eq!(packet.source(), Some("10.0.0.1:1234".parse().unwrap()));
        assert_eq!(
            packet.destination(),
            Some("239.1.1.1:5000".parse().unwrap())
        );
        assert_eq!(packet.vlan(), Some(0x07b));
        assert_eq!(packet.checksum(), Checksum::Good);
        assert_eq!(packet.interface(), Some(3));
        assert_eq!(packet.timestamp(), Timestamp::Unavailable);
        assert!(batch.get(1).is_none());
        assert_eq!(batch.into_iter().len(), 1);
    }

    #[test]
    fn a_link_local_address_has_its_interface_as_scope() {
        let mut one = Descriptor::payload(0, 0, 0);
        one.interface = 7;
        one.set_source("fe80::1".parse().unwrap(), 9);
        let all = [one];
        let batch = Batch::new(&[][..], &all).unwrap();
        let source = batch.get(0).unwrap().source().unwrap();
        assert_eq!(
            source,
            SocketAddr::from(SocketAddrV6::new("fe80::1".parse().unwrap(), 9, 0, 7))
        );
    }

    #[test]
    fn no_descriptor_reaches_outside_of_its_slab() {
        let (bytes, good) = frame();
        let bad: [fn(&mut Descriptor); 6] = [
            |one| one.slab = 1,
            |one| one.offset = 45,
            |one| one.offset = u64::MAX,
            |one| one.frame_len = u32::MAX,
            |one| one.payload_len = 16,
            |one| one.payload_offset = u16::MAX,
        ];
        for (case, change) in bad.iter().enumerate() {
            let mut one = good;
            change(&mut one);
            let all = [good, one];
            let error = Batch::new(&bytes[..], &all).unwrap_err();
            assert_eq!(error.index, 1, "case {case}");
        }
        let slabs = [Slab::from(&bytes[..]), Slab::from(&bytes[..4])];
        let mut one = good;
        one.slab = 1;
        let all = [one];
        let error = Batch::new(Slabs::Many(&slabs), &all).unwrap_err();
        assert_eq!(error.slab_len, Some(4));
        assert!(
            error.to_string().contains("within the 4 slab bytes"),
            "{error}"
        );
    }

    #[test]
    fn the_layout_is_the_one_that_plugins_were_built_with() {
        use std::mem::offset_of;
        assert_eq!(align_of::<Descriptor>(), 8);
        assert_eq!(offset_of!(Descriptor, timestamp), 8);
        assert_eq!(offset_of!(Descriptor, frame_len), 16);
        assert_eq!(offset_of!(Descriptor, flags), 36);
        assert_eq!(offset_of!(Descriptor, payload_offset), 40);
        assert_eq!(offset_of!(Descriptor, source), 48);
        assert_eq!(offset_of!(Descriptor, destination), 64);
        assert_eq!(offset_of!(Descriptor, clock), 80);
    }
}
