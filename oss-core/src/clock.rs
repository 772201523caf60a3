//! Time as a value that is handed in, so that tests decide what time it is.
//!
//! Promises: [`Clock::now`] never goes backwards. Does not do: sleeping, timers, or time stamps of packets (those carry
//! their own clock domain).

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use crate::sync::{AtomicU64, Ordering};

/// A source of time.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time since this clock's origin; never less than an earlier answer.
    fn now(&self) -> Duration;

    /// The time of day for reports; it may jump when an operator sets the clock.
    fn wall(&self) -> SystemTime;
}

/// The operating system's monotonic clock, with its origin at construction.
#[derive(Debug, Clone)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that starts at zero now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// A clock that moves only when it is told to; its time of day counts from the Unix epoch.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: AtomicU64,
}

impl ManualClock {
    /// A clock that stands at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward. It stops at about 584 years.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let mut now = self.nanos.load(Ordering::Acquire);
        while let Err(seen) = self.nanos.compare_exchange(
            now,
            now.saturating_add(by),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            now = seen;
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + self.now()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_when_told_and_saturates() {
        let clock = ManualClock::new();
        assert_eq!(clock.now(), Duration::ZERO);
        clock.advance(Duration::from_millis(3));
        assert_eq!(clock.now(), Duration::from_millis(3));
        assert_eq!(
            clock.wall(),
            SystemTime::UNIX_EPOCH + Duration::from_millis(3)
        );
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), Duration::from_nanos(u64::MAX));
    }
}
