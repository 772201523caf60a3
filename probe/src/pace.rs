//! When to send: a token bucket on an exact schedule, and a wait that keeps it.
//!
//! Promises: token `n` is due `n` intervals after the start, computed anew from `n`, so that no rounding adds up; a sender that was late
//! catches up by at most the bucket's content, and what it missed beyond that is counted. Does not do: sending.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use crate::cli::Rate;

/// How long one sleep lasts at most, so that a signal is noticed.
const SLICE: Duration = Duration::from_millis(50);
/// Less than this before the time the wait stops sleeping and gives the processor to whoever wants it, again and again.
const CLOSE: Duration = Duration::from_micros(80);

/// The bucket: tokens appear in it one by one, and it holds so many.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    /// One token every `num` / `den` nanoseconds; nothing: no limit.
    interval: Option<(u128, u128)>,
    holds: u64,
    /// The number of the next token.
    next: u64,
    missed: u64,
}

/// Packets that may go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// How many.
    pub(crate) packets: u64,
    /// The number of the first one's token.
    token: u64,
}

impl Bucket {
    /// A bucket that has its first token at time 0, for payloads of `size` bytes.
    pub(crate) fn new(rate: Rate, size: u64, holds: u64) -> Self {
        const NANOS: u128 = 1_000_000_000;
        let interval = match rate {
            Rate::Bits(bits) => Some((u128::from(size) * 8 * NANOS, u128::from(bits))),
            Rate::Packets(packets) => Some((NANOS, u128::from(packets))),
            Rate::Unlimited => None,
        };
        Self {
            interval: interval.map(|(num, den)| (num, den.max(1))),
            holds: holds.max(1),
            next: 0,
            missed: 0,
        }
    }

    /// When the next packet is due, in nanoseconds since the start; without a limit at once.
    pub(crate) fn due(&self) -> u64 {
        self.due_of(self.next)
    }

    fn due_of(&self, token: u64) -> u64 {
        match self.interval {
            // 2^64 ns are 584 years.
            Some((num, den)) => {
                // Rounded up: at this time the token is there.
                u64::try_from((u128::from(token) * num).div_ceil(den)).unwrap_or(u64::MAX)
            }
            None => 0,
        }
    }

    /// How many packets may go at `now`, `most` at most. What does not fit into the bucket any more is missed.
    pub(crate) fn turn(&mut self, now: u64, most: u64) -> Turn {
        let Some((num, den)) = self.interval else {
            return Turn {
                packets: most,
                token: self.next,
            };
        };
        let appeared = u64::try_from(u128::from(now) * den / num).unwrap_or(u64::MAX - 1) + 1;
        let there = appeared.saturating_sub(self.next);
        let over = there.saturating_sub(self.holds);
        self.next += over;
        self.missed += over;
        Turn {
            packets: (there - over).min(most),
            token: self.next,
        }
    }

    /// When packet `at` of a turn was due; without a limit `now`.
    pub(crate) fn due_in(&self, turn: Turn, at: u64, now: u64) -> u64 {
        match self.interval {
            Some(_) => self.due_of(turn.token + at),
            None => now,
        }
    }

    /// Takes tokens out.
    pub(crate) fn take(&mut self, tokens: u64) {
        self.next += tokens;
    }

    /// How many tokens were lost because the sender came too late for them.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }
}

/// Makes the sleeps of this thread as exact as the kernel can.
pub(crate) fn sharpen_sleep() {
    // Without it the kernel may add 50 microseconds to each. A kernel that refuses leaves it at that: less exact, still right.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Waits until `due` nanoseconds after `origin`; ends early, with false, once `stopped` says so.
pub(crate) fn wait_until(origin: Instant, due: u64, mut stopped: impl FnMut() -> bool) -> bool {
    let due = Duration::from_nanos(due);
    loop {
        if stopped() {
            return false;
        }
        let left = due.saturating_sub(origin.elapsed());
        if left.is_zero() {
            return true;
        }
        if left > CLOSE {
            thread::sleep((left - CLOSE).min(SLICE));
        } else {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn tokens_come_at_their_rate_without_rounding_that_adds_up() {
        let mut bucket = Bucket::new(Rate::Packets(3), 100, 1);
        for expected in [0, 333_333_334, 666_666_667, SECOND] {
            let due = bucket.due();
            assert_eq!(due, expected);
            if due > 0 {
                assert_eq!(bucket.turn(due - 1, 9).packets, 0);
            }
            assert_eq!(bucket.turn(due, 9).packets, 1);
            bucket.take(1);
        }
        bucket.take(3 * 1_000_000 - 4);
        assert_eq!(bucket.due(), 1_000_000 * SECOND);
    }

    #[test]
    fn bits_count_the_payload() {
        let mut bucket = Bucket::new(Rate::Bits(8_000), 100, 1);
        bucket.take(10);
        assert_eq!(bucket.due(), SECOND, "ten packets of 800 bits");
    }

    #[test]
    fn a_late_sender_catches_up_by_what_the_bucket_holds_and_the_rest_is_missed() {
        let mut bucket = Bucket::new(Rate::Packets(1_000), 100, 4);
        let turn = bucket.turn(0, 64);
        assert_eq!(turn.packets, 1);
        bucket.take(1);
        let turn = bucket.turn(SECOND, 64);
        assert_eq!((turn.packets, bucket.missed()), (4, 996));
        assert_eq!(bucket.due_in(turn, 0, 0), SECOND - 3_000_000);
        assert_eq!(bucket.due_in(turn, 3, 0), SECOND);
        bucket.take(4);
        assert_eq!(bucket.turn(SECOND, 64).packets, 0);
        assert_eq!(bucket.due(), SECOND + 1_000_000);
    }

    #[test]
    fn without_a_limit_everything_may_go_now() {
        let mut bucket = Bucket::new(Rate::Unlimited, 100, 1);
        let turn = bucket.turn(5, 64);
        assert_eq!((turn.packets, bucket.due_in(turn, 3, 5)), (64, 5));
        assert_eq!((bucket.due(), bucket.missed()), (0, 0));
    }

    #[test]
    fn a_wait_is_never_short_and_ends_when_told() {
        let origin = Instant::now();
        assert!(wait_until(origin, 2_000_000, || false));
        assert!(origin.elapsed() >= Duration::from_millis(2));
        assert!(!wait_until(origin, u64::MAX, || true));
    }
}
