//! How large a ring is: slots and blocks that hold what a configuration asks for.
//!
//! Promises: pure; a ring holds at least `ring` packets of any length up to `buffer_bytes`, at any rate. A V3 ring whose blocks have
//! a size that was asked for holds them when they come fast enough to fill blocks. Does not do: asking the kernel.

use lockgate::receive::ReceiverConfig;

use super::options::{Options, Version};

/// Blocks are whole pages; every Linux page is a multiple of this, and of a power of two.
const PAGE: u64 = 4_096;
/// What the kernel puts before a frame (`TPACKET2_HDRLEN` and `TPACKET3_HDRLEN` rounded up, with 16 bytes for the link header of which
/// 14 are used): linux/if_packet.h and `tpacket_rcv` in net/packet/af_packet.c.
const V2_HEAD: u64 = 66;
const V3_HEAD: u64 = 82;
/// What a V3 block begins with: `BLK_PLUS_PRIV(0)`.
const BLOCK_HEAD: u64 = 48;
/// `TPACKET_ALIGNMENT`.
const SLOT_ALIGN: u64 = 16;
/// Packets of a V3 block follow each other at multiples of this (`V3_ALIGNMENT`).
const PACKET_ALIGN: u64 = 8;
/// Larger blocks need contiguous pages that a kernel that has run for long doesn't find.
const BLOCK_PREFERRED: u64 = 256 << 10;
/// The kernel hands blocks over one by one: with fewer, one is always in the reader's hands and the rest is too little.
const V3_BLOCKS_LEAST: u64 = 4;
/// As a default for the time after which an unfilled block is handed over, in milliseconds: the least that there is.
const BLOCK_TIMEOUT: u32 = 1;

/// A ring's measures, as the kernel takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) version: Version,
    pub(super) block_bytes: u32,
    pub(super) blocks: u32,
    /// The distance of slots in a V2 block.
    pub(super) slot_bytes: u32,
    /// All slots. A V3 ring has as many only on paper, and the kernel checks the sum.
    pub(super) slots: u32,
    /// Milliseconds, for V3.
    pub(super) timeout: u32,
}

impl Layout {
    /// How many bytes the ring takes.
    pub(super) fn bytes(&self) -> usize {
        self.block_bytes as usize * self.blocks as usize
    }

    /// Where a slot of a V2 ring begins.
    #[inline]
    pub(super) fn slot(&self, number: u32) -> usize {
        // Both are at least one: a block holds at least one slot.
        let per_block = self.block_bytes / self.slot_bytes;
        let (block, within) = (number / per_block, number % per_block);
        block as usize * self.block_bytes as usize + within as usize * self.slot_bytes as usize
    }
}

/// The smallest V3 block that holds a packet of this length.
pub(super) fn block_least(buffer_bytes: u32) -> u64 {
    BLOCK_HEAD + packet_bytes(buffer_bytes)
}

fn packet_bytes(buffer_bytes: u32) -> u64 {
    (V3_HEAD + u64::from(buffer_bytes)).next_multiple_of(PACKET_ALIGN)
}

