//! Datagrams of one poll: received in bulk, and written straight into descriptors.
//!
//! Promises: no allocation after construction, no copy of a payload. A coalesced buffer becomes one descriptor for each of its
//! datagrams, and those that don't fit into this poll come with the next one, before anything is received over them. A
//! datagram that was cut is counted and not delivered. Does not do: choosing sockets; the receiver does.

mod control;
mod sys;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;

use lockgate::receive::{Descriptor, Stamp, Timestamp};
use lockgate::{Errno, Result};

pub(super) use crate::kernel::Clock;
use control::{Message, Stamps};
use sys::{Control, Messages};

/// A coalesced buffer is at most one IP packet.
const COALESCED_BYTES: usize = 65_536;
/// How many coalesced buffers one call takes: 1 MiB of them.
const COALESCED_MESSAGES: usize = 16;

/// What all datagrams of one socket have in common.
pub(super) struct Source {
    /// Family, destination, port and interface, as far as they are known beforehand.
    pub(super) template: Descriptor,
    /// Only these destinations are delivered, in order; any if `None`.
    pub(super) only: Option<Box<[[u8; 16]]>>,
    /// Whose time stamps are taken.
    pub(super) clock: Option<Clock>,
    /// The kernel's drop counter.
    pub(super) drops: Drops,
}

/// A counter of 32 bits that the kernel keeps, made into one of 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drops {
    last: u32,
    total: u64,
}

impl Drops {
    /// Takes in a value of the kernel's. An older one than the last changes nothing: a datagram carries the counter of the time when
    /// it was queued, which may be before the last direct look.
    #[inline]
    pub(super) fn seen(&mut self, value: u32) {
        let step = value.wrapping_sub(self.last);
        if step < 1 << 31 {
            self.last = value;
            self.total += u64::from(step);
        }
    }

    pub(super) fn total(self) -> u64 {
        self.total
    }
}

/// What was refused after it had arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) truncated: u64,
    pub(super) filtered: u64,
}

/// The memory of one receiver's polls.
pub(super) struct Ring {
    messages: Messages,
    descriptors: Box<[Descriptor]>,
    /// How many descriptors this poll has filled.
    used: usize,
    /// Messages before this one are free.
    taken: usize,
    /// Messages from here on are free.
    received: usize,
    /// How much of the message `taken` has been handed out.
    cut: u32,
    /// The socket that each message came from; only for coalesced buffers, which may stay for a later poll.
    sockets: Box<[u32]>,
    coalesced: bool,
    /// Whether what all datagrams have in common stands in the descriptors already.
    prepared: bool,
    /// Payload of all that was handed out.
    pub(super) bytes: u64,
    pub(super) refused: Refused,
}

impl Ring {
    /// Room for `batch` datagrams of `buffer_bytes`; with `coalesced` for buffers that hold many.
    pub(super) fn new(batch: usize, buffer_bytes: usize, coalesced: bool) -> Result<Self> {
        let (count, buffer_bytes) = if coalesced {
            (batch.min(COALESCED_MESSAGES), COALESCED_BYTES)
        } else {
            (batch, buffer_bytes)
        };
        Ok(Self {
            messages: Messages::new(count, buffer_bytes)?,
            descriptors: vec![Descriptor::default(); batch].into_boxed_slice(),
            used: 0,
            taken: 0,
            received: 0,
            cut: 0,
            sockets: vec![0; count].into_boxed_slice(),
            coalesced,
            prepared: false,
            bytes: 0,
            refused: Refused::default(),
        })
    }

    /// Writes what all datagrams of the only socket have in common into the descriptors, once for all polls.
    ///
    /// Not for sockets with packet information, which would leave one datagram's destination for the next.
    pub(super) fn prepare(&mut self, template: Descriptor) {
        if !self.coalesced {
            self.descriptors.fill(template);
            self.prepared = true;
        }
    }

