//! The program, loaded and run by the kernel over frames of every kind, against the selection that it was made from.
//!
//! Without the right to load programs each test says so and ends.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use lockgate::receive::frame::{Builder, Check, Policy, VlanTag, VlanTags, parse};
use lockgate::receive::mac::MacAddress;
use lockgate::receive::{Group, ReceiverConfig};

use super::super::sys::{self, MapKind};
use super::*;

/// What the program answers for a frame that it would redirect: in the tests' map no queue has a socket.
const TAKEN: u32 = 1;
const PASSED: u32 = 2;

struct Loaded {
    program: OwnedFd,
    counter: OwnedFd,
    _sockets: OwnedFd,
}

/// Loads the program of a configuration; nothing without the right to.
fn load(config: &ReceiverConfig) -> Option<Loaded> {
    let sockets = match sys::create_map(MapKind::Sockets, "lockgate_test", 1) {
        Ok(sockets) => sockets,
        Err(errno) => {
            let line = format!("SKIP xdp: programs can't be loaded: {errno}");
            // The runner captures what the print macros write; this goes past it.
            let _ = writeln!(std::io::stderr(), "{line}");
            if let Some(path) =
                std::env::var_os("LOCKGATE_SKIP_LOG").filter(|path| !path.is_empty())
            {
                let log = std::fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(path);
                log.unwrap()
                    .write_all(format!("{line}\n").as_bytes())
                    .unwrap();
            }
            let required = std::env::var("LOCKGATE_REQUIRE").unwrap_or_default();
            assert!(
                !required
                    .split(',')
                    .any(|one| matches!(one.trim(), "xdp" | "all")),
                "xdp is required: {errno}"
            );
            return None;
        }
    };
    let counter = sys::create_map(MapKind::Counters, "lockgate_test", 1).unwrap();
    let maps = Maps {
        sockets: sockets.as_raw_fd(),
        counter: counter.as_raw_fd(),
    };
    let program = make_with(&Selection::of(config), maps, TAKEN as i32).unwrap();
    let mut log = vec![0; 1 << 20];
    let loaded = sys::load(&program, "lockgate_test", Some(&mut log));
    let program = loaded.unwrap_or_else(|errno| {
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(0);
        let words = String::from_utf8_lossy(&log[..end]);
        panic!("{errno}: {}", &words[words.len().saturating_sub(2000)..])
    });
    Some(Loaded {
        program,
        counter,
        _sockets: sockets,
    })
}

impl Loaded {
    fn takes(&self, frame: &[u8]) -> bool {
        match sys::run(self.program.as_fd(), frame).unwrap() {
            TAKEN => true,
            PASSED => false,
            other => panic!("answer {other}"),
        }
    }

    fn fragments(&self) -> u64 {
        sys::counter(self.counter.as_fd()).unwrap()
    }
}

fn frame(from: &str, to: &str, tags: VlanTags) -> Vec<u8> {
    let builder = Builder::udp(from.parse().unwrap(), to.parse().unwrap())
        .unwrap()
        .ethernet(MacAddress::ZERO, MacAddress::BROADCAST, tags);
    let mut bytes = vec![0; builder.len(4)];
    builder.write(b"tick", &mut bytes).unwrap();
    bytes
}

fn tagged(tag: u16) -> VlanTags {
    VlanTags::single(VlanTag::customer(tag))
}

fn config() -> ReceiverConfig {
    let mut config = ReceiverConfig::multicast(
        "lo",
        [
            "239.1.1.1:5000",
            "239.1.1.1:5001",
            "[ff15::1]:5000",
            "[ff18::1]:6000",
        ]
        .map(|one| one.parse().unwrap()),
    );
    for (group, sources) in [
        ("239.1.1.2:5000", ["10.0.0.1", "10.0.0.2"]),
        ("[ff35::2]:5000", ["fd00::1", "fd00::7"]),
    ] {
        let group: Group = group.parse().unwrap();
        config
            .groups
            .push(group.from_sources(sources.map(|one| one.parse().unwrap())));
    }
    config
}

#[test]
fn exactly_what_is_named_is_redirected() {
    let Some(loaded) = load(&config()) else {
        return;
    };
    for (from, to, taken) in [
        ("10.0.0.9:1", "239.1.1.1:5000", true),
        ("10.0.0.9:1", "239.1.1.1:5001", true),
        ("10.0.0.9:1", "239.1.1.1:5002", false),
        ("10.0.0.9:5000", "239.1.1.3:5000", false),
        ("10.0.0.1:1", "239.1.1.2:5000", true),
        ("10.0.0.3:1", "239.1.1.2:5000", false),
        ("[fd00::9]:1", "[ff15::1]:5000", true),
        ("[fd00::9]:1", "[ff15::1]:6000", false),
        ("[fd00::9]:1", "[ff18::1]:6000", true),
        ("[fd00::9]:1", "[ff19::1]:6000", false),
        ("[fd00::7]:1", "[ff35::2]:5000", true),
        ("[fd00::2]:1", "[ff35::2]:5000", false),
    ] {
        let two = VlanTags::double(VlanTag::service(8), VlanTag::customer(7));
        for tags in [VlanTags::NONE, tagged(7), two] {
            assert_eq!(
                loaded.takes(&frame(from, to, tags)),
                taken,
                "{from} to {to} {tags:?}"
            );
        }
    }
    assert_eq!(loaded.fragments(), 0);
}

