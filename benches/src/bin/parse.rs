//! What the frame parser costs in instructions per packet, against etherparse doing the same work.
//!
//! Promises: `parse` without arguments runs itself under `valgrind --tool=callgrind`, once with few packets and once with
//! many, and prints the difference per packet as a Markdown table, so that start-up cancels out. `parse --check` also
//! fails when the own parser is above [`LIMITS`]. Every candidate must find the same as the others first.
//! Does not do: wall-clock time, which on shared machines says more about the neighbours.
//!
//! Two etherparse candidates, so that it is measured at its best: `sliced` is its general entry,
//! `SlicedPacket::from_ethernet`; `assembled` puts its single-header slices together by hand and skips all that a UDP
//! receiver has no use for.

use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::process::{Command, ExitCode};

use etherparse::checksum::Sum16BitWords;
use etherparse::{
    EtherType, Ethernet2Slice, IpNumber, Ipv4HeaderSlice, Ipv6Slice, LinkExtSlice, NetSlice,
    SingleVlanSlice, SlicedPacket, TransportSlice, UdpSlice,
};
use lockgate::receive::frame::{self, Builder, Check, Policy, VlanTag, VlanTags};
use lockgate::receive::mac::MacAddress;

/// The most instructions per packet that the own parser may take: name of the traffic, payload, sums verified, limit.
/// A tenth above what was measured, so that another compiler's choices do not fail it and a lost fast path does.
const LIMITS: &[(&str, usize, bool, u64)] = &[];

/// How many packets the two runs take.
const FEW: u64 = 1_000;
const MANY: u64 = 5_000;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => measure_all(false),
        ["--check"] => measure_all(true),
        ["run", candidate, traffic, size, sums, count] => {
            let (Ok(size), Ok(count)) = (size.parse(), count.parse()) else {
                return usage();
            };
            let Some(candidate) = CANDIDATES.iter().find(|(name, _)| name == candidate) else {
                return usage();
            };
            println!(
                "{}",
                run(
                    candidate.1,
                    &traffic_frame(traffic, size),
                    *sums == "verify",
                    count
                )
            );
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: parse [--check] | parse run CANDIDATE TRAFFIC SIZE verify|trust COUNT");
    ExitCode::from(2)
}

/// What a receiver wants to know. `None` when the packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    source: SocketAddr,
    destination: SocketAddr,
    payload_offset: u32,
    payload_len: u32,
    outer_tci: Option<u16>,
    sums_verified: bool,
}

/// A parser, and the payload octets that it found; the second argument says whether sums are verified.
type Candidate = fn(&[u8], bool) -> Option<Found>;

const CANDIDATES: [(&str, Candidate); 3] = [
    ("own", own_found),
    ("etherparse sliced", sliced),
    ("etherparse assembled", assembled),
];

/// Runs one candidate `count` times. The own parser gives its own type, as a receiver would use it; turning it into
/// [`Found`] is for the comparison only.
fn run(candidate: Candidate, bytes: &[u8], verify: bool, count: u64) -> u64 {
    let mut octets = 0;
    if candidate as usize == own_found as Candidate as usize {
        let policy = policy(verify);
        for _ in 0..count {
            if let Ok(frame) = black_box(frame::parse(black_box(bytes), black_box(&policy))) {
                octets += u64::from(frame.payload_len);
            }
        }
    } else {
        for _ in 0..count {
            if let Some(found) = black_box(candidate(black_box(bytes), black_box(verify))) {
                octets += u64::from(found.payload_len);
            }
        }
    }
    octets
}

fn policy(verify: bool) -> Policy {
    let check = if verify { Check::Drop } else { Check::Trust };
    Policy {
        ip: check,
        udp: check,
        ..Policy::default()
    }
}

fn own_found(bytes: &[u8], verify: bool) -> Option<Found> {
    let frame = frame::parse(bytes, &policy(verify)).ok()?;
    Some(Found {
        source: frame.source(),
        destination: frame.destination(),
        payload_offset: frame.payload_offset,
        payload_len: frame.payload_len,
        outer_tci: frame.vlan.outer().map(|tag| tag.tci),
        sums_verified: verify,
    })
}

