//! The frame parser against Wireshark's dissectors, frame by frame, over a generated corpus.
//!
//! Promises: whatever the parser says of a frame is held against what `tshark` printed of it: addresses, ports, lengths,
//! payload, tags and the state of both sums where it takes the frame, and for a refusal the very fields that are its
//! reason. Each refusal must be borne out, so a parser that refuses too much fails as one that takes too much does.
//! Does not do: running without `tshark`: see `lockgate_tests::tools`.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate::receive::frame::{
    self, BadSum, Check, Checksum, Fault, Frame, Ipv6Zero, Policy, Reject, Unsupported, VlanTag,
};
use lockgate_tests::frames::{Random, Sample, corpus};
use lockgate_tests::tools::require_tool;

const FRAMES: usize = 6_000;

/// Looks at every sum and refuses none, so that the states can be compared.
const FLAG: Policy = {
    let mut policy = STRICT;
    policy.ip = Check::Flag;
    policy.udp = Check::Flag;
    policy.ipv6_zero = Ipv6Zero::Accept;
    policy
};
const STRICT: Policy = Policy {
    ip: Check::Drop,
    udp: Check::Drop,
    ipv6_zero: Ipv6Zero::Drop,
    origin: frame::Origin::Wire,
};

const FIELDS: &[&str] = &[
    "frame.cap_len",
    "eth.type",
    "vlan.priority",
    "vlan.dei",
    "vlan.id",
    "vlan.etype",
    "ieee8021ad.priority",
    "ieee8021ad.dei",
    "ieee8021ad.id",
    "frame.protocols",
    "ip.version",
    "ip.hdr_len",
    "ip.len",
    "ip.proto",
    "ip.src",
    "ip.dst",
    "ip.flags.mf",
    "ip.frag_offset",
    "ip.checksum.status",
    "ip.bogus_ip_length",
    "ip.bogus_header_length",
    "ip.bogus_ip_version",
    "ipv6.version",
    "ipv6.plen",
    "ipv6.nxt",
    "ipv6.src",
    "ipv6.dst",
    "ipv6.hopopts.nxt",
    "ipv6.dstopts.nxt",
    "ipv6.routing.nxt",
    "ipv6.routing.segleft",
    "ipv6.fraghdr.nxt",
    "ipv6.fraghdr.offset",
    "ipv6.fraghdr.more",
    "ah.next_header",
    "udp.srcport",
    "udp.dstport",
    "udp.length",
    "udp.checksum.status",
    "udp.payload",
    "_ws.short",
    "_ws.malformed",
    "_ws.expert",
];

/// `PROTO_CHECKSUM_*` of Wireshark.
const BAD: &str = "0";
const GOOD: &str = "1";
const NOT_PRESENT: &str = "3";
const ILLEGAL: &str = "4";

