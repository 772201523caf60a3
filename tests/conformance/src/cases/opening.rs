//! Cases about how a receiver is opened.

use std::sync::Barrier;
use std::thread;

use lockgate::receive::{Receiver, ReceiverSpec, State};
use lockgate::registry::{CandidateStatus, Capability, Refusal, RefusalCause};

use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::Rig;

pub(crate) fn refuses_without_a_name(rig: &Rig<'_>) -> Checked {
    let (config, _) = rig.target(rig.family())?;
    let spec = ReceiverSpec {
        provider: None,
        receive: config.clone(),
    };
    for opened in [
        rig.registry.open_receiver("", &config),
        rig.registry.open_receiver_spec(&spec),
        Receiver::open_with(&rig.registry, "", &config),
        Receiver::open(&config),
    ] {
        let refusal = refusal(opened)?;
        check_eq!(refusal.cause, RefusalCause::Implicit, "the cause");
        check!(!refusal.remedy.is_empty(), "the refusal has no remedy");
    }
    check_eq!(rig.spy.opens(), 0, "opens that reached the provider");
    Ok(())
}

pub(crate) fn refuses_another_name(rig: &Rig<'_>) -> Checked {
    let (config, _) = rig.target(rig.family())?;
    let refusal = refusal(rig.registry.open_receiver("no-such-provider", &config))?;
    check!(
        matches!(refusal.cause, RefusalCause::Unknown { .. }),
        "the cause is {:?}",
        refusal.cause
    );
    let listed = refusal.candidates.iter().any(|candidate| {
        candidate.name == rig.equipment.provider()
            && candidate.status == CandidateStatus::Registered
    });
    check!(listed, "the refusal doesn't list it: {refusal}");
    check_eq!(rig.spy.opens(), 0, "opens that reached the provider");
    Ok(())
}

pub(crate) fn works_by_name(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    check_eq!(
        receiver.provider(),
        rig.equipment.provider(),
        "its provider"
    );
    check_eq!(receiver.state(), State::Open, "its state");
    check_eq!(rig.spy.opens(), 1, "opens that reached the provider");
    rig.send_numbered(to, 0..1, 64)?;
    rig.collect_numbered(&mut receiver, 0, 1, 64)?;
    receiver.close()?;
    check_eq!(receiver.state(), State::Closed, "its state after the close");
    Ok(())
}

pub(crate) fn tells_its_settings(rig: &Rig<'_>) -> Checked {
    let (mut receiver, _) = rig.receiver()?;
    for setting in receiver.settings() {
        check!(
            !setting.name.is_empty() && !setting.asked.is_empty() && !setting.granted.is_empty(),
            "a setting has an empty part: {setting:?}"
        );
        check!(
            setting.warning.as_deref() != Some(""),
            "a setting has an empty warning: {setting:?}"
        );
    }
    Ok(receiver.close()?)
}

pub(crate) fn serves_two_receivers_at_once(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Multicast)?;
    rig.equipment.shares_interface()?;
    let (config, to) = rig.target(rig.family())?;
    let (mut left, mut right) = (rig.open(&config)?, rig.open(&config)?);
    rig.send_numbered(to, 0..20, 100)?;
    rig.collect_numbered(&mut left, 0, 20, 100)?;
    rig.collect_numbered(&mut right, 0, 20, 100)?;
    left.close()?;
    // The one that stays goes on receiving.
    rig.send_numbered(to, 20..30, 100)?;
    rig.collect_numbered(&mut right, 20, 10, 100)?;
    Ok(right.close()?)
}

pub(crate) fn works_from_many_threads(rig: &Rig<'_>) -> Checked {
    const THREADS: usize = 16;
    rig.equipment.shares_interface()?;
    let barrier = Barrier::new(THREADS);
    let one = |_| -> Checked {
        let target = rig.target(rig.family());
        barrier.wait();
        let (config, to) = target?;
        let mut receiver = rig.open(&config)?;
        rig.send_numbered(to, 0..8, 64)?;
        rig.collect_numbered(&mut receiver, 0, 8, 64)?;
        Ok(receiver.close()?)
    };
    let one = &one;
    thread::scope(|scope| {
        let all: Vec<_> = (0..THREADS)
            .map(|at| scope.spawn(move || one(at)))
            .collect();
        for thread in all {
            thread
                .join()
                .map_err(|_| Stop::fail("a thread panicked"))??;
        }
        Ok(())
    })
}

pub(crate) fn works_again_after_a_close(rig: &Rig<'_>) -> Checked {
    let (config, to) = rig.target(rig.family())?;
    for round in 0..5 {
        let mut receiver = rig.open(&config)?;
        rig.expect_nothing(&mut receiver)?;
        rig.send_numbered(to, round..round + 3, 64)?;
        rig.collect_numbered(&mut receiver, round, 3, 64)?;
        receiver.close()?;
        // Nobody is there for this one, and the next receiver must not get it either.
        rig.send_numbered(to, 99..100, 64)?;
    }
    Ok(())
}

fn refusal(opened: lockgate::Result<Receiver>) -> Checked<Refusal> {
    match opened {
        Ok(_) => Err(Stop::fail("it opened")),
        Err(error) => error
            .refusal()
            .cloned()
            .ok_or_else(|| Stop::fail(format!("not a refusal: {error}"))),
    }
}
