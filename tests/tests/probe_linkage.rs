//! What the binary `probe` is linked to: nothing native in the default build, the verbs library where the feature asks for it.
//!
//! The feature's build has a target folder of its own, so that it never stands where other tests look for the default one.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate_tests::{probe, tools};

const SONAME: &str = "libibverbs.so.1";

fn needed(readelf: &Path, binary: &Path) -> Vec<String> {
    let output = Command::new(readelf)
        .args(["--dynamic", "--wide"])
        .arg(binary)
        .env("LC_ALL", "C")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text.lines().filter(|line| line.contains("(NEEDED)"));
    names
        .map(|line| line.split(['[', ']']).nth(1).unwrap().to_owned())
        .collect()
}

/// Builds `probe` with the feature, in the profile of this test.
fn with_feature() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    // A test program lies in TARGET/PROFILE/deps.
    let target = own.ancestors().nth(3).unwrap().join("with-ibverbs");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--package", "lockgate-probe"])
        .args(["--features", "ibverbs", "--target-dir"])
        .arg(&target)
        .env_remove("LOCKGATE_VERBS_LINK_STUB")
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        command.arg("--release");
        "release"
    };
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    target.join(profile).join("probe")
}

#[test]
fn only_the_feature_makes_the_probe_need_the_verbs_library() {
    let Ok(readelf) = tools::require_tool("readelf") else {
        return;
    };
    let default = needed(&readelf, probe::binary());
    assert!(
        default.iter().any(|name| name.starts_with("libc.so")),
        "{default:?}"
    );
    assert!(!default.iter().any(|name| name == SONAME), "{default:?}");

    let found = Command::new("pkg-config")
        .args(["--exists", "libibverbs"])
        .status();
    if !found.is_ok_and(|status| status.success()) {
        tools::skip(
            "verbs",
            "pkg-config finds no libibverbs; install libibverbs-dev and pkg-config",
        );
        return;
    }
    let native = needed(&readelf, &with_feature());
    assert!(native.iter().any(|name| name == SONAME), "{native:?}");
}