#[test]
fn only_the_vlan_that_is_asked_for_is_redirected() {
    let mut config = config();
    config.vlan = Some(7);
    let Some(loaded) = load(&config) else { return };
    let with = |tags| loaded.takes(&frame("10.0.0.1:1", "239.1.1.1:5000", tags));
    assert!(!with(VlanTags::NONE) && !with(tagged(8)));
    // The priority is no part of it.
    assert!(with(tagged(7)) && with(tagged(0xe007)));
    let inner = VlanTags::double(VlanTag::service(8), VlanTag::customer(7));
    assert!(!with(inner));
}

#[test]
fn fragments_of_what_is_named_are_counted_and_passed_on() {
    let Some(loaded) = load(&config()) else {
        return;
    };
    let mut fragment = frame("10.0.0.1:1", "239.1.1.1:5000", VlanTags::NONE);
    fragment[20] = 0x20;
    assert!(!loaded.takes(&fragment));
    (fragment[20], fragment[21]) = (0, 9);
    assert!(!loaded.takes(&fragment));
    assert_eq!(loaded.fragments(), 2);
    let mut other = frame("10.0.0.1:1", "239.1.1.9:5000", VlanTags::NONE);
    other[20] = 0x20;
    assert!(!loaded.takes(&other));
    assert_eq!(loaded.fragments(), 2, "not to us");
    // IPv6: an atomic one is whole, another one is not.
    let v6 = frame("[fd00::1]:1", "[ff15::1]:5000", VlanTags::NONE);
    for (field, taken, counted) in [(0, true, 2), (1, false, 3), (8, false, 4)] {
        let mut bytes = v6.clone();
        bytes[20] = 44;
        bytes.splice(54..54, [17, 0, 0, field, 0, 0, 0, 1]);
        assert_eq!(loaded.takes(&bytes), taken, "{field}");
        assert_eq!(loaded.fragments(), counted, "{field}");
    }
}

#[test]
fn as_many_extension_headers_are_walked_as_the_parser_walks() {
    let Some(loaded) = load(&config()) else {
        return;
    };
    for count in 0..=EXTENSIONS + 1 {
        let mut bytes = frame("[fd00::1]:1", "[ff15::1]:5000", VlanTags::NONE);
        let mut next = 17;
        for at in 0..count {
            // Destination options of 8 and 16 octets, and an authentication header.
            let header: &[u8] = match at % 3 {
                0 => &[next, 0, 1, 4, 0, 0, 0, 0],
                1 => &[next, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
                _ => &[next, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0],
            };
            bytes.splice(54..54, header.iter().copied());
            next = if at % 3 == 2 { 51 } else { 60 };
        }
        bytes[20] = next;
        let len = (bytes.len() - 54) as u16;
        bytes[18..20].copy_from_slice(&len.to_be_bytes());
        let parsed = parse(&bytes, &Policy::default()).is_ok();
        assert_eq!(parsed, count <= EXTENSIONS, "{count}");
        assert_eq!(loaded.takes(&bytes), parsed, "{count} headers");
    }
}

#[test]
fn hundreds_of_groups_are_told_apart_and_the_verifier_agrees() {
    let groups: Vec<Group> = (0..600_u16)
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            let address: IpAddr = if number % 3 == 0 {
                Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, number, 7 * number).into()
            } else {
                std::net::Ipv4Addr::new(239, 9, high, low).into()
            };
            Group::new(address, 5000 + number)
        })
        .collect();
    let Some(loaded) = load(&ReceiverConfig::multicast("lo", groups.clone())) else {
        return;
    };
    for group in &groups {
        let from = if group.address.is_ipv4() {
            "10.0.0.1:1"
        } else {
            "[fd00::1]:1"
        };
        assert!(
            loaded.takes(&frame(from, &group.to_string(), VlanTags::NONE)),
            "{group}"
        );
        let other = Group::new(group.address, group.port + 1).to_string();
        assert!(
            !loaded.takes(&frame(from, &other, VlanTags::NONE)),
            "{other}"
        );
    }
}

/// Random frames with random faults: what the parser takes and the selection names is redirected, and of what is not UDP to a
/// wanted address and port nothing is.
#[test]
fn the_program_and_the_receiver_agree() {
    let config = config();
    let Some(loaded) = load(&config) else { return };
    let seed = std::env::var("LOCKGATE_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0x5eed_0004_u64);
    println!("LOCKGATE_SEED={seed}");
    let mut state = seed;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let selection = Selection::of(&config);
    let policy = Policy {
        ip: Check::Trust,
        udp: Check::Trust,
        ipv6_zero: lockgate::receive::frame::Ipv6Zero::Accept,
        ..Policy::default()
    };
    let (mut taken, mut passed) = (0, 0);
    for _ in 0..10_000 {
        let (from, to) = [
            ("10.0.0.1:1", "239.1.1.1:5000"),
            ("10.0.0.1:1", "239.1.1.2:5000"),
            ("[fd00::1]:1", "[ff15::1]:5000"),
        ][(random() % 3) as usize];
        let tags = match random() % 4 {
            0 => tagged(7),
            1 => VlanTags::double(VlanTag::service(8), VlanTag::customer(7)),
            _ => VlanTags::NONE,
        };
        let mut bytes = frame(from, to, tags);
        for _ in 0..random() % 3 {
            let at = (random() as usize) % bytes.len();
            bytes[at] = random() as u8;
        }
        let redirected = loaded.takes(&bytes);
        match parse(&bytes, &policy) {
            Ok(one) if selection.takes(&one, one.vlan.outer()) => {
                assert!(redirected, "{bytes:02x?}");
                taken += 1;
            }
            Ok(_) => {
                assert!(!redirected, "not named: {bytes:02x?}");
                passed += 1;
            }
            Err(_) => {}
        }
    }
    assert!(taken > 3_000 && passed > 500, "{taken} {passed}");
}
