//! The open receiver: polls its queues in turn, waits, counts, and follows its interface.
//!
//! Promises: a poll makes no system call unless the kernel asks to be woken up, and no allocation; frames that a batch names go back to
//! the kernel with the next call. Does not do: set-up, which is in `socket`, and reading rings, which is in `ring`.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use lockgate::custody::Domain;
use lockgate::receive::{
    Batch, Descriptor, Event, PacketReceiver, Readiness, ReceiverConfig, Setting, Slabs, Stamp,
    Statistics, Timestamp, TimestampMode, WaitMode,
};
use lockgate::{Error, ErrorKind, Result};

use super::options::{Copying, Mode, Options, Queues};
use super::ring::Queue;
use super::socket::{self, Layout, Sockets};
use super::sys::{self, Counters};
use crate::kernel::sys as kernel;
use crate::raw::judge::Judge;
use crate::raw::link::Link;
use crate::raw::membership::Memberships;
use crate::raw::selection::Selection;

/// Every so many polls that find nothing, the interface's news is looked at. A wait looks by itself.
const LOOK_EVERY: u32 = 1024;
/// A spinning wait looks at the clock once in so many rounds.
const CLOCK_EVERY: u32 = 64;

/// Opens a receiver. The configuration has passed validation.
pub(super) fn open(
    config: &ReceiverConfig,
    options: &Options,
    domain: &Domain,
) -> Result<Receiver> {
    let Some(name) = &config.interface else {
        return Err(Error::new(ErrorKind::Bug, "open XDP sockets")
            .with_detail("a configuration without an interface passed the check of capabilities"));
    };
    let layout = Layout::plan(config).ok_or_else(|| socket::too_large(config))?;
    let mut link = Link::open(name)?;
    let (mut sockets, queues) = Sockets::open(config, options, &layout, &link.interface, domain)?;
    sockets.attach(options, &link.interface, domain)?;
    link.memberships = Memberships::open(config, &link.interface, !options.no_membership)?;
    let several = (queues.len() > 1)
        .then(|| {
            let fail = |errno| Error::from_errno("watch queues", errno);
            let epoll = kernel::Epoll::new().map_err(fail)?;
            for (token, fd) in (0..).zip(sockets.descriptors()) {
                epoll.add(fd, token).map_err(fail)?;
            }
            Ok::<_, Error>(epoll)
        })
        .transpose()?;
    let zero_copy = sockets.is_zero_copy();
    let settings = settings(config, options, &layout, &sockets, zero_copy, name);
    let mut receiver = Receiver {
        judge: Judge::new(config, Selection::of(config), link.interface.index),
        queues,
        descriptors: vec![Descriptor::default(); config.batch as usize].into_boxed_slice(),
        several,
        sockets,
        first: 0,
        idle: 0,
        stamps: config.timestamps == TimestampMode::Software,
        zero_copy,
        counters: Counters::default(),
        fragments: 0,
        statistics: Statistics::default(),
        busy: config.wait == WaitMode::BusyPoll,
        link,
        settings,
    };
    // The kernel has answered the question for the link's state already.
    receiver.look();
    Ok(receiver)
}

/// A receiver over XDP sockets.
pub(super) struct Receiver {
    judge: Judge,
    queues: Vec<Queue>,
    descriptors: Box<[Descriptor]>,
    /// What is readable when one of several sockets is.
    several: Option<kernel::Epoll>,
    sockets: Sockets,
    /// The queue that goes first in the next poll.
    first: usize,
    /// Polls in a row that found nothing.
    idle: u32,
    stamps: bool,
    zero_copy: bool,
    /// The kernel's counters, as they were when they could last be read.
    counters: Counters,
    fragments: u64,
    statistics: Statistics,
    busy: bool,
    link: Link,
    settings: Vec<Setting>,
}

impl Receiver {
    /// Gives back what the last batch named.
    #[inline]
    fn give_back(&mut self) {
        for (at, queue) in self.queues.iter_mut().enumerate() {
            let Some(views) = self.sockets.views(at) else {
                return;
            };
            if queue.give_back(views)
                && let Some(fd) = self.sockets.descriptor(at)
            {
                sys::wake(fd);
            }
        }
    }

