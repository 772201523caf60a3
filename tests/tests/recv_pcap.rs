//! What `probe recv --pcap` writes is what tcpdump captured on the same interface at the same time, packet by packet: payload,
//! addresses and order. What it counts as lost is what is missing. What happens to its interface it tells.
//!
//! iperf sends, from another network namespace. Beginning and end of a stream are told by marker packets that the test sends,
//! so that nothing is waited for by time. Needs root, `ip`, `iperf` and `tcpdump`; skipped with a reason without.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lockgate_providers::capture::{Datagram, OwnedPacket, Reader};
use lockgate_tests::netns::{self, Cable, Namespace};
use lockgate_tests::programs::{Folder, Follow, Running};
use lockgate_tests::{probe, tools};
use serde_json::Value;

/// How long anything may take on a busy machine. Nothing waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);
const BEGIN: &[u8] = b"the stream begins after this";
const END: &[u8] = b"the stream has ended";

/// One packet, as either side saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Packet {
    source: SocketAddr,
    destination: SocketAddr,
    payload: Vec<u8>,
}

/// The two namespaces, or nothing where the equipment is missing; the skip has been told.
fn equipment() -> Option<(Cable, Folder)> {
    for (program, version) in [
        ("iperf", "-v"),
        ("tcpdump", "--version"),
        ("taskset", "--version"),
    ] {
        if let Err(error) = Command::new(program).arg(version).output() {
            tools::skip("namespaces", &format!("{program} can't be run: {error}"));
            return None;
        }
    }
    if !netns::require() {
        return None;
    }
    let cable = Cable::new();
    for groups in ["224.0.0.0/4", "239.0.0.0/8"] {
        cable.far.ip(&format!("route add {groups} dev v0"));
    }
    Some((cable, Folder::new("recv-pcap")))
}

/// What is to be received, and how.
struct Case<'a> {
    interface: &'a str,
    /// As `probe recv` takes them.
    groups: &'a [&'a str],
    /// What tcpdump shall capture beyond UDP to these groups' ports.
    filter: &'a str,
    /// From where the markers are sent.
    from: &'a str,
    more: &'a [&'a str],
}

/// A tcpdump that loses nothing: in immediate mode its ring has a place for each packet of the length that -s gives.
fn tcpdump(space: &Namespace, interface: &str, filter: &str, file: &Path) -> Running {
    let mut command = space.command("tcpdump");
    command.args(["-n", "-i", interface, "-U", "--immediate-mode"]);
    command.args(["-Z", "root", "-s", "2048", "-B", "16384", "-w"]);
    command.arg(file).arg(filter).stdout(Stdio::null());
    Running::start(&mut command, "listening on", Follow::Stderr)
}

fn receiver(space: &Namespace, interface: &str, groups: &[&str]) -> Command {
    let mut command = space.command(probe::binary().to_str().unwrap());
    command.args(["recv", "--provider", "udp", "--interface", interface]);
    for group in groups {
        command.args(["--group", group]);
    }
    command
}

/// What is received of what `send` sends: by probe and by tcpdump, between the markers.
fn both(
    cable: &Cable,
    folder: &Folder,
    case: &Case<'_>,
    send: impl FnOnce(),
) -> [Vec<OwnedPacket>; 2] {
    let (theirs, ours) = (folder.file("theirs.pcap"), folder.file("ours.pcapng"));
    let capture = tcpdump(&cable.near, case.interface, case.filter, &theirs);
    let mut command = receiver(&cable.near, case.interface, case.groups);
    // Room for everything that is sent, so that a slow machine loses nothing.
    command.args(["--option", "receive-buffer=16777216"]);
    command.args([
        "--option",
        "force-receive-buffer=true",
        "--timestamps",
        "software",
        "--pcap",
    ]);
    command.arg(&ours).args(case.more);
    let receiving = Running::start(&mut command, "until", Follow::Stdout);

    let last: SocketAddr = case
        .groups
        .last()
        .unwrap()
        .split('@')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let markers = marker(&cable.far, case, last);
    let deadline = Instant::now() + PATIENCE;
    // tcpdump says that it listens a little before it does.
    while !has(&theirs, BEGIN) {
        markers(BEGIN);
        assert!(Instant::now() < deadline, "tcpdump captures nothing");
        std::thread::sleep(Duration::from_millis(5));
    }
    send();
    markers(END);
    while !(has(&theirs, END) && has(&ours, END)) {
        assert!(Instant::now() < deadline, "the end did not come");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, told) = receiving.interrupt();
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("lost            none"), "{told}");
    let (code, told) = capture.interrupt();
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("\n0 packets dropped by kernel"), "{told}");
    [ours, theirs].map(|file| between(read(&file)))
}

