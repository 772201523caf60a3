//! The open providers of Lockgate, and its decorators. Linking them opens nothing: a program registers the factories that it
//! wants, by hand.
//!
//! # Decorators
//!
//! A decorator is put around an open receiver with [`Receiver::decorate`](lockgate::receive::Receiver::decorate) and is a
//! receiver itself. They stack in any order; each sees what the one inside it delivers:
//!
//! ```text
//! receiver.decorate(a).decorate(b)     application <- b <- a <- provider
//! ```
//!
//! So the order says what is observed. With `record` outside of `fault` the file has the injected faults, inside it what
//! really arrived; `metrics` outermost counts what the application got. No decorator changes the order of packets, except
//! `fault` where its plan says so. All pass on what they do not concern themselves with: events, settings, losses, the
//! readiness descriptor.
//!
//! | module | feature | does |
//! | --- | --- | --- |
//! | `fault` | `fault` | drops, delays, duplicates, reorders and cuts packets, and fails polls, by a plan |
//! | `metrics` | `metrics` | counts through the facade `metrics` |
//! | `record` | `record` | writes a pcapng file of what was delivered |
//! | `trace` | `trace` | tells what happens through `tracing`, rate-limited |
//!
//! Beside them stand `capture` (feature `capture`), which reads captures and plans their replay, and `stream` (feature
//! `tokio`), which takes a receiver into tokio's tasks.

#[cfg(feature = "capture")]
pub mod capture;
#[cfg(feature = "fault")]
pub mod fault;
#[cfg(any(feature = "packet", feature = "udp", feature = "xdp"))]
mod kernel;
pub mod loopback;
#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "packet")]
pub mod packet;
#[cfg(any(feature = "packet", feature = "xdp"))]
mod raw;
#[cfg(feature = "record")]
pub mod record;
#[cfg(feature = "tokio")]
pub mod stream;
#[cfg(feature = "trace")]
pub mod trace;
#[cfg(feature = "udp")]
pub mod udp;
#[cfg(feature = "xdp")]
pub mod xdp;

#[cfg(test)]
mod testing;