    /// Gives back what the last batch named, and says whether there is more.
    #[inline]
    fn has_more(&mut self) -> bool {
        self.give_back();
        let mut queues = self.queues.iter().enumerate();
        queues.any(|(at, queue)| {
            self.sockets
                .views(at)
                .is_some_and(|views| queue.is_ready(views))
        })
    }

    /// Takes what arrived, beginning with the queue whose turn it is.
    #[inline]
    fn take(&mut self) -> usize {
        let (count, mut filled) = (self.queues.len(), 0);
        // One time for the whole batch, taken when it is known that there is one.
        let (mut now, stamps) = (None, self.stamps);
        let mut stamp = || {
            if stamps {
                *now.get_or_insert_with(|| Timestamp::System(Stamp::now()))
            } else {
                Timestamp::Unavailable
            }
        };
        for step in 0..count {
            let at = (self.first + step) % count;
            let (Some(queue), Some(views)) = (self.queues.get_mut(at), self.sockets.views(at))
            else {
                break;
            };
            let room = self.descriptors.get_mut(filled..).unwrap_or_default();
            if room.is_empty() {
                break;
            }
            filled += queue.take(views, &mut stamp, &mut self.judge, room);
        }
        if count > 1 {
            self.first = (self.first + 1) % count;
        }
        filled
    }

    /// Takes in the news of the interface, and acts on it.
    #[cold]
    fn look(&mut self) {
        self.link.look(|interface| {
            Err(Error::new(ErrorKind::Device, "follow interface")
                .with_object(interface.name.clone())
                .with_detail("XDP sockets and their program went with the interface")
                .with_remedy("close the receiver and open it again"))
        });
    }

    /// Spins until there is something.
    fn spin(&mut self, deadline: Option<Instant>) -> Readiness {
        let mut round = 0_u32;
        loop {
            if self.has_more() {
                return Readiness::Ready;
            }
            if round.is_multiple_of(LOOK_EVERY) {
                self.look();
                if self.link.has_events() {
                    return Readiness::Ready;
                }
            }
            if round.is_multiple_of(CLOCK_EVERY) && deadline.is_some_and(|at| Instant::now() >= at)
            {
                return Readiness::TimedOut;
            }
            round = round.wrapping_add(1);
            std::hint::spin_loop();
        }
    }

    /// Sleeps until there is something.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<Readiness> {
        loop {
            if self.has_more() {
                return Ok(Readiness::Ready);
            }
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let Some(fd) = self.readiness() else {
                return Err(Error::new(ErrorKind::Closed, "wait"));
            };
            let [readable, news] = match kernel::wait_readable(fd, self.link.news(), left) {
                Err(errno) if errno.raw() == libc::EINTR => continue,
                found => found.map_err(|errno| Error::from_errno("wait", errno))?,
            };
            if news {
                self.look();
                // Whoever waits for ever wants to know that nothing will come.
                if self.link.has_events() {
                    return Ok(Readiness::Ready);
                }
            }
            let more = self.has_more();
            if readable && !more {
                // The interface went: the sockets are readable until somebody takes that.
                self.sockets.clear_errors();
            }
            if left == Some(Duration::ZERO) {
                return Ok(if more {
                    Readiness::Ready
                } else {
                    Readiness::TimedOut
                });
            }
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        match &self.several {
            Some(epoll) => Some(epoll.as_fd()),
            None => self.sockets.descriptor(0),
        }
    }

    fn idled(&mut self) {
        self.idle += 1;
        if self.idle == LOOK_EVERY {
            self.idle = 0;
            self.look();
        }
    }

    fn fill_in(&mut self) {
        if let Some(counters) = self.sockets.counters() {
            self.counters = counters;
        }
        if let Some(fragments) = self.sockets.fragments() {
            self.fragments = fragments;
        }
        let refused = self.judge.refused;
        let counters = self.counters;
        self.statistics.bytes = self.judge.bytes;
        // When the kernel copies, a packet without a frame to copy to counts as dropped and as a look at an empty ring. What
        // else it drops is longer than a frame.
        let too_long = if self.zero_copy {
            counters.dropped
        } else {
            counters.dropped.saturating_sub(counters.fill_empty)
        };
        let losses = &mut self.statistics.losses;
        losses.ring_full = Some(counters.ring_full);
        losses.no_buffer = Some(counters.fill_empty);
        losses.truncated = Some(refused.truncated + too_long);
        losses.filtered = Some(refused.filtered);
        losses.checksum = Some(refused.checksum);
        losses.fragment = Some(refused.fragment + self.fragments);
        losses.malformed = Some(refused.malformed);
    }
}

