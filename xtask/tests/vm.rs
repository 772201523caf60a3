//! The virtual machine harness, from outside: the built binary is run as a user runs it.
//!
//! Selected by the feature `__vm`, since the first run fetches packages and each run boots or resumes a machine.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

fn vm(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("vm").args(args).stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    vm(args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
fn status(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| {
        panic!(
            "ended by a signal: {}\n{}",
            output.status,
            text(&output.stderr)
        )
    })
}

/// A folder of this test's own below the target folder, which the guest sees as well.
fn folder() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("vm.{}.{number}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn the_commands_status_and_both_outputs_come_back() {
    let output = run(&["--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!(status(&output), 7, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "out\n");
    assert!(text(&output.stderr).ends_with("err\n"));
}

#[test]
fn a_cold_boot_gives_the_same() {
    let output = run(&["--cold", "--", "sh", "-c", "echo out; exit 8"]);
    assert_eq!(status(&output), 8, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "out\n");
}

#[test]
fn statuses_of_the_shell() {
    let check = |args: &[&str], expected| {
        let output = run(args);
        assert_eq!(
            status(&output),
            expected,
            "{args:?}: {}",
            text(&output.stderr)
        );
    };
    check(&["--", "/no/such/program"], 127);
    check(&["--", "/etc/passwd"], 126);
    check(&["--", "sh", "-c", "kill -9 $$"], 137);
}

#[test]
fn both_devices_are_there_and_active() {
    let output = run(&[
        "--",
        "cat",
        "/sys/class/infiniband/rxe0/ports/1/state",
        "/sys/class/infiniband/rxe1/ports/1/state",
    ]);
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "4: ACTIVE\n4: ACTIVE\n");
}

#[test]
fn megabytes_of_output_come_back_whole() {
    const BYTES: usize = 8 << 20;
    let output = run(&[
        "--",
        "sh",
        "-c",
        "head -c 8388608 /dev/zero | tr '\\0' x; head -c 8388608 /dev/zero | tr '\\0' y >&2",
    ]);
    assert_eq!(status(&output), 0);
    assert_eq!(output.stdout.len(), BYTES);
    assert!(output.stdout.iter().all(|byte| *byte == b'x'));
    assert_eq!(
        output.stderr.iter().filter(|byte| **byte == b'y').count(),
        BYTES
    );
}

#[test]
fn output_comes_as_it_is_written() {
    let release = folder().join("release");
    // The command goes on only once this test has seen its first line: the file lies in the shared folder.
    let out = release.parent().unwrap().to_str().unwrap();
    let script = format!(
        "echo first; while [ ! -e {} ]; do sleep 0.05; done; echo second",
        release.display()
    );
    let mut child = vm(&["--out", out, "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    fs::write(&release, "").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "second");
    assert!(child.wait().unwrap().success());
}

#[test]
fn writes_are_thrown_away_but_for_those_below_out() {
    let (kept, lost) = (folder(), folder());
    let script = format!(
        "echo k >{0}/file && cat {0}/file && echo l >{1}/file && cat {1}/file",
        kept.display(),
        lost.display()
    );
    let output = run(&["--out", kept.to_str().unwrap(), "--", "sh", "-c", &script]);
    assert_eq!(text(&output.stdout), "k\nl\n", "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(kept.join("file")).unwrap(), "k\n");
    assert!(!lost.join("file").exists());
}

#[test]
fn a_process_left_behind_does_not_hold_the_run_up() {
    let output = run(&[
        "--timeout",
        "60",
        "--",
        "sh",
        "-c",
        "sleep 1000 & echo done",
    ]);
    assert_eq!(status(&output), 0, "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "done\n");
}

#[test]
fn a_run_over_its_time_is_ended_and_keeps_what_it_said() {
    let output = run(&[
        "--timeout",
        "5",
        "--",
        "sh",
        "-c",
        "echo before; sleep 1000",
    ]);
    assert_eq!(status(&output), 124);
    assert_eq!(text(&output.stdout), "before\n");
    assert!(text(&output.stderr).contains("no end within 5 s"));
}

#[test]
fn a_guest_that_panics_is_told_from_a_command_that_fails() {
    let output = run(&["--", "sh", "-c", "echo c >/proc/sysrq-trigger"]);
    assert_eq!(status(&output), 70, "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("sysrq"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn many_runs_at_once_do_not_disturb_each_other() {
    std::thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let script = format!("echo {number}; exit {number}");
                let output = run(&["--", "sh", "-c", &script]);
                assert_eq!(status(&output), number, "{}", text(&output.stderr));
                assert_eq!(text(&output.stdout), format!("{number}\n"));
            });
        }
    });
}

#[test]
fn the_emulator_does_not_outlive_a_killed_harness() {
    let mut child = vm(&["--", "sh", "-c", "echo up; sleep 1000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let emulator = child_of(child.id()).expect("the harness has an emulator");
    child.kill().unwrap();
    child.wait().unwrap();
    // The end is signalled by the kernel, but takes a moment: wait on the process itself and not on a clock.
    let pid = rustix::process::Pid::from_raw(emulator.try_into().unwrap()).unwrap();
    if let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        let mut poll = [rustix::event::PollFd::new(
            &handle,
            rustix::event::PollFlags::IN,
        )];
        let limit = rustix::event::Timespec {
            tv_sec: 30,
            tv_nsec: 0,
        };
        assert_eq!(
            rustix::event::poll(&mut poll, Some(&limit)).unwrap(),
            1,
            "{emulator} lives"
        );
    }
}

/// The one child process of `parent`.
fn child_of(parent: u32) -> Option<u32> {
    let mut text = String::new();
    fs::File::open(format!("/proc/{parent}/task/{parent}/children"))
        .ok()?
        .read_to_string(&mut text)
        .ok()?;
    text.trim().parse().ok()
}
