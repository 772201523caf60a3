//! Cases about batches: their bounds, and that what they show lies where it may and stays as it is.

use std::thread;
use std::time::{Duration, Instant};

use lockgate::receive::{Batch, Descriptor, Receiver, Slabs};

use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::{Rig, numbered};

pub(crate) fn stay_within_their_bound(rig: &Rig<'_>) -> Checked {
    for bound in [1u32, 3, 8] {
        let (mut config, to) = rig.target(rig.family())?;
        config.batch = bound;
        let mut receiver = rig.open(&config)?;
        rig.send_numbered(to, 0..20, 64)?;
        let (mut seen, deadline) = (0, Instant::now() + rig.patience);
        while seen < 20 {
            check!(Instant::now() < deadline, "only {seen} of 20 arrived");
            let _ = receiver.wait(Some(rig.patience))?;
            let len = receiver.poll()?.len();
            check!(
                len <= bound as usize,
                "a batch of {len}, and {bound} were asked for"
            );
            seen += len;
        }
        check_eq!(seen, 20, "packets that arrived");
        receiver.close()?;
    }
    Ok(())
}

pub(crate) fn may_be_empty(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    for _ in 0..100 {
        rig.expect_nothing(&mut receiver)?;
    }
    rig.send_numbered(to, 0..1, 64)?;
    rig.collect_numbered(&mut receiver, 0, 1, 64)?;
    rig.expect_nothing(&mut receiver)?;
    let statistics = receiver.statistics();
    check_eq!(
        statistics.batches,
        1,
        "batches, of which empty ones are none"
    );
    Ok(receiver.close()?)
}

pub(crate) fn lie_inside_their_slabs(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    let mut seen = 0;
    let deadline = Instant::now() + rig.patience;
    for (number, len) in (0u32..).zip([0, 1, 64, 500, 1400]) {
        rig.send(to, &numbered(number, len))?;
    }
    while seen < 5 {
        check!(Instant::now() < deadline, "only {seen} of 5 arrived");
        let _ = receiver.wait(Some(rig.patience))?;
        let batch = receiver.poll()?;
        for descriptor in batch.descriptors() {
            check_inside(batch, descriptor)?;
        }
        seen += batch.len();
    }
    Ok(receiver.close()?)
}

/// The same rule as the core's, written once more, so that neither can forget it alone.
fn check_inside(batch: Batch<'_>, one: &Descriptor) -> Checked {
    let len = match batch.slabs() {
        Slabs::One(slab) if one.slab == 0 => slab.len(),
        Slabs::One(_) => 0,
        Slabs::Many(all) => all.get(one.slab as usize).map_or(0, |slab| slab.len()),
    };
    let end = u128::from(one.offset) + u128::from(one.frame_len);
    check!(end <= len as u128, "outside of its slab of {len}: {one:?}");
    let payload_end = u64::from(one.payload_offset) + u64::from(one.payload_len);
    check!(
        payload_end <= u64::from(one.frame_len),
        "its payload is outside of what was captured: {one:?}"
    );
    check!(
        one.wire_len >= one.frame_len,
        "more was captured than was on the wire: {one:?}"
    );
    check_eq!(one.reserved, [0; 6], "the reserved bytes");
    check!(matches!(one.family, 4 | 6), "no family: {one:?}");
    let cut = one.flags & Descriptor::TRUNCATED != 0;
    check_eq!(
        cut,
        one.wire_len > one.frame_len,
        "the mark of a cut packet"
    );
    Ok(())
}

pub(crate) fn stay_whole_while_more_arrives(rig: &Rig<'_>) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    config.ring = 8;
    config.batch = 4;
    let mut receiver = rig.open(&config)?;
    rig.send_numbered(to, 0..4, 300)?;
    let mut next = 0;
    let deadline = Instant::now() + rig.patience;
    while next < 4 {
        check!(Instant::now() < deadline, "only {next} of 4 arrived");
        let _ = receiver.wait(Some(rig.patience))?;
        let batch = receiver.poll()?;
        // Twice as many as the ring holds, while the batch is in use.
        rig.send_numbered(to, 90..106, 300)?;
        for packet in batch.iter() {
            if next < 4 {
                check!(
                    packet.payload() == numbered(next, 300),
                    "packet {next} changed while others arrived"
                );
            }
            next += 1;
        }
    }
    Ok(receiver.close()?)
}

pub(crate) fn can_be_polled_in_another_thread(rig: &Rig<'_>) -> Checked {
    let (receiver, to) = rig.receiver()?;
    let receive = move |mut receiver: Receiver| -> Checked {
        rig.collect_numbered(&mut receiver, 0, 10, 64)?;
        let _ = receiver.wait(Some(Duration::ZERO))?;
        Ok(receiver.close()?)
    };
    thread::scope(|scope| {
        let other = scope.spawn(move || receive(receiver));
        rig.send_numbered(to, 0..10, 64)?;
        other
            .join()
            .map_err(|_| Stop::fail("the other thread panicked"))?
    })
}
