//! The native object and the device that the world is made of: they do what a schedule says, and count.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lockgate::Errno;
use lockgate::completion::{Cause, Fence, Lane, SlotId, Watch};
use lockgate::custody::{Identity, Native, Receipt, Release};

use super::steps::{Fate, Truth};

/// The native object.
pub(super) struct Object {
    pub(super) fate: [Fate; 2],
    pub(super) log: Arc<ObjectLog>,
}

#[derive(Default)]
pub(super) struct ObjectLog {
    pub(super) calls: AtomicU32,
    pub(super) drops: AtomicU32,
}

impl Native for Object {
    fn identity(&self) -> Identity {
        Identity::new("object")
    }

    fn release(&mut self) -> Release {
        let call = self.log.calls.fetch_add(1, Ordering::SeqCst);
        match self.fate.get(call as usize) {
            Some(Fate::Ambiguous) => Release::Ambiguous(Errno::IO),
            Some(Fate::NothingDone) => Release::NothingDone(Errno::BUSY),
            Some(Fate::Panics) => panic!("planned"),
            Some(Fate::Works) | None => Release::Released(Receipt::of(self.identity())),
        }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.log.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// The device.
pub(super) struct Device {
    pub(super) watch: Watch,
    pub(super) state: Mutex<DeviceState>,
}

#[derive(Default)]
pub(super) struct DeviceState {
    pub(super) fences: BTreeMap<SlotId, Truth>,
    pub(super) failing: u32,
    pub(super) drains: u32,
    pub(super) settled: BTreeMap<SlotId, u32>,
}

impl Device {
    pub(super) fn new(watch: Watch) -> Arc<Self> {
        Arc::new(Self {
            watch,
            state: Mutex::default(),
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, DeviceState> {
        self.state.lock().expect("no panic under the lock")
    }
}

pub(super) fn fence(truth: Truth) -> Fence {
    match truth {
        Truth::Failed => Fence::FailedQuiescent(Cause::step("failed")),
        Truth::Indeterminate => Fence::Indeterminate,
        Truth::Pending => Fence::Pending,
        Truth::Succeeded => Fence::Succeeded,
    }
}

impl Lane for Device {
    fn identity(&self) -> Identity {
        Identity::new("device")
    }

    fn query(&self, slot: SlotId) -> Fence {
        fence(
            self.state()
                .fences
                .get(&slot)
                .copied()
                .unwrap_or(Truth::Pending),
        )
    }

    fn wait(&self, slot: SlotId, _: Option<Duration>) -> Fence {
        self.query(slot)
    }

    fn drain(&self) -> Result<Receipt, Cause> {
        let mut state = self.state();
        state.drains += 1;
        if state.failing > 0 {
            state.failing -= 1;
            return Err(Cause::errno("drain", Errno::IO));
        }
        Ok(Receipt::of(self.identity()))
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn settled(&self, slot: SlotId) {
        *self.state().settled.entry(slot).or_default() += 1;
    }
}

/// What a debt publishes; its drop is counted.
pub(super) struct Payload(pub(super) Arc<AtomicU64>);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
