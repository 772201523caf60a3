//! The open receiver: polls its sockets in turn, waits, counts, and follows its interface.
//!
//! Promises: a poll makes one system call if there is one socket and, if there are several, one to learn which are readable and one
//! for each that is read; no socket waits behind a busy one for more than a round. Errors that an ICMP message left at a socket don't
//! end the receiver. Does not do: set-up, which is in `socket`, and reading messages, which is in `ring`.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use lockgate::receive::{
    Batch, Event, PacketReceiver, Readiness, ReceiverConfig, Setting, Statistics, TimestampMode,
    WaitMode,
};
use lockgate::{Errno, Error, ErrorKind, Result};

use super::layout;
use super::link::{Change, Watch};
use super::options::{Options, Sharing};
use super::ring::{Ring, Source};
use super::socket::{self, Interface, Socket};
use super::{remedy, stamping, sys};

/// Every so many polls that find nothing, the interface's news is looked at. A wait looks by itself.
const LOOK_EVERY: u32 = 16;
/// Events that nobody takes are kept up to this number; then the oldest go.
const EVENTS_MAX: usize = 256;
/// The errors that one poll clears from a socket before it gives up until the next.
const CLEARED_MAX: u32 = 16;
/// The token of the netlink socket in the epoll set; sockets have their places.
const LINK_TOKEN: u64 = u64::MAX;

/// Opens a receiver. The configuration has passed validation.
pub(super) fn open(config: &ReceiverConfig, options: Options) -> Result<UdpReceiver> {
    let (interface, watch) = match &config.interface {
        None => (None, None),
        Some(name) => {
            let (interface, watch) = watched(name)?;
            (Some(interface), Some(watch))
        }
    };
    let plans = layout::plan(config, &options);
    let sockets = plans
        .iter()
        .map(|plan| Socket::open(plan, config, &options, interface.as_ref()))
        .collect::<Result<Vec<_>>>()?;
    let Some(first) = sockets.first() else {
        return Err(Error::new(ErrorKind::Bug, "open sockets")
            .with_detail("a configuration without any address passed validation"));
    };
    let clock = socket::clock(config.timestamps, first, interface.as_ref())?;
    let sources: Vec<Source> = sockets
        .iter()
        .map(|socket| socket.source(interface.as_ref(), clock))
        .collect();
    let ring = Ring::new(
        config.batch as usize,
        config.buffer_bytes as usize,
        options.gro,
    )?;
    let several = (sockets.len() > 1)
        .then(|| Several::new(&sockets, watch.as_ref()))
        .transpose()?;
    let stamping = config.timestamps != TimestampMode::Software
        || socket::timestamp_flags(config.timestamps).is_some_and(stamping::settle);
    let settings = settings(&sockets, config, &options, stamping)?;
    let mut receiver = UdpReceiver {
        ring,
        sources,
        several,
        idle: 0,
        statistics: Statistics::default(),
        sockets,
        busy: config.wait == WaitMode::BusyPoll,
        link: Link {
            interface,
            watch,
            rejoin: false,
            fresh: false,
            events: VecDeque::new(),
            changes: Vec::new(),
        },
        cleared: 0,
        settings,
    };
    receiver.prepare();
    // The kernel has answered the question for the link's state already.
    receiver.look();
    Ok(receiver)
}

/// Resolves an interface, and listens to what happens to it from then on.
fn watched(name: &str) -> Result<(Interface, Watch)> {
    let news = |errno| remedy::link_news(errno, name);
    // First the listening, so that nothing falls between the two.
    let mut watch = Watch::open(name).map_err(news)?;
    let index =
        sys::interface_index(name).map_err(|errno| remedy::resolve_interface(errno, name))?;
    watch.start(index).map_err(news)?;
    let name = name.to_owned();
    Ok((Interface { name, index }, watch))
}

/// A receiver over UDP sockets.
pub(super) struct UdpReceiver {
    ring: Ring,
    /// Of each socket, by its place.
    sources: Vec<Source>,
    several: Option<Several>,
    /// Polls in a row that found nothing.
    idle: u32,
    statistics: Statistics,
    /// Empty after a close.
    sockets: Vec<Socket>,
    busy: bool,
    link: Link,
    /// Errors that were cleared from sockets.
    cleared: u64,
    settings: Vec<Setting>,
}

/// What a receiver of more than one socket needs.
struct Several {
    epoll: sys::Epoll,
    events: Box<[libc::epoll_event]>,
    /// Which sockets are readable, by their place.
    readable: Box<[bool]>,
    /// The socket that goes first in the next poll.
    first: usize,
}

