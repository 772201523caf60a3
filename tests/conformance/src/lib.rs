//! The conformance kit of Lockgate: what every provider has to keep, as cases that are mounted in its tests.
//!
//! A provider's author implements [`Equipment`] and mounts all cases with one line; each case becomes a test of its own. What a
//! provider doesn't claim is skipped, visibly and with a reason; that it is then *refused* is a case of its own. [`run_all`] runs
//! the same cases one after the other and returns a [`Table`].
//!
//! Promises: cases wait by the receiver's own waits, with deadlines, and never sleep; they use groups and ports that nobody else
//! uses, so that suites run side by side. Every skip is printed, and appended to the file that the environment variable
//! `LOCKGATE_SKIP_LOG` names. Does not do: setting up interfaces or privileges; that is the equipment's part.
//!
//! ```
//! # use std::net::{IpAddr, SocketAddr};
//! # use std::sync::Arc;
//! # use lockgate::receive::ReceiverConfig;
//! # use lockgate::registry::Factory;
//! # use lockgate_conformance::{Checked, Equipment, Family, Outgoing};
//! # struct Mine;
//! # impl Equipment for Mine {
//! #     fn provider(&self) -> &str { "mine" }
//! #     fn factory(&self) -> Arc<dyn Factory> { unreachable!() }
//! #     fn config(&self) -> ReceiverConfig { unreachable!() }
//! #     fn send(&self, _: &Outgoing<'_>) -> Checked { unreachable!() }
//! #     fn sources(&self, _: Family) -> Vec<IpAddr> { unreachable!() }
//! #     fn unicast(&self, _: Family) -> Checked<SocketAddr> { unreachable!() }
//! #     fn overrun(&self, _: &mut ReceiverConfig) -> Checked<u32> { unreachable!() }
//! # }
//! fn equipment() -> impl Equipment {
//!     Mine
//! }
//! lockgate_conformance::mount!(equipment);
//! # fn main() {}
//! ```

mod cases;
mod equipment;
mod outcome;
mod process;
mod rig;
mod run;
mod spy;
mod sys;
mod table;

pub use cases::{CASES, Case};
pub use equipment::{Decorated, Equipment, Family, Outgoing, unused_group, unused_port};
pub use outcome::{Checked, Outcome, Stop};
pub use rig::Rig;
pub use run::{__run_mounted, run_all, run_case};
pub use table::{Row, Table, render};
