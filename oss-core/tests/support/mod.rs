//! What the tests of custody and completion share: a lane that does what a test tells it, a native object whose calls are
//! counted, and a waker that counts.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Wake, Waker};
use std::time::Duration;

use lockgate::Errno;
use lockgate::completion::{Cause, Fence, Lane, SlotId, Watch};
use lockgate::custody::{Alive, Evidence, Identity, Native, Receipt, Release};
use lockgate::fault::{Class, Site};

/// A lane that answers what the test has set.
pub(crate) struct Scripted {
    name: String,
    watch: Watch,
    state: Mutex<Script>,
    changed: Condvar,
}

#[derive(Default)]
struct Script {
    fences: HashMap<SlotId, Fence>,
    default: Option<Fence>,
    failing_drains: usize,
    drains: usize,
    queries: usize,
    settled: Vec<SlotId>,
    harvest: Vec<(SlotId, Fence)>,
    harvests: usize,
}

impl Scripted {
    pub(crate) fn new() -> Arc<Self> {
        Self::watched(Watch::Query)
    }

    pub(crate) fn watched(watch: Watch) -> Arc<Self> {
        Arc::new(Self {
            name: "scripted".to_owned(),
            watch,
            state: Mutex::new(Script::default()),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, Script> {
        self.state.lock().expect("no test panics under this lock")
    }

    /// From now on the fence of this slot answers so.
    pub(crate) fn set(&self, slot: SlotId, fence: Fence) {
        self.state().fences.insert(slot, fence);
        self.changed.notify_all();
    }

    /// From now on every fence without an answer of its own answers so.
    pub(crate) fn set_all(&self, fence: Fence) {
        self.state().default = Some(fence);
        self.changed.notify_all();
    }

    /// The next harvest reports this.
    pub(crate) fn will_harvest(&self, slot: SlotId, fence: Fence) {
        self.state().harvest.push((slot, fence));
    }

    /// The next drains fail.
    pub(crate) fn fail_drains(&self, count: usize) {
        self.state().failing_drains = count;
    }

    pub(crate) fn drains(&self) -> usize {
        self.state().drains
    }

    pub(crate) fn queries(&self) -> usize {
        self.state().queries
    }

    pub(crate) fn harvests(&self) -> usize {
        self.state().harvests
    }

    pub(crate) fn settled_slots(&self) -> Vec<SlotId> {
        self.state().settled.clone()
    }
}

impl Script {
    fn fence(&self, slot: SlotId) -> Fence {
        self.fences
            .get(&slot)
            .or(self.default.as_ref())
            .cloned()
            .unwrap_or(Fence::Pending)
    }
}

impl Lane for Scripted {
    fn identity(&self) -> Identity {
        Identity::new("lane").named(self.name.clone())
    }

    fn query(&self, slot: SlotId) -> Fence {
        let mut state = self.state();
        state.queries += 1;
        state.fence(slot)
    }

    fn wait(&self, slot: SlotId, limit: Option<Duration>) -> Fence {
        let mut state = self.state();
        while state.fence(slot) == Fence::Pending {
            state = match limit {
                None => self.changed.wait(state).expect("no panic under the lock"),
                Some(limit) => {
                    let (state, timeout) = self
                        .changed
                        .wait_timeout(state, limit)
                        .expect("no panic under the lock");
                    if timeout.timed_out() {
                        return state.fence(slot);
                    }
                    state
                }
            };
        }
        state.fence(slot)
    }

    fn drain(&self) -> Result<Receipt, Cause> {
        let mut state = self.state();
        state.drains += 1;
        if state.failing_drains > 0 {
            state.failing_drains -= 1;
            return Err(Cause::errno("scripted drain", Errno::IO));
        }
        Ok(Receipt::of(self.identity()))
    }

    fn watch(&self) -> Watch {
        self.watch
    }

    fn harvest(&self, reports: &lockgate::completion::Reports, most: usize) {
        let ready: Vec<_> = {
            let mut state = self.state();
            state.harvests += 1;
            let count = state.harvest.len().min(most);
            state.harvest.drain(..count).collect()
        };
        for (slot, fence) in ready {
            reports.changed(slot, fence);
        }
    }

    fn settled(&self, slot: SlotId) {
        self.state().settled.push(slot);
    }

    fn evidence(&self) -> Evidence {
        Evidence::new(Alive::Yes, "scripted lane answers")
    }
}

/// What became of native objects, by name.
#[derive(Default)]
pub(crate) struct Calls {
    releases: Mutex<Vec<String>>,
    dropped: Mutex<Vec<String>>,
}

impl Calls {
    /// How often the release call of this object was made.
    pub(crate) fn releases(&self, name: &str) -> usize {
        let calls = self.releases.lock().expect("no panic under the lock");
        calls.iter().filter(|called| *called == name).count()
    }

    pub(crate) fn all_releases(&self) -> Vec<String> {
        self.releases
            .lock()
            .expect("no panic under the lock")
            .clone()
    }

    /// The handles that were dropped, which they are after a receipt only.
    pub(crate) fn dropped(&self) -> Vec<String> {
        self.dropped
            .lock()
            .expect("no panic under the lock")
            .clone()
    }
}

/// A native object that consults a fault plan, and whose calls are counted.
pub(crate) struct Fake {
    pub(crate) name: &'static str,
    pub(crate) site: Site,
    pub(crate) calls: Arc<Calls>,
    pub(crate) alive: Arc<AtomicBool>,
}

impl Fake {
    pub(crate) fn new(name: &'static str, site: Site, calls: &Arc<Calls>) -> Self {
        Self {
            name,
            site,
            calls: Arc::clone(calls),
            alive: Arc::new(AtomicBool::new(true)),
        }
    }
}

impl Native for Fake {
    fn identity(&self) -> Identity {
        Identity::new(self.name).named("fake0").with("handle", 7)
    }

    fn release(&mut self) -> Release {
        let mut calls = self.calls.releases.lock().expect("no panic under the lock");
        calls.push(self.name.to_owned());
        drop(calls);
        let decision = self.site.next();
        assert!(!decision.panic, "planned panic of {}", self.name);
        match decision.release {
            Some(fault) => match fault.class {
                Class::Ambiguous => Release::Ambiguous(fault.errno),
                Class::NothingDone => Release::NothingDone(fault.errno),
            },
            None => {
                self.alive.store(false, Ordering::SeqCst);
                Release::Released(Receipt::of(self.identity()))
            }
        }
    }

    fn release_call(&self) -> &'static str {
        "fake_destroy"
    }

    fn evidence(&self) -> Evidence {
        match self.alive.load(Ordering::SeqCst) {
            true => Evidence::new(Alive::Yes, "fake_query answers"),
            false => Evidence::new(Alive::No, "fake_query does not know it"),
        }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let mut dropped = self.calls.dropped.lock().expect("no panic under the lock");
        dropped.push(self.name.to_owned());
    }
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Woken(AtomicUsize);

impl Woken {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A payload whose drop is seen.
pub(crate) struct Probe(pub(crate) Arc<AtomicUsize>);

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