impl Several {
    fn new(sockets: &[Socket], watch: Option<&Watch>) -> Result<Self> {
        let fail = |errno| Error::from_errno("watch sockets", errno);
        let epoll = sys::Epoll::new().map_err(fail)?;
        for (token, socket) in (0..).zip(sockets) {
            epoll.add(socket, token).map_err(fail)?;
        }
        if let Some(watch) = watch {
            epoll.add(watch, LINK_TOKEN).map_err(fail)?;
        }
        let none = libc::epoll_event { events: 0, u64: 0 };
        Ok(Self {
            epoll,
            events: vec![none; sockets.len() + 1].into_boxed_slice(),
            readable: vec![false; sockets.len()].into_boxed_slice(),
            first: 0,
        })
    }

    /// Marks what is readable. Answers whether a socket is, and whether there is news of the interface.
    fn mark(&mut self) -> Result<(bool, bool), Errno> {
        let count = match self.epoll.ready(&mut self.events) {
            Err(errno) if errno.raw() == libc::EINTR => 0,
            count => count?,
        };
        let (mut sockets, mut news) = (false, false);
        self.readable.fill(false);
        for event in &self.events[..count] {
            // The structure is packed on x86-64; this copies the field.
            let token = event.u64;
            match usize::try_from(token)
                .ok()
                .and_then(|at| self.readable.get_mut(at))
            {
                Some(readable) => (*readable, sockets) = (true, true),
                None => news = true,
            }
        }
        Ok((sockets, news))
    }
}

/// The interface and what happened to it.
struct Link {
    interface: Option<Interface>,
    watch: Option<Watch>,
    /// Whether the groups are to be joined again. Stays if that fails, and is tried again with the next news.
    rejoin: bool,
    /// Whether the interface came back and had no link since; with its first link the kernel reports the memberships by itself.
    fresh: bool,
    events: VecDeque<Event>,
    changes: Vec<Change>,
}