    /// Starts a poll: the descriptors of the last one are free.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.used = 0;
        if self.taken == self.received {
            (self.taken, self.received) = (0, 0);
        }
    }

    /// Whether another call to [`receive`](Self::receive) can take something in this poll.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.used < self.descriptors.len() && self.received < self.messages.len()
    }

    /// Whether datagrams of an earlier call wait to be handed out.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.taken < self.received
    }

    /// The memory that the descriptors point into, and the descriptors of this poll.
    #[inline]
    pub(super) fn filled(&self) -> (&[u8], &[Descriptor]) {
        (self.messages.slab(), &self.descriptors[..self.used])
    }

    /// Receives once from a socket, as much as there is room for. `number` is the socket's place, for [`split`](Self::split).
    #[inline]
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        number: u32,
        source: &mut Source,
    ) -> Result<(), Errno> {
        let room = self.messages.len() - self.received;
        if self.coalesced {
            let got = self.messages.receive(fd, self.received, room)?;
            let end = self.received + got;
            self.sockets[self.received..end].fill(number);
            self.received = end;
        } else {
            let room = room.min(self.descriptors.len() - self.used);
            let got = self.messages.receive(fd, self.received, room)?;
            let first = self.received;
            self.received = first + got;
            self.taken = self.received;
            self.describe(first, got, source);
        }
        Ok(())
    }

    /// Writes the descriptors of `got` messages from `first` on, one each.
    #[inline]
    fn describe(&mut self, first: usize, got: usize, source: &mut Source) {
        let stride = self.messages.stride() as u64;
        let parts = self.messages.parts();
        let arrived = parts.headers[first..first + got]
            .iter_mut()
            .zip(&parts.names[first..first + got])
            .zip(&parts.controls[first..first + got]);
        // As many messages as there are free descriptors were asked for at most.
        let free = &mut self.descriptors[self.used..self.used + got];
        let (clock, prepared) = (source.clock, self.prepared);
        let always = usize::from(source.only.is_some() || clock.is_some());
        let mut offset = first as u64 * stride;
        let (mut kept, mut bytes) = (0, 0);
        for ((header, name), control) in arrived {
            let one = &mut free[kept];
            if !prepared {
                *one = source.template;
            }
            set_source(one, source, name);
            let len = header.msg_len;
            (one.frame_len, one.payload_len, one.wire_len) = (len, len, len);
            one.offset = offset;
            offset += stride;
            // Zero if there is nothing to look at: the usual case without time stamps, and settled by one comparison.
            let special = header.msg_hdr.msg_controllen | usize::from(is_cut(header)) | always;
            let control = arm(header, control);
            if special == 0
                || stamped(one, source, header, control)
                || annotate(one, source, header, control, &mut self.refused).is_some()
            {
                bytes += u64::from(len);
                kept += 1;
            }
            // What is not kept is written over by the next.
        }
        self.bytes += bytes;
        self.used += kept;
    }

    /// Writes descriptors of coalesced buffers while there are some and there is room. `sources` are the sockets', by their place.
    pub(super) fn split(&mut self, sources: &mut [Source]) {
        while self.taken < self.received && self.used < self.descriptors.len() {
            let at = self.taken;
            let parts = self.messages.parts();
            let header = &parts.headers[at];
            let source = &mut sources[self.sockets[at] as usize];
            let control = read(header, &parts.controls[at]);
            let mut one = source.template;
            set_source(&mut one, source, &parts.names[at]);
            let Some(segment) = annotate(&mut one, source, header, control, &mut self.refused)
            else {
                self.free();
                continue;
            };
            let left = header.msg_len - self.cut;
            let size = segment.unwrap_or(left).min(left);
            // All but the last are of one size. An empty datagram is one, too.
            let count = if size == 0 {
                1
            } else {
                left.div_ceil(size) as usize
            };
            let free = &mut self.descriptors[self.used..];
            let now = count.min(free.len());
            (one.frame_len, one.payload_len, one.wire_len) = (size, size, size);
            let mut offset = (at * self.messages.stride()) as u64 + u64::from(self.cut);
            for slot in &mut free[..now] {
                *slot = one;
                slot.offset = offset;
                offset += u64::from(size);
            }
            self.used += now;
            let whole = left.min(size * now as u32);
            self.bytes += u64::from(whole);
            self.cut += whole;
            if now == count {
                let last = &mut free[now - 1];
                let rest = size - (size * count as u32 - left);
                (last.frame_len, last.payload_len, last.wire_len) = (rest, rest, rest);
                self.free();
            }
            // Else the rest comes with the next poll, and the message stays as it is until then.
        }
    }

    /// Ends a coalesced buffer: its message may be received into again.
    fn free(&mut self) {
        let parts = self.messages.parts();
        arm(&mut parts.headers[self.taken], &parts.controls[self.taken]);
        self.cut = 0;
        self.taken += 1;
    }
}

