//! Tests of the reader of `cargo test` output, on output as cargo prints it.

use super::*;

const TWO_TARGETS: &str = "\
   Compiling lockgate v0.1.0 (/somewhere/oss-core)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.61s
     Running unittests src/lib.rs (target/debug/deps/lockgate-8c4b2f0a11223344)

running 4 tests
test errno::tests::names_are_kept ... ok
test errno::tests::zero_is_not_an_error ... FAILED
test receive::tests::slow ... ignored, needs an hour
test receive::tests::wrong ... ok

failures:

---- errno::tests::zero_is_not_an_error stdout ----

thread 'errno::tests::zero_is_not_an_error' panicked at oss-core/src/errno.rs:1:1:
assertion failed

failures:
    errno::tests::zero_is_not_an_error

test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/open_nothing.rs (target/debug/deps/open_nothing-8c4b2f0a11223344)

running 1 test
test linking_opens_nothing ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s

   Doc-tests lockgate

running 2 tests
test oss-core/src/lib.rs - (line 3) ... ok
test oss-core/src/lib.rs - (line 9) ... ok

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

running 1 test
test oss-core/src/lib.rs - (line 20) - compile fail ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.05s

all doctests ran in 0.30s; merged doctests compilation took 0.10s
";

#[test]
fn counts_are_kept_per_target() {
    let targets = parse(TWO_TARGETS);
    let seen: Vec<_> = targets
        .iter()
        .map(|target| {
            (
                target.name.as_str(),
                target.passed,
                target.failed,
                target.ignored,
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("lockgate: src/lib.rs", 2, 1, 1),
            ("open_nothing: tests/open_nothing.rs", 1, 0, 0),
            ("lockgate: doc-tests", 3, 0, 0)
        ]
    );
    assert!(
        targets.iter().all(|target| target.faults().is_empty()),
        "{targets:?}"
    );
}

#[test]
fn failures_and_ignored_tests_are_named() {
    let targets = parse(TWO_TARGETS);
    assert_eq!(targets[0].failures, ["errno::tests::zero_is_not_an_error"]);
    assert_eq!(
        targets[0].ignores,
        [(
            "receive::tests::slow".to_owned(),
            "needs an hour".to_owned()
        )]
    );
}

#[test]
fn a_target_that_died_is_a_fault() {
    let output =
        "     Running tests/a.rs (target/debug/deps/a-1)\n\nrunning 2 tests\ntest x ... ok\n";
    let targets = parse(output);
    assert_eq!(
        targets[0].faults(),
        ["a: tests/a.rs: ended without a result line"]
    );
}

#[test]
fn a_target_that_never_announced_itself_is_a_fault() {
    let targets = parse("     Running tests/a.rs (target/debug/deps/a-1)\nhello\n");
    assert_eq!(
        targets[0].faults(),
        ["a: tests/a.rs: ended without a result line"]
    );
}

#[test]
fn a_second_run_that_died_behind_a_sound_one_is_a_fault() {
    let output = "   Doc-tests a\n\nrunning 1 test\n\ntest result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered \
                  out; finished in 0.00s\n\nrunning 4 tests\n";
    assert_eq!(
        parse(output)[0].faults(),
        ["a: doc-tests: ended without a result line"]
    );
}

#[test]
fn counts_that_do_not_add_up_are_a_fault() {
    let output = "     Running tests/a.rs (target/debug/deps/a-1)\n\nrunning 3 tests\n\
                  test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    assert_eq!(
        parse(output)[0].faults(),
        ["a: tests/a.rs: announced 3 tests, reported 2"]
    );
}

#[test]
fn an_ignored_test_without_a_reason_is_a_fault() {
    let output = "     Running tests/a.rs (target/debug/deps/a-1)\n\nrunning 1 test\ntest x ... ignored\n\n\
                  test result: ok. 0 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
    assert_eq!(
        parse(output)[0].faults(),
        ["a: tests/a.rs: x is ignored without a reason"]
    );
}

#[test]
fn filtered_tests_are_not_missed() {
    let output = "     Running tests/a.rs (target/debug/deps/a-1)\n\nrunning 1 test\ntest x ... ok\n\n\
                  test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 7 filtered out; finished in 0.00s\n";
    assert_eq!(parse(output)[0].faults(), Vec::<String>::new());
}

#[test]
fn output_of_a_build_alone_has_no_targets() {
    assert_eq!(
        parse("   Compiling a v0.1.0\nerror: could not compile `a`\n"),
        []
    );
}
