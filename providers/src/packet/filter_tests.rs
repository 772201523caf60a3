//! The filter, run by a small machine of the test's own over frames of every kind, against the selection that it was made from.

use std::net::Ipv4Addr;

use lockgate::receive::frame::{Builder, Policy, Reject, VlanTag, VlanTags, parse};
use lockgate::receive::mac::MacAddress;
use lockgate::receive::{Group, ReceiverConfig};

use super::*;

/// What the kernel knows about a frame beside its bytes.
#[derive(Clone, Copy, Default)]
struct Beside {
    kind: u32,
    tag: Option<u16>,
}

/// Runs a program as the kernel does: a load outside of the frame drops it.
fn run(program: &[SockFilter], frame: &[u8], beside: Beside) -> u32 {
    // `SockFilter` shows none of its fields; its text does.
    let (mut a, mut x, mut at, mut memory) = (0_u32, 0_u32, 0_usize, [0_u32; 16]);
    let load = |at: usize, len: usize| -> Option<u32> {
        let bytes = frame.get(at..at.checked_add(len)?)?;
        Some(
            bytes
                .iter()
                .fold(0, |sum, byte| sum << 8 | u32::from(*byte)),
        )
    };
    loop {
        let (code, yes, no, value) = fields(&program[at]);
        at += 1;
        let loaded = match code {
            RETURN => return value,
            LOAD_WORD if value == PACKET_TYPE => Some(beside.kind),
            LOAD_WORD if value == VLAN_TAG_PRESENT => Some(u32::from(beside.tag.is_some())),
            LOAD_WORD if value == VLAN_TAG => Some(beside.tag.unwrap_or_default().into()),
            LOAD_WORD => load(value as usize, 4),
            LOAD_HALF => load(value as usize, 2),
            LOAD_WORD_INDEXED => load(x as usize + value as usize, 4),
            LOAD_HALF_INDEXED => load(x as usize + value as usize, 2),
            LOAD_BYTE_INDEXED => load(x as usize + value as usize, 1),
            LOAD_VALUE => Some(value),
            LOAD => Some(memory[value as usize]),
            AND => Some(a & value),
            SHIFT_LEFT => Some(a << value),
            ADD_INDEX => Some(a + x),
            INDEX | LOAD_INDEX | TO_INDEX => {
                x = match code {
                    INDEX => value,
                    TO_INDEX => a,
                    _ => memory[value as usize],
                };
                continue;
            }
            STORE | STORE_INDEX => {
                memory[value as usize] = if code == STORE { a } else { x };
                continue;
            }
            JUMP => {
                at += value as usize;
                continue;
            }
            _ => {
                let holds = match code {
                    EQUAL => a == value,
                    GREATER => a > value,
                    NOT_BELOW => a >= value,
                    ANY_BIT => a & value != 0,
                    other => panic!("no such instruction: {other:#x}"),
                };
                at += usize::from(if holds { yes } else { no });
                continue;
            }
        };
        match loaded {
            Some(loaded) => a = loaded,
            None => return 0,
        }
    }
}

fn fields(one: &SockFilter) -> (u16, u8, u8, u32) {
    super::super::sys::filter_fields(one)
}

fn config(groups: &[&str]) -> ReceiverConfig {
    ReceiverConfig::multicast("lo", groups.iter().map(|one| one.parse().unwrap()))
}

/// A frame, with the outer tag taken out as the kernel does.
fn frame(from: &str, to: &str, tags: VlanTags) -> (Vec<u8>, Beside) {
    let builder = Builder::udp(from.parse().unwrap(), to.parse().unwrap())
        .unwrap()
        .ethernet(MacAddress::ZERO, MacAddress::BROADCAST, tags);
    let mut bytes = vec![0; builder.len(4)];
    builder.write(b"tick", &mut bytes).unwrap();
    let mut beside = Beside { kind: 2, tag: None };
    if let Some(tag) = tags.outer() {
        bytes.drain(12..16);
        beside.tag = Some(tag.tci);
    }
    (bytes, beside)
}

fn passes(config: &ReceiverConfig, frame: &(Vec<u8>, Beside)) -> bool {
    let filter = make(&Selection::of(config), 2048, false);
    match run(&filter.program, &frame.0, frame.1) {
        0 => false,
        2048 => true,
        other => panic!("{other} bytes, and none or 2048 were asked for"),
    }
}

