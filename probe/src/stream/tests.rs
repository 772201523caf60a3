//! Tests of the numbered stream: the format byte by byte, and the tracker against a plain set.

use std::collections::HashSet;

use super::*;

const SAMPLE: Header = Header {
    stream: 0x0123_4567_89ab_cdef,
    sequence: 77,
    clock: Clock::Monotonic,
    due: 1_000,
    sent: 1_234,
    last: false,
};

fn packet(len: usize, header: &Header) -> Vec<u8> {
    let mut payload = vec![0; len];
    write(&mut payload, header);
    payload
}

#[test]
fn what_is_written_is_read_at_every_length_around_the_edges() {
    for len in (HEADER..HEADER + 20).chain([256, 1_472, LONGEST]) {
        for header in [
            SAMPLE,
            Header {
                last: true,
                clock: Clock::None,
                ..SAMPLE
            },
            Header {
                sequence: u64::MAX,
                clock: Clock::RealTime,
                ..SAMPLE
            },
        ] {
            assert_eq!(parse(&packet(len, &header)), Ok(header), "length {len}");
        }
    }
}

#[test]
fn the_bytes_of_version_1_never_change() {
    // Computed by another implementation, in Python, from the description of the format.
    let bytes = packet(HEADER + 8, &SAMPLE);
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        text,
        "4c474e530102000001234567\
         89abcdef000000000000004d\
         00000000000003e800000000\
         000004d200000038\
         c9828f6edaf55287886afe55"
    );
}

#[test]
fn one_changed_bit_anywhere_is_found() {
    let good = packet(100, &SAMPLE);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&bad).is_err(), "bit {bit} of {}", good.len() * 8);
    }
}

#[test]
fn a_packet_cut_or_extended_anywhere_is_found() {
    let good = packet(100, &SAMPLE);
    for len in 0..good.len() {
        assert!(parse(&good[..len]).is_err(), "cut to {len}");
    }
    let mut long = good;
    long.push(0);
    assert_eq!(
        parse(&long),
        Err(Bad::Length {
            written: 100,
            arrived: 101
        })
    );
}

#[test]
fn the_first_byte_that_differs_is_named() {
    let mut bad = packet(100, &SAMPLE);
    bad[HEADER + 13] ^= 0x80;
    assert_eq!(
        parse(&bad),
        Err(Bad::Pattern {
            offset: HEADER + 13
        })
    );
}

#[test]
fn a_packet_of_a_later_version_is_not_called_broken() {
    let mut later = packet(100, &SAMPLE);
    later[4] = 2;
    assert_eq!(parse(&later), Err(Bad::Version { version: 2 }));
    assert_eq!(parse(b"GET / HTTP/1.1"), Err(Bad::Foreign));
}

#[test]
fn the_tracker_agrees_with_a_set_over_random_streams() {
    let seed = std::env::var("LOCKGATE_SEED").map_or_else(
        |_| u64::from(std::process::id()),
        |text| text.parse().expect("LOCKGATE_SEED is a number"),
    );
    println!("LOCKGATE_SEED={seed}");
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state.wrapping_add(GOLDEN);
        split_mix(state) % below
    };
    for _ in 0..50 {
        let mut tracker = Tracker::new();
        let mut set = HashSet::new();
        let (mut next, mut duplicates, mut reordered, mut too_late) = (0, 0, 0, 0);
        for _ in 0..4_000 {
            // Mostly forward with gaps, at times backward; now and then a jump beyond the window.
            let sequence = match random(100) {
                0 => next + random(WINDOW * 2),
                1..=30 => u64::saturating_sub(next, random(40)),
                31 => u64::saturating_sub(next, random(WINDOW * 2)),
                _ => next + random(3),
            };
            tracker.record(sequence);
            if sequence >= next {
                set.insert(sequence);
                next = sequence + 1;
            } else if next - sequence > WINDOW {
                too_late += 1;
            } else if set.insert(sequence) {
                reordered += 1;
            } else {
                duplicates += 1;
            }
        }
        assert_eq!(tracker.next(), next);
        assert_eq!(tracker.unique(), set.len() as u64);
        assert_eq!(tracker.duplicates(), duplicates);
        assert_eq!(tracker.reordered(), reordered);
        assert_eq!(tracker.too_late(), too_late);
    }
}
