//! The file, its buffer and its counts.
//!
//! Promises: every packet that is handed in ends as recorded or unrecorded; after the first failure nothing is written any more.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use lockgate::Error;
use lockgate::clock::Clock;
use lockgate::receive::frame::Builder;
use lockgate::receive::{Batch, Checksum, Descriptor, Event, Packet, Setting, Timestamp};

use super::monitor::{Monitor, Shared};
use super::{Sink, block, errno};

/// Interfaces of the file for which there is room from the start.
const INTERFACES: usize = 64;
/// An Ethernet header with its two addresses and the EtherType, and the places of those.
const ETHERNET_LEN: usize = 14;
const ETHER_TYPE: usize = 12;
const VLAN_TAG_LEN: usize = 4;

pub(super) struct Log {
    target: String,
    /// Gone after the end.
    sink: Option<Box<dyn Sink>>,
    /// Whole blocks that are not written yet. Never grows.
    buffer: Vec<u8>,
    interfaces: Vec<Interface>,
    /// What stands in the file, in octets.
    written: u64,
    recorded: u64,
    pending: u64,
    unrecorded: u64,
    stopped: bool,
    event: Option<Event>,
    shared: Arc<Shared>,
}

/// What makes an interface of the file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Interface {
    form: Form,
    clock: Time,
    index: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Frame,
    Ip,
    Payload,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Time {
    Device,
    Poll,
    System,
}

impl Log {
    /// Writes the section header, so that even a recording without packets is a capture.
    pub(super) fn start(
        target: String,
        mut sink: Box<dyn Sink>,
        capacity: usize,
    ) -> std::io::Result<Self> {
        let mut buffer = Vec::with_capacity(capacity);
        block::section(&mut buffer);
        sink.write_all(&buffer)?;
        sink.flush()?;
        let written = buffer.len() as u64;
        buffer.clear();
        let log = Self {
            target,
            sink: Some(sink),
            buffer,
            interfaces: Vec::with_capacity(INTERFACES),
            written,
            recorded: 0,
            pending: 0,
            unrecorded: 0,
            stopped: false,
            event: None,
            shared: Arc::default(),
        };
        log.publish();
        Ok(log)
    }

    pub(super) fn monitor(&self) -> Monitor {
        Monitor::new(&self.shared)
    }

