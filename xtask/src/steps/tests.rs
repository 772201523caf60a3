//! Tests of the runner, over small shell commands that stand for steps.

use std::sync::atomic::{AtomicU32, Ordering};

use super::record::Totals;
use super::*;

fn runner() -> Runner<Vec<u8>> {
    Runner {
        grace: Duration::from_millis(200),
        ..Runner::new(Vec::new(), Required::default(), &std::env::temp_dir())
    }
}

/// A folder for the record of one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("xtask-record-{}-{number}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn finish(runner: &mut Runner<Vec<u8>>) -> Result<bool> {
    super::finish(runner, &Scratch::new().0)
}

fn shell(script: &str) -> Invocation {
    Invocation::new("sh", ["-c", script])
}

const SOUND: &str = "     Running tests/a.rs (target/debug/deps/a-1)\n\nrunning 2 tests\ntest x ... ok\ntest y ... ok\n\n\
                     test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";

#[test]
fn output_is_passed_on_and_recorded_in_the_order_in_which_it_was_written() {
    let mut runner = runner();
    let script = "echo one; echo two >&2; echo three; printf '\\377'";
    let record = runner
        .run(Step::command("g", "three lines", shell(script)))
        .unwrap();
    assert_eq!(record.output, b"one\ntwo\nthree\n\xff");
    assert_eq!(
        (record.exit.clone(), record.passed()),
        (Exit::Code(0), true)
    );
    let shown = String::from_utf8_lossy(runner.sink());
    assert!(shown.contains("== three lines\n$ sh -c "), "{shown}");
    assert!(shown.contains("one\ntwo\nthree\n"), "{shown}");
}

#[test]
fn output_larger_than_a_pipe_is_whole() {
    let mut runner = runner();
    let record = runner
        .run(Step::command(
            "g",
            "much",
            shell("head -c 300000 /dev/zero"),
        ))
        .unwrap();
    assert_eq!(record.output.len(), 300_000);
}

#[test]
fn an_exit_code_a_signal_and_a_missing_program_are_three_failures() {
    let mut runner = runner();
    for (invocation, exit, fault) in [
        (shell("exit 7"), Exit::Code(7), "exit code 7"),
        (shell("kill -9 $$"), Exit::Signal(9), "ended by signal 9"),
    ] {
        let record = runner.run(Step::command("g", "n", invocation)).unwrap();
        assert_eq!(
            (record.exit.clone(), record.faults.as_slice()),
            (exit, [fault.to_owned()].as_slice())
        );
    }
    let record = runner
        .run(Step::command(
            "g",
            "n",
            Invocation::new("/no/such/program", ["x"]),
        ))
        .unwrap();
    assert!(matches!(record.exit, Exit::Impossible(_)));
    assert!(
        record.faults[0].starts_with("could not start /no/such/program: "),
        "{:?}",
        record.faults
    );
}

#[test]
fn a_process_left_behind_is_reported_and_does_not_hang_the_run() {
    let mut runner = runner();
    let record = runner
        .run(Step::command("g", "n", shell("sleep 3 & echo started")))
        .unwrap();
    assert_eq!(record.exit, Exit::Code(0));
    assert_eq!(record.output, b"started\n");
    assert_eq!(
        record.faults,
        ["a process that it started outlived it and still holds its output"]
    );
    assert!(
        record.duration < Duration::from_secs(2),
        "{:?}",
        record.duration
    );
}

#[test]
fn a_process_left_behind_that_never_stops_writing_does_not_hang_the_run_either() {
    let mut runner = runner();
    let script = "i=0; while [ $i -lt 30000 ]; do echo $i || exit; i=$((i + 1)); done & exit 0";
    let record = runner.run(Step::command("g", "n", shell(script))).unwrap();
    assert!(
        record.duration < Duration::from_secs(2),
        "{:?}",
        record.duration
    );
}

