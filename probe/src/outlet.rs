//! Where datagrams are sent into: a UDP socket of the kernel, or the network inside the process.
//!
//! Promises: a group is never sent to through an interface that nobody named; what the kernel refuses comes back with its number, and
//! [`explain`] gives it kind and remedy. Several datagrams take one system call. Needs no privilege. Does not do: pacing.

use std::io::IoSlice;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use lockgate::receive::ConfigFaults;
use lockgate::{Errno, Error, ErrorKind, Result};
use lockgate_providers::udp;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use crate::cli::TargetArgs;

/// How many datagrams one call takes at most.
pub(crate) const BATCH: usize = 64;

/// The kernel dropped it: the queue of the interface was full (ENOBUFS).
const NO_BUFFER: i32 = 105;
/// The host on the other side said earlier that nobody listens on the port (ECONNREFUSED).
const REFUSED: i32 = 111;
const UNREACHABLE_NETWORK: i32 = 101;
const UNREACHABLE_HOST: i32 = 113;
const NETWORK_DOWN: i32 = 100;
const TOO_LONG: i32 = 90;
const ADDRESS_NOT_AVAILABLE: i32 = 99;

/// What came of one call.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// So many were taken, from the first on.
    pub(crate) accepted: usize,
    /// Why the next one wasn't, if that was told.
    pub(crate) refusal: Option<Refusal>,
}

/// Why a datagram was not taken.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// Nobody listens on the other side's port: told about an earlier datagram. This one can be sent again.
    Closed,
    /// The queue of the interface was full.
    NoBuffer,
    /// Nothing more can be sent.
    Stop(Error),
}

/// Takes datagrams.
pub(crate) trait Outlet: Send {
    /// Sends some; each slice is one datagram. At most [`BATCH`].
    fn send(&mut self, datagrams: &[IoSlice<'_>]) -> Attempt;
}

/// A UDP socket that sends to one place.
pub(crate) struct UdpOutlet {
    socket: UdpSocket,
    to: SocketAddr,
}

impl UdpOutlet {
    /// Opens one.
    pub(crate) fn open(target: &TargetArgs) -> Result<Self> {
        check(target)?;
        let to = target.to;
        let failed = |step, error| explain(Error::from_io(step, error).with_object(to.to_string()));
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))
            .map_err(|error| failed("open sending socket", error))?;
        if let Some(name) = &target.interface {
            bind_device(&socket, name)?;
        }
        let any = match to {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let from = target.source.unwrap_or(any);
        socket.bind(&SockAddr::from(from)).map_err(|error| {
            explain(Error::from_io("bind sending socket", error).with_object(from.to_string()))
        })?;
        if let Some(ttl) = target.ttl {
            set_ttl(&socket, to, ttl).map_err(|error| failed("set the time to live", error))?;
        }
        // Without it the kernel hides that the queue of the interface was full.
        udp::tell_send_errors(&socket, to.is_ipv6())
            .map_err(|error| error.with_object(to.to_string()))?;
        socket
            .connect(&SockAddr::from(to))
            .map_err(|error| failed("find a way to", error))?;
        Ok(Self {
            socket: socket.into(),
            to,
        })
    }

    /// Where the packets come from.
    pub(crate) fn source(&self) -> Result<SocketAddr> {
        self.socket
            .local_addr()
            .map_err(|error| Error::from_io("read own address", error))
    }

    fn refusal(&self, errno: rustix::io::Errno) -> Refusal {
        let errno = Errno::from_raw(errno.raw_os_error());
        match errno.raw() {
            NO_BUFFER => Refusal::NoBuffer,
            REFUSED => Refusal::Closed,
            _ => {
                let error = Error::from_errno("send", errno).with_object(self.to.to_string());
                Refusal::Stop(explain(error))
            }
        }
    }
}

impl Outlet for UdpOutlet {
    fn send(&mut self, datagrams: &[IoSlice<'_>]) -> Attempt {
        let datagrams = &datagrams[..datagrams.len().min(BATCH)];
        let mut controls: Vec<_> = datagrams
            .iter()
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let mut messages: Vec<_> = datagrams
            .iter()
            .zip(&mut controls)
            .map(|(one, control)| MMsgHdr::new(std::slice::from_ref(one), control))
            .collect();
        loop {
            // After a part was taken, the reason for the rest comes with the next call.
            return match rustix::net::sendmmsg(&self.socket, &mut messages, SendFlags::empty()) {
                Ok(accepted) => Attempt {
                    accepted,
                    refusal: None,
                },
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => Attempt {
                    accepted: 0,
                    refusal: Some(self.refusal(errno)),
                },
            };
        }
    }
}

/// What the addresses themselves say is wrong; costs no system call.
fn check(target: &TargetArgs) -> Result<()> {
    let mut faults = ConfigFaults::new();
    let to = target.to;
    if to.port() == 0 {
        let problem = "has no port to send to";
        faults.push("--to", to.to_string(), problem, "a port from 1 to 65535");
    }
    if to.ip().is_unspecified() {
        let problem = "is no address to send to";
        faults.push(
            "--to",
            to.to_string(),
            problem,
            "a group or the address of a host",
        );
    }
    if to.ip().is_multicast() && target.interface.is_none() {
        let problem = "is a group, and no interface is named to send it through";
        faults.push("--to", to.to_string(), problem, "--interface NAME with it");
    }
    if let Some(source) = target.source
        && source.is_ipv4() != to.is_ipv4()
    {
        let problem = "is of another family than the address to send to";
        faults.push("--source", source.to_string(), problem, "two of one family");
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Invalid(faults), "read command line"))
    }
}

