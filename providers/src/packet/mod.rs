//! The `packet` provider: whole frames from the memory-mapped ring of a packet socket (`AF_PACKET`).
//!
//! Promises: a poll makes no system call; packets are borrowed from the ring, and nothing but what the configuration names is
//! delivered; what is refused is counted by place. Frames that this host sends are not received. Does not do: reassembly; a
//! fragment is counted and not delivered.
//!
//! See `README.md` beside this file for what it needs and what it gives. The options are:
//!
//! | option | value | does |
//! | --- | --- | --- |
//! | `version` | `v3`, `v2` | blocks for throughput, or a slot for each packet for latency; `v3` without it |
//! | `block-timeout` | milliseconds | how long `v3` waits for a block to fill; 1 without it |
//! | `block-bytes` | bytes, a power of two | the size of a `v3` block |
//! | `fanout` | `hash`, `load-balance`, `cpu`, `queue`, `random`, `rollover` | how the receivers of a group share packets |
//! | `fanout-group` | 0 to 65,535 | which group |
//! | `membership` | `kernel`, `link`, `none` | who keeps groups joined: a kernel socket, only the interface's filter, somebody else |
//! | `promiscuous` | flag | lets frames to other hosts in as well, as far as the configuration names their addresses |

mod filter;
mod layout;
mod options;
mod receiver;
mod ring;
mod socket;
mod sys;

use std::borrow::Cow;
use std::sync::Arc;

use lockgate::Result;
use lockgate::receive::{ConfigFaults, PacketReceiver, ReceiverConfig, ReceiverFactory};
use lockgate::registry::{
    Capabilities, Capability, Description, Factory, Inspection, Kind, OpenContext,
};

use crate::kernel::remedy;

const NAME: &str = "packet";
const KINDS: &[Kind] = &[Kind::Receiver];
const CAPABILITIES: Capabilities = Capabilities::of(&[
    Capability::Ipv4,
    Capability::Ipv6,
    Capability::Multicast,
    Capability::Unicast,
    Capability::SeveralGroups,
    Capability::SeveralPorts,
    Capability::SourceFilter,
    Capability::VlanFilter,
    Capability::WholeFrame,
    Capability::EventWait,
    Capability::BusyPoll,
    Capability::SoftwareTimestamps,
    Capability::HardwareTimestamps,
    Capability::ReadinessFd,
    Capability::ChecksumPolicy,
]);

lockgate::submit_factory!(NAME, KINDS, factory);

/// The factory, to register by hand.
#[must_use]
pub fn factory() -> Arc<dyn Factory> {
    Arc::new(Packet {
        description: Description {
            name: Cow::Borrowed(NAME),
            version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
            summary: Cow::Borrowed("whole frames from the memory-mapped ring of a packet socket"),
            kinds: Cow::Borrowed(KINDS),
            capabilities: CAPABILITIES,
            origin: lockgate::linked_origin!(),
        },
    })
}

/// Reads a ring of these contents, for the fuzzer.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn fuzz_ring(input: &[u8]) {
    ring::hostile::check(input);
}

struct Packet {
    description: Description,
}

impl Factory for Packet {
    fn description(&self) -> &Description {
        &self.description
    }

    /// Opens a packet socket that is bound to nothing, and closes it again.
    fn inspect(&self) -> Inspection {
        let interfaces = format!("interfaces: {}", remedy::interfaces().join(", "));
        match socket::try_open() {
            Ok(()) => Inspection::usable(vec!["packet socket: opens".to_owned(), interfaces]),
            Err(error) => Inspection::unusable(
                vec![format!("packet socket: {error}"), interfaces],
                error.remedy().map(str::to_owned),
            ),
        }
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for Packet {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        options::read(config, faults);
    }

    fn open(
        &self,
        config: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        let options = options::read(config, &mut ConfigFaults::new());
        Ok(Box::new(receiver::open(
            config,
            &options,
            context.domain(),
        )?))
    }
}
