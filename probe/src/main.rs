//! Probe: placeholder head, replaced with the binary.
#![forbid(unsafe_code)]

fn main() {}
