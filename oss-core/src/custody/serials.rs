//! Serials: numbers that are never used twice in one domain.
//!
//! Promises: from 1 upwards, each at most once, from any thread; running out is an error and never a wrap. Does not do:
//! ordering between threads beyond that, or meaning: an object, a generation and an attempt all take theirs here.

use std::fmt;
use std::num::NonZeroU64;

use serde::Serialize;

use crate::sync::{AtomicU64, Ordering};

/// The last serial that is given out. The distance to the end of the range is more than the number of threads that can
/// add at the same time, so that the counter itself never wraps.
const LAST: u64 = u64::MAX - (1 << 32);

/// A number that its domain gives out once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Serial(NonZeroU64);

impl Serial {
    /// The plain number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which life of a range or a key is meant: a serial that is checked wherever the key or a descriptor is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Generation(Serial);

impl Generation {
    /// The plain number, as it stands in a descriptor.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0.number()
    }

    /// Whether a number that came in a descriptor is this generation.
    #[must_use]
    pub const fn matches(self, number: u64) -> bool {
        self.0.number() == number
    }
}

impl From<Serial> for Generation {
    fn from(serial: Serial) -> Self {
        Self(serial)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The source of serials of one domain.
#[derive(Debug)]
pub struct Serials {
    next: AtomicU64,
}

impl Serials {
    pub(crate) fn new() -> Self {
        Self::starting_at(1)
    }

    fn starting_at(next: u64) -> Self {
        Self {
            next: AtomicU64::new(next),
        }
    }

    /// The next serial.
    ///
    /// # Errors
    /// [`Exhausted`] when all have been given out, from then on for ever.
    pub fn take(&self) -> Result<Serial, Exhausted> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= LAST => Ok(Serial(number)),
            _ => {
                self.next.store(LAST + 1, Ordering::Relaxed);
                Err(Exhausted)
            }
        }
    }
}

/// A domain has given out all of its serials; it takes nothing new any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "all {LAST} serials of this domain are used up; open a new domain"
        )
    }
}

impl std::error::Error for Exhausted {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn serials_start_at_one_and_never_repeat_across_threads() {
        let serials = Serials::new();
        assert_eq!(serials.take().map(Serial::number), Ok(1));
        let mut all: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        (0..1000)
                            .map(|_| serials.take().expect("not exhausted").number())
                            .collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        all.sort_unstable();
        assert_eq!(all, (2..=4001).collect::<Vec<_>>());
    }

    #[test]
    fn running_out_is_an_error_for_ever_and_never_a_wrap() {
        let serials = Serials::starting_at(LAST);
        assert_eq!(serials.take().map(Serial::number), Ok(LAST));
        for _ in 0..10 {
            assert_eq!(serials.take(), Err(Exhausted));
        }
    }
}
