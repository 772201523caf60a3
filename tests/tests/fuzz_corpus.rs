//! The fuzzers' corpora, replayed: what was once found interesting is checked by every test run, without a fuzzer.
//!
//! Promises: the checks are the fuzz targets' own source. Does not do: making up new input; `fuzz/run.sh` does.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

use std::path::Path;

#[path = "../../fuzz/src/config.rs"]
mod config;
#[path = "../../fuzz/src/frame.rs"]
mod frame;

/// Calls `check` with every file of the target's corpus.
fn replay(target: &str, least: usize, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(
        files.len() >= least,
        "{} files in {}",
        files.len(),
        folder.display()
    );
    for file in files {
        println!("{}", file.display());
        check(&std::fs::read(&file).unwrap());
    }
}

#[test]
fn frame_corpus_holds() {
    replay("frame", 50, frame::check);
}

#[test]
fn config_corpus_holds() {
    replay("config", 50, config::check);
}
