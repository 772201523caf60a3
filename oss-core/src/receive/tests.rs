//! Tests of the configuration's texts and faults. Those of the open receiver are in `receiver/tests.rs`.

#![cfg(not(loom))]

use std::net::{IpAddr, SocketAddr};

use super::*;
use crate::error::{Class, ErrorKind};
use crate::registry::Capability;

/// A configuration without a fault.
fn good() -> ReceiverConfig {
    ReceiverConfig::multicast("eth0", ["239.7.7.7:47000".parse().unwrap()])
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn group(text: &str) -> Group {
    text.parse().unwrap()
}

/// The faults of a good configuration after a change, as lines.
fn faults(change: impl FnOnce(&mut ReceiverConfig)) -> Vec<String> {
    let mut config = good();
    change(&mut config);
    match config.validate() {
        Ok(()) => Vec::new(),
        Err(faults) => faults.list().iter().map(ToString::to_string).collect(),
    }
}

#[track_caller]
fn one_fault(change: impl FnOnce(&mut ReceiverConfig), text: &str) {
    assert_eq!(faults(change), [text]);
}

#[test]
fn a_good_configuration_has_no_fault() {
    assert_eq!(good().validate(), Ok(()));
    assert_eq!(
        ReceiverConfig::unicast("10.0.0.1:5000".parse().unwrap()).validate(),
        Ok(())
    );
}

#[test]
fn names_of_interfaces_and_devices() {
    const INTERFACE: &str = "allowed: 1 to 15 bytes without /, : and white space";
    const DEVICE: &str = "allowed: 1 to 63 bytes without /, : and white space";
    for (name, told) in [
        ("", "value \"\" is empty"),
        ("0123456789abcdef", "value \"0123456789abcdef\" is too long"),
        ("é23456789abcdef", "value \"é23456789abcdef\" is too long"),
        ("a/b", "value \"a/b\" has a character that names can't have"),
        ("a:1", "value \"a:1\" has a character that names can't have"),
        ("a b", "value \"a b\" has a character that names can't have"),
        (
            "a\n",
            "value \"a\\n\" has a character that names can't have",
        ),
        (
            "a\0",
            "value \"a\\0\" has a character that names can't have",
        ),
        (".", "value \".\" is the name of a directory"),
        ("..", "value \"..\" is the name of a directory"),
    ] {
        one_fault(
            |config| config.interface = Some(name.to_owned()),
            &format!("interface: {told}; {INTERFACE}"),
        );
        if !told.ends_with("too long") {
            one_fault(
                |config| config.device = Some(name.to_owned()),
                &format!("device: {told}; {DEVICE}"),
            );
        }
    }
    let long = "m".repeat(64);
    one_fault(
        |config| config.device = Some(long.clone()),
        &format!("device: value {long:?} is too long; {DEVICE}"),
    );
    for name in ["eth0", "0123456789abcde", "eth0.100", "br-lan", "...", "ü"] {
        assert!(faults(|config| config.interface = Some(name.to_owned())).is_empty());
    }
    assert!(faults(|config| config.device = Some("m".repeat(63))).is_empty());
}

#[test]
fn either_groups_or_unicast() {
    const EITHER: &str = "allowed: groups or unicast, one of the two";
    one_fault(
        |config| config.groups.clear(),
        &format!("groups: value [] says nothing to receive; {EITHER}"),
    );
    one_fault(
        |config| config.unicast = Some("10.0.0.1:5000".parse().unwrap()),
        &format!("unicast: value 10.0.0.1:5000 stands beside groups; {EITHER}"),
    );
}

#[test]
fn groups_are_multicast_and_have_a_port() {
    const MULTICAST: &str = "allowed: 224.0.0.0/4 or ff00::/8; a unicast address goes into unicast";
    for address in [
        "10.0.0.1",
        "0.0.0.0",
        "255.255.255.255",
        "223.255.255.255",
        "240.0.0.0",
        "::1",
        "fe80::1",
        "::ffff:239.1.1.1",
    ] {
        one_fault(
            |config| config.groups = vec![Group::new(ip(address), 5000)],
            &format!("groups[0].address: value {address} is not a multicast address; {MULTICAST}"),
        );
    }
    for address in ["224.0.0.0", "239.255.255.255", "ff02::1", "ff3e::8000:1"] {
        assert!(faults(|config| config.groups = vec![Group::new(ip(address), 5000)]).is_empty());
    }
    one_fault(
        |config| config.groups.push(group("239.1.1.1:0")),
        "groups[1].port: value 0 is not a port to receive on; allowed: 1 to 65535",
    );
}

#[test]
fn unicast_is_unicast_and_has_a_port() {
    let unicast = |text: &'static str| {
        move |config: &mut ReceiverConfig| {
            config.groups.clear();
            config.unicast = Some(text.parse().unwrap());
        }
    };
    one_fault(
        unicast("239.1.1.1:5000"),
        "unicast: value 239.1.1.1 is a multicast address; \
         allowed: a unicast address; a multicast address goes into groups",
    );
    one_fault(
        unicast("[ff02::1]:5000"),
        "unicast: value ff02::1 is a multicast address; \
         allowed: a unicast address; a multicast address goes into groups",
    );
    one_fault(
        unicast("10.0.0.1:0"),
        "unicast: value 0 is not a port to receive on; allowed: 1 to 65535",
    );
    for text in ["0.0.0.0:5000", "[::]:5000", "[fe80::1]:1"] {
        assert!(faults(unicast(text)).is_empty(), "{text}");
    }
}

