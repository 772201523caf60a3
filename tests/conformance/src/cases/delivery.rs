//! Cases about packets: every byte, in order, with the right addresses and times.

use lockgate::receive::{Timestamp, TimestampMode};
use lockgate::registry::Capability;

use crate::Family;
use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::{Rig, family_of, numbered};
use std::net::SocketAddr;
use std::time::{Duration, Instant, UNIX_EPOCH};

use lockgate::receive::{Packet, Receiver};

pub(crate) fn is_exact_and_in_order(rig: &Rig<'_>) -> Checked {
    let (config, to) = rig.target(rig.family())?;
    let mut receiver = rig.open(&config)?;
    let portion = (config.ring / 4).clamp(1, 64);
    for first in (0..1024).step_by(portion as usize) {
        rig.send_numbered(to, first..first + portion, 200)?;
        rig.collect_numbered(&mut receiver, first, portion as usize, 200)?;
    }
    rig.expect_nothing(&mut receiver)?;
    Ok(receiver.close()?)
}

pub(crate) fn keeps_every_size(rig: &Rig<'_>) -> Checked {
    let (config, to) = rig.target(rig.family())?;
    let mut receiver = rig.open(&config)?;
    let headers = match family_of(to.ip()) {
        Family::V4 => 20 + 8,
        Family::V6 => 40 + 8,
    };
    let most = config.mtu.saturating_sub(headers) as usize;
    for len in [0, 1, 2, 17, 63, 64, 65, 512, most - 1, most] {
        // One at a time: a payload of nothing carries no number to know it by.
        rig.send_numbered(to, 7..8, len)?;
        rig.collect_numbered(&mut receiver, 7, 1, len)?;
    }
    Ok(receiver.close()?)
}

pub(crate) fn goes_round_the_ring(rig: &Rig<'_>) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    config.ring = 16;
    config.batch = 4;
    let mut receiver = rig.open(&config)?;
    // Portions that have no divisor in common with the ring, so that its end is met everywhere.
    let portion = 5;
    for first in (0..400).step_by(portion) {
        rig.send_numbered(to, first..first + portion as u32, 90)?;
        rig.collect_numbered(&mut receiver, first, portion, 90)?;
    }
    Ok(receiver.close()?)
}

pub(crate) fn says_where_packets_came_from_and_went(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    let source = rig.source(to)?;
    rig.send_numbered(to, 0..2, 64)?;
    for packet in rig.collect(&mut receiver, 2)? {
        check_eq!(packet.source, Some(source), "the source");
        check_eq!(
            packet.destination,
            Some((to.ip(), to.port())),
            "the destination"
        );
        check_eq!(packet.vlan, None, "the VLAN of an untagged packet");
    }
    Ok(receiver.close()?)
}

pub(crate) fn stamps_nothing_unless_asked(rig: &Rig<'_>) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    config.timestamps = TimestampMode::None;
    let mut receiver = rig.open(&config)?;
    let stamps = stamps(rig, &mut receiver, to, 3)?;
    check!(
        stamps.iter().all(|one| *one == Timestamp::Unavailable),
        "nobody asked for {stamps:?}"
    );
    Ok(receiver.close()?)
}

pub(crate) fn stamps_with_the_system_clock(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::SoftwareTimestamps)?;
    let (mut config, to) = rig.target(rig.family())?;
    config.timestamps = TimestampMode::Software;
    let mut receiver = rig.open(&config)?;
    let now = || {
        let since = rig.equipment.wall().duration_since(UNIX_EPOCH);
        since.unwrap_or_default()
    };
    let before = now();
    let stamps = stamps(rig, &mut receiver, to, 3)?;
    let after = now();
    for stamp in &stamps {
        let Some(time) = stamp.system() else {
            return Err(Stop::fail(format!("not of the system's clock: {stamp:?}")));
        };
        let time = Duration::from_nanos(time.raw());
        check!(
            before <= time && time <= after,
            "{time:?} is not between send at {before:?} and receive at {after:?}"
        );
    }
    Ok(receiver.close()?)
}

pub(crate) fn stamps_with_the_device_clock(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::HardwareTimestamps)?;
    let (mut config, to) = rig.target(rig.family())?;
    config.timestamps = TimestampMode::Hardware;
    let mut receiver = rig.open(&config)?;
    let stamps = stamps(rig, &mut receiver, to, 4)?;
    for pair in stamps.windows(2) {
        let goes_on = match (pair[0], pair[1]) {
            (Timestamp::DeviceFreeRunning(one), Timestamp::DeviceFreeRunning(next)) => one <= next,
            (Timestamp::DeviceRealTime(one), Timestamp::DeviceRealTime(next)) => one <= next,
            _ => false,
        };
        check!(
            goes_on,
            "not times of one device's clock in order: {pair:?}"
        );
    }
    Ok(receiver.close()?)
}

pub(crate) fn gives_whole_frames(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    let sent = numbered(3, 150);
    rig.send(to, &sent)?;
    let claimed = rig.claims(Capability::WholeFrame);
    let told = one(rig, &mut receiver, |packet| {
        (
            packet.frame().map(<[u8]>::to_vec),
            packet.payload().to_vec(),
        )
    })?;
    match told {
        (Some(frame), payload) => {
            check!(claimed, "it gives whole frames and doesn't claim it");
            check!(payload == sent, "the payload is not as it was sent");
            let headers = match family_of(to.ip()) {
                Family::V4 => 14 + 20 + 8,
                Family::V6 => 14 + 40 + 8,
            };
            check_eq!(frame.len(), headers + sent.len(), "bytes of the frame");
            check!(
                frame.ends_with(&sent),
                "the frame doesn't end in its payload"
            );
        }
        (None, payload) => {
            check!(!claimed, "it claims whole frames and gives none");
            check!(payload == sent, "the payload is not as it was sent");
            receiver.close()?;
            return Err(Stop::unclaimed(Capability::WholeFrame));
        }
    }
    Ok(receiver.close()?)
}

/// The times of `count` packets, sent and received one after the other.
fn stamps(
    rig: &Rig<'_>,
    receiver: &mut Receiver,
    to: SocketAddr,
    count: u32,
) -> Checked<Vec<Timestamp>> {
    let mut all = Vec::new();
    for number in 0..count {
        rig.send_numbered(to, number..number + 1, 64)?;
        all.push(one(rig, receiver, |packet| packet.timestamp())?);
    }
    Ok(all)
}

/// What `look` sees in the next packet.
fn one<T>(rig: &Rig<'_>, receiver: &mut Receiver, look: impl Fn(&Packet<'_>) -> T) -> Checked<T> {
    let deadline = Instant::now() + rig.patience;
    while Instant::now() < deadline {
        let _ = receiver.wait(Some(rig.patience))?;
        if let Some(packet) = receiver.poll()?.get(0) {
            return Ok(look(&packet));
        }
    }
    Err(Stop::fail(format!(
        "no packet arrived within {:?}",
        rig.patience
    )))
}
