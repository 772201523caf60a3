//! Captures of other programs read by ours, and ours read by other programs.
//!
//! Promises: `tshark` is the judge of both directions: what our reader says of a file, time by time and octet by octet, is
//! held against what it prints. Files come from `tcpdump`, `editcap` and `text2pcap`; big-endian ones, which none of these
//! writes, are turned around here, and `tshark` says whether that was done right.
//! Does not do: running without those programs: see `lockgate_tests::tools`.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockgate::receive::{Group, Receiver, ReceiverConfig, TimestampMode};
use lockgate::registry::Registry;
use lockgate_providers::capture::{CaptureFault, Datagram, LinkType, OwnedPacket, Reader};
use lockgate_providers::loopback::{NAME, Network};
use lockgate_providers::record::Record;
use lockgate_tests::tools::{Skip, require_tool};
use lockgate_tests::turned::{turned_pcap, turned_pcapng};

/// A folder of one test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-captures-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Tools {
    tshark: PathBuf,
    editcap: PathBuf,
    text2pcap: PathBuf,
    tcpdump: PathBuf,
}

impl Tools {
    /// The last two come with the first on Debian.
    fn find() -> Result<Self, Skip> {
        let tshark = require_tool("tshark")?;
        Ok(Self {
            editcap: tshark.with_file_name("editcap"),
            text2pcap: tshark.with_file_name("text2pcap"),
            tcpdump: require_tool("tcpdump")?,
            tshark,
        })
    }

    /// What `tshark` says of each packet: time in nanoseconds, length on the wire, octets.
    fn judge(&self, file: &Path) -> Vec<(u64, u32, Vec<u8>)> {
        let arguments = ["-n", "-T", "json", "-x", "-j", "frame", "-r"].map(OsStr::new);
        let told = run(
            &self.tshark,
            arguments.into_iter().chain([file.as_os_str()]),
        );
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let packets = told.as_array().unwrap().iter();
        packets
            .map(|packet| {
                let layers = &packet["_source"]["layers"];
                let time = layers["frame"]["frame.time_epoch"].as_str().unwrap();
                let (seconds, fraction) = time.split_once('.').unwrap();
                assert_eq!(fraction.len(), 9, "{time}");
                let whole = seconds.parse::<u64>().unwrap() * 1_000_000_000;
                let len = layers["frame"]["frame.len"].as_str().unwrap();
                (
                    whole + fraction.parse::<u64>().unwrap(),
                    len.parse().unwrap(),
                    octets(layers["frame_raw"][0].as_str().unwrap()),
                )
            })
            .collect()
    }

    fn convert(&self, from: &Path, to: &Path, arguments: &[&str]) {
        let paths = [from.as_os_str(), to.as_os_str()];
        run(&self.editcap, arguments.iter().map(OsStr::new).chain(paths));
    }

    /// Captures the packets of [`sent`] on their way to a port of their own.
    ///
    /// Between the moment at which `tcpdump` says that it listens and the one at which it does, packets are missed. So probes
    /// go first, until one of them is in the file.
    fn capture(&self, to: &Path, interface: &str, more: &[&str]) {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = receiver.local_addr().unwrap().port();
        let mut tcpdump = Command::new(&self.tcpdump)
            // In immediate mode its ring has a slot of the snap length for each packet: with the default only eight.
            .args([
                "-i",
                interface,
                "-U",
                "--immediate-mode",
                "-s",
                "2048",
                "-w",
            ])
            .arg(to)
            .args(more)
            .arg(format!("udp dst port {port}"))
            .stderr(Stdio::piped())
            .spawn()
            .map(Running)
            .unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        sender.connect(("127.0.0.1", port)).unwrap();
        until("tcpdump captures a probe", || {
            sender.send(PROBE).unwrap();
            !read_so_far(to).is_empty()
        });
        for payload in sent() {
            sender.send(payload.as_bytes()).unwrap();
        }
        until("tcpdump has captured everything", || {
            let seen = payloads(&read_so_far(to));
            sent().iter().all(|one| seen.contains(one))
        });
        let pid = tcpdump.0.id().to_string();
        run(
            Path::new("kill"),
            ["-INT", &pid].into_iter().map(OsStr::new),
        );
        assert!(tcpdump.0.wait().unwrap().success());
    }
}

const PROBE: &[u8] = b"is anybody there";

