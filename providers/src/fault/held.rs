//! Packets that are held back, each a copy.
//!
//! Promises: those that may go leave in the order of their due times, and in the order in which they came where these are equal; buffers
//! are used again. Does not do: limiting itself. Whoever holds asks first whether it is full.

use std::collections::VecDeque;
use std::time::Duration;

use lockgate::receive::Descriptor;

pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    /// Slab and offset mean nothing any more.
    pub(super) descriptor: Descriptor,
    /// Not before this time,
    due: Duration,
    /// and not before so many later packets were delivered,
    behind: u32,
    /// but at this time in any case.
    give_up: Duration,
}

pub(super) struct Waiting {
    held: Vec<Held>,
    /// May go, in this order.
    ready: VecDeque<Held>,
    /// Buffers of packets that have gone.
    pool: Vec<Vec<u8>>,
    most: usize,
}

impl Waiting {
    pub(super) fn new(most: usize) -> Self {
        Self {
            held: Vec::new(),
            ready: VecDeque::new(),
            pool: Vec::new(),
            most,
        }
    }

    pub(super) fn most(&self) -> usize {
        self.most
    }

    pub(super) fn len(&self) -> usize {
        self.held.len() + self.ready.len()
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    pub(super) fn hold(
        &mut self,
        bytes: &[u8],
        descriptor: Descriptor,
        due: Duration,
        behind: u32,
        give_up: Duration,
    ) {
        let bytes = self.copy(bytes);
        self.held.push(Held {
            bytes,
            descriptor,
            due,
            behind,
            give_up,
        });
    }

    /// Takes a packet that may go and for which there is no room now.
    pub(super) fn queue(&mut self, bytes: &[u8], descriptor: Descriptor) {
        let bytes = self.copy(bytes);
        self.ready.push_back(Held {
            bytes,
            descriptor,
            due: Duration::ZERO,
            behind: 0,
            give_up: Duration::ZERO,
        });
    }

    /// Notes that a packet was delivered; says whether one may go now.
    pub(super) fn overtaken(&mut self, now: Duration) -> bool {
        for held in &mut self.held {
            held.behind = held.behind.saturating_sub(1);
        }
        self.wake(now)
    }

    /// Says whether one may go at this time.
    pub(super) fn wake(&mut self, now: Duration) -> bool {
        if !self.held.is_empty() {
            let is_due =
                |held: &mut Held| (held.due <= now && held.behind == 0) || held.give_up <= now;
            let start = self.ready.len();
            self.ready.extend(self.held.extract_if(.., is_due));
            // Stable, so that equal times keep the order of arrival.
            self.ready.make_contiguous()[start..].sort_by_key(|held| held.due);
        }
        !self.ready.is_empty()
    }

    pub(super) fn next_ready(&mut self) -> Option<Held> {
        self.ready.pop_front()
    }

    /// The time at which one may go, if no packet comes before.
    pub(super) fn next_due(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let due = |held: &Held| match held.behind {
            0 => held.due.min(held.give_up),
            _ => held.give_up,
        };
        self.held.iter().map(due).min()
    }

    /// Takes back a buffer.
    pub(super) fn give_back(&mut self, mut bytes: Vec<u8>) {
        if self.pool.len() < self.most {
            bytes.clear();
            self.pool.push(bytes);
        }
    }

    /// Throws everything away and says how many packets that were.
    pub(super) fn clear(&mut self) -> usize {
        let len = self.len();
        self.held.clear();
        self.ready.clear();
        len
    }

    fn copy(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = self.pool.pop().unwrap_or_default();
        copy.extend_from_slice(bytes);
        copy
    }
}
