//! The `xdp` provider: whole frames from XDP sockets (`AF_XDP`), past the kernel's network stack.
//!
//! Promises: a program in the kernel redirects exactly what the configuration names and passes everything else on; it is attached for
//! as long as the receiver is open and goes with the process, however that ends. Whether the device or the kernel moves
//! frames is reported as it was obtained. Does not do: sharing an interface with another XDP program, frames longer than a page,
//! reassembly.
//!
//! See `README.md` beside this file for what it needs and what it gives. The options are:
//!
//! | option | value | does |
//! | --- | --- | --- |
//! | `mode` | `native`, `generic` | the program runs in the driver, or behind it; `native` without it |
//! | `copy` | `any`, `copy`, `zero-copy` | who moves frames; `any` takes what the kernel can |
//! | `queues` | `all`, or `"0,2-3"` | which receive queues are served; what comes in through another one passes on |
//! | `need-wakeup` | flag | the kernel says when it wants to be woken up; `true` without it |
//! | `membership` | `kernel`, `none` | who keeps groups joined: a kernel socket, or somebody else |

mod assembler;
mod options;
mod program;
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

const NAME: &str = "xdp";
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
    Capability::ReadinessFd,
    Capability::ChecksumPolicy,
]);

lockgate::submit_factory!(NAME, KINDS, factory);

/// The factory, to register by hand.
#[must_use]
pub fn factory() -> Arc<dyn Factory> {
    Arc::new(Xdp {
        description: Description {
            name: Cow::Borrowed(NAME),
            version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
            summary: Cow::Borrowed("whole frames from XDP sockets, past the kernel's stack"),
            kinds: Cow::Borrowed(KINDS),
            capabilities: CAPABILITIES,
            origin: lockgate::linked_origin!(),
        },
    })
}

/// Reads rings of these contents and indices, for the fuzzer.
#[cfg(fuzzing)]
#[doc(hidden)]
pub fn fuzz_ring(input: &[u8]) {
    ring::hostile::check(input);
}

struct Xdp {
    description: Description,
}

impl Factory for Xdp {
    fn description(&self) -> &Description {
        &self.description
    }

    /// Opens an XDP socket that is bound to nothing and makes a map, and closes both again.
    fn inspect(&self) -> Inspection {
        let mut findings = Vec::new();
        let mut remedy = None;
        for (what, tried) in [
            ("XDP socket", socket::try_socket()),
            ("BPF map", socket::try_map()),
        ] {
            match tried {
                Ok(()) => findings.push(format!("{what}: opens")),
                Err(error) => {
                    findings.push(format!("{what}: {error}"));
                    remedy =
                        remedy.or_else(|| Some(error.remedy().unwrap_or("see above").to_owned()));
                }
            }
        }
        findings.push(format!("interfaces: {}", remedy::interfaces().join(", ")));
        match remedy {
            None => Inspection::usable(findings),
            remedy => Inspection::unusable(findings, remedy),
        }
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for Xdp {
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
