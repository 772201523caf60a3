//! The receiver's end: polls the ring, waits on the bell, detaches on close.
//!
//! Promises: a poll takes no lock and allocates nothing, unless the plan holds packets back or the receiver generates its own.
//! A wait sleeps on a condition variable, or spins in busy-poll mode; its time-out runs on the system's clock, because whoever
//! waits really waits. Does not do: touching the network after its close.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lockgate::fault::{Class, Site};
use lockgate::receive::{
    Batch, Event, PacketReceiver, Readiness, ReceiverConfig, Slabs, Statistics, WaitMode,
};
use lockgate::{Error, ErrorKind, Result};

use super::generate::Generator;
use super::port::Shared;
use super::sys::Consumer;
use super::{INTERFACE, NAME, Network};

/// A sleep for a packet that is held back lasts at least this long, so that a manual clock that stands still costs little.
const NAP_LEAST: Duration = Duration::from_micros(50);
/// How often a busy wait looks at the ring between two looks at the clock.
const SPINS: u32 = 64;

pub(super) struct LoopbackReceiver {
    network: Network,
    id: u64,
    batch: usize,
    wait: WaitMode,
    consumer: Consumer,
    shared: Arc<Shared>,
    generator: Option<Generator>,
    close: Site,
    statistics: Statistics,
    standing: Standing,
}

#[derive(PartialEq, Eq)]
enum Standing {
    Attached,
    /// Its port is gone from the network.
    Detached,
    /// The plan let its close fail: the port stays in the network, as a device's object would.
    Kept,
}

impl LoopbackReceiver {
    pub(super) fn new(
        network: Network,
        id: u64,
        config: &ReceiverConfig,
        consumer: Consumer,
        shared: Arc<Shared>,
        generator: Option<Generator>,
        close: Site,
    ) -> Self {
        Self {
            network,
            id,
            batch: config.batch as usize,
            wait: config.wait,
            consumer,
            shared,
            generator,
            close,
            statistics: Statistics::default(),
            standing: Standing::Attached,
        }
    }

    fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.standing == Standing::Attached {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Closed, operation).with_provider(NAME))
    }

    /// Hands over what is due: packets that the plan held back, and generated ones as far as the ring is empty.
    fn refill(&mut self) {
        let mut state = self.network.lock();
        let state = &mut *state;
        let Some(port) = state.ports.iter_mut().find(|port| port.id == self.id) else {
            return;
        };
        let clock = self.network.clock();
        let now = clock.now();
        port.deliver_due(now, clock);
        let Some(generator) = &mut self.generator else {
            return;
        };
        if self.consumer.has_some() {
            return;
        }
        let due = generator.due(now).min(self.batch as u64);
        for _ in 0..due {
            let Some(datagram) = generator.make() else {
                break;
            };
            state.counters.sent += 1;
            if state.link_down {
                state.counters.link_down += 1;
            } else {
                port.offer(&datagram, clock, &mut state.counters);
            }
        }
        if due > 0 && generator.is_done() {
            // Nothing comes after the last one that could overtake what is held back.
            port.settle(clock);
        }
    }

    /// Whether a refill may have something at another time, and when: on the network's clock.
    fn next_refill(&self) -> Option<Duration> {
        let held = || {
            let state = self.network.lock();
            let port = state.ports.iter().find(|port| port.id == self.id)?;
            port.next_due()
        };
        let held = (self.shared.held.load(Ordering::Acquire) > 0)
            .then(held)
            .flatten();
        let generated = self.generator.as_ref().and_then(Generator::next_due);
        match (held, generated) {
            (Some(held), Some(generated)) => Some(held.min(generated)),
            (one, other) => one.or(other),
        }
    }

    fn needs_refill(&self) -> bool {
        self.generator.is_some() || self.shared.held.load(Ordering::Acquire) > 0
    }

    fn is_ready(&self) -> bool {
        self.consumer.has_some() || self.shared.has_news()
    }

    /// Waits for the ring alone, until `until`.
    fn wait_for_ring(&self, until: Option<Instant>) -> bool {
        if self.is_ready() {
            return true;
        }
        if self.wait != WaitMode::BusyPoll {
            return self.shared.bell.sleep(until, || self.is_ready());
        }
        loop {
            for _ in 0..SPINS {
                if self.is_ready() {
                    return true;
                }
                std::hint::spin_loop();
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return self.is_ready();
            }
        }
    }

    fn detach(&mut self) {
        self.network.lock().ports.retain(|port| port.id != self.id);
        self.standing = Standing::Detached;
    }
}

impl PacketReceiver for LoopbackReceiver {
    fn poll(&mut self) -> Result<Batch<'_>> {
        self.check_open("poll")?;
        if let Some(errno) = self.shared.take_error() {
            return Err(Error::from_errno("poll", errno)
                .with_provider(NAME)
                .with_detail("the fault plan says so"));
        }
        if self.needs_refill() {
            self.consumer.release();
            self.refill();
        }
        let (slab, descriptors) = self.consumer.take(self.batch);
        if descriptors.is_empty() {
            return Ok(Batch::EMPTY);
        }
        self.statistics.batches += 1;
        self.statistics.packets += descriptors.len() as u64;
        self.statistics.bytes += descriptors
            .iter()
            .map(|one| u64::from(one.payload_len))
            .sum::<u64>();
        Batch::new(Slabs::One(slab), descriptors)
            .map_err(|bad| Error::new(ErrorKind::Bug, "poll").with_source(bad))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        self.check_open("wait")?;
        // What the last batch lent is free now, and a full ring can take packets again.
        self.consumer.release();
        // A time beyond what an instant can hold is for ever.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if self.needs_refill() {
                self.refill();
            }
            let nap = self.next_refill().map(|due| {
                let left = due.saturating_sub(self.network.clock().now());
                Instant::now() + left.max(NAP_LEAST)
            });
            let until = match (end, nap) {
                (Some(end), Some(nap)) => Some(end.min(nap)),
                (one, other) => one.or(other),
            };
            if self.wait_for_ring(until) {
                return Ok(Readiness::Ready);
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                return Ok(Readiness::TimedOut);
            }
        }
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics.losses = self.shared.losses();
        self.statistics
    }

    fn take_event(&mut self) -> Option<Event> {
        self.shared.events().pop_front()
    }

    fn close(&mut self) -> Result<()> {
        self.check_open("close")?;
        let decision = self.close.next();
        if let Some(release) = decision.release {
            self.standing = Standing::Kept;
            let proves = match release.class {
                Class::Ambiguous => "nobody knows what the call did",
                Class::NothingDone => "the call did nothing",
            };
            return Err(Error::new(ErrorKind::Unquiesced, "detach receiver")
                .with_provider(NAME)
                .with_object(INTERFACE)
                .with_errno(release.errno)
                .with_detail(format!("the fault plan says so; {proves}")));
        }
        self.detach();
        match decision.error {
            None => Ok(()),
            Some(errno) => Err(Error::from_errno("close", errno)
                .with_provider(NAME)
                .with_detail("the fault plan says so")),
        }
    }
}

impl Drop for LoopbackReceiver {
    fn drop(&mut self) {
        if self.standing == Standing::Attached {
            self.detach();
        }
    }
}