/// The ring of a configuration. Nothing if the numbers don't fit the kernel's.
pub(super) fn plan(config: &ReceiverConfig, options: &Options) -> Option<Layout> {
    let ring = u64::from(config.ring);
    match options.version {
        Version::V2 => {
            let slot = (V2_HEAD + u64::from(config.buffer_bytes)).next_multiple_of(SLOT_ALIGN);
            let whole = (ring * slot).next_power_of_two();
            let block = whole
                .clamp(PAGE, BLOCK_PREFERRED)
                .max(slot.next_power_of_two());
            let per_block = block / slot;
            let blocks = ring.div_ceil(per_block);
            Some(Layout {
                version: Version::V2,
                block_bytes: u32::try_from(block).ok()?,
                blocks: u32::try_from(blocks).ok()?,
                slot_bytes: u32::try_from(slot).ok()?,
                slots: u32::try_from(blocks * per_block).ok()?,
                timeout: 0,
            })
        }
        Version::V3 => {
            let packet = packet_bytes(config.buffer_bytes);
            let least = block_least(config.buffer_bytes)
                .next_power_of_two()
                .max(PAGE);
            let block = options.block_bytes.map_or(least, u64::from);
            let per_block = ((block - BLOCK_HEAD) / packet).max(1);
            // A block goes over when its time is up, however few packets it has. So that the ring holds what is asked for at any
            // rate, each block counts for one packet, unless larger ones are asked for. One more is in the reader's hands.
            let wanted = match options.block_bytes {
                None => ring,
                Some(_) => ring.div_ceil(per_block),
            };
            let blocks = (wanted + 1).max(V3_BLOCKS_LEAST);
            // Frames of a V3 ring have no fixed length; the kernel wants a number that fits the blocks.
            let slot = PAGE / 2;
            Some(Layout {
                version: Version::V3,
                block_bytes: u32::try_from(block).ok()?,
                blocks: u32::try_from(blocks).ok()?,
                slot_bytes: slot as u32,
                slots: u32::try_from(blocks * (block / slot)).ok()?,
                timeout: options.block_timeout.unwrap_or(BLOCK_TIMEOUT),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(ring: u32, buffer_bytes: u32) -> ReceiverConfig {
        ReceiverConfig {
            ring,
            buffer_bytes,
            ..ReceiverConfig::default()
        }
    }

    #[test]
    fn every_ring_holds_what_is_asked_for_in_whole_blocks() {
        for version in [Version::V2, Version::V3] {
            let options = Options {
                version,
                ..Options::default()
            };
            for ring in [1, 2, 16, 100, 1024, 4096, 1 << 18] {
                for buffer in [90, 640, 2048, 9_100, 65_557, 1 << 20] {
                    let what = format!("{version:?} ring {ring} buffer {buffer}");
                    let Some(plan) = plan(&config(ring, buffer), &options) else {
                        assert!(u64::from(ring) * u64::from(buffer) > 1 << 32, "{what}");
                        continue;
                    };
                    assert!(plan.block_bytes.is_power_of_two(), "{what}");
                    assert!(plan.block_bytes >= 4096, "{what}");
                    let per_block = plan.block_bytes / plan.slot_bytes;
                    assert_eq!(plan.slots, per_block * plan.blocks, "{what}");
                    match version {
                        Version::V2 => {
                            assert!(plan.slots >= ring, "{what}");
                            assert!(plan.slot_bytes >= buffer + 66, "{what}");
                            // The last slot ends inside the ring, and each inside its block.
                            for number in [0, plan.slots / 2, plan.slots - 1] {
                                let at = plan.slot(number);
                                let end = at + plan.slot_bytes as usize;
                                assert!(end <= plan.bytes(), "{what}");
                                let block = plan.block_bytes as usize;
                                assert_eq!(at / block, (end - 1) / block, "{what}");
                            }
                        }
                        Version::V3 => {
                            let fit = (u64::from(plan.block_bytes) - 48) / packet_bytes(buffer);
                            assert!(fit >= 1, "{what}");
                            // Even if each block has one packet only.
                            assert!(plan.blocks > ring, "{what}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_of_a_size_that_is_asked_for_hold_the_ring_when_full() {
        let options = Options {
            block_bytes: Some(256 << 10),
            ..Options::default()
        };
        let plan = plan(&config(4096, 2048), &options).unwrap();
        let fit = (u64::from(plan.block_bytes) - 48) / packet_bytes(2048);
        assert_eq!(plan.block_bytes, 256 << 10);
        assert!(fit * u64::from(plan.blocks - 1) >= 4096);
        assert!(plan.blocks < 100, "{plan:?}");
    }

    #[test]
    fn a_ring_beyond_the_kernels_numbers_is_no_ring() {
        let options = Options {
            version: Version::V2,
            ..Options::default()
        };
        assert!(plan(&config(1 << 22, 1 << 20), &options).is_some());
        let v3 = Options::default();
        assert!(plan(&config(1 << 22, 1 << 20), &v3).is_none());
    }
}