impl Link {
    fn tell(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl UdpReceiver {
    /// Prepares the descriptors, if all datagrams have enough in common.
    fn prepare(&mut self) {
        if let ([socket], [source]) = (&self.sockets[..], &self.sources[..])
            && !socket.plan.packet_info
        {
            self.ring.prepare(source.template);
        }
    }

    /// One round over the readable sockets, beginning with the one whose turn it is.
    fn sweep(&mut self) -> Result<()> {
        let Some(several) = &mut self.several else {
            return Ok(());
        };
        let (any, news) = several
            .mark()
            .map_err(|errno| Error::from_errno("poll sockets", errno))?;
        if any {
            let (first, count) = (several.first, self.sockets.len());
            for step in 0..count {
                let at = (first + step) % count;
                if !self.several.as_ref().is_some_and(|all| all.readable[at]) {
                    continue;
                }
                if !self.ring.has_room() {
                    break;
                }
                self.receive(at)?;
                if let Some(several) = &mut self.several {
                    several.first = (at + 1) % count;
                }
            }
        }
        if news {
            self.look();
        }
        Ok(())
    }

    /// Receives once from the socket at a place.
    #[inline]
    fn receive(&mut self, at: usize) -> Result<()> {
        let mut left = CLEARED_MAX;
        loop {
            let (socket, source) = (&self.sockets[at], &mut self.sources[at]);
            match self.ring.receive(socket.as_fd(), at as u32, source) {
                Ok(()) | Err(Errno::AGAIN) => return Ok(()),
                Err(errno) if errno.raw() == libc::EINTR => {}
                Err(errno) if is_passing(errno) && left > 0 => {
                    left -= 1;
                    self.cleared(at, errno);
                }
                Err(errno) if is_passing(errno) => return Ok(()),
                Err(errno) => return Err(Error::from_errno("receive", errno)),
            }
        }
    }

    /// Notes an error that stood at a socket and that reading it has cleared. One event for each power of two of them.
    #[cold]
    fn cleared(&mut self, at: usize, errno: Errno) {
        self.cleared += 1;
        if self.cleared.is_power_of_two() {
            let text = format!(
                "error {errno} cleared from the socket of {}; {} so far",
                self.sockets[at].plan.bind, self.cleared
            );
            self.link.tell(Event::Other { text });
        }
    }

    /// Takes in the news of the interface, and acts on it.
    #[cold]
    fn look(&mut self) {
        let Some(watch) = &mut self.link.watch else {
            return;
        };
        let mut changes = std::mem::take(&mut self.link.changes);
        let looked = watch.look(&mut changes);
        for change in changes.drain(..) {
            self.follow(change);
        }
        self.link.changes = changes;
        match looked {
            Ok(true) if self.link.rejoin => self.rejoin(),
            Ok(_) => {}
            Err(errno) => {
                self.link.watch = None;
                let text = format!("no more news of the interface: {errno}");
                self.link.tell(Event::Other { text });
            }
        }
    }

    fn follow(&mut self, change: Change) {
        let Some(Interface { name, index }) = self.link.interface.clone() else {
            return;
        };
        match change {
            Change::Appeared(index) => {
                self.link.interface = Some(Interface { name, index });
                for source in &mut self.sources {
                    source.template.interface = index;
                }
                self.prepare();
                (self.link.rejoin, self.link.fresh) = (true, true);
            }
            Change::Down => {
                self.link.fresh = false;
                self.link.tell(Event::LinkDown { interface: name });
            }
            Change::Removed => {
                self.link.tell(Event::InterfaceRemoved { interface: name });
                // The kernel keeps memberships of an interface that is gone in the socket's list, and counts them.
                for socket in &self.sockets {
                    socket.leave(index);
                }
                self.link.rejoin = false;
            }
            Change::Up => {
                self.link.tell(Event::LinkUp { interface: name });
                // The kernel has kept the memberships. But after a lost carrier it does not report them again by itself, and the
                // switch may have forgotten them; leaving and joining makes it report.
                self.link.rejoin |= !self.link.fresh;
            }
        }
    }

    /// Leaves and joins all groups. Tells what was joined again, or why not.
    fn rejoin(&mut self) {
        let Some(interface) = self.link.interface.clone() else {
            return;
        };
        let join = |socket: &Socket| {
            socket.leave(interface.index);
            socket.tie_again(&interface)?;
            socket.join(Some(&interface))
        };
        if let Err(error) = self.sockets.iter().try_for_each(join) {
            let text = format!("could not join again: {error}");
            self.link.tell(Event::Other { text });
            return;
        }
        self.link.rejoin = false;
        for group in self.sockets.iter().flat_map(|socket| &socket.plan.groups) {
            let (group, interface) = (group.address, interface.name.clone());
            self.link.tell(Event::Rejoined { group, interface });
        }
    }

    /// Whether a poll would find something, and whether there is news of the interface; waits for either, at most `timeout`.
    fn readable(&self, timeout: Option<Duration>) -> Result<[bool; 2], Errno> {
        let watch = self.link.watch.as_ref().map(AsFd::as_fd);
        match (&self.several, self.sockets.first()) {
            // The set has the netlink socket in it; a poll takes it from there.
            (Some(several), _) => sys::wait_readable(several.epoll.as_fd(), None, timeout),
            (None, Some(socket)) => sys::wait_readable(socket.as_fd(), watch, timeout),
            (None, None) => Ok([false; 2]),
        }
    }

    /// Takes the kernel's drop counters.
    fn count_drops(&mut self) {
        for (socket, source) in self.sockets.iter().zip(&mut self.sources) {
            if let Ok(drops) = socket.drops() {
                source.drops.seen(drops);
            }
        }
    }
}

impl PacketReceiver for UdpReceiver {
    fn poll(&mut self) -> Result<Batch<'_>> {
        self.ring.begin();
        if !self.ring.has_pending() {
            if self.several.is_some() {
                self.sweep()?;
            } else {
                self.receive(0)?;
            }
        }
        self.ring.split(&mut self.sources);
        if self.ring.filled().1.is_empty() {
            self.idle += 1;
            if self.idle == LOOK_EVERY {
                self.idle = 0;
                self.look();
            }
            return Ok(Batch::EMPTY);
        }
        self.idle = 0;
        let (slab, descriptors) = self.ring.filled();
        self.statistics.packets += descriptors.len() as u64;
        self.statistics.batches += 1;
        Batch::new(slab, descriptors)
            .map_err(|bad| Error::new(ErrorKind::Bug, "poll").with_source(bad))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        if self.ring.has_pending() {
            return Ok(Readiness::Ready);
        }
        // Without a deadline if it lies beyond what the clock can tell.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let this_time = if self.busy {
                Some(Duration::ZERO)
            } else {
                left
            };
            let [mut ready, mut news] = match self.readable(this_time) {
                Err(errno) if errno.raw() == libc::EINTR => continue,
                found => found.map_err(|errno| Error::from_errno("wait", errno))?,
            };
            if let Some(several) = self.several.as_mut().filter(|_| ready) {
                (ready, news) = several
                    .mark()
                    .map_err(|errno| Error::from_errno("wait", errno))?;
            }
            if news {
                self.look();
                // Whoever waits for ever wants to know that nothing will come.
                ready |= !self.link.events.is_empty();
            }
            if ready {
                return Ok(Readiness::Ready);
            }
            if left == Some(Duration::ZERO) {
                return Ok(Readiness::TimedOut);
            }
            if self.busy {
                std::hint::spin_loop();
            }
        }
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.several {
            Some(several) => Some(several.epoll.as_fd()),
            None => self.sockets.first().map(AsFd::as_fd),
        }
    }

    fn statistics(&mut self) -> Statistics {
        self.count_drops();
        let drops = self.sources.iter().map(|source| source.drops.total());
        let losses = &mut self.statistics.losses;
        losses.kernel_drop = Some(drops.sum());
        losses.truncated = Some(self.ring.refused.truncated);
        // Where the kernel filters, nobody counts.
        let filters = self.sources.iter().any(|source| source.only.is_some());
        losses.filtered = filters.then_some(self.ring.refused.filtered);
        self.statistics.bytes = self.ring.bytes;
        self.statistics
    }

    fn take_event(&mut self) -> Option<Event> {
        if self.link.events.is_empty() {
            self.look();
        }
        self.link.events.pop_front()
    }

    fn settings(&self) -> Vec<Setting> {
        self.settings.clone()
    }

    fn close(&mut self) -> Result<()> {
        self.count_drops();
        let index = self.link.interface.as_ref().map_or(0, |one| one.index);
        // A copy of the descriptor in another process would keep the memberships.
        for socket in &self.sockets {
            socket.leave(index);
        }
        self.several = None;
        self.link.watch = None;
        self.sockets.clear();
        Ok(())
    }
}

