//! One pass of the self-test: a stream from a second thread, and its verification.
//!
//! Promises: ends when everything has arrived or been counted, or when nothing has arrived for a while after the last packet was
//! sent; the sending thread has ended when it returns. Does not do: judging. [`Pass::wrong`] says what is wrong.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lockgate::receive::{Losses, Packet, Receiver};
use lockgate::{Errno, Error, ErrorKind, Result};
use serde::Serialize;

use super::{Setup, lost_between, random};
use crate::interrupt::Interrupt;
use crate::stream::{self, Bad, Clock, Header, Tracker};

/// How long nothing may arrive after the last packet was sent.
const QUIET: Duration = Duration::from_millis(300);
/// How long one wait lasts at most, so that a signal is noticed.
const SLICE: Duration = Duration::from_millis(20);
/// A sender whose window has not moved for this long takes what is under way for lost.
const STALLED: Duration = Duration::from_millis(50);

/// Where a stream is sent into.
pub(super) trait Outlet: Send {
    /// Sends one datagram.
    fn send(&mut self, payload: &[u8]) -> Result<()>;
}

/// How a stream is paced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How many packets.
    pub(super) packets: u64,
    /// How many may be sent beyond the highest that has arrived.
    pub(super) under_way: Option<u64>,
    /// Packets a second.
    pub(super) rate: Option<u64>,
    /// When the sender stops, however many it has sent.
    pub(super) limit: Duration,
}

/// What came of a pass.
#[derive(Debug, Serialize)]
pub(crate) struct Pass {
    /// Packets sent.
    pub(crate) sent: u64,
    /// Packets of the stream that arrived, doubles included.
    pub(crate) arrived: u64,
    /// Different numbers among them.
    pub(crate) unique: u64,
    /// Numbers that came again.
    pub(crate) duplicates: u64,
    /// Numbers that came after a higher one.
    pub(crate) reordered: u64,
    /// Numbers that came so late that nobody can tell whether they came before.
    pub(crate) too_late: u64,
    /// Packets of the stream with a wrong byte or a wrong address.
    pub(crate) bad: u64,
    /// What was wrong with the first of them.
    pub(crate) first_bad: Option<String>,
    /// Packets of somebody else.
    pub(crate) foreign: u64,
    /// What the provider counted as lost, by place; a place that it can't count is null.
    pub(crate) losses: Losses,
    /// From the first packet sent to the last one received.
    pub(crate) nanoseconds: u64,
    /// Packets received a second.
    pub(crate) packets_per_second: u64,
    /// From just before the sending call to the return of the poll.
    pub(crate) latency: Option<Latency>,
    /// Why the sender stopped early, if it did.
    #[serde(skip)]
    pub(crate) send_error: Option<Error>,
}

/// One-way times on one clock, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Latency {
    /// Half were faster.
    pub(crate) p50: u64,
    /// One in a hundred was slower.
    pub(crate) p99: u64,
    /// One in a thousand was slower.
    pub(crate) p99_9: u64,
    /// The slowest.
    pub(crate) max: u64,
}

impl Pass {
    /// How many did not arrive.
    pub(crate) fn missing(&self) -> u64 {
        self.sent.saturating_sub(self.unique)
    }

    /// Why the packets are not the ones that were sent, if they aren't.
    pub(crate) fn wrong(&self) -> Option<String> {
        if let Some(first) = &self.first_bad {
            return Some(format!(
                "{} packets differ from what was sent; the first: {first}",
                self.bad
            ));
        }
        if self.duplicates > 0 {
            return Some(format!("{} packets arrived twice", self.duplicates));
        }
        let counted = self.losses.total();
        (self.missing() > counted).then(|| {
            format!(
                "{} packets are missing, and only {counted} were counted as lost",
                self.missing()
            )
        })
    }
}

/// What the two threads share.
struct Shared {
    origin: Instant,
    /// One more than the highest number that arrived.
    seen: AtomicU64,
    /// How many were sent; final once `done` is set.
    sent: AtomicU64,
    done: AtomicBool,
    /// Ends the sender early.
    stop: AtomicBool,
}

