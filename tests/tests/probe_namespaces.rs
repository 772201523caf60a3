//! `probe` in network namespaces of its own: a loopback interface that is down or has no IPv4 address; and a silent network, where
//! the hints must say what the host shows.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::process::Command;

use lockgate_tests::netns::{self, Cable, Namespace};
use lockgate_tests::probe;
use serde_json::Value;

fn run(mut command: Command) -> (i32, String) {
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!told.contains("panicked"), "{told}");
    let code = output.status.code().expect("it was not killed");
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    (code, text)
}

fn in_namespace(space: &Namespace, arguments: &[&str]) -> (i32, String) {
    let mut command = space.command(probe::binary().to_str().unwrap());
    command.args(arguments);
    run(command)
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The words of a text, however it was wrapped.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_loopback_interface_that_is_down_is_named_with_its_remedy_and_the_rest_still_runs() {
    if !netns::require() {
        return;
    }
    let space = Namespace::new();
    space.ip("link set lo down");
    let (code, text) = in_namespace(&space, &[]);
    assert_eq!(code, 4, "{text}");
    let (udp, loopback) = text.split_once("Self-test of loopback").unwrap();
    let udp = words(udp.split_once("Self-test of udp").unwrap().1);
    assert!(udp.contains("no-hardware interface lo is down"), "{text}");
    assert!(udp.contains("remedy ip link set lo up"), "{text}");
    assert!(words(udp.as_str()).contains("multicast on lo"), "{text}");
    let loopback = words(loopback);
    assert!(loopback.contains("verified every byte"), "{text}");
    assert!(
        loopback.contains("Verdict: no-hardware in udp; exit code 4"),
        "{text}"
    );
    assert!(words(&text).contains("[loopback-down]"), "{text}");

    let (code, text) = in_namespace(&space, &["--json"]);
    let document = document(&text);
    assert_eq!(code, 4);
    assert_eq!(document["exit"]["name"], "no-hardware");
    assert_eq!(
        document["self_tests"][0]["problem"]["remedy"],
        "ip link set lo up"
    );
    assert_eq!(document["self_tests"][1]["exit"]["name"], "ok");
}

#[test]
fn a_namespace_with_nothing_but_its_loopback_interface_is_enough() {
    if !netns::require() {
        return;
    }
    let space = Namespace::new();
    let (code, text) = in_namespace(&space, &["--json"]);
    assert_eq!(code, 0, "{text}");
    let document = document(&text);
    let interfaces = document["host"]["interfaces"]["value"].as_array().unwrap();
    // Of this namespace, not of the one that the test was started in.
    assert!(interfaces.iter().any(|one| one["name"] == "lo"));
    assert!(
        !interfaces.iter().any(|one| one["name"] == "eth0"),
        "{text}"
    );
    let findings = document["findings"].as_array().unwrap();
    assert!(
        findings
            .iter()
            .any(|one| one["code"] == "no-multicast-interface"),
        "{text}"
    );
}

#[test]
fn a_loopback_interface_without_ipv4_is_named_with_its_remedy() {
    if !netns::require() {
        return;
    }
    let space = Namespace::new();
    space.ip("address del 127.0.0.1/8 dev lo");
    let (code, text) = in_namespace(&space, &[]);
    assert_eq!(code, 4, "{text}");
    let text = words(&text);
    assert!(text.contains("interface lo has no IPv4 address"), "{text}");
    assert!(
        text.contains("remedy ip address add 127.0.0.1/8 dev lo"),
        "{text}"
    );

    // What the remedy says is enough.
    space.ip("address add 127.0.0.1/8 dev lo");
    let (code, text) = in_namespace(&space, &[]);
    assert_eq!(code, 0, "{text}");
}

#[test]
fn a_silent_network_gets_hints_of_what_the_host_shows() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.near.sysctl("net.ipv4.conf.v0.rp_filter", "1");
    let arguments = ["recv", "--provider", "udp", "--interface", "v0", "--group"];
    let rest = ["239.7.7.7:47000", "--for", "300ms"];
    let (code, text) = in_namespace(&cable.near, &[&arguments[..], &rest[..]].concat());
    assert_eq!(code, 10, "{text}");
    let text = words(&text);
    for part in [
        "the kernel has 239.7.7.7 joined on v0",
        "v0 speaks IGMP V",
        "rp_filter is 1 (strict) on v0",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn an_interface_that_is_down_is_told_before_everything_else() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.far.ip("link set v0 down");
    let arguments = ["recv", "--provider", "udp", "--interface", "v0", "--group"];
    let rest = ["239.7.7.7:47000", "--for", "300ms", "--json"];
    let (code, text) = in_namespace(&cable.near, &[&arguments[..], &rest[..]].concat());
    assert_eq!(code, 10, "{text}");
    let document = document(&text);
    let first = &document["hints"][0];
    assert_eq!(
        first["evidence"], "interface v0 is up, without a link",
        "{text}"
    );
    let next = first["next"].as_str().unwrap();
    assert!(next.contains("ip link set v0 up"), "{next}");
}
