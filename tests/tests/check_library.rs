//! `probe check` where the library itself is missing, broken, foreign, there twice, or does not come back.
//!
//! Each case is made for real in a mount namespace. Needs root, `unshare`, a C compiler and libibverbs; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

mod check_support;

use std::path::Path;

use check_support::{Stage, binary, for_machine, plain, real, vendored};

/// AArch64, which no library on this host is for; on such a host the other one.
const FOREIGN: u16 = if cfg!(target_arch = "aarch64") {
    62
} else {
    183
};

#[test]
fn a_host_without_rdma_says_so_and_nothing_worse() {
    let Some(_) = real() else { return };
    // An empty tree in place of the host's own, which may have devices.
    let mut stage = Stage::new();
    let sys = stage.path("sys");
    let report = stage.env("SYSFS_PATH", sys).run("check --json");
    report.fails(4, &["host: no-device"]);
    report.tells("no-device", "rdma_rxe");
    assert_eq!(report.document()["summary"]["devices"], 0);
}

#[test]
fn a_missing_library_is_named_with_its_package() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let folder = real.library.parent().unwrap().to_owned();
    stage
        .mlx5()
        .overlay(&folder)
        .line(format!("rm {}/libibverbs.so*", folder.display()));
    let report = stage.run("check --json");
    report.fails(5, &["library: library-missing", "mlx5_0: device-unseen"]);
    report.tells("library-missing", "libibverbs1");
    report.tells("library-missing", "cannot open shared object file");
}

#[test]
fn a_library_of_another_architecture_is_told_from_a_missing_one() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let foreign = stage.path("foreign.so");
    for_machine(&real.library, &foreign, FOREIGN);
    stage.mlx5().replace(&real.library, &foreign);
    let report = stage.run("check --json");
    report.fails(5, &["library: library-wrong-arch", "mlx5_0: device-unseen"]);
    let name = if FOREIGN == 183 {
        "64-bit aarch64"
    } else {
        "64-bit x86_64"
    };
    report.tells("library-wrong-arch", name);
}

#[test]
fn a_damaged_library_is_told() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let damaged = stage.path("damaged.so");
    std::fs::write(&damaged, "\x7fELF and nothing more").unwrap();
    let report = stage.replace(&real.library, &damaged).run("check --json");
    let failures = report.verdicts("failure");
    assert_eq!(failures[0], "library: library-damaged", "{}", report.stdout);
    assert_eq!(report.code, 5);
}

fn with_library_that(option: &str) -> (Stage, check_support::Report) {
    let mut stage = Stage::new();
    let folder = stage.path("lib");
    std::fs::create_dir(&folder).unwrap();
    stage.library("ends.c", "lib/libibverbs.so.1", &[option]);
    stage.env("LD_LIBRARY_PATH", folder);
    let report = stage.run("check --json");
    (stage, report)
}

#[test]
fn a_library_that_crashes_on_load_is_a_finding() {
    let Some(_) = real() else { return };
    let (_stage, report) = with_library_that("-DABORT");
    assert_eq!(
        report.verdicts("failure")[0],
        "library: library-crash",
        "{}",
        report.stdout
    );
    assert_eq!(report.code, 5);
    report.tells("library-crash", "SIGABRT");
    let document = report.document();
    assert_eq!(
        document["library"]["search"]["found"]["how"],
        "library-path"
    );
    assert_eq!(document["library"]["loading"]["end"]["how"], "crashed");
}

#[test]
fn a_library_that_hangs_on_load_is_ended_at_the_limit() {
    let Some(_) = real() else { return };
    let (_stage, report) = with_library_that("-DHANG");
    assert_eq!(
        report.verdicts("failure")[0],
        "library: library-hang",
        "{}",
        report.stdout
    );
    assert_eq!(report.code, 5);
    report.tells("library-hang", "was still not done after");
}

#[test]
fn two_copies_in_one_process_are_found_whatever_their_names() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let copy = stage.path("libanything.so");
    vendored(&real.library, &copy);
    let report = stage.mlx5().env("LD_PRELOAD", &copy).run("check --json");
    // The drivers register with one copy, and the other is asked for devices.
    report.fails(5, &["library: library-two-copies", "mlx5_0: device-unseen"]);
    report.tells("library-two-copies", "libanything.so");
    report.tells("library-two-copies", &real.library.display().to_string());
    // A driver that brings one along does the same, and is loaded only because a device needs it.
    let mut stage = Stage::new();
    let copy = stage.path("libvendored.so1");
    vendored(&real.library, &copy);
    let file = format!("libmlx5-rdmav{}.so", real.abi);
    let run_path = format!("-Wl,-rpath,{}", stage.path("").display());
    let copy = copy.display().to_string();
    let more = ["-Wl,--no-as-needed", &copy, &run_path];
    let driver = stage.driver(&real, "mlx5_", &file, &more);
    let report = stage
        .mlx5()
        .replace(&real.drivers.join(&file), &driver)
        .run("check --json");
    report.fails(5, &["library: library-two-copies", "mlx5_0: device-unseen"]);
    report.tells("library-two-copies", "libvendored.so1");
}

#[test]
fn without_proc_the_child_can_not_start_and_that_is_told() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    let empty = stage.path("empty");
    std::fs::create_dir(&empty).unwrap();
    let report = stage
        .replace(Path::new("/proc"), &empty)
        .run("check --json");
    assert_eq!(
        report.verdicts("failure")[0],
        "library: library-broken",
        "{}",
        report.stdout
    );
    report.tells("library-broken", "can't be started");
}

#[test]
fn in_a_root_without_anything_the_default_build_still_starts() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let root = stage.path("root");
    let script = format!(
        "set -eu; R={root}; mkdir -p $R/proc $R/lib64 $R/etc; cp {probe} $R/probe
         ldd {probe} | sed -n 's/.*=> \\(\\/[^ ]*\\) .*/\\1/p' | while read f; do mkdir -p $R$(dirname $f); cp $f $R$f; done
         L=$(readlink -f /lib64/ld-linux-*); cp $L $R/lib64/$(basename /lib64/ld-linux-*)
         mount -t proc none $R/proc; exec chroot $R /probe --json check",
        root = root.display(),
        probe = binary().display(),
    );
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .env_clear()
        .env("PATH", check_support::path())
        .output()
        .unwrap();
    let report = check_support::Report::of(output);
    report.fails(5, &["library: library-missing", "host: no-device"]);
    // No device needs a driver, so the missing folder is a warning.
    assert!(
        report
            .verdicts("warning")
            .contains(&"host: config-missing".to_owned())
    );
}

#[test]
fn the_parent_is_never_the_one_that_loads() {
    let Some(real) = real() else { return };
    let output = plain().arg("check").output().unwrap();
    let report = check_support::Report::of(output);
    let document = report.document();
    let mapped = document["library"]["mapped"].as_array().unwrap();
    assert_eq!(mapped.len(), 1, "{document:#}");
    assert_eq!(mapped[0], real.library.display().to_string());
}
