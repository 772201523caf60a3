//! The loopback provider on a network of its own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use lockgate::clock::SystemClock;
use lockgate::fault::Plan;
use lockgate::receive::ReceiverConfig;
use lockgate::registry::Factory;
use lockgate_conformance::{Checked, Equipment, Family, Outgoing, Stop, unused_port};
use lockgate_providers::loopback::{Datagram, INTERFACE, NAME, Network};

pub struct Loopback {
    name: &'static str,
    network: Network,
}

impl Loopback {
    pub fn new() -> Self {
        Self {
            name: NAME,
            network: Network::new(Arc::new(SystemClock::new()), Plan::quiet()),
        }
    }

    pub fn with_frames() -> Self {
        Self {
            name: "loopback with frames",
            network: Network::with_frames(Arc::new(SystemClock::new()), Plan::quiet()),
        }
    }
}

impl Equipment for Loopback {
    fn name(&self) -> String {
        self.name.to_owned()
    }

    fn provider(&self) -> &str {
        NAME
    }

    fn factory(&self) -> Arc<dyn Factory> {
        self.network.factory()
    }

    fn config(&self) -> ReceiverConfig {
        ReceiverConfig {
            interface: Some(INTERFACE.to_owned()),
            ..ReceiverConfig::default()
        }
    }

    fn send(&self, packet: &Outgoing<'_>) -> Checked {
        let datagram = Datagram {
            source: SocketAddr::new(packet.source, 9),
            destination: packet.destination,
            payload: packet.payload,
            vlan: packet.vlan,
        };
        let sent = self.network.sender().send(&datagram);
        sent.map_err(|error| Stop::fail(error.to_string()))
    }

    fn sources(&self, family: Family) -> Vec<IpAddr> {
        match family {
            Family::V4 => vec![
                Ipv4Addr::new(10, 0, 0, 1).into(),
                Ipv4Addr::new(10, 0, 0, 2).into(),
            ],
            Family::V6 => vec![
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1).into(),
                Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2).into(),
            ],
        }
    }

    fn unicast(&self, family: Family) -> Checked<SocketAddr> {
        let address = match family {
            Family::V4 => Ipv4Addr::new(10, 0, 0, 9).into(),
            Family::V6 => Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9).into(),
        };
        Ok(SocketAddr::new(address, unused_port()))
    }

    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32> {
        config.ring = 100;
        Ok(250)
    }

    fn cause_event(&self) -> Checked {
        self.network.set_link(false);
        self.network.set_link(true);
        Ok(())
    }

    fn has_member(&self, group: IpAddr) -> Option<bool> {
        Some(self.network.has_member(group))
    }
}
