//! The commands that send, on the loopback interface and within the process: documents, texts, exit codes and files.
//!
//! What arrives is held against what other programs see in the crate of the cross-crate tests.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[allow(
    dead_code,
    reason = "each test program uses its part of what they share"
)]
mod support;

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use support::probe;

/// A folder of a name of its own, gone with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("probe-send-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn receiver() -> (UdpSocket, String) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    (socket, address)
}

/// A capture in the classic form: raw IP packets with a payload each, a millisecond apart.
fn capture(payloads: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend(word.to_le_bytes());
    }
    for (at, payload) in payloads.iter().enumerate() {
        let length = 28 + payload.len() as u32;
        for word in [1, at as u32 * 1_000, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend([0x45, 0]);
        file.extend((length as u16).to_be_bytes());
        file.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 239, 1, 2, 3]);
        file.extend([0x0f, 0xa0, 0x13, 0x88]);
        file.extend((length as u16 - 20).to_be_bytes());
        file.extend([0, 0]);
        file.extend(*payload);
    }
    file
}

#[test]
fn a_stream_has_a_document_and_every_number_goes_out_once() {
    let (socket, to) = receiver();
    let run = probe(&format!(
        "send --to {to} --rate 5000 --count 50 --size 100 --json"
    ));
    let document = run.document("ok");
    assert_eq!(document["sent"]["packets"], 50);
    assert_eq!(document["sent"]["bytes"], 5_000);
    assert_eq!(document["ended"], "count");
    assert_eq!(document["to"], to);
    let mut buffer = [0; 200];
    for number in 0..50_u64 {
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!((length, &buffer[..4]), (100, &b"LGNS"[..]));
        assert_eq!(buffer[16..24], number.to_be_bytes());
        assert_eq!(buffer[7], u8::from(number == 49), "only the last says so");
    }
    assert!(document["sent"]["gaps"]["count"].as_u64().unwrap() > 0);
}

#[test]
fn a_rate_is_kept() {
    let (_socket, to) = receiver();
    let run = probe(&format!(
        "send --to {to} --rate 400 --burst 400 --count 201 --json"
    ));
    let sent = &run.document("ok")["sent"];
    let elapsed = sent["nanoseconds"].as_u64().unwrap();
    assert!(elapsed >= 500_000_000, "200 gaps of 2.5 ms: {sent}");
    assert_eq!(sent["missed_tokens"], 0, "a bucket that holds them all");
}

#[test]
fn what_is_wrong_with_the_target_has_its_code() {
    for (arguments, exit, words) in [
        ("send --to 239.1.2.3:5000", "usage", "--interface NAME"),
        ("send --to 10.0.0.1:0", "usage", "a port from 1 to 65535"),
        (
            "send --to 239.1.2.3:5000 --interface nosuch0",
            "no-hardware",
            "ip link",
        ),
        (
            "send --to 127.0.0.1:9 --source 192.0.2.77",
            "failed",
            "ip address",
        ),
        (
            "replay /no-such-file --to 127.0.0.1:9",
            "failed",
            "/no-such-file",
        ),
    ] {
        let document = probe(&format!("{arguments} --json")).document(exit);
        let text = document["error"].to_string();
        assert!(text.contains(words), "{arguments}: {text}");
    }
    for arguments in [
        "send",
        "send --to x",
        "send --to 10.0.0.1:5 --rate 0",
        "send --to 10.0.0.1:5 --size 47",
    ] {
        assert_eq!(probe(arguments).code, 2, "{arguments}");
    }
}

#[test]
fn a_port_that_nobody_listens_on_is_counted_and_no_end() {
    let (socket, to) = receiver();
    drop(socket);
    let run = probe(&format!("send --to {to} --rate 2000 --count 20 --json"));
    let document = run.document("ok");
    assert_eq!(document["sent"]["packets"], 20);
    assert!(
        document["sent"]["port_closed"].as_u64().unwrap() > 0,
        "{document:#}"
    );
}