#[test]
fn each_group_stands_there_once() {
    one_fault(
        |config| config.groups.push(group("239.7.7.7:47000")),
        "groups[1]: value 239.7.7.7:47000 stands there twice; \
         allowed: each group and port once, with all its sources",
    );
    one_fault(
        |config| {
            let again = group("239.7.7.7:47000").from_sources([ip("10.0.0.1")]);
            config.groups.push(group("239.7.7.7:47001"));
            config.groups.push(again);
        },
        "groups[2]: value 239.7.7.7:47000 stands there twice; \
         allowed: each group and port once, with all its sources",
    );
    // Another port is another group.
    assert!(faults(|config| config.groups.push(group("239.7.7.7:47001"))).is_empty());
}

#[test]
fn sources_are_senders_of_the_groups_family() {
    let sources = |group_text: &'static str, list: &'static [&'static str]| {
        move |config: &mut ReceiverConfig| {
            let list = list.iter().map(|text| ip(text));
            config.groups = vec![group(group_text).from_sources(list)];
        }
    };
    one_fault(
        sources("232.1.1.1:5000", &["10.0.0.1", "fd00::1"]),
        "groups[0].sources[1]: value fd00::1 is of the other family; \
         allowed: IPv4 addresses, as the group's",
    );
    one_fault(
        sources("[ff3e::1]:5000", &["10.0.0.1"]),
        "groups[0].sources[0]: value 10.0.0.1 is of the other family; \
         allowed: IPv6 addresses, as the group's",
    );
    for bad in ["224.0.0.1", "0.0.0.0"] {
        one_fault(
            move |config| {
                config.groups = vec![group("232.1.1.1:5000").from_sources([ip(bad)])];
            },
            &format!(
                "groups[0].sources[0]: value {bad} is not a sender's address; \
                 allowed: the unicast address of a sender"
            ),
        );
    }
    one_fault(
        sources("232.1.1.1:5000", &["10.0.0.1", "10.0.0.2", "10.0.0.1"]),
        "groups[0].sources[2]: value 10.0.0.1 stands there twice; allowed: each source once",
    );
    assert!(faults(sources("[ff3e::1]:5000", &["fd00::1", "fe80::1"])).is_empty());
}

#[test]
fn ipv4_in_the_form_of_ipv6_is_refused_wherever_an_address_stands() {
    one_fault(
        |config| {
            config.groups = vec![group("[ff3e::1]:5000").from_sources([ip("::ffff:10.0.0.1")])];
        },
        "groups[0].sources[0]: value ::ffff:10.0.0.1 is an IPv4 address in the form of an IPv6 one; \
         allowed: the sender's 10.0.0.1",
    );
    one_fault(
        |config| {
            config.groups.clear();
            config.unicast = Some("[::ffff:127.0.0.1]:5000".parse().unwrap());
        },
        "unicast: value ::ffff:127.0.0.1 is an IPv4 address in the form of an IPv6 one; allowed: 127.0.0.1",
    );
    one_fault(
        |config| config.groups = vec![group("[::ffff:239.1.1.1]:5000")],
        "groups[0].address: value ::ffff:239.1.1.1 is not a multicast address; \
         allowed: 224.0.0.0/4 or ff00::/8; a unicast address goes into unicast",
    );
}

