//! `probe check` where the kernel shows devices and something between them and the process is missing or does not fit.
//!
//! The devices are made: a tree that the real library reads, and nodes that nobody opens. Everything between, library, drivers, nodes,
//! permissions and limits, is real. Needs root, `unshare`, a C compiler and libibverbs with its drivers; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

mod check_support;

use check_support::{Fake, MLX5, Real, Stage, for_machine, real};

const FOREIGN: u16 = if cfg!(target_arch = "aarch64") {
    62
} else {
    183
};
/// Nobody, without any capability.
const PLAIN_USER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups";

fn driver_file(real: &Real, abi: u64) -> std::path::PathBuf {
    real.drivers.join(format!("libmlx5-rdmav{abi}.so"))
}

#[test]
fn a_sound_device_is_usable_and_its_gid_is_chosen_by_rule() {
    let Some(_) = real() else { return };
    let report = { Stage::new().mlx5().run("check --json") };
    report.fails(0, &[]);
    assert_eq!(report.verdicts("ok"), ["mlx5_0: device-usable"]);
    let document = report.document();
    let device = &document["sysfs"]["devices"][0];
    assert_eq!(device["firmware"], "16.35.2000");
    assert_eq!(device["pci"], "0000:17:00.0");
    assert_eq!(device["numa"], 1);
    assert_eq!(device["needs_driver"], "mlx5");
    assert_eq!(device["node"]["file"]["mode"], "0666");
    let port = &device["ports"][0];
    assert_eq!(port["state"], "ACTIVE");
    assert_eq!(port["choice"]["index"], 2, "RoCE v2 of the IPv4 address");
    assert_eq!(document["library"]["enumerated"][0]["name"], "mlx5_0");
    assert_eq!(document["trials"], serde_json::Value::Null);
}

#[test]
fn no_configuration_folder_is_named_with_its_package() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let etc = real.config.parent().unwrap().to_owned();
    stage
        .mlx5()
        .overlay(&etc)
        .line(format!("rm -r {}", real.config.display()));
    let report = stage.run("check --json");
    report.fails(5, &["host: config-missing", "mlx5_0: driver-missing"]);
    report.tells("config-missing", "ibverbs-providers");
    report.tells("config-missing", "No such file");
}

#[test]
fn a_driver_package_that_is_missing_is_told_with_both_counts() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    stage
        .mlx5()
        .overlay(&real.drivers)
        .line(format!("rm {}/*", real.drivers.display()));
    let report = stage.run("check --json");
    report.fails(5, &["mlx5_0: driver-missing"]);
    report.tells("driver-missing", "in sysfs: 1; enumerated: 0");
    report.tells("driver-missing", "ibverbs-providers");
    // The others are configured, too, and nothing needs them.
    report.tells("driver-unneeded", "bnxt_re");
    let note = report.verdicts("note");
    assert!(
        note.contains(&"host: driver-unneeded".to_owned()),
        "{note:?}"
    );
}

#[test]
fn drivers_that_nothing_needs_are_harmless_when_they_are_missing() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let keep = driver_file(&real, real.abi);
    let keep = keep.file_name().unwrap().to_str().unwrap();
    stage.mlx5().overlay(&real.drivers);
    stage.line(format!(
        "cd {}; for f in *; do [ $f = {keep} ] || rm $f; done",
        real.drivers.display()
    ));
    let report = stage.run("check --json");
    report.fails(0, &[]);
    assert_eq!(report.verdicts("ok"), ["mlx5_0: device-usable"]);
    report.tells("driver-unneeded", "harmless");
}

#[test]
fn a_driver_that_no_file_names_is_missing_too() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    stage
        .mlx5()
        .overlay(&real.config)
        .line(format!("rm {}/mlx5.driver", real.config.display()));
    let report = stage.run("check --json");
    report.fails(5, &["mlx5_0: driver-missing"]);
    report.tells("driver-missing", "no file names its driver mlx5");
}

