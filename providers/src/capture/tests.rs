//! The reader against captures that are laid out here by hand, octet by octet, and everything that can be wrong with them.
//!
//! Captures of other programs are read in the workspace's own tests, which may need those programs.

use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

use lockgate::receive::frame::{Builder, Policy, VlanTag, VlanTags, parse, parse_ip};
use lockgate::receive::mac::MacAddress;
use lockgate::{Error, ErrorKind};

use super::*;

/// Numbers in one byte order.
#[derive(Clone, Copy)]
struct Order {
    big: bool,
}

impl Order {
    fn u16(self, value: u16) -> [u8; 2] {
        if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn u32(self, value: u32) -> [u8; 4] {
        if self.big {
            value.to_be_bytes()
        } else {
            value.to_le_bytes()
        }
    }

    fn u32s(self, values: &[u32]) -> Vec<u8> {
        values.iter().flat_map(|one| self.u32(*one)).collect()
    }

    fn pcap(self, magic: u32, link: u32, packets: &[(u32, u32, &[u8])]) -> Vec<u8> {
        let mut file = self.u32(magic).to_vec();
        file.extend(self.u16(2));
        file.extend(self.u16(4));
        file.extend(self.u32s(&[0, 0, 65_535, link]));
        for (seconds, fraction, bytes) in packets {
            let len = bytes.len() as u32;
            file.extend(self.u32s(&[*seconds, *fraction, len, len + 2]));
            file.extend(*bytes);
        }
        file
    }

    fn block(self, kind: u32, body: &[u8]) -> Vec<u8> {
        let body_len = body.len().next_multiple_of(4);
        let len = self.u32(body_len as u32 + 12);
        let mut block = self.u32(kind).to_vec();
        block.extend(len);
        block.extend(body);
        block.resize(8 + body_len, 0);
        block.extend(len);
        block
    }

    fn section(self) -> Vec<u8> {
        let mut body = self.u32(0x1a2b_3c4d).to_vec();
        body.extend(self.u16(1));
        body.extend(self.u16(0));
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body)
    }

    fn option(self, code: u16, value: &[u8]) -> Vec<u8> {
        let mut option = self.u16(code).to_vec();
        option.extend(self.u16(value.len() as u16));
        option.extend(value);
        option.resize(4 + value.len().next_multiple_of(4), 0);
        option
    }

    fn interface(self, link: u16, snap_len: u32, options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut body = self.u16(link).to_vec();
        body.extend(self.u16(0));
        body.extend(self.u32(snap_len));
        for (code, value) in options {
            body.extend(self.option(*code, value));
        }
        if !options.is_empty() {
            body.extend(self.option(0, &[]));
        }
        self.block(1, &body)
    }

    fn packet(self, interface: u32, ticks: u64, bytes: &[u8]) -> Vec<u8> {
        let len = bytes.len() as u32;
        let mut body = self.u32s(&[interface, (ticks >> 32) as u32, ticks as u32, len, len + 2]);
        body.extend(bytes);
        self.block(6, &body)
    }
}

