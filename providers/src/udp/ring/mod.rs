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

use control::Ancillary;
use sys::Messages;

/// A coalesced buffer is at most one IP packet.
const COALESCED_BYTES: usize = 65_536;
/// How many coalesced buffers one call takes: 1 MiB of them.
const COALESCED_MESSAGES: usize = 16;

/// Which of the two stamps of a datagram counts, and by which clock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// The kernel's, by the system's clock.
    System,
    /// The device's, by a clock that nobody sets.
    DeviceFreeRunning,
    /// The device's, by its PTP clock.
    DeviceRealTime,
}

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
    cut: usize,
    /// The socket that each message came from; only for coalesced buffers, which may stay for a later poll.
    sockets: Box<[u32]>,
    buffer_bytes: usize,
    coalesced: bool,
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
            buffer_bytes,
            coalesced,
            refused: Refused::default(),
        })
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
        let parts = self.messages.parts();
        let arrived = parts.headers[first..first + got]
            .iter_mut()
            .zip(&parts.names[first..first + got])
            .zip(&parts.controls[first..first + got]);
        let mut offset = (first * self.buffer_bytes) as u64;
        for ((header, name), control) in arrived {
            let flags = header.msg_hdr.msg_flags;
            let len = header.msg_len;
            let ancillary = read(header, control);
            arm(header);
            let start = offset;
            offset += self.buffer_bytes as u64;
            let Some(mut one) = head(source, name, &ancillary, &mut self.refused) else {
                continue;
            };
            if flags & libc::MSG_TRUNC != 0 {
                self.refused.truncated += 1;
                continue;
            }
            one.offset = start;
            one.frame_len = len;
            one.payload_len = len;
            one.wire_len = len;
            self.descriptors[self.used] = one;
            self.used += 1;
        }
    }

    /// Writes descriptors of coalesced buffers while there are some and there is room. `sources` are the sockets', by their place.
    pub(super) fn split(&mut self, sources: &mut [Source]) {
        while self.taken < self.received && self.used < self.descriptors.len() {
            let at = self.taken;
            let parts = self.messages.parts();
            let header = &mut parts.headers[at];
            let len = header.msg_len as usize;
            let truncated = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let ancillary = read(header, &parts.controls[at]);
            let head = head(
                &mut sources[self.sockets[at] as usize],
                &parts.names[at],
                &ancillary,
                &mut self.refused,
            );
            self.refused.truncated += u64::from(truncated && head.is_some());
            if let Some(mut one) = head.filter(|_| !truncated) {
                let segment = ancillary.segment.unwrap_or(len);
                // At least one round: a datagram may be empty.
                loop {
                    let size = segment.min(len - self.cut);
                    one.offset = (at * self.buffer_bytes + self.cut) as u64;
                    one.frame_len = size as u32;
                    one.payload_len = one.frame_len;
                    one.wire_len = one.frame_len;
                    self.descriptors[self.used] = one;
                    self.used += 1;
                    self.cut += size;
                    if self.cut == len {
                        break;
                    }
                    if self.used == self.descriptors.len() {
                        // The rest comes with the next poll; the message stays as it is until then.
                        return;
                    }
                }
            }
            arm(header);
            self.cut = 0;
            self.taken += 1;
        }
    }
}

/// What came with a message.
#[inline]
fn read(header: &libc::mmsghdr, control: &sys::Control) -> Ancillary {
    match header.msg_hdr.msg_controllen {
        0 => Ancillary::default(),
        len => control::read(control.0.get(..len).unwrap_or(&control.0)),
    }
}

/// Makes a message ready for the next call: the kernel has overwritten the lengths.
#[inline]
fn arm(header: &mut libc::mmsghdr) {
    header.msg_hdr.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
    header.msg_hdr.msg_controllen = sys::CONTROL_BYTES;
}

/// The descriptor of a datagram but for its place and its length; nothing if its destination is not asked for.
#[inline]
fn head(
    source: &mut Source,
    name: &libc::sockaddr_in6,
    ancillary: &Ancillary,
    refused: &mut Refused,
) -> Option<Descriptor> {
    if let Some(drops) = ancillary.drops {
        source.drops.seen(drops);
    }
    let mut one = source.template;
    if let Some((destination, interface)) = ancillary.destination {
        one.destination = destination;
        one.interface = interface;
    }
    if let Some(only) = &source.only
        && only.binary_search(&one.destination).is_err()
    {
        refused.filtered += 1;
        return None;
    }
    // The port has the same place in both families' addresses.
    one.source_port = u16::from_be(name.sin6_port);
    if one.family == 4 {
        // An IPv4 address lies where an IPv6 one has its flow label.
        one.source[..4].copy_from_slice(&name.sin6_flowinfo.to_ne_bytes());
    } else {
        one.source = name.sin6_addr.s6_addr;
        // The kernel sets the scope for link-local sources only.
        if name.sin6_scope_id != 0 {
            one.interface = name.sin6_scope_id;
        }
    }
    if let Some(clock) = source.clock {
        let stamp = match clock {
            Clock::System => ancillary
                .software
                .map(|at| Timestamp::System(Stamp::from_raw(at))),
            Clock::DeviceFreeRunning => ancillary
                .hardware
                .map(|at| Timestamp::DeviceFreeRunning(Stamp::from_raw(at))),
            Clock::DeviceRealTime => ancillary
                .hardware
                .map(|at| Timestamp::DeviceRealTime(Stamp::from_raw(at))),
        };
        if let Some(stamp) = stamp {
            one.set_timestamp(stamp);
        }
    }
    Some(one)
}
