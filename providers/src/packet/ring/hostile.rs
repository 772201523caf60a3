//! What must hold of the readers for any contents of a ring at all.
//!
//! Promises: `check` panics when something does not hold. The fuzzer calls it with what it makes up, ordinary tests with random bytes
//! and with the corpus. Does not do: deciding what is delivered; whatever it is, it lies inside and the reader goes on.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a check panics where something does not hold"
)]

use lockgate::receive::{Batch, Descriptor, ReceiverConfig, Slabs};

use super::super::layout::Layout;
use super::super::options::Version;
use super::{Ring, slab};
use crate::kernel::Clock;
use crate::kernel::custody::View;
use crate::raw::judge::Judge;
use crate::raw::selection::Selection;

const BLOCK: u32 = 4096;
const BLOCKS: u32 = 3;

/// Lays the bytes out as a ring, more than once if they are few, and reads it as far as it goes.
///
/// The first byte chooses the version, the length of batches and whether the kernel takes slots back at once.
pub(in super::super) fn check(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let version = if choice & 1 == 0 {
        Version::V2
    } else {
        Version::V3
    };
    let slot_bytes = 512;
    let layout = Layout {
        version,
        block_bytes: BLOCK,
        blocks: BLOCKS,
        slot_bytes,
        slots: BLOCKS * (BLOCK / slot_bytes),
        timeout: 1,
    };
    let mut words: Vec<u64> = bytes
        .chunks(8)
        .cycle()
        .take(if bytes.is_empty() {
            0
        } else {
            layout.bytes() / 8
        })
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect();
    words.resize(layout.bytes() / 8, 0);
    let view = View::of_words(&mut words);
    if choice & 2 != 0 {
        // Every status says that the slot is ours, so that what follows is reached.
        for slot in 0..layout.slots {
            view.publish(layout.slot(slot), libc::TP_STATUS_USER);
        }
        for block in 0..layout.blocks {
            view.publish((block * BLOCK) as usize + 8, libc::TP_STATUS_USER);
        }
    }
    let config = ReceiverConfig::multicast("lo", ["239.1.1.1:5000".parse().unwrap()]);
    let mut judge = Judge::new(&config, Selection::of(&config), 1);
    let mut ring = Ring::new(layout, Some(Clock::System));
    let mut descriptors = vec![Descriptor::default(); 1 + usize::from(choice >> 3)];
    // Without a kernel that hands anything over again, a ring is read out after this many batches at the latest: each takes a
    // descriptor, or ends because nothing is there.
    let most = layout.bytes() / 32 + 2;
    for _ in 0..most {
        let filled = ring.fill(view, &mut judge, &mut descriptors);
        assert!(filled <= descriptors.len());
        // The core checks every range; nothing may lie outside.
        let batch = Batch::new(Slabs::One(slab(view)), &descriptors[..filled]).expect("inside");
        for packet in batch {
            assert_eq!(
                packet.payload().len(),
                packet.descriptor().payload_len as usize
            );
            assert_eq!(
                packet.destination(),
                Some("239.1.1.1:5000".parse().unwrap())
            );
        }
        ring.release(view);
        if filled == 0 && !ring.is_ready(view) {
            break;
        }
    }
    assert!(!ring.is_ready(view), "{layout:?} is not read out");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator, so that a failure can be run again by its seed (xorshift64, Marsaglia 2003).
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }
    }

    #[test]
    fn no_contents_lead_outside_or_round_for_ever() {
        let seed = std::env::var("LOCKGATE_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0x5eed_0001);
        println!("LOCKGATE_SEED={seed}");
        let mut random = Random(seed);
        for round in 0..4_000_u32 {
            let len = 1 + (random.next() % 900) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            // Half of the rounds with small numbers, which lead further than random ones.
            if round % 2 == 0 {
                for (at, byte) in bytes.iter_mut().enumerate().skip(1) {
                    if at % 4 != 1 {
                        *byte &= (random.next() & 1) as u8;
                    }
                }
            }
            check(&bytes);
        }
    }

    /// One field at a time of a ring that is otherwise sound, at the values where comparisons turn.
    #[test]
    fn every_field_at_every_edge_is_survived() {
        let edges = [
            0_u32,
            1,
            19,
            20,
            31,
            32,
            47,
            48,
            511,
            512,
            4047,
            4048,
            4049,
            4095,
            4096,
            65_535,
            1 << 31,
            u32::MAX,
        ];
        for choice in [2_u8, 3, 10, 11, 0xfa, 0xfb] {
            for place in (0..96).step_by(2) {
                for edge in edges {
                    // A block that says: one packet at 48, that lies 66 further on and has 60 bytes.
                    let mut words = [0_u32; 64];
                    (words[2], words[3], words[4]) = (1, 1, 48);
                    (words[12], words[15], words[16], words[18]) = (128, 60, 60, 66);
                    let mut bytes = vec![choice];
                    bytes.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                    bytes[1 + place..1 + place + 4].copy_from_slice(&edge.to_ne_bytes());
                    check(&bytes);
                }
            }
        }
    }

    /// What a fuzzer once found interesting. The corpus is not part of the crate's package: a copy without it has nothing to replay.
    #[test]
    fn the_fuzzers_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/packet-ring");
        let Ok(files) = std::fs::read_dir(folder) else {
            return;
        };
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            check(&std::fs::read(path).unwrap());
            count += 1;
        }
        assert!(count >= 30, "{count} files in {folder}");
    }
}
