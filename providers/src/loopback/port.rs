//! One receiver's place in a network: what it asked for, its end of the ring, and what the plan holds back for it.
//!
//! Promises: a datagram that matches is delivered, held back or counted by place. Runs under the network's lock, so that packets
//! reach all receivers in one order. Does not do: waiting.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, UNIX_EPOCH};

use lockgate::Errno;
use lockgate::clock::Clock;
use lockgate::fault::{Decision, Site};
use lockgate::receive::frame::{Builder, VlanTag, VlanTags};
use lockgate::receive::mac::{self, MacAddress};
use lockgate::receive::{
    Descriptor, Event, Group, Losses, ReceiverConfig, Stamp, Timestamp, TimestampMode,
};

use super::sys::Producer;
use super::{Counters, Datagram};

/// Events that nobody takes are dropped beyond this many, oldest first.
const EVENTS_MAX: usize = 64;

/// The hardware addresses in frames: locally administered ones.
const SENDER: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 1]);
const RECEIVER: MacAddress = MacAddress::new([2, 0, 0, 0, 0, 2]);

/// The network's side of a receiver.
pub(super) struct Port {
    pub(super) id: u64,
    filter: Filter,
    timestamps: TimestampMode,
    form: Form,
    site: Site,
    producer: Producer,
    held: Vec<Held>,
    shared: Arc<Shared>,
}

/// What a receiver and its port have in common.
#[derive(Default)]
pub(super) struct Shared {
    filtered: AtomicU64,
    malformed: AtomicU64,
    ring_full: AtomicU64,
    truncated: AtomicU64,
    /// How many packets the plan holds back; a poll locks the network only if there are some.
    pub(super) held: AtomicUsize,
    /// The error number that the next poll tells; 0 for none.
    error: AtomicI32,
    /// Whether something was told that no wait has woken up for.
    news: AtomicBool,
    pub(super) bell: Bell,
    events: Mutex<VecDeque<Event>>,
}

/// A packet that the plan holds back: a copy, made only then.
struct Held {
    /// Not before this time.
    due: Duration,
    /// Not before this many later packets have been delivered.
    behind: u32,
    source: SocketAddr,
    destination: SocketAddr,
    vlan: Option<u16>,
    payload: Box<[u8]>,
}

impl Held {
    fn datagram(&self) -> Datagram<'_> {
        Datagram {
            source: self.source,
            destination: self.destination,
            payload: &self.payload,
            vlan: self.vlan,
        }
    }
}

