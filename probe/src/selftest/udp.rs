//! The setup of the self-test over `udp`: a multicast group on the loopback interface.
//!
//! Over IPv4: Linux routes no IPv6 multicast over its loopback interface (seen with 6.18, also with an explicit route). Promises:
//! where it can't be done, the problem says why and what to do. Does not do: bringing the interface up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};

use lockgate::receive::{Group, ReceiverConfig};
use lockgate::{Error, Result};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::pass::Outlet;
use super::{Problem, Setup, random};
use crate::exit::Exit;
use crate::host::{Host, Interface, Reading, findings};
use crate::providers::Providers;

/// Path, exit and problem of a test that could not start.
type NotStarted = (String, Exit, Problem);

/// Opens the receiver and makes the sender.
pub(super) fn setup(
    providers: &Providers,
    host: &Host,
) -> std::result::Result<(String, Setup), NotStarted> {
    let unnamed = || "multicast on the loopback interface".to_owned();
    let lo = match (&host.interfaces, host.loopback()) {
        (_, Some(lo)) => lo,
        (Reading::Unreadable(reason), None) => {
            return Err((unnamed(), Exit::Failed, Problem::plain(reason, None)));
        }
        (Reading::Value(_), None) => {
            let problem = Problem::plain("there is no loopback interface", None);
            return Err((unnamed(), Exit::NoHardware, problem));
        }
    };
    let path = format!("multicast on {}", lo.name);
    if !lo.up {
        let finding = findings::loopback_down(lo);
        let problem = Problem::plain(finding.evidence, Some(&finding.remedy));
        return Err((path, Exit::NoHardware, problem));
    }
    let Some(local) = local_address(lo) else {
        let text = format!(
            "interface {} has no IPv4 address, and over it Linux routes no IPv6 multicast",
            lo.name
        );
        let remedy = format!("ip address add 127.0.0.1/8 dev {}", lo.name);
        return Err((path, Exit::NoHardware, Problem::plain(text, Some(&remedy))));
    };
    open(providers, lo, local).map_err(|error| (path, Exit::of(&error), Problem::of(&error)))
}

/// The first IPv4 address.
fn local_address(lo: &Interface) -> Option<Ipv4Addr> {
    lo.addresses.iter().find_map(|one| match one.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    })
}

fn open(providers: &Providers, lo: &Interface, local: Ipv4Addr) -> Result<(String, Setup)> {
    let port = free_port(local).map_err(|error| {
        Error::from_io("find a free port", error).with_object(local.to_string())
    })?;
    let group = SocketAddrV4::new(group(), port);
    let path = format!("multicast {group} on {}", lo.name);
    let config = ReceiverConfig::multicast(&lo.name, [Group::from(SocketAddr::V4(group))]);
    let receiver = providers.registry.open_receiver("udp", &config)?;
    let outlet = MulticastSender::new(local, group)
        .map_err(|error| Error::from_io("open sending socket", error).with_object(&lo.name))?;
    let setup = Setup {
        receiver,
        source: outlet.source,
        destination: group.into(),
        outlet: Box::new(outlet),
    };
    Ok((path, setup))
}

/// A group that hardly anybody else uses, in the local block 239.255.0.0/16 (RFC 2365).
fn group() -> Ipv4Addr {
    let [third, fourth, ..] = random().to_be_bytes();
    Ipv4Addr::new(239, 255, third, fourth)
}

/// A port that is free now. Whoever takes it in between shares the group's port; the stream's number tells the packets apart.
fn free_port(local: Ipv4Addr) -> io::Result<u16> {
    Ok(UdpSocket::bind((local, 0))?.local_addr()?.port())
}

/// Sends to a group through the loopback interface.
struct MulticastSender {
    socket: UdpSocket,
    source: SocketAddr,
    group: SocketAddrV4,
}

impl MulticastSender {
    fn new(local: Ipv4Addr, group: SocketAddrV4) -> io::Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&SockAddr::from(SocketAddrV4::new(local, 0)))?;
        socket.set_multicast_if_v4(&local)?;
        socket.set_multicast_loop_v4(true)?;
        socket.connect(&SockAddr::from(group))?;
        let socket = UdpSocket::from(socket);
        let source = socket.local_addr()?;
        Ok(Self {
            socket,
            source,
            group,
        })
    }
}

impl Outlet for MulticastSender {
    fn send(&mut self, payload: &[u8]) -> Result<()> {
        loop {
            let error = match self.socket.send(payload) {
                Ok(sent) if sent == payload.len() => return Ok(()),
                Ok(sent) => io::Error::other(format!("{sent} of {} bytes", payload.len())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => error,
            };
            return Err(Error::from_io("send", error).with_object(self.group.to_string()));
        }
    }
}
