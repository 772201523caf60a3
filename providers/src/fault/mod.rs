//! Decorator `fault`: carries the faults of a [`Plan`] out on the packets of any receiver.
//!
//! Promises: what happens follows from the plan, its clock and what arrives, the same way in every run; without a rule that
//! fires, batches pass untouched and uncopied. A dropped, cut or doubled packet costs no copy. **A delayed or reordered packet is
//! copied**, and so is the whole batch in which an overtaken packet comes back, because one batch lies in one memory; the
//! setting `fault.held` says so too. Held packets wake waits and the readiness descriptor when they are due.
//! Does not do: sleeping; faults of opens, which happened before. What a drop took is counted in [`Monitor::counts`] and the
//! setting `fault.plan`, not in the receiver's losses: to the receiver it never arrived.
//!
//! # Sites of the plan
//!
//! `NAME` is the name that the decorator was given.
//!
//! | site | consulted | carries out |
//! | --- | --- | --- |
//! | `NAME.poll` | once a poll, before the receiver is asked | error, panic |
//! | `NAME.receive` | once for each packet that the receiver delivers | drop, delay, duplicate, reorder, truncate, panic |
//! | `NAME.wait` | once a wait, before the receiver is asked | error, panic |
//! | `NAME.close` | once a close | error: the receiver is closed, and the close answers with this failure |
//!
//! - A cut packet is delivered and marked as truncated; its length on the wire stays.
//! - A packet that is both doubled and delayed is delayed as often as it comes.
//! - A reordered packet comes back after so many later ones, or when the patience is over: a feed that ends must not keep it.
//! - An error takes nothing away: what has arrived is there at the next poll.
//!
//! ```no_run
//! # fn example(receiver: lockgate::receive::Receiver) {
//! use lockgate::fault::{Plan, Rule};
//! use lockgate_providers::fault::Fault;
//! let plan = Plan::seeded(7).with(Rule::at("feed-a.receive").chance(0.01).drop_it());
//! let receiver = receiver.decorate(|inner| Fault::new("feed-a", &plan).wrap(inner));
//! # }
//! ```

mod held;
mod sys;
#[cfg(test)]
mod tests;

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lockgate::clock::Clock;
use lockgate::fault::{Decision, Plan, Site};
use lockgate::receive::{
    Batch, Descriptor, Event, Packet, PacketReceiver, Readiness, Setting, Slabs, Statistics,
};
use lockgate::{Error, ErrorKind, Result};

use held::{Held, Waiting};
use sys::Alarm;

/// How many packets are held at most, unless set otherwise.
const HELD: usize = 4096;
/// How long a reordered packet waits for later ones, unless set otherwise.
const PATIENCE: Duration = Duration::from_secs(1);
/// The largest batch that a configuration may ask for.
const BATCH: usize = 4096;

/// Describes the decorator.
#[derive(Clone, Debug)]
pub struct Fault {
    name: String,
    plan: Plan,
    most_held: usize,
    patience: Duration,
    batch: usize,
    counts: Arc<Mutex<Counts>>,
}

impl Fault {
    /// Consults `plan` at the sites that begin with `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, plan: &Plan) -> Self {
        Self {
            name: name.into(),
            plan: plan.clone(),
            most_held: HELD,
            patience: PATIENCE,
            batch: BATCH,
            counts: Arc::default(),
        }
    }

    /// With another limit on the packets that are held at once, 4,096 if not set. A packet beyond it is delivered at once and
    /// counted as [`Counts::not_held`].
    #[must_use]
    pub fn most_held(self, most_held: usize) -> Self {
        Self { most_held, ..self }
    }

    /// With another time, on the plan's clock, after which a reordered packet comes back although too few have overtaken it.
    #[must_use]
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// With a batch of its own size, at least 1: doubled packets must not make batches larger than the configuration's.
    #[must_use]
    pub fn batch(self, batch: usize) -> Self {
        let batch = batch.clamp(1, BATCH);
        Self { batch, ..self }
    }

    /// What has been carried out, readable from any thread.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor {
            counts: Arc::clone(&self.counts),
        }
    }

    /// Puts it around a receiver.
    #[must_use]
    pub fn wrap(self, inner: Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver> {
        let site = |what| self.plan.site(format!("{}.{what}", self.name));
        Box::new(Faulty {
            alarm: Bell::beside(&*inner),
            inner,
            poll_site: site("poll"),
            receive_site: site("receive"),
            wait_site: site("wait"),
            close_site: site("close"),
            clock: Arc::clone(self.plan.clock()),
            work: Work {
                waiting: Waiting::new(self.most_held),
                patience: self.patience,
                most: self.batch,
                out: Vec::new(),
                copied: Vec::new(),
                arena: Vec::new(),
                counts: Counts::default(),
                now: Duration::ZERO,
            },
            delivered: Statistics::default(),
            plan: self.plan,
            counts: self.counts,
        })
    }
}