/// Sends marker packets as the stream's own sender would.
fn marker<'a>(space: &'a Namespace, case: &Case<'_>, to: SocketAddr) -> impl Fn(&[u8]) + 'a {
    let from = SocketAddr::new(case.from.parse().unwrap(), 0);
    let interface = case.interface.to_owned();
    let socket = space.enter(|| {
        let domain = socket2::Domain::for_address(to);
        let socket = socket2::Socket::new(domain, socket2::Type::DGRAM, None).unwrap();
        socket.bind_device(Some(interface.as_bytes())).unwrap();
        socket.bind(&from.into()).unwrap();
        UdpSocket::from(socket)
    });
    move |payload| assert_eq!(socket.send_to(payload, to).unwrap(), payload.len())
}

/// What a file has that may still be written to.
fn read(file: &Path) -> Vec<OwnedPacket> {
    match Reader::open(file) {
        Ok(reader) => reader.packets().map_while(Result::ok).collect(),
        Err(_) => Vec::new(),
    }
}

fn has(file: &Path, marker: &[u8]) -> bool {
    read(file).iter().any(|one| is(one, marker))
}

fn is(packet: &OwnedPacket, marker: &[u8]) -> bool {
    Datagram::find(packet.link, &packet.bytes).is_ok_and(|one| one.payload == marker)
}

fn between(packets: Vec<OwnedPacket>) -> Vec<OwnedPacket> {
    let begin = packets
        .iter()
        .rposition(|one| is(one, BEGIN))
        .expect("the beginning");
    let end = packets
        .iter()
        .position(|one| is(one, END))
        .expect("the end");
    packets[begin + 1..end].to_vec()
}

fn decoded(packets: &[OwnedPacket]) -> Vec<Packet> {
    let decode = |one: &OwnedPacket| {
        assert!(!one.view().is_cut());
        let found = Datagram::find(one.link, &one.bytes).unwrap();
        Packet {
            source: found.source,
            destination: found.destination,
            payload: found.payload.to_vec(),
        }
    };
    packets.iter().map(decode).collect()
}

/// Both saw the same, and it is a stream.
fn assert_same([ours, theirs]: [Vec<OwnedPacket>; 2]) -> Vec<Packet> {
    // A stamp of the kernel each: taken at about the same moment, by the same clock.
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let apart = ours.nanos.unwrap().abs_diff(theirs.nanos.unwrap());
        assert!(apart < 1_000_000_000, "{apart} ns apart");
    }
    let (ours, theirs) = (decoded(&ours), decoded(&theirs));
    for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(ours == theirs, "packet {at}: {ours:?} and {theirs:?}");
    }
    assert_eq!(ours.len(), theirs.len());
    assert!(ours.len() > 300, "only {} packets", ours.len());
    ours
}

/// Starts a second of iperf, on one processor: on two, the kernel itself may let streams overtake each other.
fn iperf(space: &Namespace, arguments: &str) -> Child {
    space
        .command("taskset")
        .args(["-c", "0", "iperf", "-u", "-T", "4", "-b", "2M", "-t", "1"])
        .args(arguments.split(' '))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("iperf starts")
}

fn finish(senders: impl IntoIterator<Item = Child>) {
    for mut sender in senders {
        assert!(sender.wait().unwrap().success(), "iperf failed");
    }
}

#[test]
fn two_ipv4_groups_on_one_port_are_recorded_as_captured() {
    let Some((cable, folder)) = equipment() else {
        return;
    };
    let case = Case {
        interface: "v0",
        groups: &["239.7.7.7:47000", "239.7.7.8:47000"],
        filter: "udp and dst port 47000",
        from: "10.77.0.2",
        more: &[],
    };
    let packets = assert_same(both(&cable, &folder, &case, || {
        finish(["239.7.7.7", "239.7.7.8"].map(|group| {
            iperf(
                &cable.far,
                &format!("-c {group} -p 47000 -B 10.77.0.2 -l 300"),
            )
        }));
    }));
    for group in case.groups {
        let group: SocketAddr = group.parse().unwrap();
        let of_group = packets.iter().filter(|one| one.destination == group);
        assert!(of_group.count() > 100, "{group}");
    }
}

#[test]
fn ipv6_is_recorded_as_captured() {
    let Some((cable, folder)) = equipment() else {
        return;
    };
    let case = Case {
        interface: "v0",
        groups: &["[ff15::7:7]:47001"],
        filter: "udp and dst port 47001",
        from: "fd77::2",
        more: &[],
    };
    assert_same(both(&cable, &folder, &case, || {
        finish([iperf(&cable.far, "-V -c ff15::7:7%v0 -p 47001 -l 300")]);
    }));
}