#[test]
fn what_is_named_passes_and_nothing_else() {
    let sources = |text: &str, sources: &[&str]| {
        let group: Group = text.parse().unwrap();
        group.from_sources(sources.iter().map(|one| one.parse().unwrap()))
    };
    let mut config = config(&["239.1.1.1:5000", "239.1.1.1:5001", "[ff15::1]:5000"]);
    config
        .groups
        .push(sources("239.1.1.2:5000", &["10.0.0.1", "10.0.0.2"]));
    config.groups.push(sources("[ff35::2]:5000", &["fd00::1"]));
    // The same last 32 bits as the first group of IPv6.
    config.groups.push("[ff18::1]:6000".parse().unwrap());
    for (from, to, expected) in [
        ("10.0.0.9:1", "239.1.1.1:5000", true),
        ("10.0.0.9:1", "239.1.1.1:5001", true),
        ("10.0.0.9:1", "239.1.1.1:5002", false),
        ("10.0.0.9:5000", "239.1.1.3:5000", false),
        ("10.0.0.1:1", "239.1.1.2:5000", true),
        ("10.0.0.2:1", "239.1.1.2:5000", true),
        ("10.0.0.3:1", "239.1.1.2:5000", false),
        ("[fd00::9]:1", "[ff15::1]:5000", true),
        ("[fd00::9]:1", "[ff15::1]:6000", false),
        ("[fd00::9]:1", "[ff18::1]:6000", true),
        ("[fd00::9]:1", "[ff19::1]:6000", false),
        ("[fd00::1]:1", "[ff35::2]:5000", true),
        ("[fd00::2]:1", "[ff35::2]:5000", false),
    ] {
        for tags in [
            VlanTags::NONE,
            VlanTags::single(VlanTag::customer(7)),
            VlanTags::double(VlanTag::service(8), VlanTag::customer(7)),
        ] {
            let one = frame(from, to, tags);
            assert_eq!(passes(&config, &one), expected, "{from} to {to} {tags:?}");
        }
    }
}

#[test]
fn only_the_vlan_that_is_asked_for_passes() {
    let mut config = config(&["239.1.1.1:5000"]);
    config.vlan = Some(7);
    let with = |tags| frame("10.0.0.1:1", "239.1.1.1:5000", tags);
    assert!(!passes(&config, &with(VlanTags::NONE)));
    // The priority is no part of it.
    let priority = VlanTag::customer(0xe007);
    assert!(passes(&config, &with(VlanTags::single(priority))));
    assert!(!passes(
        &config,
        &with(VlanTags::single(VlanTag::customer(8)))
    ));
    let inner = VlanTags::double(VlanTag::service(8), VlanTag::customer(7));
    assert!(!passes(&config, &with(inner)));
}

#[test]
fn frames_that_leave_or_are_for_others_do_not_pass() {
    let config = config(&["239.1.1.1:5000"]);
    let (bytes, _) = frame("10.0.0.1:1", "239.1.1.1:5000", VlanTags::NONE);
    for (kind, expected) in [
        (0, true),
        (1, true),
        (2, true),
        (3, false),
        (4, false),
        (6, false),
    ] {
        let beside = Beside { kind, tag: None };
        assert_eq!(
            passes(&config, &(bytes.clone(), beside)),
            expected,
            "{kind}"
        );
    }
    let promiscuous = make(&Selection::of(&config), 2048, true);
    for (kind, expected) in [(3, 2048), (4, 0)] {
        let beside = Beside { kind, tag: None };
        assert_eq!(
            run(&promiscuous.program, &bytes, beside),
            expected,
            "{kind}"
        );
    }
}

/// What the receiver counts as lost has to get there.
#[test]
fn fragments_and_broken_headers_to_a_wanted_address_pass() {
    let config = config(&["239.1.1.1:5000", "[ff15::1]:5000"]);
    let (whole, beside) = frame("10.0.0.1:1", "239.1.1.1:5000", VlanTags::NONE);
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = whole.clone();
        change(&mut bytes);
        passes(&config, &(bytes, beside))
    };
    // More fragments; a later fragment without ports; a header length below five; a wrong sum.
    assert!(changed(&|bytes| bytes[20] = 0x20));
    assert!(changed(&|bytes| {
        bytes[21] = 9;
        bytes.truncate(14 + 20 + 2);
    }));
    assert!(changed(&|bytes| bytes[14] = 0x44));
    assert!(changed(&|bytes| bytes[24] ^= 0xff));
    // IPv4 options move the ports.
    assert!(changed(&|bytes| {
        bytes[14] = 0x46;
        bytes.splice(34..34, [1, 1, 1, 1]);
    }));
    assert!(!changed(&|bytes| bytes[23] = 6), "TCP");
    assert!(
        !changed(&|bytes| bytes.truncate(33)),
        "a runt without addresses"
    );
    let (mut v6, beside) = frame("[fd00::1]:1", "[ff15::1]:5000", VlanTags::NONE);
    for (next, expected) in [
        (17, true),
        (0, true),
        (43, true),
        (44, true),
        (51, true),
        (60, true),
        (6, false),
        (58, false),
    ] {
        v6[20] = next;
        assert_eq!(
            passes(&config, &(v6.clone(), beside)),
            expected,
            "next header {next}"
        );
    }
}

