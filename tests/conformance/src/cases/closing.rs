//! Cases about the end of a receiver.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockgate::receive::{
    Batch, Event, PacketReceiver, Readiness, Receiver, Setting, State, Statistics,
};
use lockgate::registry::Capability;
use lockgate::{ErrorKind, Result};

use super::describe::holdings;
use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::Rig;

pub(crate) fn is_idempotent(rig: &Rig<'_>) -> Checked {
    let (mut receiver, _) = rig.receiver()?;
    for _ in 0..3 {
        receiver.close()?;
        check_eq!(receiver.state(), State::Closed, "its state");
    }
    Ok(())
}

pub(crate) fn ends_polls_and_waits(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    rig.send_numbered(to, 0..2, 64)?;
    receiver.close()?;
    let told = |error: Option<lockgate::Error>, call: &str| -> Checked {
        let Some(error) = error else {
            return Err(Stop::fail(format!("a {call} after the close succeeded")));
        };
        check_eq!(
            *error.kind(),
            ErrorKind::Closed,
            "the kind of the {call}'s error"
        );
        check_eq!(
            error.provider(),
            Some(rig.equipment.provider()),
            "the provider in the error"
        );
        Ok(())
    };
    told(receiver.poll().err(), "poll")?;
    told(receiver.wait(Some(Duration::ZERO)).err(), "wait")?;
    told(receiver.wait(None).err(), "wait without a time-out")?;
    check!(
        receiver.readiness_fd().is_none(),
        "there is a descriptor after the close"
    );
    Ok(())
}

pub(crate) fn gives_its_groups_back(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Multicast)?;
    for family in rig.families() {
        let (config, to) = rig.target(family)?;
        let ask = || {
            let told = rig.equipment.has_member(to.ip());
            told.ok_or_else(|| Stop::skip("this equipment can't ask who is a member of a group"))
        };
        check!(!ask()?, "somebody was a member of an unused group");
        let mut one = rig.open(&config)?;
        if rig.equipment.shares_interface().is_ok() {
            let mut other = rig.open(&config)?;
            check!(ask()?, "nobody is a member while two receivers are open");
            other.close()?;
            check!(ask()?, "the first close took the second one's membership");
        }
        check!(ask()?, "nobody is a member while a receiver is open");
        one.close()?;
        check!(!ask()?, "somebody is a member after the close");
        drop(rig.open(&config)?);
        check!(!ask()?, "somebody is a member after the drop");
    }
    Ok(())
}

pub(crate) fn is_done_by_drop(rig: &Rig<'_>) -> Checked {
    let (config, to) = rig.target(rig.family())?;
    for _ in 0..3 {
        let mut receiver = rig.open(&config)?;
        rig.send_numbered(to, 0..3, 64)?;
        rig.collect_numbered(&mut receiver, 0, 3, 64)?;
        drop(receiver);
        rig.send_numbered(to, 90..92, 64)?;
    }
    let mut receiver = rig.open(&config)?;
    rig.expect_nothing(&mut receiver)?;
    Ok(receiver.close()?)
}

pub(crate) fn leaks_nothing(rig: &Rig<'_>) -> Checked {
    const CYCLES: usize = 300;
    let cycle = |at: usize| -> Checked {
        let (mut receiver, to) = rig.receiver()?;
        rig.send_numbered(to, 0..2, 64)?;
        rig.collect_numbered(&mut receiver, 0, 2, 64)?;
        // By turns: closed, dropped, and refused.
        match at % 3 {
            0 => receiver.close()?,
            1 => drop(receiver),
            _ => {
                receiver.close()?;
                let (mut config, _) = rig.target(rig.family())?;
                config.ring = 0;
                check!(
                    rig.equipment.open(&rig.registry, &config).is_err(),
                    "a ring of nothing opened"
                );
            }
        }
        Ok(())
    };
    // The first cycles may fill caches, of the provider or of the C library, that are there to stay.
    for at in 0..6 {
        cycle(at)?;
    }
    let before = holdings()?;
    for at in 0..CYCLES {
        cycle(at)?;
    }
    let after = holdings()?;
    // Beside other tests only growth by the cycle can be told from what those hold at the moment.
    let slack = if rig.alone { 0 } else { CYCLES / 2 };
    for ((name, before), (_, after)) in before.named().into_iter().zip(after.named()) {
        check!(
            after <= before + slack,
            "{after} {name} after {CYCLES} opens and closes, {before} before"
        );
    }
    Ok(())
}

pub(crate) fn works_under_decorators(rig: &Rig<'_>) -> Checked {
    let (receiver, to) = rig.receiver()?;
    let (inner, outer) = (Arc::new(Calls::default()), Arc::new(Calls::default()));
    let around = |calls: &Arc<Calls>| {
        let calls = Arc::clone(calls);
        move |inner| -> Box<dyn PacketReceiver> { Box::new(Passing { inner, calls }) }
    };
    let mut receiver: Receiver = receiver.decorate(around(&inner)).decorate(around(&outer));
    rig.send_numbered(to, 0..30, 80)?;
    rig.collect_numbered(&mut receiver, 0, 30, 80)?;
    check_eq!(
        receiver.readiness_fd().is_some(),
        rig.claims(Capability::ReadinessFd),
        "whether there is a descriptor"
    );
    check_eq!(receiver.statistics().packets, 30, "packets");
    receiver.close()?;
    receiver.close()?;
    check!(receiver.poll().is_err(), "a poll after the close succeeded");
    for calls in [&inner, &outer] {
        check_eq!(calls.closes.load(Ordering::Relaxed), 1, "closes");
        check!(
            calls.polls.load(Ordering::Relaxed) >= 1,
            "no poll came through"
        );
    }
    check_eq!(
        inner.polls.load(Ordering::Relaxed),
        outer.polls.load(Ordering::Relaxed),
        "polls that the inner decorator saw, against the outer"
    );
    Ok(())
}

#[derive(Default)]
struct Calls {
    polls: AtomicU32,
    closes: AtomicU32,
}

/// Passes everything on and counts.
struct Passing {
    inner: Box<dyn PacketReceiver>,
    calls: Arc<Calls>,
}

impl PacketReceiver for Passing {
    fn poll(&mut self) -> Result<Batch<'_>> {
        self.calls.polls.fetch_add(1, Ordering::Relaxed);
        self.inner.poll()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        self.inner.wait(timeout)
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness_fd()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn take_event(&mut self) -> Option<Event> {
        self.inner.take_event()
    }

    fn settings(&self) -> Vec<Setting> {
        self.inner.settings()
    }

    fn close(&mut self) -> Result<()> {
        self.calls.closes.fetch_add(1, Ordering::Relaxed);
        self.inner.close()
    }
}
