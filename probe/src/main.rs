//! `probe` tells an operator in one command what this host can receive. So far it has the stream that it will verify.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the self-test sends and verifies it")]
mod stream;

fn main() {}