/// Sends a stream and verifies what arrives.
pub(super) fn run(
    setup: &mut Setup,
    pace: &Pace,
    payload: usize,
    interrupt: &Interrupt,
) -> Result<Pass> {
    let id = random();
    let shared = Shared {
        origin: Instant::now(),
        seen: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        done: AtomicBool::new(false),
        stop: AtomicBool::new(false),
    };
    let mut check = Check::new(id, setup)?;
    let before = setup.receiver.statistics().losses;
    let outlet = &mut *setup.outlet;
    let receiver = &mut setup.receiver;
    let (received, sent) = thread::scope(|scope| {
        let sender = thread::Builder::new()
            .name("stream-sender".to_owned())
            .spawn_scoped(scope, || send(outlet, id, pace, payload, &shared))
            .map_err(no_thread)?;
        let received = receive(receiver, &mut check, &shared, interrupt, &before);
        shared.stop.store(true, Ordering::Relaxed);
        let sent = sender.join().map_err(|_| {
            Error::new(ErrorKind::Bug, "send stream").with_detail("the sending thread panicked")
        })?;
        Ok::<_, Error>((received, sent))
    })?;
    received?;
    let losses = lost_between(&before, &setup.receiver.statistics().losses);
    Ok(check.finish(shared.sent.load(Ordering::Acquire), losses, sent.err()))
}

/// A thread that does not start is short of something: EAGAIN means a limit here, not to try later (`pthread_create(3)`).
pub(super) fn no_thread(error: io::Error) -> Error {
    let errno = Errno::from_io(&error);
    let told = Error::new(ErrorKind::Resource, "start thread")
        .with_source(error)
        .with_remedy("raise the limit on processes of this user (ulimit -u), or free memory");
    match errno {
        Some(errno) => told.with_errno(errno),
        None => told,
    }
}

/// The sending side.
fn send(
    outlet: &mut dyn Outlet,
    id: u64,
    pace: &Pace,
    payload: usize,
    shared: &Shared,
) -> Result<()> {
    let mut buffer = vec![0; payload];
    let started = shared.origin.elapsed();
    let mut result = Ok(());
    for sequence in 0..pace.packets {
        let due = match pace.rate {
            Some(rate) => started + Duration::from_nanos(sequence * 1_000_000_000 / rate),
            None => shared.origin.elapsed(),
        };
        if !wait_for_turn(sequence, due, pace, shared) {
            break;
        }
        let now = shared.origin.elapsed();
        if now - started > pace.limit {
            break;
        }
        let header = Header {
            stream: id,
            sequence,
            clock: Clock::Monotonic,
            due: nanoseconds(due),
            sent: nanoseconds(now),
            last: sequence + 1 == pace.packets,
        };
        stream::write(&mut buffer, &header);
        result = outlet.send(&buffer);
        if result.is_err() {
            break;
        }
        shared.sent.store(sequence + 1, Ordering::Release);
    }
    shared.done.store(true, Ordering::Release);
    result
}

/// Waits for the time of a packet and for room in the window; says whether to go on.
fn wait_for_turn(sequence: u64, due: Duration, pace: &Pace, shared: &Shared) -> bool {
    let stopped = || shared.stop.load(Ordering::Relaxed);
    let early = due.saturating_sub(shared.origin.elapsed());
    if !early.is_zero() {
        thread::sleep(early);
    }
    let Some(under_way) = pace.under_way else {
        return !stopped();
    };
    let room = || {
        sequence
            < shared
                .seen
                .load(Ordering::Acquire)
                .saturating_add(under_way)
    };
    let since = Instant::now();
    while !room() && !stopped() {
        if since.elapsed() > STALLED {
            // What is under way is lost; one more packet shows the receiver the gap.
            return true;
        }
        thread::yield_now();
    }
    !stopped()
}

