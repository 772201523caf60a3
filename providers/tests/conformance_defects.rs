//! The conformance kit can fail: each defect that a provider may have, put around the reference, is found by the case that is
//! meant for it.
//!
//! One test, because the cases run as in a process of their own.
#![expect(clippy::unwrap_used, reason = "a panic here is a test's failure")]

mod equipment;

use std::borrow::Cow;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use equipment::loopback::Loopback;
use lockgate::receive::{
    Batch, ConfigFaults, Descriptor, Event, PacketReceiver, Readiness, ReceiverConfig,
    ReceiverFactory, Stamp, Statistics, Timestamp,
};
use lockgate::registry::{Capability, Description, Factory, OpenContext};
use lockgate::{Error, ErrorKind, Result};
use lockgate_conformance::{Checked, Equipment, Family, Outcome, Outgoing, run_case};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    BatchTooLong,
    ByteFlipped,
    CaptureLongerThanWire,
    DeliveredTwice,
    DescriptorOffered,
    DescriptorsLeaked,
    DestinationLost,
    EmptyIsAnError,
    EventWithoutCause,
    LossesForgotten,
    LossesUnknownLater,
    LostSilently,
    OptionsIgnored,
    OrderSwapped,
    PanicsInPoll,
    ReservedUsed,
    SourceFilterIgnored,
    StampedZero,
    StatisticsOneTooMany,
    SummaryMissing,
    ThreadsLeaked,
    TicketKept,
    UnclaimedCapabilityClaimed,
    ValidationForgetful,
    VlanIgnored,
    WaitForEver,
    WaitNever,
}

use Defect as D;

/// Which case has to find which defect.
const FOUND_BY: &[(Defect, &str, &str)] = &[
    (D::BatchTooLong, "batches", "stay_within_their_bound"),
    (D::ByteFlipped, "delivery", "is_exact_and_in_order"),
    (D::ByteFlipped, "delivery", "keeps_every_size"),
    (
        D::CaptureLongerThanWire,
        "batches",
        "lie_inside_their_slabs",
    ),
    (D::DeliveredTwice, "delivery", "is_exact_and_in_order"),
    (D::DescriptorOffered, "waiting", "offers_a_descriptor"),
    (D::DescriptorsLeaked, "closing", "leaks_nothing"),
    (
        D::DestinationLost,
        "delivery",
        "says_where_packets_came_from_and_went",
    ),
    (D::EmptyIsAnError, "batches", "may_be_empty"),
    (D::EventWithoutCause, "events", "are_silent_without_a_cause"),
    (D::LossesForgotten, "accounting", "adds_up_when_overrun"),
    (D::LossesForgotten, "accounting", "refuses_what_is_too_long"),
    (D::LossesUnknownLater, "accounting", "keeps_to_its_places"),
    (D::LostSilently, "delivery", "is_exact_and_in_order"),
    (D::LostSilently, "accounting", "adds_up_when_overrun"),
    (D::OptionsIgnored, "validation", "refuses_unknown_options"),
    (D::OrderSwapped, "delivery", "is_exact_and_in_order"),
    (D::PanicsInPoll, "delivery", "is_exact_and_in_order"),
    (D::ReservedUsed, "batches", "lie_inside_their_slabs"),
    (
        D::SourceFilterIgnored,
        "addressing",
        "keeps_other_sources_out",
    ),
    (D::StampedZero, "delivery", "stamps_nothing_unless_asked"),
    (D::StampedZero, "delivery", "stamps_with_the_system_clock"),
    (
        D::StatisticsOneTooMany,
        "accounting",
        "counts_what_was_delivered",
    ),
    (D::SummaryMissing, "describe", "names_what_it_is"),
    (D::ThreadsLeaked, "closing", "leaks_nothing"),
    (D::TicketKept, "opening", "works_by_name"),
    (
        D::UnclaimedCapabilityClaimed,
        "waiting",
        "offers_a_descriptor",
    ),
    (
        D::UnclaimedCapabilityClaimed,
        "delivery",
        "gives_whole_frames",
    ),
    (D::ValidationForgetful, "validation", "is_pure"),
    (D::VlanIgnored, "addressing", "selects_a_vlan"),
    (D::WaitForEver, "waiting", "times_out"),
    (D::WaitForEver, "waiting", "returns_at_once_for_no_time"),
    (D::WaitNever, "waiting", "times_out"),
];

#[test]
fn each_defect_is_found_by_its_case() {
    for (defect, subject, case) in FOUND_BY {
        let sound = run_case(&Loopback::new(), subject, case);
        assert!(
            matches!(sound, Some(Outcome::Passed | Outcome::Skipped(_))),
            "{subject}::{case} without a defect: {sound:?}"
        );
        let broken = run_case(&Broken::new(*defect), subject, case);
        assert!(
            matches!(broken, Some(Outcome::Failed(_))),
            "{subject}::{case} didn't find {defect:?}: {broken:?}"
        );
    }
}

/// The loopback equipment with a defect in its provider.
struct Broken {
    inner: Loopback,
    defect: Defect,
}

impl Broken {
    fn new(defect: Defect) -> Self {
        Self {
            inner: Loopback::new(),
            defect,
        }
    }
}

impl Equipment for Broken {
    fn provider(&self) -> &str {
        self.inner.provider()
    }

    fn factory(&self) -> Arc<dyn Factory> {
        let inner = self.inner.factory();
        let mut description = inner.description().clone();
        match self.defect {
            D::SummaryMissing => description.summary = Cow::Borrowed(""),
            D::UnclaimedCapabilityClaimed => {
                description.capabilities = description
                    .capabilities
                    .with(Capability::ReadinessFd)
                    .with(Capability::WholeFrame);
            }
            _ => {}
        }
        Arc::new(BrokenFactory {
            inner,
            description,
            defect: self.defect,
            calls: AtomicU32::new(0),
        })
    }

