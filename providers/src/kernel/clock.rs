//! Which clock stamps the packets of a receiver.
//!
//! Promises: hardware stamps are chosen only if the interface has them and they are on. Does not do: turning them on; that changes
//! the device for everybody.

use std::os::fd::AsFd;

use lockgate::receive::TimestampMode;
use lockgate::{Error, ErrorKind, Result};

use super::{Interface, remedy, sys};

/// Which of the two stamps of a packet counts, and by which clock it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// The kernel's, by the system's clock.
    System,
    /// The device's, by a clock that nobody sets.
    DeviceFreeRunning,
    /// The device's, by its PTP clock.
    DeviceRealTime,
}

/// Which clock stamps packets, after the interface was asked whether it has one.
pub(crate) fn clock(
    mode: TimestampMode,
    socket: impl AsFd,
    interface: Option<&Interface>,
) -> Result<Option<Clock>> {
    match (mode, interface) {
        (TimestampMode::Software, _) => Ok(Some(Clock::System)),
        (TimestampMode::Hardware, Some(interface)) => {
            let clock = sys::hardware_clock(socket, &interface.name)
                .map_err(|errno| remedy::no_hardware_clock(Some(errno), &interface.name))?;
            if clock.supported & libc::SOF_TIMESTAMPING_RX_HARDWARE == 0 {
                return Err(remedy::no_hardware_clock(None, &interface.name));
            }
            if clock.filter == Some(0) {
                return Err(remedy::hardware_clock_off(&interface.name));
            }
            Ok(Some(if clock.ptp_clock < 0 {
                Clock::DeviceFreeRunning
            } else {
                Clock::DeviceRealTime
            }))
        }
        (TimestampMode::Hardware, None) => Err(Error::new(ErrorKind::Bug, "choose clock")
            .with_detail("hardware time stamps without an interface passed validation")),
        _ => Ok(None),
    }
}
