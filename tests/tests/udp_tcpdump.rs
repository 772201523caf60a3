//! What iperf sends to two groups of one port is received by `udp` packet by packet, in order, as tcpdump captured it on the same interface.
//!
//! Both programs are independent of this workspace. Needs root, `ip`, `iperf` (version 2) and `tcpdump`; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockgate::receive::{Readiness, Receiver, ReceiverConfig};
use lockgate::registry::Registry;
use lockgate_tests::netns::{self, Cable, Namespace};
use lockgate_tests::tools;

const GROUPS: [&str; 2] = ["239.7.7.7:5000", "239.7.7.8:5000"];
/// Tells that nothing follows for a group; no payload of iperf is that short.
const END: &[u8] = b"end";
/// More than any of it takes on a busy machine. Nothing waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// A packet, as far as both see it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    source: SocketAddrV4,
    destination: SocketAddrV4,
    payload: Vec<u8>,
}

#[test]
fn what_is_received_is_what_tcpdump_captured() {
    if !netns::require() {
        return;
    }
    for (tool, version) in [
        ("iperf", "-v"),
        ("tcpdump", "--version"),
        ("taskset", "--version"),
    ] {
        if let Err(error) = Command::new(tool).arg(version).output() {
            tools::skip("namespaces", &format!("{tool} can't be run: {error}"));
            return;
        }
    }
    let cable = Cable::new();
    cable.far.ip("route add 224.0.0.0/4 dev v0");
    let mut receiver = cable.near.enter(open);
    let file = std::env::temp_dir().join(format!("{}.pcap", cable.near.name()));
    let capture = Capture::start(&cable.near, &file);

    let mut senders = GROUPS.map(|group| iperf(&cable.far, group));
    let mut received = Vec::new();
    while senders
        .iter_mut()
        .any(|child| child.try_wait().unwrap().is_none())
    {
        let _ = receive(&mut receiver, &mut received, Duration::from_millis(10));
    }
    for mut child in senders {
        assert!(child.wait().unwrap().success(), "iperf failed");
    }
    send_ends(&cable.far);
    let ends = |seen: &[Seen]| seen.iter().filter(|one| one.payload == END).count();
    while ends(&received) < GROUPS.len() {
        assert_eq!(
            receive(&mut receiver, &mut received, PATIENCE),
            Readiness::Ready,
            "the end did not come"
        );
    }
    let captured = capture.until(|seen| ends(seen) == GROUPS.len());

    assert!(received.len() > 500, "iperf sent only {}", received.len());
    for group in GROUPS {
        let group = group.parse().unwrap();
        let of_group = |one: &&Seen| one.destination == group;
        assert!(received.iter().filter(of_group).count() > 100, "{group}");
    }
    for (at, (ours, theirs)) in received.iter().zip(&captured).enumerate() {
        assert!(
            ours == theirs,
            "packet {at}: received {ours:?}, captured {theirs:?}"
        );
    }
    assert_eq!(received.len(), captured.len());
    let losses = receiver.statistics().losses;
    assert_eq!((losses.total(), losses.filtered), (0, Some(0)));
}

fn open() -> Receiver {
    let mut registry = Registry::new();
    registry
        .register(lockgate_providers::udp::factory())
        .unwrap();
    let groups = GROUPS.map(|group| group.parse().unwrap());
    let mut config = ReceiverConfig::multicast("v0", groups);
    config.options.set("receive-buffer", 32 << 20);
    config.options.set("force-receive-buffer", true);
    registry.open_receiver("udp", &config).unwrap()
}

/// Waits, and takes what is there.
fn receive(receiver: &mut Receiver, seen: &mut Vec<Seen>, timeout: Duration) -> Readiness {
    let readiness = receiver.wait(Some(timeout)).unwrap();
    let v4 = |address: Option<std::net::SocketAddr>| match address {
        Some(std::net::SocketAddr::V4(address)) => address,
        other => panic!("{other:?} is not of IPv4"),
    };
    loop {
        let batch = receiver.poll().unwrap();
        if batch.is_empty() {
            return readiness;
        }
        seen.extend(batch.iter().map(|packet| Seen {
            source: v4(packet.source()),
            destination: v4(packet.destination()),
            payload: packet.payload().to_vec(),
        }));
    }
}

fn iperf(space: &Namespace, group: &str) -> Child {
    let (address, port) = group.split_once(':').unwrap();
    space
        // On one processor: on two, the kernel itself may let the streams overtake each other between tcpdump and the socket.
        .command("taskset")
        .args(["-c", "0", "iperf"])
        .args(["-u", "-c", address, "-p", port, "-T", "4"])
        .args(["-b", "4M", "-l", "300", "-t", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("iperf starts")
}

fn send_ends(space: &Namespace) {
    space.enter(|| {
        let socket = UdpSocket::bind("10.77.0.2:0").unwrap();
        for group in GROUPS {
            socket.send_to(END, group).unwrap();
        }
    });
}

/// A running tcpdump.
struct Capture<'a> {
    child: Child,
    file: &'a Path,
}

impl<'a> Capture<'a> {
    /// Starts it, and waits until it says that it listens.
    fn start(space: &Namespace, file: &'a Path) -> Self {
        let mut child = space
            .command("tcpdump")
            .args(["-i", "v0", "-U", "--immediate-mode", "-B", "16384"])
            // Else it becomes another user, who may not write here.
            .args(["-Z", "root", "-w"])
            .arg(file)
            .args(["udp", "and", "dst", "port", "5000"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("tcpdump starts");
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens = lines.any(|line| line.unwrap().contains("listening on"));
        assert!(listens, "tcpdump does not listen");
        Self { child, file }
    }

    /// What was captured, as soon as `complete` says that it is.
    fn until(self, complete: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
        let deadline = std::time::Instant::now() + PATIENCE;
        loop {
            let seen = parse(&std::fs::read(self.file).unwrap());
            if complete(&seen) {
                return seen;
            }
            assert!(
                std::time::Instant::now() < deadline,
                "{} packets",
                seen.len()
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        let _ = Command::new("kill")
            .args(["-INT", &self.child.id().to_string()])
            .status();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(self.file);
    }
}

/// The UDP datagrams of a capture in the classic format of this machine's byte order, over Ethernet. A record that is not complete
/// yet ends it.
fn parse(file: &[u8]) -> Vec<Seen> {
    let mut seen = Vec::new();
    let Some((head, mut rest)) = file.split_first_chunk::<24>() else {
        return seen;
    };
    assert_eq!(head[..4], 0xa1b2_c3d4_u32.to_ne_bytes());
    assert_eq!(head[20..], 1_u32.to_ne_bytes(), "Ethernet");
    while let Some((record, after)) = rest.split_first_chunk::<16>() {
        let len = u32::from_ne_bytes(record[8..12].try_into().unwrap()) as usize;
        let Some((frame, after)) = after.split_at_checked(len) else {
            return seen;
        };
        seen.push(datagram(&frame[14..]));
        rest = after;
    }
    seen
}

fn datagram(packet: &[u8]) -> Seen {
    let header = usize::from(packet[0] & 0xf) * 4;
    let udp = &packet[header..];
    let address = |at: usize, port: usize| {
        let octets: [u8; 4] = packet[at..at + 4].try_into().unwrap();
        let port = u16::from_be_bytes([udp[port], udp[port + 1]]);
        SocketAddrV4::new(Ipv4Addr::from(octets), port)
    };
    let len = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    Seen {
        source: address(12, 0),
        destination: address(16, 2),
        payload: udp[8..len].to_vec(),
    }
}