    /// Whether something waits to be written.
    pub(super) fn is_pending(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Takes the packets of a batch.
    pub(super) fn batch(&mut self, batch: &Batch<'_>, clock: &dyn Clock) {
        if self.stopped {
            self.unrecorded += batch.len() as u64;
        } else {
            let mut polled = None;
            for packet in batch.iter() {
                self.packet(&packet, &mut polled, clock);
            }
        }
        self.publish();
    }

    fn packet(&mut self, packet: &Packet<'_>, polled: &mut Option<u64>, clock: &dyn Clock) {
        let one = packet.descriptor();
        let (time, nanos) = match packet.timestamp() {
            Timestamp::System(stamp) => (Time::System, stamp.raw()),
            Timestamp::DeviceRealTime(stamp) => (Time::Device, stamp.raw()),
            _ => (Time::Poll, *polled.get_or_insert_with(|| wall(clock))),
        };
        let (form, captured) = if let Some(frame) = packet.frame() {
            let tag = missing_tag(packet).map_or(0, |_| VLAN_TAG_LEN);
            (Form::Frame, frame.len() + tag)
        } else if let Some(ip_packet) = packet.ip_packet() {
            (Form::Ip, ip_packet.len())
        } else {
            match made(packet) {
                Some(builder) => (Form::Payload, builder.len(packet.payload().len())),
                // More payload than an IP packet holds; a provider that delivers such has not got it from a network.
                None => {
                    self.unrecorded += 1;
                    return;
                }
            }
        };
        // The buffer holds it, so it is far below 2^32.
        let wire_len = (captured as u32).saturating_add(missing(packet));
        let needed = block::PACKET_FRAME + captured + 3 + block::INTERFACE_MOST;
        if self.buffer.capacity() - self.buffer.len() < needed {
            self.flush();
        }
        if self.stopped || self.buffer.capacity() < needed {
            self.unrecorded += 1;
            return;
        }
        let interface = self.interface(Interface {
            form,
            clock: time,
            index: one.interface,
        });
        let data = |to: &mut Vec<u8>| match form {
            Form::Frame => append_frame(to, packet),
            Form::Ip => to.extend_from_slice(packet.captured()),
            Form::Payload => append_made(to, packet),
        };
        block::packet(
            &mut self.buffer,
            interface,
            nanos,
            captured as u32,
            wire_len,
            data,
        );
        self.pending += 1;
    }

    /// The number of an interface in the file, which is described first if it is new.
    fn interface(&mut self, interface: Interface) -> u32 {
        let known = self.interfaces.iter().position(|one| *one == interface);
        let number = known.unwrap_or_else(|| {
            let link = match interface.form {
                Form::Frame => block::ETHERNET,
                Form::Ip | Form::Payload => block::RAW,
            };
            let form = match interface.form {
                Form::Frame => "frames",
                Form::Ip => "IP packets",
                Form::Payload => "payload under headers made from the socket's addresses",
            };
            let time = match interface.clock {
                Time::Device => "device clock, real time",
                Time::Poll => "system clock at the poll",
                Time::System => "system clock",
            };
            let index = interface.index;
            block::interface(
                &mut self.buffer,
                link,
                format_args!("interface index {index}; {form}; time: {time}"),
            );
            self.interfaces.push(interface);
            self.interfaces.len() - 1
        });
        number as u32
    }

    /// Writes the buffer. Does nothing if it is empty, or if the recording has stopped.
    pub(super) fn flush(&mut self) {
        let Some(sink) = self.sink.as_mut().filter(|_| !self.stopped) else {
            return;
        };
        if self.buffer.is_empty() {
            return;
        }
        let mut done = 0;
        while done < self.buffer.len() {
            match sink.write(&self.buffer[done..]) {
                Ok(0) => {
                    self.stop(done, std::io::ErrorKind::WriteZero.into());
                    return;
                }
                Ok(len) => done += len,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.stop(done, error);
                    return;
                }
            }
        }
        if let Err(error) = sink.flush() {
            self.stop(done, error);
            return;
        }
        self.written += done as u64;
        self.recorded += std::mem::take(&mut self.pending);
        self.buffer.clear();
        self.publish();
    }

    /// Writes the buffer and lets go of the file. Doing it again does nothing.
    pub(super) fn end(&mut self) {
        self.flush();
        self.stopped = true;
        self.sink = None;
    }

    /// Ends the recording after `done` octets of the buffer were written.
    #[cold]
    fn stop(&mut self, done: usize, error: std::io::Error) {
        let (whole, packets) = block::whole(&self.buffer, done);
        self.stopped = true;
        self.written += whole as u64;
        self.recorded += packets;
        self.unrecorded += std::mem::take(&mut self.pending) - packets;
        self.buffer.clear();
        let errno = errno(&error);
        let mut problem = error.to_string();
        let cut = self.sink.as_mut().map(|sink| sink.cut(self.written));
        if let Some(Err(error)) = cut {
            problem = format!("{problem}; its last block may be torn: {error}");
        }
        self.event = Some(Event::RecordingStopped {
            target: self.target.clone(),
            errno,
            problem: problem.clone(),
        });
        let error = Error::from_io("write recording", error)
            .with_object(self.target.clone())
            .with_detail(problem)
            .with_remedy("packets are still delivered; make room and open a new recording");
        tracing::error!(%error, recorded = self.recorded, "recording stopped");
        self.shared.fail(error);
        self.publish();
    }

