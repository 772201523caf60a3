//! What the kernel refuses `probe send`: a full queue is counted and nothing is lost by it, and what can't be sent is told with a code of
//! its own.
//!
//! Needs root, `ip` and `tc`; skipped with a reason without.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::fs;
use std::process::Command;

use lockgate_tests::netns::{self, Cable};
use lockgate_tests::programs::{Folder, Follow, Running};
use lockgate_tests::{probe, tools};
use serde_json::Value;

/// The document of a send from the far side.
fn send(cable: &Cable, arguments: &str) -> Value {
    let mut command = cable.far.command(probe::binary().to_str().unwrap());
    command.args(["send", "--json"]);
    let output = command.args(arguments.split(' ')).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let code = document["exit"]["code"].as_i64().map(|code| code as i32);
    assert_eq!(code, output.status.code(), "{document:#}");
    document
}

#[test]
fn a_full_queue_is_counted_and_leaves_no_gap() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    let shaped = Command::new("tc")
        .args(["-n", cable.far.name(), "qdisc", "add", "dev", "v0", "root"])
        .args(["tbf", "rate", "800kbit", "burst", "2kb", "limit", "2kb"])
        .output();
    match shaped {
        Ok(output) if output.status.success() => {}
        other => {
            tools::skip(
                "namespaces",
                &format!("no queue can be made small: {other:?}"),
            );
            return;
        }
    }
    let folder = Folder::new("send-errors");
    let document = folder.file("document");
    let mut command = cable.near.command(probe::binary().to_str().unwrap());
    command.args(["recv", "--provider", "udp", "--interface", "v0", "--group"]);
    command.args([
        "239.7.7.7:47500",
        "--count",
        "200",
        "--json",
        "--stats-interval",
        "50ms",
    ]);
    command.stdout(fs::File::create(&document).unwrap());
    let mut receiving = Running::start(&mut command, "interval", Follow::Stderr);

    let to = "--to 239.7.7.7:47500 --interface v0";
    let sent = send(&cable, &format!("{to} --rate 5000 --count 200"));
    assert_eq!(sent["exit"]["name"], "ok");
    assert_eq!(sent["sent"]["packets"], 200);
    assert!(
        sent["sent"]["no_buffer"].as_u64().unwrap() > 100,
        "{sent:#}"
    );

    receiving.read_to_end();
    let received: Value = serde_json::from_slice(&fs::read(&document).unwrap()).unwrap();
    let stream = &received["numbered"]["streams"][0];
    assert_eq!(stream["stream"], sent["stream"]);
    for (name, count) in [
        ("packets", 200),
        ("first", 0),
        ("last", 199),
        ("missing", 0),
        ("duplicates", 0),
    ] {
        assert_eq!(stream[name], count, "{name}: {received:#}");
    }
}

#[test]
fn what_can_not_be_sent_is_told_with_its_code() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.far.ip("route add prohibit 10.201.0.0/24");
    for (arguments, exit, errno) in [
        ("--to 10.200.0.1:5000", "unreachable", "ENETUNREACH"),
        (
            "--to 10.77.0.99:5000 --rate 10",
            "unreachable",
            "EHOSTUNREACH",
        ),
        ("--to 10.201.0.1:5000", "permission", "EACCES"),
        (
            "--to 239.7.7.7:5000 --interface nosuch0",
            "no-hardware",
            "ENODEV",
        ),
    ] {
        let document = send(&cable, arguments);
        assert_eq!(document["exit"]["name"], exit, "{arguments}: {document:#}");
        assert_eq!(document["error"]["errno"]["name"], errno, "{document:#}");
    }
    cable.far.ip("link set v0 down");
    let document = send(&cable, "--to 239.7.7.7:5000 --interface v0");
    assert_eq!(document["exit"]["name"], "unreachable", "{document:#}");
}
