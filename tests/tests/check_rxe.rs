//! `probe check` on real kernel devices: two Soft-RoCE devices in a virtual machine.
//!
//! One boot for all of it. Needs what `cargo xtask vm` needs; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

mod check_support;

use std::process::Command;

use check_support::{Report, binary};
use lockgate_tests::tools;

/// The harness could not set the machine up.
const NO_MACHINE: i32 = 125;
/// Between the documents of one boot.
const NEXT: &str = "next document";

/// Runs commands in one boot, each of which prints a document, and gives the documents with the exit codes.
fn in_guest(commands: &[&str]) -> Option<Vec<Report>> {
    // A plain user may not get at the folder of the build.
    let mut script = "touch /tmp/probe; mount --bind BUILT /tmp/probe; ".to_owned();
    for command in commands {
        script.push_str(&format!("{command}; echo \"{NEXT} $?\"; "));
    }
    let script = script.replace("BUILT", &binary().display().to_string());
    let script = script.replace("PROBE", "/tmp/probe");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "run",
            "--quiet",
            "--package",
            "xtask",
            "--",
            "vm",
            "--timeout",
            "300",
        ])
        .args(["--", "sh", "-c", &script])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .expect("cargo runs");
    let text = String::from_utf8(output.stdout).expect("the output is UTF-8");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(NO_MACHINE) {
        tools::skip(
            "vm",
            &format!("the virtual machine could not be set up: {}", errors.trim()),
        );
        return None;
    }
    assert!(output.status.success(), "{errors}{text}");
    let mut reports = Vec::new();
    let mut document = String::new();
    for line in text.lines() {
        match line.strip_prefix(NEXT) {
            Some(code) => reports.push(Report {
                code: code.trim().parse().unwrap(),
                stdout: std::mem::take(&mut document),
                stderr: errors.clone(),
            }),
            None => document.push_str(&format!("{line}\n")),
        }
    }
    assert_eq!(reports.len(), commands.len(), "{errors}{text}");
    Some(reports)
}

#[test]
fn rxe_is_usable_and_each_thing_that_is_taken_from_it_is_told() {
    let reports = in_guest(&[
        "PROBE check --json",
        "PROBE check --json --try",
        "setpriv --reuid 65534 --regid 65534 --clear-groups PROBE check --json --try --device rxe0",
        "prlimit --memlock=65536:65536 setpriv --reuid 65534 --regid 65534 --clear-groups PROBE check --json",
        "rm /dev/infiniband/uverbs1; PROBE check --json",
        "chmod 600 /dev/infiniband/uverbs0; \
         setpriv --reuid 65534 --regid 65534 --clear-groups PROBE check --json --device rxe0",
        "chmod 666 /dev/infiniband/uverbs0; ip link set veth0 down; PROBE check --json --device rxe0",
    ]);
    let Some(reports) = reports else { return };
    let [plain, tried, user, memlock, missing, denied, down] = &reports[..] else {
        panic!("seven documents");
    };

    plain.fails(0, &[]);
    assert_eq!(
        plain.verdicts("ok"),
        ["rxe0: device-usable", "rxe1: device-usable"]
    );
    let document = plain.document();
    let device = &document["sysfs"]["devices"][0];
    assert_eq!(device["needs_driver"], "rxe");
    assert_eq!(device["ports"][0]["state"], "ACTIVE");
    assert_eq!(device["ports"][0]["netdev"], "veth0");
    let choice = device["ports"][0]["choice"]["index"].as_u64().unwrap();
    let gids = device["ports"][0]["gids"].as_array().unwrap();
    let chosen = gids.iter().find(|gid| gid["index"] == choice).unwrap();
    assert_eq!(chosen["type"], "RoCE v2");
    assert_eq!(
        chosen["gid"], "0000:0000:0000:0000:0000:ffff:0a4d:0001",
        "10.77.0.1"
    );
    // The kernel and the library tell the same GUID.
    assert_eq!(
        document["library"]["enumerated"].as_array().unwrap().len(),
        2
    );
    let same = document["library"]["enumerated"].as_array().unwrap().iter();
    assert!(same.clone().any(|one| one["guid"] == device["node_guid"]));
    assert_eq!(document["library"]["fork"], "not needed");
    let modules = document["process"]["modules"].to_string();
    assert!(modules.contains("rdma_rxe"), "{modules}");

    // Soft-RoCE has no queue pairs for raw packets and no dmabuf in this kernel; the rest works.
    tried.fails(0, &[]);
    tried.tells("raw-packet-unsupported", "EOPNOTSUPP");
    tried.tells("dmabuf-unsupported", "EOPNOTSUPP");
    assert!(
        tried
            .verdicts("ok")
            .contains(&"rxe0: try-worked".to_owned())
    );
    let trials = tried.document()["trials"]["trials"]
        .as_array()
        .unwrap()
        .clone();
    let port = trials.iter().find(|trial| trial["what"] == "port").unwrap();
    let mtu = port["detail"].as_str().unwrap();
    let fitting = &device["ports"][0]["fitting_mtu"];
    assert_eq!(
        mtu,
        format!("MTU {fitting} of 4096"),
        "the network interface's MTU decides"
    );
    let ends = ["end-mr", "end-cq", "end-pd", "close"];
    for what in ends {
        let done = trials
            .iter()
            .filter(|trial| trial["what"] == what && trial["worked"] == true);
        assert_eq!(done.count(), 2, "{what} on both");
    }

    user.fails(0, &[]);
    user.tells("raw-packet-denied", "EPERM");
    assert!(
        user.verdicts("warning")
            .contains(&"process: net-raw-missing".to_owned())
    );

    memlock.fails(8, &["process: memlock-low"]);

    missing.fails(4, &["rxe1: node-missing"]);
    assert_eq!(missing.verdicts("ok"), ["rxe0: device-usable"]);

    denied.fails(7, &["rxe0: node-denied"]);
    denied.tells("node-denied", "mode 0600");

    down.fails(4, &["rxe0: port-down"]);
    down.tells("port-down", "ip link set veth0 up");
}
