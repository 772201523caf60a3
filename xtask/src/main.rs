//! Task runner: placeholder head, replaced with the runner.
#![forbid(unsafe_code)]

fn main() {}
