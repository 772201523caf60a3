//! libFuzzer's entry to what `src/frame.rs` checks.

#![no_main]

#[path = "../src/frame.rs"]
mod frame;

libfuzzer_sys::fuzz_target!(|input: &[u8]| frame::check(input));
