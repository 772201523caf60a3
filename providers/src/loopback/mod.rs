//! The reference provider: a network inside the process, deterministic, without a system call on its data path.
//!
//! A program makes a [`Network`], registers its factory, opens receivers by name and sends datagrams through
//! [`Network::sender`]. A receiver gets exactly what matches its groups, ports, sources and VLAN. The network's
//! [`Plan`] makes it lose, reorder, duplicate, cut and delay packets, and fail opens, polls and closes, the same way in every run.
//!
//! Promises: two networks don't see each other; every datagram that reaches a receiver is delivered or counted by place; times
//! come from the clock that the network was made with; a poll neither allocates nor locks, unless the plan holds packets back or
//! the receiver generates its own. Does not do: fragmentation, routing, or more than one interface.
//!
//! ```
//! use std::sync::Arc;
//! use lockgate::clock::SystemClock;
//! use lockgate::fault::Plan;
//! use lockgate::receive::ReceiverConfig;
//! use lockgate::registry::Registry;
//! use lockgate_providers::loopback::{Datagram, Network};
//!
//! let network = Network::new(Arc::new(SystemClock::new()), Plan::quiet());
//! let mut registry = Registry::new();
//! registry.register(network.factory())?;
//! let config = ReceiverConfig {
//!     groups: vec!["239.7.7.7:47000".parse()?],
//!     ..ReceiverConfig::default()
//! };
//! let mut receiver = registry.open_receiver("loopback", &config)?;
//! network.sender().send(&Datagram {
//!     source: "10.0.0.1:9000".parse()?,
//!     destination: "239.7.7.7:47000".parse()?,
//!     payload: b"one",
//!     vlan: None,
//! })?;
//! let batch = receiver.poll()?;
//! assert_eq!(batch.get(0).map(|packet| packet.payload()), Some(&b"one"[..]));
//! receiver.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Sites of the plan
//! | site | consulted | carries out |
//! | --- | --- | --- |
//! | `loopback.open` | once an open | error |
//! | `loopback.send` | once a datagram sent | error |
//! | `loopback.receive` | once for each receiver that a datagram matches | drop, delay, duplicate, reorder, truncate, error (told by the next poll) |
//! | `loopback.close` | once a close | error, release: the receiver stays attached, in its domain's quarantine |

mod attachment;
mod factory;
mod generate;
mod port;
mod receiver;
mod sys;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lockgate::clock::Clock;
use lockgate::fault::{Plan, Site};
use lockgate::receive::{ConfigFaults, Event};
use lockgate::registry::Factory;
use lockgate::{Error, ErrorKind, Result};
use serde::Serialize;

pub use generate::stream;

use port::{Form, Port};

/// The name that opens it.
pub const NAME: &str = "loopback";
/// The one interface of a network.
pub const INTERFACE: &str = "loopback0";
/// The longest UDP payload that IPv4 can carry.
const PAYLOAD_MAX: usize = 65_507;

/// A network inside the process. Cheap to clone; clones are the same network.
#[derive(Clone)]
pub struct Network {
    shared: Arc<Shared>,
}

/// What a network, its factories, senders and receivers have in common.
struct Shared {
    clock: Arc<dyn Clock>,
    plan: Plan,
    form: Form,
    send: Site,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ports: Vec<Port>,
    /// The number of the next port; never reused.
    next: u64,
    link_down: bool,
    counters: Counters,
}

/// What a network did with the datagrams that were sent into it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Datagrams that senders handed in, and generated ones.
    pub sent: u64,
    /// Datagrams that no receiver asked for.
    pub unclaimed: u64,
    /// Copies for a receiver that the plan dropped.
    pub dropped: u64,
    /// Additional copies for a receiver that the plan made.
    pub duplicated: u64,
    /// Datagrams lost because the link was down.
    pub link_down: u64,
}

/// One UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Address and port of the sender.
    pub source: SocketAddr,
    /// Address and port of the group or the receiver; of the same family.
    pub destination: SocketAddr,
    /// At most 65,507 bytes.
    pub payload: &'a [u8],
    /// The VLAN that it is tagged with, 0 to 4094.
    pub vlan: Option<u16>,
}

