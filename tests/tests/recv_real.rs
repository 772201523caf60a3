//! Real input: what independent programs send from another network namespace is what `probe recv` receives, packet by packet
//! as tcpdump captured it.
//!
//! iperf 2 sends over IPv4 and IPv6, and tcpreplay sends a capture again. Payload, source, destination and order are compared.
//! The end of a stream is told by a marker packet that the test sends itself, so that nothing is waited for by time.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockgate_tests::netns::{self, Cable};
use lockgate_tests::{probe, tools};
use serde_json::Value;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// The payload of iperf's packets, in bytes.
const SIZE: usize = 300;

/// One packet, as either side saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    source: SocketAddr,
    destination: SocketAddr,
    payload: Vec<u8>,
}

/// A folder of a name of its own, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-recv-real-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that runs until it is told to end; killed if the test panics.
struct Running {
    child: Child,
    /// Kept open: a program whose reader has gone away ends in another way.
    output: Box<dyn BufRead>,
    log: String,
}

impl Running {
    /// Starts it and reads its output up to a line that has `ready`.
    fn start(mut command: Command, ready: &str, on_stderr: bool) -> Self {
        command.stdin(Stdio::null());
        let mut child = if on_stderr {
            command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()
        } else {
            command.stdout(Stdio::piped()).spawn()
        }
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut output: Box<dyn BufRead> = if on_stderr {
            Box::new(BufReader::new(child.stderr.take().unwrap()))
        } else {
            Box::new(BufReader::new(child.stdout.take().unwrap()))
        };
        let mut log = String::new();
        while !log.contains(ready) {
            let read = output.read_line(&mut log).unwrap();
            assert_ne!(read, 0, "{command:?} ended with {log}");
        }
        Self { child, output, log }
    }

    /// Asks it to end as Ctrl-C does. The child is `ip netns exec`, which becomes the program itself.
    fn send_interrupt(&self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
        assert!(sent.success(), "{}", self.log);
    }

    /// Everything that it prints until it ends.
    fn rest(&mut self) -> String {
        self.output.read_to_string(&mut self.log).unwrap();
        self.log.clone()
    }

    /// Its exit code.
    fn wait(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Ends it, and gives its exit code and everything that it printed.
    fn interrupt(mut self) -> (Option<i32>, String) {
        self.send_interrupt();
        let told = self.rest();
        (self.wait(), told)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a `wait` it has ended, and both calls fail without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is received of what `send` sends to a group: by probe and by tcpdump, without the marker.
fn both(
    cable: &Cable,
    folder: &Folder,
    group: SocketAddr,
    marker: &[u8],
    send: impl FnOnce(),
) -> [Vec<Packet>; 2] {
    let (capture, dump) = (folder.file("near.pcap"), folder.file("dump"));
    let mut command = cable.near.command("tcpdump");
    // Root writes the file itself, and each packet at once. In this mode the ring has a place for each packet, of the length that
    // -s gives: with the default of 256 KiB there are eight, and a busy machine loses packets.
    command.args(["-n", "-i", "v0", "-U", "--immediate-mode", "-Z", "root"]);
    command.args(["-s", "2048", "-B", "16384", "-w"]);
    command.arg(&capture);
    let filter = format!(
        "udp and dst host {} and dst port {}",
        group.ip(),
        group.port()
    );
    command.arg(filter);
    let tcpdump = Running::start(command, "listening on", true);

    let mut command = cable.near.command(probe::binary().to_str().unwrap());
    command.args(["recv", "--provider", "udp", "--interface", "v0"]);
    // Room for everything that is sent, so that a slow machine loses nothing.
    command.args(["--option", "receive-buffer=4194304"]);
    command
        .args(["--group", &group.to_string(), "--dump"])
        .arg(&dump);
    let receiver = Running::start(command, "until", false);

    send();
    send_marker(cable, group, marker);
    let received = wait_for_marker(marker, || read_dump(&dump));
    let captured = wait_for_marker(marker, || read_capture(&capture));
    let (code, told) = receiver.interrupt();
    assert_eq!(code, Some(0), "{told}");
    let (code, told) = tcpdump.interrupt();
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("\n0 packets dropped by kernel"), "{told}");
    [received, captured]
}

fn send_marker(cable: &Cable, group: SocketAddr, marker: &[u8]) {
    cable.far.enter(|| {
        let (local, group) = match group {
            SocketAddr::V4(_) => ("10.77.0.2:0", group),
            SocketAddr::V6(v6) => {
                let index = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap();
                let index = index.lines().find(|line| line.ends_with(" v0")).unwrap();
                let index = index.split_whitespace().nth(1).unwrap();
                let index = u32::from_str_radix(index, 16).unwrap();
                let group = SocketAddrV6::new(*v6.ip(), v6.port(), 0, index);
                ("[fd77::2]:0", group.into())
            }
        };
        let socket = UdpSocket::bind(local).unwrap();
        assert_eq!(socket.send_to(marker, group).unwrap(), marker.len());
    });
}

/// Everything before the marker, once it is there.
fn wait_for_marker(marker: &[u8], read: impl Fn() -> Vec<Packet>) -> Vec<Packet> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut packets = read();
        if packets.last().is_some_and(|last| last.payload == marker) {
            packets.pop();
            return packets;
        }
        let seen = packets.len();
        assert!(Instant::now() < deadline, "{seen} packets and no marker");
        std::thread::yield_now();
    }
}

