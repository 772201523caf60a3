//! What a provider's author brings to the kit: the factory, the addresses to use, and a sender that is independent of the
//! provider.
//!
//! Promises: the defaults hand out groups and ports that no other case and no other process of this host uses at the same time,
//! as far as numbers allow. Does not do: setting up interfaces. An equipment that needs one names it or skips.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use lockgate::receive::{PacketReceiver, Receiver, ReceiverConfig};
use lockgate::registry::{Capability, Factory, Registry};

use crate::outcome::{Checked, Stop};

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A datagram that the kit wants sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The address to send from, one of [`Equipment::sources`].
    pub source: IpAddr,
    /// Where to.
    pub destination: SocketAddr,
    /// The UDP payload; may be empty.
    pub payload: &'a [u8],
    /// The VLAN tag that the frame shall carry.
    pub vlan: Option<u16>,
}

/// The provider under test and everything around it. One value serves all cases, from several threads.
pub trait Equipment: Send + Sync {
    /// The head of its column: the provider's name, and what it is decorated with.
    fn name(&self) -> String {
        self.provider().to_owned()
    }

    /// The name that opens the provider.
    fn provider(&self) -> &str;

    /// The factory, as an application would make it. Every call may make a new one.
    fn factory(&self) -> Arc<dyn Factory>;

    /// A valid configuration but for addresses: the interface, and options that the equipment needs.
    fn config(&self) -> ReceiverConfig;

    /// Opens through a registry in which the factory is registered. Decorated equipment decorates here.
    ///
    /// # Errors
    /// Those of the open.
    fn open(&self, registry: &Registry, config: &ReceiverConfig) -> lockgate::Result<Receiver> {
        registry.open_receiver(self.provider(), config)
    }

    /// Sends one datagram by a way that has nothing to do with the provider. When it returns, the datagram has been handed to the
    /// network.
    ///
    /// # Errors
    /// [`Stop::skip`] for what this equipment can't send, such as VLAN tags; [`Stop::fail`] if the sending failed.
    fn send(&self, packet: &Outgoing<'_>) -> Checked;

    /// The addresses to send from, at least one; two for source filters to be tested.
    fn sources(&self, family: Family) -> Vec<IpAddr>;

    /// Whether this equipment can show that a claim works, such as hardware timestamps on an interface that has a clock.
    ///
    /// # Errors
    /// [`Stop::skip`] with what is missing here.
    fn shows(&self, capability: Capability) -> Checked {
        let _ = capability;
        Ok(())
    }

    /// A multicast group that nobody else uses.
    fn group(&self, family: Family) -> IpAddr {
        unused_group(family)
    }

    /// A UDP port that nobody else uses.
    fn port(&self) -> u16 {
        unused_port()
    }

    /// An address and port to receive unicast on; a new port with every call.
    ///
    /// # Errors
    /// [`Stop::skip`] where the equipment has no such address.
    fn unicast(&self, family: Family) -> Checked<SocketAddr>;

    /// Whether several receivers of the equipment's interface may be open at once.
    ///
    /// # Errors
    /// [`Stop::skip`] with what stands in the way.
    fn shares_interface(&self) -> Checked {
        Ok(())
    }

    /// Makes the configuration easy to overrun, and says how many packets of 64 bytes surely overrun it when nobody polls.
    ///
    /// # Errors
    /// [`Stop::skip`] where it can't be overrun.
    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32>;

    /// Makes something happen that the open receivers tell as an event, and undoes it.
    ///
    /// # Errors
    /// [`Stop::skip`] where nothing of the sort can be done.
    fn cause_event(&self) -> Checked {
        Err(Stop::skip("this equipment can't change the link"))
    }

    /// Whether somebody on this host is a member of the group, where that can be asked.
    fn has_member(&self, group: IpAddr) -> Option<bool> {
        let _ = group;
        None
    }

    /// The time of day by the clock that stamps packets in software.
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }

    /// How long a packet or an event may take before a case fails. The default is generous, for machines that others use too.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }
}

