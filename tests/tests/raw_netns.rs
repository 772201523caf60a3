//! The receivers of whole frames beside `udp` on one feed, in network namespaces.
//!
//! A bridge floods the feed into namespaces of their own: one for `udp`, `packet` V2 and V3 and `tcpdump`, and one each for `xdp`
//! generic and native, which take their packets away from everybody else there. Needs root and `ip`; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockgate::receive::frame::{Builder, VlanTag, VlanTags};
use lockgate::receive::mac::{self, MacAddress};
use lockgate::receive::{Packet, Receiver, ReceiverConfig};
use lockgate::registry::Registry;
use lockgate_tests::bpf;
use lockgate_tests::netns::{self, Namespace};
use lockgate_tests::tools;
use socket2::{Domain, Socket, Type};

#[path = "../../providers/tests/equipment/sys.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod sys;

/// More than any of it takes on a busy machine. Nothing waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);
const GROUP: &str = "239.7.7.7:47000";
const GROUP_V6: &str = "[ff15::7]:47000";
/// A provider, the number of its namespace, and its options.
type Standing = (&'static str, usize, &'static [(&'static str, &'static str)]);
/// Which receiver stands in which of the three namespaces.
const RECEIVERS: [Standing; 5] = [
    ("udp", 0, &[]),
    ("packet", 0, &[("version", "v2")]),
    ("packet", 0, &[("version", "v3")]),
    ("xdp", 1, &[("mode", "generic")]),
    ("xdp", 2, &[("mode", "native")]),
];

/// The sender's namespace with a bridge, and three that hang from it.
struct Feed {
    far: Namespace,
    near: Vec<Namespace>,
    sender: Socket,
    own: MacAddress,
}

impl Feed {
    fn new(mtu: u32) -> Self {
        let far = Namespace::new();
        // No filter of memberships: what is sent comes out at every port.
        far.ip("link add br0 type bridge mcast_snooping 0");
        let near: Vec<Namespace> = (0..3).map(|_| Namespace::new()).collect();
        for (at, space) in near.iter().enumerate() {
            space.ip(&format!(
                "link add v0 type veth peer name p{at} netns {}",
                far.name()
            ));
            far.ip(&format!("link set p{at} master br0 mtu {mtu} up"));
            // Sums are computed by the sender, so that damage can be told.
            for (place, name) in [(&far, format!("p{at}")), (space, "v0".to_owned())] {
                let mut ethtool = place.command("ethtool");
                let done = ethtool
                    .args(["-K", &name, "tx", "off", "rxvlan", "off"])
                    .output()
                    .unwrap();
                assert!(done.status.success(), "{done:?}");
            }
            space.ip(&format!("address add 10.77.0.{}/24 dev v0", at + 1));
            space.ip(&format!("address add fd77::{}/64 dev v0 nodad", at + 1));
            space.ip(&format!("link set v0 mtu {mtu} up"));
        }
        far.ip("address add 10.77.0.9/24 dev br0");
        far.ip("address add fd77::9/64 dev br0 nodad");
        far.ip(&format!("link set br0 mtu {mtu} up"));
        far.ip("route add 224.0.0.0/4 dev br0");
        for space in &near {
            space.wait_for_ipv6("v0");
        }
        let shown = far.ip("-o link show br0");
        let own = shown
            .split_whitespace()
            .skip_while(|word| *word != "link/ether")
            .nth(1)
            .unwrap();
        let index = shown.split(':').next().unwrap().trim().parse().unwrap();
        let sender = far.enter(|| {
            let socket = Socket::new(Domain::PACKET, Type::RAW, None).unwrap();
            socket.bind(&sys::link_address(index)).unwrap();
            socket
        });
        Self {
            own: own.parse().unwrap(),
            far,
            near,
            sender,
        }
    }