    fn config(&self) -> ReceiverConfig {
        self.inner.config()
    }

    fn send(&self, packet: &Outgoing<'_>) -> Checked {
        self.inner.send(packet)
    }

    fn sources(&self, family: Family) -> Vec<IpAddr> {
        self.inner.sources(family)
    }

    fn unicast(&self, family: Family) -> Checked<SocketAddr> {
        self.inner.unicast(family)
    }

    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32> {
        self.inner.overrun(config)
    }

    /// What is missing stays missing: waiting longer would only make this test slow.
    fn patience(&self) -> Duration {
        Duration::from_millis(200)
    }
}

struct BrokenFactory {
    inner: Arc<dyn Factory>,
    description: Description,
    defect: Defect,
    calls: AtomicU32,
}

impl Factory for BrokenFactory {
    fn description(&self) -> &Description {
        &self.description
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for BrokenFactory {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        match self.defect {
            D::OptionsIgnored => {}
            D::ValidationForgetful => {
                let call = self.calls.fetch_add(1, Ordering::Relaxed);
                faults.push("call", call, "is another one", "always the same");
            }
            _ => self.side().validate(config, faults),
        }
    }

    fn open(
        &self,
        config: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        let mut config = config.clone();
        match self.defect {
            D::OptionsIgnored => config.options = ReceiverConfig::default().options,
            D::VlanIgnored => config.vlan = None,
            D::SourceFilterIgnored => {
                for group in &mut config.groups {
                    group.sources.clear();
                }
            }
            D::BatchTooLong => config.batch = config.ring,
            D::DescriptorsLeaked => std::mem::forget(File::open("/dev/null").unwrap()),
            D::TicketKept => std::mem::forget(context.domain().admit()),
            D::ThreadsLeaked => drop(thread::spawn(thread::park)),
            _ => {}
        }
        Ok(Box::new(BrokenReceiver {
            inner: self.side().open(&config, context)?,
            defect: self.defect,
            seen: 0,
            bytes: Vec::new(),
            descriptors: Vec::new(),
            file: File::open("/dev/null").unwrap(),
        }))
    }
}

impl BrokenFactory {
    fn side(&self) -> &dyn ReceiverFactory {
        self.inner.receiver().unwrap()
    }
}

/// Copies every batch, so that it can be spoilt.
struct BrokenReceiver {
    inner: Box<dyn PacketReceiver>,
    defect: Defect,
    seen: u64,
    bytes: Vec<u8>,
    descriptors: Vec<Descriptor>,
    file: File,
}

impl BrokenReceiver {
    /// Copies one packet, spoilt. `seen` counts packets over all batches.
    fn copy(&mut self, payload: &[u8], mut one: Descriptor) {
        self.seen += 1;
        let tenth = self.seen.is_multiple_of(10);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(payload);
        one.offset = start as u64;
        match self.defect {
            D::ByteFlipped if self.bytes.len() > start => {
                let last = self.bytes.len() - 1;
                self.bytes[last] ^= 1;
            }
            D::CaptureLongerThanWire => one.wire_len = one.wire_len.saturating_sub(1),
            D::DestinationLost => one.destination_port = 0,
            D::LostSilently if tenth => return,
            D::ReservedUsed => one.reserved[5] = 1,
            D::StampedZero => one.set_timestamp(Timestamp::System(Stamp::from_raw(0))),
            D::DeliveredTwice if tenth => self.descriptors.push(one),
            _ => {}
        }
        self.descriptors.push(one);
    }
}

impl PacketReceiver for BrokenReceiver {
    fn poll(&mut self) -> Result<Batch<'_>> {
        assert_ne!(self.defect, D::PanicsInPoll, "the defect");
        let batch = self.inner.poll()?;
        let copies: Vec<(Vec<u8>, Descriptor)> = batch
            .iter()
            .map(|packet| (packet.payload().to_vec(), *packet.descriptor()))
            .collect();
        self.bytes.clear();
        self.descriptors.clear();
        if copies.is_empty() && self.defect == D::EmptyIsAnError {
            return Err(Error::new(ErrorKind::Resource, "poll"));
        }
        for (payload, descriptor) in copies {
            self.copy(&payload, descriptor);
        }
        if self.defect == D::OrderSwapped {
            self.descriptors.reverse();
        }
        Ok(Batch::new(&self.bytes[..], &self.descriptors).unwrap())
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        match self.defect {
            D::WaitForEver => Ok(Readiness::Ready),
            D::WaitNever => Ok(Readiness::TimedOut),
            _ => self.inner.wait(timeout),
        }
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        (self.defect == D::DescriptorOffered).then(|| self.file.as_fd())
    }

    fn statistics(&mut self) -> Statistics {
        let mut told = self.inner.statistics();
        match self.defect {
            D::LossesForgotten => {
                told.losses.ring_full = Some(0);
                told.losses.truncated = Some(0);
            }
            D::LossesUnknownLater if self.seen > 0 => told.losses.ring_full = None,
            D::StatisticsOneTooMany if self.seen > 0 => told.packets += 1,
            _ => {}
        }
        told
    }

    fn take_event(&mut self) -> Option<Event> {
        (self.defect == D::EventWithoutCause).then(|| Event::Other {
            text: "nothing".to_owned(),
        })
    }

    fn close(&mut self) -> Result<()> {
        self.inner.close()
    }
}