/// Puts a decorator around every receiver of another equipment, so that the whole kit runs over it.
pub struct Decorated<E, D> {
    inner: E,
    name: String,
    decorator: D,
}

impl<E, D> Decorated<E, D>
where
    E: Equipment,
    D: Fn(Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver> + Send + Sync,
{
    /// The equipment `inner`, its receivers decorated; `name` is added to its column's head.
    pub fn new(inner: E, name: &str, decorator: D) -> Self {
        let name = format!("{}+{name}", inner.name());
        Self {
            inner,
            name,
            decorator,
        }
    }
}

impl<E, D> Equipment for Decorated<E, D>
where
    E: Equipment,
    D: Fn(Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver> + Send + Sync,
{
    fn name(&self) -> String {
        self.name.clone()
    }

    fn provider(&self) -> &str {
        self.inner.provider()
    }

    fn factory(&self) -> Arc<dyn Factory> {
        self.inner.factory()
    }

    fn config(&self) -> ReceiverConfig {
        self.inner.config()
    }

    fn open(&self, registry: &Registry, config: &ReceiverConfig) -> lockgate::Result<Receiver> {
        let receiver = self.inner.open(registry, config)?;
        Ok(receiver.decorate(|inner| (self.decorator)(inner)))
    }

    fn send(&self, packet: &Outgoing<'_>) -> Checked {
        self.inner.send(packet)
    }

    fn sources(&self, family: Family) -> Vec<IpAddr> {
        self.inner.sources(family)
    }

    fn shows(&self, capability: Capability) -> Checked {
        self.inner.shows(capability)
    }

    fn group(&self, family: Family) -> IpAddr {
        self.inner.group(family)
    }

    fn port(&self) -> u16 {
        self.inner.port()
    }

    fn unicast(&self, family: Family) -> Checked<SocketAddr> {
        self.inner.unicast(family)
    }

    fn shares_interface(&self) -> Checked {
        self.inner.shares_interface()
    }

    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32> {
        self.inner.overrun(config)
    }

    fn cause_event(&self) -> Checked {
        self.inner.cause_event()
    }

    fn has_member(&self, group: IpAddr) -> Option<bool> {
        self.inner.has_member(group)
    }

    fn wall(&self) -> SystemTime {
        self.inner.wall()
    }

    fn patience(&self) -> Duration {
        self.inner.patience()
    }
}

/// Never the same twice in a process.
fn serial() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A group of the administratively scoped block 239.192.0.0/14 (RFC 2365), or a transient site-local one: pid and counter.
///
/// 18 bits tell processes and calls apart.
#[must_use]
pub fn unused_group(family: Family) -> IpAddr {
    let number = process::id().wrapping_mul(509).wrapping_add(serial());
    match family {
        Family::V4 => {
            let [_, high, middle, low] = (number % (1 << 18)).to_be_bytes();
            Ipv4Addr::new(239, 192 + high, middle, low).into()
        }
        Family::V6 => {
            let [first, second, third, fourth] = number.to_be_bytes();
            let high = u16::from_be_bytes([first, second]);
            let low = u16::from_be_bytes([third, fourth]);
            Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0x10c4, high, low).into()
        }
    }
}

/// A port from 20,000 to 31,999, below the range from which Linux picks ports by itself: pid and counter.
#[must_use]
pub fn unused_port() -> u16 {
    let number = process::id().wrapping_mul(311).wrapping_add(serial());
    // At most 31,999.
    20_000 + (number % 12_000) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_multicast_and_differ() {
        for family in [Family::V4, Family::V6] {
            let (one, other) = (unused_group(family), unused_group(family));
            assert!(one.is_multicast() && other.is_multicast(), "{one} {other}");
            assert_eq!(one.is_ipv4(), family == Family::V4);
            assert_ne!(one, other);
        }
        assert_ne!(unused_port(), unused_port());
        assert!((20_000..32_000).contains(&unused_port()));
    }
}
