//! One case at work: a fresh registry with the watched factory, and the steps that cases share.
//!
//! Promises: nothing waits by sleeping; every wait has a deadline, and running into it fails the case with what was missing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate::custody::Live;
use lockgate::receive::{Group, Packet, Readiness, Receiver, ReceiverConfig};
use lockgate::registry::{Capabilities, Capability, Registry};

use crate::equipment::{Equipment, Family, Outgoing};
use crate::outcome::{Checked, Stop, check, check_eq};
use crate::spy::Spy;

/// What a case works with.
pub struct Rig<'a> {
    pub(crate) equipment: &'a dyn Equipment,
    pub(crate) registry: Registry,
    pub(crate) spy: Arc<Spy>,
    /// Whether nothing else runs in this process, so that its holdings can be compared exactly.
    pub(crate) alone: bool,
    /// How long anything may take.
    pub(crate) patience: Duration,
}

/// A packet that arrived, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) payload: Vec<u8>,
    pub(crate) source: Option<IpAddr>,
    pub(crate) destination: Option<(IpAddr, u16)>,
    pub(crate) vlan: Option<u16>,
}

impl Arrived {
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        Self {
            payload: packet.payload().to_vec(),
            source: packet.source().map(|source| source.ip()),
            destination: packet.destination().map(|to| (to.ip(), to.port())),
            vlan: packet.vlan(),
        }
    }
}

impl<'a> Rig<'a> {
    pub(crate) fn new(equipment: &'a dyn Equipment, alone: bool) -> Checked<Self> {
        let spy = Spy::new(equipment.factory());
        let mut registry = Registry::new();
        registry
            .register(spy.clone())
            .map_err(|error| Stop::fail(error.to_string()))?;
        Ok(Self {
            equipment,
            registry,
            spy,
            alone,
            patience: equipment.patience(),
        })
    }

    pub(crate) fn claims(&self, capability: Capability) -> bool {
        self.claimed().has(capability)
    }

    pub(crate) fn claimed(&self) -> Capabilities {
        self.registry
            .descriptions()
            .first()
            .map_or(Capabilities::NONE, |one| one.capabilities)
    }

    /// Skips the case if the capability isn't claimed, or can't be shown with this equipment.
    pub(crate) fn need(&self, capability: Capability) -> Checked {
        if self.claims(capability) {
            self.equipment.shows(capability)
        } else {
            Err(Stop::unclaimed(capability))
        }
    }

    /// A family that the provider claims; IPv4 if both.
    pub(crate) fn family(&self) -> Family {
        if self.claims(Capability::Ipv4) || !self.claims(Capability::Ipv6) {
            Family::V4
        } else {
            Family::V6
        }
    }

    /// The families that the provider claims and the equipment can show.
    pub(crate) fn families(&self) -> Vec<Family> {
        [
            (Family::V4, Capability::Ipv4),
            (Family::V6, Capability::Ipv6),
        ]
        .into_iter()
        .filter(|(_, capability)| {
            self.claims(*capability) && self.equipment.shows(*capability).is_ok()
        })
        .map(|(family, _)| family)
        .collect()
    }

    /// The equipment's configuration with these groups.
    pub(crate) fn with_groups(&self, groups: impl IntoIterator<Item = Group>) -> ReceiverConfig {
        ReceiverConfig {
            groups: groups.into_iter().collect(),
            ..self.equipment.config()
        }
    }

    /// A configuration with something to receive, and where to send it: a group, or a unicast address if groups aren't claimed.
    pub(crate) fn target(&self, family: Family) -> Checked<(ReceiverConfig, SocketAddr)> {
        if self.claims(Capability::Multicast) {
            let group = Group::new(self.equipment.group(family), self.equipment.port());
            let address = group.socket_address();
            return Ok((self.with_groups([group]), address));
        }
        let address = self.equipment.unicast(family)?;
        let config = ReceiverConfig {
            unicast: Some(address),
            ..self.equipment.config()
        };
        Ok((config, address))
    }

    pub(crate) fn open(&self, config: &ReceiverConfig) -> Checked<Receiver> {
        self.equipment
            .open(&self.registry, config)
            .map_err(|error| Stop::fail(format!("open: {error}")))
    }

    /// An open receiver and where to send to it.
    pub(crate) fn receiver(&self) -> Checked<(Receiver, SocketAddr)> {
        let (config, to) = self.target(self.family())?;
        Ok((self.open(&config)?, to))
    }

