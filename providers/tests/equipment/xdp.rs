//! The `xdp` provider at one end of a pair of virtual Ethernet interfaces, in each of its modes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use lockgate::receive::ReceiverConfig;
use lockgate::registry::Factory;
use lockgate_conformance::{Checked, Equipment, Family, Outgoing, Stop, unused_port};

use super::frames::{self, Pair};

pub struct Xdp {
    pub pair: Arc<Pair>,
    /// `generic` or `native`.
    pub mode: &'static str,
}

impl Equipment for Xdp {
    fn name(&self) -> String {
        format!("xdp {}", self.mode)
    }

    fn provider(&self) -> &str {
        "xdp"
    }

    fn factory(&self) -> Arc<dyn Factory> {
        lockgate_providers::xdp::factory()
    }

    fn config(&self) -> ReceiverConfig {
        let mut config = ReceiverConfig {
            interface: Some(frames::PAIR[0].to_owned()),
            ..ReceiverConfig::default()
        };
        config.options.set("mode", self.mode);
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

    fn shares_interface(&self) -> Checked {
        Err(Stop::skip("an interface takes one XDP program"))
    }

    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32> {
        config.ring = 16;
        config.batch = 4;
        // Each of the two queues' rings holds 16.
        Ok(500)
    }

    fn cause_event(&self) -> Checked {
        frames::flap()
    }

    fn has_member(&self, group: IpAddr) -> Option<bool> {
        frames::has_member(group)
    }
}
