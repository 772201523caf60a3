//! A receiver that delivers what a test wrote down, and a registry that opens it.
//!
//! Promises: it never sleeps, delivers one written batch a poll, and counts as the trait asks. Does not do: standing in for a
//! provider where the real one can run.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate::receive::{
    Batch, Descriptor, Event, PacketReceiver, Readiness, Receiver, ReceiverConfig, ReceiverFactory,
    Setting, Statistics,
};
use lockgate::registry::{
    Capabilities, Capability, Description, Factory, Kind, OpenContext, Registry,
};
use lockgate::{Errno, Error};

/// What the next polls find. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    steps: VecDeque<Step>,
    events: VecDeque<Event>,
    statistics: Statistics,
    closes: u32,
    close_error: Option<Errno>,
    forever: bool,
    polls: u64,
    waits: Vec<Option<Duration>>,
    /// Where the descriptors of the last batch lie.
    place: usize,
}

#[derive(Clone, Debug)]
enum Step {
    Batch(Vec<Given>),
    Error(Errno),
}

/// One packet: the captured bytes and what is said of them. Slab and offset are filled in.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptor: Descriptor,
}

impl Given {
    pub(crate) fn payload(bytes: &[u8]) -> Self {
        let mut descriptor = Descriptor::payload(0, 0, bytes.len() as u32);
        descriptor.set_source("192.0.2.7".parse().unwrap(), 4000);
        descriptor.set_destination("239.7.7.7".parse().unwrap(), 5000);
        Self {
            bytes: bytes.to_vec(),
            descriptor,
        }
    }

    pub(crate) fn number(number: u32) -> Self {
        Self::payload(&number.to_be_bytes())
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut Descriptor)) -> Self {
        change(&mut self.descriptor);
        self
    }
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The next poll finds these.
    pub(crate) fn batch(&self, packets: impl IntoIterator<Item = Given>) {
        let packets = packets.into_iter().collect();
        self.shared
            .lock()
            .unwrap()
            .steps
            .push_back(Step::Batch(packets));
    }

    /// The next poll finds packets with these numbers as their payload.
    pub(crate) fn numbers(&self, numbers: impl IntoIterator<Item = u32>) {
        self.batch(numbers.into_iter().map(Given::number));
    }

    /// The next poll fails.
    pub(crate) fn error(&self, errno: Errno) {
        self.shared
            .lock()
            .unwrap()
            .steps
            .push_back(Step::Error(errno));
    }

    /// The last written batch comes again with every poll, without an allocation.
    pub(crate) fn forever(&self) {
        self.shared.lock().unwrap().forever = true;
    }

    pub(crate) fn event(&self, event: Event) {
        self.shared.lock().unwrap().events.push_back(event);
    }

    pub(crate) fn lose(&self, kernel_drop: u64) {
        self.shared.lock().unwrap().statistics.losses.kernel_drop = Some(kernel_drop);
    }

    pub(crate) fn fail_close(&self, errno: Errno) {
        self.shared.lock().unwrap().close_error = Some(errno);
    }

    pub(crate) fn closes(&self) -> u32 {
        self.shared.lock().unwrap().closes
    }

    pub(crate) fn polls(&self) -> u64 {
        self.shared.lock().unwrap().polls
    }

    pub(crate) fn waits(&self) -> Vec<Option<Duration>> {
        self.shared.lock().unwrap().waits.clone()
    }

    pub(crate) fn place(&self) -> usize {
        self.shared.lock().unwrap().place
    }

    /// The bare receiver.
    pub(crate) fn receiver(&self) -> Box<dyn PacketReceiver> {
        Box::new(Scripted {
            shared: Arc::clone(&self.shared),
            slab: Vec::new(),
            descriptors: Vec::new(),
        })
    }

    /// The receiver, opened through a registry.
    pub(crate) fn open(&self) -> Receiver {
        open(self.receiver())
    }
}

/// Opens a receiver that exists already through a registry of its own.
pub(crate) fn open(inner: Box<dyn PacketReceiver>) -> Receiver {
    let mut registry = Registry::new();
    registry
        .register(Arc::new(Once {
            inner: Mutex::new(Some(inner)),
            description: Description {
                name: "scripted".into(),
                version: "1".into(),
                summary: "delivers what a test wrote down".into(),
                kinds: vec![Kind::Receiver].into(),
                capabilities: Capabilities::of(&[
                    Capability::Ipv4,
                    Capability::Unicast,
                    Capability::EventWait,
                    Capability::AnyInterface,
                ]),
                origin: lockgate::linked_origin!(),
            },
        }))
        .unwrap();
    let config = ReceiverConfig::unicast("127.0.0.1:9".parse().unwrap());
    registry.open_receiver("scripted", &config).unwrap()
}

/// The numbers that the packets of one poll carry.
pub(crate) fn polled(receiver: &mut dyn PacketReceiver) -> Vec<u32> {
    numbers(receiver.poll().unwrap())
}