#[test]
fn a_capture_is_sent_byte_for_byte_and_up_to_where_it_breaks() {
    let folder = Folder::new("cut");
    let payloads: [&[u8]; 4] = [b"first", b"", b"the third", &[0xff; 700]];
    let whole = capture(&payloads);
    let file = folder.file("x.pcap");
    let mut starts = vec![24];
    for payload in payloads {
        starts.push(starts.last().unwrap() + 16 + 28 + payload.len());
    }
    // Around every boundary; every cut anywhere is the reader's own test.
    let cuts = starts
        .iter()
        .flat_map(|start| [start - 1, *start, start + 1, start + 17]);
    for cut in cuts.filter(|cut| *cut <= whole.len()) {
        fs::write(&file, &whole[..cut]).unwrap();
        let (socket, to) = receiver();
        let run = probe(&format!("replay {file} --to {to} --speed max --json"));
        let sent = starts
            .iter()
            .filter(|start| **start <= cut)
            .count()
            .saturating_sub(1);
        let at_boundary = starts.contains(&cut);
        let exit = match (at_boundary, sent) {
            (true, 0) => "no-packets",
            (true, _) => "ok",
            (false, _) => "capture",
        };
        let document = run.document(exit);
        assert_eq!(document["counts"]["sent"], sent, "cut at {cut}");
        if !at_boundary {
            let offset = if cut < 24 { 0 } else { starts[sent] };
            let detail = document["error"]["detail"].as_str().unwrap();
            assert!(
                detail.contains(&format!("offset {offset}:")),
                "{cut}: {detail}"
            );
        }
        let mut buffer = [0; 1_000];
        for payload in &payloads[..sent] {
            let length = socket.recv(&mut buffer).unwrap();
            assert_eq!(buffer[..length], **payload);
        }
    }
}

#[test]
fn a_replay_keeps_the_time_or_the_factor() {
    let folder = Folder::new("time");
    let file = folder.file("x.pcap");
    fs::write(&file, capture(&[&b"x"[..]; 101])).unwrap();
    let (_socket, to) = receiver();
    for (speed, least) in [("original", 100), ("0.5", 200), ("2", 50), ("max", 0)] {
        let run = probe(&format!("replay {file} --to {to} --speed {speed} --json"));
        let document = run.document("ok");
        let took = document["nanoseconds"].as_u64().unwrap() / 1_000_000;
        assert!(took >= least, "{speed}: {took} ms");
        assert_eq!(document["counts"]["sent"], 101);
        assert_eq!(document["late"].is_null(), speed == "max");
    }
}

#[test]
fn what_is_not_sent_is_counted_by_its_reason() {
    let folder = Folder::new("reasons");
    let file = folder.file("x.pcap");
    let mut bytes = capture(&[b"a", b"b", b"c", b"d"]);
    // The second is a fragment, the third TCP, and of the fourth the capture has not all.
    let at = |number: usize| 24 + number * (16 + 29) + 16;
    bytes[at(1) + 6] = 0x20;
    bytes[at(2) + 9] = 6;
    let wire = at(3) - 4;
    bytes[wire] = 200;
    bytes[at(3) + 3] = 200;
    fs::write(&file, bytes).unwrap();
    let (_socket, to) = receiver();
    let counts = probe(&format!("replay {file} --to {to} --json")).document("ok")["counts"].clone();
    for (name, count) in [
        ("read", 4),
        ("sent", 1),
        ("fragments", 1),
        ("not_udp", 1),
        ("cut", 1),
    ] {
        assert_eq!(counts[name], count, "{name}: {counts}");
    }
    let only = probe(&format!(
        "replay {file} --to {to} --only 239.1.2.4:5000 --json"
    ));
    assert_eq!(
        only.document("no-packets")["counts"]["other_destination"],
        1
    );
}

