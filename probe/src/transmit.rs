//! Sends a numbered stream at its pace, and measures how well the pace was kept.
//!
//! Promises: a number that was not taken is sent again, so that the receiver's gaps are the network's; every packet says when it was
//! due and when it was handed over; the last one says that it is the last, also after a signal. Does not do: printing.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockgate::receive::{Stamp, SystemRealTime};
use lockgate::{Error, ErrorKind};
use serde::Serialize;

use crate::cli::Rate;
use crate::outlet::{BATCH, Outlet, Refusal};
use crate::pace::{self, Bucket};
use crate::spread::{self, Spread};
use crate::stream::{self, Clock, Header};

/// Nothing taken for so long, only refused for want of a buffer, is an error.
const STUCK: Duration = Duration::from_secs(10);

/// What to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// The number of the stream.
    pub(crate) stream: u64,
    /// How fast.
    pub(crate) rate: Rate,
    /// The bytes of each payload, within the stream's bounds.
    pub(crate) size: usize,
    /// What the bucket holds.
    pub(crate) burst: u64,
    /// How many packets.
    pub(crate) count: Option<u64>,
    /// For how long.
    pub(crate) time: Option<Duration>,
}

/// What was sent.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Sent {
    /// Packets that the system took.
    pub(crate) packets: u64,
    /// Their payload.
    pub(crate) bytes: u64,
    /// Sending calls that took at least one.
    pub(crate) calls: u64,
    /// From the start to the end.
    pub(crate) nanoseconds: u64,
    /// Datagrams that were refused because a queue was full, and were sent again later (ENOBUFS).
    pub(crate) no_buffer: u64,
    /// How often the other host said that nobody listens on the port.
    pub(crate) port_closed: u64,
    /// Tokens that were lost because the sender was late by more than the bucket holds.
    pub(crate) missed_tokens: u64,
    /// Between the starts of one call and the next; with a burst of 1 between one packet and the next.
    pub(crate) gaps: Option<Spread>,
    /// How late each call was against the schedule; nothing without a rate.
    pub(crate) late: Option<Spread>,
}

impl Sent {
    /// Packets a second.
    pub(crate) fn rate(&self) -> f64 {
        self.packets as f64 * 1e9 / (self.nanoseconds.max(1) as f64)
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// On.
    On,
    /// Send the last one and end.
    Stop,
}

/// The times of sending calls.
#[derive(Debug)]
pub(crate) struct Times {
    gaps: Histogram<u64>,
    late: Histogram<u64>,
    previous: Option<u64>,
}

impl Times {
    /// None yet.
    pub(crate) fn new() -> lockgate::Result<Self> {
        Ok(Self {
            gaps: spread::histogram()?,
            late: spread::histogram()?,
            previous: None,
        })
    }

    /// Takes a call that began at `now` and was due at `due`.
    pub(crate) fn call(&mut self, now: u64, due: Option<u64>) {
        if let Some(previous) = self.previous.replace(now) {
            self.gaps.saturating_record(now - previous);
        }
        if let Some(due) = due {
            self.late.saturating_record(now.saturating_sub(due));
        }
    }

    /// Between the starts of calls.
    pub(crate) fn gaps(&self) -> Option<Spread> {
        Spread::of(&self.gaps)
    }

    /// Behind the schedule.
    pub(crate) fn late(&self) -> Option<Spread> {
        Spread::of(&self.late)
    }
}

/// Sends until the count, the time, `watch`, or an error ends it. `watch` is asked before every call.
pub(crate) fn run(
    outlet: &mut dyn Outlet,
    plan: &Plan,
    mut watch: impl FnMut(&Sent) -> Flow,
) -> (Sent, Option<Error>) {
    let mut times = match Times::new() {
        Ok(times) => times,
        Err(error) => return (Sent::default(), Some(error)),
    };
    pace::sharpen_sleep();
    let mut sending = Sending {
        bucket: Bucket::new(plan.rate, plan.size as u64, plan.burst),
        buffers: vec![vec![0; plan.size]; BATCH.min(burst(plan))],
        plan,
        origin: Instant::now(),
        real: Stamp::<SystemRealTime>::now().raw(),
        refused_since: None,
        sent: Sent::default(),
    };
    let error = sending.run(outlet, &mut times, &mut watch).err();
    let mut sent = sending.sent;
    sent.nanoseconds = nanoseconds(sending.origin.elapsed());
    sent.missed_tokens = sending.bucket.missed();
    sent.gaps = times.gaps();
    sent.late = times.late().filter(|_| plan.rate != Rate::Unlimited);
    (sent, error)
}

/// How many packets one call takes at most.
fn burst(plan: &Plan) -> usize {
    match plan.rate {
        Rate::Unlimited => BATCH,
        _ => usize::try_from(plan.burst).unwrap_or(BATCH),
    }
}

struct Sending<'a> {
    plan: &'a Plan,
    bucket: Bucket,
    /// One packet each.
    buffers: Vec<Vec<u8>>,
    origin: Instant,
    /// The system's clock at `origin`.
    real: u64,
    refused_since: Option<Instant>,
    sent: Sent,
}

