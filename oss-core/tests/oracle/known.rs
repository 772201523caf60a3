//! What the oracle knows: plain lists and flags.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use lockgate::completion::{Handle, SlotId};
use lockgate::custody::{Class, EntryId, Owner, Unreleased};

use super::device::{Device, Object, ObjectLog, Payload};
use super::steps::{Fate, Truth};

/// What the oracle knows of an owner.
pub(super) struct KnownOwner {
    pub(super) parent: Option<usize>,
    pub(super) bytes: u64,
    pub(super) fate: [Fate; 2],
    pub(super) calls: u32,
    /// The last failure.
    pub(super) tried: Option<Class>,
    pub(super) place: Place,
    pub(super) id: EntryId,
    pub(super) log: Arc<ObjectLog>,
    pub(super) real: Real,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    Quarantine,
    Released,
    Unreleased,
    User,
}

pub(super) enum Real {
    Gone,
    Owner(Owner<Object>),
    Unreleased(Unreleased<Object>),
}

/// What the oracle knows of a lane.
pub(super) struct KnownLane {
    pub(super) device: Arc<Device>,
    pub(super) closed: bool,
    pub(super) proven: bool,
    pub(super) failing: u32,
    pub(super) drains: u32,
}

/// What the oracle knows of a debt.
pub(super) struct KnownDebt {
    pub(super) slot: SlotId,
    pub(super) lane: usize,
    pub(super) loans: Vec<usize>,
    pub(super) phase: Phase,
    pub(super) truth: Truth,
    pub(super) reported: Option<Truth>,
    pub(super) blocked: bool,
    pub(super) cancelled: bool,
    pub(super) listed: bool,
    pub(super) orphaned: bool,
    pub(super) drain_failed: bool,
    pub(super) handle: Option<Handle<Payload>>,
    pub(super) drops: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    InFlight,
    Quarantined,
    Ready(End),
    Taken,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Abandoned,
    Failed,
    Succeeded,
}