    fn open(&self, at: usize, config: &ReceiverConfig) -> Receiver {
        let (provider, space, options) = RECEIVERS[at];
        let mut config = config.clone();
        for (name, value) in options {
            config.options.set(name, *value);
        }
        if provider == "xdp" {
            config.buffer_bytes = config.buffer_bytes.min(3840);
            config.mtu = config.mtu.min(1500);
        }
        self.near[space]
            .enter(|| registry().open_receiver(provider, &config))
            .unwrap_or_else(|error| panic!("{}: {error}", name(at)))
    }

    fn frame(&self, from: &str, to: &str, tags: VlanTags, payload: &[u8]) -> Vec<u8> {
        let to: SocketAddr = to.parse().unwrap();
        let builder = Builder::udp(from.parse().unwrap(), to).unwrap().ethernet(
            self.own,
            mac::multicast(to.ip()).unwrap(),
            tags,
        );
        let mut bytes = vec![0; builder.len(payload.len())];
        builder.write(payload, &mut bytes).unwrap();
        bytes
    }

    fn send(&self, frame: &[u8]) {
        assert_eq!(self.sender.send(frame).unwrap(), frame.len());
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    for factory in [
        lockgate_providers::udp::factory(),
        lockgate_providers::packet::factory(),
        lockgate_providers::xdp::factory(),
    ] {
        registry.register(factory).unwrap();
    }
    registry
}

fn name(at: usize) -> String {
    let (provider, _, options) = RECEIVERS[at];
    let words: Vec<&str> = options.iter().map(|(_, value)| *value).collect();
    format!("{provider} {}", words.join(" "))
}

fn config(groups: &[&str]) -> ReceiverConfig {
    ReceiverConfig {
        ring: 4096,
        ..ReceiverConfig::multicast("v0", groups.iter().map(|one| one.parse().unwrap()))
    }
}

/// One packet, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Got {
    source: SocketAddr,
    destination: SocketAddr,
    vlan: Option<u16>,
    payload: Vec<u8>,
    frame: Option<Vec<u8>>,
}

impl Got {
    fn of(packet: &Packet<'_>) -> Self {
        Self {
            source: packet.source().unwrap(),
            destination: packet.destination().unwrap(),
            vlan: packet.vlan(),
            payload: packet.payload().to_vec(),
            frame: packet.frame().map(<[u8]>::to_vec),
        }
    }
}

/// Everything that is there.
fn drained(receiver: &mut Receiver) -> Vec<Got> {
    let mut all = Vec::new();
    loop {
        let batch = receiver.poll().unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|packet| Got::of(&packet)));
    }
}

/// Everything up to a packet with this payload, and what comes in one batch with it.
fn until(receiver: &mut Receiver, marker: &[u8], who: &str) -> Vec<Got> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    loop {
        let mut ended = false;
        for packet in receiver.poll().unwrap() {
            if packet.payload() == marker {
                ended = true;
            } else {
                all.push(Got::of(&packet));
            }
        }
        if ended {
            return all;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(
            !left.is_zero(),
            "{who}: no marker after {} packets; {:?}",
            all.len(),
            receiver.statistics()
        );
        let _ = receiver.wait(Some(left)).unwrap();
    }
}

/// A program that is killed if the test panics.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether everything that these tests need is here; `programs` beside.
fn equipped(programs: &[&str]) -> bool {
    if !netns::require() {
        return false;
    }
    let found = ["ethtool"]
        .iter()
        .chain(programs)
        .all(|tool| tools::require_tool(tool).is_ok());
    if !found {
        return false;
    }
    let inspection = registry().inspect("xdp").unwrap();
    if !inspection.usable {
        tools::skip("xdp", &inspection.findings.join("; "));
    }
    inspection.usable
}