/// What a decorator has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Packets held until a time. Each was copied.
    pub delayed: u64,
    /// Packets that never came.
    pub dropped: u64,
    /// Packets that came in addition.
    pub duplicated: u64,
    /// Calls that failed.
    pub errors: u64,
    /// Packets that should have been held and were not, because too many were.
    pub not_held: u64,
    /// Packets held until later ones had overtaken them. Each was copied.
    pub reordered: u64,
    /// Packets whose end was cut off.
    pub truncated: u64,
    /// Packets that were still held at the close.
    pub undelivered: u64,
}

/// Reads what a decorator has carried out, from any thread.
#[derive(Clone, Debug)]
pub struct Monitor {
    counts: Arc<Mutex<Counts>>,
}

impl Monitor {
    /// The counts as of the last call of the receiver.
    #[must_use]
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Faulty {
    inner: Box<dyn PacketReceiver>,
    alarm: Bell,
    poll_site: Site,
    receive_site: Site,
    wait_site: Site,
    close_site: Site,
    clock: Arc<dyn Clock>,
    work: Work,
    /// Packets, payload and batches that were delivered; what the inner one says is before the faults.
    delivered: Statistics,
    plan: Plan,
    counts: Arc<Mutex<Counts>>,
}

/// What a poll works with, apart from the receiver, whose batch is borrowed meanwhile.
struct Work {
    waiting: Waiting,
    patience: Duration,
    /// The largest batch.
    most: usize,
    /// The batch that is being made.
    out: Vec<Descriptor>,
    /// Which of them lie in the arena.
    copied: Vec<bool>,
    arena: Vec<u8>,
    counts: Counts,
    now: Duration,
}

impl Work {
    fn begin(&mut self, now: Duration) {
        self.now = now;
        self.out.clear();
        self.copied.clear();
        self.arena.clear();
    }

    /// Carries out what was decided about one packet of the inner batch.
    fn take(&mut self, packet: &Packet<'_>, decision: &Decision) {
        if decision.drop {
            self.counts.dropped += 1;
            return;
        }
        let mut descriptor = *packet.descriptor();
        let whole = descriptor.payload_len;
        // Not above the length, which is a u32.
        let len = decision.truncated(whole as usize) as u32;
        if len < whole {
            descriptor.payload_len = len;
            descriptor.frame_len = u32::from(descriptor.payload_offset) + len;
            descriptor.flags |= Descriptor::TRUNCATED;
            self.counts.truncated += 1;
        }
        self.counts.duplicated += u64::from(decision.duplicate);
        let delay = decision.delay.unwrap_or_default();
        let held = !delay.is_zero() || decision.reorder > 0;
        for _ in 0..=decision.duplicate {
            if !held {
                self.deliver(packet, descriptor);
            } else if self.waiting.is_full() {
                self.counts.not_held += 1;
                self.deliver(packet, descriptor);
            } else {
                self.counts.delayed += u64::from(!delay.is_zero());
                self.counts.reordered += u64::from(decision.reorder > 0);
                let due = self.now.saturating_add(delay);
                let give_up = due.saturating_add(self.patience);
                let bytes = captured(packet, &descriptor);
                self.waiting
                    .hold(bytes, descriptor, due, decision.reorder, give_up);
            }
        }
    }

