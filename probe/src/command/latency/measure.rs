//! Takes the packets of numbered streams and measures how long each was on its way.
//!
//! Promises: both times of a measurement are of the system's real-time clock; what can't be measured on it is counted by its reason, not
//! left out. Does not do: judging.

use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockgate::Result;
use lockgate::receive::{Batch, Stamp, SystemRealTime};
use serde::Serialize;

use crate::spread;
use crate::stream::{self, Bad, Clock, Tracker};

/// Takes a histogram of an interval: its start and its length.
pub(super) type Log<'a> = dyn FnMut(&Histogram<u64>, Duration, Duration) -> io::Result<()> + 'a;

/// How long an interval of the log is.
const INTERVAL: Duration = Duration::from_secs(1);

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Counts {
    /// Packets of the stream.
    pub(super) packets: u64,
    /// Those stamped by the kernel.
    pub(super) stamped_by_kernel: u64,
    /// Those stamped here, when the poll had returned.
    pub(super) stamped_at_poll: u64,
    /// Not measured: the sender's times are of another clock.
    pub(super) other_clock: u64,
    /// Not measured: they arrived before they were sent, so that the two clocks disagree.
    pub(super) before_sent: u64,
    /// Packets of the stream with a wrong byte.
    pub(super) damaged: u64,
    /// Packets of somebody else.
    pub(super) foreign: u64,
    /// Numbers that came again.
    pub(super) duplicates: u64,
    /// Numbers that came after a higher one.
    pub(super) reordered: u64,
    /// Numbers that did not come.
    pub(super) missing: u64,
}

/// Measures one stream.
pub(super) struct Measure {
    /// The stream; nothing takes the first that comes.
    stream: Option<u64>,
    tracker: Tracker,
    /// The lowest number.
    first: Option<u64>,
    pub(super) counts: Counts,
    /// From the sending call.
    pub(super) from_sent: Histogram<u64>,
    /// From the schedule.
    pub(super) from_due: Histogram<u64>,
    interval: Histogram<u64>,
    began: Duration,
    started: Instant,
    /// The packet came that says that it is the last.
    pub(super) ended: bool,
}

impl Measure {
    /// Starts.
    pub(super) fn new(stream: Option<u64>, started: Instant) -> Result<Self> {
        Ok(Self {
            stream,
            tracker: Tracker::new(),
            first: None,
            counts: Counts::default(),
            from_sent: spread::histogram()?,
            from_due: spread::histogram()?,
            interval: spread::histogram()?,
            began: Duration::ZERO,
            started,
            ended: false,
        })
    }

    /// Takes a batch that a poll has just returned; at most `most` packets of the stream.
    pub(super) fn batch(&mut self, batch: Batch<'_>, most: u64) {
        let now = Stamp::<SystemRealTime>::now();
        for packet in batch {
            if self.counts.packets >= most {
                return;
            }
            let stamp = packet.timestamp().system();
            self.packet(packet.payload(), stamp, now);
        }
    }

    fn packet(
        &mut self,
        payload: &[u8],
        stamp: Option<Stamp<SystemRealTime>>,
        now: Stamp<SystemRealTime>,
    ) {
        let header = match stream::parse(payload) {
            Ok(header) if *self.stream.get_or_insert(header.stream) == header.stream => header,
            Ok(_) | Err(Bad::Foreign) => {
                self.counts.foreign += 1;
                return;
            }
            Err(_) => {
                self.counts.damaged += 1;
                return;
            }
        };
        self.counts.packets += 1;
        self.ended |= header.last;
        self.tracker.record(header.sequence);
        let first = self.first.get_or_insert(header.sequence);
        *first = (*first).min(header.sequence);
        if header.clock != Clock::RealTime {
            self.counts.other_clock += 1;
            return;
        }
        let arrived = stamp.unwrap_or(now);
        let Some(since) = arrived.since(Stamp::from_raw(header.sent)) else {
            self.counts.before_sent += 1;
            return;
        };
        match stamp {
            Some(_) => self.counts.stamped_by_kernel += 1,
            None => self.counts.stamped_at_poll += 1,
        }
        self.from_sent.saturating_record(since);
        self.interval.saturating_record(since);
        let since_due = arrived.raw().saturating_sub(header.due);
        self.from_due.saturating_record(since_due);
    }

