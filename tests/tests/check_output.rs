//! How `probe check` behaves as a program: what it opens and loads, how it looks, how long it takes, what a bundle has in it.
//!
//! Needs root, `unshare`, `strace`, `tar` and libibverbs with its drivers; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

mod check_support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use check_support::{Fake, Folder, MLX5, Report, Stage, binary, path, real};
use lockgate_tests::tools;

/// A line of `strace -f`: the process, and the call.
fn calls(trace: &str) -> Vec<(u32, &str)> {
    trace
        .lines()
        .filter_map(|line| {
            let (pid, call) = line.split_once(' ')?;
            Some((pid.parse().ok()?, call.trim_start()))
        })
        .collect()
}

#[test]
fn the_default_run_opens_no_node_writes_nothing_and_loads_nothing_in_the_parent() {
    let Some(_) = real() else { return };
    if tools::require_tool("strace").is_err() {
        return;
    }
    let mut stage = Stage::new();
    stage.mlx5().device(&Fake {
        name: "mlx5_1",
        ..MLX5
    });
    let log = stage.path("trace");
    stage.wrapper = format!(
        "strace -f -qq -e trace=openat,open,openat2,execve,mmap,ioctl,socket,unlink,rename,mkdir,mount,setrlimit,prlimit64 -o {}",
        log.display()
    );
    let report = stage.run("check --json");
    report.fails(4, &["mlx5_1: node-missing"]);
    let trace = std::fs::read_to_string(&log).unwrap();
    let calls = calls(&trace);
    let parent = calls.first().unwrap().0;
    assert!(calls[0].1.starts_with("execve("), "{}", calls[0].1);
    let node: Vec<_> = calls
        .iter()
        .filter(|(_, call)| call.contains("/dev/infiniband"))
        .collect();
    assert!(
        node.iter().all(|(_, call)| !call.starts_with("open")),
        "{node:?}"
    );
    let writing: Vec<_> = calls
        .iter()
        .filter(|(_, call)| call.starts_with("open"))
        .filter(|(_, call)| {
            call.contains("O_WRONLY") || call.contains("O_RDWR") || call.contains("O_CREAT")
        })
        .filter(|(_, call)| !call.contains("\"/dev/null\""))
        .collect();
    assert!(writing.is_empty(), "{writing:?}");
    let changing: Vec<_> = calls
        .iter()
        .filter(|(_, call)| {
            ["unlink", "rename", "mkdir", "mount"]
                .iter()
                .any(|name| call.starts_with(name))
        })
        .collect();
    assert!(changing.is_empty(), "{changing:?}");
    // Its threads read pipes; only processes that were started by execve are children.
    let children: Vec<u32> = calls
        .iter()
        .filter(|(pid, call)| *pid != parent && call.starts_with("execve("))
        .map(|(pid, _)| *pid)
        .collect();
    assert_eq!(children.len(), 1, "one child: {children:?}");
    // Loading is opening a file, and mapping it to be executed.
    let mut executable = Vec::new();
    let mut opened = std::collections::HashMap::new();
    for (pid, call) in calls.iter().filter(|(pid, _)| !children.contains(pid)) {
        if let (Some(rest), Some((_, fd))) = (
            call.strip_prefix("openat(AT_FDCWD, \""),
            call.rsplit_once(" = "),
        ) {
            opened.insert(fd.to_owned(), rest.split('"').next().unwrap());
        }
        if call.starts_with("mmap(")
            && call.contains("PROT_EXEC")
            && !call.contains("MAP_ANONYMOUS")
        {
            let fd = call.split(", ").nth(4).unwrap();
            executable.push((*pid, opened.get(fd).copied().unwrap_or("unknown")));
        }
    }
    assert!(!executable.is_empty(), "at least the C library is mapped");
    let verbs = |file: &str| file.contains("verbs") || file.contains("rdmav");
    assert!(
        executable.iter().all(|(_, file)| !verbs(file)),
        "{executable:?}"
    );
    // The child does load it, or this test would see nothing.
    let child_loads = calls
        .iter()
        .any(|(pid, call)| children.contains(pid) && call.contains("libibverbs.so.1"));
    assert!(child_loads);
}

#[test]
fn a_trial_opens_the_node_and_only_of_the_device_that_is_named() {
    let Some(_) = real() else { return };
    if tools::require_tool("strace").is_err() {
        return;
    }
    let mut stage = Stage::new();
    stage
        .mlx5()
        .device(&Fake {
            name: "mlx5_1",
            ..MLX5
        })
        .node("uverbs1");
    let log = stage.path("trace");
    stage.wrapper = format!("strace -f -qq -e trace=openat -o {}", log.display());
    stage.run("check --json --try --device mlx5_1").document();
    let trace = std::fs::read_to_string(&log).unwrap();
    assert!(
        trace.contains("\"/dev/infiniband/uverbs1\", O_RDWR"),
        "{trace}"
    );
    assert!(!trace.contains("\"/dev/infiniband/uverbs0\", O_RDWR"));
}

fn text_of(stage: &Stage, arguments: &str) -> String {
    let output = stage.command(arguments).output().unwrap();
    Report::of(output).stdout
}

#[test]
fn the_text_fits_80_columns_and_has_no_colour_in_a_pipe() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5().device(&Fake {
        name: "mlx5_1",
        ..MLX5
    });
    let text = text_of(&stage, "check");
    // One word, such as a path, may be longer than what is left.
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(!text.contains('\x1b'));
    assert!(
        text.starts_with("RDMA: 2 devices in sysfs, 1 enumerated, 1 usable; 1 failure"),
        "{text}"
    );
    let coloured = text_of(&stage, "check --color always");
    assert!(coloured.contains("\x1b[1;31m"));
    let mut plain = coloured;
    while let Some(at) = plain.find('\x1b') {
        let end = plain[at..].find('m').unwrap();
        plain.replace_range(at..=at + end, "");
    }
    assert_eq!(
        plain.lines().count(),
        text.lines().count(),
        "colour changes no line"
    );
}