/// A child that does not outlive a test that fails.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Asks again and again until it is so. Nothing here tells when a program has written a file.
#[track_caller]
fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !so() {
        assert!(Instant::now() < deadline, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What a file has that is still being written.
fn read_so_far(file: &Path) -> Vec<OwnedPacket> {
    match Reader::open(file) {
        Ok(reader) => reader.packets().map_while(Result::ok).collect(),
        Err(_) => Vec::new(),
    }
}

fn run<'a>(program: &Path, arguments: impl Iterator<Item = &'a OsStr>) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {told}", program.display());
    String::from_utf8(output.stdout).unwrap()
}

fn octets(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect()
}

fn read(file: &Path) -> Vec<OwnedPacket> {
    let packets = Reader::open(file).unwrap().packets();
    packets.collect::<Result<_, _>>().unwrap()
}

/// What our reader says, in the judge's form.
fn ours(file: &Path) -> Vec<(u64, u32, Vec<u8>)> {
    read(file)
        .into_iter()
        .map(|one| (one.nanos.unwrap(), one.wire_len, one.bytes))
        .collect()
}

/// What the whole packets carry, without the probes.
fn payloads(packets: &[OwnedPacket]) -> Vec<String> {
    packets
        .iter()
        .filter(|one| !one.view().is_cut())
        .map(|one| Datagram::find(one.link, &one.bytes).unwrap().payload)
        .filter(|payload| *payload != PROBE)
        .map(|payload| String::from_utf8_lossy(payload).into_owned())
        .collect()
}

/// Twenty packets of different lengths.
fn sent() -> Vec<String> {
    (0..20)
        .map(|number| format!("packet {number}{}", ".".repeat(number * 12)))
        .collect()
}

#[test]
fn captures_of_every_form_read_as_tshark_reads_them() {
    let Ok(tools) = Tools::find() else { return };
    let folder = Folder::new();
    let nano = folder.file("tcpdump-nano.pcap");
    tools.capture(&nano, "lo", &["--time-stamp-precision=nano"]);
    let mut files = vec![nano.clone()];
    for (format, name) in [
        ("pcap", "micro.pcap"),
        ("nsecpcap", "nano.pcap"),
        ("pcapng", "editcap.pcapng"),
    ] {
        let file = folder.file(name);
        tools.convert(&nano, &file, &["-F", format]);
        let turned = folder.file(&format!("big-endian-{name}"));
        let bytes = std::fs::read(&file).unwrap();
        let bytes = if format == "pcapng" {
            turned_pcapng(&bytes)
        } else {
            turned_pcap(&bytes)
        };
        std::fs::write(&turned, bytes).unwrap();
        files.extend([file, turned]);
    }
    for file in &files {
        let judged = tools.judge(file);
        assert!(judged.len() > 20, "{}", file.display());
        assert_eq!(ours(file), judged, "{}", file.display());
        assert_eq!(payloads(&read(file)), sent(), "{}", file.display());
    }
    assert_ne!(files[0], files[1]);
    let kept = |file: &PathBuf| tools.judge(file).iter().any(|one| one.0 % 1_000 != 0);
    assert!(
        kept(&files[0]) && !kept(&files[1]),
        "one has nanoseconds, one has not"
    );
}

#[test]
fn captures_that_were_cut_short_or_taken_on_any_interface_read_as_tshark_reads_them() {
    let Ok(tools) = Tools::find() else { return };
    let folder = Folder::new();
    let (long, short) = (folder.file("long.pcap"), folder.file("short.pcap"));
    tools.capture(&long, "lo", &[]);
    tools.convert(&long, &short, &["-F", "pcap", "-s", "60"]);
    assert_eq!(ours(&short), tools.judge(&short));
    let packets = read(&short);
    assert!(packets.iter().any(|one| one.view().is_cut()));
    let again = folder.file("short.pcapng");
    tools.convert(&short, &again, &["-F", "pcapng", "-s", "50"]);
    assert_eq!(ours(&again), tools.judge(&again));
    for (name, link, more) in [
        ("any.pcap", LinkType::LINUX_SLL2, &["-y", "LINUX_SLL2"]),
        ("any1.pcap", LinkType::LINUX_SLL, &["-y", "LINUX_SLL"]),
    ] {
        let any = folder.file(name);
        tools.capture(&any, "any", more);
        let packets = read(&any);
        assert!(packets.iter().all(|one| one.link == link), "{name}");
        assert_eq!(ours(&any), tools.judge(&any));
        // On `any` each packet of lo may show up twice: as sent and as received.
        let mut seen = payloads(&packets);
        seen.dedup();
        assert_eq!(seen, sent(), "{name}");
    }
}

