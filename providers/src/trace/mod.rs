//! Decorator `trace`: what a receiver does, told through `tracing`.
//!
//! Promises: everything inside runs in one span, `receiver`, so that a provider's own events say whose they are. Data-path
//! events are rate-limited: at most one of a kind per interval, with the number of those that were not told. A poll
//! makes no allocation, and without a subscriber costs a reading of the clock.
//! Does not do: a span or an event for each packet; changing, holding or counting packets for others.
//!
//! | event | level | when | fields |
//! | --- | --- | --- | --- |
//! | `receiver decorated` | debug | once | |
//! | `receiver traffic` | debug | each interval in which a poll came | `polls`, `empty`, `packets`, `bytes`: since the last such event |
//! | `packets lost` | warn | each interval in which a loss counter rose | `place`, `lost` since the last such event, `total` |
//! | `poll failed`, `wait failed` | error | the first, then at most one each interval | `error`, `suppressed` |
//! | `receiver event` | info | each event of the receiver, when it is taken | `event` |
//! | `receiver closed` | info | once | `packets`, `bytes`, `batches`, `lost` |
//! | `close failed` | error | once | `error` |
//!
//! ```no_run
//! # fn example(receiver: lockgate::receive::Receiver) {
//! use lockgate_providers::trace::Trace;
//! let receiver = receiver.decorate(|inner| Trace::new("feed-a").wrap(inner));
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use lockgate::clock::{Clock, SystemClock};
use lockgate::receive::{Batch, Event, Losses, PacketReceiver, Readiness, Setting, Statistics};
use lockgate::{Error, Result};
use tracing::Span;

/// The interval unless another one is set.
const INTERVAL: Duration = Duration::from_secs(1);

/// Describes the decorator.
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    interval: Duration,
    clock: Arc<dyn Clock>,
}

impl Trace {
    /// With `name` in the span, one event of a kind a second at most.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            interval: INTERVAL,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// With another interval between two events of a kind; zero lifts the limit.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// On another clock.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// Puts it around a receiver.
    #[must_use]
    pub fn wrap(self, mut inner: Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver> {
        let span = tracing::info_span!("receiver", name = self.name);
        span.in_scope(|| tracing::debug!("receiver decorated"));
        let now = self.clock.now();
        let losses = inner.statistics().losses;
        Box::new(Traced {
            inner,
            span,
            clock: self.clock,
            interval: self.interval,
            traffic: Traffic::default(),
            told: now,
            losses,
            poll_failures: Limit::default(),
            wait_failures: Limit::default(),
        })
    }
}

struct Traced {
    inner: Box<dyn PacketReceiver>,
    span: Span,
    clock: Arc<dyn Clock>,
    interval: Duration,
    traffic: Traffic,
    /// When traffic and losses were last told.
    told: Duration,
    /// The losses that have been told.
    losses: Losses,
    poll_failures: Limit,
    wait_failures: Limit,
}

/// What came since it was last told.
#[derive(Clone, Copy, Default)]
struct Traffic {
    polls: u64,
    empty: u64,
    packets: u64,
    bytes: u64,
}

/// Lets one through each interval and counts the others.
#[derive(Clone, Copy, Default)]
struct Limit {
    last: Option<Duration>,
    suppressed: u64,
}

impl Limit {
    /// The number of those that were held back since the last one, if this one may be told.
    fn pass(&mut self, now: Duration, interval: Duration) -> Option<u64> {
        if self
            .last
            .is_some_and(|last| now.saturating_sub(last) < interval)
        {
            self.suppressed += 1;
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.suppressed))
    }
}

impl Traced {
    /// Tells traffic and losses if the interval is over.
    fn tell(&mut self) {
        let now = self.clock.now();
        if now.saturating_sub(self.told) < self.interval || self.traffic.polls == 0 {
            return;
        }
        self.told = now;
        self.tell_now();
    }

    fn tell_now(&mut self) {
        let _in_span = self.span.enter();
        let Traffic {
            polls,
            empty,
            packets,
            bytes,
        } = std::mem::take(&mut self.traffic);
        tracing::debug!(polls, empty, packets, bytes, "receiver traffic");
        let losses = self.inner.statistics().losses;
        for ((place, total), (_, before)) in
            losses.by_place().into_iter().zip(self.losses.by_place())
        {
            let (total, before) = (total.unwrap_or(0), before.unwrap_or(0));
            if total > before {
                tracing::warn!(place, lost = total - before, total, "packets lost");
            }
        }
        self.losses = losses;
    }
}

impl PacketReceiver for Traced {
    fn poll(&mut self) -> Result<Batch<'_>> {
        // Told before the poll: what it returns borrows the receiver, whose losses are asked for here.
        self.tell();
        let _in_span = self.span.enter();
        self.traffic.polls += 1;
        match self.inner.poll() {
            Ok(batch) => {
                if batch.is_empty() {
                    self.traffic.empty += 1;
                }
                for one in batch.descriptors() {
                    self.traffic.packets += 1;
                    self.traffic.bytes += u64::from(one.payload_len);
                }
                Ok(batch)
            }
            Err(error) => {
                let now = self.clock.now();
                if let Some(suppressed) = self.poll_failures.pass(now, self.interval) {
                    tracing::error!(%error, suppressed, "poll failed");
                }
                Err(error)
            }
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        let _in_span = self.span.enter();
        match self.inner.wait(timeout) {
            Ok(readiness) => Ok(readiness),
            Err(error) => {
                let now = self.clock.now();
                if let Some(suppressed) = self.wait_failures.pass(now, self.interval) {
                    tracing::error!(%error, suppressed, "wait failed");
                }
                Err(error)
            }
        }
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness_fd()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn take_event(&mut self) -> Option<Event> {
        let _in_span = self.span.enter();
        let event = self.inner.take_event();
        if let Some(event) = &event {
            tracing::info!(?event, "receiver event");
        }
        event
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.inner.settings();
        settings.push(Setting {
            name: "trace.interval",
            asked: format!("{:?}", self.interval),
            granted: format!("{:?}", self.interval),
            warning: None,
        });
        settings
    }

    fn close(&mut self) -> Result<()> {
        let result = self.span.in_scope(|| self.inner.close());
        self.tell_now();
        let _in_span = self.span.enter();
        let Statistics {
            packets,
            bytes,
            batches,
            losses,
            ..
        } = self.inner.statistics();
        match &result {
            Ok(()) => {
                tracing::info!(
                    packets,
                    bytes,
                    batches,
                    lost = losses.total(),
                    "receiver closed"
                );
            }
            Err(error) => tell_close_failed(error),
        }
        result
    }
}

#[cold]
fn tell_close_failed(error: &Error) {
    tracing::error!(%error, "close failed");
}