#[test]
fn of_a_source_specific_group_only_the_named_source_is_recorded() {
    let Some((cable, folder)) = equipment() else {
        return;
    };
    cable.far.ip("address add 10.77.0.3/24 dev v0");
    let case = Case {
        interface: "v0",
        groups: &["232.1.1.1:47002@10.77.0.3"],
        filter: "udp and dst host 232.1.1.1 and src host 10.77.0.3",
        from: "10.77.0.3",
        more: &[],
    };
    let packets = assert_same(both(&cable, &folder, &case, || {
        finish(["10.77.0.2", "10.77.0.3"].map(|source| {
            iperf(
                &cable.far,
                &format!("-c 232.1.1.1 -p 47002 -B {source} -l 300"),
            )
        }));
    }));
    let wanted: Ipv4Addr = "10.77.0.3".parse().unwrap();
    assert!(packets.iter().all(|one| one.source.ip() == wanted));
}

#[test]
fn a_vlan_interface_is_recorded_as_captured() {
    let Some((cable, folder)) = equipment() else {
        return;
    };
    if let Err(reason) = cable
        .near
        .try_ip("link add link v0 name v0.1 type vlan id 1")
    {
        tools::skip("vlan", &format!("no VLAN interface can be made: {reason}"));
        return;
    }
    for (side, host) in [(&cable.near, 1), (&cable.far, 2)] {
        side.ip("link add link v0 name v0.7 type vlan id 7");
        side.ip(&format!("address add 10.99.0.{host}/24 dev v0.7"));
        side.ip("link set v0.7 up");
    }
    cable.far.ip("route add 239.7.9.0/24 dev v0.7");
    let case = Case {
        interface: "v0.7",
        groups: &["239.7.9.7:47003"],
        filter: "udp and dst port 47003",
        from: "10.99.0.2",
        more: &[],
    };
    assert_same(both(&cable, &folder, &case, || {
        finish([iperf(
            &cable.far,
            "-c 239.7.9.7 -p 47003 -B 10.99.0.2 -l 300",
        )]);
    }));
}

/// The kernel puts fragments together before a socket sees them, so that `udp` neither refuses nor counts any: datagrams come whole.
/// Whoever reads packets, as replay does, refuses and counts them.
#[test]
fn fragments_are_put_together_for_sockets_and_refused_and_counted_by_a_replay() {
    let Some((cable, folder)) = equipment() else {
        return;
    };
    let case = Case {
        interface: "v0",
        groups: &["239.7.7.9:47004"],
        // Only the first fragment has a port.
        filter: "host 239.7.7.9",
        from: "10.77.0.2",
        more: &["--mtu", "9000", "--buffer-bytes", "9100"],
    };
    let [ours, theirs] = both(&cable, &folder, &case, || {
        finish([iperf(
            &cable.far,
            "-c 239.7.7.9 -p 47004 -B 10.77.0.2 -l 4000",
        )]);
    });
    let payloads: Vec<_> = decoded(&ours).into_iter().map(|one| one.payload).collect();
    assert!(payloads.iter().filter(|one| one.len() == 4_000).count() > 40);
    assert_eq!(payloads, put_together(&theirs));

    let mut command = cable.far.command(probe::binary().to_str().unwrap());
    command.args([
        "replay",
        "--to",
        "239.7.7.9:47005",
        "--interface",
        "v0",
        "--json",
    ]);
    let output = command
        .args(["--speed", "max"])
        .arg(folder.file("theirs.pcap"))
        .output()
        .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let fragments = document["counts"]["fragments"].as_u64().unwrap();
    assert_eq!(fragments, theirs.len() as u64, "{document:#}");
}

/// The payloads of IPv4 datagrams in fragments, each datagram where its last fragment stands.
fn put_together(packets: &[OwnedPacket]) -> Vec<Vec<u8>> {
    let mut parts: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    let mut whole = Vec::new();
    for packet in packets {
        let ip = &packet.bytes[14..];
        let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let (id, offset) = (word(4), usize::from(word(6) & 0x1fff) * 8);
        let part = parts.entry(id).or_default();
        // Sent in order over one cable.
        assert_eq!(part.len(), offset);
        part.extend(&ip[20..usize::from(word(2))]);
        if word(6) & 0x2000 == 0 {
            whole.push(parts.remove(&id).unwrap().split_off(8));
        }
    }
    assert!(parts.is_empty());
    whole
}

