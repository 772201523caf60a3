//! libFuzzer's entry to what `src/config.rs` checks.

#![no_main]

#[path = "../src/config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|input: &[u8]| config::check(input));