#[test]
fn a_capture_made_from_text_reads_as_tshark_reads_it() {
    let Ok(tools) = Tools::find() else { return };
    let folder = Folder::new();
    let text = folder.file("packets.txt");
    std::fs::write(&text, "0000 01 02 03\n0000 04 05 06 07\n").unwrap();
    for format in ["pcap", "nsecpcap", "pcapng"] {
        let file = folder.file(&format!("text.{format}"));
        let paths = [text.as_os_str(), file.as_os_str()];
        let arguments = [
            "-q",
            "-u",
            "4000,5000",
            "-4",
            "10.0.0.1,239.1.2.3",
            "-F",
            format,
        ];
        run(
            &tools.text2pcap,
            arguments.iter().map(OsStr::new).chain(paths),
        );
        assert_eq!(ours(&file), tools.judge(&file), "{format}");
        let packets = read(&file);
        assert_eq!(
            payloads(&packets),
            ["\u{1}\u{2}\u{3}", "\u{4}\u{5}\u{6}\u{7}"],
            "{format}"
        );
        let found = Datagram::find(packets[0].link, &packets[0].bytes).unwrap();
        assert_eq!(found.destination, "239.1.2.3:5000".parse().unwrap());
    }
}

#[test]
fn a_capture_of_another_program_that_is_cut_anywhere_says_where() {
    let Ok(tools) = Tools::find() else { return };
    let folder = Folder::new();
    let text = folder.file("packets.txt");
    std::fs::write(&text, "0000 01 02 03\n0000 04 05 06 07\n").unwrap();
    for format in ["pcap", "nsecpcap", "pcapng"] {
        let file = folder.file(&format!("text.{format}"));
        let paths = [text.as_os_str(), file.as_os_str()];
        let arguments = [
            "-q",
            "-u",
            "4000,5000",
            "-4",
            "10.0.0.1,239.1.2.3",
            "-F",
            format,
        ];
        run(
            &tools.text2pcap,
            arguments.iter().map(OsStr::new).chain(paths),
        );
        let bytes = std::fs::read(&file).unwrap();
        let whole = read(&file);
        let mut broken = 0;
        for cut in 0..bytes.len() {
            let mut packets = Vec::new();
            let mut fault = None;
            match Reader::new(&bytes[..cut]) {
                Ok(reader) => {
                    for packet in reader.packets() {
                        match packet {
                            Ok(packet) => packets.push(packet),
                            Err(error) => fault = Some(error),
                        }
                    }
                }
                Err(error) => fault = Some(error),
            }
            assert_eq!(packets, whole[..packets.len()], "{format} cut at {cut}");
            let Some(fault) = fault else { continue };
            broken += 1;
            assert!(
                matches!(fault.fault, CaptureFault::Cut { .. }),
                "{format} cut at {cut}: {fault}"
            );
            assert!(fault.offset <= cut as u64, "{format} cut at {cut}: {fault}");
            if let Some(next) = whole.get(packets.len()) {
                assert!(
                    fault.offset <= next.offset,
                    "{format} cut at {cut}: {fault}"
                );
            }
        }
        // At most each end of a block is a legal end: header, interface, two packets, statistics.
        assert!(
            broken + 6 >= bytes.len(),
            "{format}: {broken} of {}",
            bytes.len()
        );
    }
}

/// A receiver that makes `count` packets of its own.
fn generated(count: u64, size: u64, group: &str) -> Receiver {
    let network = Network::new(
        std::sync::Arc::new(lockgate::clock::SystemClock::new()),
        lockgate::fault::Plan::quiet(),
    );
    let mut registry = Registry::new();
    registry.register(network.factory()).unwrap();
    let mut config = ReceiverConfig {
        groups: vec![group.parse::<Group>().unwrap()],
        timestamps: TimestampMode::Software,
        ..ReceiverConfig::default()
    };
    config.options.set(
        "generate",
        serde_json::json!({ "count": count, "size": size, "seed": 5 }),
    );
    registry.open_receiver(NAME, &config).unwrap()
}

