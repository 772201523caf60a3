//! What equipments over a pair of virtual Ethernet interfaces share: the pair in a network namespace of this process's own, and a
//! sender of whole frames at its far end.
//!
//! The frames are written by the core's builder and leave through a packet socket that is bound to the far end, so that tags,
//! sources and destinations can be anything.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;

use lockgate::receive::frame::{Builder, VlanTag, VlanTags};
use lockgate::receive::mac::{self, MacAddress};
use lockgate_conformance::{Checked, Family, Outgoing, Stop};
use socket2::{Domain, Socket, Type};

/// The interface of the receivers, and the sender's.
pub const PAIR: [&str; 2] = ["lgt0", "lgt1"];

/// The pair, the addresses on it and the sender.
pub struct Pair {
    sender: Socket,
    near: MacAddress,
    far: MacAddress,
}

impl Pair {
    /// Prepares this process's own network namespace.
    pub fn in_namespace() -> Result<Self, String> {
        let [near, far] = PAIR;
        ip("link set lo up")?;
        ip(&format!(
            "link add {near} numrxqueues 2 numtxqueues 2 type veth peer name {far} numrxqueues 2 numtxqueues 2"
        ))?;
        ip(&format!("link set {far} up"))?;
        take_up()?;
        let index = read(&format!("/sys/class/net/{far}/ifindex"))
            .or_else(|_| index_of(far))?
            .parse()
            .map_err(|error| format!("index of {far}: {error}"))?;
        let sender = Socket::new(Domain::PACKET, Type::RAW, None)
            .map_err(|error| format!("packet socket: {error}"))?;
        sender
            .bind(&address(index))
            .map_err(|error| format!("bind to {far}: {error}"))?;
        Ok(Self {
            sender,
            near: address_of(near)?,
            far: address_of(far)?,
        })
    }

    /// Sends a datagram as a frame.
    pub fn send(&self, packet: &Outgoing<'_>) -> Checked {
        let to = packet.destination;
        let fail = |what: String| Stop::fail(format!("send to {to}: {what}"));
        let tags = packet.vlan.map_or(VlanTags::NONE, |vlan| {
            VlanTags::single(VlanTag::customer(vlan))
        });
        let destination =
            mac::destination(to.ip(), self.near).map_err(|error| fail(error.to_string()))?;
        let builder = Builder::udp((packet.source, 40_000).into(), to)
            .map_err(|error| fail(error.to_string()))?
            .ethernet(self.far, destination, tags);
        let mut bytes = vec![0; builder.len(packet.payload.len())];
        builder
            .write(packet.payload, &mut bytes)
            .map_err(|error| fail(error.to_string()))?;
        let sent = self
            .sender
            .send(&bytes)
            .map_err(|error| fail(error.to_string()))?;
        if sent == bytes.len() {
            return Ok(());
        }
        Err(fail(format!("only {sent} of {} bytes", bytes.len())))
    }
}

/// The addresses that frames come from.
pub fn sources(family: Family) -> Vec<IpAddr> {
    match family {
        Family::V4 => [2, 3]
            .map(|host| Ipv4Addr::new(10, 99, 0, host).into())
            .to_vec(),
        Family::V6 => [2, 3]
            .map(|host| Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, host).into())
            .to_vec(),
    }
}

/// The address of the receivers' interface.
pub fn own(family: Family) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(10, 99, 0, 1).into(),
        Family::V6 => Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, 1).into(),
    }
}

/// Takes the receivers' interface down and up again.
pub fn flap() -> Checked {
    ip(&format!("link set {} down", PAIR[0])).map_err(Stop::fail)?;
    take_up().map_err(Stop::fail)
}

/// Sets the interface up and gives it its addresses, of which the kernel drops IPv6 ones when it is set down.
fn take_up() -> Result<(), String> {
    let near = PAIR[0];
    // Larger than the MTU of the configurations, so that packets that are too long for a buffer still come.
    for name in PAIR {
        ip(&format!("link set {name} mtu 3000 up"))?;
    }
    ip(&format!("addr replace {}/24 dev {near}", own(Family::V4)))?;
    ip(&format!(
        "addr replace {}/64 dev {near} nodad",
        own(Family::V6)
    ))
}

/// Whether the interface is a member of a group.
pub fn has_member(group: IpAddr) -> Option<bool> {
    let is_head = |line: &str| line.split_whitespace().nth(1) == Some(PAIR[0]);
    match group {
        IpAddr::V4(group) => {
            // A head for each interface, then a line for each group; the address as a number of the host's byte order.
            let wanted = format!("{:08X}", u32::from_ne_bytes(group.octets()));
            let list = fs::read_to_string("/proc/thread-self/net/igmp").ok()?;
            let mut ours = list
                .lines()
                .skip_while(|line| !is_head(line))
                .skip(1)
                .take_while(|line| line.starts_with('\t'));
            Some(ours.any(|line| line.contains(&wanted)))
        }
        IpAddr::V6(group) => {
            let wanted: String = group.octets().map(|byte| format!("{byte:02x}")).concat();
            let list = fs::read_to_string("/proc/thread-self/net/igmp6").ok()?;
            Some(
                list.lines()
                    .any(|line| is_head(line) && line.contains(&wanted)),
            )
        }
    }
}

fn read(path: &str) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("read {path}: {error}"))?;
    Ok(text.trim().to_owned())
}

/// What `ip` says about an interface, as `/sys` may be another namespace's.
fn shown(name: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(["-o", "link", "show", name])
        .output()
        .map_err(|error| format!("run ip: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn index_of(name: &str) -> Result<String, String> {
    let text = shown(name)?;
    let index = text.split(':').next().unwrap_or_default();
    Ok(index.trim().to_owned())
}

fn address_of(name: &str) -> Result<MacAddress, String> {
    let text = shown(name)?;
    let mut words = text.split_whitespace();
    words.find(|word| *word == "link/ether");
    let word = words.next().unwrap_or_default();
    word.parse()
        .map_err(|error| format!("address of {name}: {error}"))
}

/// `struct sockaddr_ll` for sending through an interface: family, protocol, index and nothing else.
fn address(index: u32) -> socket2::SockAddr {
    super::sys::link_address(index)
}

/// Runs `ip` with these words.
pub fn ip(words: &str) -> Result<(), String> {
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
