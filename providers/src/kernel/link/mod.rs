//! Hears from the kernel what happens to the interface of a receiver.
//!
//! Promises: an interface that goes, comes back under another index, or loses and regains its link gives one [`Change`] each; if
//! the kernel had to drop news, the state is asked for again, so that no change stays unseen. Does not do: joining again;
//! the receiver does.

mod message;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use lockgate::Errno;

use self::message::{Link, Message};
use super::sys;

/// More than the kernel puts into one datagram of link news (it allocates at most 32 KiB).
const NEWS_BYTES: usize = 32 * 1024;

/// What happened to the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is there again, under this index.
    Appeared(u32),
    /// It lost its link or was set down.
    Down,
    /// It is gone.
    Removed,
    /// It has its link again.
    Up,
}

/// A netlink socket and what it has told about one interface.
pub(crate) struct Watch {
    socket: OwnedFd,
    state: State,
    buffer: Box<[u8]>,
}

impl Watch {
    /// Starts to listen. Nothing is known about the interface until [`look`](Self::look).
    pub(crate) fn open(interface: &str) -> Result<Self, Errno> {
        let watch = Self {
            socket: sys::open_link_news()?,
            state: State {
                interface: interface.to_owned(),
                index: None,
                running: true,
                missed: false,
            },
            buffer: vec![0; NEWS_BYTES].into_boxed_slice(),
        };
        Ok(watch)
    }

    /// Starts from the index that the interface has now, and asks for its state.
    pub(crate) fn start(&mut self, index: u32) -> Result<(), Errno> {
        self.state.index = Some(index);
        self.ask()
    }

    /// Takes in the news, without waiting. Answers whether there was any, be it a change or not.
    pub(crate) fn look(&mut self, changes: &mut Vec<Change>) -> Result<bool, Errno> {
        let mut heard = false;
        loop {
            match sys::receive_datagram(&self.socket, &mut self.buffer) {
                Ok(len) if len <= self.buffer.len() => {
                    heard = true;
                    message::parse(&self.buffer[..len], |message| {
                        self.state.take(&message, changes);
                    });
                    if std::mem::take(&mut self.state.missed) {
                        self.ask()?;
                    }
                }
                // Cut, or lost because nobody looked for long: what was missed is in the answer to a new request.
                Ok(_) => self.ask()?,
                Err(errno) if errno.raw() == libc::ENOBUFS => self.ask()?,
                Err(errno) if errno.raw() == libc::EINTR => {}
                Err(Errno::AGAIN) => return Ok(heard),
                Err(errno) => return Err(errno),
            }
        }
    }

