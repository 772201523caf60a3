//! The `udp` provider, with sockets of its own as the sender.
//!
//! On the host it uses `lo`, which delivers no IPv6 multicast and whose link stays up. In a network namespace of its own it uses
//! one end of a pair of virtual Ethernet interfaces. The other end gets every multicast packet too, in the same namespace, and
//! what comes in there must not be delivered.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use lockgate::receive::ReceiverConfig;
use lockgate::registry::{Capability, Factory};
use lockgate_conformance::{Checked, Equipment, Family, Outgoing, Stop, unused_port};
use socket2::{Domain, Protocol, Socket, Type};

/// The pair in the namespace.
const PAIR: [&str; 2] = ["lgt0", "lgt1"];

pub struct Udp {
    interface: &'static str,
    index: u32,
    v4: [Ipv4Addr; 2],
    v6: Vec<Ipv6Addr>,
}

impl Udp {
    /// On the host's `lo`.
    pub fn on_host() -> Self {
        Self {
            interface: "lo",
            // Linux gives `lo` this index in every network namespace.
            index: 1,
            v4: [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)],
            v6: vec![Ipv6Addr::LOCALHOST],
        }
    }

    /// In this process's own network namespace, which it prepares.
    pub fn in_namespace() -> Result<Self, String> {
        let [near, far] = PAIR;
        let index = 77;
        ip("link set lo up")?;
        ip(&format!(
            "link add {near} index {index} type veth peer name {far}"
        ))?;
        ip(&format!("link set {far} up"))?;
        let equipment = Self {
            interface: near,
            index,
            v4: [1, 2].map(|host| Ipv4Addr::new(10, 99, 0, host)),
            v6: [1, 2]
                .map(|host| Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host))
                .to_vec(),
        };
        equipment.take_up()?;
        Ok(equipment)
    }

    /// Sets the interface up and gives it its addresses, of which the kernel drops IPv6 ones when it is set down.
    fn take_up(&self) -> Result<(), String> {
        let interface = self.interface;
        ip(&format!("link set {interface} up"))?;
        for address in self.v4 {
            ip(&format!("addr replace {address}/24 dev {interface}"))?;
        }
        for address in &self.v6 {
            ip(&format!("addr replace {address}/64 dev {interface} nodad"))?;
        }
        Ok(())
    }

    fn is_host(&self) -> bool {
        self.interface == "lo"
    }

    fn send_by_socket(&self, packet: &Outgoing<'_>) -> io::Result<()> {
        let domain = Domain::for_address(packet.destination);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if packet.destination.is_ipv4() {
            socket.set_multicast_if_v4(&self.v4[0])?;
        } else {
            socket.set_multicast_if_v6(self.index)?;
        }
        socket.bind(&SocketAddr::new(packet.source, 0).into())?;
        let sent = socket.send_to(packet.payload, &packet.destination.into())?;
        if sent == packet.payload.len() {
            return Ok(());
        }
        Err(io::Error::other(format!("only {sent} bytes went out")))
    }

    /// Whether a line of a list in `/proc/net` is about the interface.
    fn is_head(&self, line: &str) -> bool {
        line.split_whitespace().nth(1) == Some(self.interface)
    }
}

impl Equipment for Udp {
    fn name(&self) -> String {
        if self.is_host() {
            "udp".to_owned()
        } else {
            "udp in a namespace".to_owned()
        }
    }

    fn provider(&self) -> &str {
        "udp"
    }

    fn factory(&self) -> Arc<dyn Factory> {
        lockgate_providers::udp::factory()
    }

    fn config(&self) -> ReceiverConfig {
        ReceiverConfig {
            interface: Some(self.interface.to_owned()),
            ..ReceiverConfig::default()
        }
    }

    fn send(&self, packet: &Outgoing<'_>) -> Checked {
        if packet.vlan.is_some() {
            return Err(Stop::skip("sockets send no VLAN tags"));
        }
        if packet.destination.is_ipv6() && packet.destination.ip().is_multicast() {
            self.shows(Capability::Ipv6)?;
        }
        self.send_by_socket(packet).map_err(|error| {
            let (from, to) = (packet.source, packet.destination);
            Stop::fail(format!("send from {from} to {to}: {error}"))
        })
    }

    fn sources(&self, family: Family) -> Vec<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4).to_vec(),
            Family::V6 => self.v6.iter().copied().map(IpAddr::V6).collect(),
        }
    }

    fn unicast(&self, family: Family) -> Checked<SocketAddr> {
        if !self.is_host() {
            // The kernel sends to its own addresses through lo, whatever interface has them.
            return Err(Stop::skip(
                "unicast within a host goes through lo; see there",
            ));
        }
        let own = self.sources(family)[0];
        Ok(SocketAddr::new(own, unused_port()))
    }

    fn shows(&self, capability: Capability) -> Checked {
        match capability {
            Capability::HardwareTimestamps => {
                Err(Stop::skip(format!("{} has no clock", self.interface)))
            }
            Capability::Ipv6 if self.is_host() => Err(Stop::skip(
                "lo delivers no IPv6 multicast; see the run in a namespace",
            )),
            _ => Ok(()),
        }
    }

    fn overrun(&self, config: &mut ReceiverConfig) -> Checked<u32> {
        config.options.set("receive-buffer", 16_384);
        // Twice 16 KiB hold fewer than this many packets, each of which takes several hundred bytes.
        Ok(1_000)
    }

    fn cause_event(&self) -> Checked {
        if self.is_host() {
            return Err(Stop::skip(
                "the host's lo stays up; see the run in a namespace",
            ));
        }
        ip(&format!("link set {} down", self.interface)).map_err(Stop::fail)?;
        self.take_up().map_err(Stop::fail)
    }

    fn has_member(&self, group: IpAddr) -> Option<bool> {
        match group {
            IpAddr::V4(group) => {
                // A head for each interface, then a line for each group; the address as a number of the host's byte order.
                let wanted = format!("{:08X}", u32::from_ne_bytes(group.octets()));
                let list = fs::read_to_string("/proc/net/igmp").ok()?;
                let mut ours = list
                    .lines()
                    .skip_while(|line| !self.is_head(line))
                    .skip(1)
                    .take_while(|line| line.starts_with('\t'));
                Some(ours.any(|line| line.contains(&wanted)))
            }
            IpAddr::V6(group) => {
                let wanted: String = group.octets().map(|byte| format!("{byte:02x}")).concat();
                let list = fs::read_to_string("/proc/net/igmp6").ok()?;
                let is_it = |line: &str| self.is_head(line) && line.contains(&wanted);
                Some(list.lines().any(is_it))
            }
        }
    }
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(words.split(' '))
        .output()
        .map_err(|error| format!("run ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(format!("ip {words}: {}", told.trim()))
}