/// The errors that an ICMP message, or an interface that went down, leaves at a socket. Reading one clears it.
fn is_passing(errno: Errno) -> bool {
    matches!(
        errno.raw(),
        libc::ECONNREFUSED
            | libc::ECONNRESET
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::EMSGSIZE
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EPROTO
            | libc::EACCES
            | libc::ENONET
    )
}

/// What was asked of the kernel and what it granted. `stamping` says whether stamps that were asked for were seen to come.
fn settings(
    sockets: &[Socket],
    config: &ReceiverConfig,
    options: &Options,
    stamping: bool,
) -> Result<Vec<Setting>> {
    let mut settings = vec![buffer_setting(sockets, config, options)?];
    let mut granted = |name, asked: String, granted: String, warning| {
        settings.push(Setting {
            name,
            asked,
            granted,
            warning,
        });
    };
    if config.groups.len() > 1 {
        let asked = match options.sockets {
            Sharing::PerGroup => "per-group",
            Sharing::PerPort => "per-port",
        };
        granted("sockets", asked.to_owned(), sockets.len().to_string(), None);
    }
    if let Some(micros) = options.busy_poll {
        let shortest = sockets.iter().filter_map(Socket::busy_poll).min();
        let found = shortest.map_or_else(|| "unknown".to_owned(), |found| found.to_string());
        granted("busy-poll", micros.to_string(), found, None);
    }
    if options.gro {
        granted("gro", "true".to_owned(), "true".to_owned(), None);
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
            let warning = "the kernel turns stamps on in the background, and no stamped packet was seen within a second on the \
                 loopback interface; the first packets may have none. Set the loopback interface up";
            granted(
                "timestamps",
                "software".to_owned(),
                "software".to_owned(),
                (!stamping).then(|| warning.to_owned()),
            );
        }
        _ => {}
    }
    Ok(settings)
}

fn buffer_setting(
    sockets: &[Socket],
    config: &ReceiverConfig,
    options: &Options,
) -> Result<Setting> {
    const LIMIT: &str = "net.core.rmem_max";
    let asked = socket::asked_buffer(config, options);
    let mut granted = u32::MAX;
    for socket in sockets {
        granted = granted.min(socket.granted_buffer()?);
    }
    let warning = (granted < asked).then(|| {
        let limit = remedy::sysctl(LIMIT).unwrap_or_else(|| "unreadable".to_owned());
        let reason = match options.receive_buffer {
            Some(_) => String::new(),
            None => format!(
                " to hold a ring of {} packets of {} bytes",
                config.ring, config.mtu
            ),
        };
        format!("{LIMIT} is {limit}: raise it{reason} with: sysctl -w {LIMIT}={asked}")
    });
    Ok(Setting {
        name: "receive-buffer",
        asked: asked.to_string(),
        granted: granted.to_string(),
        warning,
    })
}