fn sliced(bytes: &[u8], verify: bool) -> Option<Found> {
    let packet = SlicedPacket::from_ethernet(bytes).ok()?;
    let outer_tci = packet.link_exts.first().and_then(|ext| match ext {
        LinkExtSlice::Vlan(vlan) => Some(tci(vlan)),
        _ => None,
    });
    let Some(TransportSlice::Udp(udp)) = &packet.transport else {
        return None;
    };
    let (source, destination, sum) = match packet.net.as_ref()? {
        NetSlice::Ipv4(ip) => {
            if ip.is_payload_fragmented() {
                return None;
            }
            let header = ip.header();
            if verify
                && Sum16BitWords::new()
                    .add_slice(header.slice())
                    .ones_complement()
                    != 0
            {
                return None;
            }
            let sum = Sum16BitWords::new()
                .add_4bytes(header.source())
                .add_4bytes(header.destination());
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                sum,
            )
        }
        NetSlice::Ipv6(ip) => {
            if ip.is_payload_fragmented() {
                return None;
            }
            let header = ip.header();
            let sum = Sum16BitWords::new()
                .add_16bytes(header.source())
                .add_16bytes(header.destination());
            (
                header.source_addr().into(),
                header.destination_addr().into(),
                sum,
            )
        }
        NetSlice::Arp(_) => return None,
    };
    finish(bytes, udp, (source, destination), sum, outer_tci, verify)
}

fn assembled(bytes: &[u8], verify: bool) -> Option<Found> {
    let link = Ethernet2Slice::from_slice_without_fcs(bytes).ok()?;
    let mut ether_type = link.ether_type();
    let mut rest = link.payload_slice();
    let mut outer_tci = None;
    for _ in 0..2 {
        if !matches!(
            ether_type,
            EtherType::VLAN_TAGGED_FRAME
                | EtherType::PROVIDER_BRIDGING
                | EtherType::VLAN_DOUBLE_TAGGED_FRAME
        ) {
            break;
        }
        let vlan = SingleVlanSlice::from_slice(rest).ok()?;
        outer_tci = outer_tci.or(Some(tci(&vlan)));
        ether_type = vlan.ether_type();
        rest = vlan.payload_slice();
    }
    match ether_type {
        EtherType::IPV4 => {
            let header = Ipv4HeaderSlice::from_slice(rest).ok()?;
            if header.is_fragmenting_payload() || header.protocol() != IpNumber::UDP {
                return None;
            }
            if verify
                && Sum16BitWords::new()
                    .add_slice(header.slice())
                    .ones_complement()
                    != 0
            {
                return None;
            }
            let body = rest.get(header.slice().len()..usize::from(header.total_len()))?;
            let udp = UdpSlice::from_slice(body).ok()?;
            let sum = Sum16BitWords::new()
                .add_4bytes(header.source())
                .add_4bytes(header.destination());
            let addresses = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            finish(bytes, &udp, addresses, sum, outer_tci, verify)
        }
        EtherType::IPV6 => {
            let ip = Ipv6Slice::from_slice(rest).ok()?;
            if ip.is_payload_fragmented() || ip.payload().ip_number != IpNumber::UDP {
                return None;
            }
            let udp = UdpSlice::from_slice(ip.payload().payload).ok()?;
            let header = ip.header();
            let sum = Sum16BitWords::new()
                .add_16bytes(header.source())
                .add_16bytes(header.destination());
            let addresses = (
                header.source_addr().into(),
                header.destination_addr().into(),
            );
            finish(bytes, &udp, addresses, sum, outer_tci, verify)
        }
        _ => None,
    }
}

fn tci(vlan: &SingleVlanSlice<'_>) -> u16 {
    let slice = vlan.slice();
    u16::from_be_bytes([slice[0], slice[1]])
}

/// The part that both etherparse candidates share: UDP's rules, its sum, and the offset of the payload.
fn finish(
    bytes: &[u8],
    udp: &UdpSlice<'_>,
    (source, destination): (IpAddr, IpAddr),
    addresses: Sum16BitWords,
    outer_tci: Option<u16>,
    verify: bool,
) -> Option<Found> {
    // etherparse takes a UDP length of zero for all that IP carries.
    if udp.length() < 8 {
        return None;
    }
    if udp.checksum() == 0 {
        if destination.is_ipv6() {
            return None;
        }
    } else if verify {
        let sum = addresses
            .add_2bytes([0, IpNumber::UDP.0])
            .add_2bytes(udp.length().to_be_bytes())
            .add_slice(udp.slice());
        if sum.ones_complement() != 0 {
            return None;
        }
    }
    Some(Found {
        source: SocketAddr::new(source, udp.source_port()),
        destination: SocketAddr::new(destination, udp.destination_port()),
        payload_offset: (udp.payload().as_ptr() as usize - bytes.as_ptr() as usize) as u32,
        payload_len: udp.payload().len() as u32,
        outer_tci,
        sums_verified: verify,
    })
}