#[test]
fn a_driver_of_another_private_abi_is_told_by_its_file_name() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let (from, to) = (driver_file(&real, real.abi), driver_file(&real, 50));
    stage
        .mlx5()
        .overlay(&real.drivers)
        .line(format!("mv {} {}", from.display(), to.display()));
    let report = stage.run("check --json");
    report.fails(5, &["mlx5_0: provider-abi"]);
    report.tells(
        "provider-abi",
        &format!("the private ABI 50, the library {}", real.abi),
    );
}

/// A driver linked against a stand-in for another build of the library.
fn foreign_build(
    stage: &Stage,
    real: &Real,
    abi: u64,
    versions: &str,
    more: &[&str],
) -> std::path::PathBuf {
    let script = stage.path("versions");
    std::fs::write(&script, versions).unwrap();
    let register = format!("-DREGISTER=verbs_register_driver_{abi}");
    let script = format!("-Wl,--version-script={}", script.display());
    let stub = stage.library(
        "stub.c",
        "stub.so",
        &[&register, "-Wl,-soname,libibverbs.so.1", &script],
    );
    let stub = stub.display().to_string();
    let mut options = vec![register.as_str(), "-DPREFIX=\"mlx5_\""];
    options.extend(more);
    options.push(&stub);
    stage.library(
        "provider.c",
        &format!("libmlx5-rdmav{}.so", real.abi),
        &options,
    )
}

#[test]
fn a_driver_of_another_private_abi_is_told_by_what_it_needs() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let versions = "IBVERBS_PRIVATE_50 { global: verbs_register_driver_50; local: *; };";
    let driver = foreign_build(&stage, &real, 50, versions, &[]);
    stage.mlx5().replace(&driver_file(&real, real.abi), &driver);
    let report = stage.run("check --json");
    report.fails(5, &["mlx5_0: provider-abi"]);
    report.tells("provider-abi", "needs IBVERBS_PRIVATE_50");
}

#[test]
fn a_driver_that_needs_a_missing_symbol_version_is_told() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let versions = format!(
        "IBVERBS_1.99 {{ global: ibv_future_call; }};\n\
         IBVERBS_PRIVATE_{abi} {{ global: verbs_register_driver_{abi}; local: *; }};",
        abi = real.abi
    );
    let driver = foreign_build(&stage, &real, real.abi, &versions, &["-DFUTURE"]);
    stage.mlx5().replace(&driver_file(&real, real.abi), &driver);
    let report = stage.run("check --json");
    report.fails(5, &["mlx5_0: provider-versions"]);
    report.tells("provider-versions", "IBVERBS_1.99 of libibverbs.so.1");
    // The library's own words would not have helped: it tries a second place and tells of that one only.
    let messages = report.document()["library"]["messages"].to_string();
    assert!(
        messages.contains("cannot open shared object file"),
        "{messages}"
    );
    assert!(!messages.contains("IBVERBS_1.99"), "{messages}");
}

#[test]
fn a_driver_of_another_architecture_is_told() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let file = driver_file(&real, real.abi);
    let foreign = stage.path("foreign.so");
    for_machine(&file, &foreign, FOREIGN);
    let report = stage.mlx5().replace(&file, &foreign).run("check --json");
    report.fails(5, &["mlx5_0: provider-wrong-arch"]);
}

#[test]
fn a_driver_that_is_damaged_or_lacks_a_library_is_broken() {
    let Some(real) = real() else { return };
    let file = driver_file(&real, real.abi);
    let mut stage = Stage::new();
    let damaged = stage.path("damaged.so");
    std::fs::write(&damaged, "nothing of the sort").unwrap();
    let report = stage.mlx5().replace(&file, &damaged).run("check --json");
    report.fails(5, &["mlx5_0: provider-broken"]);
    report.tells("provider-broken", "not an ELF file");
    let mut stage = Stage::new();
    let gone = stage.library(
        "stub.c",
        "libgone.so.1",
        &["-DREGISTER=unused", "-Wl,-soname,libgone.so.1"],
    );
    let gone = gone.display().to_string();
    let name = file.file_name().unwrap().to_str().unwrap();
    let driver = stage.driver(&real, "mlx5_", name, &["-Wl,--no-as-needed", &gone]);
    let report = stage.mlx5().replace(&file, &driver).run("check --json");
    report.fails(5, &["mlx5_0: provider-broken"]);
    report.tells("provider-broken", "libgone.so.1");
}