#[test]
fn latency_is_measured_within_the_process_and_over_the_loopback_interface() {
    let folder = Folder::new("latency");
    let (hdr, svg) = (folder.file("x.hlog"), folder.file("x.svg"));
    let port = receiver().1;
    for (arguments, kernel) in [
        ("--provider loopback --group 239.7.7.7:47000".to_owned(), 0),
        (format!("--provider udp --unicast {port}"), 0),
        (
            format!("--provider udp --unicast {port} --timestamps software"),
            300,
        ),
    ] {
        let run = probe(&format!(
            "latency {arguments} --rate 3000 --count 300 --hdr {hdr} --svg {svg} --json"
        ));
        let document = run.document("ok");
        assert_eq!(document["counts"]["packets"], 300, "{document:#}");
        assert_eq!(document["counts"]["stamped_by_kernel"], kernel);
        assert_eq!(document["latency"]["count"], 300);
        let (sent, due) = (&document["latency"], &document["from_schedule"]);
        assert!(due["max"].as_u64() >= sent["max"].as_u64(), "{document:#}");

        let log = fs::read(&hdr).unwrap();
        let mut logged = 0;
        let mut deserializer = Deserializer::new();
        for entry in IntervalLogIterator::new(&log) {
            if let LogEntry::Interval(interval) = entry.unwrap() {
                let bytes = base64(interval.encoded_histogram());
                let histogram: hdrhistogram::Histogram<u64> =
                    deserializer.deserialize(&mut &bytes[..]).unwrap();
                logged += histogram.len();
            }
        }
        assert_eq!(logged, 300);
        let plot = fs::read_to_string(&svg).unwrap();
        assert_eq!(plot.matches("<polyline").count(), 2);
    }
}

/// The standard alphabet (RFC 4648), with padding.
fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::new();
    let text = text.trim_end_matches('=').as_bytes();
    for chunk in text.chunks(4) {
        let word = chunk
            .iter()
            .fold(0_u32, |word, byte| word << 6 | u32::from(digit(*byte)));
        let word = word << (6 * (4 - chunk.len()) + 8);
        bytes.extend(&word.to_be_bytes()[..chunk.len() - 1]);
    }
    bytes
}

#[test]
fn a_clock_that_the_sender_can_not_read_is_refused() {
    let arguments = "latency --provider udp --unicast 127.0.0.1:47999 --timestamps hardware";
    let document = probe(&format!("{arguments} --json")).document("usage");
    assert_eq!(document["error"]["faults"][0]["field"], "timestamps");
    let two = "latency --provider loopback --group 239.1.1.1:5 --group 239.1.1.2:5";
    let document = probe(&format!("{two} --json")).document("usage");
    assert_eq!(document["error"]["faults"][0]["field"], "--group");
}

#[test]
fn every_text_fits_80_columns() {
    let (_socket, to) = receiver();
    let folder = Folder::new("text");
    let file = folder.file("x.pcap");
    fs::write(&file, &capture(&[&b"x"[..]; 9])[..300]).unwrap();
    for arguments in [
        "send --help".to_owned(),
        "replay --help".to_owned(),
        "latency --help".to_owned(),
        format!("send --to {to} --rate 20k --count 200"),
        format!("replay {file} --to {to} --speed max"),
        "replay /no-such-file --to 127.0.0.1:9".to_owned(),
        "send --to 239.1.2.3:5000".to_owned(),
        "latency --provider loopback --group 239.7.7.7:47000 --count 100".to_owned(),
    ] {
        let run = probe(&arguments);
        let name = folder.0.to_str().unwrap();
        for line in run.stdout.lines().chain(run.stderr.lines()) {
            // A path is one word, which is not broken.
            let fits = line.chars().count() <= 80 || line.contains(name);
            assert!(fits, "{arguments}: {line:?}");
            assert!(!line.contains('\x1b'), "{arguments}: {line:?}");
        }
    }
}