#[test]
fn agrees_with_wireshark() {
    let Ok(tshark) = require_tool("tshark") else {
        return;
    };
    let seed = std::env::var("LOCKGATE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_240_229);
    println!("seed {seed}; set LOCKGATE_SEED to change it");
    let samples = corpus(&mut Random::new(seed), FRAMES);
    let capture = Scratch::new("pcap");
    std::fs::write(&capture.0, pcap(&samples)).unwrap();
    let dissected = dissect(&tshark, &capture.0);
    assert_eq!(
        dissected.len(),
        samples.len(),
        "tshark printed another number of frames"
    );

    let mut failures = String::new();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for (number, (sample, line)) in samples.iter().zip(&dissected).enumerate() {
        let result = frame::parse(&sample.bytes, &FLAG);
        *seen.entry(outcome(&result)).or_default() += 1;
        let compared = match &result {
            Ok(frame) => compare(frame, &sample.bytes, line),
            Err(reject) => borne_out(reject, sample, line),
        };
        if let Err(difference) = compared {
            let _ = writeln!(
                failures,
                "frame {}: {difference}\n  {result:?}\n  {:?}\n  {:02x?}",
                number + 1,
                line.0,
                sample.bytes
            );
        }
        // What the strict policy refuses beyond the other are just the sums that Wireshark calls bad too.
        if let Ok(frame) = &result {
            let expected = match (frame.ip_checksum, frame.udp_checksum) {
                (Checksum::Bad, _) => Err(Reject::Checksum(BadSum::IpHeader)),
                (_, Checksum::Bad) => Err(Reject::Checksum(BadSum::Udp)),
                (Checksum::Absent, Checksum::Zero) => Err(Reject::Checksum(BadSum::Ipv6Zero)),
                _ => Ok(*frame),
            };
            assert_eq!(
                frame::parse(&sample.bytes, &STRICT),
                expected,
                "frame {}",
                number + 1
            );
        }
    }
    println!("{seen:#?}");
    assert!(failures.is_empty(), "{failures}");
    for (kind, least) in [
        ("taken, V4, Verified", 100),
        ("taken, V4, Bad", 50),
        ("taken, V4, Zero", 20),
        ("taken, V6, Verified", 100),
        ("taken, V6, Bad", 50),
        ("taken, V6, Zero", 20),
        ("Fragment", 100),
        ("Malformed(UdpLength)", 20),
        ("Malformed(TotalLength)", 5),
        ("Malformed(IpHeaderLength)", 5),
        ("Malformed(IpVersion)", 20),
        ("Malformed(ExtensionLength)", 2),
        ("NotIp", 50),
        ("NotUdp", 50),
        ("Truncated", 100),
        ("Unsupported(RoutingHeader)", 20),
        ("Unsupported(VlanDepth)", 20),
    ] {
        let count = seen.get(kind).copied().unwrap_or_default();
        assert!(
            count >= least,
            "{kind}: {count} frames; the corpus must have at least {least}"
        );
    }
}

fn outcome(result: &Result<Frame, Reject>) -> String {
    match result {
        Ok(frame) => {
            let family = if frame.source().is_ipv4() { "V4" } else { "V6" };
            format!("taken, {family}, {:?}", frame.udp_checksum)
        }
        Err(Reject::Malformed(fault)) => format!("Malformed({fault:?})"),
        Err(Reject::Unsupported(what)) => format!("Unsupported({what:?})"),
        Err(Reject::Fragment { .. }) => "Fragment".into(),
        Err(Reject::NotIp { .. }) => "NotIp".into(),
        Err(Reject::NotUdp { .. }) => "NotUdp".into(),
        Err(Reject::Truncated { .. }) => "Truncated".into(),
        Err(other) => format!("{other:?}"),
    }
}

/// All that a taken frame says, against what Wireshark says.
fn compare(frame: &Frame, bytes: &[u8], line: &Line) -> Result<(), String> {
    let (addresses, ip_sum) = match frame.source() {
        source if source.is_ipv4() => (["ip.src", "ip.dst"], Some(frame.ip_checksum)),
        _ => (["ipv6.src", "ipv6.dst"], None),
    };
    for (field, ours) in addresses
        .into_iter()
        .zip([frame.source(), frame.destination()])
    {
        line.is(field, ours.ip().to_string(), |text| {
            text.parse::<IpAddr>()
                .map_or_else(|_| text.to_owned(), |ip| ip.to_string())
        })?;
    }
    let same = |text: &str| text.to_owned();
    line.is("udp.srcport", frame.source_port.to_string(), same)?;
    line.is("udp.dstport", frame.destination_port.to_string(), same)?;
    line.is("udp.length", (frame.payload_len + 8).to_string(), same)?;
    let payload: String = frame
        .payload(bytes)
        .iter()
        .fold(String::new(), |mut text, octet| {
            let _ = write!(text, "{octet:02x}");
            text
        });
    // Wireshark shows all that IP carries behind the header; the UDP length says where the payload ends.
    line.is("udp.payload", payload.clone(), |text| {
        let text = text.replace(':', "");
        text.get(..payload.len())
            .map_or(text.clone(), str::to_owned)
    })?;
    let tags: Vec<VlanTag> = frame.vlan.iter().collect();
    if tags != line.tags()? {
        return Err(format!(
            "tags: {tags:?} here, {:?} in Wireshark",
            line.tags()
        ));
    }
    if let Some(sum) = ip_sum {
        let status = if sum == Checksum::Verified { GOOD } else { BAD };
        line.is("ip.checksum.status", status.into(), same)?;
        line.is("ip.flags.mf", "0".into(), truth)?;
        line.is("ip.frag_offset", "0".into(), same)?;
    }
    let status = match (frame.udp_checksum, ip_sum) {
        (Checksum::Verified, _) => GOOD,
        (Checksum::Zero, Some(_)) => NOT_PRESENT,
        (Checksum::Zero, None) => ILLEGAL,
        _ => BAD,
    };
    line.is("udp.checksum.status", status.into(), same)
}

/// The reason of a refusal, against the fields that are this reason.
fn borne_out(reject: &Reject, sample: &Sample, line: &Line) -> Result<(), String> {
    let holds = match *reject {
        Reject::Fragment { offset, more } if line.has("ip.src") => {
            // In units of 8 octets.
            line.number("ip.frag_offset") == Some(u64::from(offset) / 8)
                && truth(line.first("ip.flags.mf")) == flag(more)
        }
        Reject::Fragment { offset, more } => {
            line.any("ipv6.fraghdr.offset", |text| {
                text.parse() == Ok(u64::from(offset) / 8)
            }) && line.any("ipv6.fraghdr.more", |text| truth(text) == flag(more))
        }
        Reject::NotIp { ether_type } => {
            let last = line.last("vlan.etype").or(line.last("eth.type"));
            let same = last.and_then(hexadecimal) == Some(u64::from(ether_type));
            // Behind a service tag the EtherType is not a field; what was dissected says it.
            let arp = ether_type == 0x0806 && line.first("frame.protocols").contains(":arp");
            !line.has("ip.src") && !line.has("ipv6.src") && (same || arp)
        }
        Reject::NotUdp { protocol } => {
            let next = [
                "ip.proto",
                "ipv6.nxt",
                "ipv6.hopopts.nxt",
                "ipv6.dstopts.nxt",
                "ipv6.routing.nxt",
                "ipv6.fraghdr.nxt",
                "ah.next_header",
            ];
            next.iter()
                .any(|field| line.any(field, |text| text.parse() == Ok(protocol)))
        }
        Reject::Truncated {
            needed, captured, ..
        } => captured as usize == sample.bytes.len() && needed > captured && is_cut(line, captured),
        Reject::Malformed(fault) => match fault {
            Fault::IpVersion => {
                line.has("ip.bogus_ip_version")
                    || line
                        .number("ip.version")
                        .is_some_and(|version| version != 4)
                    || line
                        .number("ipv6.version")
                        .is_some_and(|version| version != 6)
            }
            Fault::IpHeaderLength => line.number("ip.hdr_len").is_some_and(|len| len < 20),
            // Wireshark takes a length of zero for one that the sender's device was to fill in, and shows the frame's.
            Fault::TotalLength => {
                let at = 14 + 4 * line.tags()?.len() + 2;
                line.number("ip.len") < line.number("ip.hdr_len")
                    || sample.bytes[at..at + 2] == [0, 0]
            }
            Fault::UdpHeader => match line.carried() {
                Some(len) => len < 8,
                None => {
                    line.first("frame.protocols").ends_with(":udp") && line.has("_ws.malformed")
                }
            },
            Fault::UdpLength => match (line.number("udp.length"), line.carried()) {
                (Some(len), Some(carried)) => len < 8 || len > carried,
                (Some(len), None) => len < 8 || line.has("_ws.malformed") || line.has("_ws.expert"),
                _ => false,
            },
            Fault::ExtensionLength => {
                line.has("_ws.malformed") || line.has("_ws.short") || line.has("_ws.expert")
            }
            _ => false,
        },
        Reject::Unsupported(what) => match what {
            // The third one may be cut; its protocol is enough.
            Unsupported::VlanDepth => {
                let layers = line.first("frame.protocols").split(':');
                layers
                    .filter(|layer| ["vlan", "ieee8021ad"].contains(layer))
                    .count()
                    > 2
            }
            Unsupported::RoutingHeader => line.any("ipv6.routing.segleft", |text| text != "0"),
            Unsupported::Jumbogram => line.number("ipv6.plen") == Some(0),
            _ => false,
        },
        _ => false,
    };
    if holds {
        Ok(())
    } else {
        Err(format!("not borne out: {reject}"))
    }
}

/// Whether Wireshark, too, lacks octets that the frame announces.
fn is_cut(line: &Line, captured: u32) -> bool {
    let link = 14 + 4 * line.tags().map_or(0, |tags| tags.len() as u64);
    let announced = if let Some(len) = line.number("ip.len") {
        Some(len)
    } else {
        line.number("ipv6.plen").map(|len| 40 + len)
    };
    let beyond = announced.is_some_and(|len| link + len > u64::from(captured));
    let header = line
        .number("ip.hdr_len")
        .is_some_and(|len| link + len.max(20) > u64::from(captured));
    beyond || header || line.has("_ws.short") || line.has("_ws.malformed") || !line.has("eth.type")
}

fn flag(set: bool) -> String {
    u8::from(set).to_string()
}

/// Wireshark prints a Boolean as `0` and `1`, from version 4.2 as `False` and `True`.
fn truth(text: &str) -> String {
    match text {
        "True" => "1".into(),
        "False" => "0".into(),
        text => text.into(),
    }
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// What Wireshark printed of one frame: the values of each field that is there.
struct Line(HashMap<&'static str, Vec<String>>);

impl Line {
    fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    fn all(&self, field: &str) -> &[String] {
        self.0.get(field).map_or(&[], Vec::as_slice)
    }

    fn first(&self, field: &str) -> &str {
        self.all(field).first().map_or("", String::as_str)
    }

    fn last(&self, field: &str) -> Option<&str> {
        self.all(field).last().map(String::as_str)
    }

    fn any(&self, field: &str, is: impl Fn(&str) -> bool) -> bool {
        self.all(field).iter().any(|text| is(text))
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.first(field).parse().ok()
    }

    fn is(&self, field: &str, ours: String, read: impl Fn(&str) -> String) -> Result<(), String> {
        let theirs = read(self.first(field));
        if ours == theirs {
            Ok(())
        } else {
            Err(format!("{field}: {ours:?} here, {theirs:?} in Wireshark"))
        }
    }

    /// The octets that IP carries for UDP; not known here when there are extension headers.
    fn carried(&self) -> Option<u64> {
        match self.number("ip.len") {
            Some(len) => len.checked_sub(self.number("ip.hdr_len")?),
            None if self.first("ipv6.nxt") == "17" => self.number("ipv6.plen"),
            None => None,
        }
    }

    /// The tags, put together from their parts.
    fn tags(&self) -> Result<Vec<VlanTag>, String> {
        let mut protocol = hexadecimal(self.first("eth.type")).unwrap_or_default();
        let mut tags = Vec::new();
        for dissector in ["ieee8021ad", "vlan"] {
            for place in 0..self.all(&format!("{dissector}.id")).len() {
                let part = |field: &str| -> Result<u64, String> {
                    let field = format!("{dissector}.{field}");
                    let text = self.all(&field).get(place).map_or("", String::as_str);
                    truth(text)
                        .parse()
                        .map_err(|_| format!("tag {place}: {field} is {text:?}"))
                };
                tags.push(VlanTag {
                    protocol: protocol as u16,
                    tci: (part("priority")? << 13 | part("dei")? << 12 | part("id")?) as u16,
                });
                // The service tag's dissector prints no EtherType. It hands customer tags, and only those, to the other.
                let behind = self
                    .all("vlan.etype")
                    .get(place)
                    .filter(|_| dissector == "vlan");
                protocol = behind.and_then(|text| hexadecimal(text)).unwrap_or(0x8100);
            }
        }
        Ok(tags)
    }
}

/// Runs tshark over the capture: every occurrence of every field.
fn dissect(tshark: &Path, capture: &Path) -> Vec<Line> {
    let mut command = Command::new(tshark);
    command.arg("-n").arg("-r").arg(capture);
    for setting in [
        "ip.check_checksum:TRUE",
        "udp.check_checksum:TRUE",
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
    ] {
        command.args(["-o", setting]);
    }
    command.args([
        "-T",
        "fields",
        "-E",
        "separator=|",
        "-E",
        "occurrence=a",
        "-E",
        "aggregator=;",
    ]);
    for field in FIELDS {
        command.args(["-e", field]);
    }
    let output = command.output().expect("tshark starts");
    let text = String::from_utf8(output.stdout).expect("tshark prints text");
    assert!(
        output.status.success(),
        "tshark: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines()
        .map(|line| {
            let values = line
                .split('|')
                .map(|value| value.split(';').map(str::to_owned).collect::<Vec<_>>());
            let fields = FIELDS.iter().copied().zip(values);
            Line(
                fields
                    .filter(|(_, values)| values.iter().any(|value| !value.is_empty()))
                    .collect(),
            )
        })
        .collect()
}

/// A capture file: microseconds, this machine's byte order, Ethernet.
fn pcap(samples: &[Sample]) -> Vec<u8> {
    let mut file = Vec::new();
    let word = |file: &mut Vec<u8>, value: usize| file.extend((value as u32).to_ne_bytes());
    word(&mut file, 0xa1b2_c3d4);
    file.extend(2u16.to_ne_bytes());
    file.extend(4u16.to_ne_bytes());
    for value in [0, 0, 65_535, 1] {
        word(&mut file, value);
    }
    for (number, sample) in samples.iter().enumerate() {
        for value in [1 + number, 0, sample.bytes.len(), sample.wire_len] {
            word(&mut file, value);
        }
        file.extend(&sample.bytes);
    }
    file
}

/// A file of this test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(extension: &str) -> Self {
        let name = format!("lockgate-frame-oracle-{}.{extension}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