/// Options of a block: codes and values.
type Options<'a> = &'a [(u16, &'a [u8])];
/// What is done to a file.
type Change<'a> = dyn Fn(&mut Vec<u8>) + 'a;

const LITTLE: Order = Order { big: false };
const BIG: Order = Order { big: true };
const MICRO: u32 = 0xa1b2_c3d4;
const NANO: u32 = 0xa1b2_3c4d;

fn all(file: &[u8]) -> (Vec<OwnedPacket>, Option<CaptureError>) {
    let reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut packets, mut broken) = (Vec::new(), None);
    for packet in reader.packets() {
        match packet {
            Ok(packet) => packets.push(packet),
            Err(error) => assert!(broken.replace(error).is_none(), "one error ends it"),
        }
    }
    (packets, broken)
}

/// Every form that is read, with two packets, and where the file may end without being broken.
fn forms() -> Vec<(&'static str, Vec<u8>, Vec<usize>)> {
    let mut forms = Vec::new();
    for (name, order) in [("little", LITTLE), ("big", BIG)] {
        for (magic, unit) in [(MICRO, 1), (NANO, 1000)] {
            let file = order.pcap(
                magic,
                101,
                &[(1, 5 * unit, b"abc"), (2, 7 * unit, b"defgh")],
            );
            forms.push((name, file, vec![24, 24 + 16 + 3, 24 + 16 + 3 + 16 + 5]));
        }
        let mut file = order.section();
        let mut ends = vec![file.len()];
        for block in [
            order.interface(101, 0, &[]),
            order.packet(0, 1_000_005, b"abc"),
            // Holds no packet: interface statistics.
            order.block(5, &order.u32s(&[0, 0, 0])),
            order.interface(101, 0, &[(9, &[9])]),
            order.packet(1, 2_000_007_000, b"defgh"),
        ] {
            file.extend(block);
            ends.push(file.len());
        }
        forms.push((name, file, ends));
    }
    forms
}

#[test]
fn every_form_gives_the_same_packets() {
    for (name, file, _) in forms() {
        let (packets, broken) = all(&file);
        assert!(broken.is_none(), "{name}: {broken:?}");
        let seen: Vec<_> = packets
            .iter()
            .map(|one| (one.nanos.unwrap(), one.link, &one.bytes[..], one.wire_len))
            .collect();
        assert_eq!(
            seen,
            [
                (1_000_005_000, LinkType::RAW, &b"abc"[..], 5),
                (2_000_007_000, LinkType::RAW, &b"defgh"[..], 7),
            ],
            "{name}"
        );
    }
}

#[test]
fn a_file_cut_anywhere_gives_what_is_whole_and_says_where_it_breaks() {
    for (name, file, ends) in forms() {
        let (whole, _) = all(&file);
        for cut in 0..file.len() {
            let (packets, broken) = all(&file[..cut]);
            let place = ends
                .iter()
                .copied()
                .filter(|end| *end <= cut)
                .max()
                .unwrap_or(0);
            let expected = whole
                .iter()
                .filter(|one| (one.offset as usize) < place)
                .count();
            assert_eq!(packets, whole[..expected], "{name} cut at {cut}");
            if ends.contains(&cut) {
                assert!(broken.is_none(), "{name} cut at {cut}: {broken:?}");
                continue;
            }
            let broken = broken.unwrap_or_else(|| panic!("{name} cut at {cut} is not noticed"));
            assert_eq!(broken.offset, place as u64, "{name} cut at {cut}: {broken}");
            let CaptureFault::Cut { needed, have, .. } = broken.fault else {
                panic!("{name} cut at {cut}: {broken}");
            };
            assert_eq!(have, (cut - place) as u64);
            assert!(needed > have, "{name} cut at {cut}: {needed} {have}");
        }
    }
}

#[test]
fn one_octet_at_a_time_gives_the_same() {
    struct Slow<'a>(&'a [u8]);
    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let len = to.len().min(1);
            self.0.read(&mut to[..len])
        }
    }
    for (name, file, _) in forms() {
        let slow: Result<Vec<_>, _> = Reader::new(Slow(&file)).unwrap().packets().collect();
        assert_eq!(slow.unwrap(), all(&file).0, "{name}");
    }
}

