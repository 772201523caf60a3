//! The native owners over libibverbs: a tree of objects, each in custody.
//!
//! ```text
//! Context (device) ─┬─ ProtectionDomain ─┬─ MemoryRegion
//!                   │                    ├─ MemoryWindow
//!                   └─ CqLane ───────────┴─ QueuePair ─┬─ MulticastAttachment
//!                      (queues, channel)               └─ FlowSteering
//! ```
//!
//! Promises: every object is admitted to a domain before it is made, holds what it depends on, and is released once, by its
//! explicit close or its quiet drop; what fails to be released stays, with all that it depends on, in the domain's quarantine.
//! `EBUSY` from the destroy calls of PD, channel, CQ, QP and MR is retryable, since the kernel counts users before it does
//! anything; every other number, and every number of the other calls, is terminal. Receipts name device, handles, queue pair number,
//! thread and time, and say whether the library was told to hide failures ([`DISASSOCIATE`]); [`is_proof`] reads that.
//! Does not do: choosing a device, falling back, retrying, or knowing what was posted: posting is `unsafe`, and its caller keeps
//! the memory.
//!
//! # Fork
//! A child of the process that opened a device may not use it. Calls that can fail are refused there, and releases make no
//! native call.

mod limits;
mod native;
mod owners;
mod pages;
mod provider;
mod select;
mod states;

// The public interface.
pub use limits::{Beyond, Clamped, fit_completion_queue, fit_queue_pair};
pub use native::{
    Channel, Context as NativeContext, Cq, DISASSOCIATE, Flow, Mr, Multicast, Mw, Pd, Qp, is_proof,
};
pub use owners::{
    Context, CqLane, Endpoint, Event, FlowSteering, LaneOptions, LaneReceipts, LaneUnreleased,
    MemoryRegion, MemoryWindow, MulticastAttachment, ProtectionDomain, QueuePair,
};
pub use pages::Pages;
pub use select::{GidChoice, GidRule, PathMtu, Selector, choose_gid, gid_of};

pub(crate) use provider::factory;
