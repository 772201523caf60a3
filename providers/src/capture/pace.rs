//! When to send the packets of a capture again.
//!
//! Promises: pure arithmetic on the capture's own times; due times never go back, even where the capture's do. Does not do:
//! sleeping and sending. The caller waits until the due time on a clock of its own.

use std::time::Duration;

/// How fast a capture is sent again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Pace {
    /// So many times as fast as it was captured: 2.0 takes half of the time.
    Factor(f64),
    /// As fast as it goes.
    FlatOut,
    /// With the gaps that it was captured with.
    #[default]
    Original,
}

/// A pace that can't be kept.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("pace: value {factor} is not a factor; allowed: a finite number above 0")]
pub struct PaceError {
    /// The factor as given.
    pub factor: f64,
}

/// Turns times of a capture into due times since the start of the replay.
///
/// ```
/// use std::time::Duration;
/// use lockgate_providers::capture::{Pace, Schedule};
/// let mut schedule = Schedule::new(Pace::Factor(2.0))?;
/// assert_eq!(schedule.due(Some(1_000_000_000)), Duration::ZERO);
/// assert_eq!(schedule.due(Some(1_500_000_000)), Duration::from_millis(250));
/// # Ok::<(), lockgate_providers::capture::PaceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schedule {
    pace: Pace,
    first: Option<u64>,
    last: Duration,
    backwards: u64,
    untimed: u64,
}

impl Schedule {
    /// A schedule whose first packet is due at once.
    ///
    /// # Errors
    /// [`PaceError`] if the factor is zero, negative or not finite.
    pub fn new(pace: Pace) -> Result<Self, PaceError> {
        if let Pace::Factor(factor) = pace
            && !(factor.is_finite() && factor > 0.0)
        {
            return Err(PaceError { factor });
        }
        Ok(Self {
            pace,
            first: None,
            last: Duration::ZERO,
            backwards: 0,
            untimed: 0,
        })
    }

    /// When the next packet, captured at `nanos`, is due since the start of the replay. A packet that was captured before the one
    /// ahead of it, or at no known time, is due together with that one.
    pub fn due(&mut self, nanos: Option<u64>) -> Duration {
        let Some(nanos) = nanos else {
            self.untimed += 1;
            return self.last;
        };
        let first = *self.first.get_or_insert(nanos);
        let since = nanos.checked_sub(first).map(Duration::from_nanos);
        let due = match (self.pace, since) {
            (Pace::FlatOut, _) => return Duration::ZERO,
            (Pace::Original, Some(since)) => since,
            // A factor so small that the result overflows means "never".
            (Pace::Factor(factor), Some(since)) => {
                Duration::try_from_secs_f64(since.as_secs_f64() / factor).unwrap_or(Duration::MAX)
            }
            (_, None) => Duration::ZERO,
        };
        if since.is_none() || due < self.last {
            self.backwards += 1;
        }
        self.last = self.last.max(due);
        self.last
    }

    /// How many packets were captured before the one ahead of them.
    #[must_use]
    pub fn backwards(&self) -> u64 {
        self.backwards
    }

    /// How many packets had no time.
    #[must_use]
    pub fn untimed(&self) -> u64 {
        self.untimed
    }
}
