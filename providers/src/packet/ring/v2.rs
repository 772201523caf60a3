//! TPACKET_V2: a slot for each packet.
//!
//! Promises: a packet is seen as soon as the kernel has written it. Does not do: anything about blocks, which here only say where
//! slots lie.

use lockgate::receive::Descriptor;

use super::super::layout::Layout;
use super::{half, origin, stamp, sys, tag, word};
use crate::kernel::Clock;
use crate::kernel::custody::View;
use crate::raw::judge::{Arrival, Judge};

/// `struct tpacket2_hdr`.
const HEAD: usize = 32;
/// Slots lie too far apart for the processor to see a pattern: so many ahead is fetched what most packets need.
const AHEAD: u32 = 6;
const LINES: usize = 4;

/// The reader.
#[derive(Debug)]
pub(in super::super) struct V2 {
    layout: Layout,
    clock: Option<Clock>,
    /// The slot that is taken next.
    next: u32,
    /// How many before it are in our hands.
    held: u32,
}

impl V2 {
    pub(super) fn new(layout: Layout, clock: Option<Clock>) -> Self {
        Self {
            layout,
            clock,
            next: 0,
            held: 0,
        }
    }

    #[inline]
    pub(super) fn release(&mut self, view: View<'_>) {
        let slots = self.layout.slots;
        // At most `slots` are held, so that this stays within them.
        let mut at = (self.next + slots - self.held) % slots;
        while self.held > 0 {
            view.publish(self.layout.slot(at), libc::TP_STATUS_KERNEL);
            at = self.after(at);
            self.held -= 1;
        }
    }

    #[inline]
    pub(super) fn is_ready(&self, view: View<'_>) -> bool {
        self.held < self.layout.slots && self.status(view).is_some()
    }

    /// The status of the next slot, if the kernel has handed it over.
    #[inline]
    fn status(&self, view: View<'_>) -> Option<u32> {
        let status = view.acquire(self.layout.slot(self.next))?;
        (status & libc::TP_STATUS_USER != 0).then_some(status)
    }

    #[inline]
    fn after(&self, slot: u32) -> u32 {
        if slot + 1 == self.layout.slots {
            0
        } else {
            slot + 1
        }
    }

    #[inline]
    pub(super) fn fill(
        &mut self,
        view: View<'_>,
        judge: &mut Judge,
        out: &mut [Descriptor],
    ) -> usize {
        let mut filled = 0;
        while let Some(one) = out.get_mut(filled) {
            // A slot that is held shows the user bit too: once round is enough.
            if self.held == self.layout.slots {
                break;
            }
            let Some(status) = self.status(view) else {
                break;
            };
            let start = self.layout.slot(self.next);
            let ahead = (self.next + AHEAD) % self.layout.slots;
            view.fetch(self.layout.slot(ahead), LINES);
            self.next = self.after(self.next);
            self.held += 1;
            match self.packet(view, start, status) {
                Some((bytes, arrival)) => filled += usize::from(judge.takes(bytes, &arrival, one)),
                None => judge.broken(),
            }
        }
        filled
    }

    /// The packet of a slot; nothing if its numbers contradict the slot.
    #[inline]
    fn packet<'a>(&self, view: View<'a>, start: usize, status: u32) -> Option<(&'a [u8], Arrival)> {
        let head = view.head::<HEAD>(start)?;
        let captured = word(&head, 8) as usize;
        let offset = usize::from(half(&head, 12));
        let fits = offset >= HEAD
            && offset
                .checked_add(captured)
                .is_some_and(|end| end <= self.layout.slot_bytes as usize);
        if !fits {
            return None;
        }
        let at = start + offset;
        let arrival = Arrival {
            offset: at as u64,
            wire_len: word(&head, 4),
            origin: origin(status),
            tag: tag(status, half(&head, 24).into(), half(&head, 26)),
            stamp: stamp(self.clock, status, word(&head, 16), word(&head, 20)),
        };
        Some((sys::frame(view, at, captured)?, arrival))
    }
}
