//! Follows the interface of a receiver of whole frames: tells what happens to it, and keeps its groups joined.
//!
//! Promises: as for the `udp` provider, a link that comes back has its groups joined again, and an interface that comes back under
//! another index is taken up again where the provider can. Does not do: touching rings; the provider is told what changed.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};

use lockgate::Result;
use lockgate::receive::Event;

use crate::kernel::link::{Change, Watch};
use crate::kernel::{Interface, remedy, sys};

use super::membership::Memberships;

/// Events that nobody takes are kept up to this number; then the oldest go.
const EVENTS_MAX: usize = 256;

/// The interface, what it is a member of, and what happened to it.
pub(crate) struct Link {
    pub(crate) interface: Interface,
    pub(crate) memberships: Memberships,
    watch: Option<Watch>,
    /// The index under which the groups were joined.
    joined_on: u32,
    rejoin: bool,
    /// Whether it came back and had no link since: with its first link the kernel reports the memberships by itself.
    fresh: bool,
    events: VecDeque<Event>,
    changes: Vec<Change>,
}

impl Link {
    /// Resolves the interface and listens to what happens to it from then on. Nothing is joined yet.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let news = |errno| remedy::link_news(errno, name);
        // First the listening, so that nothing falls between the two.
        let mut watch = Watch::open(name).map_err(news)?;
        let index =
            sys::interface_index(name).map_err(|errno| remedy::resolve_interface(errno, name))?;
        watch.start(index).map_err(news)?;
        Ok(Self {
            interface: Interface {
                name: name.to_owned(),
                index,
            },
            memberships: Memberships::none(),
            watch: Some(watch),
            joined_on: index,
            rejoin: false,
            fresh: false,
            events: VecDeque::new(),
            changes: Vec::new(),
        })
    }

    /// The descriptor that has news, while there may be some.
    pub(crate) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Takes in the news. `returned` is called when the interface is there again under another index.
    #[cold]
    pub(crate) fn look(&mut self, mut returned: impl FnMut(&Interface) -> Result<()>) {
        let Some(watch) = &mut self.watch else {
            return;
        };
        let mut changes = std::mem::take(&mut self.changes);
        let looked = watch.look(&mut changes);
        for change in changes.drain(..) {
            self.follow(change, &mut returned);
        }
        self.changes = changes;
        match looked {
            Ok(true) if self.rejoin => self.join_again(),
            Ok(_) => {}
            Err(errno) => {
                self.watch = None;
                self.tell(Event::Other {
                    text: format!("no more news of the interface: {errno}"),
                });
            }
        }
    }

    /// Whether somebody should take an event.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The oldest event.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Adds an event of the provider's own.
    pub(crate) fn tell(&mut self, event: Event) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Ends the listening and gives the groups back.
    pub(crate) fn close(&mut self) {
        self.watch = None;
        // A copy of the descriptor in another process would keep the memberships.
        self.memberships.leave(self.joined_on);
        self.memberships = Memberships::none();
    }

    fn follow(&mut self, change: Change, returned: &mut impl FnMut(&Interface) -> Result<()>) {
        let interface = self.interface.name.clone();
        match change {
            Change::Appeared(index) => {
                self.interface.index = index;
                (self.rejoin, self.fresh) = (true, true);
                if let Err(error) = returned(&self.interface) {
                    self.tell(Event::Other {
                        text: format!("could not take up the interface again: {error}"),
                    });
                }
            }
            Change::Down => {
                self.fresh = false;
                self.tell(Event::LinkDown { interface });
            }
            Change::Removed => {
                self.tell(Event::InterfaceRemoved { interface });
                // The kernel keeps memberships of an interface that is gone in the socket's list, and counts them.
                self.memberships.leave(self.joined_on);
                self.rejoin = false;
            }
            Change::Up => {
                self.tell(Event::LinkUp { interface });
                // The kernel has kept the memberships, but a switch may have forgotten them; leaving and joining reports them.
                self.rejoin |= !self.fresh;
            }
        }
    }

    fn join_again(&mut self) {
        if let Err(error) = self.memberships.rejoin(self.joined_on, &self.interface) {
            self.tell(Event::Other {
                text: format!("could not join again: {error}"),
            });
            return;
        }
        self.joined_on = self.interface.index;
        self.rejoin = false;
        for group in self.memberships.addresses() {
            let interface = self.interface.name.clone();
            self.tell(Event::Rejoined { group, interface });
        }
    }
}
