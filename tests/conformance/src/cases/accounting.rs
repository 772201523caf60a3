//! Cases about statistics: what was sent is what was received plus what was lost, by place.

use std::time::{Duration, Instant};

use lockgate::receive::Statistics;

use crate::outcome::{Checked, check, check_eq};
use crate::rig::{Rig, numbered};

pub(crate) fn counts_what_was_delivered(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    let fresh = receiver.statistics();
    check_eq!(
        (fresh.packets, fresh.bytes, fresh.batches),
        (0, 0, 0),
        "packets, bytes and batches before anything was sent"
    );
    let mut expected = (0, 0, 0);
    for round in 0..4u32 {
        rig.send_numbered(to, 0..5, 64 + round as usize)?;
        let deadline = Instant::now() + rig.patience;
        let until = expected.0 + 5;
        while expected.0 < until {
            check!(Instant::now() < deadline, "packets are missing");
            let _ = receiver.wait(Some(rig.patience))?;
            let batch = receiver.poll()?;
            expected.0 += batch.len() as u64;
            expected.1 += batch
                .iter()
                .map(|packet| packet.payload().len() as u64)
                .sum::<u64>();
            expected.2 += u64::from(!batch.is_empty());
        }
        let told = receiver.statistics();
        check_eq!(
            (told.packets, told.bytes, told.batches),
            expected,
            "packets, bytes and batches"
        );
        check_eq!(told.losses.total(), 0, "losses");
    }
    Ok(receiver.close()?)
}

pub(crate) fn adds_up_when_overrun(rig: &Rig<'_>) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    let count = rig.equipment.overrun(&mut config)?;
    let mut receiver = rig.open(&config)?;
    rig.send_numbered(to, 0..count, 64)?;
    let (mut last, mut received) = (None, 0);
    let deadline = Instant::now() + rig.patience;
    loop {
        let batch = receiver.poll()?;
        let quiet = batch.is_empty();
        for packet in batch.iter() {
            let head = packet.payload().first_chunk::<4>().copied();
            let number = head.map(u32::from_be_bytes);
            check!(
                number.is_some_and(|number| packet.payload() == numbered(number, 64)),
                "a packet that nobody sent"
            );
            check!(number > last, "{number:?} came after {last:?}");
            last = number;
            received += 1;
        }
        let told = receiver.statistics();
        check_eq!(told.packets, received, "packets in the statistics");
        let known = received + told.losses.total();
        if quiet && known == u64::from(count) {
            check!(
                told.losses.total() > 0,
                "all {count} packets were held, which the equipment calls an overrun"
            );
            break;
        }
        check!(
            known <= u64::from(count),
            "{count} were sent, and there are more: {told:?}"
        );
        check!(
            Instant::now() < deadline,
            "{count} were sent, {} of them received and {} lost by place: {told:?}",
            told.packets,
            told.losses.total()
        );
    }
    // It goes on receiving after the overrun.
    rig.send_numbered(to, count..count + 3, 64)?;
    rig.collect_numbered(&mut receiver, count, 3, 64)?;
    Ok(receiver.close()?)
}

pub(crate) fn refuses_what_is_too_long(rig: &Rig<'_>) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    config.mtu = 576;
    config.buffer_bytes = 640;
    let mut receiver = rig.open(&config)?;
    rig.send_numbered(to, 0..1, 64)?;
    rig.send_numbered(to, 90..92, 641)?;
    rig.send_numbered(to, 1..2, 64)?;
    rig.collect_numbered(&mut receiver, 0, 2, 64)?;
    let losses = receiver.statistics().losses;
    check_eq!(losses.truncated, Some(2), "packets counted as too long");
    check_eq!(losses.total(), 2, "losses at all places");
    Ok(receiver.close()?)
}

pub(crate) fn keeps_to_its_places(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    let places = |told: Statistics| told.losses.by_place().map(|(_, count)| count.is_some());
    let at_first = places(receiver.statistics());
    rig.send_numbered(to, 0..5, 64)?;
    rig.collect_numbered(&mut receiver, 0, 5, 64)?;
    let _ = receiver.wait(Some(Duration::ZERO))?;
    check_eq!(
        places(receiver.statistics()),
        at_first,
        "the places that are counted, later"
    );
    receiver.close()?;
    check_eq!(
        places(receiver.statistics()),
        at_first,
        "the places that are counted, after the close"
    );
    Ok(())
}

pub(crate) fn keeps_the_last_totals(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    rig.send_numbered(to, 0..7, 64)?;
    rig.collect_numbered(&mut receiver, 0, 7, 64)?;
    let before = receiver.statistics();
    receiver.close()?;
    rig.send_numbered(to, 7..9, 64)?;
    let after = receiver.statistics();
    check_eq!(
        (after.packets, after.bytes, after.batches),
        (before.packets, before.bytes, before.batches),
        "packets, bytes and batches after the close"
    );
    check_eq!(receiver.statistics(), after, "statistics told once more");
    Ok(())
}