    /// Delivers a packet, and behind it those that waited for it.
    fn deliver(&mut self, packet: &Packet<'_>, descriptor: Descriptor) {
        if self.out.len() < self.most {
            self.out.push(descriptor);
            self.copied.push(false);
        } else {
            self.waiting
                .queue(captured(packet, &descriptor), descriptor);
        }
        if self.waiting.overtaken(self.now) {
            self.deliver_ready();
        }
    }

    /// Moves held packets that may go into the batch, as far as it has room.
    fn deliver_ready(&mut self) {
        while self.out.len() < self.most
            && let Some(Held {
                bytes,
                mut descriptor,
                ..
            }) = self.waiting.next_ready()
        {
            descriptor.slab = 0;
            descriptor.offset = self.arena.len() as u64;
            self.arena.extend_from_slice(&bytes);
            self.waiting.give_back(bytes);
            self.out.push(descriptor);
            self.copied.push(true);
        }
    }

    /// Copies those packets that still lie in the receiver's memory, so that one memory holds the batch.
    fn copy_rest(&mut self, slabs: Slabs<'_>) -> Result<()> {
        for (descriptor, copied) in self.out.iter_mut().zip(&mut self.copied) {
            if *copied {
                continue;
            }
            let start = self.arena.len() as u64;
            let view = Batch::new(slabs, std::slice::from_ref(descriptor)).map_err(bug)?;
            for packet in view {
                self.arena.extend_from_slice(packet.captured());
            }
            descriptor.slab = 0;
            descriptor.offset = start;
            *copied = true;
        }
        Ok(())
    }

    fn is_any_copied(&self) -> bool {
        self.copied.contains(&true)
    }
}

/// What was captured of a packet, as far as the descriptor still has it.
fn captured<'a>(packet: &Packet<'a>, descriptor: &Descriptor) -> &'a [u8] {
    let all = packet.captured();
    all.get(..descriptor.frame_len as usize).unwrap_or(all)
}

/// Not reached: every descriptor was made from one that had been checked, and only shortened.
#[cold]
fn bug(error: lockgate::receive::BadDescriptor) -> Error {
    Error::new(ErrorKind::Bug, "make batch").with_source(error)
}

fn check_panic(decision: &Decision, what: &str) {
    assert!(
        !decision.panic,
        "fault plan: {what} panics at its call {}",
        decision.call
    );
}

impl Faulty {
    /// Carries out what every call can: a panic and an error.
    fn fail(&mut self, decision: &Decision, operation: &'static str) -> Result<()> {
        check_panic(decision, operation);
        let Some(errno) = decision.error else {
            return Ok(());
        };
        self.work.counts.errors += 1;
        publish(&self.counts, &self.work.counts);
        let detail = format!("call {} of a {}", decision.call, self.plan);
        Err(Error::from_errno(operation, errno).with_detail(detail))
    }
}

fn publish(shared: &Mutex<Counts>, counts: &Counts) {
    *shared.lock().unwrap_or_else(PoisonError::into_inner) = *counts;
}

