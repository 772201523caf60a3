//! The binary `probe`, for tests that run it in namespaces of their own.
//!
//! Promises: it is built from this tree, in the profile of the test; where `LOCKGATE_PROBE_BUILT` is set, as in a guest without
//! Cargo, whoever set it has built it. Does not do: running it.
#![allow(clippy::expect_used, reason = "a helper that fails fails its test")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the binary.
///
/// # Panics
/// If it can't be built.
#[must_use]
pub fn binary() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(build)
}

fn build() -> PathBuf {
    // A test program lies in TARGET/PROFILE/deps.
    let own = std::env::current_exe().expect("a test knows its own path");
    let profile = own
        .ancestors()
        .nth(2)
        .expect("a test program lies in TARGET/PROFILE/deps");
    let binary = profile.join("probe");
    if std::env::var_os("LOCKGATE_PROBE_BUILT").is_some() {
        assert!(binary.is_file(), "{} was not built", binary.display());
        return binary;
    }
    let target = profile.parent().expect("a profile has a target folder");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args([
            "build",
            "--quiet",
            "--package",
            "lockgate-probe",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    let output = command.output().expect("cargo runs");
    assert!(
        output.status.success(),
        "probe can't be built: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(binary.is_file(), "{} was not built", binary.display());
    binary
}