impl Port {
    pub(super) fn new(
        id: u64,
        config: &ReceiverConfig,
        form: Form,
        site: Site,
        producer: Producer,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            id,
            filter: Filter::of(config),
            timestamps: config.timestamps,
            form,
            site,
            producer,
            held: Vec::new(),
            shared,
        }
    }

    pub(super) fn is_member(&self, group: IpAddr) -> bool {
        self.filter.groups.iter().any(|one| one.address == group)
    }

    /// Delivers a datagram, if it is meant for this receiver; says whether it was.
    pub(super) fn offer(
        &mut self,
        datagram: &Datagram<'_>,
        clock: &dyn Clock,
        counters: &mut Counters,
    ) -> bool {
        let now = clock.now();
        self.deliver_due(now, clock);
        if !self.filter.takes(datagram) {
            self.shared.filtered.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        let decision = self.site.next();
        if let Some(errno) = decision.error {
            self.shared.error.store(errno.raw(), Ordering::Release);
            self.shared.bell.ring();
        }
        if decision.drop {
            counters.dropped += 1;
            return true;
        }
        counters.duplicated += u64::from(decision.duplicate);
        for _ in 0..=decision.duplicate {
            self.disturb(datagram, &decision, now, clock);
        }
        true
    }

    fn disturb(
        &mut self,
        datagram: &Datagram<'_>,
        decision: &Decision,
        now: Duration,
        clock: &dyn Clock,
    ) {
        if decision.truncated(datagram.payload.len()) < datagram.payload.len() {
            // The rest of a datagram is not a datagram: refused and counted, as a receiver does with one that doesn't fit.
            self.shared.truncated.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let delay = decision.delay.unwrap_or_default();
        if delay.is_zero() && decision.reorder == 0 {
            self.deliver(datagram, clock);
            return;
        }
        self.held.push(Held {
            due: now.saturating_add(delay),
            behind: decision.reorder,
            source: datagram.source,
            destination: datagram.destination,
            vlan: datagram.vlan,
            payload: datagram.payload.into(),
        });
        self.note_held();
    }

    /// Puts a datagram into the ring, or counts where it was lost, and lets those go that waited for a later packet.
    fn deliver(&mut self, datagram: &Datagram<'_>, clock: &dyn Clock) {
        self.put(datagram, clock);
        if self.held.is_empty() {
            return;
        }
        let now = clock.now();
        for held in &mut self.held {
            held.behind = held.behind.saturating_sub(1);
        }
        self.deliver_due(now, clock);
    }

    /// Hands over what is due and has been overtaken often enough, in the order in which it was sent.
    pub(super) fn deliver_due(&mut self, now: Duration, clock: &dyn Clock) {
        if self.held.is_empty() {
            return;
        }
        let is_due = |held: &mut Held| held.due <= now && held.behind == 0;
        let due: Vec<Held> = self.held.extract_if(.., is_due).collect();
        self.hand_over(due, clock);
    }

    /// Hands over everything that is held back.
    pub(super) fn settle(&mut self, clock: &dyn Clock) {
        let all = std::mem::take(&mut self.held);
        self.hand_over(all, clock);
    }

    fn hand_over(&mut self, mut due: Vec<Held>, clock: &dyn Clock) {
        if due.is_empty() {
            return;
        }
        // Stable, so that packets with one due time stay in the order in which they were sent.
        due.sort_by_key(|held| held.due);
        for held in &due {
            self.put(&held.datagram(), clock);
        }
        self.note_held();
    }

    fn note_held(&self) {
        self.shared.held.store(self.held.len(), Ordering::Release);
    }

    /// When the next packet that is held back for its time alone is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.held
            .iter()
            .filter(|held| held.behind == 0)
            .map(|held| held.due)
            .min()
    }

    fn put(&mut self, datagram: &Datagram<'_>, clock: &dyn Clock) {
        let Some(form) = Written::of(self.form, datagram) else {
            self.shared.malformed.fetch_add(1, Ordering::Relaxed);
            return;
        };
        if form.len(datagram.payload) > self.producer.slot_bytes() {
            self.shared.truncated.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let stamp = stamp(self.timestamps, clock);
        let put = self.producer.push(|slot| {
            let mut descriptor = form.write(datagram.payload, slot);
            descriptor.set_source(datagram.source.ip(), datagram.source.port());
            descriptor.set_destination(datagram.destination.ip(), datagram.destination.port());
            descriptor.set_timestamp(stamp);
            if let Some(vlan) = datagram.vlan {
                descriptor.flags |= Descriptor::VLAN;
                descriptor.vlan = vlan;
            }
            descriptor
        });
        if put {
            self.shared.bell.ring();
        } else {
            self.shared.ring_full.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Tells the receiver of something besides packets.
    pub(super) fn tell(&self, event: Event) {
        let mut events = self.shared.events();
        if events.len() == EVENTS_MAX {
            events.pop_front();
        }
        events.push_back(event);
        drop(events);
        self.shared.news.store(true, Ordering::Release);
        self.shared.bell.ring();
    }
}

impl Shared {
    pub(super) fn losses(&self) -> Losses {
        let read = |count: &AtomicU64| Some(count.load(Ordering::Relaxed));
        let mut losses = Losses::default();
        losses.ring_full = read(&self.ring_full);
        losses.truncated = read(&self.truncated);
        losses.filtered = read(&self.filtered);
        losses.malformed = read(&self.malformed);
        losses
    }

    /// The error that the plan has put in the way of the next poll; told once.
    pub(super) fn take_error(&self) -> Option<Errno> {
        if self.error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        match self.error.swap(0, Ordering::Acquire) {
            0 => None,
            raw => Some(Errno::from_raw(raw)),
        }
    }

    /// Whether a wait shall wake up for something besides packets. An event wakes one wait, taken or not.
    pub(super) fn has_news(&self) -> bool {
        self.error.load(Ordering::Acquire) != 0
            || (self.news.load(Ordering::Acquire) && self.news.swap(false, Ordering::Acquire))
    }

    pub(super) fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a network delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Whole Ethernet frames.
    Frames,
    /// Payloads alone, as a socket does.
    Payloads,
}

/// How one datagram is written into a slot.
enum Written {
    Frame(Builder),
    Payload,
}

impl Written {
    /// Nothing for a datagram whose addresses contradict each other. The sender refuses those.
    fn of(form: Form, datagram: &Datagram<'_>) -> Option<Self> {
        let builder = Builder::udp(datagram.source, datagram.destination).ok()?;
        if form == Form::Payloads {
            return Some(Self::Payload);
        }
        let destination = mac::destination(datagram.destination.ip(), RECEIVER).ok()?;
        let vlan = datagram.vlan.map_or_else(VlanTags::default, |id| {
            VlanTags::single(VlanTag::customer(id))
        });
        Some(Self::Frame(builder.ethernet(SENDER, destination, vlan)))
    }

    /// How many bytes of the slot it takes.
    fn len(&self, payload: &[u8]) -> usize {
        match self {
            Self::Frame(builder) => builder.len(payload.len()),
            Self::Payload => payload.len(),
        }
    }

    /// Writes it to the beginning of a slot that is long enough.
    fn write(&self, payload: &[u8], slot: &mut [u8]) -> Descriptor {
        // A datagram has at most 65,507 bytes of payload.
        let payload_len = payload.len() as u32;
        let Self::Frame(builder) = self else {
            slot[..payload.len()].copy_from_slice(payload);
            return Descriptor::payload(0, 0, payload_len);
        };
        // The slot is long enough, and the payload below the builder's limit; what nobody expects would be an empty packet.
        let len = builder.write(payload, slot).unwrap_or_default();
        let mut descriptor = Descriptor::payload(0, 0, len as u32);
        descriptor.flags = Descriptor::FRAME | Descriptor::CHECKSUM_GOOD;
        descriptor.payload_len = payload_len;
        descriptor.payload_offset = len.saturating_sub(payload.len()) as u16;
        descriptor
    }
}

/// Time as the configuration wants it on packets.
fn stamp(mode: TimestampMode, clock: &dyn Clock) -> Timestamp {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    match mode {
        TimestampMode::Hardware => {
            Timestamp::DeviceFreeRunning(Stamp::from_raw(nanos(clock.now())))
        }
        TimestampMode::Software => {
            let since = clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default();
            Timestamp::System(Stamp::from_raw(nanos(since)))
        }
        _ => Timestamp::Unavailable,
    }
}

/// What a configuration lets through.
struct Filter {
    groups: Box<[Group]>,
    unicast: Option<SocketAddr>,
    vlan: Option<u16>,
}

impl Filter {
    fn of(config: &ReceiverConfig) -> Self {
        Self {
            groups: config.groups.clone().into(),
            unicast: config.unicast,
            vlan: config.vlan,
        }
    }

    fn takes(&self, datagram: &Datagram<'_>) -> bool {
        let (to, from) = (datagram.destination, datagram.source.ip());
        let wanted = |group: &Group| {
            group.address == to.ip()
                && group.port == to.port()
                && (group.sources.is_empty() || group.sources.contains(&from))
        };
        let vlan_fits = self.vlan.is_none() || self.vlan == datagram.vlan;
        vlan_fits
            && (self.unicast.is_some_and(|own| is_for(own, to)) || self.groups.iter().any(wanted))
    }
}

/// Whether a unicast receiver on `own` gets what is sent to `to`; the unspecified address takes every unicast address.
fn is_for(own: SocketAddr, to: SocketAddr) -> bool {
    let same_address = match (own.ip(), to.ip()) {
        (IpAddr::V4(own), IpAddr::V4(to)) => {
            own == to || (own.is_unspecified() && !to.is_multicast())
        }
        (IpAddr::V6(own), IpAddr::V6(to)) => {
            own == to || (own.is_unspecified() && !to.is_multicast())
        }
        _ => false,
    };
    same_address && own.port() == to.port()
}

/// Wakes the one receiver that may sleep on it.
#[derive(Default)]
pub(super) struct Bell {
    asleep: Mutex<bool>,
    rung: Condvar,
}

impl Bell {
    /// Wakes the receiver, if it sleeps. What it shall find was published before.
    pub(super) fn ring(&self) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if *asleep {
            *asleep = false;
            self.rung.notify_one();
        }
    }

    /// Sleeps until `ready` says yes, at most until `until`; says what `ready` said last.
    ///
    /// `ready` is asked under the bell's lock: what is published before a ring is either seen by it or followed by a wake-up.
    pub(super) fn sleep(&self, until: Option<Instant>, mut ready: impl FnMut() -> bool) -> bool {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if ready() {
                *asleep = false;
                return true;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                *asleep = false;
                return false;
            }
            *asleep = true;
            asleep = match left {
                None => self
                    .rung
                    .wait(asleep)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(left) => {
                    let woken = self.rung.wait_timeout(asleep, left);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}
