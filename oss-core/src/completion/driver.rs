//! A thread that sweeps a ledger and recovers what cannot tell, by a policy, with back-off.
//!
//! Promises: it runs only if the application starts it; it keeps neither the domain nor its ledger open; dropping it asks the thread to
//! end and waits for nothing. Does not do: publishing, taking results, or retrying native releases.

use std::collections::BTreeMap;
use std::io;
use std::thread;
use std::time::Duration;

use super::answers::{Observation, SlotError};
use super::ledger::Ledger;
use super::slot::SlotId;
use crate::custody::{Core, Domain};
use crate::sync::{Arc, AtomicU64, Ordering, Weak, lock, wait};

/// What a driver does, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How many slots one sweep observes, 1 to 64.
    pub sweep: usize,
    /// How long the thread rests at first after a sweep that settled nothing. Each further one doubles it.
    pub rest: Duration,
    /// The longest rest; a report or a submission ends every rest.
    pub longest_rest: Duration,
    /// Whether, and how, debts that cannot tell are recovered by draining their lane.
    pub recovery: Option<Recovery>,
}

/// How debts that cannot tell are recovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// How long after the first observation in vain the lane is drained.
    pub after: Duration,
    /// How long the blocking observation waits that makes a drain permissible.
    pub wait: Duration,
    /// How long after a failed drain the next one follows. Each further failure doubles it.
    pub back_off: Duration,
    /// The longest time between two drains.
    pub longest_back_off: Duration,
    /// After how many failed drains the debt is left to the quarantine for good.
    pub attempts: u32,
}

impl Policy {
    /// Sweeps of 64, rests of 50 µs to 100 ms, and no recovery: nothing is drained unless it is asked for.
    #[must_use]
    pub const fn sweeping() -> Self {
        Self {
            sweep: 64,
            rest: Duration::from_micros(50),
            longest_rest: Duration::from_millis(100),
            recovery: None,
        }
    }

    /// Adds the recovery of debts that cannot tell.
    #[must_use]
    pub const fn recovering(self, recovery: Recovery) -> Self {
        Self {
            recovery: Some(recovery),
            ..self
        }
    }
}

impl Recovery {
    /// One second until the first drain, then 1 s to 60 s between drains, 10 in all; blocking observations of 100 ms.
    #[must_use]
    pub const fn patient() -> Self {
        Self {
            after: Duration::from_secs(1),
            wait: Duration::from_millis(100),
            back_off: Duration::from_secs(1),
            longest_back_off: Duration::from_secs(60),
            attempts: 10,
        }
    }
}

/// What a driver has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Sweeps made.
    pub sweeps: u64,
    /// Debts settled by its sweeps and drains.
    pub settled: u64,
    /// Drains asked for that did not settle the debt.
    pub failed_drains: u64,
    /// Debts that it has left to the quarantine.
    pub given_up: u64,
}

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    core: Weak<Core>,
    stop: AtomicU64,
    sweeps: AtomicU64,
    settled: AtomicU64,
    failed_drains: AtomicU64,
    given_up: AtomicU64,
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// What the operating system said when it refused a thread, or `InvalidInput` for a sweep of no slots or more than 64.
    pub fn start(domain: &Arc<Domain>, policy: Policy) -> io::Result<Self> {
        if let Err(size) = domain.ledger().check_sweep(policy.sweep) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, size));
        }
        let core = domain.core();
        let shared = Arc::new(Shared {
            core: Arc::downgrade(core),
            stop: AtomicU64::new(0),
            sweeps: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            failed_drains: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        });
        let mine = Arc::clone(&shared);
        core.ledger.drivers.fetch_add(1, Ordering::AcqRel);
        let thread = thread::Builder::new()
            .name("lockgate-driver".to_owned())
            .spawn(move || run(&mine, policy));
        match thread {
            Ok(thread) => Ok(Self {
                shared,
                thread: Some(thread),
            }),
            Err(error) => {
                core.ledger.drivers.fetch_sub(1, Ordering::AcqRel);
                Err(error)
            }
        }
    }

    /// What it has done so far.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let shared = &self.shared;
        Progress {
            sweeps: shared.sweeps.load(Ordering::Acquire),
            settled: shared.settled.load(Ordering::Acquire),
            failed_drains: shared.failed_drains.load(Ordering::Acquire),
            given_up: shared.given_up.load(Ordering::Acquire),
        }
    }

    /// Asks the thread to end and waits until it has. It may be inside a drain, and ends after it.
    pub fn stop(mut self) -> Progress {
        self.shared.ask_to_stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the driver thread panicked");
        }
        self.progress()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.ask_to_stop();
    }
}

impl Shared {
    fn ask_to_stop(&self) {
        self.stop.store(1, Ordering::Release);
        if let Some(core) = self.core.upgrade() {
            core.ledger.tell();
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire) != 0
    }
}

