//! Captures that other programs made are sent again byte for byte, whatever their form; broken ones up to the break.
//!
//! tcpdump captures what a test sends, editcap converts it, and what `probe replay` makes of each form is captured by tcpdump on the
//! other side of a cable and received by a socket. Needs root, `ip`, `ethtool`, `tcpdump` and `tshark` with its `editcap`;
//! skipped with a reason without.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use lockgate_providers::capture::{Datagram, OwnedPacket, Reader};
use lockgate_tests::netns::{self, Cable, Namespace};
use lockgate_tests::programs::{Folder, Follow, Running};
use lockgate_tests::turned::{turned_pcap, turned_pcapng};
use lockgate_tests::{probe, tools};
use serde_json::Value;

/// How long anything may take on a busy machine. Nothing waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(30);
const PROBE: &[u8] = b"is anybody there";
/// How long a packet may take from the sender's look at the clock to the capture, on a machine that does other things as well.
const PASSING_MS: f64 = 100.0;
const FROM: &str = "10.77.0.2";

fn equipment() -> Option<(Cable, Folder, PathBuf)> {
    let editcap = tools::require_tool("tshark")
        .ok()?
        .with_file_name("editcap");
    tools::require_tool("tcpdump").ok()?;
    tools::require_tool("ethtool").ok()?;
    if !netns::require() {
        return None;
    }
    let cable = Cable::new();
    // So that captures have the sums that arrive, and receivers check them.
    let mut command = cable.far.command("ethtool");
    let output = command.args(["-K", "v0", "tx", "off"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Some((cable, Folder::new("replay"), editcap))
}

/// A tcpdump on the near side that is known to capture: probes have gone before.
fn tcpdump(cable: &Cable, port: u16, file: &Path, more: &[&str]) -> Running {
    let mut command = cable.near.command("tcpdump");
    command.args(["-n", "-i", "v0", "-U", "--immediate-mode", "-Z", "root"]);
    command.args(["-s", "2048", "-B", "16384"]).args(more);
    command.arg("-w").arg(file).stdout(Stdio::null());
    command.arg(format!("udp and dst port {port}"));
    let running = Running::start(&mut command, "listening on", Follow::Stderr);
    let sender = sender(&cable.far);
    until("tcpdump captures a probe", || {
        send(&sender, PROBE, port);
        !packets(file).is_empty()
    });
    running
}

fn sender(space: &Namespace) -> UdpSocket {
    let from: Ipv4Addr = FROM.parse().unwrap();
    space.enter(|| {
        let socket = UdpSocket::bind((from, 0)).unwrap();
        let handle = socket2::SockRef::from(&socket);
        handle.set_multicast_if_v4(&from).unwrap();
        socket
    })
}

fn send(sender: &UdpSocket, payload: &[u8], port: u16) {
    let sent = sender.send_to(payload, ("239.7.7.7", port)).unwrap();
    assert_eq!(sent, payload.len());
}

#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a file has that may still be written to, without probes.
fn packets(file: &Path) -> Vec<OwnedPacket> {
    match Reader::open(file) {
        Ok(reader) => reader.packets().map_while(Result::ok).collect(),
        Err(_) => Vec::new(),
    }
}

fn datagrams(packets: &[OwnedPacket]) -> Vec<(SocketAddr, Vec<u8>)> {
    let found = packets
        .iter()
        .map(|one| Datagram::find(one.link, &one.bytes).unwrap());
    found
        .filter(|one| one.payload != PROBE)
        .map(|one| (one.destination, one.payload.to_vec()))
        .collect()
}

/// Payloads of every sort of length and content, none of them a probe.
fn payloads() -> Vec<Vec<u8>> {
    let lengths = [0, 1, 2, 17, 64, 255, 256, 1_000, 1_471, 1_472];
    let of =
        |(at, length): (usize, &usize)| (0..*length).map(|byte| (byte * 7 + at) as u8).collect();
    lengths.iter().enumerate().map(of).collect()
}

/// Makes a capture of the payloads with tcpdump.
fn captured(cable: &Cable, file: &Path, more: &[&str]) {
    let port = 47_100;
    let running = tcpdump(cable, port, file, more);
    let sender = sender(&cable.far);
    for payload in payloads() {
        send(&sender, &payload, port);
    }
    until("tcpdump has captured everything", || {
        datagrams(&packets(file)).len() == payloads().len()
    });
    let (code, told) = running.interrupt();
    assert_eq!(code, Some(0), "{told}");
}

/// The document of a replay from the far side.
fn replay(cable: &Cable, file: &Path, arguments: &[&str]) -> Value {
    let mut command = cable.far.command(probe::binary().to_str().unwrap());
    command.args(["replay", "--json", "--interface", "v0", "--source", FROM]);
    let output = command.args(arguments).arg(file).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    assert_eq!(
        document["exit"]["code"].as_i64().map(|code| code as i32),
        output.status.code()
    );
    document
}

#[test]
fn captures_of_every_form_are_sent_byte_for_byte_to_another_group() {
    let Some((cable, folder, editcap)) = equipment() else {
        return;
    };
    let (micro, nano) = (
        folder.file("tcpdump.pcap"),
        folder.file("tcpdump-nano.pcap"),
    );
    captured(&cable, &micro, &[]);
    captured(&cable, &nano, &["--time-stamp-precision=nano"]);
    let mut files = vec![
        (micro, "pcap, microseconds, little-endian"),
        (nano.clone(), "pcap, nanoseconds, little-endian"),
    ];
    for (format, form, turned_form) in [
        (
            "pcap",
            "pcap, microseconds, little-endian",
            "pcap, microseconds, big-endian",
        ),
        (
            "nsecpcap",
            "pcap, nanoseconds, little-endian",
            "pcap, nanoseconds, big-endian",
        ),
        ("pcapng", "pcapng", "pcapng"),
    ] {
        let file = folder.file(format);
        let status = Command::new(&editcap)
            .args(["-F", format])
            .args([&nano, &file])
            .status();
        assert!(status.unwrap().success());
        let turned = folder.file(&format!("big-endian-{format}"));
        let bytes = fs::read(&file).unwrap();
        let bytes = match format {
            "pcapng" => turned_pcapng(&bytes),
            _ => turned_pcap(&bytes),
        };
        fs::write(&turned, bytes).unwrap();
        files.extend([(file, form), (turned, turned_form)]);
    }
    assert_eq!(files.len(), 8);

    for (at, (file, form)) in files.iter().enumerate() {
        let port = 47_200 + at as u16;
        let to: SocketAddr = format!("239.8.8.8:{port}").parse().unwrap();
        let socket = cable.near.enter(|| {
            let socket = UdpSocket::bind(to).unwrap();
            let near = "10.77.0.1".parse().unwrap();
            socket
                .join_multicast_v4(&"239.8.8.8".parse().unwrap(), &near)
                .unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        });
        let again = folder.file(&format!("again-{at}.pcap"));
        let running = tcpdump(&cable, port, &again, &[]);
        let document = replay(&cable, file, &["--to", &to.to_string(), "--speed", "max"]);
        assert_eq!(document["exit"]["name"], "ok", "{document:#}");
        assert_eq!(document["form"], *form, "{}", file.display());

        let expected = datagrams(&packets(file));
        let bytes: Vec<_> = expected
            .iter()
            .map(|(_, payload)| payload.clone())
            .collect();
        assert_eq!(bytes, payloads());
        // The capture has probes as well, and they are sent again like everything else.
        let all = packets(file).len() as u64;
        assert_eq!(document["counts"]["sent"], all, "{document:#}");

        let wanted: Vec<_> = bytes.iter().map(|one| (to, one.clone())).collect();
        until("tcpdump has captured the replay", || {
            let seen = datagrams(&packets(&again));
            seen.iter()
                .filter(|(destination, _)| *destination == to)
                .count()
                == wanted.len()
        });
        let (code, told) = running.interrupt();
        assert_eq!(code, Some(0), "{told}");
        assert_eq!(datagrams(&packets(&again)), wanted, "{}", file.display());
        assert_sums(&again);

        // The kernel of the receiving side found the sums right.
        let mut received = Vec::new();
        let mut buffer = [0; 2_048];
        while received.len() < wanted.len() {
            let (length, from) = socket.recv_from(&mut buffer).unwrap();
            assert_eq!(from.ip().to_string(), FROM);
            if buffer[..length] != *PROBE {
                received.push(buffer[..length].to_vec());
            }
        }
        assert_eq!(received, bytes);
    }
}

/// tcpdump itself says that the sums of IP and UDP are right.
fn assert_sums(file: &Path) {
    let output = Command::new("tcpdump")
        .args(["-n", "-vv", "-r"])
        .arg(file)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(told.contains("udp sum ok"), "{told}");
    assert!(!told.contains("bad"), "{told}");
}

#[test]
fn a_capture_keeps_its_gaps_or_a_factor_of_them() {
    let Some((cable, folder, editcap)) = equipment() else {
        return;
    };
    let file = folder.file("whole.pcap");
    captured(&cable, &file, &["--time-stamp-precision=nano"]);
    // One packet, and the same one again 300 ms later.
    let (head, late) = (folder.file("head"), folder.file("late"));
    let run = |arguments: &[&str], paths: &[&Path]| {
        let status = Command::new(&editcap).args(arguments).args(paths).status();
        assert!(status.unwrap().success(), "{arguments:?}");
    };
    run(&["-F", "nsecpcap", "-r"], &[&file, &head, Path::new("1-1")]);
    run(&["-F", "nsecpcap", "-t", "0.3"], &[&head, &late]);
    let mut joined = fs::read(&head).unwrap();
    joined.extend(&fs::read(&late).unwrap()[24..]);
    let joined_file = folder.file("joined");
    fs::write(&joined_file, joined).unwrap();
    let times: Vec<_> = packets(&joined_file)
        .iter()
        .map(|one| one.nanos.unwrap())
        .collect();
    assert_eq!(times[1] - times[0], 300_000_000);

    for (speed, planned, port) in [
        ("original", 300, 47_300),
        ("2", 150, 47_301),
        ("0.5", 600, 47_302),
    ] {
        let seen = folder.file(&format!("seen-{port}"));
        let running = tcpdump(&cable, port, &seen, &["--time-stamp-precision=nano"]);
        let before = packets(&seen).len();
        let to = format!("239.8.8.8:{port}");
        let document = replay(&cable, &joined_file, &["--to", &to, "--speed", speed]);
        assert_eq!(document["counts"]["sent"], 2, "{document:#}");
        let of_replay = || -> Vec<u64> {
            let all = packets(&seen);
            let of = all.iter().filter(|one| {
                let found = Datagram::find(one.link, &one.bytes).unwrap();
                found.destination.to_string() == to
            });
            of.map(|one| one.nanos.unwrap()).collect()
        };
        until("tcpdump has captured the replay", || of_replay().len() == 2);
        assert!(before > 0);
        let _ = running.interrupt();
        let times = of_replay();
        let gap = (times[1] - times[0]) as f64 / 1e6;
        // Each of the two may have been late, by no more than it says itself, and a little between that and the capture.
        let late = document["late"]["max"].as_f64().unwrap() / 1e6 + PASSING_MS;
        let off = (gap - f64::from(planned)).abs();
        assert!(
            off <= late,
            "{speed}: {gap} ms, {off} ms off, {late} ms late"
        );
    }
}

#[test]
fn a_capture_that_is_cut_anywhere_is_sent_up_to_the_break_and_says_where_it_is() {
    let Some((cable, folder, editcap)) = equipment() else {
        return;
    };
    let nano = folder.file("tcpdump.pcap");
    captured(&cable, &nano, &[]);
    for format in ["pcap", "pcapng"] {
        let file = folder.file(format);
        let status = Command::new(&editcap)
            .args(["-F", format])
            .args([&nano, &file])
            .status();
        assert!(status.unwrap().success());
        let bytes = fs::read(&file).unwrap();
        let whole = packets(&file);
        let cut_file = folder.file("cut");
        let mut broken = 0;
        for cut in (0..bytes.len().min(1_500)).step_by(13) {
            fs::write(&cut_file, &bytes[..cut]).unwrap();
            let document = replay(
                &cable,
                &cut_file,
                &["--to", "239.8.8.8:47400", "--speed", "max"],
            );
            let sent = document["counts"]["sent"].as_u64().unwrap() as usize;
            // What lies before the cut was sent.
            let before = whole
                .iter()
                .filter(|one| end(one, format) <= cut as u64)
                .count();
            assert_eq!(sent, before, "{format} cut at {cut}: {document:#}");
            if document["exit"]["name"] != "capture" {
                continue;
            }
            broken += 1;
            assert_eq!(document["exit"]["code"], 14);
            let detail = document["error"]["detail"].as_str().unwrap();
            let offset = detail
                .split("offset ")
                .nth(1)
                .unwrap()
                .split(':')
                .next()
                .unwrap();
            let offset: u64 = offset.parse().unwrap();
            assert!(offset <= cut as u64, "{detail}");
            let next = whole.get(sent).map_or(u64::MAX, |one| one.offset);
            assert!(offset <= next, "{format} cut at {cut}: {detail}");
        }
        assert!(broken > 90, "{format}: {broken}");
    }
}

/// Where the record of a packet ends.
fn end(packet: &OwnedPacket, format: &str) -> u64 {
    let length = packet.bytes.len() as u64;
    match format {
        "pcap" => packet.offset + 16 + length,
        // An enhanced packet block without options.
        _ => packet.offset + 32 + length.next_multiple_of(4),
    }
}
