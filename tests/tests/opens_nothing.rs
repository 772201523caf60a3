//! Invariant 1: linking provider crates and building a registry opens nothing. No new descriptor, no new mapping of a file.
//!
//! The one test of this binary, so that nothing else in the process opens anything meanwhile.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lockgate::clock::SystemClock;
use lockgate::fault::Plan;
use lockgate::receive::{ConfigFaults, Receiver, ReceiverConfig, ReceiverSpec};
use lockgate::registry::{Kind, Registry, Unavailable, linked};
use lockgate_accel as _;
use lockgate_providers::loopback::Network;

/// Every descriptor with what it is open on, and every file that is mapped.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    descriptors: BTreeSet<(PathBuf, PathBuf)>,
    mapped: BTreeSet<PathBuf>,
}

impl Holdings {
    fn now() -> Self {
        let folder = Path::new("/proc/self/fd");
        let descriptors = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            // The listing's own descriptor is closed again by now.
            .filter_map(|path| Some((path.clone(), fs::read_link(&path).ok()?)))
            .collect();
        let mapped = fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .filter_map(|line| Some(PathBuf::from(&line[line.find('/')?..])))
            .collect();
        Self {
            descriptors,
            mapped,
        }
    }
}

/// What the C library and the compiler's runtime consist of; a program that links providers maps itself and these.
const RUNTIME: [&str; 4] = ["ld-", "libc.", "libgcc_s.", "libm."];

#[test]
fn linking_and_registering_and_describing_opens_nothing() {
    let before = Holdings::now();
    let program = std::env::current_exe().unwrap();
    for file in &before.mapped {
        let name = file.file_name().unwrap().to_string_lossy();
        assert!(
            *file == program || RUNTIME.iter().any(|known| name.starts_with(known)),
            "linking the providers mapped {}",
            file.display()
        );
    }

    let mut by_name = Registry::new();
    by_name.expect_linked(&["loopback", "udp"]).unwrap();
    for entry in linked() {
        by_name.register_linked(entry.name).unwrap();
    }
    let mut by_hand = Registry::new();
    let network = Network::new(Arc::new(SystemClock::new()), Plan::quiet());
    by_hand.register(network.factory()).unwrap();
    by_hand
        .register(lockgate_providers::udp::factory())
        .unwrap();
    by_hand.register(network.factory()).unwrap_err();
    by_hand.declare_known(
        "absent",
        &[Kind::Receiver],
        Unavailable::NotBuiltIn {
            package: "lockgate-accel".into(),
            feature: "absent".into(),
        },
    );

    let good = ReceiverConfig::multicast("lo", ["239.7.7.7:47000".parse().unwrap()]);
    let bad = ReceiverConfig {
        ring: 0,
        ..good.clone()
    };
    let mut described = 0;
    for registry in [&by_name, &by_hand] {
        assert!(!format!("{registry:?}").is_empty());
        assert!(!registry.candidates().is_empty());
        for description in registry.descriptions() {
            let text = serde_json::to_string(description).unwrap();
            assert!(text.contains(&*description.name), "{text}");
            described += 1;
            registry.open_receiver(&description.name, &bad).unwrap_err();
        }
        registry.open_receiver("", &good).unwrap_err();
        registry.open_receiver("absent", &good).unwrap_err();
        let spec = ReceiverSpec {
            provider: None,
            receive: good.clone(),
        };
        registry.open_receiver_spec(&spec).unwrap_err();
    }
    for factory in [network.factory(), lockgate_providers::udp::factory()] {
        let mut faults = ConfigFaults::new();
        factory.receiver().unwrap().validate(&good, &mut faults);
        let _ = factory.availability();
    }
    Receiver::open(&good).unwrap_err();
    assert!(described >= 4, "{described}");

    assert_eq!(Holdings::now(), before);
    // The comparison would see an open: this one is asked for by name.
    let open = by_name.open_receiver("udp", &good).unwrap();
    assert_ne!(Holdings::now(), before);
    drop(open);
    assert_eq!(Holdings::now(), before);
}
