//! From the bytes of a frame to a descriptor, or to the place where the packet is counted as lost.
//!
//! Promises: one place for each refused packet; nothing that the configuration does not name is delivered, whatever let it
//! through before. Does not do: reading rings.

use lockgate::receive::frame::{self, Addresses, Checksum, Frame, Origin, Place, Policy, VlanTag};
use lockgate::receive::{Descriptor, ReceiverConfig, Timestamp};

use super::selection::Selection;

/// What is known about a frame beside its bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    /// Where it lies in the slab.
    pub(crate) offset: u64,
    /// How long it was on the wire.
    pub(crate) wire_len: u32,
    /// What is known of its sum.
    pub(crate) origin: Origin,
    /// The tag that the kernel took out of it.
    pub(crate) tag: Option<VlanTag>,
    /// When it arrived.
    pub(crate) stamp: Timestamp,
}

/// Packets that arrived and were refused, by place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) truncated: u64,
    pub(crate) filtered: u64,
    pub(crate) checksum: u64,
    pub(crate) fragment: u64,
    pub(crate) malformed: u64,
}

/// Decides about frames.
#[derive(Debug)]
pub(crate) struct Judge {
    policy: Policy,
    selection: Selection,
    most: u32,
    /// What all packets have in common.
    template: Descriptor,
    pub(crate) refused: Refused,
    /// Payload of all that were taken, in bytes.
    pub(crate) bytes: u64,
}

impl Judge {
    /// For a configuration that has passed validation, and the interface of this index.
    pub(crate) fn new(config: &ReceiverConfig, selection: Selection, interface: u32) -> Self {
        let template = Descriptor {
            flags: Descriptor::FRAME,
            interface,
            ..Descriptor::default()
        };
        Self {
            policy: Policy::from(config.checksums),
            selection,
            most: config.buffer_bytes,
            template,
            refused: Refused::default(),
            bytes: 0,
        }
    }

    /// The interface came back under another index.
    #[cfg(feature = "packet")]
    pub(crate) fn set_interface(&mut self, index: u32) {
        self.template.interface = index;
    }

    /// Writes the descriptor of a frame. Answers whether it is one to deliver; if not, it has been counted.
    #[inline]
    pub(crate) fn takes(&mut self, bytes: &[u8], arrival: &Arrival, one: &mut Descriptor) -> bool {
        // A captured frame is no longer than its ring's slots, which fit.
        let captured = bytes.len() as u32;
        if arrival.wire_len > self.most || captured != arrival.wire_len {
            return self.cut(captured, arrival.wire_len);
        }
        let policy = self.policy.delivered(arrival.origin);
        let frame = match frame::parse(bytes, &policy) {
            Ok(frame) => frame,
            Err(reject) => return self.refuse(reject.place()),
        };
        let outer = arrival.tag.or(frame.vlan.outer());
        if !self.selection.takes(&frame, outer) {
            self.refused.filtered += 1;
            return false;
        }
        *one = self.template;
        describe(one, &frame, outer);
        one.offset = arrival.offset;
        one.frame_len = captured;
        one.wire_len = captured;
        one.set_timestamp(arrival.stamp);
        self.bytes += u64::from(frame.payload_len);
        true
    }

    /// A slot of the ring that contradicts itself.
    #[cold]
    pub(crate) fn broken(&mut self) {
        self.refused.malformed += 1;
    }

    #[cold]
    fn cut(&mut self, captured: u32, wire_len: u32) -> bool {
        if captured > wire_len {
            self.refused.malformed += 1;
        } else {
            self.refused.truncated += 1;
        }
        false
    }

    #[cold]
    fn refuse(&mut self, place: Place) -> bool {
        let refused = &mut self.refused;
        let count = match place {
            Place::Checksum => &mut refused.checksum,
            Place::Fragment => &mut refused.fragment,
            Place::NotIp | Place::NotUdp => &mut refused.filtered,
            // The whole frame is there: a packet that says to be longer contradicts it. What is not supported ends here too.
            _ => &mut refused.malformed,
        };
        *count += 1;
        false
    }
}

#[inline]
fn describe(one: &mut Descriptor, frame: &Frame, outer: Option<VlanTag>) {
    match frame.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            one.family = 4;
            one.source[..4].copy_from_slice(&source.octets());
            one.destination[..4].copy_from_slice(&destination.octets());
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            one.family = 6;
            one.source = source.octets();
            one.destination = destination.octets();
        }
    }
    one.source_port = frame.source_port;
    one.destination_port = frame.destination_port;
    one.payload_len = frame.payload_len;
    // Two tags, 40 octets of IPv6 and at most 8 extension headers of at most 2,048 octets each stay below 65,536.
    one.payload_offset = frame.payload_offset as u16;
    if let Some(tag) = outer {
        one.flags |= Descriptor::VLAN;
        one.vlan = tag.tci;
    }
    one.flags |= match frame.udp_checksum {
        Checksum::Verified | Checksum::Vouched => Descriptor::CHECKSUM_GOOD,
        Checksum::Bad => Descriptor::CHECKSUM_BAD,
        Checksum::Absent | Checksum::Zero => Descriptor::CHECKSUM_ABSENT,
        _ => 0,
    };
}
