//! What the providers over kernel sockets share: interfaces and their news, memberships, clocks, and what failures mean.
//!
//! Promises: nothing here opens anything by itself; each piece is a value that a provider makes. Does not do: receiving.

#[cfg(any(feature = "packet", feature = "udp"))]
mod clock;
#[cfg(any(feature = "packet", feature = "xdp"))]
pub(crate) mod custody;
pub(crate) mod link;
pub(crate) mod membership;
pub(crate) mod remedy;
pub(crate) mod sys;

#[cfg(any(feature = "packet", feature = "udp"))]
pub(crate) use clock::{Clock, clock};

/// The network interface that a receiver is tied to.
#[derive(Clone, Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
}