#[test]
fn a_group_with_a_scope_is_refused_and_not_joined_elsewhere() {
    for text in ["[ff02::1%1]:5000", "[ff15::7%99]:5000"] {
        let expected = format!(
            "group: value {text:?} has a scope; allowed: the address without it, and the interface in interface"
        );
        assert_eq!(text.parse::<Group>().unwrap_err().to_string(), expected);
        let json = serde_json::json!({ "groups": [text] }).to_string();
        let error = ReceiverConfig::from_json(&json).unwrap_err().to_string();
        assert!(error.contains("has a scope"), "{error}");
    }
    // A scope of zero is none.
    assert_eq!(group("[ff02::1%0]:5000"), group("[ff02::1]:5000"));
}

#[test]
fn a_list_is_no_table() {
    for json in [
        r#"["udp", {}]"#,
        r#"{"receive": ["eth0"]}"#,
        r#"{"receive": {"checksums": ["drop", "drop"]}}"#,
        r#"{"receive": {"groups": [["239.1.1.1", 5, []]]}}"#,
        r#"{"receive": {"options": []}}"#,
        r#"{"receive": null}"#,
        r#"{"receive": 4}"#,
    ] {
        let error = ReceiverSpec::from_json(json).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), &ErrorKind::Syntax, "{json}");
        assert!(
            text.contains("invalid type") && text.contains("expected a"),
            "{text}"
        );
        assert!(text.contains("line 1 column"), "{text}");
    }
    assert!(ReceiverConfig::from_json(r#"["eth0"]"#).is_err());
}

#[test]
fn a_name_that_stands_twice_is_refused_at_every_depth() {
    for (json, name) in [
        (r#"{"batch":1,"batch":2}"#, "batch"),
        (r#"{"options":{"gro":true,"gro":false}}"#, "gro"),
        (r#"{"options":{"a":{"b":1,"b":1}}}"#, "b"),
        (r#"{"options":{"a":[[{"c":1,"x":2,"c":null}]]}}"#, "c"),
        (r#"{"options":{},"options":{}}"#, "options"),
    ] {
        let error = ReceiverConfig::from_json(json).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), &ErrorKind::Syntax, "{json}");
        assert!(text.contains("duplicate") && text.contains(name), "{text}");
    }
    let all = r#"{"a":[1,-2,2.5,"x",null,true,{"b":{}}],"big":18446744073709551615}"#;
    let config = ReceiverConfig::from_json(&format!(r#"{{"options":{all}}}"#)).unwrap();
    let same: serde_json::Value = serde_json::from_str(all).unwrap();
    assert_eq!(serde_json::to_value(&config.options).unwrap(), same);
}

#[test]
fn numbers_lie_in_their_ranges() {
    one_fault(
        |config| config.vlan = Some(4095),
        "vlan: value 4095 is reserved; allowed: 0 to 4094",
    );
    one_fault(
        |config| config.vlan = Some(u16::MAX),
        "vlan: value 65535 is reserved; allowed: 0 to 4094",
    );
    one_fault(
        |config| config.ring = 0,
        "ring: value 0 is out of range; allowed: 1 to 4194304",
    );
    one_fault(
        |config| config.ring = (1 << 22) + 1,
        "ring: value 4194305 is out of range; allowed: 1 to 4194304",
    );
    one_fault(
        |config| config.batch = 0,
        "batch: value 0 is out of range; allowed: 1 to 4096",
    );
    one_fault(
        |config| {
            config.ring = 8192;
            config.batch = 4097;
        },
        "batch: value 4097 is out of range; allowed: 1 to 4096",
    );
    one_fault(
        |config| config.batch = 1025,
        "batch: value 1025 is larger than the ring; allowed: at most ring, which is 1024",
    );
    for mtu in [0, 67, 65_536] {
        one_fault(
            |config| config.mtu = mtu,
            &format!("mtu: value {mtu} is out of range; allowed: 68 to 65535"),
        );
    }
    one_fault(
        |config| config.buffer_bytes = 1521,
        "buffer_bytes: value 1521 is below the MTU with its link header; \
         allowed: at least 1522: mtu 1500 and 22 of link header",
    );
    one_fault(
        |config| config.buffer_bytes = (1 << 20) + 1,
        "buffer_bytes: value 1048577 is too large; allowed: at most 1048576",
    );
    let bounds: [fn(&mut ReceiverConfig); 7] = [
        |config| config.vlan = Some(0),
        |config| config.vlan = Some(4094),
        |config| (config.ring, config.batch) = (1, 1),
        |config| (config.ring, config.batch) = (1 << 22, 4096),
        |config| config.mtu = 68,
        |config| config.buffer_bytes = 1522,
        |config| (config.mtu, config.buffer_bytes) = (65_535, 1 << 20),
    ];
    for (at, change) in bounds.iter().enumerate() {
        assert!(faults(change).is_empty(), "bound {at}");
    }
}

#[test]
fn a_ring_that_has_to_be_a_power_of_two() {
    let check = |ring| {
        let mut faults = ConfigFaults::new();
        let config = ReceiverConfig { ring, ..good() };
        require_power_of_two_ring(&config, &mut faults);
        faults.to_string()
    };
    assert_eq!(
        check(1000),
        "1 fault in the configuration\n  \
         ring: value 1000 is not a power of two; allowed: a power of two for this provider"
    );
    for ring in [1, 2, 1024] {
        assert_eq!(check(ring), "0 faults in the configuration");
    }
}

#[test]
fn all_faults_are_told_at_once_in_the_order_of_the_fields() {
    let config = ReceiverConfig {
        interface: Some(String::new()),
        device: Some("a/b".to_owned()),
        groups: vec![
            group("10.0.0.1:0").from_sources([ip("::1")]),
            group("239.1.1.1:5000"),
            group("239.1.1.1:5000"),
        ],
        unicast: Some("239.9.9.9:0".parse().unwrap()),
        vlan: Some(4095),
        ring: 0,
        batch: 5000,
        buffer_bytes: 2 << 20,
        mtu: 10,
        ..ReceiverConfig::default()
    };
    let faults = config.validate().unwrap_err();
    let fields: Vec<_> = faults.list().iter().map(|fault| &*fault.field).collect();
    assert_eq!(
        fields,
        [
            "interface",
            "device",
            "unicast",
            "groups[0].address",
            "groups[0].port",
            "groups[0].sources[0]",
            "groups[2]",
            "unicast",
            "unicast",
            "vlan",
            "ring",
            "batch",
            "mtu",
            "buffer_bytes",
        ]
    );
    let text = faults.to_string();
    assert!(
        text.starts_with("14 faults in the configuration\n  interface: "),
        "{text}"
    );
    assert_eq!(text.lines().count(), 15);
    assert_eq!(serde_json::to_value(&faults).unwrap()[9]["field"], "vlan");
}

#[test]
fn what_a_configuration_needs_follows_from_its_fields() {
    use Capability as C;
    type Change = fn(&mut ReceiverConfig);
    let base = [
        (C::Ipv4, "groups"),
        (C::Multicast, "groups"),
        (C::EventWait, "wait"),
    ];
    assert_eq!(required_capabilities(&good()), base);
    let more = |change: Change| {
        let mut config = good();
        change(&mut config);
        let needs = required_capabilities(&config).into_iter();
        needs
            .filter(|need| !base.contains(need))
            .collect::<Vec<_>>()
    };
    let cases: [(Change, &[(C, &str)]); 13] = [
        (
            |config| config.groups.push(group("239.7.7.8:47000")),
            &[(C::SeveralGroups, "groups")],
        ),
        (
            |config| config.groups.push(group("239.7.7.7:47001")),
            &[(C::SeveralGroups, "groups"), (C::SeveralPorts, "groups")],
        ),
        (
            |config| config.groups.push(group("[ff15::7]:47000")),
            &[(C::Ipv6, "groups"), (C::SeveralGroups, "groups")],
        ),
        (
            |config| config.groups[0].sources = vec![ip("10.0.0.1")],
            &[(C::SourceFilter, "groups.sources")],
        ),
        (|config| config.vlan = Some(0), &[(C::VlanFilter, "vlan")]),
        (
            |config| config.wait = WaitMode::BusyPoll,
            &[(C::BusyPoll, "wait")],
        ),
        (
            |config| config.timestamps = TimestampMode::Software,
            &[(C::SoftwareTimestamps, "timestamps")],
        ),
        (
            |config| config.timestamps = TimestampMode::Hardware,
            &[(C::HardwareTimestamps, "timestamps")],
        ),
        (
            |config| config.checksums.bad = ChecksumAction::Deliver,
            &[(C::ChecksumPolicy, "checksums")],
        ),
        (
            |config| config.checksums.absent_ipv6 = ChecksumAction::Deliver,
            &[(C::ChecksumPolicy, "checksums")],
        ),
        (
            |config| config.interface = None,
            &[(C::AnyInterface, "interface")],
        ),
        (
            |config| (config.interface, config.device) = (None, Some("mlx5_0".to_owned())),
            &[],
        ),
        (|config| config.batch = 1, &[]),
    ];
    for (at, (change, expected)) in cases.into_iter().enumerate() {
        assert_eq!(more(change), expected, "case {at}");
    }
    for (address, family) in [("10.0.0.1:1", C::Ipv4), ("[fd00::1]:1", C::Ipv6)] {
        let config = ReceiverConfig::unicast(address.parse::<SocketAddr>().unwrap());
        assert_eq!(
            required_capabilities(&config),
            [
                (family, "unicast"),
                (C::Unicast, "unicast"),
                (C::EventWait, "wait"),
                (C::AnyInterface, "interface"),
            ]
        );
    }
}

#[test]
fn groups_are_read_from_short_texts_and_tables() {
    let config = ReceiverConfig::from_json(
        r#"{"groups": [
            "239.7.7.7:47000",
            "[ff15::7]:47000",
            {"address": "232.1.1.1", "port": 5000, "sources": ["10.0.0.1"]},
            {"port": 5001, "address": "ff3e::1"}
        ]}"#,
    )
    .unwrap();
    assert_eq!(
        config.groups,
        [
            group("239.7.7.7:47000"),
            group("[ff15::7]:47000"),
            group("232.1.1.1:5000").from_sources([ip("10.0.0.1")]),
            group("[ff3e::1]:5001"),
        ]
    );
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(ReceiverConfig::from_json(&text).unwrap(), config);
    for text in [
        "",
        "239.7.7.7",
        "239.7.7.7:",
        "239.7.7.7:70000",
        "ff15::7:47000",
        "host:1",
    ] {
        assert_eq!(
            text.parse::<Group>().unwrap_err().to_string(),
            format!(
                "group: value {text:?} is not an address with a port; \
                 allowed: \"239.7.7.7:47000\" or \"[ff15::7]:47000\""
            )
        );
    }
}

/// What is wrong with a text, told with its place.
#[test]
fn json_that_cannot_be_read_is_told_with_line_and_column() {
    for (text, told) in [
        (
            "{\n  \"grups\": []\n}",
            "unknown field `grups`, expected one of `interface`, `device`, `groups`, `unicast`, `vlan`, \
             `ring`, `batch`, `buffer_bytes`, `mtu`, `wait`, `timestamps`, `checksums`, `options` \
             at line 2 column 9",
        ),
        (
            "{\n\"groups\": [\"239.7.7.7\"]}",
            "group: value \"239.7.7.7\" is not an address with a port; allowed: \"239.7.7.7:47000\" or \
             \"[ff15::7]:47000\" at line 2 column 22",
        ),
        (
            r#"{"groups": [{"address": "239.7.7.7", "prt": 1}]}"#,
            "unknown field `prt`, expected one of `address`, `port`, `sources` at line 1 column 42",
        ),
        (
            r#"{"groups": [{"address": "239.7.7.7"}]}"#,
            "missing field `port` at line 1 column 36",
        ),
        (
            r#"{"groups": [7]}"#,
            "invalid type: integer `7`, expected a group: \"239.7.7.7:47000\" or a table with address, \
             port and sources at line 1 column 13",
        ),
        (
            r#"{"vlan": 65536}"#,
            "invalid value: integer `65536`, expected u16 at line 1 column 14",
        ),
        (
            r#"{"ring": -1}"#,
            "invalid value: integer `-1`, expected u32 at line 1 column 11",
        ),
        (
            r#"{"wait": "sleep"}"#,
            "unknown variant `sleep`, expected `busy-poll` or `event` at line 1 column 16",
        ),
        (
            r#"{"checksums": {"good": "drop"}}"#,
            "unknown field `good`, expected `bad` or `absent_ipv6` at line 1 column 21",
        ),
        (
            r#"{"ring": 1, "ring": 2}"#,
            "duplicate field `ring` at line 1 column 18",
        ),
        ("{} x", "trailing characters at line 1 column 4"),
        ("", "EOF while parsing a value at line 1 column 0"),
    ] {
        let error = ReceiverConfig::from_json(text).unwrap_err();
        assert_eq!(error.detail(), Some(told), "{text}");
        assert_eq!(*error.kind(), ErrorKind::Syntax);
        assert_eq!(error.class(), Class::Caller);
        assert_eq!(
            error.to_string(),
            format!("read receiver configuration: the text could not be read; {told}")
        );
    }
    for (text, told) in [
        (
            r#"{"receive": {}, "providr": "udp"}"#,
            "unknown field `providr`, expected `provider` or `receive` at line 1 column 25",
        ),
        (
            r#"{"provider": "udp"}"#,
            "missing field `receive` at line 1 column 19",
        ),
    ] {
        let error = ReceiverSpec::from_json(text).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("read receiver specification: the text could not be read; {told}")
        );
    }
}

#[cfg(feature = "toml")]
#[test]
fn toml_that_cannot_be_read_is_told_with_line_and_column() {
    for (text, told) in [
        (
            "ring = 8\ngrups = []\n",
            "unknown field `grups`, expected one of `interface`, `device`, `groups`, `unicast`, `vlan`, \
             `ring`, `batch`, `buffer_bytes`, `mtu`, `wait`, `timestamps`, `checksums`, `options` \
             at line 2 column 1",
        ),
        (
            "\ngroups = [\"ünicode\", \"x\"]",
            "group: value \"ünicode\" is not an address with a port; allowed: \"239.7.7.7:47000\" or \
             \"[ff15::7]:47000\" at line 2 column 11",
        ),
        (
            "[[groups]]\naddress = \"239.7.7.7\"\nprt = 1\n",
            "unknown field `prt`, expected one of `address`, `port`, `sources` at line 3 column 1",
        ),
        (
            "é = 1",
            "invalid unquoted key, expected letters, numbers, `-`, `_` at line 1 column 1",
        ),
        ("ring = 1\nring = 2\n", "duplicate key at line 2 column 1"),
        (
            "ring = \"8\"",
            "invalid type: string \"8\", expected u32 at line 1 column 8",
        ),
    ] {
        let error = ReceiverConfig::from_toml(text).unwrap_err();
        assert_eq!(error.detail(), Some(told), "{text}");
        assert_eq!(*error.kind(), ErrorKind::Syntax);
    }
    let error = ReceiverSpec::from_toml("provider = \"udp\"\n[recieve]\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "read receiver specification: the text could not be read; \
         unknown field `recieve`, expected `provider` or `receive` at line 2 column 2"
    );
}

#[cfg(feature = "toml")]
#[test]
fn toml_and_json_say_the_same() {
    let from_toml = ReceiverSpec::from_toml(
        r#"
        provider = "udp"
        [receive]
        interface = "eth0"
        groups = ["239.7.7.7:47000"]
        vlan = 7
        ring = 2048
        wait = "busy-poll"
        timestamps = "hardware"
        [receive.checksums]
        bad = "deliver"
        [receive.options]
        gro = true
        "#,
    )
    .unwrap();
    let from_json = ReceiverSpec::from_json(
        r#"{"provider": "udp", "receive": {
            "interface": "eth0", "groups": ["239.7.7.7:47000"], "vlan": 7, "ring": 2048,
            "wait": "busy-poll", "timestamps": "hardware", "checksums": {"bad": "deliver"},
            "options": {"gro": true}}}"#,
    )
    .unwrap();
    assert_eq!(from_toml, from_json);
    let text = serde_json::to_string(&from_json).unwrap();
    assert_eq!(ReceiverSpec::from_json(&text).unwrap(), from_json);
}

#[test]
fn every_fault_of_the_options_is_told() {
    let text = r#"{
        "flag": 1, "number": 70, "text": 5, "word": "wrong", "table": {"a": 1},
        "negative": -1, "unknown": [1, 2], "also-unknown": null
    }"#;
    let options: Options = serde_json::from_str(text).unwrap();
    let mut reader = options.reader();
    assert_eq!(reader.flag("flag"), None);
    assert_eq!(reader.integer("number", 1..=64), None);
    assert_eq!(reader.integer("negative", 1..=64), None);
    assert_eq!(reader.text("text"), None);
    assert_eq!(reader.word("word", &["left", "right"]), None);
    assert_eq!(reader.parsed::<Vec<u8>>("table", "a list of bytes"), None);
    assert_eq!(reader.flag("absent"), None);
    let mut faults = ConfigFaults::new();
    reader.finish(&mut faults);
    let known = "flag, number, negative, text, word, table, absent";
    assert_eq!(
        faults.to_string(),
        format!(
            "8 faults in the configuration\
             \n  options.flag: value 1 is not a flag; allowed: true or false\
             \n  options.number: value 70 is out of range; allowed: a whole number from 1 to 64\
             \n  options.negative: value -1 is not a whole number; allowed: a whole number from 1 to 64\
             \n  options.text: value 5 is not a text; allowed: a text in quotes\
             \n  options.word: value \"wrong\" is not one of the words; allowed: left, right\
             \n  options.table: value {{\"a\":1}} can't be read (invalid type: map, expected a sequence); allowed: a list of bytes\
             \n  options.also-unknown: value null is not known; allowed: {known}\
             \n  options.unknown: value [1,2] is not known; allowed: {known}"
        )
    );
}

