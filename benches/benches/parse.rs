//! What the frame parser costs in instructions per packet, against etherparse doing the same work.
//!
//! Promises: without arguments it runs itself under `valgrind --tool=callgrind`, once with few packets and once with
//! many, and prints the difference per packet as a Markdown table, so that start-up cancels out. With `--check` it also
//! fails when the own parser is above [`LIMITS`]. Every candidate must find the same as the others first.
//! Does not do: wall-clock time, which on shared machines says more about the neighbours.
//!
//! Two etherparse candidates, so that it is measured at its best: `sliced` is its general entry,
//! `SlicedPacket::from_ethernet`; `assembled` puts its single-header slices together by hand and skips all that a UDP
//! receiver has no use for.

use std::hint::black_box;
use std::net::SocketAddr;
use std::process::{Command, ExitCode};

use etherparse::checksum::Sum16BitWords;
use etherparse::err::ipv4::HeaderSliceError;
use etherparse::err::ipv6::SliceError as Ipv6SliceError;
use etherparse::err::packet::SliceError;
use etherparse::{
    EtherType, Ethernet2Slice, IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, Ipv6Slice, LenSource,
    LinkExtSlice, LinkSlice, NetSlice, SingleVlanSlice, SlicedPacket, TransportSlice, UdpSlice,
};
use lockgate::receive::frame::{
    self, Addresses, Builder, Check, Checksum, Ipv6Zero, Origin, Place, Policy, VlanTag, VlanTags,
};
use lockgate::receive::mac::MacAddress;

/// The most instructions per packet that the own parser may take: name of the traffic, payload, sums verified, limit.
/// A tenth above what was measured, so that another compiler's choices do not fail it and a lost fast path does.
const LIMITS: &[(&str, usize, bool, u64)] = &[
    ("IPv4", 64, false, 133),
    ("IPv4", 64, true, 267),
    ("IPv4", 256, false, 133),
    ("IPv4", 256, true, 330),
    ("IPv4", 1472, false, 133),
    ("IPv4", 1472, true, 727),
    ("IPv4 VLAN", 64, false, 194),
    ("IPv4 VLAN", 64, true, 328),
    ("IPv4 VLAN", 256, false, 194),
    ("IPv4 VLAN", 256, true, 391),
    ("IPv4 VLAN", 1472, false, 194),
    ("IPv4 VLAN", 1472, true, 788),
    ("IPv6", 64, false, 160),
    ("IPv6", 64, true, 272),
    ("IPv6", 256, false, 160),
    ("IPv6", 256, true, 334),
    ("IPv6", 1472, false, 160),
    ("IPv6", 1472, true, 732),
];

/// How many packets the two runs take.
const FEW: u64 = 1_000;
const MANY: u64 = 5_000;

fn main() -> ExitCode {
    // Cargo adds `--bench` for harnesses of its own.
    let args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let args: Vec<String> = args.collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => measure_all(false),
        ["--check"] => measure_all(true),
        ["run", candidate, traffic, size, sums, count] => {
            let (Ok(size), Ok(count)) = (size.parse(), count.parse()) else {
                return usage();
            };
            if !CANDIDATES.iter().any(|(name, _)| name == candidate) {
                return usage();
            }
            let policy = policy(*sums == "verify");
            println!(
                "{}",
                run(candidate, &traffic_frame(traffic, size), &policy, count)
            );
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cargo xtask bench parse [--check]\n   or: cargo xtask bench parse run CANDIDATE TRAFFIC OCTETS verify|trust COUNT"
    );
    ExitCode::from(2)
}

/// What a receiver needs, the same from every candidate: all that [`frame::Frame`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    addresses: Addresses,
    source_port: u16,
    destination_port: u16,
    l3_offset: u32,
    payload_offset: u32,
    payload_len: u32,
    vlan: VlanTags,
    ip_checksum: Checksum,
    udp_checksum: Checksum,
}

/// A parser: the packet, or the place at which it is counted as lost.
type Candidate = fn(&[u8], &Policy) -> Result<Found, Place>;

const CANDIDATES: [(&str, Candidate); 3] = [
    ("own", own),
    ("etherparse sliced", sliced),
    ("etherparse assembled", assembled),
];

