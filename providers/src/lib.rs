//! The open providers of Lockgate. Linking them opens nothing: a program registers the factories that it wants, by hand.

pub mod loopback;
#[cfg(feature = "udp")]
pub mod udp;
