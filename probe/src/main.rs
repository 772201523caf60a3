//! `probe` tells an operator in one command what this host can receive. So far it can read the host.
#![forbid(unsafe_code)]

#[allow(dead_code, unused_imports, reason = "the report prints it")]
mod host;
#[allow(dead_code, reason = "the self-test sends and verifies it")]
mod stream;

fn main() {}