    /// Whether every number up to the highest has come, from 0 on.
    pub(super) fn is_complete(&self) -> bool {
        self.tracker.unique() == self.tracker.next()
    }

    /// Hands an interval to the log, if it is over or the run is at its `end`.
    pub(super) fn log(&mut self, log: &mut Log<'_>, end: bool) -> io::Result<()> {
        let now = self.started.elapsed();
        let length = now.saturating_sub(self.began);
        if (length < INTERVAL && !end) || (end && self.interval.is_empty()) {
            return Ok(());
        }
        log(&self.interval, self.began, length)?;
        self.interval.reset();
        self.began = now;
        Ok(())
    }

    /// Adds what only the end tells: of `sent` packets so many are missing; without that, of the numbers between first and last.
    pub(super) fn finish(&mut self, sent: Option<u64>) {
        let seen = self.tracker.next() - self.first.unwrap_or(0);
        let expected = sent.unwrap_or(seen);
        self.counts.missing = expected.saturating_sub(self.tracker.unique());
        self.counts.duplicates = self.tracker.duplicates();
        self.counts.reordered = self.tracker.reordered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Header;

    fn packet(sequence: u64, clock: Clock) -> Vec<u8> {
        let mut payload = vec![0; 64];
        let header = Header {
            stream: 7,
            sequence,
            clock,
            due: 900,
            sent: 1_000,
            last: sequence == 9,
        };
        stream::write(&mut payload, &header);
        payload
    }

    fn at(raw: u64) -> Stamp<SystemRealTime> {
        Stamp::from_raw(raw)
    }

    #[test]
    fn times_are_from_the_call_and_from_the_schedule_to_the_best_stamp() {
        let mut measure = Measure::new(None, Instant::now()).unwrap();
        measure.packet(&packet(4, Clock::RealTime), Some(at(1_500)), at(9_999));
        measure.packet(&packet(5, Clock::RealTime), None, at(1_700));
        assert_eq!(
            (measure.from_sent.min(), measure.from_sent.max()),
            (500, 700)
        );
        assert_eq!((measure.from_due.min(), measure.from_due.max()), (600, 800));
        let counts = &measure.counts;
        assert_eq!((counts.stamped_by_kernel, counts.stamped_at_poll), (1, 1));
    }

    #[test]
    fn what_can_not_be_measured_is_counted_by_its_reason() {
        let mut measure = Measure::new(Some(7), Instant::now()).unwrap();
        measure.packet(&packet(0, Clock::Monotonic), None, at(2_000));
        measure.packet(&packet(1, Clock::RealTime), None, at(999));
        measure.packet(b"somebody else's", None, at(2_000));
        let mut damaged = packet(2, Clock::RealTime);
        damaged[60] ^= 1;
        measure.packet(&damaged, None, at(2_000));
        measure.packet(&packet(9, Clock::RealTime), None, at(2_000));
        measure.packet(&packet(9, Clock::RealTime), None, at(2_000));
        measure.finish(None);
        let expected = Counts {
            packets: 4,
            stamped_at_poll: 2,
            other_clock: 1,
            before_sent: 1,
            damaged: 1,
            foreign: 1,
            duplicates: 1,
            missing: 7,
            ..Counts::default()
        };
        assert_eq!(measure.counts, expected);
        assert!(measure.ended);
        measure.finish(Some(12));
        assert_eq!(measure.counts.missing, 9);
    }

    #[test]
    fn the_log_gets_every_interval_once_and_the_rest_at_the_end() {
        let mut measure = Measure::new(None, Instant::now()).unwrap();
        let mut lengths = Vec::new();
        let mut log = |histogram: &Histogram<u64>, _: Duration, _: Duration| {
            lengths.push(histogram.len());
            Ok(())
        };
        measure.packet(&packet(0, Clock::RealTime), None, at(2_000));
        measure.log(&mut log, false).unwrap();
        measure.log(&mut log, true).unwrap();
        measure.log(&mut log, true).unwrap();
        assert_eq!(lengths, [1]);
    }
}