#[test]
fn times_of_every_unit_and_origin_are_exact() {
    let ticks = 1_700_000_000_123_456_789;
    let minus_one: i64 = -1;
    for order in [LITTLE, BIG] {
        let offset = |seconds: i64| {
            if order.big {
                seconds.to_be_bytes()
            } else {
                seconds.to_le_bytes()
            }
        };
        let (plus, minus) = (offset(1_700_000_000), offset(minus_one));
        let cases: [(Options<'_>, u64, Option<u64>); 11] = [
            (&[], 1_700_000_000_123_456, Some(1_700_000_000_123_456_000)),
            (&[(9, &[9])], ticks, Some(ticks)),
            (
                &[(9, &[3])],
                1_700_000_000_123,
                Some(1_700_000_000_123_000_000),
            ),
            (&[(9, &[0])], 1_700_000_000, Some(1_700_000_000_000_000_000)),
            // Picoseconds are finer than what is kept.
            (&[(9, &[12])], 5_999, Some(5)),
            // 2^-10 of a second.
            (&[(9, &[0x8a])], 1 << 10 | 1, Some(1_000_976_562)),
            // 2^-63 of a second.
            (&[(9, &[0xbf])], 1 << 62, Some(500_000_000)),
            (&[(14, &plus)], 5, Some(1_700_000_000_000_005_000)),
            (&[(14, &minus), (9, &[9])], 1_000_000_007, Some(7)),
            (&[(14, &minus), (9, &[9])], 999_999_999, None),
            (&[(9, &[0])], u64::MAX, None),
        ];
        for (at, (options, ticks, expected)) in cases.into_iter().enumerate() {
            let mut file = order.section();
            file.extend(order.interface(1, 0, options));
            let broken_at = file.len() as u64;
            file.extend(order.packet(0, ticks, b"x"));
            let (packets, broken) = all(&file);
            match expected {
                Some(nanos) => assert_eq!(packets[0].nanos, Some(nanos), "case {at}"),
                None => assert_eq!(broken.unwrap().offset, broken_at, "case {at}"),
            }
        }
    }
}

#[test]
fn a_new_section_may_have_another_order_and_forgets_the_interfaces() {
    let mut file = LITTLE.section();
    file.extend(LITTLE.interface(1, 0, &[]));
    file.extend(LITTLE.packet(0, 1, b"first"));
    file.extend(BIG.section());
    let place = file.len() as u64;
    let with_interface = {
        let mut file = file.clone();
        file.extend(BIG.interface(101, 0, &[]));
        file.extend(BIG.packet(0, 2, b"second"));
        file
    };
    let (packets, broken) = all(&with_interface);
    assert!(broken.is_none(), "{broken:?}");
    assert_eq!(packets[0].link, LinkType::ETHERNET);
    assert_eq!(
        (packets[1].link, &packets[1].bytes[..]),
        (LinkType::RAW, &b"second"[..])
    );

    file.extend(BIG.packet(0, 2, b"second"));
    let broken = all(&file).1.unwrap();
    assert_eq!(
        broken.to_string(),
        format!(
            "capture: offset {place}: interface: value 0; allowed: below 0, the number of interfaces described before"
        )
    );
}

#[test]
fn a_simple_packet_has_the_interface_s_limit_and_no_time() {
    let mut file = LITTLE.section();
    file.extend(LITTLE.interface(101, 4, &[]));
    let mut body = LITTLE.u32(9).to_vec();
    body.extend(b"abcd");
    file.extend(LITTLE.block(3, &body));
    let (packets, broken) = all(&file);
    assert!(broken.is_none(), "{broken:?}");
    assert_eq!((packets[0].nanos, packets[0].wire_len), (None, 9));
    assert_eq!(packets[0].bytes, b"abcd");

    let mut file = LITTLE.section();
    file.extend(LITTLE.interface(101, 0, &[]));
    file.extend(LITTLE.block(3, &body));
    let broken = all(&file).1.unwrap().to_string();
    assert!(
        broken.contains("packet length: value 9; allowed: at most 4"),
        "{broken}"
    );
}

#[test]
fn each_broken_field_is_named_with_its_offset() {
    let mut head = LITTLE.section();
    head.extend(LITTLE.interface(1, 0, &[]));
    let place = head.len();
    let packet = LITTLE.packet(0, 1, b"12345678");
    let broken = |change: &Change<'_>| {
        let mut file = head.clone();
        file.extend(&packet);
        change(&mut file);
        all(&file).1.unwrap()
    };
    let set = |at: usize, value: u32| {
        move |file: &mut Vec<u8>| file[at..at + 4].copy_from_slice(&value.to_le_bytes())
    };
    let cases: [(&Change<'_>, u64, &str); 12] = [
        (&set(place + 4, 41), place as u64, "block length: value 41;"),
        (&set(place + 4, 28), place as u64, "block length: value 28;"),
        (&set(place + 4, 0), place as u64, "block length: value 0;"),
        (
            &set(place + 4, u32::MAX - 3),
            place as u64,
            "from 32 to 16777216",
        ),
        (
            &set(place + 36, 36),
            place as u64,
            "block length at the end: value 36; allowed: 40",
        ),
        (
            &set(place + 8, 7),
            place as u64,
            "interface: value 7; allowed: below 1",
        ),
        (
            &set(place + 20, 13),
            place as u64,
            "block contents: value 6;",
        ),
        (
            &set(place + 20, u32::MAX),
            place as u64,
            "block contents: value 6;",
        ),
        (
            &set(place, 2),
            place as u64,
            "an obsolete packet block is not supported; remedy: convert",
        ),
        (&set(8, 7), 0, "byte-order magic: value 7;"),
        (&set(12, 2), 0, "pcapng 2.0 is not supported"),
        (
            &set(28 + 4, 16),
            28,
            "block length: value 16; allowed: a multiple of 4 from 20",
        ),
    ];
    for (at, (change, offset, text)) in cases.into_iter().enumerate() {
        let error = broken(change);
        assert_eq!(error.offset, offset, "case {at}: {error}");
        assert!(error.to_string().contains(text), "case {at}: {error}");
    }

    let length = LITTLE.pcap(MICRO, 1, &[(0, 0, b"x")]);
    let mut huge = length.clone();
    huge[24 + 8..24 + 12].copy_from_slice(&(MAX_BLOCK + 1).to_le_bytes());
    let error = all(&huge).1.unwrap().to_string();
    assert!(
        error.starts_with("capture: offset 24: captured length: value 16777217;"),
        "{error}"
    );
    let error = all(&LITTLE.pcap(MICRO, 1, &[(0, 1_000_000, b"x")]))
        .1
        .unwrap();
    assert!(
        error.to_string().contains("allowed: below 1000000"),
        "{error}"
    );
    let error = all(&LITTLE.pcap(NANO, 1, &[(0, 1_000_000_000, b"x")]))
        .1
        .unwrap();
    assert!(
        error.to_string().contains("allowed: below 1000000000"),
        "{error}"
    );
}

#[test]
fn options_that_hide_the_unit_are_refused() {
    for (options, text) in [
        // A length that reaches beyond the block, before the unit of time.
        (
            &[9, 0, 200, 0, 9, 0, 0, 0][..],
            "length of the options: value 0; allowed: 8",
        ),
        (
            &[9, 0, 2, 0, 9, 0, 0, 0],
            "if_tsresol length: value 2; allowed: 1",
        ),
        (
            &[14, 0, 4, 0, 9, 0, 0, 0],
            "if_tsoffset length: value 4; allowed: 8",
        ),
        (&[9, 0, 1, 0, 39, 0, 0, 0], "if_tsresol: value 39; allowed"),
    ] {
        let mut body = LITTLE.u32s(&[1, 0]);
        body.extend(options);
        let mut file = LITTLE.section();
        let place = file.len();
        file.extend(LITTLE.block(1, &body));
        let error = all(&file).1.unwrap();
        assert_eq!(error.offset, place as u64, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn what_is_no_capture_is_told_apart() {
    for (file, text) in [
        (
            &b"GIF89a"[..],
            "not a pcap or pcapng file: it begins with 47 49 46 38",
        ),
        (&[0x1f, 0x8b, 8, 0], "gunzip it first"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "unzstd it first"),
        (
            &[0x34, 0xcd, 0xb2, 0xa1],
            "the modified form of pcap is not supported",
        ),
        (
            b"",
            "the file ends after 0 of at least 4 octets of a file header",
        ),
    ] {
        let error = all(file).1.unwrap();
        assert_eq!(error.offset, 0);
        assert!(error.to_string().contains(text), "{error}");
    }
    let mut old = LITTLE.pcap(MICRO, 1, &[]);
    old[6] = 2;
    assert!(
        all(&old)
            .1
            .unwrap()
            .to_string()
            .contains("pcap 2.2 is not supported")
    );
    let error = Error::from(Reader::open("/nonexistent/file.pcap").err().unwrap());
    assert_eq!(error.errno().map(lockgate::Errno::raw), Some(2));
    let error = Error::from(all(b"GIF89a").1.unwrap());
    assert_eq!(*error.kind(), ErrorKind::Syntax);
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

#[test]
fn a_file_with_any_octets_changed_never_panics_and_comes_to_an_end() {
    let seed = std::process::id().into();
    println!("seed {seed}");
    let mut random = Random(seed);
    for (name, file, _) in forms() {
        for round in 0..1_000 {
            let mut bad = file.clone();
            for _ in 0..=random.below(4) {
                let at = random.below(bad.len());
                bad[at] = [0, 1, 4, 0x7f, 0x80, 0xff][random.below(6)];
            }
            let (packets, broken) = all(&bad);
            assert!(
                packets.len() <= file.len() / 16,
                "{name} seed {seed} round {round}"
            );
            if let Some(broken) = broken {
                assert!(
                    broken.offset <= bad.len() as u64,
                    "{name} seed {seed} round {round}"
                );
            }
        }
    }
}

#[test]
fn due_times_follow_the_capture_and_never_go_back() {
    let times = [
        Some(10_000),
        Some(13_000),
        None,
        Some(12_000),
        Some(9_000),
        Some(20_000),
    ];
    for (pace, expected, backwards) in [
        (Pace::Original, [0, 3_000, 3_000, 3_000, 3_000, 10_000], 2),
        (Pace::Factor(2.0), [0, 1_500, 1_500, 1_500, 1_500, 5_000], 2),
        (
            Pace::Factor(0.5),
            [0, 6_000, 6_000, 6_000, 6_000, 20_000],
            2,
        ),
        (Pace::FlatOut, [0; 6], 0),
    ] {
        let mut schedule = Schedule::new(pace).unwrap();
        let due = times.map(|nanos| schedule.due(nanos));
        assert_eq!(due, expected.map(Duration::from_nanos), "{pace:?}");
        assert_eq!(
            (schedule.backwards(), schedule.untimed()),
            (backwards, 1),
            "{pace:?}"
        );
    }
    for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = Schedule::new(Pace::Factor(factor)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("allowed: a finite number above 0"),
            "{error}"
        );
    }
    let mut schedule = Schedule::new(Pace::Factor(1e-300)).unwrap();
    schedule.due(Some(0));
    assert_eq!(schedule.due(Some(u64::MAX)), Duration::MAX);
}

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Every link type that is read, with the same packet behind it.
fn linked(source: &str, destination: &str) -> Vec<(LinkType, Vec<u8>)> {
    let builder = Builder::udp(address(source), address(destination)).unwrap();
    let write = |builder: Builder| {
        let mut bytes = vec![0; builder.len(4)];
        builder.write(b"tick", &mut bytes).unwrap();
        bytes
    };
    let behind = |len: usize| [vec![0xaa; len], write(builder)].concat();
    let mac = |last| MacAddress::new([2, 0, 0, 0, 0, last]);
    let tagged = VlanTags::single(VlanTag::customer(42));
    vec![
        (LinkType::RAW, write(builder)),
        (LinkType::NULL, behind(4)),
        (LinkType::LINUX_SLL, behind(16)),
        (LinkType::LINUX_SLL2, behind(20)),
        (
            LinkType::ETHERNET,
            write(builder.ethernet(mac(1), mac(2), VlanTags::NONE)),
        ),
        (
            LinkType::ETHERNET,
            write(builder.ethernet(mac(1), mac(2), tagged)),
        ),
    ]
}

#[test]
fn readdressing_changes_addresses_mends_sums_and_leaves_the_rest() {
    for (source, destination, new) in [
        ("192.0.2.7:4000", "239.1.2.3:5000", "239.9.8.7:6000"),
        ("[fd00::7]:4000", "[ff15::1]:5000", "[ff15::99]:6000"),
    ] {
        for (link, bytes) in linked(source, destination) {
            let found = Datagram::find(link, &bytes).unwrap();
            assert_eq!(found.source, address(source));
            assert_eq!(found.destination, address(destination));
            assert_eq!(found.payload, b"tick");

            let mut changed = bytes.clone();
            let readdress = Readdress {
                destination: Some(address(new)),
                ..Readdress::default()
            };
            readdress.apply(link, &mut changed).unwrap();
            // The default policy refuses wrong sums.
            let strict = Policy::default();
            let frame = match link.header_len() {
                Some(start) => parse_ip(&changed[start..], &strict).unwrap(),
                None => parse(&changed, &strict).unwrap(),
            };
            assert_eq!(frame.destination(), address(new), "{link}");
            assert_eq!(frame.source(), address(source), "{link}");
            if link == LinkType::ETHERNET {
                let mac: [u8; 6] = if new.starts_with('[') {
                    [0x33, 0x33, 0, 0, 0, 0x99]
                } else {
                    [1, 0, 0x5e, 9, 8, 7]
                };
                assert_eq!(changed[..6], mac);
                assert_eq!(changed[6..12], bytes[6..12]);
            }
            let differing = bytes.iter().zip(&changed).filter(|(a, b)| a != b).count();
            assert!(
                differing <= 6 + 16 + 2 + 4,
                "{link}: {differing} octets differ"
            );
        }
    }
}

#[test]
fn a_sum_left_to_the_device_is_filled_in_and_a_wrong_one_stays_wrong() {
    let (link, bytes) = linked("192.0.2.7:4000", "239.1.2.3:5000").remove(0);
    let readdress = Readdress {
        source: Some(address("198.51.100.1:7")),
        ..Readdress::default()
    };
    // The pseudo-header's sum alone: addresses, protocol 17, length 12.
    let words = [0xc000, 0x0207, 0xef01, 0x0203, 17, 12];
    let sum: u32 = words.iter().sum();
    let partial = (((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes();
    let mut left = bytes.clone();
    left[26..28].copy_from_slice(&partial);
    readdress.apply(link, &mut left).unwrap();
    assert!(parse_ip(&left, &Policy::default()).is_ok(), "filled in");

    let mut wrong = bytes;
    wrong[27] ^= 1;
    readdress.apply(link, &mut wrong).unwrap();
    assert!(parse_ip(&wrong, &Policy::default()).is_err(), "still wrong");
}

#[test]
fn what_cannot_be_readdressed_is_left_as_it_was() {
    let (link, bytes) = linked("192.0.2.7:4000", "239.1.2.3:5000").remove(0);
    let readdress = Readdress {
        destination: Some(address("[ff15::1]:1")),
        ..Readdress::default()
    };
    let mut same = bytes.clone();
    let error = readdress.apply(link, &mut same).unwrap_err();
    assert!(matches!(error, ReaddressError::Rewrite(_)), "{error}");
    assert_eq!(same, bytes);
    for cut in 0..bytes.len() {
        let error = Datagram::find(link, &bytes[..cut]).unwrap_err();
        assert!(matches!(error, ReaddressError::NotUdp(_)), "{cut}: {error}");
    }
    let error = Datagram::find(LinkType(127), &bytes).unwrap_err();
    assert!(
        error.to_string().starts_with("link type 127 is not read;"),
        "{error}"
    );
}
