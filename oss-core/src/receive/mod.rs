//! Packet receivers: the trait that providers implement, configuration and its validation, borrowed packets, statistics.
//!
//! Start at [`ReceiverConfig`] to say what to receive, at [`Receiver`] to receive it, and at [`PacketReceiver`] with
//! [`ReceiverFactory`] to write a provider.

mod batch;
mod config;
pub mod frame;
pub mod mac;
mod receiver;
mod statistics;
mod sys;
#[cfg(test)]
mod tests;
mod timestamp;

pub use batch::{BadDescriptor, Batch, Checksum, Descriptor, Packet, Packets, Slabs};
pub use config::{
    ChecksumAction, ChecksumPolicy, ConfigFault, ConfigFaults, Group, OptionReader, Options,
    ParseGroupError, ReceiverConfig, ReceiverSpec, TimestampMode, WaitMode,
    require_power_of_two_ring, required_capabilities,
};
pub(crate) use receiver::open;
pub use receiver::{PacketReceiver, Readiness, Receiver, ReceiverFactory, State};
pub use statistics::{Event, Losses, Setting, Statistics};
pub use sys::Slab;
pub use timestamp::{
    ClockDomain, DeviceFreeRunning, DeviceRealTime, Stamp, SystemRealTime, Timestamp,
};
