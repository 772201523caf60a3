//! What the loopback provider says about itself, its options, and how it opens.
//!
//! Promises: describing and validating touch nothing; an open attaches one port to one network. Does not do: choosing a network.
//! A factory belongs to the network that made it, or to one of its own.

use std::borrow::Cow;
use std::sync::Arc;

use lockgate::clock::SystemClock;
use lockgate::fault::Plan;
use lockgate::receive::{ConfigFaults, PacketReceiver, ReceiverConfig, ReceiverFactory};
use lockgate::registry::{
    Capabilities, Capability, Description, Factory, Inspection, Kind, OpenContext,
};
use lockgate::{Error, ErrorKind, Result};
use serde::{Deserialize, Deserializer, de};

use super::attachment::Attachment;
use super::generate::{ALLOWED, Generate, Generator, stream};
use super::port::{Form, Port, Shared};
use super::receiver::LoopbackReceiver;
use super::{INTERFACE, NAME, Network, PAYLOAD_MAX, sys};

pub(super) const KINDS: &[Kind] = &[Kind::Receiver];

/// Rings beyond this much memory are refused: a mistake in one of the two numbers.
const RING_BYTES_MAX: u64 = 1 << 30;

const CAPABILITIES: Capabilities = Capabilities::of(&[
    Capability::AnyInterface,
    Capability::BusyPoll,
    Capability::EventWait,
    Capability::HardwareTimestamps,
    Capability::Ipv4,
    Capability::Ipv6,
    Capability::Multicast,
    Capability::SeveralGroups,
    Capability::SeveralPorts,
    Capability::SoftwareTimestamps,
    Capability::SourceFilter,
    Capability::Unicast,
    Capability::VlanFilter,
]);

/// The factory of one network's receivers.
pub(super) struct Loopback {
    description: Description,
    network: Network,
}

impl Loopback {
    pub(super) fn of(network: Network) -> Self {
        Self {
            description: Description {
                name: Cow::Borrowed(NAME),
                version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
                summary: Cow::Borrowed("a deterministic network inside the process"),
                kinds: Cow::Borrowed(KINDS),
                capabilities: match network.shared.form {
                    Form::Frames => CAPABILITIES.with(Capability::WholeFrame),
                    Form::Payloads => CAPABILITIES,
                },
                origin: lockgate::linked_origin!(),
            },
            network,
        }
    }

    /// With a network of its own on the system's clock, where nothing goes wrong.
    pub(super) fn alone() -> Self {
        let clock = Arc::new(SystemClock::new());
        Self::of(Network::new(clock, Plan::quiet()))
    }
}

impl Factory for Loopback {
    fn description(&self) -> &Description {
        &self.description
    }

    fn inspect(&self) -> Inspection {
        let attached = self.network.attached();
        Inspection::usable(vec![
            format!("interface {INTERFACE} inside the process"),
            format!("{attached} receivers attached"),
        ])
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for Loopback {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        if let Some(name) = config
            .interface
            .as_deref()
            .filter(|name| *name != INTERFACE)
        {
            let problem = "is not an interface of this provider";
            faults.push("interface", format!("{name:?}"), problem, INTERFACE);
        }
        if let Some(device) = &config.device {
            let allowed = "leave it out: this provider has no devices";
            faults.push("device", format!("{device:?}"), "is not a device", allowed);
        }
        let bytes = ring_bytes(config);
        if bytes > RING_BYTES_MAX {
            let problem = format!(
                "makes a ring of {bytes} bytes with buffer_bytes {}",
                config.buffer_bytes
            );
            let allowed = format!("ring times buffer_bytes at most {RING_BYTES_MAX}");
            faults.push("ring", config.ring, problem, allowed);
        }
        Settings::read(config, faults);
    }

    fn open(
        &self,
        config: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        const OPERATION: &str = "open receiver";
        let shared = &self.network.shared;
        let settings = Settings::read(config, &mut ConfigFaults::new());
        let plan = settings
            .faults
            .map_or_else(|| shared.plan.clone(), |faults| faults.0);
        if let Some(errno) = plan.consult("loopback.open").error {
            return Err(Error::from_errno(OPERATION, errno).with_detail("the fault plan says so"));
        }
        let domain = context.domain();
        let admission = domain.admit().map_err(|refused| {
            Error::new(ErrorKind::Closed, OPERATION)
                .with_object(format!("domain {}", domain.name()))
                .with_source(refused)
        })?;
        let reservation = domain.budget().reserve(ring_bytes(config)).map_err(|full| {
            Error::new(ErrorKind::MemoryLimit, OPERATION)
                .with_object("ring")
                .with_remedy("ask for a smaller ring or smaller buffers, or give the domain a larger budget")
                .with_source(full)
        })?;
        let (slots, slot_bytes) = (config.ring as usize, config.buffer_bytes as usize);
        let (producer, consumer) = sys::ring(slots, slot_bytes).ok_or_else(|| {
            Error::new(ErrorKind::Resource, OPERATION)
                .with_object(format!("ring of {slots} buffers of {slot_bytes} bytes"))
                .with_remedy("ask for a smaller ring or smaller buffers")
        })?;
        let common = Arc::new(Shared::default());
        let generator = settings
            .generate
            .map(|order| Generator::new(order, config, self.network.clock().now()));
        let mut state = self.network.lock();
        let id = state.next;
        state.next += 1;
        let site = plan.site("loopback.receive");
        let port = Port::new(id, config, shared.form, site, producer, Arc::clone(&common));
        state.ports.push(port);
        drop(state);
        let attachment = Attachment {
            network: self.network.clone(),
            id,
            site: plan.site("loopback.close"),
        };
        let owner = admission.own(attachment, Vec::new(), reservation.commit());
        Ok(Box::new(LoopbackReceiver::new(
            owner, config, consumer, common, generator,
        )))
    }
}

fn ring_bytes(config: &ReceiverConfig) -> u64 {
    u64::from(config.ring) * u64::from(config.buffer_bytes)
}

/// The options of one configuration.
#[derive(Default)]
struct Settings {
    generate: Option<Generate>,
    faults: Option<Faults>,
}

impl Settings {
    fn read(config: &ReceiverConfig, faults: &mut ConfigFaults) -> Self {
        let mut reader = config.options.reader();
        let generate = reader.parsed::<Generate>("generate", ALLOWED);
        let plan = reader.parsed::<Faults>(
            "faults",
            "a fault plan: a table of seed and rules, each with a site",
        );
        reader.finish(faults);
        if let Some(order) = &generate {
            let most = (PAYLOAD_MAX as u64).min(u64::from(config.buffer_bytes));
            if order.count == 0 {
                faults.push("options.generate.count", 0, "is out of range", "1 or more");
            }
            if !(stream::LEAST as u64..=most).contains(&u64::from(order.size)) {
                let allowed = format!("{} to {most}", stream::LEAST);
                let field = "options.generate.size";
                faults.push(field, order.size, "is out of range", allowed);
            }
        }
        Self {
            generate,
            faults: plan,
        }
    }
}

/// A fault plan in the options; for this receiver it takes the place of the network's.
struct Faults(Plan);

impl<'de> Deserialize<'de> for Faults {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        // Delays run on the network's clock; the plan's own is not asked.
        Plan::read(from, Arc::new(SystemClock::new()))
            .map(Self)
            .map_err(de::Error::custom)
    }
}