#[test]
fn recordings_read_the_same_with_tshark_and_tcpdump() {
    let Ok(tools) = Tools::find() else { return };
    let folder = Folder::new();
    for (name, group) in [("v4", "239.7.7.7:47000"), ("v6", "[ff15::7]:47000")] {
        let file = folder.file(name);
        let record = Record::create(&file).unwrap();
        let monitor = record.monitor();
        let mut receiver = generated(500, 300, group).decorate(|inner| record.wrap(inner));
        let mut delivered = Vec::new();
        while delivered.len() < 500 {
            for packet in receiver.poll().unwrap() {
                let stamp = packet.timestamp().system().unwrap().raw();
                delivered.push((stamp, packet.payload().to_vec()));
            }
        }
        receiver.close().unwrap();
        assert_eq!(monitor.outcome().unwrap().recorded, 500);
        assert_eq!(
            monitor.outcome().unwrap().bytes,
            file.metadata().unwrap().len()
        );

        let judged = tools.judge(&file);
        assert_eq!(ours(&file), judged);
        let head = if name == "v4" { 28 } else { 48 };
        let seen: Vec<_> = judged
            .iter()
            .map(|(nanos, len, bytes)| {
                assert_eq!(*len as usize, bytes.len());
                (*nanos, bytes[head..].to_vec())
            })
            .collect();
        assert_eq!(seen, delivered, "{name}");

        let path = [OsStr::new("-r"), file.as_os_str()];
        // As data: no dissector shall take the port for something else.
        let as_data = ["-n", "-d", "udp.port==47000,data"];
        let check = [
            "-o",
            "udp.check_checksum:TRUE",
            "-o",
            "ip.check_checksum:TRUE",
        ];
        let fields = [
            "-T",
            "fields",
            "-e",
            "udp.checksum.status",
            "-e",
            "udp.dstport",
            "-e",
            "_ws.expert",
        ];
        let arguments = path
            .into_iter()
            .chain(as_data.map(OsStr::new))
            .chain(check.map(OsStr::new))
            .chain(fields.map(OsStr::new));
        let told = run(&tools.tshark, arguments);
        // 1 is "good", and there is nothing that an expert would remark.
        assert!(
            told.lines().all(|line| line.trim_end() == "1\t47000"),
            "{name}: {told:.200}"
        );
        assert_eq!(told.lines().count(), 500);

        let told = run(&tools.tcpdump, path.into_iter().chain([OsStr::new("-n")]));
        assert_eq!(told.lines().count(), 500, "{name}");
        let to = if name == "v4" {
            "> 239.7.7.7.47000: UDP"
        } else {
            "> ff15::7.47000: UDP"
        };
        assert!(
            told.lines().all(|line| line.contains(to)),
            "{name}: {told:.200}"
        );
    }
}

/// Tells the child of the next test where to record.
const CHILD: &str = "LOCKGATE_TEST_RECORDING";

#[test]
fn a_recording_of_a_killed_process_reads_up_to_what_was_written() {
    if let Some(path) = std::env::var_os(CHILD) {
        record_for_ever(Path::new(&path));
    }
    let Ok(tools) = Tools::find() else { return };
    let folder = Folder::new();
    let file = folder.file("killed.pcapng");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "a_recording_of_a_killed_process_reads_up_to_what_was_written",
            "--nocapture",
        ])
        .env(CHILD, &file)
        .stdout(Stdio::piped())
        .spawn()
        .map(Running)
        .unwrap();
    let mut told = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut recorded = 0;
    while recorded < 2_000 {
        let line = told.next().expect("the child goes on").unwrap();
        if let Some(count) = line.strip_prefix("recorded ") {
            recorded = count.parse::<usize>().unwrap();
        }
    }
    // SIGKILL, to the child that was started here.
    child.0.kill().unwrap();
    let status = child.0.wait().unwrap();
    assert!(!status.success());

    // The kill may have come within a write: then the last block is torn, and tshark says so with another status.
    let output = Command::new(&tools.tshark)
        .args(["-n", "-T", "fields", "-e", "udp.length", "-r"])
        .arg(&file)
        .output()
        .unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(
        seen.lines().count() >= recorded,
        "{} of {recorded}",
        seen.lines().count()
    );
    assert!(seen.lines().all(|line| line == "208"), "whole packets");

    let mut reader = Reader::open(&file).unwrap();
    let mut ours = 0;
    while let Ok(Some(packet)) = reader.next_packet() {
        assert_eq!(
            Datagram::find(packet.link, packet.bytes)
                .unwrap()
                .payload
                .len(),
            200
        );
        ours += 1;
    }
    assert_eq!(ours, seen.lines().count());
}

/// The child: records with a write after every poll, and says how many packets are in the file, until it is killed.
fn record_for_ever(path: &Path) -> ! {
    let record = Record::create(path).unwrap().flush_interval(Duration::ZERO);
    let monitor = record.monitor();
    let mut receiver =
        generated(u64::MAX, 200, "239.7.7.7:47000").decorate(|inner| record.wrap(inner));
    let mut out = std::io::stdout();
    loop {
        let _ = receiver.poll().unwrap().len();
        // Ends when nobody listens any more, should the parent have failed.
        if writeln!(out, "recorded {}", monitor.recorded()).is_err() {
            std::process::exit(1);
        }
    }
}