#[test]
fn variables_are_set_and_taken_away() {
    let mut runner = runner();
    let invocation = shell("echo $A-${PATH-none}")
        .with("A", "b c")
        .without("PATH");
    // The shell is found before PATH is taken away from it.
    let invocation = Invocation {
        program: "/bin/sh".to_owned(),
        ..invocation
    };
    let record = runner.run(Step::command("g", "n", invocation)).unwrap();
    let output = String::from_utf8_lossy(&record.output);
    assert!(output.starts_with("b c-"), "{output}");
    assert!(
        !output.contains(&std::env::var("PATH").unwrap()),
        "{output}"
    );
}

#[test]
fn an_invocation_is_shown_as_it_would_be_typed() {
    let invocation = Invocation::new("/usr/bin/cargo", ["test", "a b", "it's"])
        .with("X", "1")
        .without("Y");
    assert_eq!(invocation.to_string(), r"X=1 cargo test 'a b' 'it'\''s'");
}

#[test]
fn a_check_passes_without_faults_and_its_words_are_recorded() {
    let mut runner = runner();
    let record = runner
        .run(Step::check("g", "n", |out| {
            writeln!(out, "looked").map_err(|error| Error::new("write", error))?;
            Ok(Vec::new())
        }))
        .unwrap();
    assert_eq!(
        (record.output.as_slice(), record.passed(), &record.exit),
        (b"looked\n".as_slice(), true, &Exit::Checked)
    );
    let record = runner
        .run(Step::check("g", "n", |_| Ok(vec!["bad".to_owned()])))
        .unwrap();
    assert_eq!(record.faults, ["bad"]);
    let record = runner
        .run(Step::check("g", "n", |_| Err(Error::new("read x", "gone"))))
        .unwrap();
    assert_eq!(record.exit, Exit::Impossible("read x: gone".to_owned()));
    assert!(!record.passed());
}

