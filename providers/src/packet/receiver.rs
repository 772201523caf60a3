//! The open receiver: polls its ring, waits, counts, and follows its interface.
//!
//! Promises: a poll makes no system call and no allocation; what a batch names goes back to the kernel with the next call. Does not do:
//! set-up, which is in `socket`, and reading slots, which is in `ring`.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use lockgate::custody::Domain;
use lockgate::receive::{
    Batch, Descriptor, Event, PacketReceiver, Readiness, ReceiverConfig, Setting, Slabs,
    Statistics, TimestampMode, WaitMode,
};
use lockgate::{Errno, Error, ErrorKind, Result};

use super::filter;
use super::layout::{self, Layout};
use super::options::{Membership, Options, Version};
use super::ring::{self, Ring};
use super::socket::{self, Socket};
use crate::kernel::sys;
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
        return Err(Error::new(ErrorKind::Bug, "open packet socket")
            .with_detail("a configuration without an interface passed the check of capabilities"));
    };
    let layout = layout::plan(config, options).ok_or_else(|| socket::too_large(config))?;
    let selection = Selection::of(config);
    let filter = filter::make(&selection, config.buffer_bytes, options.promiscuous);
    let mut link = Link::open(name)?;
    let clock = match config.timestamps {
        TimestampMode::None => None,
        _ => socket::choose_clock(config, &link.interface)?,
    };
    let socket = Socket::open(config, options, &layout, &filter, &link.interface, domain)?;
    link.memberships = Memberships::open(
        config,
        &link.interface,
        options.membership == Membership::Kernel,
    )?;
    let settings = settings(config, options, &layout, filter.depth);
    let mut receiver = Receiver {
        ring: Ring::new(layout, clock),
        judge: Judge::new(config, selection, link.interface.index),
        descriptors: vec![Descriptor::default(); config.batch as usize].into_boxed_slice(),
        socket,
        idle: 0,
        statistics: Statistics::default(),
        busy: config.wait == WaitMode::BusyPoll,
        link,
        settings,
    };
    // The kernel has answered the question for the link's state already.
    receiver.look();
    Ok(receiver)
}

/// A receiver over a packet socket's ring.
pub(super) struct Receiver {
    ring: Ring,
    judge: Judge,
    descriptors: Box<[Descriptor]>,
    socket: Socket,
    /// Polls in a row that found nothing.
    idle: u32,
    statistics: Statistics,
    busy: bool,
    link: Link,
    settings: Vec<Setting>,
}

impl Receiver {
    /// Gives back what the last batch named, and says whether there is more.
    #[inline]
    fn has_more(&mut self) -> bool {
        let Some(mapping) = self.socket.ring() else {
            return false;
        };
        let view = mapping.view();
        self.ring.release(view);
        self.ring.is_ready(view)
    }

