//! The verbs, as Lockgate's companion calls them: a plain C shim and a thin layer of types over it.
//!
//! # Purpose
//! Half of the verbs are macros or inline functions of `<infiniband/verbs.h>`, so a binding to the library's symbols alone
//! can't reach them, and two exported symbols are legacy entries with other structs behind them. The C side of this crate
//! calls every verb; this side binds to its header only. `include/lockgate_verbs.h` says what each call needs and gives.
//!
//! # Two builds
//! With the library (found by `pkg-config`) everything works. With `LOCKGATE_VERBS_LINK_STUB=1` everything compiles and
//! links on a host without it, and every call is refused with [`Errno::NOT_LINKED`]; [`link_mode`] tells which one this
//! is. Neither is ever taken for the other by itself.
//!
//! # Threads
//! libibverbs lets any thread call any verb. What may not overlap is a call on an object and the destroy call of that object.
//!
//! # Cleanup
//! Handles here are bare: copying one copies an address, dropping one does nothing. Who destroys what, when, and what
//! must outlive it is the caller's, so calls on handles are `unsafe`; the companion's owners are the safe side.
//!
//! # Errors
//! Each call gives the kernel's or the driver's number as it came, with the sign normalised. Nothing here interprets it.
//!
//! # Does not do
//! Owning, choosing a device, retrying, or falling back.

mod completion;
mod device;
mod errno;
#[rustfmt::skip]
#[allow(
    unnameable_types,
    unreachable_pub,
    reason = "generated; what is public has an alias with a Rust name"
)]
mod ffi;
mod memory;
mod queue;
mod sys;

// The public interface.
pub use completion::sys::{ChannelHandle, CqExHandle, CqHandle};
pub use completion::{
    AsyncEvent, Completion, CompletionEx, CqInfo, CqOptions, EventKind, Subject, completion_flags,
    completion_status, extended, opcodes,
};
pub use device::sys::{ContextHandle, Device, DeviceList};
pub use device::{
    ContextInfo, DeviceAttributes, DeviceInfo, ForkStatus, GidEntry, GidType, LinkLayer, LinkMode,
    Optional, PortAttributes, PortState, device_capabilities, fork_status, link_mode,
};
pub use errno::Errno;
pub use memory::sys::{MrHandle, MwHandle, PdHandle};
pub use memory::{Access, MrInfo, MrOptions, MwBind, MwInfo, WindowType, rkey_next};
pub use queue::sys::{AhHandle, FlowHandle, QpHandle};
pub use queue::{
    AddressVector, FlowMatch, FlowRule, Partial, Piece, QpAttributes, QpInfo, QpOptions, QpState,
    QpType, RecvRequest, SendRequest, flow_layers, flow_types, qp_create, qp_fields, requests,
    send_flags,
};