/// The numbers that the packets of a batch carry.
pub(crate) fn numbers(batch: Batch<'_>) -> Vec<u32> {
    batch
        .iter()
        .map(|packet| u32::from_be_bytes(packet.payload()[..4].try_into().unwrap()))
        .collect()
}

struct Once {
    inner: Mutex<Option<Box<dyn PacketReceiver>>>,
    description: Description,
}

impl Factory for Once {
    fn description(&self) -> &Description {
        &self.description
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for Once {
    fn open(
        &self,
        _: &ReceiverConfig,
        _: &OpenContext<'_>,
    ) -> lockgate::Result<Box<dyn PacketReceiver>> {
        Ok(self.inner.lock().unwrap().take().unwrap())
    }
}

struct Scripted {
    shared: Arc<Mutex<Shared>>,
    slab: Vec<u8>,
    descriptors: Vec<Descriptor>,
}

impl PacketReceiver for Scripted {
    fn poll(&mut self) -> lockgate::Result<Batch<'_>> {
        let mut shared = self.shared.lock().unwrap();
        shared.polls += 1;
        match shared.steps.pop_front() {
            Some(Step::Batch(packets)) => {
                self.slab.clear();
                self.descriptors.clear();
                for packet in packets {
                    let mut one = packet.descriptor;
                    one.offset = self.slab.len() as u64;
                    self.slab.extend_from_slice(&packet.bytes);
                    self.descriptors.push(one);
                }
            }
            Some(Step::Error(errno)) => return Err(Error::from_errno("poll", errno)),
            None if shared.forever => {}
            None => return Ok(Batch::EMPTY),
        }
        if !self.descriptors.is_empty() {
            shared.statistics.batches += 1;
        }
        for one in &self.descriptors {
            shared.statistics.packets += 1;
            shared.statistics.bytes += u64::from(one.payload_len);
        }
        shared.place = self.descriptors.as_ptr().addr();
        drop(shared);
        Ok(Batch::new(&self.slab[..], &self.descriptors).unwrap())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> lockgate::Result<Readiness> {
        let mut shared = self.shared.lock().unwrap();
        shared.waits.push(timeout);
        Ok(if shared.steps.is_empty() && !shared.forever {
            Readiness::TimedOut
        } else {
            Readiness::Ready
        })
    }

    fn statistics(&mut self) -> Statistics {
        self.shared.lock().unwrap().statistics
    }

    fn take_event(&mut self) -> Option<Event> {
        self.shared.lock().unwrap().events.pop_front()
    }

    fn settings(&self) -> Vec<Setting> {
        vec![Setting {
            name: "scripted",
            asked: "yes".to_owned(),
            granted: "yes".to_owned(),
            warning: None,
        }]
    }

    fn close(&mut self) -> lockgate::Result<()> {
        let mut shared = self.shared.lock().unwrap();
        shared.closes += 1;
        match shared.close_error {
            Some(errno) => Err(Error::from_errno("close", errno)),
            None => Ok(()),
        }
    }
}

/// A receiver over a socket of the standard library: for what needs a descriptor of the kernel's.
pub(crate) struct SocketReceiver {
    socket: Option<std::net::UdpSocket>,
    batch: usize,
    slab: Vec<u8>,
    descriptors: Vec<Descriptor>,
    statistics: Statistics,
}

impl SocketReceiver {
    const LONGEST: usize = 2048;

    /// A receiver on a port of its own, and a socket that sends to it.
    pub(crate) fn pair(batch: usize) -> (Box<dyn PacketReceiver>, std::net::UdpSocket) {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(socket.local_addr().unwrap()).unwrap();
        let receiver = Self {
            socket: Some(socket),
            batch,
            slab: vec![0; batch * Self::LONGEST],
            descriptors: Vec::with_capacity(batch),
            statistics: Statistics::default(),
        };
        (Box::new(receiver), sender)
    }
}

impl PacketReceiver for SocketReceiver {
    fn poll(&mut self) -> lockgate::Result<Batch<'_>> {
        let socket = self.socket.as_ref().unwrap();
        self.descriptors.clear();
        while self.descriptors.len() < self.batch {
            let start = self.descriptors.len() * Self::LONGEST;
            match socket.recv_from(&mut self.slab[start..start + Self::LONGEST]) {
                Ok((len, from)) => {
                    let mut one = Descriptor::payload(0, start as u64, len as u32);
                    one.set_source(from.ip(), from.port());
                    self.descriptors.push(one);
                    self.statistics.packets += 1;
                    self.statistics.bytes += len as u64;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(Error::from_io("receive", error)),
            }
        }
        self.statistics.batches += u64::from(!self.descriptors.is_empty());
        Ok(Batch::new(&self.slab[..], &self.descriptors).unwrap())
    }

    fn wait(&mut self, _: Option<Duration>) -> lockgate::Result<Readiness> {
        unreachable!("these tests wait on the descriptor")
    }

    fn readiness_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        self.socket.as_ref().map(std::os::fd::AsFd::as_fd)
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }

    fn close(&mut self) -> lockgate::Result<()> {
        self.socket = None;
        Ok(())
    }
}