    pub(super) fn take_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    pub(super) fn setting(&self) -> Setting {
        let (granted, warning) = match self.shared.failure() {
            None if self.unrecorded == 0 => (self.target.clone(), None),
            None => (
                self.target.clone(),
                Some(format!(
                    "{} packets did not fit into an IP packet",
                    self.unrecorded
                )),
            ),
            Some(failure) => (
                format!("stopped after {} packets", self.recorded),
                Some(format!(
                    "{failure}; {} packets are not recorded",
                    self.unrecorded
                )),
            ),
        };
        Setting {
            name: "record",
            asked: self.target.clone(),
            granted,
            warning,
        }
    }

    fn publish(&self) {
        self.shared
            .set(self.recorded, self.pending, self.unrecorded, self.written);
    }
}

/// The time of day in nanoseconds since 1970.
fn wall(clock: &dyn Clock) -> u64 {
    let since = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
    // 2^64 ns end in the year 2554.
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The control information of a VLAN tag that the frame came with and does not have any more.
fn missing_tag(packet: &Packet<'_>) -> Option<u16> {
    let one = packet.descriptor();
    let frame = packet.frame()?;
    let ether_type = frame.get(ETHER_TYPE..ETHERNET_LEN)?;
    let tagged = matches!(ether_type, [0x81, 0x00] | [0x88, 0xa8] | [0x91, 0x00]);
    (one.flags & Descriptor::VLAN != 0 && !tagged).then_some(one.vlan)
}

fn append_frame(to: &mut Vec<u8>, packet: &Packet<'_>) {
    let frame = packet.captured();
    match missing_tag(packet) {
        Some(vlan) => {
            let (addresses, rest) = frame.split_at(ETHER_TYPE);
            to.extend_from_slice(addresses);
            to.extend([0x81, 0x00]);
            to.extend(vlan.to_be_bytes());
            to.extend_from_slice(rest);
        }
        None => to.extend_from_slice(frame),
    }
}

/// How many octets were on the wire and were not captured.
fn missing(packet: &Packet<'_>) -> u32 {
    let one = packet.descriptor();
    one.wire_len.saturating_sub(one.frame_len)
}

/// What makes the headers of a payload; nothing if it is too long for an IP packet.
fn made(packet: &Packet<'_>) -> Option<Builder> {
    let one = packet.descriptor();
    let unknown = |port| SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    let source = packet.source().unwrap_or(unknown(one.source_port));
    let destination = packet
        .destination()
        .unwrap_or(unknown(one.destination_port));
    let builder = Builder::udp(source, destination).ok()?;
    // The sum over octets that are missing can't be known.
    let builder = if packet.checksum() == Checksum::Absent || missing(packet) > 0 {
        builder.without_checksum()
    } else {
        builder
    };
    (packet.payload().len() <= builder.max_payload()).then_some(builder)
}

fn append_made(to: &mut Vec<u8>, packet: &Packet<'_>) {
    let Some(builder) = made(packet) else {
        // Not reached: the caller has made it before.
        return;
    };
    let (start, payload) = (to.len(), packet.payload());
    to.resize(start + builder.len(payload.len()), 0);
    let out = &mut to[start..];
    // It fits: `made` has compared the length, and `out` was measured for it.
    let _ = builder.write(payload, out);
    if missing(packet) > 0 {
        let payload_len = (payload.len() as u32).saturating_add(missing(packet));
        announce(out, payload_len, builder.len(0));
    }
}

/// Writes the length on the wire into the headers of a packet whose end is missing, as far as 16 bits hold it.
fn announce(packet: &mut [u8], payload: u32, head: usize) {
    const UDP_LEN: u32 = 8;
    let length = |len: u32| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let ip_len = head - UDP_LEN as usize;
    packet[ip_len + 4..ip_len + 6].copy_from_slice(&length(payload.saturating_add(UDP_LEN)));
    if packet[0] >> 4 == 4 {
        packet[2..4].copy_from_slice(&length(payload.saturating_add(head as u32)));
        packet[10..12].fill(0);
        let words = packet[..ip_len].chunks_exact(2);
        let sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        // Ten words of 16 bits: two folds take every carry.
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    } else {
        packet[4..6].copy_from_slice(&length(payload.saturating_add(UDP_LEN)));
    }
}
