//! The setup of the self-test over `loopback`: the in-process network of this program.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use lockgate::Result;
use lockgate::receive::{Group, ReceiverConfig};
use lockgate_providers::loopback::{Datagram, Sender};

use super::Setup;
use super::pass::Outlet;
use crate::providers::Providers;

/// Nobody outside of the process sees these two.
const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 47_001);
const GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(239, 255, 0, 1)), 47_000);

/// Opens the receiver and makes the sender.
pub(super) fn setup(providers: &Providers) -> Result<(String, Setup)> {
    let config = ReceiverConfig {
        groups: vec![Group::from(GROUP)],
        ..ReceiverConfig::default()
    };
    let receiver = providers.registry.open_receiver("loopback", &config)?;
    let setup = Setup {
        receiver,
        outlet: Box::new(Inside(providers.network.sender())),
        source: SOURCE,
        destination: GROUP,
    };
    Ok((format!("multicast {GROUP} within the process"), setup))
}

struct Inside(Sender);

impl Outlet for Inside {
    fn send(&mut self, payload: &[u8]) -> Result<()> {
        self.0.send(&Datagram {
            source: SOURCE,
            destination: GROUP,
            payload,
            vlan: None,
        })
    }
}