impl Sending<'_> {
    fn run(
        &mut self,
        outlet: &mut dyn Outlet,
        times: &mut Times,
        watch: &mut impl FnMut(&Sent) -> Flow,
    ) -> Result<(), Error> {
        let end = self.plan.time.map(nanoseconds);
        loop {
            let mut stop = false;
            let sent = &self.sent;
            pace::wait_until(
                self.origin,
                self.bucket.due().min(end.unwrap_or(u64::MAX)),
                || {
                    stop = watch(sent) == Flow::Stop;
                    stop
                },
            );
            let now = nanoseconds(self.origin.elapsed());
            let over = stop || end.is_some_and(|end| now >= end);
            let left = match self.plan.count {
                Some(count) => count - self.sent.packets,
                None => u64::MAX,
            };
            if left == 0 || (over && self.sent.packets == 0) {
                return Ok(());
            }
            if self.call(outlet, times, now, left, over)? && over {
                return Ok(());
            }
        }
    }

    /// One call. Says whether everything of it was taken.
    fn call(
        &mut self,
        outlet: &mut dyn Outlet,
        times: &mut Times,
        now: u64,
        left: u64,
        over: bool,
    ) -> Result<bool, Error> {
        let most = if over { 1 } else { self.buffers.len() as u64 };
        let mut turn = self.bucket.turn(now, most.min(left));
        if over {
            // The one that says that it is the last needs no token.
            turn.packets = 1;
        } else if turn.packets == 0 {
            return Ok(false);
        }
        let packets = turn.packets as usize; // at most BATCH
        let sent = Stamp::<SystemRealTime>::now().raw();
        for (at, buffer) in self.buffers.iter_mut().take(packets).enumerate() {
            let at = at as u64;
            let header = Header {
                stream: self.plan.stream,
                sequence: self.sent.packets + at,
                clock: Clock::RealTime,
                due: self
                    .real
                    .saturating_add(self.bucket.due_in(turn, at, now))
                    .min(sent),
                sent,
                last: over || at + 1 == left,
            };
            stream::write(buffer, &header);
        }
        let slices: Vec<_> = self.buffers[..packets]
            .iter()
            .map(|one| IoSlice::new(one))
            .collect();
        let attempt = outlet.send(&slices);
        let accepted = attempt.accepted as u64;
        self.bucket.take(accepted);
        if accepted > 0 {
            let limited = self.plan.rate != Rate::Unlimited && !over;
            times.call(now, limited.then(|| self.bucket.due_in(turn, 0, now)));
            self.sent.calls += 1;
            self.sent.packets += accepted;
            self.sent.bytes += accepted * self.plan.size as u64;
            self.refused_since = None;
        }
        match attempt.refusal {
            None => {}
            Some(Refusal::Closed) => self.sent.port_closed += 1,
            Some(Refusal::NoBuffer) => {
                self.sent.no_buffer += 1;
                self.bucket.take(1);
                let since = *self.refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > STUCK {
                    return Err(stuck());
                }
                // The queue empties at the interface's own speed.
                std::thread::yield_now();
            }
            Some(Refusal::Stop(error)) => return Err(error),
        }
        Ok(attempt.accepted == packets)
    }
}

/// The queue of the interface did not empty.
pub(crate) fn stuck() -> Error {
    Error::new(ErrorKind::Resource, "send")
        .with_errno(lockgate::Errno::from_raw(105))
        .with_detail(format!("the queue of the interface was full for {STUCK:?}"))
        .with_remedy("tc -s qdisc; ip -s link: look for a queue that does not empty")
}

