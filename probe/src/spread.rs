//! How times are spread: percentiles of a histogram in constant memory.
//!
//! Promises: from a nanosecond to a minute with three digits; what is longer counts as a minute, and the largest is told as it was.
//! Does not do: averages, which hide what matters.

use hdrhistogram::Histogram;
use lockgate::{Error, ErrorKind, Result};
use serde::Serialize;

use crate::output;

/// The longest time that a histogram tells apart.
const LONGEST: u64 = 60_000_000_000;

/// Percentiles, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Spread {
    /// How many times were measured.
    pub(crate) count: u64,
    /// The smallest.
    pub(crate) min: u64,
    /// Half were smaller.
    pub(crate) p50: u64,
    /// One in ten was larger.
    pub(crate) p90: u64,
    /// One in a hundred was larger.
    pub(crate) p99: u64,
    /// One in a thousand was larger.
    pub(crate) p99_9: u64,
    /// The largest.
    pub(crate) max: u64,
}

impl Spread {
    /// Of a histogram; nothing if it has nothing.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Option<Self> {
        (!histogram.is_empty()).then(|| Self {
            count: histogram.len(),
            min: histogram.min(),
            p50: histogram.value_at_quantile(0.5),
            p90: histogram.value_at_quantile(0.9),
            p99: histogram.value_at_quantile(0.99),
            p99_9: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        })
    }

    /// In one line that fits 80 columns behind a label.
    pub(crate) fn text(&self) -> String {
        let time = output::nanoseconds;
        format!(
            "p50 {}, p99 {}, p99.9 {}, max {}",
            time(self.p50),
            time(self.p99),
            time(self.p99_9),
            time(self.max)
        )
    }
}

/// A histogram for times of up to a minute: about 200 KiB.
pub(crate) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LONGEST, 3)
        .map_err(|error| Error::new(ErrorKind::Bug, "make histogram").with_source(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut histogram = histogram().unwrap();
        assert_eq!(Spread::of(&histogram), None);
        for time in 1..=1_000 {
            histogram.saturating_record(time);
        }
        let spread = Spread::of(&histogram).unwrap();
        assert_eq!((spread.count, spread.min, spread.max), (1_000, 1, 1_000));
        assert_eq!((spread.p50, spread.p90, spread.p99), (500, 900, 990));
        assert_eq!(
            spread.text(),
            "p50 500 ns, p99 990 ns, p99.9 999 ns, max 1.00 us"
        );
    }
}