/// Groups that decide alike cost little more than a comparison each.
#[test]
fn a_thousand_groups_of_one_port_fit() {
    let group = |number: u32| Group::new(Ipv4Addr::from_bits(0xef00_0000 + number).into(), 5000);
    let config = ReceiverConfig::multicast("lo", (0..1_000).map(group));
    let filter = make(&Selection::of(&config), 2048, false);
    assert_eq!(filter.depth, "addresses, ports and sources");
    assert!(filter.program.len() < 3_000, "{}", filter.program.len());
}

/// Hundreds of groups need long jumps, and each still finds its own.
#[test]
fn many_groups_are_told_apart() {
    let groups: Vec<Group> = (0..300_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            let address = if number % 3 == 0 {
                Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, number, 7 * number).into()
            } else {
                Ipv4Addr::new(239, 9, high, low).into()
            };
            Group::new(address, 5000 + number)
        })
        .collect();
    let config = ReceiverConfig::multicast("lo", groups.clone());
    let filter = make(&Selection::of(&config), 2048, false);
    assert_eq!(filter.depth, "addresses, ports and sources");
    for group in &groups {
        let from = if group.address.is_ipv4() {
            "10.0.0.1:1"
        } else {
            "[fd00::1]:1"
        };
        let (bytes, beside) = frame(from, &group.to_string(), VlanTags::NONE);
        assert_eq!(run(&filter.program, &bytes, beside), 2048, "{group}");
        let other = Group::new(group.address, group.port + 1).to_string();
        let (bytes, beside) = frame(from, &other, VlanTags::NONE);
        assert_eq!(run(&filter.program, &bytes, beside), 0, "{other}");
    }
}

/// More than the kernel's program holds: the filter gets coarser, says so, and never refuses what is named.
#[test]
fn too_many_groups_make_a_coarser_filter() {
    let group = |number: u32| {
        let address = Ipv4Addr::from_bits(0xef00_0000 + number * 77);
        let sources = (1..9).map(|last| match last {
            3 => Ipv4Addr::new(10, 0, 0, 3).into(),
            other => Ipv4Addr::from_bits(0x0a01_0000 + 10 * number + other).into(),
        });
        Group::new(address.into(), 5000).from_sources(sources)
    };
    for (count, depth) in [(1_500, "addresses"), (4_000, "protocol")] {
        let config = ReceiverConfig::multicast("lo", (0..count).map(group));
        let filter = make(&Selection::of(&config), 2048, false);
        assert_eq!(filter.depth, depth, "{count} groups");
        assert!(filter.program.len() <= PROGRAM_MAX);
        for number in [0, 1, count / 2, count - 1] {
            let to = group(number).to_string();
            let (bytes, beside) = frame("10.0.0.3:1", &to, VlanTags::NONE);
            assert_eq!(run(&filter.program, &bytes, beside), 2048, "{to}");
        }
    }
}

/// Random frames with random faults: whatever the parser takes and the selection names must have passed the filter.
#[test]
fn the_filter_never_refuses_what_the_receiver_would_take() {
    let seed = std::env::var("LOCKGATE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0x5eed_0002_u64);
    println!("LOCKGATE_SEED={seed}");
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let config = config(&["239.1.1.1:5000", "239.1.1.2:5001", "[ff15::1]:5000"]);
    let selection = Selection::of(&config);
    let filter = make(&selection, 2048, false);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..20_000 {
        let (from, to) = [
            ("10.0.0.1:1", "239.1.1.1:5000"),
            ("10.0.0.1:1", "239.1.1.2:5001"),
            ("[fd00::1]:1", "[ff15::1]:5000"),
        ][(random() % 3) as usize];
        let tags = match random() % 4 {
            0 => VlanTags::single(VlanTag::customer(7)),
            1 => VlanTags::double(VlanTag::service(8), VlanTag::customer(7)),
            _ => VlanTags::NONE,
        };
        let (mut bytes, beside) = frame(from, to, tags);
        for _ in 0..random() % 3 {
            let at = (random() as usize) % bytes.len();
            bytes[at] = random() as u8;
        }
        let policy = Policy {
            ip: lockgate::receive::frame::Check::Trust,
            udp: lockgate::receive::frame::Check::Trust,
            ..Policy::default()
        };
        let passed = run(&filter.program, &bytes, beside) != 0;
        match parse(&bytes, &policy) {
            Ok(one) if selection.takes(&one, None) => {
                assert!(passed, "{bytes:02x?} {:?}", beside.tag);
                taken += 1;
            }
            Err(Reject::NotIp { .. } | Reject::NotUdp { .. }) => refused += 1,
            _ => {}
        }
    }
    assert!(taken > 5_000 && refused > 100, "{taken} {refused}");
}
