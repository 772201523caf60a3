//! Cases about waiting: it ends in time, it wakes up, and it doesn't sleep on what is there.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use lockgate::receive::{Readiness, WaitMode};
use lockgate::registry::Capability;

use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::{Rig, wait_out};
use crate::sys;

/// Long enough to be told from nothing, short enough to be waited for.
const SHORT: Duration = Duration::from_millis(30);
/// Clocks of different granularity may disagree by this much.
const GRAIN: Duration = Duration::from_millis(2);

pub(crate) fn times_out(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::EventWait)?;
    times_out_in(rig, WaitMode::Event)
}

fn times_out_in(rig: &Rig<'_>, mode: WaitMode) -> Checked {
    let (mut config, _) = rig.target(rig.family())?;
    config.wait = mode;
    let mut receiver = rig.open(&config)?;
    let took = wait_out(&mut receiver, SHORT)?;
    check!(
        took + GRAIN >= SHORT,
        "a time-out of {SHORT:?} came after {took:?}"
    );
    check!(took < rig.patience, "a time-out of {SHORT:?} took {took:?}");
    Ok(receiver.close()?)
}

pub(crate) fn returns_at_once_for_no_time(rig: &Rig<'_>) -> Checked {
    let (mut receiver, _) = rig.receiver()?;
    let start = Instant::now();
    for _ in 0..100 {
        wait_out(&mut receiver, Duration::ZERO)?;
    }
    let took = start.elapsed();
    // Generous: a wait that rounds up to a tick of a millisecond would still pass, one that sleeps would not.
    check!(
        took < rig.patience / 4,
        "a hundred waits of no time took {took:?}"
    );
    Ok(receiver.close()?)
}

pub(crate) fn wakes_up_for_a_packet(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::EventWait)?;
    wakes_up_in(rig, WaitMode::Event)
}

fn wakes_up_in(rig: &Rig<'_>, mode: WaitMode) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    config.wait = mode;
    let mut receiver = rig.open(&config)?;
    let barrier = Barrier::new(2);
    for round in 0..20 {
        thread::scope(|scope| -> Checked {
            let sending = scope.spawn(|| {
                barrier.wait();
                rig.send_numbered(to, round..round + 1, 64)
            });
            barrier.wait();
            let start = Instant::now();
            rig.collect_numbered(&mut receiver, round, 1, 64)?;
            let took = start.elapsed();
            check!(took < rig.patience / 2, "it took {took:?} to wake up");
            sending
                .join()
                .map_err(|_| Stop::fail("the sender panicked"))?
        })?;
    }
    Ok(receiver.close()?)
}

pub(crate) fn is_ready_when_packets_are_there(rig: &Rig<'_>) -> Checked {
    let (mut config, to) = rig.target(rig.family())?;
    config.batch = 1;
    let mut receiver = rig.open(&config)?;
    rig.send_numbered(to, 0..3, 64)?;
    // After the first of three has been taken, two are left, and nothing new arrives to wake anybody up.
    rig.collect_numbered(&mut receiver, 0, 1, 64)?;
    for number in 1..3 {
        check_eq!(
            receiver.wait(None)?,
            Readiness::Ready,
            "a wait with packets"
        );
        rig.collect_numbered(&mut receiver, number, 1, 64)?;
    }
    Ok(receiver.close()?)
}

pub(crate) fn spins_when_asked(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::BusyPoll)?;
    times_out_in(rig, WaitMode::BusyPoll)?;
    wakes_up_in(rig, WaitMode::BusyPoll)
}

pub(crate) fn offers_a_descriptor(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    let claimed = rig.claims(Capability::ReadinessFd);
    check_eq!(
        receiver.readiness_fd().is_some(),
        claimed,
        "whether there is a descriptor, which is claimed or not"
    );
    if !claimed {
        receiver.close()?;
        return Err(Stop::unclaimed(Capability::ReadinessFd));
    }
    for round in 0..3 {
        check!(
            !readable(&receiver, Duration::ZERO)?,
            "readable before anything was sent in round {round}"
        );
        rig.send_numbered(to, round..round + 1, 64)?;
        check!(
            readable(&receiver, rig.patience)?,
            "not readable {:?} after a packet was sent",
            rig.patience
        );
        rig.collect_numbered(&mut receiver, round, 1, 64)?;
        rig.expect_nothing(&mut receiver)?;
    }
    receiver.close()?;
    check!(
        receiver.readiness_fd().is_none(),
        "there is a descriptor after the close"
    );
    Ok(())
}

fn readable(receiver: &lockgate::receive::Receiver, timeout: Duration) -> Checked<bool> {
    let Some(fd) = receiver.readiness_fd() else {
        return Err(Stop::fail("the descriptor is gone while it is open"));
    };
    sys::readable(fd, timeout).map_err(|error| Stop::fail(format!("poll(2): {error}")))
}
