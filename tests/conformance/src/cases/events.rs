//! Cases about what happens to a receiver besides packets.

use std::time::Instant;

use crate::outcome::{Checked, check, check_eq};
use crate::rig::Rig;

pub(crate) fn are_silent_without_a_cause(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    rig.send_numbered(to, 0..3, 64)?;
    rig.collect_numbered(&mut receiver, 0, 3, 64)?;
    check_eq!(receiver.take_event(), None, "an event of nothing");
    receiver.close()?;
    check_eq!(receiver.take_event(), None, "an event of the close");
    Ok(())
}

pub(crate) fn reach_the_receiver(rig: &Rig<'_>) -> Checked {
    let (mut receiver, to) = rig.receiver()?;
    rig.equipment.cause_event()?;
    let deadline = Instant::now() + rig.patience;
    let mut seen = Vec::new();
    loop {
        seen.extend(std::iter::from_fn(|| receiver.take_event()));
        if !seen.is_empty() {
            break;
        }
        check!(
            Instant::now() < deadline,
            "no event within {:?} after the link changed",
            rig.patience
        );
        let _ = receiver.wait(Some(rig.patience / 100))?;
        let _ = receiver.poll()?;
    }
    // It goes on receiving afterwards.
    rig.send_numbered(to, 0..3, 64)?;
    rig.collect_numbered(&mut receiver, 0, 3, 64)?;
    Ok(receiver.close()?)
}
