//! The `packet` provider at one end of a pair of virtual Ethernet interfaces, in each of its versions.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lockgate::receive::ReceiverConfig;
use lockgate::registry::{Capability, Factory};
use lockgate_conformance::{Checked, Equipment, Family, Outgoing, Stop, unused_port};

use super::frames::{self, Pair};

pub struct Packet {
    pub pair: Arc<Pair>,
    /// `v2` or `v3`.
    pub version: &'static str,
}

impl Equipment for Packet {
    fn name(&self) -> String {
        format!("packet {}", self.version)
    }

    fn provider(&self) -> &str {
        "packet"
    }

    fn factory(&self) -> Arc<dyn Factory> {
        lockgate_providers::packet::factory()
    }

    fn config(&self) -> ReceiverConfig {
        let mut config = ReceiverConfig {
            interface: Some(frames::PAIR[0].to_owned()),
            ..ReceiverConfig::default()
        };
        config.options.set("version", self.version);
        config
    }

    fn send(&self, packet: &Outgoing<'_>) -> Checked {
        self.pair.send(packet)
    }

    fn sources(&self, family: Family) -> Vec<IpAddr> {
        frames::sources(family)
    }

    fn unicast(&self, family: Family) -> Checked<SocketAddr> {
        Ok(SocketAddr::new(frames::own(family), unused_port()))
    }

    fn shows(&self, capability: Capability) -> Checked {
        match capability {
            Capability::HardwareTimestamps => Err(Stop::skip("the pair has no clock")),
            _ => Ok(()),
        }
    }

    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32> {
        config.ring = 16;
        config.batch = 4;
        // A V3 ring of that size has 5 blocks of 16 KiB at most, and each packet takes 190 bytes of it.
        Ok(2_000)
    }

    fn cause_event(&self) -> Checked {
        frames::flap()
    }

    fn has_member(&self, group: IpAddr) -> Option<bool> {
        frames::has_member(group)
    }
}