    /// Takes in the news of the interface, and acts on it.
    #[cold]
    fn look(&mut self) {
        let (socket, judge) = (&self.socket, &mut self.judge);
        self.link.look(|interface| {
            judge.set_interface(interface.index);
            socket.bind(interface)
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
            let Some(fd) = self.socket.descriptor() else {
                return Err(Error::new(ErrorKind::Closed, "wait"));
            };
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let [readable, news] = match sys::wait_readable(fd, self.link.news(), left) {
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
            if readable && !self.has_more() {
                // The interface went down: the socket is readable until somebody takes that.
                self.clear_error();
            }
            if left == Some(Duration::ZERO) {
                let more = self.has_more();
                return Ok(if more {
                    Readiness::Ready
                } else {
                    Readiness::TimedOut
                });
            }
        }
    }

    /// A poll found nothing.
    fn idled(&mut self) {
        self.idle += 1;
        if self.idle == LOOK_EVERY {
            self.idle = 0;
            self.look();
            self.clear_error();
        }
    }

    #[cold]
    fn clear_error(&mut self) {
        // What it means is told by the interface's news.
        let _told_elsewhere: Option<Errno> = self.socket.clear_error();
    }

    fn fill_in(&mut self) {
        self.socket.count();
        let refused = self.judge.refused;
        self.statistics.bytes = self.judge.bytes;
        let losses = &mut self.statistics.losses;
        losses.ring_full = Some(self.socket.drops());
        losses.truncated = Some(refused.truncated);
        losses.filtered = Some(refused.filtered);
        losses.checksum = Some(refused.checksum);
        losses.fragment = Some(refused.fragment);
        losses.malformed = Some(refused.malformed);
    }
}

impl PacketReceiver for Receiver {
    fn poll(&mut self) -> Result<Batch<'_>> {
        let filled = match self.socket.ring() {
            Some(mapping) => {
                let view = mapping.view();
                self.ring.release(view);
                self.ring.fill(view, &mut self.judge, &mut self.descriptors)
            }
            None => return Err(Error::new(ErrorKind::Closed, "poll")),
        };
        if filled == 0 {
            self.idled();
            return Ok(Batch::EMPTY);
        }
        let Some(mapping) = self.socket.ring() else {
            return Ok(Batch::EMPTY);
        };
        self.idle = 0;
        self.statistics.packets += filled as u64;
        self.statistics.batches += 1;
        let descriptors = self.descriptors.get(..filled).unwrap_or_default();
        Batch::new(Slabs::One(ring::slab(mapping.view())), descriptors)
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
        self.socket.descriptor()
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
        self.link.close();
        self.socket.close()
    }
}

/// What was asked for and what it became.
fn settings(
    config: &ReceiverConfig,
    options: &Options,
    layout: &Layout,
    depth: &str,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    let mut granted = |name, asked: String, granted: String, warning: Option<String>| {
        settings.push(Setting {
            name,
            asked,
            granted,
            warning,
        });
    };
    match layout.version {
        Version::V2 => {
            granted("version", "v2".to_owned(), "v2".to_owned(), None);
            let slots = format!("{} slots of {} bytes", layout.slots, layout.slot_bytes);
            granted("ring", config.ring.to_string(), slots, None);
        }
        Version::V3 => {
            granted("version", "v3".to_owned(), "v3".to_owned(), None);
            let blocks = format!("{} blocks of {} bytes", layout.blocks, layout.block_bytes);
            let warning = (layout.blocks <= config.ring).then(|| {
                format!(
                    "a block goes over when its time is up, however few packets it has: at low rates the ring holds {} packets; leave \
                     block-bytes out to hold {} at any rate",
                    layout.blocks, config.ring
                )
            });
            granted("ring", config.ring.to_string(), blocks, warning);
            let asked = options
                .block_timeout
                .map_or_else(|| "the least".to_owned(), |timeout| format!("{timeout} ms"));
            let timeout = format!("{} ms", layout.timeout);
            granted("block-timeout", asked, timeout, None);
        }
    }
    let exact = "addresses, ports and sources";
    let warning = (depth != exact).then(|| {
        "the kernel takes programs of at most 4,096 instructions; what a shorter filter lets through too is refused \
         after the ring, so that it needs room for it"
            .to_owned()
    });
    granted("filter", exact.to_owned(), depth.to_owned(), warning);
    let membership = match options.membership {
        Membership::Kernel => "kernel",
        Membership::Link => "link",
        Membership::None => "none",
    };
    if !config.groups.is_empty() {
        granted(
            "membership",
            membership.to_owned(),
            membership.to_owned(),
            None,
        );
    }
    if let Some(fanout) = options.fanout {
        let text = format!("{} in group {}", fanout.name, fanout.group);
        granted("fanout", text.clone(), text, None);
    }
    if options.promiscuous {
        granted("promiscuous", "true".to_owned(), "true".to_owned(), None);
    }
    match config.timestamps {
        TimestampMode::Hardware => {
            granted(
                "timestamps",
                "hardware".to_owned(),
                "hardware".to_owned(),
                None,
            );
        }
        TimestampMode::Software => {
            granted(
                "timestamps",
                "software".to_owned(),
                "software".to_owned(),
                None,
            );
        }
        _ => {}
    }
    settings
}