#[test]
fn every_receiver_gets_what_tcpdump_sees_and_tcp_runs_on() {
    if !equipped(&["iperf", "tcpdump"]) {
        return;
    }
    let feed = Feed::new(1500);
    let file = std::env::temp_dir().join(format!("lockgate-raw-{}.pcap", std::process::id()));
    let mut command = feed.near[0].command("tcpdump");
    command
        .args([
            "-i",
            "v0",
            "-U",
            "--immediate-mode",
            "-B",
            "16384",
            "-s",
            "0",
            "-Z",
            "root",
            "-w",
        ])
        .arg(&file)
        .arg("udp and dst host 239.7.7.7 and dst port 47000")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut tcpdump = Running(command.spawn().unwrap());
    let mut told = BufReader::new(tcpdump.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "tcpdump ended");
    }
    let mut receivers: Vec<Receiver> = (0..RECEIVERS.len())
        .map(|at| feed.open(at, &config(&[GROUP])))
        .collect();

    // Connections through the interfaces whose packets are redirected, at the same time.
    let listener = feed
        .far
        .enter(|| TcpListener::bind("10.77.0.9:5001").unwrap());
    let data: Vec<u8> = (0..1 << 20)
        .map(|at: u32| (at * 7 + at / 255) as u8)
        .collect();
    std::thread::scope(|scope| {
        let data = &data;
        scope.spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut came = Vec::new();
                stream.read_to_end(&mut came).unwrap();
                assert!(came == *data, "{} bytes came over TCP", came.len());
                stream.write_all(b"whole").unwrap();
            }
        });
        for space in &feed.near {
            scope.spawn(move || {
                let mut stream = space.enter(|| TcpStream::connect("10.77.0.9:5001").unwrap());
                stream.write_all(data).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                assert_eq!(answer, "whole");
            });
        }
        let mut iperf = feed.far.command("iperf");
        let sent = iperf
            .args([
                "-u",
                "-c",
                "239.7.7.7",
                "-p",
                "47000",
                "-l",
                "300",
                "-b",
                "4M",
                "-t",
                "1",
            ])
            .args(["-T", "4"])
            .output()
            .unwrap();
        assert!(sent.status.success(), "{sent:?}");
    });
    let marker = b"the end of the feed";
    let end = feed.frame("10.77.0.9:9", GROUP, VlanTags::NONE, marker);
    feed.send(&end);
    let all: Vec<Vec<Got>> = receivers
        .iter_mut()
        .enumerate()
        .map(|(at, receiver)| until(receiver, marker, &name(at)))
        .collect();
    let captured = captured(&file, &end);
    std::fs::remove_file(&file).unwrap();
    assert!(
        captured.len() > 500,
        "{} packets were captured",
        captured.len()
    );
    for (at, got) in all.iter().enumerate() {
        let who = name(at);
        assert_eq!(got.len(), captured.len(), "{who}");
        for (number, (got, frame)) in got.iter().zip(&captured).enumerate() {
            assert!(frame.ends_with(&got.payload), "{who}: packet {number}");
            assert_eq!(got.source.ip(), "10.77.0.9".parse::<IpAddr>().unwrap());
            assert_eq!(got.destination, GROUP.parse().unwrap());
            if let Some(whole) = &got.frame {
                assert_eq!(whole, frame, "{who}: frame {number}");
            }
        }
        assert_eq!(got[0].frame.is_some(), at > 0, "{who}");
    }
    for (at, receiver) in receivers.iter_mut().enumerate() {
        assert_eq!(receiver.statistics().losses.total(), 0, "{}", name(at));
        receiver.close().unwrap();
    }
}

/// The frames of a capture up to `end`, which must be there before long.
fn captured(file: &std::path::Path, end: &[u8]) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let bytes = std::fs::read(file).unwrap_or_default();
        let mut rest = bytes.get(24..).unwrap_or_default();
        let mut frames = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<16>() {
            let len = u32::from_ne_bytes(*head[8..].first_chunk().unwrap()) as usize;
            let Some((frame, behind)) = behind.split_at_checked(len) else {
                break;
            };
            if frame == end {
                return frames;
            }
            frames.push(frame.to_vec());
            rest = behind;
        }
        assert!(
            Instant::now() < deadline,
            "tcpdump wrote {} frames and no end",
            frames.len()
        );
        std::thread::yield_now();
    }
}