#[test]
fn a_reader_that_goes_away_is_no_crash() {
    let Some(_) = real() else { return };
    let mut child = Command::new(binary())
        .arg("check")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn every_code_has_a_text_that_fits_and_an_unknown_one_is_refused() {
    let Some(_) = real() else { return };
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../probe/schema/check-1.schema.json")).unwrap();
    let codes = schema["$defs"]["verdict"]["properties"]["code"]["enum"]
        .as_array()
        .unwrap();
    assert!(codes.len() > 40);
    for code in codes {
        let code = code.as_str().unwrap();
        let output = Command::new(binary())
            .args(["check", "--explain", code])
            .output()
            .unwrap();
        let report = Report::of(output);
        assert_eq!(report.code, 0, "{code}");
        assert!(
            report.stdout.starts_with(code) && report.stdout.lines().count() > 5,
            "{}",
            report.stdout
        );
        assert!(
            report.stdout.lines().all(|line| line.chars().count() <= 80),
            "{code}"
        );
    }
    let output = Command::new(binary())
        .args(["check", "--explain", "no-such"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn it_takes_less_than_two_seconds() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5();
    // The best of several: the others tell how busy the machine is.
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            stage.run("check --json");
            start.elapsed()
        })
        .min()
        .unwrap();
    assert!(best < Duration::from_secs(2), "{best:?}");
}

/// Unpacks a bundle with a program that is not ours.
fn unpack(bundle: &Path, folder: &Folder) -> Vec<(PathBuf, String)> {
    let done = Command::new("tar")
        .arg("-xf")
        .arg(bundle)
        .arg("-C")
        .arg(folder.path())
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let mut files = Vec::new();
    let mut folders = vec![folder.path().to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let entry = entry.unwrap().path();
            if entry.is_dir() {
                folders.push(entry);
            } else {
                let text = std::fs::read_to_string(&entry).unwrap();
                files.push((entry.strip_prefix(folder.path()).unwrap().to_owned(), text));
            }
        }
    }
    files
}

#[test]
fn a_bundle_has_nothing_private_in_it_unless_asked() {
    let Some(_) = real() else { return };
    let mut stage = Stage::new();
    stage.mlx5();
    let home = Path::new("/").join("home").join("alice").join("lib");
    stage.env("LD_LIBRARY_PATH", &home);
    let bundle = stage.path("out.tar");
    let report = stage.run(&format!("check --json --bundle {}", bundle.display()));
    report.fails(0, &[]);
    let folder = Folder::new("bundle");
    let files = unpack(&bundle, &folder);
    let names: Vec<_> = files
        .iter()
        .map(|(name, _)| name.display().to_string())
        .collect();
    for name in [
        "README.txt",
        "report.json",
        "report.txt",
        "sysfs.txt",
        "config/mlx5.driver",
        "host/proc/limits",
        "host/etc/os-release",
    ] {
        assert!(
            names.iter().any(|known| known == name),
            "{name} is not in {names:?}"
        );
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    let private = [
        "0c42:a103:00ab:cd00",
        "fe80:0000",
        "0a4d:0001",
        "secret-name",
        "alice",
    ];
    for (name, text) in &files {
        for word in private {
            assert!(!text.contains(word), "{} has {word}", name.display());
        }
        if host.len() > 2 && host != "localhost" {
            assert!(
                !text.contains(host),
                "{} has the name of the host",
                name.display()
            );
        }
    }
    let of = |wanted: &str| {
        let found = files.iter().find(|(name, _)| name == Path::new(wanted));
        found.unwrap().1.clone()
    };
    // Masked, it is still a document of the schema, and what belongs together still shows.
    let masked: serde_json::Value = serde_json::from_str(&of("report.json")).unwrap();
    assert_eq!(
        masked["sysfs"]["devices"][0]["node_guid"],
        masked["sysfs"]["devices"][0]["system_guid"]
    );
    let gids = &masked["sysfs"]["devices"][0]["ports"][0]["gids"];
    assert_eq!(gids[0]["gid"], gids[1]["gid"]);
    assert_ne!(gids[1]["gid"], gids[2]["gid"]);
    assert!(of("sysfs.txt").contains("fw_ver 16.35.2000"));
    // The same file is not written over.
    let report = stage.run(&format!("check --json --bundle {}", bundle.display()));
    assert_eq!(report.code, 1, "{}", report.stdout);
    assert!(
        report.document()["error"]["remedy"]
            .to_string()
            .contains("nothing is written over")
    );
    // Asked to, it masks nothing.
    let bundle = stage.path("open.tar");
    stage.run(&format!(
        "check --json --unmasked --bundle {}",
        bundle.display()
    ));
    let folder = Folder::new("bundle");
    let files = unpack(&bundle, &folder);
    let report = files
        .iter()
        .find(|(name, _)| name == Path::new("report.json"))
        .unwrap();
    assert!(report.1.contains("0c42:a103:00ab:cd00"));
}

#[test]
fn help_names_what_is_asked_for_by_hand() {
    let Some(_) = real() else { return };
    let output = Command::new(binary())
        .args(["check", "--help"])
        .env("PATH", path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for word in [
        "--try",
        "--bundle",
        "--unmasked",
        "--explain",
        "--device",
        "--limit",
    ] {
        assert!(text.contains(word), "{word}");
    }
    let output = Command::new(binary()).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("verify-linkage") && !text.contains("__loader"),
        "{text}"
    );
}
