//! Decorator `metrics`: counters of a receiver through the facade [`metrics`].
//!
//! Promises: names, units and meaning are those of `docs/METRICS.md`; a test of the workspace compares the two. The handles are made once,
//! when the decorator is put on; a poll then costs a few atomic additions and no allocation of its own. A place of loss that
//! the receiver can't count gets no series, rather than a zero.
//! Does not do: installing a recorder. The application does, before it decorates; handles made earlier stay mute.
//!
//! ```no_run
//! # fn example(receiver: lockgate::receive::Receiver) {
//! use lockgate_providers::metrics::Metrics;
//! let receiver = receiver.decorate(|inner| Metrics::new("feed-a").wrap(inner));
//! # }
//! ```

mod names;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Counter, Gauge, Histogram};
use lockgate::Result;
use lockgate::clock::{Clock, SystemClock};
use lockgate::receive::{Batch, Event, PacketReceiver, Readiness, Setting, Statistics};

pub use names::{METRICS, Metric, Shape};

/// How often the loss counters are asked for, unless another interval is set.
const INTERVAL: Duration = Duration::from_secs(1);

/// Describes the decorator.
#[derive(Clone, Debug)]
pub struct Metrics {
    name: String,
    interval: Duration,
    clock: Arc<dyn Clock>,
}

impl Metrics {
    /// With the label `receiver` set to `name`; losses are read once a second.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            interval: INTERVAL,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// With another interval between two readings of the loss counters: for providers a reading may be a system call.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// On another clock.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Puts it around a receiver, with handles of the recorder that is installed in this thread now.
    #[must_use]
    pub fn wrap(self, inner: Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver> {
        names::describe();
        let name = self.name;
        let counter = |metric: Metric| ::metrics::counter!(metric.name, "receiver" => name.clone());
        let wait = |outcome| ::metrics::counter!(names::WAITS.name, "receiver" => name.clone(), "outcome" => outcome);
        let open = ::metrics::gauge!(names::OPEN.name, "receiver" => name.clone());
        open.set(1.0);
        let places = lockgate::receive::Losses::default().by_place().len();
        let mut counted = Counted {
            packets: counter(names::PACKETS),
            bytes: counter(names::BYTES),
            batches: counter(names::BATCHES),
            empty: counter(names::EMPTY_POLLS),
            poll_errors: counter(names::POLL_ERRORS),
            batch_packets: ::metrics::histogram!(names::BATCH_PACKETS.name, "receiver" => name.clone()),
            ready: wait("ready"),
            timed_out: wait("timed-out"),
            wait_errors: wait("error"),
            losses: vec![None; places],
            open,
            interval: self.interval,
            losses_read: self.clock.now(),
            clock: self.clock,
            name,
            inner,
        };
        counted.read_losses();
        Box::new(counted)
    }
}

struct Counted {
    packets: Counter,
    bytes: Counter,
    batches: Counter,
    empty: Counter,
    poll_errors: Counter,
    batch_packets: Histogram,
    ready: Counter,
    timed_out: Counter,
    wait_errors: Counter,
    /// One for each place that the receiver has counted at least once, in the core's order.
    losses: Vec<Option<Counter>>,
    open: Gauge,
    interval: Duration,
    /// When the losses were last read.
    losses_read: Duration,
    clock: Arc<dyn Clock>,
    name: String,
    inner: Box<dyn PacketReceiver>,
}

impl Counted {
    fn read_losses(&mut self) -> Statistics {
        let statistics = self.inner.statistics();
        for (handle, (place, count)) in self.losses.iter_mut().zip(statistics.losses.by_place()) {
            if let Some(count) = count {
                // Made at the first count, which for all providers is the reading at the start; not on the data path.
                let handle = handle.get_or_insert_with(|| {
                    ::metrics::counter!(names::LOST.name, "receiver" => self.name.clone(), "place" => place)
                });
                handle.absolute(count);
            }
        }
        statistics
    }
}

impl PacketReceiver for Counted {
    fn poll(&mut self) -> Result<Batch<'_>> {
        // Before the poll: what it returns borrows the receiver, whose losses are asked for here.
        let now = self.clock.now();
        if now.saturating_sub(self.losses_read) >= self.interval {
            self.losses_read = now;
            self.read_losses();
        }
        match self.inner.poll() {
            Ok(batch) if batch.is_empty() => {
                self.empty.increment(1);
                Ok(batch)
            }
            Ok(batch) => {
                let payload = |one: &lockgate::receive::Descriptor| u64::from(one.payload_len);
                self.packets.increment(batch.len() as u64);
                self.bytes
                    .increment(batch.descriptors().iter().map(payload).sum());
                self.batches.increment(1);
                // At most 4,096, the largest batch.
                self.batch_packets.record(batch.len() as f64);
                Ok(batch)
            }
            Err(error) => {
                self.poll_errors.increment(1);
                Err(error)
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        let result = self.inner.wait(timeout);
        match &result {
            Ok(Readiness::Ready) => self.ready.increment(1),
            Ok(Readiness::TimedOut) => self.timed_out.increment(1),
            Err(_) => self.wait_errors.increment(1),
        }
        result
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness_fd()
    }

    fn statistics(&mut self) -> Statistics {
        self.read_losses()
    }

    fn take_event(&mut self) -> Option<Event> {
        let event = self.inner.take_event()?;
        // Rare, and off the data path: the handle is looked up each time.
        ::metrics::counter!(
            names::EVENTS.name,
            "receiver" => self.name.clone(),
            "event" => event.name(),
        )
        .increment(1);
        Some(event)
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.inner.settings();
        settings.push(Setting {
            name: "metrics.interval",
            asked: format!("{:?}", self.interval),
            granted: format!("{:?}", self.interval),
            warning: None,
        });
        settings
    }

    fn close(&mut self) -> Result<()> {
        let result = self.inner.close();
        self.read_losses();
        self.open.set(0.0);
        result
    }
}

impl Drop for Counted {
    /// A receiver that was dropped without a close is not open either.
    fn drop(&mut self) {
        self.open.set(0.0);
    }
}