#[test]
fn good_options_are_read() {
    let text = r#"{"flag": true, "number": 64, "text": "x", "word": "left", "list": [1, 2]}"#;
    let options: Options = serde_json::from_str(text).unwrap();
    let mut reader = options.reader();
    assert_eq!(reader.flag("flag"), Some(true));
    assert_eq!(reader.integer("number", 1..=64), Some(64));
    assert_eq!(reader.text("text"), Some("x"));
    assert_eq!(reader.word("word", &["left", "right"]), Some("left"));
    assert_eq!(reader.parsed("list", "a list"), Some(vec![1u8, 2]));
    let mut faults = ConfigFaults::new();
    reader.finish(&mut faults);
    assert!(faults.is_empty());
}

#[test]
fn a_provider_without_options_says_so() {
    let mut options = Options::default();
    options.set("gro", true);
    let mut faults = ConfigFaults::new();
    options.reader().finish(&mut faults);
    assert_eq!(
        faults.to_string(),
        "1 fault in the configuration\
         \n  options.gro: value true is not known; allowed: this provider has no options"
    );
}

#[test]
fn losses_are_listed_by_place_and_summed_without_what_was_filtered() {
    let losses = Losses {
        kernel_drop: Some(1),
        ring_full: Some(2),
        filtered: Some(1000),
        truncated: Some(4),
        ..Losses::default()
    };
    assert_eq!(losses.total(), 7);
    let counted: Vec<_> = losses
        .by_place()
        .into_iter()
        .filter(|(_, count)| count.is_some())
        .collect();
    assert_eq!(
        counted,
        [
            ("kernel-drop", Some(1)),
            ("ring-full", Some(2)),
            ("truncated", Some(4)),
            ("filtered", Some(1000)),
        ]
    );
}