const TRAFFIC: [&str; 3] = ["IPv4", "IPv4 VLAN", "IPv6"];

/// One frame of the traffic that is measured.
fn traffic_frame(traffic: &str, payload: usize) -> Vec<u8> {
    let (source, destination) = match traffic {
        "IPv6" => ("[2001:db8::1]:4000", "[ff3e::4321]:5000"),
        _ => ("192.0.2.1:4000", "239.1.2.3:5000"),
    };
    let vlan = match traffic {
        "IPv4 VLAN" => VlanTags::single(VlanTag::customer(42)),
        _ => VlanTags::NONE,
    };
    let address = |text: &str| -> SocketAddr {
        #[expect(clippy::expect_used, reason = "the four texts above are addresses")]
        text.parse().expect("an address")
    };
    #[expect(clippy::expect_used, reason = "both addresses above are of one family")]
    let builder = Builder::udp(address(source), address(destination))
        .expect("one family")
        .ethernet(
            MacAddress::new([2, 0, 0, 0, 0, 1]),
            MacAddress::BROADCAST,
            vlan,
        );
    let mut bytes = vec![0; builder.len(payload)];
    let payload: Vec<u8> = (0..payload).map(|n| (n * 7) as u8).collect();
    #[expect(
        clippy::expect_used,
        reason = "the payloads measured fit, and the buffer was measured for them"
    )]
    builder.write(&payload, &mut bytes).expect("room");
    bytes
}

fn measure_all(check: bool) -> ExitCode {
    let mut failed = false;
    println!(
        "| traffic | payload | sums | own | etherparse sliced | ratio | etherparse assembled | ratio |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: |");
    for traffic in TRAFFIC {
        for size in [64, 256, 1472] {
            let bytes = traffic_frame(traffic, size);
            for verify in [false, true] {
                let found = CANDIDATES.map(|(_, candidate)| candidate(&bytes, verify));
                if found[0].is_none() || found.iter().any(|other| *other != found[0]) {
                    eprintln!("{traffic}, {size} octets: the candidates disagree: {found:?}");
                    return ExitCode::FAILURE;
                }
                let sums = if verify { "verify" } else { "trust" };
                let mut counts = [0.0; 3];
                for (count, (name, _)) in counts.iter_mut().zip(CANDIDATES) {
                    *count = match per_packet(name, traffic, size, sums) {
                        Ok(instructions) => instructions,
                        Err(reason) => {
                            eprintln!("{name}, {traffic}, {size} octets: {reason}");
                            return ExitCode::FAILURE;
                        }
                    };
                }
                let [own, sliced, assembled] = counts;
                println!(
                    "| {traffic} | {size} | {sums} | {own:.0} | {sliced:.0} | {:.2} | {assembled:.0} | {:.2} |",
                    sliced / own,
                    assembled / own
                );
                let limit = LIMITS
                    .iter()
                    .find(|(t, s, v, _)| (*t, *s, *v) == (traffic, size, verify));
                match limit {
                    Some((.., limit)) if check && own > *limit as f64 => {
                        eprintln!(
                            "{traffic}, {size} octets, {sums}: {own:.0} instructions; at most {limit} are allowed"
                        );
                        failed = true;
                    }
                    None if check => {
                        eprintln!("{traffic}, {size} octets, {sums}: no limit is set");
                        failed = true;
                    }
                    _ => {}
                }
            }
        }
    }
    if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// Instructions per packet: the difference of two runs over the difference of their packets.
fn per_packet(candidate: &str, traffic: &str, size: usize, sums: &str) -> Result<f64, String> {
    let few = instructions(candidate, traffic, size, sums, FEW)?;
    let many = instructions(candidate, traffic, size, sums, MANY)?;
    Ok((many as f64 - few as f64) / (MANY - FEW) as f64)
}

fn instructions(
    candidate: &str,
    traffic: &str,
    size: usize,
    sums: &str,
    count: u64,
) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args([
            "run",
            candidate,
            traffic,
            &size.to_string(),
            sums,
            &count.to_string(),
        ])
        .output()
        .map_err(|error| {
            format!(
                "valgrind does not start: {error}; install it (Debian: apt-get install valgrind)"
            )
        })?;
    let octets = String::from_utf8_lossy(&output.stdout);
    if octets.trim() != (size as u64 * count).to_string() {
        return Err(format!("found {octets} octets in {count} packets"));
    }
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines()
        .find_map(|line| line.split_once("Collected :"))
        .and_then(|(_, number)| number.trim().parse().ok())
        .ok_or_else(|| format!("valgrind gave no count: {text}"))
}