/// The lines of a dump; a line that is still being written is left for the next reading.
fn read_dump(path: &Path) -> Vec<Packet> {
    let text = fs::read_to_string(path).unwrap();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(dump_line).collect()
}

fn dump_line(line: &str) -> Packet {
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["truncated"], false, "{line}");
    let address = |field: &str| {
        let mut address: SocketAddr = line[field].as_str().unwrap().parse().unwrap();
        // The scope is the receiver's view; a capture has none.
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(0);
        }
        address
    };
    let digits = line["payload"].as_str().unwrap();
    let payload: Vec<u8> = (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect();
    assert_eq!(line["length"], payload.len(), "{line}");
    Packet {
        source: address("source"),
        destination: address("destination"),
        payload,
    }
}

/// The packets of a capture in the classic form of the writer's byte order, link type Ethernet; up to the last whole one.
fn read_capture(path: &Path) -> Vec<Packet> {
    let bytes = fs::read(path).unwrap();
    let u32_at = |at: usize| {
        Some(u32::from_ne_bytes(
            bytes.get(at..at + 4)?.try_into().unwrap(),
        ))
    };
    let Some(link) = u32_at(20) else {
        return Vec::new();
    };
    assert_eq!(u32_at(0), Some(0xa1b2_c3d4), "the magic number");
    assert_eq!(link, 1, "the link type");
    let mut packets = Vec::new();
    let mut at = 24;
    while let (Some(captured), Some(wire)) = (u32_at(at + 8), u32_at(at + 12)) {
        assert_eq!(captured, wire, "tcpdump cut a packet");
        let start = at + 16;
        let Some(frame) = bytes.get(start..start + captured as usize) else {
            break;
        };
        packets.push(udp(frame));
        at = start + captured as usize;
    }
    packets
}

/// Makes the UDP checksum of every packet of an IPv4 capture wrong.
fn spoil_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let mut at = 24;
    while at < bytes.len() {
        let length = u32::from_ne_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        let header = usize::from(bytes[at + 16 + 14] & 15) * 4;
        let place = at + 16 + 14 + header + 6;
        let right = u16::from_be_bytes([bytes[place], bytes[place + 1]]);
        // Zero would say that there is none, which is allowed.
        let wrong = if right == 0x5555 {
            0x2222
        } else {
            right ^ 0x5555
        };
        bytes[place..place + 2].copy_from_slice(&wrong.to_be_bytes());
        at += 16 + length as usize;
    }
    bytes
}

/// An Ethernet frame with a UDP datagram, without any extension header.
fn udp(frame: &[u8]) -> Packet {
    let packet = &frame[14..];
    let (source, destination, datagram) = match frame[12..14] {
        [0x08, 0x00] => {
            let header = usize::from(packet[0] & 15) * 4;
            assert_eq!(packet[9], 17);
            let address = |at: usize| {
                let bytes: [u8; 4] = packet[at..at + 4].try_into().unwrap();
                std::net::IpAddr::from(bytes)
            };
            (address(12), address(16), &packet[header..])
        }
        [0x86, 0xdd] => {
            assert_eq!(packet[6], 17);
            let address = |at: usize| {
                let bytes: [u8; 16] = packet[at..at + 16].try_into().unwrap();
                std::net::IpAddr::from(Ipv6Addr::from(bytes))
            };
            (address(8), address(24), &packet[40..])
        }
        ref other => panic!("ether type {other:02x?}"),
    };
    let u16_at = |at: usize| u16::from_be_bytes([datagram[at], datagram[at + 1]]);
    Packet {
        source: SocketAddr::new(source, u16_at(0)),
        destination: SocketAddr::new(destination, u16_at(2)),
        payload: datagram[8..usize::from(u16_at(4))].to_vec(),
    }
}

/// A second of iperf at 2 Mbit/s.
fn iperf(cable: &Cable, arguments: &[&str]) {
    let mut command = cable.far.command("iperf");
    command.args([
        "-u",
        "-b",
        "2M",
        "-t",
        "1",
        "-T",
        "4",
        "-l",
        &SIZE.to_string(),
    ]);
    command.args(arguments);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {told}");
}

