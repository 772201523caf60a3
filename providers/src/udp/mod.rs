//! The `udp` provider: multicast groups and unicast over the kernel's UDP sockets.
//!
//! Promises: datagrams of other groups, interfaces and sources than the configured ones are not delivered, whoever else has
//! joined them; every loss that the kernel counts is reported; the data path allocates nothing. Does not do: raw frames,
//! VLAN tags or checksums; a socket shows none of them.
//!
//! See `README.md` beside this file for what it needs and what it gives. The options are:
//!
//! | option | value | does |
//! | --- | --- | --- |
//! | `receive-buffer` | bytes | `SO_RCVBUF`; without it, what holds `ring` packets of `mtu` bytes |
//! | `force-receive-buffer` | flag | `SO_RCVBUFFORCE` beyond `net.core.rmem_max`; needs `CAP_NET_ADMIN` |
//! | `reuse-port` | flag | `SO_REUSEPORT` |
//! | `busy-poll` | microseconds | `SO_BUSY_POLL`; on older kernels more than `net.core.busy_read` needs `CAP_NET_ADMIN` |
//! | `gro` | flag | `UDP_GRO`: the kernel hands over coalesced buffers, which become one descriptor per datagram |
//! | `packet-info` | flag | destination and interface of each datagram from the kernel, even where they are known |
//! | `sockets` | `per-port`, `per-group` | which groups share a socket; sharing keeps their order of arrival |

mod layout;
mod options;
mod receiver;
mod remedy;
mod ring;
mod socket;
mod stamping;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::sync::Arc;

use crate::kernel::{link, sys};
use lockgate::receive::{ConfigFaults, PacketReceiver, ReceiverConfig, ReceiverFactory};
use lockgate::registry::{
    Capabilities, Capability, Description, Factory, Inspection, Kind, OpenContext,
};
use lockgate::{Error, Result};

const NAME: &str = "udp";
const KINDS: &[Kind] = &[Kind::Receiver];
const CAPABILITIES: Capabilities = Capabilities::of(&[
    Capability::Ipv4,
    Capability::Ipv6,
    Capability::Multicast,
    Capability::Unicast,
    Capability::SeveralGroups,
    Capability::SeveralPorts,
    Capability::SourceFilter,
    Capability::EventWait,
    Capability::BusyPoll,
    Capability::SoftwareTimestamps,
    Capability::HardwareTimestamps,
    Capability::ReadinessFd,
    Capability::AnyInterface,
]);

lockgate::submit_factory!(NAME, KINDS, factory);

/// The factory, to register by hand.
#[must_use]
pub fn factory() -> Arc<dyn Factory> {
    Arc::new(Udp {
        description: Description {
            name: Cow::Borrowed(NAME),
            version: Cow::Borrowed(env!("CARGO_PKG_VERSION")),
            summary: Cow::Borrowed("multicast and unicast over kernel UDP sockets"),
            kinds: Cow::Borrowed(KINDS),
            capabilities: CAPABILITIES,
            origin: lockgate::linked_origin!(),
        },
    })
}

/// Makes the kernel tell a sending UDP socket what it otherwise keeps to itself: that the queue of the interface was full
/// (`ENOBUFS`), and what routers and hosts answered (`ECONNREFUSED`, `EHOSTUNREACH`). Sets `IP_RECVERR` or `IPV6_RECVERR`.
///
/// For programs that send to what receivers here receive: without it Linux drops a datagram on its own host, counts it in
/// `SndbufErrors` of `/proc/net/snmp`, and reports success (`udp_send_skb` in `net/ipv4/udp.c`).
///
/// # Errors
/// If the kernel refuses the option.
pub fn tell_send_errors(socket: impl AsFd, ipv6: bool) -> Result<()> {
    let (level, name) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
    } else {
        (libc::IPPROTO_IP, libc::IP_RECVERR)
    };
    sys::set_option(socket, level, name, &1)
        .map_err(|errno| remedy::option(Error::from_errno("ask for errors of sending", errno)))
}

struct Udp {
    description: Description,
}

impl Factory for Udp {
    fn description(&self) -> &Description {
        &self.description
    }

    /// Reads the limits that receivers run into most. Opens no socket.
    fn inspect(&self) -> Inspection {
        const SETTINGS: [&str; 5] = [
            "net.core.rmem_default",
            "net.core.rmem_max",
            "net.ipv4.igmp_max_memberships",
            "net.ipv4.igmp_max_msf",
            "net.ipv6.mld_max_msf",
        ];
        let mut findings = vec![format!("interfaces: {}", remedy::interfaces().join(", "))];
        findings.extend(SETTINGS.map(|name| match remedy::sysctl(name) {
            Some(value) => format!("{name}: {value}"),
            None => format!("{name}: can't be read"),
        }));
        Inspection::usable(findings)
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for Udp {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        options::read(config, faults);
    }

    fn open(
        &self,
        config: &ReceiverConfig,
        _: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        let options = options::read(config, &mut ConfigFaults::new());
        Ok(Box::new(receiver::open(config, options)?))
    }
}