/// IPv6 with and without extension headers, tags, fragments, damaged and cut frames: delivered, or counted at one place.
#[test]
fn odd_frames_are_delivered_or_counted() {
    if !equipped(&[]) {
        return;
    }
    let feed = Feed::new(1500);
    let mut receivers: Vec<Receiver> = (0..RECEIVERS.len())
        .map(|at| feed.open(at, &config(&[GROUP, GROUP_V6])))
        .collect();
    let plain = |payload: &[u8]| feed.frame("10.77.0.9:9", GROUP, VlanTags::NONE, payload);
    // Delivered everywhere.
    feed.send(&plain(b"plain"));
    let v6 = feed.frame("[fd77::9]:9", GROUP_V6, VlanTags::NONE, b"six");
    feed.send(&v6);
    // Destination options of eight octets, all padding, before UDP.
    let mut extended = v6.clone();
    extended[20] = 60;
    extended[19] += 8;
    extended.splice(54..54, [17, 0, 1, 4, 0, 0, 0, 0]);
    feed.send(&extended);
    // Delivered to those that see tags.
    let tag = VlanTags::single(VlanTag::customer(0x6007));
    feed.send(&feed.frame("10.77.0.9:9", GROUP, tag, b"tagged"));
    let two = VlanTags::double(VlanTag::service(8), VlanTag::customer(7));
    feed.send(&feed.frame("10.77.0.9:9", GROUP, two, b"tagged twice"));
    // Counted: two fragments, a wrong sum of UDP's and one of IP's, a length beyond the frame.
    let mend = |frame: &mut Vec<u8>| {
        frame[24..26].fill(0);
        let sum: u32 = frame[14..34]
            .chunks(2)
            .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let field = !((folded & 0xffff) + (folded >> 16)) as u16;
        frame[24..26].copy_from_slice(&field.to_be_bytes());
    };
    for (high, low) in [(0x20, 0), (0x00, 2)] {
        let mut fragment = plain(b"a part of something");
        (fragment[20], fragment[21]) = (high, low);
        mend(&mut fragment);
        feed.send(&fragment);
    }
    let mut damaged = plain(b"damaged");
    *damaged.last_mut().unwrap() ^= 0x55;
    feed.send(&damaged);
    let mut head = plain(b"damaged head");
    head[24] ^= 0x55;
    feed.send(&head);
    let mut long = plain(b"longer than it is");
    long[17] += 4;
    mend(&mut long);
    feed.send(&long);
    // Not ours, and no harm: a runt, another protocol.
    feed.send(&plain(b"runt")[..20]);
    let mut tcp = plain(b"not UDP");
    tcp[23] = 6;
    mend(&mut tcp);
    feed.send(&tcp);
    feed.send(&plain(b"end"));
    for (at, receiver) in receivers.iter_mut().enumerate() {
        let who = name(at);
        let mut got = until(receiver, b"end", &who);
        // Groups of two families are two sockets of udp's: the other one may still have some that came before.
        got.extend(drained(receiver));
        let texts: Vec<(String, Option<u16>)> = got
            .iter()
            .map(|one| (String::from_utf8_lossy(&one.payload).into_owned(), one.vlan))
            .collect();
        let text = |text: &str, vlan| (text.to_owned(), vlan);
        let mut expected = vec![text("plain", None), text("six", None), text("six", None)];
        if at == 0 {
            let mut texts = texts;
            texts.sort();
            expected.sort();
            assert_eq!(texts, expected, "{who}");
            continue;
        }
        expected.extend([text("tagged", Some(7)), text("tagged twice", Some(8))]);
        assert_eq!(texts, expected, "{who}");
        let losses = receiver.statistics().losses;
        let counted = (
            losses.fragment,
            losses.checksum,
            losses.malformed,
            losses.truncated,
        );
        assert_eq!(
            counted,
            (Some(2), Some(2), Some(1), Some(0)),
            "{who}: {losses:?}"
        );
        assert_eq!(losses.ring_full, Some(0), "{who}");
    }
}