fn bind_device(socket: &Socket, name: &str) -> Result<()> {
    socket.bind_device(Some(name.as_bytes())).map_err(|error| {
        let error = Error::from_io("send through interface", error).with_object(name);
        match error.errno() {
            Some(Errno::NODEV) => error.with_remedy("name an interface that `ip link` shows"),
            Some(Errno::PERM) => error.with_remedy("needs Linux 5.7 or newer, or CAP_NET_RAW"),
            _ => error,
        }
    })
}

fn set_ttl(socket: &Socket, to: SocketAddr, ttl: u8) -> std::io::Result<()> {
    let ttl = u32::from(ttl);
    match (to, to.ip().is_multicast()) {
        (SocketAddr::V4(_), true) => socket.set_multicast_ttl_v4(ttl),
        (SocketAddr::V4(_), false) => socket.set_ttl_v4(ttl),
        (SocketAddr::V6(_), true) => socket.set_multicast_hops_v6(ttl),
        (SocketAddr::V6(_), false) => socket.set_unicast_hops_v6(ttl),
    }
}

/// Adds what the number says where the cause is certain.
fn explain(error: Error) -> Error {
    let Some(errno) = error.errno() else {
        return error;
    };
    match errno.raw() {
        UNREACHABLE_NETWORK => error
            .with_detail("no route leads there, or the interface is down")
            .with_remedy("ip route get ADDRESS; ip link; or name another --interface"),
        UNREACHABLE_HOST => error
            .with_detail("the host, or a router on the way, does not answer")
            .with_remedy("ip neighbour; ip route get ADDRESS"),
        NETWORK_DOWN => error
            .with_detail("the interface is down")
            .with_remedy("ip link set NAME up"),
        TOO_LONG => error
            .with_detail("longer than a datagram to there may be")
            .with_remedy("a smaller --size, or an interface with a larger MTU"),
        ADDRESS_NOT_AVAILABLE => error
            .with_detail("no interface of this network namespace has the address")
            .with_remedy("use an address that `ip address` shows"),
        _ if errno == Errno::PERM => error
            .with_detail("a filter on the way out refuses it")
            .with_remedy("look for the rule: nft list ruleset, iptables -S OUTPUT"),
        _ if errno == Errno::ACCES => error.with_detail(
            "a broadcast address, a prohibited route, or a port that needs a privilege",
        ),
        _ if errno == Errno::NODEV => error
            .with_detail("the interface is gone")
            .with_remedy("ip link; name an interface that is there"),
        _ => error,
    }
}

/// Whether nothing on the way leads to the other side.
pub(crate) fn is_unreachable(errno: Errno) -> bool {
    matches!(errno.raw(), UNREACHABLE_NETWORK | UNREACHABLE_HOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(to: &str) -> TargetArgs {
        TargetArgs {
            to: to.parse().unwrap(),
            interface: None,
            source: None,
            ttl: None,
        }
    }

    #[test]
    fn faults_of_the_addresses_are_told_before_anything_is_opened() {
        for (target, words) in [
            (target("239.7.7.7:5000"), "--interface NAME"),
            (target("10.0.0.1:0"), "from 1 to 65535"),
            (target("0.0.0.0:5"), "the address of a host"),
            (
                TargetArgs {
                    source: Some("[::1]:0".parse().unwrap()),
                    ..target("10.0.0.1:5")
                },
                "two of one family",
            ),
        ] {
            let error = check(&target).unwrap_err();
            assert!(
                error.faults().unwrap().to_string().contains(words),
                "{error}"
            );
        }
        check(&target("127.0.0.1:5")).unwrap();
    }

    #[test]
    fn several_datagrams_arrive_as_they_were_given() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = receiver.local_addr().unwrap();
        let mut outlet = UdpOutlet::open(&target(&to.to_string())).unwrap();
        let payloads: Vec<Vec<u8>> = (0..20_u8).map(|at| vec![at; usize::from(at)]).collect();
        let slices: Vec<_> = payloads.iter().map(|one| IoSlice::new(one)).collect();
        let attempt = outlet.send(&slices);
        assert_eq!(attempt.accepted, 20, "{attempt:?}");
        let mut buffer = [0; 64];
        for payload in &payloads {
            let (length, from) = receiver.recv_from(&mut buffer).unwrap();
            assert_eq!(buffer[..length], payload[..]);
            assert_eq!(from, outlet.source().unwrap());
        }
    }

    #[test]
    fn a_port_that_nobody_listens_on_is_told_and_is_no_end() {
        let port = UdpSocket::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let mut outlet = UdpOutlet::open(&target(&port.to_string())).unwrap();
        let once = [IoSlice::new(b"anybody")];
        assert_eq!(outlet.send(&once).accepted, 1);
        let second = outlet.send(&once);
        assert!(
            matches!(second.refusal, Some(Refusal::Closed)),
            "{second:?}"
        );
        assert_eq!(outlet.send(&once).accepted, 1);
    }

    #[test]
    fn numbers_with_one_cause_have_a_remedy_and_others_no_guess() {
        let told = |errno| explain(Error::from_errno("send", Errno::from_raw(errno)));
        for (errno, words) in [
            (UNREACHABLE_NETWORK, "ip route get"),
            (NETWORK_DOWN, "ip link set"),
            (TOO_LONG, "--size"),
            (1, "nft list ruleset"),
        ] {
            let error = told(errno);
            assert!(
                error.remedy().unwrap_or_default().contains(words),
                "{error}"
            );
        }
        assert_eq!(told(5).remedy(), None);
        assert!(is_unreachable(Errno::from_raw(113)) && !is_unreachable(Errno::PERM));
    }
}