#[test]
fn tests_that_skip_themselves_count_as_skipped() {
    let mut runner = runner();
    let script =
        format!("printf '%s' '{SOUND}'; echo 'SKIP namespaces: EPERM' >> \"$LOCKGATE_SKIP_LOG\"");
    let record = runner
        .run(Step::tests("test", "n", shell(&script)))
        .unwrap();
    assert_eq!(record.faults, Vec::<String>::new());
    assert_eq!(
        record.totals(),
        Totals {
            passed: 1,
            failed: 0,
            skipped: 1
        }
    );
    assert!(finish(&mut runner).unwrap());
    let shown = String::from_utf8_lossy(runner.sink());
    assert!(
        shown.contains("\nSKIP namespaces: EPERM (1 test)\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("\n1 passed, 0 failed, 1 skipped\n"),
        "{shown}"
    );
}

#[test]
fn a_skip_that_was_only_printed_counts_too() {
    let mut runner = runner();
    let script = format!("echo 'SKIP tshark: absent' >&2; printf '%s' '{SOUND}'");
    let record = runner
        .run(Step::tests("test", "n", shell(&script)))
        .unwrap();
    assert_eq!(
        record.totals(),
        Totals {
            passed: 1,
            failed: 0,
            skipped: 1
        }
    );
}

#[test]
fn a_skip_of_a_required_group_fails_the_step() {
    let mut runner = runner();
    runner.required = Required::require(&["namespaces"]);
    let script = format!(
        "printf '%s' '{SOUND}'; test \"$LOCKGATE_REQUIRE\" = namespaces || exit 3; echo 'SKIP namespaces: EPERM' >> \
         \"$LOCKGATE_SKIP_LOG\""
    );
    let record = runner
        .run(Step::tests("test", "n", shell(&script)))
        .unwrap();
    assert_eq!(
        record.faults,
        ["1 tests of a required group did not run: SKIP namespaces: EPERM"]
    );
    assert!(!finish(&mut runner).unwrap());
}

#[test]
fn the_skips_of_one_step_are_not_those_of_the_next() {
    let mut runner = runner();
    let skipping =
        format!("printf '%s' '{SOUND}'; echo 'SKIP tshark: absent' >> \"$LOCKGATE_SKIP_LOG\"");
    runner
        .run(Step::tests("test", "first", shell(&skipping)))
        .unwrap();
    let record = runner
        .run(Step::tests(
            "test",
            "second",
            shell(&format!("printf '%s' '{SOUND}'")),
        ))
        .unwrap();
    assert_eq!(record.skips, []);
}

#[test]
fn more_skips_than_passed_tests_and_malformed_skips_are_faults() {
    let mut runner = runner();
    let script = format!(
        "printf '%s' '{SOUND}'; for i in 1 2 3; do echo 'SKIP a: b' >> \"$LOCKGATE_SKIP_LOG\"; done"
    );
    let record = runner
        .run(Step::tests("test", "n", shell(&script)))
        .unwrap();
    assert_eq!(record.faults, ["3 skips were reported by 2 passed tests"]);
    let script = format!("printf '%s' '{SOUND}'; echo 'skipped' >> \"$LOCKGATE_SKIP_LOG\"");
    let record = runner
        .run(Step::tests("test", "n", shell(&script)))
        .unwrap();
    assert_eq!(
        record.faults,
        ["read the skip log: `skipped` is not `SKIP <group>: <reason>`"]
    );
}

#[test]
fn a_test_command_that_ran_no_target_fails() {
    let mut runner = runner();
    let record = runner
        .run(Step::tests("test", "n", shell("echo nothing")))
        .unwrap();
    assert_eq!(record.faults, ["no test target ran"]);
    assert_eq!(
        record.totals(),
        Totals {
            passed: 0,
            failed: 1,
            skipped: 0
        }
    );
}

#[test]
fn failed_tests_are_named_and_counted_once() {
    let mut runner = runner();
    let output = SOUND
        .replace("y ... ok", "y ... FAILED")
        .replace("ok. 2 passed; 0 failed", "FAILED. 1 passed; 1 failed");
    let record = runner
        .run(Step::tests(
            "test",
            "n",
            shell(&format!("printf '%s' '{output}'; exit 101")),
        ))
        .unwrap();
    assert_eq!(record.faults, ["exit code 101", "a: tests/a.rs: y"]);
    assert_eq!(
        record.totals(),
        Totals {
            passed: 1,
            failed: 1,
            skipped: 0
        }
    );
}

#[test]
fn a_build_that_fails_shows_in_the_closing_line() {
    let mut runner = runner();
    runner
        .run(Step::command("clippy", "clippy", shell("exit 101")))
        .unwrap();
    assert!(!finish(&mut runner).unwrap());
    assert!(String::from_utf8_lossy(runner.sink()).ends_with("\n0 passed, 1 failed, 0 skipped\n"));
}

#[test]
fn a_lenient_step_warns_and_does_not_fail_the_run() {
    let mut runner = runner();
    runner
        .run(Step::command("packages", "install", shell("exit 100")).leniently())
        .unwrap();
    assert!(finish(&mut runner).unwrap());
    let shown = String::from_utf8_lossy(runner.sink());
    assert!(
        shown.contains("\nWARNING install: exit code 100\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("\n0 passed, 0 failed, 0 skipped\n"),
        "{shown}"
    );
}

#[test]
fn the_record_of_a_run_has_a_log_a_step_and_replaces_the_last() {
    let scratch = Scratch::new();
    let mut first = runner();
    first
        .run(Step::command("g", "one", shell("echo 1")))
        .unwrap();
    first
        .run(Step::command(
            "g",
            "two",
            shell("echo 2; exit 4").with("A", "b").without("C"),
        ))
        .unwrap();
    super::finish(&mut first, &scratch.0).unwrap();
    assert_eq!(std::fs::read(scratch.0.join("02.log")).unwrap(), b"2\n");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(scratch.0.join("steps.json")).unwrap()).unwrap();
    let two = &report["steps"][1];
    assert_eq!(two["exit"]["code"], 4);
    assert_eq!(
        two["command"]["environment"],
        serde_json::json!({ "A": "b", "C": null })
    );
    assert_eq!(two["faults"], serde_json::json!(["exit code 4"]));

    let mut second = runner();
    second
        .run(Step::command("g", "one", shell("true")))
        .unwrap();
    super::finish(&mut second, &scratch.0).unwrap();
    assert!(!scratch.0.join("02.log").exists());
}
