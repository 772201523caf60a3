//! Keeps groups joined on kernel sockets that receive nothing, and holds the port of a unicast address.
//!
//! A receiver of whole frames is not a member of anything. So that switches forward a group and the interface lets it in, a kernel
//! socket joins it; the socket is bound to no port, and the kernel hands it nothing. A unicast port that nobody holds would
//! be answered with "port unreachable", so one socket holds it, with a filter that drops everything.
//!
//! Promises: every membership goes with its socket, at the latest when the process ends. Does not do: receiving.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use lockgate::receive::{Group, ReceiverConfig};
use lockgate::{Error, Result};
use socket2::{Domain, Protocol, SockFilter, Socket, Type};

use crate::kernel::{Interface, membership, remedy};

/// Memberships and what holds them.
pub(crate) struct Memberships {
    sockets: Vec<Place>,
    /// Each group once, or once for each of its sources, and the place of its socket.
    joined: Vec<(Group, usize)>,
    _port: Option<Socket>,
}

struct Place {
    socket: Socket,
    is_ipv4: bool,
    /// Takes no more groups.
    full: bool,
}

impl Memberships {
    /// None at all: somebody else keeps the groups joined.
    pub(crate) fn none() -> Self {
        Self {
            sockets: Vec::new(),
            joined: Vec::new(),
            _port: None,
        }
    }

    /// Joins every group of a configuration if `join` says so, and holds its unicast port.
    pub(crate) fn open(config: &ReceiverConfig, interface: &Interface, join: bool) -> Result<Self> {
        let mut this = Self::none();
        this._port = config
            .unicast
            .map(|address| hold_port(address, interface))
            .transpose()?
            .flatten();
        let groups = if join { wanted(config) } else { Vec::new() };
        for group in groups {
            this.join(group, interface)?;
        }
        Ok(this)
    }

    /// Leaves and joins all groups, on an interface that came back, or so that they are reported again.
    pub(crate) fn rejoin(&self, old: u32, interface: &Interface) -> Result<()> {
        self.leave(old);
        for (group, at) in &self.joined {
            membership::join(&self.sockets[*at].socket, group, Some(interface))
                .map_err(|failure| failure.explained(group, Some(interface)))?;
        }
        Ok(())
    }

    /// Leaves all groups.
    pub(crate) fn leave(&self, index: u32) {
        for (group, at) in &self.joined {
            membership::leave(&self.sockets[*at].socket, group, index);
        }
    }

    /// The addresses that are joined, each once.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.joined.iter().map(|(group, _)| group.address).collect();
        all.dedup();
        all
    }

    fn join(&mut self, group: Group, interface: &Interface) -> Result<()> {
        let is_ipv4 = group.address.is_ipv4();
        loop {
            let found = self
                .sockets
                .iter()
                .rposition(|place| place.is_ipv4 == is_ipv4 && !place.full);
            // The kernel limits the groups, and the sources of a group, of one socket; the next socket takes the next ones.
            let (at, fresh) = match found {
                Some(at) => (at, false),
                None => {
                    self.sockets.push(Place {
                        socket: open_socket(is_ipv4)?,
                        is_ipv4,
                        full: false,
                    });
                    (self.sockets.len() - 1, true)
                }
            };
            match membership::join(&self.sockets[at].socket, &group, Some(interface)) {
                Ok(()) => {
                    self.joined.push((group, at));
                    return Ok(());
                }
                Err(failure) if failure.is_full() && !fresh => self.sockets[at].full = true,
                Err(failure) => return Err(failure.explained(&group, Some(interface))),
            }
        }
    }
}

/// What has to be joined: each address once from any source, or once from each source that some port asks for.
fn wanted(config: &ReceiverConfig) -> Vec<Group> {
    let mut all: Vec<Group> = Vec::new();
    for group in &config.groups {
        let from_any = config
            .groups
            .iter()
            .any(|other| other.address == group.address && other.sources.is_empty());
        let mut add = |one: Group| {
            let there = all
                .iter()
                .any(|other| other.address == one.address && other.sources == one.sources);
            if !there {
                all.push(one);
            }
        };
        if from_any {
            add(Group::new(group.address, group.port));
        } else {
            for source in &group.sources {
                add(Group::new(group.address, group.port).from_sources([*source]));
            }
        }
    }
    all
}

fn open_socket(is_ipv4: bool) -> Result<Socket> {
    let (domain, any): (_, IpAddr) = if is_ipv4 {
        (Domain::IPV4, std::net::Ipv4Addr::UNSPECIFIED.into())
    } else {
        (Domain::IPV6, std::net::Ipv6Addr::UNSPECIFIED.into())
    };
    Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
        .map_err(|error| remedy::open_socket(error, any))
}

/// Holds a port with a socket that takes nothing; nothing if another socket has it already.
fn hold_port(address: SocketAddr, interface: &Interface) -> Result<Option<Socket>> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))
        .map_err(|error| remedy::open_socket(error, address.ip()))?;
    // `ret #0`: nothing passes.
    let nothing = [SockFilter::new(libc::BPF_RET as u16, 0, 0, 0)];
    socket
        .attach_filter(&nothing)
        .map_err(|error| Error::from_io("attach filter", error).with_object("port holder"))?;
    let scoped = match address {
        SocketAddr::V6(one) if one.scope_id() == 0 && one.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*one.ip(), one.port(), 0, interface.index).into()
        }
        other => other,
    };
    match socket.bind(&scoped.into()) {
        Ok(()) => Ok(Some(socket)),
        // Somebody holds it: the kernel answers nothing then either.
        Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => Ok(None),
        Err(error) => Err(remedy::bind(error, scoped)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_joined_once_from_any_or_once_from_each_source() {
        let group = |text: &str, sources: &[&str]| {
            let group: Group = text.parse().unwrap();
            group.from_sources(sources.iter().map(|one| one.parse().unwrap()))
        };
        let config = ReceiverConfig::multicast(
            "lo",
            [
                group("239.1.1.1:1", &["10.0.0.1"]),
                group("239.1.1.1:2", &[]),
                group("239.1.1.2:1", &["10.0.0.1", "10.0.0.2"]),
                group("239.1.1.2:2", &["10.0.0.2"]),
                group("[ff15::1]:1", &[]),
                group("[ff15::1]:2", &[]),
            ],
        );
        let lines: Vec<String> = wanted(&config)
            .iter()
            .map(|one| format!("{} {:?}", one.address, one.sources))
            .collect();
        assert_eq!(
            lines,
            [
                "239.1.1.1 []",
                "239.1.1.2 [10.0.0.1]",
                "239.1.1.2 [10.0.0.2]",
                "ff15::1 []"
            ]
        );
    }

    #[test]
    fn more_groups_than_one_socket_takes_are_joined() {
        let limit: u8 = remedy::sysctl("net.ipv4.igmp_max_memberships")
            .unwrap()
            .parse()
            .unwrap();
        let count = limit.saturating_mul(2).saturating_add(5);
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let groups = (0..count).map(|last| {
            Group::new(
                std::net::Ipv4Addr::new(239, 200 | (high & 7), low, last).into(),
                5000,
            )
        });
        let interface = Interface {
            name: "lo".to_owned(),
            index: 1,
        };
        let config = ReceiverConfig::multicast("lo", groups);
        let all = Memberships::open(&config, &interface, true).unwrap();
        assert_eq!(all.addresses().len(), usize::from(count));
        assert!(all.sockets.len() >= 3, "{} sockets", all.sockets.len());
        all.rejoin(1, &interface).unwrap();
        all.leave(1);
    }
}
