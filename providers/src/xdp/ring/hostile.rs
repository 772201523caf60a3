//! What must hold of a queue for any contents of its rings and any indices at all.
//!
//! Promises: `check` panics when something does not hold. The fuzzer calls it with what it makes up, ordinary tests with random bytes.
//! Does not do: deciding what is delivered; whatever it is, it lies inside, no frame has two owners, and the reader goes on.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a check panics where something does not hold"
)]

use lockgate::receive::{Batch, Descriptor, ReceiverConfig, Slabs, Timestamp};

use super::super::sys::{RingOffsets, slab};
use super::{Frames, Queue, Ring, Views};
use crate::kernel::custody::View;
use crate::raw::judge::Judge;
use crate::raw::selection::Selection;

const OFFSETS: RingOffsets = RingOffsets {
    producer: 0,
    consumer: 64,
    entries: 128,
    flags: 96,
};
const CHUNK: u32 = 2048;
const FRAMES: Frames = Frames {
    first: 3,
    count: 8,
    chunk_bytes: CHUNK,
};
const ENTRIES: u32 = 4;

/// Plays a kernel that writes what the bytes say into both rings and into the frames, for several rounds.
pub(in super::super) fn check(input: &[u8]) {
    let mut bytes = input.iter().copied().chain(std::iter::repeat(0));
    let mut next = move || bytes.next().unwrap_or(0);
    let mut receive_words = [0_u64; 16 + 2 * ENTRIES as usize];
    let mut fill_words = [0_u64; 16 + 16];
    let mut frame_words = vec![0_u64; (FRAMES.first + FRAMES.count) as usize * CHUNK as usize / 8];
    let frame_len = frame_words.len() * 8;
    let views = Views {
        receive: View::of_words(&mut receive_words),
        fill: View::of_words(&mut fill_words),
        frames: View::of_words(&mut frame_words),
    };
    let mut queue = Queue::new(
        Ring::new(&OFFSETS, ENTRIES),
        Ring::new(&OFFSETS, 16),
        FRAMES,
    );
    let config = ReceiverConfig::multicast("lo", ["239.1.1.1:5000".parse().unwrap()]);
    let mut judge = Judge::new(&config, Selection::of(&config), 1);
    let mut descriptors = vec![Descriptor::default(); 1 + usize::from(next() % 8)];
    for round in 0..16_u32 {
        let lent_before = queue.lent.iter().filter(|lent| **lent).count();
        assert_eq!(
            lent_before + queue.waiting,
            FRAMES.count as usize,
            "a frame is lost or has two owners"
        );
        queue.give_back(views);
        // Indices: mostly plausible ones, as others lead nowhere.
        let step = u32::from(next() % 8);
        let producer = match next() % 4 {
            0 => u32::from_ne_bytes([next(), next(), next(), next()]),
            _ => queue.consumer.wrapping_add(step),
        };
        views.receive.publish(0, producer);
        if next() % 8 == 0 {
            views
                .fill
                .publish(64, u32::from_ne_bytes([next(), next(), next(), next()]));
        } else {
            views.fill.publish(64, queue.producer);
        }
        for entry in 0..ENTRIES as usize {
            let chunk = u64::from(next() % 14);
            let within = u64::from(next()) * u64::from(next() % 12);
            let address = match next() % 8 {
                0 => u64::from_ne_bytes([
                    next(),
                    next(),
                    next(),
                    next(),
                    next(),
                    next(),
                    next(),
                    next(),
                ]),
                _ => chunk * u64::from(CHUNK) + within,
            };
            let len = match next() % 8 {
                0 => u32::from_ne_bytes([next(), next(), next(), next()]),
                _ => u32::from(next()) * 9,
            };
            let flags = u32::from(next() % 16 == 0);
            views.receive.put(128 + 16 * entry, address);
            views.receive.put(
                128 + 16 * entry + 8,
                u64::from(len) | u64::from(flags) << 32,
            );
        }
        let before: Vec<bool> = queue.lent.to_vec();
        let filled = queue.take(
            views,
            &mut || Timestamp::Unavailable,
            &mut judge,
            &mut descriptors,
        );
        assert!(filled <= descriptors.len(), "round {round}");
        // The core checks every range; nothing may lie outside.
        let batch =
            Batch::new(Slabs::One(slab(views.frames)), &descriptors[..filled]).expect("inside");
        for one in batch.descriptors() {
            let end = one.offset + u64::from(one.frame_len);
            assert!(end <= frame_len as u64);
            let chunk = (one.offset / u64::from(CHUNK)) as usize - FRAMES.first as usize;
            assert!(
                before[chunk] && !queue.lent[chunk],
                "a frame that the kernel may write is shown"
            );
        }
        for (was, is) in before.iter().zip(&*queue.lent) {
            assert!(*was || !*is, "reading lent a frame");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_contents_and_no_indices_lead_outside_or_give_a_frame_two_owners() {
        let seed = std::env::var("LOCKGATE_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(0x5eed_0003_u64);
        println!("LOCKGATE_SEED={seed}");
        let mut state = seed;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        for _ in 0..4_000 {
            let bytes: Vec<u8> = (0..1_024).map(|_| random() as u8).collect();
            check(&bytes);
        }
    }

    /// What a fuzzer once found interesting. The corpus is not part of the crate's package: a copy without it has nothing to replay.
    #[test]
    fn the_fuzzers_corpus_holds() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/xdp-ring");
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
