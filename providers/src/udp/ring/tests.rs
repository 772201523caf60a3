//! Tests of the ring that need no receiver around it.

use super::Drops;

#[test]
fn the_drop_counter_wraps_and_does_not_run_backwards() {
    let mut drops = Drops::default();
    let mut expected = 0;
    for (value, step) in [
        (0, 0),
        (5, 5),
        // A datagram that was queued before the last direct look.
        (3, 0),
        (5, 0),
        (0x7fff_ffff, 0x7fff_fffa),
        (u32::MAX, 0x8000_0000 - (1 << 31)),
    ] {
        drops.seen(value);
        expected += step;
        assert_eq!(drops.total(), expected, "after {value}");
    }
    // Around the end of 32 bits.
    let mut drops = Drops {
        last: u32::MAX - 1,
        total: 10,
    };
    drops.seen(3);
    assert_eq!(drops.total(), 15);
}
