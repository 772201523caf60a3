//! Lockgate's open core: explicit providers and custody for fast I/O.
//!
//! # Purpose
//!
//! A lock gate opens only when somebody opens it, and only once the water on both sides is level. That is this library: *nothing
//! opens by itself, and nothing is let go before it is quiet.*
//!
//! - **Explicit providers.** A program makes a [`Registry`](registry::Registry), registers factories by hand and opens what it
//!   wants by name. There is no global registry, no default, no look-up in the environment, no folder scan, no "first device" and
//!   no fall-back. An open without a name is refused, and the refusal lists what is there and why each candidate can or can't be
//!   had.
//! - **Custody.** Memory and native handles that a device may still touch stay owned until a native receipt proves that it is
//!   done with them. A teardown that fails is never retried by itself and never passed off as success; what depends on it is kept
//!   in the quarantine of its [`Domain`](custody::Domain), where it can be read out.
//!
//! This crate has the traits, the registry, configurations and their validation, custody and completion. It knows no provider:
//! the open ones are in `lockgate-providers`, and anybody can write another.
//!
//! # Quick start
//!
//! A provider of one packet, registered and opened by name:
//!
//! ```
//! # #[cfg(feature = "receive")] {
//! use std::borrow::Cow;
//! use std::sync::Arc;
//! use std::time::Duration;
//! use lockgate::Result;
//! use lockgate::receive::{
//!     Batch, Descriptor, PacketReceiver, Readiness, Receiver, ReceiverConfig, ReceiverFactory, Statistics,
//! };
//! use lockgate::registry::{Capabilities, Capability, Description, Factory, Kind, OpenContext, Registry};
//!
//! /// What describes the provider and opens it.
//! struct One(Description);
//!
//! impl Factory for One {
//!     fn description(&self) -> &Description {
//!         &self.0
//!     }
//!     fn receiver(&self) -> Option<&dyn ReceiverFactory> {
//!         Some(self)
//!     }
//! }
//!
//! impl ReceiverFactory for One {
//!     fn open(&self, _: &ReceiverConfig, _: &OpenContext<'_>) -> Result<Box<dyn PacketReceiver>> {
//!         Ok(Box::new(Packets { left: 1, descriptors: [Descriptor::payload(0, 0, 5)] }))
//!     }
//! }
//!
//! /// What receives.
//! struct Packets {
//!     left: u64,
//!     descriptors: [Descriptor; 1],
//! }
//!
//! impl PacketReceiver for Packets {
//!     fn poll(&mut self) -> Result<Batch<'_>> {
//!         if self.left == 0 {
//!             return Ok(Batch::EMPTY); // nothing yet: not an error
//!         }
//!         self.left -= 1;
//!         let batch = Batch::new(&b"hello"[..], &self.descriptors);
//!         Ok(batch.expect("the descriptor lies within the five bytes"))
//!     }
//!     fn wait(&mut self, _: Option<Duration>) -> Result<Readiness> {
//!         Ok(if self.left == 0 { Readiness::TimedOut } else { Readiness::Ready })
//!     }
//!     fn statistics(&mut self) -> Statistics {
//!         Statistics::default()
//!     }
//!     fn close(&mut self) -> Result<()> {
//!         Ok(())
//!     }
//! }
//!
//! // The application: make a registry, register, open by name.
//! let mut registry = Registry::new();
//! registry.register(Arc::new(One(Description {
//!     name: Cow::Borrowed("one"),
//!     version: Cow::Borrowed("0.1.0"),
//!     summary: Cow::Borrowed("one packet, for show"),
//!     kinds: Cow::Borrowed(&[Kind::Receiver]),
//!     capabilities: Capabilities::of(&[Capability::Ipv4, Capability::Multicast, Capability::EventWait]),
//!     origin: lockgate::linked_origin!(),
//! })))?;
//! let config = ReceiverConfig::multicast("eth0", ["239.7.7.7:47000".parse()?]);
//! let mut receiver = registry.open_receiver("one", &config)?;
//! for packet in receiver.poll()? {
//!     assert_eq!(packet.payload(), b"hello");
//! }
//! receiver.close()?;
//!
//! // Without a name nothing opens, even though there is only one provider to choose.
//! let refused = Receiver::open(&config).unwrap_err();
//! assert!(refused.refusal().is_some());
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! | feature | default | gives |
//! | --- | --- | --- |
//! | `receive` | yes | packet receivers: trait, configuration, frame parser (the module `receive`) |
//! | `toml` | yes | reading configurations and fault plans from TOML text; JSON is always there |
//!
//! Features only add, and none brings in a runtime.
//!
//! # Threads
//!
//! A [`Registry`](registry::Registry) is `Send + Sync`: registering needs `&mut`, and any number of threads open through one
//! shared reference without a lock. A receiver is `Send` and belongs to one thread at a time. A [`Domain`](custody::Domain) is
//! shared by reference counting. The only state of the whole process is the read-only list of linked factories, and two
//! registries or two domains share nothing.
//!
//! # Cleanup
//!
//! What can fail on its way out has a `close`, which is idempotent; after a failed one, closing again answers the same failure
//! without a second native call. A drop without close makes that one call and logs once; it never panics and never waits for a
//! device. What can't be proven quiet moves to the quarantine of its domain, with everything that depends on it.
//!
//! # Errors
//!
//! There is one [`Error`]: which operation failed, of which provider, on which object, with the raw error number and the source
//! kept, and with the remedy where there is one. [`ErrorKind`] tells apart what a program treats differently: refusals, faults of a
//! configuration (all at once), capabilities that aren't claimed, and failures of the environment. "Nothing has arrived yet" and
//! "queue full, try later" are answers, not errors.
//!
//! # Platform notes
//!
//! Linux, 64 and 32 bits. The core itself makes no system call but for clocks and locks; what a kernel, a library or a privilege is
//! needed for stands in each provider's README. Describing a provider never touches the host, so a program can list what it
//! could open in a container that has none of it.

pub mod clock;
pub mod completion;
pub mod custody;
pub mod errno;
pub mod error;
pub mod fault;
#[cfg(feature = "receive")]
pub mod receive;
pub mod registry;
mod sync;

pub use errno::Errno;
pub use error::{Error, ErrorKind, Result};