impl Network {
    /// A network without receivers, whose times come from `clock` and whose faults come from `plan`.
    ///
    /// Receivers get payloads alone, as from a socket.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, plan: Plan) -> Self {
        Self::of(Form::Payloads, clock, plan)
    }

    /// The same, and receivers get whole Ethernet frames with right sums, as from a device. The factory claims whole frames.
    #[must_use]
    pub fn with_frames(clock: Arc<dyn Clock>, plan: Plan) -> Self {
        Self::of(Form::Frames, clock, plan)
    }

    fn of(form: Form, clock: Arc<dyn Clock>, plan: Plan) -> Self {
        Self {
            shared: Arc::new(Shared {
                clock,
                form,
                send: plan.site("loopback.send"),
                plan,
                state: Mutex::default(),
            }),
        }
    }

    /// A factory whose receivers listen on this network, to be registered by hand.
    #[must_use]
    pub fn factory(&self) -> Arc<dyn Factory> {
        Arc::new(factory::Loopback::of(self.clone()))
    }

    /// The way to send into this network. Any number of senders, from any thread.
    #[must_use]
    pub fn sender(&self) -> Sender {
        Sender {
            network: self.clone(),
        }
    }

    /// Hands over the delayed packets whose time has come. Sends and polls do so too; this wakes waiting receivers after a
    /// manual clock was moved.
    pub fn tick(&self) {
        let now = self.shared.clock.now();
        for port in &mut self.lock().ports {
            port.deliver_due(now, &*self.shared.clock);
        }
    }

    /// Hands over everything that the plan holds back, due or not.
    pub fn settle(&self) {
        for port in &mut self.lock().ports {
            port.settle(&*self.shared.clock);
        }
    }

    /// Takes the link up or down. Receivers are told by an event; while it is down, nothing is delivered.
    pub fn set_link(&self, up: bool) {
        let mut state = self.lock();
        if state.link_down != up {
            return;
        }
        state.link_down = !up;
        for port in &state.ports {
            let interface = INTERFACE.to_owned();
            port.tell(if up {
                Event::LinkUp { interface }
            } else {
                Event::LinkDown { interface }
            });
        }
    }

    /// How many receivers are attached: open, or kept because their close failed.
    #[must_use]
    pub fn attached(&self) -> usize {
        self.lock().ports.len()
    }

    /// Whether an attached receiver has joined the group.
    #[must_use]
    pub fn has_member(&self, group: IpAddr) -> bool {
        self.lock().ports.iter().any(|port| port.is_member(group))
    }

    /// What happened to the datagrams so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.lock().counters
    }

    fn clock(&self) -> &dyn Clock {
        &*self.shared.clock
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Poison says that a thread panicked in here. Every change under this lock is one assignment or one push, so the
        // state is whole.
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Network")
            .field("plan", &self.shared.plan)
            .field("attached", &state.ports.len())
            .field("counters", &state.counters)
            .finish_non_exhaustive()
    }
}

/// Sends datagrams into a network.
#[derive(Clone, Debug)]
pub struct Sender {
    network: Network,
}

impl Sender {
    /// Sends one datagram: it is in the ring of every matching receiver, or counted as lost, when this returns, unless the plan
    /// holds it back.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] with every fault of the datagram; else the error number that the plan asks for. Nothing was sent.
    pub fn send(&self, datagram: &Datagram<'_>) -> Result<()> {
        const OPERATION: &str = "send datagram";
        let faults = faults(datagram);
        if !faults.is_empty() {
            return Err(Error::new(ErrorKind::Invalid(faults), OPERATION).with_provider(NAME));
        }
        let shared = &self.network.shared;
        let mut state = self.network.lock();
        if let Some(errno) = shared.send.next().error {
            return Err(Error::from_errno(OPERATION, errno)
                .with_provider(NAME)
                .with_object(datagram.destination.to_string())
                .with_detail("the fault plan says so"));
        }
        let State {
            ports,
            link_down,
            counters,
            ..
        } = &mut *state;
        counters.sent += 1;
        if *link_down {
            counters.link_down += 1;
            return Ok(());
        }
        let mut claimed = false;
        for port in ports {
            claimed |= port.offer(datagram, &*shared.clock, counters);
        }
        counters.unclaimed += u64::from(!claimed);
        Ok(())
    }
}

fn faults(datagram: &Datagram<'_>) -> ConfigFaults {
    let mut faults = ConfigFaults::new();
    let Datagram {
        source,
        destination,
        payload,
        vlan,
    } = datagram;
    if source.is_ipv4() != destination.is_ipv4() {
        let family = if destination.is_ipv4() {
            "IPv4"
        } else {
            "IPv6"
        };
        let allowed = format!("an {family} address, as the destination's");
        faults.push("source", source, "is of the other family", allowed);
    }
    if is_multicast_or_unspecified(source.ip()) {
        let allowed = "the unicast address of a sender";
        faults.push("source", source, "is not a sender's address", allowed);
    }
    for (field, port) in [
        ("source", source.port()),
        ("destination", destination.port()),
    ] {
        if port == 0 {
            faults.push(field, port, "is not a port", "1 to 65535");
        }
    }
    if payload.len() > PAYLOAD_MAX {
        let allowed = format!("at most {PAYLOAD_MAX} bytes");
        faults.push("payload", payload.len(), "is too long", allowed);
    }
    if let Some(vlan) = vlan.filter(|vlan| *vlan > 4094) {
        faults.push("vlan", vlan, "is reserved", "0 to 4094");
    }
    faults
}

fn is_multicast_or_unspecified(address: IpAddr) -> bool {
    address.is_multicast() || address.is_unspecified()
}

lockgate::submit_factory!(
    NAME,
    factory::KINDS,
    || Arc::new(factory::Loopback::alone())
);
