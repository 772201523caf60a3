//! What the benchmark drivers have in common: the processor time of a thread, and how a series of figures is told.
//!
//! Promises: a figure is told as its median with its quartiles, since means follow the tenants of a shared machine. Does not do:
//! measuring. The drivers under `benches/` do, each beside what a user would otherwise write.

mod sys;

use std::fmt;

pub use sys::processor_time;

/// Median and quartiles of a series.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// A quarter of the values lie below.
    pub low: f64,
    /// The middle value.
    pub median: f64,
    /// A quarter of the values lie above.
    pub high: f64,
}

impl Spread {
    /// Of values in any order; not a number if there are none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |part: usize| {
            values
                .get(values.len() * part / 4)
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            low: at(1),
            median: at(2),
            high: at(3),
        }
    }
}

impl fmt::Display for Spread {
    /// `median (low to high)`, with the digits that the format asks for; without a wish, three below ten and none above.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f
            .precision()
            .unwrap_or(if self.median < 10.0 { 3 } else { 0 });
        write!(
            f,
            "{:.digits$} ({:.digits$} to {:.digits$})",
            self.median, self.low, self.high
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_tells_median_and_quartiles_in_the_digits_asked_for() {
        let spread = Spread::of(vec![40.0, 10.0, 30.0, 20.0]);
        assert_eq!(spread.to_string(), "30 (20 to 40)");
        assert_eq!(format!("{spread:.1}"), "30.0 (20.0 to 40.0)");
        assert_eq!(Spread::of(vec![1.5]).to_string(), "1.500 (1.500 to 1.500)");
        assert!(Spread::of(Vec::new()).median.is_nan());
    }

    #[test]
    fn processor_time_goes_forward_with_work() {
        let began = processor_time();
        while processor_time() == began {
            std::hint::spin_loop();
        }
        assert!(processor_time() > began);
    }
}
