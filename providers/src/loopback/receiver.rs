//! The receiver's end: polls the ring, waits on the bell, detaches on close.
//!
//! Promises: a poll takes no lock and allocates nothing, unless the plan holds packets back or the receiver generates its own.
//! A wait sleeps on a condition variable, or spins in busy-poll mode; its time-out runs on the system's clock, because whoever
//! waits really waits. Does not do: touching the network after its close.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use lockgate::custody::Owner;
use lockgate::receive::{
    Batch, Event, PacketReceiver, Readiness, ReceiverConfig, Slabs, Statistics, WaitMode,
};
use lockgate::{Error, ErrorKind, Result};

use super::attachment::Attachment;
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
    statistics: Statistics,
    /// Nothing after the close. Dropped with the receiver, it detaches, or goes to the quarantine if that fails.
    attachment: Option<Owner<Attachment>>,
}

impl LoopbackReceiver {
    pub(super) fn new(
        attachment: Owner<Attachment>,
        config: &ReceiverConfig,
        consumer: Consumer,
        shared: Arc<Shared>,
        generator: Option<Generator>,
    ) -> Self {
        Self {
            network: attachment.native().network.clone(),
            id: attachment.native().id,
            batch: config.batch as usize,
            wait: config.wait,
            consumer,
            shared,
            generator,
            statistics: Statistics::default(),
            attachment: Some(attachment),
        }
    }

    fn check_open(&self, operation: &'static str) -> Result<()> {
        if self.attachment.is_some() {
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
        let Some(owner) = self.attachment.take() else {
            return Err(Error::new(ErrorKind::Closed, "close").with_provider(NAME));
        };
        let Err(unreleased) = owner.close() else {
            return Ok(());
        };
        let errno = unreleased.failure().and_then(|failure| failure.errno);
        let class = unreleased.class();
        let entry = unreleased.quarantine();
        let error = Error::new(ErrorKind::Unquiesced, "detach receiver")
            .with_provider(NAME)
            .with_object(INTERFACE)
            .with_detail(format!("{class}, {entry} of the quarantine"));
        Err(match errno {
            Some(errno) => error.with_errno(errno),
            None => error,
        })
    }
}
