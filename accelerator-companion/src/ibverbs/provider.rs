//! The factory of the `ibverbs` provider.
//!
//! Promises: a configuration is validated before anything native is set up; an open makes the real set-up, device, protection
//! domain, completion lane and raw packet queue pair, and names the step that fails with its number and what to do; what was
//! made by then is released. Does not do yet: receiving. Where the set-up succeeds, the open says that this version stops there.

use std::borrow::Cow;
use std::sync::Arc;

use lockgate::receive::{ConfigFaults, PacketReceiver, ReceiverConfig, ReceiverFactory};
use lockgate::registry::{
    Availability, Capabilities, Capability, Description, Factory, Inspection, Kind, OpenContext,
    Unavailable,
};
use lockgate::{Error, ErrorKind, Result};
use lockgate_verbs_shim::{DeviceList, LinkMode, QpOptions, QpType, link_mode};

use super::limits::Beyond;
use super::owners::{Context, CqLane, LaneOptions, ProtectionDomain, QueuePair};
use super::select::Selector;
use crate::IBVERBS;

const KINDS: &[Kind] = &[Kind::Receiver];

/// What a raw packet queue pair can; nothing is claimed that the set-up doesn't need.
const CAPABILITIES: Capabilities = Capabilities::of(&[
    Capability::Ipv4,
    Capability::Multicast,
    Capability::BusyPoll,
    Capability::EventWait,
]);

/// The factory, to register by hand.
pub(crate) fn factory() -> Arc<dyn Factory> {
    Arc::new(Ibverbs {
        description: Description {
            name: Cow::Borrowed(IBVERBS),
            version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
            summary: Cow::Borrowed("raw packets over RDMA devices, past the kernel"),
            kinds: Cow::Borrowed(KINDS),
            capabilities: CAPABILITIES,
            origin: lockgate::linked_origin!(),
        },
    })
}

struct Ibverbs {
    description: Description,
}

impl Factory for Ibverbs {
    fn description(&self) -> &Description {
        &self.description
    }

    fn availability(&self) -> Availability {
        match link_mode() {
            LinkMode::Library => Availability::Available,
            LinkMode::Stub => Availability::Unavailable {
                reason: Unavailable::LinkStub {
                    library: Cow::Borrowed("libibverbs"),
                    remedy: Cow::Borrowed("rebuild without LOCKGATE_VERBS_LINK_STUB"),
                },
            },
        }
    }

    /// Enumerates devices. Opens none.
    fn inspect(&self) -> Inspection {
        let list = match DeviceList::read() {
            Ok(list) => list,
            Err(errno) => {
                return Inspection::unusable(
                    vec![format!("list devices: {errno}")],
                    Some("load the driver of the device and ib_uverbs".to_owned()),
                );
            }
        };
        if list.is_empty() {
            return Inspection::unusable(
                vec!["list devices: none".to_owned()],
                Some("load the driver of the device; see `rdma link`".to_owned()),
            );
        }
        let names: Vec<String> = list
            .iter()
            .filter_map(|device| Some(device.info().ok()?.name))
            .collect();
        Inspection::usable(vec![format!("devices: {}", names.join(", "))])
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

/// The device that a configuration means. A configuration that names none is refused before this is asked.
fn selector(config: &ReceiverConfig) -> Option<Selector> {
    let named = |name: &String| Selector::guid(name).unwrap_or(Selector::Name(name.clone()));
    let netdev = |name: &String| Selector::Netdev(name.clone());
    config
        .device
        .as_ref()
        .map(named)
        .or_else(|| config.interface.as_ref().map(netdev))
}

/// Reads the options of this provider.
fn port(config: &ReceiverConfig, faults: &mut ConfigFaults) -> Option<u8> {
    let mut reader = config.options.reader();
    let port = reader.integer("port", 1..=255);
    reader.finish(faults);
    port.and_then(|port| u8::try_from(port).ok())
}

impl ReceiverFactory for Ibverbs {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        port(config, faults);
    }

    fn open(
        &self,
        config: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        let domain = context.domain();
        let port = port(config, &mut ConfigFaults::new());
        // The registry refuses a configuration without device and interface: any-interface isn't claimed.
        let selector = selector(config).ok_or_else(|| {
            Error::new(ErrorKind::Bug, "select device").with_detail("the configuration names none")
        })?;
        // What is made is dropped in reverse order: the queue pair first, the device last.
        let device = Context::open(domain, &selector, port)?;
        let pd = ProtectionDomain::allocate(domain, &device)?;
        let lane = CqLane::create(
            domain,
            &device,
            &pd,
            &LaneOptions {
                entries: vec![1, config.ring],
                events: true,
                beyond: Beyond::Refuse,
            },
        )?;
        let options = QpOptions {
            kind: QpType::RawPacket,
            max_send: 1,
            max_receive: config.ring,
            max_send_pieces: 1,
            max_receive_pieces: 1,
            max_inline: 0,
            flags: 0,
            signal_all: false,
        };
        let qp = QueuePair::create(domain, &device, &pd, (&lane, 0, 1), options, Beyond::Refuse)?;
        Err(Error::new(ErrorKind::Library, "post receives")
            .with_object(qp.identity().to_string())
            .with_detail("the set-up succeeded; this version of the provider receives nothing yet")
            .with_remedy("receive with another provider, by name"))
    }
}