/// Runs one candidate `count` times and gives the payload octets that it found. The own parser gives its own type, as a
/// receiver uses it; turning it into [`Found`] is for the comparison only.
fn run(candidate: &str, bytes: &[u8], policy: &Policy, count: u64) -> u64 {
    let mut octets = 0;
    match candidate {
        "own" => {
            for _ in 0..count {
                if let Ok(frame) = black_box(&frame::parse(black_box(bytes), black_box(policy))) {
                    octets += u64::from(frame.payload_len);
                }
            }
        }
        "etherparse sliced" => {
            for _ in 0..count {
                if let Ok(found) = black_box(&sliced(black_box(bytes), black_box(policy))) {
                    octets += u64::from(found.payload_len);
                }
            }
        }
        _ => {
            for _ in 0..count {
                if let Ok(found) = black_box(&assembled(black_box(bytes), black_box(policy))) {
                    octets += u64::from(found.payload_len);
                }
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

fn own(bytes: &[u8], policy: &Policy) -> Result<Found, Place> {
    let frame = frame::parse(bytes, policy).map_err(|reject| reject.place())?;
    Ok(Found {
        addresses: frame.addresses,
        source_port: frame.source_port,
        destination_port: frame.destination_port,
        l3_offset: frame.l3_offset,
        payload_offset: frame.payload_offset,
        payload_len: frame.payload_len,
        vlan: frame.vlan,
        ip_checksum: frame.ip_checksum,
        udp_checksum: frame.udp_checksum,
    })
}

fn sliced(bytes: &[u8], policy: &Policy) -> Result<Found, Place> {
    let packet = SlicedPacket::from_ethernet(bytes).map_err(|error| match error {
        SliceError::Len(error) if error.len_source == LenSource::Slice => Place::Truncated,
        _ => Place::Malformed,
    })?;
    let mut vlan = VlanTags::NONE;
    let mut protocol = match &packet.link {
        Some(LinkSlice::Ethernet2(link)) => link.ether_type(),
        _ => return Err(Place::NotIp),
    };
    for ext in &packet.link_exts {
        let LinkExtSlice::Vlan(tag) = ext else {
            return Err(Place::NotIp);
        };
        vlan = with_tag(vlan, protocol, tag)?;
        protocol = tag.ether_type();
    }
    let (addresses, ip_checksum, sum, offset) = match packet.net.as_ref().ok_or(Place::NotIp)? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header();
            let ip_checksum = header_sum(&header, policy)?;
            if ip.is_payload_fragmented() {
                return Err(Place::Fragment);
            }
            let (addresses, sum) = v4(&header);
            (addresses, ip_checksum, sum, header.slice().as_ptr())
        }
        NetSlice::Ipv6(ip) => {
            if ip.is_payload_fragmented() {
                return Err(Place::Fragment);
            }
            let (addresses, sum) = v6(&ip.header());
            (
                addresses,
                Checksum::Absent,
                sum,
                ip.header().slice().as_ptr(),
            )
        }
        NetSlice::Arp(_) => return Err(Place::NotIp),
    };
    let Some(TransportSlice::Udp(udp)) = &packet.transport else {
        return Err(Place::NotUdp);
    };
    let l3 = offset as usize - bytes.as_ptr() as usize;
    finish(bytes, l3, udp, addresses, ip_checksum, sum, vlan, policy)
}

fn assembled(bytes: &[u8], policy: &Policy) -> Result<Found, Place> {
    let link = Ethernet2Slice::from_slice_without_fcs(bytes).map_err(|_| Place::Truncated)?;
    let mut protocol = link.ether_type();
    let mut rest = link.payload_slice();
    let mut vlan = VlanTags::NONE;
    while matches!(
        protocol,
        EtherType::VLAN_TAGGED_FRAME
            | EtherType::PROVIDER_BRIDGING
            | EtherType::VLAN_DOUBLE_TAGGED_FRAME
    ) {
        let tag = SingleVlanSlice::from_slice(rest).map_err(|_| Place::Truncated)?;
        vlan = with_tag(vlan, protocol, &tag)?;
        protocol = tag.ether_type();
        rest = tag.payload_slice();
    }
    let l3 = bytes.len() - rest.len();
    match protocol {
        EtherType::IPV4 => {
            let header = Ipv4HeaderSlice::from_slice(rest).map_err(|error| match error {
                HeaderSliceError::Len(_) => Place::Truncated,
                HeaderSliceError::Content(_) => Place::Malformed,
            })?;
            let ip_checksum = header_sum(&header, policy)?;
            let (header_len, total_len) = (header.slice().len(), usize::from(header.total_len()));
            if total_len < header_len {
                return Err(Place::Malformed);
            }
            let body = rest.get(header_len..total_len).ok_or(Place::Truncated)?;
            if header.is_fragmenting_payload() {
                return Err(Place::Fragment);
            }
            if header.protocol() != IpNumber::UDP {
                return Err(Place::NotUdp);
            }
            let udp = UdpSlice::from_slice(body).map_err(|_| Place::Malformed)?;
            let (addresses, sum) = v4(&header);
            finish(bytes, l3, &udp, addresses, ip_checksum, sum, vlan, policy)
        }
        EtherType::IPV6 => {
            let ip = Ipv6Slice::from_slice(rest).map_err(|error| match error {
                Ipv6SliceError::Len(error) if error.len_source == LenSource::Slice => {
                    Place::Truncated
                }
                _ => Place::Malformed,
            })?;
            if ip.is_payload_fragmented() {
                return Err(Place::Fragment);
            }
            if ip.payload().ip_number != IpNumber::UDP {
                return Err(Place::NotUdp);
            }
            let udp = UdpSlice::from_slice(ip.payload().payload).map_err(|_| Place::Malformed)?;
            let (addresses, sum) = v6(&ip.header());
            finish(
                bytes,
                l3,
                &udp,
                addresses,
                Checksum::Absent,
                sum,
                vlan,
                policy,
            )
        }
        _ => Err(Place::NotIp),
    }
}

fn with_tag(
    vlan: VlanTags,
    protocol: EtherType,
    tag: &SingleVlanSlice<'_>,
) -> Result<VlanTags, Place> {
    let slice = tag.slice();
    let tag = VlanTag {
        protocol: protocol.0,
        tci: u16::from_be_bytes([slice[0], slice[1]]),
    };
    match (vlan.outer(), vlan.inner()) {
        (None, _) => Ok(VlanTags::single(tag)),
        (Some(outer), None) => Ok(VlanTags::double(outer, tag)),
        (Some(_), Some(_)) => Err(Place::Unsupported),
    }
}

fn header_sum(header: &Ipv4HeaderSlice<'_>, policy: &Policy) -> Result<Checksum, Place> {
    if policy.ip == Check::Trust {
        return Ok(Checksum::NotChecked);
    }
    match (
        Sum16BitWords::new()
            .add_slice(header.slice())
            .ones_complement(),
        policy.ip,
    ) {
        (0, _) => Ok(Checksum::Verified),
        (_, Check::Drop) => Err(Place::Checksum),
        _ => Ok(Checksum::Bad),
    }
}

fn v4(header: &Ipv4HeaderSlice<'_>) -> (Addresses, Sum16BitWords) {
    let addresses = Addresses::V4 {
        source: header.source_addr(),
        destination: header.destination_addr(),
    };
    let sum = Sum16BitWords::new()
        .add_4bytes(header.source())
        .add_4bytes(header.destination());
    (addresses, sum)
}

fn v6(header: &Ipv6HeaderSlice<'_>) -> (Addresses, Sum16BitWords) {
    let addresses = Addresses::V6 {
        source: header.source_addr(),
        destination: header.destination_addr(),
    };
    let sum = Sum16BitWords::new()
        .add_16bytes(header.source())
        .add_16bytes(header.destination());
    (addresses, sum)
}

/// The part that both etherparse candidates share: UDP's rules, its sum, and the offset of the payload.
#[expect(
    clippy::too_many_arguments,
    reason = "a helper of two callers, inlined into both"
)]
#[inline(always)]
fn finish(
    bytes: &[u8],
    l3: usize,
    udp: &UdpSlice<'_>,
    addresses: Addresses,
    ip_checksum: Checksum,
    sum: Sum16BitWords,
    vlan: VlanTags,
    policy: &Policy,
) -> Result<Found, Place> {
    // etherparse takes a UDP length of zero for all that IP carries.
    if udp.length() < 8 {
        return Err(Place::Malformed);
    }
    let udp_checksum = match (policy.origin, policy.udp) {
        (Origin::Partial, _) => Checksum::Partial,
        _ if udp.checksum() == 0 => match (policy.ipv6_zero, addresses) {
            (Ipv6Zero::Drop, Addresses::V6 { .. }) => return Err(Place::Checksum),
            _ => Checksum::Zero,
        },
        (Origin::Verified, _) => Checksum::Vouched,
        (_, Check::Trust) => Checksum::NotChecked,
        (_, check) => {
            let sum = sum
                .add_2bytes([0, IpNumber::UDP.0])
                .add_2bytes(udp.length().to_be_bytes())
                .add_slice(udp.slice());
            match (sum.ones_complement(), check) {
                (0, _) => Checksum::Verified,
                (_, Check::Drop) => return Err(Place::Checksum),
                _ => Checksum::Bad,
            }
        }
    };
    Ok(Found {
        addresses,
        source_port: udp.source_port(),
        destination_port: udp.destination_port(),
        l3_offset: l3 as u32,
        payload_offset: (udp.payload().as_ptr() as usize - bytes.as_ptr() as usize) as u32,
        payload_len: udp.payload().len() as u32,
        vlan,
        ip_checksum,
        udp_checksum,
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
                let found = CANDIDATES.map(|(_, candidate)| candidate(&bytes, &policy(verify)));
                if found[0].is_err() || found.iter().any(|other| *other != found[0]) {
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
