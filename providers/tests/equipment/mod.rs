//! What the conformance kit needs to test each provider of this crate, shared by the tests that mount it.
//!
//! Each test uses a part of it.
#![allow(dead_code, unreachable_pub)]

pub mod loopback;
#[cfg(feature = "udp")]
pub mod udp;
