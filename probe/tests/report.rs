//! `probe` without arguments, as the user who runs the tests and as one without any privilege.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[allow(
    dead_code,
    reason = "each test program uses its part of what they share"
)]
mod support;

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Run, command, ended, probe};

/// What the self-test needs at most, with room for a machine that does other things as well.
const LIMIT: Duration = Duration::from_secs(15);

#[test]
fn the_report_verifies_both_self_tests_in_time() {
    let started = Instant::now();
    let document = probe("--json").document("ok");
    assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
    let tests = document["self_tests"].as_array().unwrap();
    let providers: Vec<_> = tests.iter().map(|test| &test["provider"]).collect();
    assert_eq!(providers, ["udp", "loopback"]);
    for test in tests {
        for pass in ["burst", "paced"] {
            let pass = &test[pass];
            let count = |field: &str| pass[field].as_u64().unwrap();
            let lost: u64 = pass["losses"]
                .as_object()
                .unwrap()
                .iter()
                .filter(|(place, _)| *place != "filtered")
                .filter_map(|(_, count)| count.as_u64())
                .sum();
            assert!(count("sent") > 1_000, "{test:#}");
            assert!(
                count("unique") > 0 && count("unique") + lost >= count("sent"),
                "{test:#}"
            );
            assert_eq!((count("bad"), count("duplicates")), (0, 0), "{test:#}");
            assert!(pass["latency"]["max"].as_u64().unwrap() > 0, "{test:#}");
        }
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(document["host"]["kernel"]["release"], release.trim());
    assert!(document["host"]["memlock"].is_object());
}

#[test]
fn the_text_has_every_part_and_fits_80_columns() {
    let run = probe("");
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    for part in [
        "Host\n",
        "  kernel  ",
        "  memlock  ",
        "  huge pages  ",
        "  capabilities  ",
        "Interfaces\n",
        "net.core.rmem_max",
        "Providers\n",
        "  ibverbs  ",
        "Findings\n",
        "Self-test of udp\n",
        "Self-test of loopback\n",
        "p99.9 ",
        "  verified  ",
        "Verdict: ok",
    ] {
        assert!(
            run.stdout.contains(part),
            "{part:?} is not in\n{}",
            run.stdout
        );
    }
    for line in run.stdout.lines() {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
}

#[test]
fn a_signal_ends_the_self_test_with_its_own_code() {
    let mut child = command("").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("Self-test of udp") {
        assert_ne!(lines.read_line(&mut text).unwrap(), 0, "{text}");
    }
    let started = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    lines.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains("stopped by a signal"), "{text}");
    assert!(text.contains("Verdict: interrupted"), "{text}");
    // The second self-test was not begun.
    assert!(!text.contains("Self-test of loopback"), "{text}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_user_without_privileges_gets_the_same_verdict() {
    let run = as_nobody();
    let document = run.document("ok");
    assert_ne!(document["host"]["user"]["uid"], 0);
    let capabilities = &document["host"]["capabilities"]["value"];
    assert_eq!(
        capabilities["effective"].as_array().unwrap().len(),
        0,
        "{capabilities}"
    );
    assert_eq!(document["self_tests"][0]["exit"]["name"], "ok");
}

/// As root, from a copy that everybody may run; else whoever runs the tests is a user without privileges.
fn as_nobody() -> Run {
    if !rustix::process::geteuid().is_root() {
        return ended(command("--json").output().unwrap());
    }
    let copy = std::env::temp_dir().join(format!("probe-as-nobody-{}", std::process::id()));
    std::fs::copy(env!("CARGO_BIN_EXE_probe"), &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("setpriv")
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--bounding-set=-all",
        ])
        .arg(&copy)
        .arg("--json")
        .output();
    std::fs::remove_file(&copy).unwrap();
    ended(output.expect("setpriv, which util-linux brings, runs"))
}