impl PacketReceiver for Receiver {
    fn poll(&mut self) -> Result<Batch<'_>> {
        self.give_back();
        let filled = self.take();
        if filled == 0 {
            self.idled();
            return Ok(Batch::EMPTY);
        }
        self.idle = 0;
        self.statistics.packets += filled as u64;
        self.statistics.batches += 1;
        let Some(memory) = self.sockets.memory() else {
            return Ok(Batch::EMPTY);
        };
        let descriptors = self.descriptors.get(..filled).unwrap_or_default();
        Batch::new(Slabs::One(sys::slab(memory.view())), descriptors)
            .map_err(|bad| Error::new(ErrorKind::Bug, "poll").with_source(bad))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        // Without a deadline if it lies beyond what the clock can tell.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        if self.busy {
            Ok(self.spin(deadline))
        } else {
            self.sleep(deadline)
        }
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.readiness()
    }

    fn statistics(&mut self) -> Statistics {
        self.fill_in();
        self.statistics
    }

    fn take_event(&mut self) -> Option<Event> {
        if !self.link.has_events() {
            self.look();
        }
        self.link.take_event()
    }

    fn settings(&self) -> Vec<Setting> {
        self.settings.clone()
    }

    fn close(&mut self) -> Result<()> {
        self.fill_in();
        self.several = None;
        // First the program, so that what arrives from here on is the kernel's.
        let closed = self.sockets.close();
        self.link.close();
        closed
    }
}

/// What was asked for and what it became.
fn settings(
    config: &ReceiverConfig,
    options: &Options,
    layout: &Layout,
    sockets: &Sockets,
    zero_copy: bool,
    interface: &str,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut granted = |name, asked: &str, granted: &str, warning: Option<String>| {
        settings.push(Setting {
            name,
            asked: asked.to_owned(),
            granted: granted.to_owned(),
            warning,
        });
    };
    let mode = match options.mode {
        Mode::Generic => "generic",
        Mode::Native => "native",
    };
    granted("mode", mode, mode, None);
    let asked = match options.copying {
        Copying::Any => "any",
        Copying::Copy => "copy",
        Copying::ZeroCopy => "zero-copy",
    };
    granted(
        "copy",
        asked,
        if zero_copy { "zero-copy" } else { "copy" },
        None,
    );
    let asked = match &options.queues {
        Queues::All => "all".to_owned(),
        Queues::Some(list) => {
            let numbers: Vec<String> = list.iter().map(u32::to_string).collect();
            numbers.join(",")
        }
    };
    granted("queues", &asked, &sockets.numbers(), None);
    let ring = format!(
        "{} entries and {} frames of {} bytes for each queue",
        layout.receive_entries, layout.frames, layout.chunk_bytes
    );
    granted("ring", &config.ring.to_string(), &ring, None);
    let wakeup = if options.no_need_wakeup {
        "false"
    } else {
        "true"
    };
    granted("need-wakeup", wakeup, wakeup, None);
    if !config.groups.is_empty() {
        let membership = if options.no_membership {
            "none"
        } else {
            "kernel"
        };
        granted("membership", membership, membership, None);
    }
    if config.timestamps == TimestampMode::Software {
        granted(
            "timestamps",
            "software",
            "software, when a packet is taken from the ring",
            None,
        );
    }
    if let Some(vlan) = config.vlan {
        let strips = sockets
            .descriptor(0)
            .is_some_and(|fd| kernel::strips_tags(fd, interface) == Ok(true));
        let warning = strips.then(|| {
            format!(
                "the interface may take tags out of frames before the program sees them, which then are not of the VLAN: \
                 ethtool -K {interface} rxvlan off"
            )
        });
        granted("vlan", &vlan.to_string(), &vlan.to_string(), warning);
    }
    settings
}
