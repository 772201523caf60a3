//! The one place where `probe` registers its providers, each by hand.
//!
//! Promises: building the registry opens, loads and probes nothing. Does not do: choosing one. The command line names it.

use std::sync::Arc;

use lockgate::clock::SystemClock;
use lockgate::fault::Plan;
use lockgate::registry::{RegisterError, Registry};
use lockgate::{Error, ErrorKind, Result};
use lockgate_accel::AcceleratorProvider;
use lockgate_providers::{loopback, packet, udp, xdp};

/// Every provider of this build.
pub(crate) struct Providers {
    /// Where they are opened.
    pub(crate) registry: Registry,
    /// The network inside the process that `loopback` receives from.
    pub(crate) network: loopback::Network,
}

impl Providers {
    /// Registers them.
    pub(crate) fn register() -> Result<Self> {
        let network = loopback::Network::new(Arc::new(SystemClock::new()), Plan::quiet());
        let mut registry = Registry::new();
        registry
            .register(network.factory())
            .map_err(own_name_taken)?;
        for factory in [packet::factory(), udp::factory(), xdp::factory()] {
            registry.register(factory).map_err(own_name_taken)?;
        }
        AcceleratorProvider::register_into(&mut registry).map_err(own_name_taken)?;
        Ok(Self { registry, network })
    }
}

/// Each name stands here once, so that a rejection is a mistake of this program.
fn own_name_taken(rejected: Box<RegisterError>) -> Error {
    Error::new(ErrorKind::Bug, "register provider")
        .with_provider(rejected.name.clone())
        .with_detail(rejected.to_string())
}
