//! TPACKET_V3: blocks of packets.
//!
//! Promises: a block is taken when the kernel closes it, full or by its time, and goes back as a whole. A batch may end within a block
//! and may go over several. Does not do: reading a block that is still being filled.

use lockgate::receive::Descriptor;

use super::super::layout::Layout;
use super::{half, origin, stamp, sys, tag, word};
use crate::kernel::Clock;
use crate::kernel::custody::View;
use crate::raw::judge::{Arrival, Judge};

/// `struct tpacket_block_desc` as far as it is read: version, private area, status, packets, first packet.
const BLOCK_HEAD: usize = 20;
/// Where the status of a block stands.
const STATUS: usize = 8;
/// `struct tpacket3_hdr`.
const HEAD: usize = 48;

/// The reader.
#[derive(Debug)]
pub(in super::super) struct V3 {
    layout: Layout,
    clock: Option<Clock>,
    /// The block that is being read, or is read next.
    block: u32,
    /// How many before it are read and in our hands.
    held: u32,
    /// Packets of the block that are left; none if it isn't begun.
    left: u32,
    /// Where the next of them begins in the block.
    next: u32,
}

impl V3 {
    pub(super) fn new(layout: Layout, clock: Option<Clock>) -> Self {
        Self {
            layout,
            clock,
            block: 0,
            held: 0,
            left: 0,
            next: 0,
        }
    }

    #[inline]
    fn start(&self, block: u32) -> usize {
        block as usize * self.layout.block_bytes as usize
    }

    #[inline]
    pub(super) fn release(&mut self, view: View<'_>) {
        let blocks = self.layout.blocks;
        // At most `blocks` are held, so that this stays within them.
        let mut at = (self.block + blocks - self.held) % blocks;
        while self.held > 0 {
            view.publish(self.start(at) + STATUS, libc::TP_STATUS_KERNEL);
            at = if at + 1 == blocks { 0 } else { at + 1 };
            self.held -= 1;
        }
    }

    #[inline]
    pub(super) fn is_ready(&self, view: View<'_>) -> bool {
        self.left > 0 || self.is_closed(view)
    }

    /// Whether the kernel has handed the block over.
    #[inline]
    fn is_closed(&self, view: View<'_>) -> bool {
        // A block that is held shows the user bit too: once round is enough.
        self.held < self.layout.blocks
            && view
                .acquire(self.start(self.block) + STATUS)
                .is_some_and(|status| status & libc::TP_STATUS_USER != 0)
    }

    #[inline]
    pub(super) fn fill(
        &mut self,
        view: View<'_>,
        judge: &mut Judge,
        out: &mut [Descriptor],
    ) -> usize {
        let mut filled = 0;
        while filled < out.len() {
            if self.left == 0 {
                if !self.is_closed(view) {
                    break;
                }
                self.begin(view, judge);
            }
            filled += self.read(view, judge, out.get_mut(filled..).unwrap_or_default());
            if self.left == 0 {
                self.end();
            }
        }
        filled
    }

    /// Begins a block that was handed over.
    #[inline]
    fn begin(&mut self, view: View<'_>, judge: &mut Judge) {
        if let Some(head) = view.head::<BLOCK_HEAD>(self.start(self.block)) {
            (self.left, self.next) = (word(&head, 12), word(&head, 16));
            // Packets that would overlap are none: each takes a header at least.
            let most = self.layout.block_bytes / HEAD as u32;
            if self.left > most {
                judge.broken();
                self.left = 0;
            }
        }
    }

    /// Goes on to the next block. This one stays in our hands until the batch is over.
    #[inline]
    fn end(&mut self) {
        self.block = if self.block + 1 == self.layout.blocks {
            0
        } else {
            self.block + 1
        };
        self.held += 1;
    }

    /// Reads packets of the block, as many as there is room for.
    #[inline]
    fn read(&mut self, view: View<'_>, judge: &mut Judge, out: &mut [Descriptor]) -> usize {
        let start = self.start(self.block);
        let mut filled = 0;
        while self.left > 0 {
            let Some(one) = out.get_mut(filled) else {
                break;
            };
            match self.packet(view, start, self.next) {
                Some((bytes, arrival, step)) => {
                    filled += usize::from(judge.takes(bytes, &arrival, one));
                    self.left -= 1;
                    // Checked below, when the next packet is read there.
                    self.next = self.next.saturating_add(step);
                    if (step as usize) < HEAD && self.left > 0 {
                        judge.broken();
                        self.left = 0;
                    }
                }
                None => {
                    // Where the next one would be can't be known.
                    judge.broken();
                    self.left = 0;
                }
            }
        }
        filled
    }

    /// The packet at an offset of a block, and how far it is to the next; nothing if its numbers contradict the block.
    #[inline]
    fn packet<'a>(
        &self,
        view: View<'a>,
        start: usize,
        at: u32,
    ) -> Option<(&'a [u8], Arrival, u32)> {
        let block = self.layout.block_bytes as usize;
        let within = at as usize;
        if within < BLOCK_HEAD || within.checked_add(HEAD)? > block {
            return None;
        }
        let head = view.head::<HEAD>(start + within)?;
        let captured = word(&head, 12) as usize;
        let offset = within + usize::from(half(&head, 24));
        if offset < within + HEAD || offset.checked_add(captured)? > block {
            return None;
        }
        let status = word(&head, 20);
        let at = start + offset;
        let arrival = Arrival {
            offset: at as u64,
            wire_len: word(&head, 16),
            origin: origin(status),
            tag: tag(status, word(&head, 32), half(&head, 36)),
            stamp: stamp(self.clock, status, word(&head, 4), word(&head, 8)),
        };
        Some((sys::frame(view, at, captured)?, arrival, word(&head, 0)))
    }
}