/// Frames of nine thousand bytes: whole where there is room, counted where there is none.
#[test]
fn jumbo_frames_are_delivered_whole_or_counted() {
    if !equipped(&[]) {
        return;
    }
    let feed = Feed::new(9000);
    let mut jumbo = config(&[GROUP]);
    (jumbo.mtu, jumbo.buffer_bytes, jumbo.ring) = (9000, 9100, 64);
    // Native programs don't run where frames exceed a page.
    let mut receivers: Vec<Receiver> = (0..4).map(|at| feed.open(at, &jumbo)).collect();
    let payload: Vec<u8> = (0..8900_u32).map(|at| (at * 31) as u8).collect();
    for _ in 0..3 {
        feed.send(&feed.frame("10.77.0.9:9", GROUP, VlanTags::NONE, &payload));
    }
    feed.send(&feed.frame("10.77.0.9:9", GROUP, VlanTags::NONE, b"end"));
    for (at, receiver) in receivers.iter_mut().enumerate() {
        let who = name(at);
        let got = until(receiver, b"end", &who);
        let losses = receiver.statistics().losses;
        if at < 3 {
            assert_eq!(got.len(), 3, "{who}");
            assert!(got.iter().all(|one| one.payload == payload), "{who}");
            assert_eq!(losses.total(), 0, "{who}");
        } else {
            assert_eq!(
                (got.len(), losses.truncated),
                (0, Some(3)),
                "{who}: {losses:?}"
            );
        }
    }
}

/// Tells a run of this program that it is one to be killed, and what it opens.
const VICTIM: &str = "LOCKGATE_TEST_VICTIM";

/// Kills a receiver again and again: nothing of it stays, and the next one opens.
#[test]
fn a_killed_receiver_leaves_nothing() {
    const KILLS: usize = 100;
    if let Ok(what) = std::env::var(VICTIM) {
        let (provider, option) = what.split_once(' ').unwrap();
        let mut config = config(&[GROUP]);
        match provider {
            "xdp" => config.options.set("mode", option),
            _ => config.options.set("promiscuous", true),
        }
        let receiver = registry().open_receiver(provider, &config);
        match &receiver {
            Ok(_) => println!("victim is open"),
            Err(error) => println!("victim failed: {error}"),
        }
        // Until it is killed.
        std::thread::park();
        drop(receiver);
        return;
    }
    if !equipped(&[]) {
        return;
    }
    let feed = Feed::new(1500);
    let space = &feed.near[0];
    for kill in 0..KILLS {
        let what = ["xdp native", "xdp generic", "packet -"][kill % 3];
        let program = std::env::current_exe().unwrap();
        let mut command: Command = space.command(program.to_str().unwrap());
        command
            .args(["--exact", "--nocapture", "a_killed_receiver_leaves_nothing"])
            .env(VICTIM, what)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut victim = Running(command.spawn().unwrap());
        let mut told = BufReader::new(victim.0.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("victim") {
            line.clear();
            assert_ne!(told.read_line(&mut line).unwrap(), 0, "the victim ended");
        }
        assert!(
            line.contains("victim is open"),
            "kill {kill}, {what}: {line}"
        );
        let objects = bpf::of_process(victim.0.id());
        let traces = || {
            let link = space.ip("-d link show v0");
            let members = space
                .enter(|| std::fs::read_to_string("/proc/thread-self/net/igmp"))
                .unwrap();
            (
                link.contains("prog/xdp"),
                !link.contains("promiscuity 0"),
                members.contains("070707EF"),
            )
        };
        let expected = match what {
            "packet -" => (false, true, true),
            _ => (true, false, true),
        };
        assert_eq!(traces(), expected, "before kill {kill}, {what}");
        assert_eq!(
            objects.len(),
            if what == "packet -" { 0 } else { 4 },
            "{objects:?}"
        );
        // SIGKILL: nothing of the program's own runs any more.
        victim.0.kill().unwrap();
        victim.0.wait().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while traces() != (false, false, false)
            || objects
                .iter()
                .any(|(kind, number)| bpf::exists(*kind, *number))
        {
            assert!(
                Instant::now() < deadline,
                "after kill {kill}, {what}: {:?} {objects:?}",
                traces()
            );
        }
    }
}