impl PacketReceiver for Faulty {
    fn poll(&mut self) -> Result<Batch<'_>> {
        let decision = self.poll_site.next();
        self.fail(&decision, "poll")?;
        let Self {
            inner,
            work,
            alarm,
            receive_site,
            delivered,
            ..
        } = self;
        work.begin(self.clock.now());
        let batch = if work.waiting.wake(work.now) {
            // Those that are due come first, as a batch of their own.
            work.deliver_ready();
            alarm.set(work);
            Batch::new(&work.arena[..], &work.out).map_err(bug)?
        } else {
            let batch = inner.poll()?;
            for packet in batch {
                let decision = receive_site.next();
                check_panic(&decision, "receive");
                work.take(&packet, &decision);
            }
            if work.is_any_copied() {
                work.copy_rest(batch.slabs())?;
            }
            alarm.set(work);
            if work.is_any_copied() {
                Batch::new(&work.arena[..], &work.out).map_err(bug)?
            } else if work.out == batch.descriptors() {
                batch
            } else {
                Batch::new(batch.slabs(), &work.out).map_err(bug)?
            }
        };
        delivered.packets += batch.len() as u64;
        delivered.batches += u64::from(!batch.is_empty());
        for one in batch.descriptors() {
            delivered.bytes += u64::from(one.payload_len);
        }
        publish(&self.counts, &work.counts);
        Ok(batch)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        let decision = self.wait_site.next();
        self.fail(&decision, "wait")?;
        let Some(due) = self.work.waiting.next_due() else {
            return self.inner.wait(timeout);
        };
        let left = due.saturating_sub(self.clock.now());
        if left.is_zero() {
            return Ok(Readiness::Ready);
        }
        match timeout {
            Some(timeout) if timeout < left => self.inner.wait(Some(timeout)),
            // However that ends, the next poll may find the packet that is due then. On a clock that stands still it doesn't,
            // which a wait may do.
            _ => self.inner.wait(Some(left)).map(|_| Readiness::Ready),
        }
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.fd()
    }

    fn statistics(&mut self) -> Statistics {
        let mut statistics = self.inner.statistics();
        statistics.packets = self.delivered.packets;
        statistics.bytes = self.delivered.bytes;
        statistics.batches = self.delivered.batches;
        statistics
    }

    fn take_event(&mut self) -> Option<Event> {
        self.inner.take_event()
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.inner.settings();
        let counts = self.work.counts;
        settings.push(Setting {
            name: "fault.plan",
            asked: self.plan.to_string(),
            granted: format!(
                "{} dropped, {} duplicated, {} truncated, {} calls failed",
                counts.dropped, counts.duplicated, counts.truncated, counts.errors
            ),
            warning: Some(
                "faults are put in on purpose; dropped packets are in no loss counter".to_owned(),
            ),
        });
        settings.push(Setting {
            name: "fault.held",
            asked: format!("at most {} at once", self.work.waiting.most()),
            granted: format!(
                "{} delayed, {} reordered, each by a copy; {} held now",
                counts.delayed,
                counts.reordered,
                self.work.waiting.len()
            ),
            warning: (counts.not_held > 0)
                .then(|| format!("{} were delivered at once: too many held", counts.not_held)),
        });
        if let Some(problem) = self.alarm.problem() {
            settings.push(Setting {
                name: "fault.readiness-fd",
                asked: "wakes for held packets too".to_owned(),
                granted: "no descriptor".to_owned(),
                warning: Some(problem.to_owned()),
            });
        }
        settings
    }

    fn close(&mut self) -> Result<()> {
        let decision = self.close_site.next();
        check_panic(&decision, "close");
        // Its descriptors go first: one of them watches the receiver's.
        self.alarm = Bell::Silent;
        let result = self.inner.close();
        self.work.counts.undelivered += self.work.waiting.clear() as u64;
        publish(&self.counts, &self.work.counts);
        result?;
        self.fail(&decision, "close")
    }
}

/// The descriptor of the decorator, where the receiver has one.
enum Bell {
    /// It wakes for packets of the receiver and for held ones.
    Alarm(Alarm),
    /// It could not be made, and why.
    Broken(String),
    /// The receiver has none.
    Silent,
}

impl Bell {
    fn beside(inner: &dyn PacketReceiver) -> Self {
        match inner.readiness_fd().map(Alarm::beside) {
            Some(Ok(alarm)) => Self::Alarm(alarm),
            Some(Err(error)) => Self::Broken(error.to_string()),
            None => Self::Silent,
        }
    }

    /// Sets it to the time at which the next held packet is due.
    fn set(&mut self, work: &Work) {
        let Self::Alarm(alarm) = self else { return };
        let due = work.waiting.next_due();
        if let Err(error) = alarm.set(due.map(|due| due.saturating_sub(work.now))) {
            // Without its alarm the descriptor would sleep through held packets.
            *self = Self::Broken(error.to_string());
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Alarm(alarm) => Some(alarm.fd()),
            Self::Broken(_) | Self::Silent => None,
        }
    }

    fn problem(&self) -> Option<&str> {
        match self {
            Self::Broken(problem) => Some(problem),
            Self::Alarm(_) | Self::Silent => None,
        }
    }
}