#[test]
fn a_driver_that_crashes_on_load_is_caught_by_name() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let crash = stage.library("ends.c", "crash.so", &["-DABORT"]);
    let report = stage
        .mlx5()
        .replace(&driver_file(&real, real.abi), &crash)
        .run("check --json");
    report.fails(5, &["mlx5: provider-crash", "mlx5_0: device-unseen"]);
    report.tells("provider-crash", "SIGABRT");
    report.tells("provider-crash", "mlx5.driver");
}

#[test]
fn a_driver_that_hangs_on_load_is_caught_by_name() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let hang = stage.library("ends.c", "hang.so", &["-DHANG"]);
    stage.mlx5().replace(&driver_file(&real, real.abi), &hang);
    // It returns at all: the limit held, for the library and then for each driver.
    let report = stage.run("check --json");
    report.fails(5, &["mlx5: provider-hang", "mlx5_0: device-unseen"]);
    report.tells("provider-hang", "was still not done after");
}

#[test]
fn a_missing_node_for_one_of_two_devices_leaves_the_other_usable() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5().device(&Fake {
        name: "mlx5_1",
        ..MLX5
    });
    let report = stage.run("check --json");
    report.fails(4, &["mlx5_1: node-missing"]);
    assert_eq!(report.verdicts("ok"), ["mlx5_0: device-usable"]);
    report.tells("node-missing", "/dev/infiniband/uverbs1 is not there");
    let summary = &report.document()["summary"];
    assert_eq!(summary["devices"], 2);
    assert_eq!(summary["enumerated"], 1);
    assert_eq!(summary["usable"], serde_json::json!(["mlx5_0"]));
    // Asked for the sound one only, nothing is wrong; asked for one that is not there, everything is.
    stage.run("check --json --device mlx5_0").fails(0, &[]);
    let report = stage.run("check --json --device mlx5_7");
    report.fails(4, &["host: no-device"]);
    report.tells("no-device", "has no mlx5_7");
}

#[test]
fn a_node_that_may_not_be_opened_is_told_with_mode_and_owner() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5().line("chmod 600 /dev/infiniband/uverbs0");
    stage.run("check --json").fails(0, &[]);
    stage.wrapper = PLAIN_USER.to_owned();
    let report = stage.run("check --json");
    report.fails(7, &["mlx5_0: node-denied"]);
    report.tells(
        "node-denied",
        "mode 0600, owner 0, group 0; this is user 65534",
    );
    report.tells("node-denied", "EACCES");
}

#[test]
fn a_mount_that_forbids_devices_is_told() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5().line("mount -o remount,bind,nodev /dev");
    let report = stage.run("check --json");
    report.fails(7, &["mlx5_0: node-denied"]);
    report.tells("node-denied", "nodev");
}

#[test]
fn a_node_of_another_device_is_stale() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage
        .device(&MLX5)
        .dev()
        .line("mknod -m 666 /dev/infiniband/uverbs0 c 1 5");
    let report = stage.run("check --json");
    report.fails(4, &["mlx5_0: node-stale"]);
    report.tells("node-stale", "1:5, sysfs says 1:3");
    let mut stage = Stage::new();
    stage
        .device(&MLX5)
        .dev()
        .line("echo > /dev/infiniband/uverbs0");
    stage.run("check --json").fails(4, &["mlx5_0: node-stale"]);
}

#[test]
fn devices_without_the_module_for_programs_are_told() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5();
    std::fs::remove_dir_all(stage.path("sys/class/infiniband_verbs")).unwrap();
    let report = stage.run("check --json");
    assert_eq!(
        report.verdicts("failure")[0],
        "host: module-missing",
        "{}",
        report.stdout
    );
    assert_eq!(report.code, 4);
    report.tells("module-missing", "modprobe ib_uverbs");
}

