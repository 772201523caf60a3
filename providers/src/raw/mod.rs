//! What the providers that take whole frames past the kernel's UDP share: which packets are wanted, the way from a frame to a
//! descriptor, memberships on a kernel socket, and following the interface.
//!
//! Promises: what is delivered is exactly what the configuration names, whatever a filter in the kernel has let through; each
//! refused packet is counted at one place. Does not do: rings and their memory; each provider has its own.

pub(crate) mod judge;
pub(crate) mod link;
pub(crate) mod membership;
pub(crate) mod selection;