#[test]
fn what_does_not_fit_into_the_buffer_is_counted_to_the_packet() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    let folder = Folder::new("recv-overflow");
    let mut command = receiver(&cable.near, "v0", &["239.7.7.7:47006"]);
    command.args([
        "--option",
        "receive-buffer=65536",
        "--stats-interval",
        "50ms",
        "--json",
    ]);
    let document = folder.file("document");
    command.stdout(fs::File::create(&document).unwrap());
    let mut running = Running::start(&mut command, "interval", Follow::Stderr);
    let send = |count: &str, rate: &str| {
        let mut command = cable.far.command(probe::binary().to_str().unwrap());
        command.args([
            "send",
            "--to",
            "239.7.7.7:47006",
            "--interface",
            "v0",
            "--json",
        ]);
        let output = command
            .args(["--count", count, "--rate", rate])
            .output()
            .unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["exit"]["code"], 0, "{told:#}");
        told["sent"]["packets"].as_u64().unwrap()
    };
    // Nobody takes anything out of the buffer meanwhile.
    running.signal("-STOP");
    let mut sent = send("2000", "max");
    running.signal("-CONT");
    // The count of drops comes with the next packet; and of this stream nothing is lost.
    let mut taken = 0;
    while taken == 0 {
        let line: Value = serde_json::from_str(&running.read_until("interval")).unwrap();
        taken = line["interval"]["packets"].as_u64().unwrap();
    }
    sent += send("20", "1000");
    let more = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["interval"]["packets"].as_u64().unwrap()
    };
    // Until an interval has nothing more.
    while more(&running.read_until("interval")) > 0 {}
    let (code, told) = running.interrupt();
    assert_eq!(code, Some(0), "{told}");
    let document: Value = serde_json::from_slice(&fs::read(&document).unwrap()).unwrap();
    let received = document["packets"].as_u64().unwrap();
    let lost = document["statistics"]["losses"]["kernel_drop"]
        .as_u64()
        .unwrap();
    assert!(lost > 500, "{document:#}");
    assert_eq!(sent, received + lost, "{document:#}");
    assert_eq!(kernel_says(&cable.near, "RcvbufErrors"), lost);
}

/// A count of the kernel over all UDP sockets of a namespace.
fn kernel_says(space: &Namespace, name: &str) -> u64 {
    let text = space
        .enter(|| fs::read_to_string("/proc/thread-self/net/snmp"))
        .unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let names = lines.next().unwrap().split_whitespace();
    let mut pairs = names.zip(lines.next().unwrap().split_whitespace());
    pairs
        .find(|(one, _)| *one == name)
        .unwrap()
        .1
        .parse()
        .unwrap()
}

#[test]
fn a_link_that_flaps_and_an_interface_that_goes_are_told_at_once() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    let folder = Folder::new("recv-events");
    let mut command = receiver(&cable.near, "v0", &["239.7.7.7:47007"]);
    let mut text = Running::start(&mut command, "until", Follow::Stdout);
    let document = folder.file("document");
    let mut command = receiver(&cable.near, "v0", &["239.7.7.7:47008"]);
    command.args(["--stats-interval", "50ms", "--json"]);
    command.stdout(fs::File::create(&document).unwrap());
    let mut json = Running::start(&mut command, "interval", Follow::Stderr);

    cable.far.ip("link set v0 down");
    text.read_until("v0: link down");
    json.read_until(r#""event":"link-down""#);
    cable.far.ip("link set v0 up");
    for (words, name) in [
        ("v0: link up", "link-up"),
        ("v0: joined 239.7.7.7 again", "rejoined"),
    ] {
        text.read_until(words);
        json.read_until(&format!(r#""event":"{name}""#));
    }
    cable.near.ip("link delete v0");
    text.read_until("v0: interface removed");
    json.read_until(r#""event":"interface-removed""#);

    let (code, told) = text.interrupt();
    assert_eq!(code, Some(10), "nothing has come: {told}");
    let (code, told) = json.interrupt();
    assert_eq!(code, Some(10), "{told}");
    let document: Value = serde_json::from_slice(&fs::read(&document).unwrap()).unwrap();
    let events = document["events"].as_array().unwrap();
    let names: Vec<_> = events
        .iter()
        .map(|one| one["event"].as_str().unwrap())
        .collect();
    let expected = [
        "link-down",
        "link-up",
        "rejoined",
        "link-down",
        "interface-removed",
    ];
    assert_eq!(names, expected);
    let times: Vec<_> = events
        .iter()
        .map(|one| one["at_nanoseconds"].as_u64().unwrap())
        .collect();
    assert!(times.is_sorted() && times[0] > 0, "{times:?}");
}