#[test]
fn ports_and_gids_that_carry_nothing_are_told() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    let down = Fake {
        state: "1: DOWN",
        ..MLX5
    };
    let report = stage
        .device(&down)
        .dev()
        .node("uverbs0")
        .run("check --json");
    report.fails(4, &["mlx5_0: port-down"]);
    for (gids, code) in [
        (&MLX5.gids[..2], "mlx5_0: gid-link-local"),
        (&MLX5.gids[..1], "mlx5_0: gid-none"),
    ] {
        let mut stage = Stage::new();
        let report = stage
            .device(&Fake { gids, ..MLX5 })
            .dev()
            .node("uverbs0")
            .run("check --json");
        report.fails(0, &[]);
        assert!(
            report.verdicts("warning").contains(&code.to_owned()),
            "{code}"
        );
    }
}

#[test]
fn a_small_limit_on_locked_memory_is_a_failure_for_a_plain_user_only() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5();
    stage.wrapper = "prlimit --memlock=65536:65536".to_owned();
    stage.run("check --json").fails(0, &[]);
    stage.wrapper = format!("prlimit --memlock=65536:65536 {PLAIN_USER}");
    let report = stage.run("check --json");
    report.fails(8, &["process: memlock-low"]);
    report.tells(
        "memlock-low",
        "soft 65536 bytes, hard 65536 bytes; no CAP_IPC_LOCK",
    );
    let memlock = &report.document()["process"]["memlock"];
    assert_eq!(memlock["soft"], 65536);
    // Without a device it is a warning: nothing fails for it.
    let mut stage = Stage::new();
    let sys = stage.path("sys");
    stage.env("SYSFS_PATH", sys).wrapper = format!("prlimit --memlock=65536:65536 {PLAIN_USER}");
    let report = stage.run("check --json");
    report.fails(4, &["host: no-device"]);
    assert!(
        report
            .verdicts("warning")
            .contains(&"process: memlock-low".to_owned())
    );
}

#[test]
fn a_missing_capability_for_raw_packets_is_a_warning_with_three_remedies() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5();
    stage.wrapper = "setpriv --bounding-set -net_raw --inh-caps -net_raw".to_owned();
    let report = stage.run("check --json");
    report.fails(0, &[]);
    let warnings = report.verdicts("warning");
    assert!(
        warnings.contains(&"process: net-raw-missing".to_owned()),
        "{warnings:?}"
    );
    report.tells("net-raw-missing", "--cap-add NET_RAW");
}

#[test]
fn switches_that_change_what_can_be_relied_on_are_warnings() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    let report = stage
        .mlx5()
        .env("RDMAV_ALLOW_DISASSOC_DESTROY", "1")
        .run("check --json");
    report.fails(0, &[]);
    report.tells("switch-unsafe", "RDMAV_ALLOW_DISASSOC_DESTROY=1");
}

#[test]
fn a_software_device_of_a_driver_named_in_the_environment_is_usable() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let soft = Fake {
        name: "fixture0",
        kernel_driver: None,
        ..MLX5
    };
    stage.device(&soft).dev().node("uverbs0");
    let report = stage.run("check --json");
    report.fails(5, &["fixture0: device-unseen"]);
    report.tells(
        "device-unseen",
        "no userspace device-specific driver found for fixture0",
    );
    let file = format!("libfixture-rdmav{}.so", real.abi);
    stage.driver(&real, "fixture", &file, &[]);
    let named = stage.path("libfixture");
    let report = stage.env("IBV_DRIVERS", named).run("check --json");
    report.fails(0, &[]);
    assert_eq!(report.verdicts("ok"), ["fixture0: device-usable"]);
    report.tells("switch-unsafe", "IBV_DRIVERS");
    // Its driver refuses to open: a trial tells that, and only a trial does.
    let report = stage.run("check --json --try");
    report.fails(6, &["fixture0: try-failed"]);
    report.tells("try-failed", "EOPNOTSUPP");
}

#[test]
fn a_driver_that_crashes_when_its_device_is_opened_is_a_finding_of_the_trial() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let name = format!("libmlx5-rdmav{}.so", real.abi);
    let driver = stage.driver(&real, "mlx5_", &name, &["-DABORT_OPEN"]);
    stage.mlx5().replace(&driver_file(&real, real.abi), &driver);
    stage.run("check --json").fails(0, &[]);
    let report = stage.run("check --json --try");
    report.fails(6, &["mlx5_0: try-failed"]);
    report.tells("try-failed", "trying open on mlx5_0: ended by SIGABRT");
}