/// Sends a capture again, frame by frame.
fn replay(cable: &Cable, capture: &Path) {
    let mut command = cable.far.command("tcpreplay");
    command
        .args(["-q", "-i", "v0", "--pps", "5000"])
        .arg(capture);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

/// The two namespaces, or nothing where the equipment is missing; the skip has been told.
fn equipment(programs: &[&str], checksums: bool) -> Option<(Cable, Folder)> {
    for program in ["tcpdump"].iter().chain(programs) {
        if !on_path(program) {
            // Of the same group as the namespaces: without these programs, these tests show nothing.
            let reason = format!("{program} is not on PATH; on Debian: apt-get install {program}");
            tools::skip("namespaces", &reason);
            return None;
        }
    }
    if !netns::require() {
        return None;
    }
    let cable = Cable::new();
    // A sender that leaves the checksum to a device that is not there puts a wrong one into captures.
    if checksums {
        let mut command = cable.far.command("ethtool");
        let output = command.args(["-K", "v0", "tx", "off"]).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
    }
    // Without a route the kernel does not know where to send multicast.
    cable.far.ip("route add 239.0.0.0/8 dev v0");
    Some((cable, Folder::new()))
}

/// Waits until the near side's kernel has dropped as many.
fn wait_for_checksum_errors(cable: &Cable, expected: u64) {
    let errors = || {
        let text = fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
        let names = lines.next().unwrap().split_whitespace();
        let numbers = lines.next().unwrap().split_whitespace();
        let mut pairs = names.zip(numbers);
        let (_, count) = pairs.find(|(name, _)| *name == "InCsumErrors").unwrap();
        count.parse::<u64>().unwrap()
    };
    cable.near.enter(|| {
        let deadline = Instant::now() + PATIENCE;
        while errors() < expected {
            assert!(Instant::now() < deadline, "{} errors", errors());
            std::thread::yield_now();
        }
    });
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Both saw the same, and it is what was sent: as many packets as a second at this rate has, from the other namespace.
fn assert_same(received: &[Packet], captured: &[Packet], group: SocketAddr) {
    for (at, (ours, theirs)) in received.iter().zip(captured).enumerate() {
        assert_eq!(ours, theirs, "packet {at} of {}", captured.len());
    }
    assert_eq!(received.len(), captured.len());
    assert!(received.len() > 500, "only {} packets", received.len());
    let full = received.iter().filter(|one| one.payload.len() == SIZE);
    assert!(full.count() > 500);
    assert!(received.iter().all(|one| one.destination == group));
}

#[test]
fn iperf_over_ipv4_is_received_as_captured_and_so_is_its_replay() {
    let Some((cable, folder)) = equipment(&["ethtool", "iperf", "tcpreplay"], true) else {
        return;
    };
    let group: SocketAddr = "239.7.7.7:47000".parse().unwrap();
    let marker = b"the end of the first stream";
    let [received, captured] = both(&cable, &folder, group, marker, || {
        iperf(
            &cable,
            &["-c", "239.7.7.7", "-p", "47000", "-B", "10.77.0.2"],
        );
    });
    assert_same(&received, &captured, group);

    // The capture has the marker at its end, and so it is sent again, too; the second stream ends with another one.
    let again = folder.file("again.pcap");
    fs::rename(folder.file("near.pcap"), &again).unwrap();
    let end = b"the end of the second stream";
    let [replayed, captured] = both(&cable, &folder, group, end, || {
        replay(&cable, &again);
    });
    assert_same(&replayed, &captured, group);
    assert_eq!(replayed[..received.len()], received[..]);
    assert_eq!(replayed[received.len()].payload, marker);
}

#[test]
fn a_replay_with_wrong_checksums_is_not_received_and_the_hint_says_why() {
    let Some((cable, folder)) = equipment(&["ethtool", "iperf", "tcpreplay"], true) else {
        return;
    };
    let group: SocketAddr = "239.7.7.8:47002".parse().unwrap();
    let [received, _] = both(&cable, &folder, group, b"the end", || {
        iperf(
            &cable,
            &["-c", "239.7.7.8", "-p", "47002", "-B", "10.77.0.2"],
        );
    });
    assert!(received.len() > 500, "only {} packets", received.len());

    let mut command = cable.near.command(probe::binary().to_str().unwrap());
    command.args(["recv", "--provider", "udp", "--interface", "v0"]);
    command.args(["--group", &group.to_string()]);
    let mut receiver = Running::start(command, "until", false);
    let spoilt = folder.file("spoilt.pcap");
    fs::write(
        &spoilt,
        spoil_checksums(fs::read(folder.file("near.pcap")).unwrap()),
    )
    .unwrap();
    replay(&cable, &spoilt);
    let sent = received.len() + 1; // with the marker
    wait_for_checksum_errors(&cable, sent as u64);
    receiver.send_interrupt();
    let text = receiver.rest();
    assert_eq!(receiver.wait(), Some(10), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let dropped = format!(
        "the kernel dropped {sent} UDP datagrams in this time because their checksum was wrong"
    );
    assert!(words.contains(&dropped), "{text}");
}

#[test]
fn iperf_over_ipv6_is_received_as_captured() {
    let Some((cable, folder)) = equipment(&["iperf"], false) else {
        return;
    };
    let group: SocketAddr = "[ff15::7:7]:47001".parse().unwrap();
    let [received, captured] = both(&cable, &folder, group, b"the end", || {
        iperf(&cable, &["-V", "-c", "ff15::7:7%v0", "-p", "47001"]);
    });
    assert_same(&received, &captured, group);
}
