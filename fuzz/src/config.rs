//! What must hold of the readers of configurations and fault plans for any text at all.
//!
//! Promises: `check` panics when something does not hold. The fuzzer calls it with what it makes up, and an ordinary test
//! of the workspace with the corpus that is checked in. The first octet of an input chooses the reader, the rest is the text.
//! Does not do: judging whether a text should have been refused; the tests of the core do that, fault by fault.

use std::sync::Arc;

use lockgate::clock::ManualClock;
use lockgate::fault::Plan;
use lockgate::receive::{
    ConfigFaults, Group, ReceiverConfig, ReceiverSpec, require_power_of_two_ring,
    required_capabilities,
};
use lockgate::{Error, ErrorKind};

/// Every field of a configuration; the path of a fault begins with one of them.
const FIELDS: [&str; 13] = [
    "interface",
    "device",
    "groups",
    "unicast",
    "vlan",
    "ring",
    "batch",
    "buffer_bytes",
    "mtu",
    "wait",
    "timestamps",
    "checksums",
    "options",
];

/// Runs every check over one input.
pub(crate) fn check(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match choice % 7 {
        0 => read(text, ReceiverConfig::from_json(text), config),
        1 => read(text, ReceiverConfig::from_toml(text), config),
        2 => read(text, ReceiverSpec::from_json(text), spec),
        3 => read(text, ReceiverSpec::from_toml(text), spec),
        4 => group(text),
        5 => plan(Plan::from_json(text, Arc::new(ManualClock::new())).ok()),
        _ => plan(Plan::from_toml(text, Arc::new(ManualClock::new())).ok()),
    }
}

/// What was read is checked; what couldn't be read was refused with a place inside the text.
fn read<T>(text: &str, result: Result<T, Error>, check: fn(&T)) {
    let error = match result {
        Ok(value) => return check(&value),
        Err(error) => error,
    };
    assert_eq!(*error.kind(), ErrorKind::Syntax);
    let detail = error.detail().unwrap_or_default();
    assert!(!detail.trim().is_empty(), "{error:?}");
    if let Some((_, place)) = detail.rsplit_once(" at line ") {
        let mut numbers = place.split(" column ").map(str::parse::<usize>);
        let line = numbers.next().and_then(Result::ok);
        let column = numbers.next().and_then(Result::ok);
        let (Some(line), Some(column)) = (line, column) else {
            return; // the words stood in the text itself
        };
        // An end that came too early lies in the line behind the last one, if that was ended.
        assert!(line <= text.split('\n').count(), "{detail}");
        assert!(column <= text.len() + 1, "{detail}");
    }
}

fn spec(spec: &ReceiverSpec) {
    config(&spec.receive);
    let text = written(serde_json::to_string(spec));
    if !has_fractions(&spec.receive) {
        assert_eq!(ReceiverSpec::from_json(&text).as_ref().ok(), Some(spec));
    }
}

fn config(config: &ReceiverConfig) {
    let first = config.validate();
    assert_eq!(config.validate(), first, "validation is pure");
    match first {
        Ok(()) => valid(config),
        Err(faults) => told(&faults),
    }
    let mut faults = ConfigFaults::new();
    require_power_of_two_ring(config, &mut faults);
    assert_eq!(faults.is_empty(), config.ring.count_ones() == 1);
    for (_, field) in required_capabilities(config) {
        let field = field.split('.').next().unwrap_or_default();
        assert!(FIELDS.contains(&field), "{field}");
    }
    let mut faults = ConfigFaults::new();
    config.options.reader().finish(&mut faults);
    assert_eq!(faults.is_empty(), config.options.is_empty());
    let text = written(serde_json::to_string(config));
    if !has_fractions(config) {
        assert_eq!(ReceiverConfig::from_json(&text).as_ref().ok(), Some(config));
    }
}

/// Every fault says field, value, problem and what is allowed.
fn told(faults: &ConfigFaults) {
    assert!(!faults.is_empty());
    for fault in faults.list() {
        let field = fault.field.split(['.', '[']).next().unwrap_or_default();
        assert!(FIELDS.contains(&field), "{fault}");
        for part in [&fault.value, &fault.problem, &fault.allowed] {
            assert!(!part.is_empty(), "{fault:?}");
        }
    }
    assert!(faults.to_string().lines().count() > faults.list().len());
}

/// What a configuration without faults promises to a provider.
fn valid(config: &ReceiverConfig) {
    assert!(config.ring >= 1 && config.batch >= 1 && config.batch <= config.ring);
    assert!(u64::from(config.buffer_bytes) >= u64::from(config.mtu) + 22);
    assert!(config.vlan.is_none_or(|vlan| vlan < 4095));
    assert_ne!(config.groups.is_empty(), config.unicast.is_none());
    for (at, group) in config.groups.iter().enumerate() {
        assert!(group.address.is_multicast() && group.port != 0);
        for source in &group.sources {
            assert_eq!(source.is_ipv4(), group.address.is_ipv4());
            assert!(!source.is_multicast() && !source.is_unspecified());
        }
        let same = |other: &Group| other.address == group.address && other.port == group.port;
        assert!(!config.groups[..at].iter().any(same));
    }
    if let Some(unicast) = config.unicast {
        assert!(!unicast.ip().is_multicast() && unicast.port() != 0);
    }
    if let Some(interface) = &config.interface {
        assert!((1..=15).contains(&interface.len()));
        assert!(!interface.contains(['/', '\0', ' ', ':']));
    }
}

fn group(text: &str) {
    match text.parse::<Group>() {
        Ok(group) => {
            assert!(group.sources.is_empty());
            assert_eq!(group.to_string().parse(), Ok(group));
        }
        Err(error) => assert_eq!(error.text, text),
    }
}

/// What is written is read back as the same plan.
fn plan(plan: Option<Plan>) {
    let Some(plan) = plan else { return };
    let text = plan.to_json();
    match Plan::from_json(&text, Arc::new(ManualClock::new())) {
        Ok(again) => assert_eq!(again.to_json(), text),
        Err(error) => panic!("what was written can't be read: {error}\n{text}"),
    }
}

fn written(result: serde_json::Result<String>) -> String {
    match result {
        Ok(text) => text,
        Err(error) => panic!("what was read can't be written: {error}"),
    }
}

/// Whether an option has a number with a fraction, which JSON's reader may round by the last bit.
fn has_fractions(config: &ReceiverConfig) -> bool {
    fn inside(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Number(number) => number.is_f64(),
            serde_json::Value::Array(all) => all.iter().any(inside),
            serde_json::Value::Object(all) => all.values().any(inside),
            _ => false,
        }
    }
    serde_json::to_value(&config.options).is_ok_and(|value| inside(&value))
}