/// The control messages that came with a message.
#[inline]
fn read<'a>(header: &libc::mmsghdr, control: &'a Control) -> &'a [u8] {
    let len = header.msg_hdr.msg_controllen;
    control.0.get(..len).unwrap_or(&control.0)
}

/// Makes a message ready for the next call, which needs the lengths that the kernel has overwritten. Answers the control messages.
#[inline]
fn arm<'a>(header: &mut libc::mmsghdr, control: &'a Control) -> &'a [u8] {
    let control = read(header, control);
    header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    header.msg_hdr.msg_controllen = sys::CONTROL_BYTES;
    control
}

/// Whether a datagram was longer than its buffer.
#[inline]
fn is_cut(header: &libc::mmsghdr) -> bool {
    header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0
}

#[inline]
fn set_source(one: &mut Descriptor, source: &Source, name: &libc::sockaddr_in6) {
    // The port has the same place in both families' addresses.
    one.source_port = u16::from_be(name.sin6_port);
    if source.template.family == 4 {
        // An IPv4 address lies where an IPv6 one has its flow label.
        one.source[..4].copy_from_slice(&name.sin6_flowinfo.to_ne_bytes());
    } else {
        one.source = name.sin6_addr.s6_addr;
        // The kernel sets the scope for link-local sources only.
        one.interface = match name.sin6_scope_id {
            0 => source.template.interface,
            scope => scope,
        };
    }
}

/// Adds what the control messages say. Answers the size of a segment, if the datagram is a coalesced buffer; nothing if it is
/// refused.
fn annotate(
    one: &mut Descriptor,
    source: &mut Source,
    header: &libc::mmsghdr,
    control: &[u8],
    refused: &mut Refused,
) -> Option<Option<u32>> {
    let mut segment = None;
    // In a prepared descriptor stands the last one's.
    one.set_timestamp(Timestamp::Unavailable);
    control::each(control, |message| match message {
        Message::Destination { address, interface } => {
            (one.destination, one.interface) = (address, interface);
        }
        Message::Drops(drops) => source.drops.seen(drops),
        Message::Segment(size) => segment = Some(size),
        Message::Stamps(stamps) => set_stamp(one, source.clock, stamps),
    });
    if let Some(only) = &source.only
        && only.binary_search(&one.destination).is_err()
    {
        refused.filtered += 1;
        return None;
    }
    if is_cut(header) {
        refused.truncated += 1;
        return None;
    }
    Some(segment)
}

/// Sets the time stamp and answers yes, if stamps are all that there is to look at: the usual case with time stamps.
#[inline]
fn stamped(one: &mut Descriptor, source: &Source, header: &libc::mmsghdr, control: &[u8]) -> bool {
    if source.only.is_some() || is_cut(header) {
        return false;
    }
    let stamps = control::only_stamps(control);
    if let Some(stamps) = stamps {
        set_stamp(one, source.clock, stamps);
    }
    stamps.is_some()
}

#[inline]
fn set_stamp(one: &mut Descriptor, clock: Option<Clock>, stamps: Stamps) {
    one.set_timestamp(match (clock, stamps) {
        // The kernel leaves a stamp that it did not take at zero.
        (Some(Clock::System), Stamps { software: raw, .. }) if raw != 0 => {
            Timestamp::System(Stamp::from_raw(raw))
        }
        (Some(Clock::DeviceFreeRunning), Stamps { hardware: raw, .. }) if raw != 0 => {
            Timestamp::DeviceFreeRunning(Stamp::from_raw(raw))
        }
        (Some(Clock::DeviceRealTime), Stamps { hardware: raw, .. }) if raw != 0 => {
            Timestamp::DeviceRealTime(Stamp::from_raw(raw))
        }
        _ => Timestamp::Unavailable,
    });
}