    fn ask(&self) -> Result<(), Errno> {
        let request = message::request(self.state.index, &self.state.interface);
        sys::send(&self.socket, &request)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What is known of the interface.
struct State {
    interface: String,
    /// Its index; `None` while it is gone.
    index: Option<u32>,
    running: bool,
    /// Whether news was lost, so that another one may have its name already.
    missed: bool,
}

impl State {
    fn take(&mut self, message: &Message<'_>, changes: &mut Vec<Change>) {
        match message {
            Message::Gone(index) if self.index == Some(*index) => self.gone(changes),
            Message::Gone(_) => {}
            // The only request that is ever sent asks for this interface.
            Message::Refused(libc::ENODEV) if self.index.is_some() => {
                self.gone(changes);
                self.missed = true;
            }
            Message::Refused(_) => {}
            Message::New(link) => self.new_link(link, changes),
        }
    }

    fn new_link(&mut self, link: &Link<'_>, changes: &mut Vec<Change>) {
        let named = link.name == self.interface.as_bytes();
        match self.index {
            Some(index) if index == link.index => {}
            // Another interface has the name: ours was renamed or is gone, and the news of that was lost or is to come.
            Some(_) if named => {
                self.gone(changes);
                self.appeared(link, changes);
                return;
            }
            None if named => {
                self.appeared(link, changes);
                return;
            }
            _ => return,
        }
        // A renamed interface keeps its index, and with it the memberships.
        if self.running != link.running {
            self.running = link.running;
            changes.push(if link.running {
                Change::Up
            } else {
                Change::Down
            });
        }
    }

    fn gone(&mut self, changes: &mut Vec<Change>) {
        self.index = None;
        self.running = false;
        changes.push(Change::Removed);
    }

    fn appeared(&mut self, link: &Link<'_>, changes: &mut Vec<Change>) {
        self.index = Some(link.index);
        self.running = link.running;
        changes.push(Change::Appeared(link.index));
        if link.running {
            changes.push(Change::Up);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::message::tests::{frame, link};
    use super::*;

    const RUNNING: i32 = libc::IFF_UP | libc::IFF_RUNNING;

    /// What the state machine makes of datagrams, from an interface `veth0` of index 7 that runs.
    fn changes(datagrams: &[Vec<u8>]) -> Vec<Change> {
        let mut state = State {
            interface: "veth0".to_owned(),
            index: Some(7),
            running: true,
            missed: false,
        };
        let mut changes = Vec::new();
        for bytes in datagrams {
            message::parse(bytes, |message| state.take(&message, &mut changes));
        }
        changes
    }

    fn new(index: u32, flags: i32, name: &str) -> Vec<u8> {
        link(libc::RTM_NEWLINK, 0, index, flags, name)
    }

    fn gone(index: u32) -> Vec<u8> {
        link(libc::RTM_DELLINK, 0, index, 0, "veth0")
    }

    #[test]
    fn a_flap_is_one_change_each_way_however_often_it_is_told() {
        let down = new(7, libc::IFF_UP, "veth0");
        let up = new(7, RUNNING, "veth0");
        let told = [down.clone(), down, up.clone(), up];
        assert_eq!(changes(&told), [Change::Down, Change::Up]);
    }

    #[test]
    fn setting_it_down_is_down_too() {
        assert_eq!(changes(&[new(7, 0, "veth0")]), [Change::Down]);
    }

    #[test]
    fn removal_and_return_under_another_index() {
        let told = [
            gone(7),
            new(9, 0, "veth0"),
            new(9, RUNNING, "veth0"),
            gone(9),
        ];
        assert_eq!(
            changes(&told),
            [
                Change::Removed,
                Change::Appeared(9),
                Change::Up,
                Change::Removed
            ]
        );
    }

    #[test]
    fn other_interfaces_are_none_of_our_business() {
        let told = [new(8, 0, "veth1"), gone(8), new(8, RUNNING, "veth1")];
        assert_eq!(changes(&told), []);
    }

    #[test]
    fn a_renamed_interface_is_the_same_and_its_old_name_may_be_taken() {
        assert_eq!(changes(&[new(7, RUNNING, "feed0")]), []);
        let taken = [new(7, RUNNING, "feed0"), new(9, RUNNING, "veth0")];
        assert_eq!(
            changes(&taken),
            [Change::Removed, Change::Appeared(9), Change::Up]
        );
    }

    #[test]
    fn a_refused_request_tells_of_a_removal_that_was_missed() {
        let refused = frame(libc::NLMSG_ERROR as u16, &(-libc::ENODEV).to_ne_bytes());
        assert_eq!(changes(&[refused.clone(), refused]), [Change::Removed]);
    }

    #[test]
    fn the_kernel_answers_for_the_loopback_interface() {
        let index = sys::interface_index("lo").unwrap();
        let mut watch = Watch::open("lo").unwrap();
        watch.start(index).unwrap();
        let mut changes = Vec::new();
        watch.look(&mut changes).unwrap();
        // It runs, as the state assumed before it was asked.
        assert_eq!(changes, []);
        // An index that nobody has: it went without a word, and the name leads to another one.
        watch.start(i32::MAX as u32).unwrap();
        watch.look(&mut changes).unwrap();
        assert_eq!(
            changes,
            [Change::Removed, Change::Appeared(index), Change::Up]
        );
    }
}