/// The receiving side.
fn receive(
    receiver: &mut Receiver,
    check: &mut Check,
    shared: &Shared,
    interrupt: &Interrupt,
    before: &Losses,
) -> Result<()> {
    let mut last = Instant::now();
    while !interrupt.asked() {
        // Read before the poll: what had been sent by then can be in the batch.
        let done = shared.done.load(Ordering::Acquire);
        let batch = receiver.poll()?;
        if !batch.is_empty() {
            let now = nanoseconds(shared.origin.elapsed());
            last = Instant::now();
            for packet in batch {
                check.packet(&packet, now);
            }
            shared.seen.store(check.tracker.next(), Ordering::Release);
            continue;
        }
        if done {
            let sent = shared.sent.load(Ordering::Acquire);
            let missing = sent.saturating_sub(check.tracker.unique());
            if missing == 0 || last.elapsed() > QUIET {
                return Ok(());
            }
            if lost_between(before, &receiver.statistics().losses).total() >= missing {
                return Ok(());
            }
        }
        // Ready or not, the next poll tells.
        let _ = receiver.wait(Some(SLICE))?;
    }
    Ok(())
}

/// Verifies packets and keeps the counts.
struct Check {
    id: u64,
    source: SocketAddr,
    destination: SocketAddr,
    tracker: Tracker,
    histogram: Histogram<u64>,
    arrived: u64,
    bad: u64,
    first_bad: Option<String>,
    foreign: u64,
    first_sent: Option<u64>,
    last_arrived: u64,
}

impl Check {
    fn new(id: u64, setup: &Setup) -> Result<Self> {
        // One nanosecond to one minute with three digits: about 200 KiB.
        let histogram = Histogram::new_with_bounds(1, 60_000_000_000, 3)
            .map_err(|error| Error::new(ErrorKind::Bug, "make histogram").with_source(error))?;
        Ok(Self {
            id,
            source: setup.source,
            destination: setup.destination,
            tracker: Tracker::new(),
            histogram,
            arrived: 0,
            bad: 0,
            first_bad: None,
            foreign: 0,
            first_sent: None,
            last_arrived: 0,
        })
    }

    fn packet(&mut self, packet: &Packet<'_>, now: u64) {
        let header = match stream::parse(packet.payload()) {
            Ok(header) if header.stream == self.id => header,
            // Stragglers of an earlier pass, and somebody else's packets.
            Ok(_) | Err(Bad::Foreign) => {
                self.foreign += 1;
                return;
            }
            Err(bad) => return self.reject(bad.to_string()),
        };
        self.arrived += 1;
        self.first_sent.get_or_insert(header.sent);
        self.last_arrived = now;
        self.tracker.record(header.sequence);
        self.histogram
            .saturating_record(now.saturating_sub(header.sent));
        let (source, destination) = (packet.source(), packet.destination());
        if !same(source, self.source) || !same(destination, self.destination) {
            let text = |address: Option<SocketAddr>| {
                address.map_or_else(|| "nowhere".to_owned(), |one| one.to_string())
            };
            self.reject(format!(
                "number {} was sent from {} to {} and arrived from {} to {}",
                header.sequence,
                self.source,
                self.destination,
                text(source),
                text(destination)
            ));
        }
    }

    fn reject(&mut self, why: String) {
        self.bad += 1;
        self.first_bad.get_or_insert(why);
    }

    fn finish(self, sent: u64, losses: Losses, send_error: Option<Error>) -> Pass {
        let nanoseconds = self
            .last_arrived
            .saturating_sub(self.first_sent.unwrap_or(0));
        let rate = u128::from(self.arrived) * 1_000_000_000 / u128::from(nanoseconds.max(1));
        let latency = (self.arrived > 0).then(|| Latency {
            p50: self.histogram.value_at_quantile(0.5),
            p99: self.histogram.value_at_quantile(0.99),
            p99_9: self.histogram.value_at_quantile(0.999),
            max: self.histogram.max(),
        });
        Pass {
            sent,
            arrived: self.arrived,
            unique: self.tracker.unique(),
            duplicates: self.tracker.duplicates(),
            reordered: self.tracker.reordered(),
            too_late: self.tracker.too_late(),
            bad: self.bad,
            first_bad: self.first_bad,
            foreign: self.foreign,
            losses,
            nanoseconds,
            packets_per_second: u64::try_from(rate).unwrap_or(u64::MAX),
            latency,
            send_error,
        }
    }
}

/// Address and port; the scope of an IPv6 address depends on who looks.
fn same(found: Option<SocketAddr>, wanted: SocketAddr) -> bool {
    found.is_some_and(|one| one.ip() == wanted.ip() && one.port() == wanted.port())
}

/// 2^64 ns are 584 years.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