/// 2^64 ns are 584 years.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outlet::Attempt;

    /// Takes datagrams, and refuses some calls.
    struct Pretend {
        taken: Vec<Vec<u8>>,
        calls: usize,
        refuse: fn(usize) -> Option<Refusal>,
        most: usize,
    }

    impl Outlet for Pretend {
        fn send(&mut self, datagrams: &[IoSlice<'_>]) -> Attempt {
            self.calls += 1;
            if let Some(refusal) = (self.refuse)(self.calls) {
                return Attempt {
                    accepted: 0,
                    refusal: Some(refusal),
                };
            }
            let accepted = datagrams.len().min(self.most);
            let taken = datagrams[..accepted].iter().map(|one| one.to_vec());
            self.taken.extend(taken);
            Attempt {
                accepted,
                refusal: None,
            }
        }
    }

    fn pretend(refuse: fn(usize) -> Option<Refusal>) -> Pretend {
        Pretend {
            taken: Vec::new(),
            calls: 0,
            refuse,
            most: BATCH,
        }
    }

    fn plan() -> Plan {
        Plan {
            stream: 9,
            rate: Rate::Unlimited,
            size: 64,
            burst: 1,
            count: Some(1_000),
            time: None,
        }
    }

    fn headers(outlet: &Pretend) -> Vec<Header> {
        let parse = |one: &Vec<u8>| stream::parse(one).unwrap();
        outlet.taken.iter().map(parse).collect()
    }

    #[test]
    fn every_number_goes_once_in_order_whatever_is_refused_or_cut() {
        let mut outlet = pretend(|call| match call % 5 {
            1 => Some(Refusal::NoBuffer),
            3 => Some(Refusal::Closed),
            _ => None,
        });
        outlet.most = 7;
        let (sent, error) = run(&mut outlet, &plan(), |_| Flow::On);
        assert!(error.is_none(), "{error:?}");
        let headers = headers(&outlet);
        let numbers: Vec<_> = headers.iter().map(|one| one.sequence).collect();
        assert_eq!(numbers, (0..1_000).collect::<Vec<_>>());
        assert_eq!((sent.packets, sent.bytes), (1_000, 64_000));
        let refused = sent.no_buffer + sent.port_closed;
        assert_eq!(sent.calls + refused, outlet.calls as u64);
        assert!(sent.no_buffer > 0 && sent.port_closed > 0);
        let last: Vec<_> = headers.iter().filter(|one| one.last).collect();
        assert_eq!((last.len(), last[0].sequence), (1, 999));
    }

    #[test]
    fn the_pace_is_kept_and_measured() {
        let mut outlet = pretend(|_| None);
        let plan = Plan {
            rate: Rate::Packets(2_000),
            count: Some(101),
            ..plan()
        };
        let (sent, _) = run(&mut outlet, &plan, |_| Flow::On);
        // A hundred intervals of half a millisecond; a token that was missed is another one.
        let least = 50_000_000 + sent.missed_tokens * 500_000;
        assert!(sent.nanoseconds >= least, "{sent:?}");
        assert_eq!(sent.gaps.unwrap().count, sent.calls - 1);
        assert_eq!(sent.late.unwrap().count, sent.calls);
        for pair in headers(&outlet).windows(2) {
            assert!(pair[1].due > pair[0].due && pair[1].sent >= pair[1].due);
        }
    }

    #[test]
    fn a_stop_and_the_time_end_it_with_a_packet_that_says_so() {
        let mut outlet = pretend(|_| None);
        let endless = Plan {
            count: None,
            ..plan()
        };
        let stop = |sent: &Sent| {
            if sent.packets > 500 {
                Flow::Stop
            } else {
                Flow::On
            }
        };
        let (sent, error) = run(&mut outlet, &endless, stop);
        assert!(error.is_none());
        let headers_of = headers(&outlet);
        assert_eq!(headers_of.len() as u64, sent.packets);
        assert!(headers_of.last().unwrap().last);
        assert_eq!(headers_of.iter().filter(|one| one.last).count(), 1);

        let mut outlet = pretend(|_| None);
        let timed = Plan {
            rate: Rate::Packets(1_000),
            time: Some(Duration::from_millis(20)),
            ..endless
        };
        let (sent, _) = run(&mut outlet, &timed, |_| Flow::On);
        assert!(sent.nanoseconds >= 20_000_000, "{sent:?}");
        assert!(sent.packets >= 2, "{sent:?}");
        assert!(headers(&outlet).last().unwrap().last);
    }

    #[test]
    fn an_error_that_nothing_helps_against_ends_it() {
        let refuse: fn(usize) -> Option<Refusal> = |call| {
            (call == 3).then(|| Refusal::Stop(Error::from_errno("send", lockgate::Errno::PERM)))
        };
        let (sent, error) = run(&mut pretend(refuse), &plan(), |_| Flow::On);
        assert_eq!(error.unwrap().errno(), Some(lockgate::Errno::PERM));
        assert_eq!(sent.packets, 128);
    }
}