    /// The first address to send from.
    pub(crate) fn source(&self, to: SocketAddr) -> Checked<IpAddr> {
        let family = family_of(to.ip());
        let source = self.equipment.sources(family).first().copied();
        source.ok_or_else(|| Stop::skip(format!("this equipment has no {family:?} sender")))
    }

    pub(crate) fn send(&self, to: SocketAddr, payload: &[u8]) -> Checked {
        self.equipment.send(&Outgoing {
            source: self.source(to)?,
            destination: to,
            payload,
            vlan: None,
        })
    }

    /// Sends numbered packets, `numbers` of them, of `len` bytes.
    pub(crate) fn send_numbered(
        &self,
        to: SocketAddr,
        numbers: std::ops::Range<u32>,
        len: usize,
    ) -> Checked {
        for number in numbers {
            self.send(to, &numbered(number, len))?;
        }
        Ok(())
    }

    /// Receives exactly `count` packets.
    pub(crate) fn collect(&self, receiver: &mut Receiver, count: usize) -> Checked<Vec<Arrived>> {
        let mut all = Vec::with_capacity(count);
        let deadline = Instant::now() + self.patience;
        while all.len() < count {
            let left = deadline.saturating_duration_since(Instant::now());
            check!(
                !left.is_zero(),
                "only {} of {count} packets arrived within {:?}; statistics {:?}",
                all.len(),
                self.patience,
                receiver.statistics()
            );
            let _ = receiver.wait(Some(left))?;
            for packet in receiver.poll()? {
                all.push(Arrived::of(&packet));
            }
        }
        check_eq!(all.len(), count, "packets that arrived");
        Ok(all)
    }

    /// Receives `count` packets and checks that they are the numbered ones from `first`, whole and in order.
    pub(crate) fn collect_numbered(
        &self,
        receiver: &mut Receiver,
        first: u32,
        count: usize,
        len: usize,
    ) -> Checked {
        let all = self.collect(receiver, count)?;
        for (number, packet) in (first..).zip(&all) {
            check!(
                packet.payload == numbered(number, len),
                "packet {number} is not as it was sent: {:?}",
                Excerpt(&packet.payload)
            );
        }
        Ok(())
    }

    /// Checks, after a case, that its domain holds nothing any more: no owner, no ticket, no charge, no debt.
    pub(crate) fn expect_nothing_alive(&self) -> Checked {
        let domain = self.registry.domain();
        check_eq!(
            domain.live(),
            Live::default(),
            "what the domain still holds when every receiver is gone (quarantine: {})",
            domain.quarantine().text()
        );
        Ok(())
    }

    /// Polls what is there now, and checks that there is nothing.
    pub(crate) fn expect_nothing(&self, receiver: &mut Receiver) -> Checked {
        let batch = receiver.poll()?;
        check!(batch.is_empty(), "packets that nobody sent here: {batch:?}");
        Ok(())
    }
}

pub(crate) fn family_of(address: IpAddr) -> Family {
    if address.is_ipv4() {
        Family::V4
    } else {
        Family::V6
    }
}

/// A payload that carries its number in the first four bytes, as far as they fit, and bytes that follow from it after.
pub(crate) fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9) | 1;
    let rest = std::iter::repeat_with(move || {
        // Xorshift (Marsaglia 2003): enough to tell one packet's bytes from another's.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_be_bytes()[0]
    });
    number
        .to_be_bytes()
        .into_iter()
        .chain(rest)
        .take(len)
        .collect()
}

/// Waits until a wait times out, for at most a few early wake-ups; says how long the last one took.
pub(crate) fn wait_out(receiver: &mut Receiver, timeout: Duration) -> Checked<Duration> {
    for _ in 0..8 {
        let start = Instant::now();
        if receiver.wait(Some(timeout))? == Readiness::TimedOut {
            return Ok(start.elapsed());
        }
        let batch = receiver.poll()?;
        check!(batch.is_empty(), "packets that nobody sent here: {batch:?}");
    }
    Err(Stop::fail(
        "eight waits in a row were ready, and there was nothing to receive",
    ))
}

/// The beginning of a payload, for texts.
pub(crate) struct Excerpt<'a>(pub(crate) &'a [u8]);

impl std::fmt::Debug for Excerpt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let head = &self.0[..self.0.len().min(16)];
        write!(f, "{} bytes, {head:02x?}…", self.0.len())
    }
}