fn run(shared: &Shared, policy: Policy) {
    let mut rounds = Rounds::new(policy);
    while !shared.is_stopped() {
        // The ledger lives as long as this borrow of it, so a rest with it must be short; the longest rest bounds it.
        let Some(core) = shared.core.upgrade() else {
            return;
        };
        let news = *lock(&core.ledger.news);
        let rest = rounds.round(&core, shared);
        if let Some(rest) = rest {
            let told = lock(&core.ledger.news);
            if *told == news && !shared.is_stopped() {
                drop(wait(&core.ledger.told, told, Some(rest)));
            }
        }
        if shared.is_stopped() {
            core.ledger.drivers.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// The decisions of a driver, without its thread: what is due at which time.
struct Rounds {
    policy: Policy,
    rest: Duration,
    trouble: BTreeMap<SlotId, Trouble>,
}

/// A debt that could not tell.
struct Trouble {
    due: Duration,
    back_off: Duration,
    failed: u32,
}

impl Rounds {
    fn new(policy: Policy) -> Self {
        Self {
            policy,
            rest: policy.rest,
            trouble: BTreeMap::new(),
        }
    }

    /// One sweep and what is due at this time. Answers how long to rest; `None` if there may be more to do at once.
    fn round(&mut self, core: &Arc<Core>, shared: &Shared) -> Option<Duration> {
        let ledger = Ledger::of(core);
        let now = core.clock.now();
        let mut settled = 0;
        shared.sweeps.fetch_add(1, Ordering::AcqRel);
        if let Ok(sweep) = ledger.sweep(self.policy.sweep) {
            for (slot, observation) in sweep.observations {
                match observation {
                    Observation::Ready => {
                        self.trouble.remove(&slot);
                        settled += 1;
                    }
                    Observation::Pending => {}
                    Observation::Indeterminate | Observation::Quarantined => {
                        self.note(slot, now);
                    }
                }
            }
        }
        settled += self.recover_due(&ledger, now, shared);
        shared.settled.fetch_add(settled, Ordering::AcqRel);
        if settled > 0 {
            self.rest = self.policy.rest;
            return None;
        }
        let rest = self.rest;
        self.rest = rest.saturating_mul(2).min(self.policy.longest_rest);
        let next_due = self
            .trouble
            .values()
            .map(|trouble| trouble.due.saturating_sub(now))
            .min();
        Some(next_due.map_or(rest, |due| due.min(rest)))
    }

    fn note(&mut self, slot: SlotId, now: Duration) {
        if let Some(recovery) = self.policy.recovery {
            self.trouble.entry(slot).or_insert(Trouble {
                due: now.saturating_add(recovery.after),
                back_off: recovery.back_off,
                failed: 0,
            });
        }
    }

    fn recover_due(&mut self, ledger: &Ledger, now: Duration, shared: &Shared) -> u64 {
        let Some(recovery) = self.policy.recovery else {
            return 0;
        };
        // One at a time: a drain blocks, and when it succeeds the next sweep settles the rest of its lane.
        let due = self
            .trouble
            .iter()
            .find(|(_, trouble)| trouble.due <= now && trouble.failed < recovery.attempts)
            .map(|(slot, _)| *slot);
        let mut settled = 0;
        if let Some(slot) = due {
            match recover(ledger, slot, recovery.wait) {
                Ok(Observation::Ready) => {
                    self.trouble.remove(&slot);
                    settled += 1;
                }
                Ok(Observation::Pending) | Err(_) => {
                    // It can tell again, or somebody else was faster.
                    self.trouble.remove(&slot);
                }
                Ok(Observation::Indeterminate | Observation::Quarantined) => {
                    shared.failed_drains.fetch_add(1, Ordering::AcqRel);
                    if let Some(trouble) = self.trouble.get_mut(&slot) {
                        trouble.failed += 1;
                        trouble.due = now.saturating_add(trouble.back_off);
                        trouble.back_off = trouble
                            .back_off
                            .saturating_mul(2)
                            .min(recovery.longest_back_off);
                        if trouble.failed == recovery.attempts {
                            shared.given_up.fetch_add(1, Ordering::AcqRel);
                            tracing::error!(%slot, drains = trouble.failed, "left to the quarantine");
                        }
                    }
                }
            }
        }
        // What was given up is remembered, so that the next sweep does not begin again, until it is settled.
        self.trouble.retain(|slot, trouble| {
            trouble.failed < recovery.attempts
                || matches!(ledger.poll(*slot), Ok(observation) if observation != Observation::Ready)
        });
        settled
    }
}

/// The blocking observation that makes a drain permissible, and the drain if it was in vain.
fn recover(ledger: &Ledger, slot: SlotId, limit: Duration) -> Result<Observation, SlotError> {
    match ledger.wait(slot, Some(limit))? {
        Observation::Indeterminate | Observation::Quarantined => ledger.recover(slot),
        told => Ok(told),
    }
}

#[cfg(all(test, not(loom)))]
#[path = "driver_tests.rs"]
mod tests;
