//! When a packet arrived, with the clock in the type.
//!
//! Promises: times of different clocks can't be subtracted or compared by mistake. A time that was not taken is not zero, it is
//! [`Timestamp::Unavailable`]. Does not do: translating between clocks.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A clock that stamps packets. Implemented by the three marker types of this module, and by nothing else.
pub trait ClockDomain: private::Sealed + Copy + fmt::Debug {
    /// The word for it in texts.
    const NAME: &'static str;
}

/// The system's real-time clock, read by software: nanoseconds since 1970, UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemRealTime;

/// A device's free-running counter: ticks of a frequency and an origin that only the device knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFreeRunning;

/// A device's real-time clock: nanoseconds since 1970 in the time scale that disciplines it, often TAI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRealTime;

impl ClockDomain for SystemRealTime {
    const NAME: &'static str = "system";
}
impl ClockDomain for DeviceFreeRunning {
    const NAME: &'static str = "device-free-running";
}
impl ClockDomain for DeviceRealTime {
    const NAME: &'static str = "device-real-time";
}

/// A time on the clock `D`: nanoseconds, or ticks for [`DeviceFreeRunning`].
///
/// ```
/// use lockgate::receive::{Stamp, SystemRealTime};
/// let sent = Stamp::<SystemRealTime>::from_raw(3);
/// let received = Stamp::<SystemRealTime>::from_raw(5);
/// assert_eq!(received.since(sent), Some(2));
/// ```
///
/// ```compile_fail
/// use lockgate::receive::{DeviceRealTime, Stamp, SystemRealTime};
/// let software = Stamp::<SystemRealTime>::from_raw(5);
/// let hardware = Stamp::<DeviceRealTime>::from_raw(3);
/// let wrong = software.since(hardware); // two clocks
/// ```
pub struct Stamp<D> {
    raw: u64,
    domain: PhantomData<D>,
}

impl<D: ClockDomain> Stamp<D> {
    /// Takes the raw value.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self {
            raw,
            domain: PhantomData,
        }
    }

    /// The raw value.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.raw
    }

    /// How far `earlier` lies back on the same clock, in the clock's units; nothing if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Option<u64> {
        self.raw.checked_sub(earlier.raw)
    }
}

impl Stamp<SystemRealTime> {
    /// As a time of the standard library.
    #[must_use]
    pub fn system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.raw)
    }

    /// The system's clock now.
    #[must_use]
    pub fn now() -> Self {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        // 2^64 ns end in the year 2554.
        Self::from_raw(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl<D> Clone for Stamp<D> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<D> Copy for Stamp<D> {}
impl<D> PartialEq for Stamp<D> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}
impl<D> Eq for Stamp<D> {}
impl<D> PartialOrd for Stamp<D> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<D> Ord for Stamp<D> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.raw.cmp(&other.raw)
    }
}
impl<D> Hash for Stamp<D> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.raw.hash(state);
    }
}
impl<D: ClockDomain> fmt::Debug for Stamp<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", D::NAME, self.raw)
    }
}

/// When a packet arrived, and by which clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Timestamp {
    /// By the device's free-running counter.
    DeviceFreeRunning(Stamp<DeviceFreeRunning>),
    /// By the device's real-time clock.
    DeviceRealTime(Stamp<DeviceRealTime>),
    /// By the system's clock, in software.
    System(Stamp<SystemRealTime>),
    /// Nobody took it.
    Unavailable,
    /// By a clock that this version doesn't know.
    Unknown {
        /// The clock's number in the descriptor.
        clock: u8,
        /// The raw value.
        raw: u64,
    },
}

impl Timestamp {
    pub(super) const fn from_parts(clock: u8, raw: u64) -> Self {
        match clock {
            0 => Self::Unavailable,
            1 => Self::System(Stamp::from_raw(raw)),
            2 => Self::DeviceFreeRunning(Stamp::from_raw(raw)),
            3 => Self::DeviceRealTime(Stamp::from_raw(raw)),
            clock => Self::Unknown { clock, raw },
        }
    }

    pub(super) const fn parts(self) -> (u8, u64) {
        match self {
            Self::Unavailable => (0, 0),
            Self::System(stamp) => (1, stamp.raw),
            Self::DeviceFreeRunning(stamp) => (2, stamp.raw),
            Self::DeviceRealTime(stamp) => (3, stamp.raw),
            Self::Unknown { clock, raw } => (clock, raw),
        }
    }

    /// The system-clock time, if that is the clock.
    #[must_use]
    pub const fn system(self) -> Option<Stamp<SystemRealTime>> {
        match self {
            Self::System(stamp) => Some(stamp),
            _ => None,
        }
    }
}

mod private {
    #[expect(unnameable_types, reason = "sealed: nobody else implements a clock")]
    pub trait Sealed {}
    impl Sealed for super::SystemRealTime {}
    impl Sealed for super::DeviceFreeRunning {}
    impl Sealed for super::DeviceRealTime {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_round_trip_and_unknown_clocks_are_kept() {
        for stamp in [
            Timestamp::Unavailable,
            Timestamp::System(Stamp::from_raw(9)),
            Timestamp::DeviceFreeRunning(Stamp::from_raw(8)),
            Timestamp::DeviceRealTime(Stamp::from_raw(7)),
            Timestamp::Unknown { clock: 77, raw: 6 },
        ] {
            let (clock, raw) = stamp.parts();
            assert_eq!(Timestamp::from_parts(clock, raw), stamp);
        }
    }

    #[test]
    fn a_later_stamp_is_not_before_an_earlier_one() {
        let (early, late) = (
            Stamp::<SystemRealTime>::from_raw(10),
            Stamp::<SystemRealTime>::from_raw(25),
        );
        assert_eq!(late.since(early), Some(15));
        assert_eq!(early.since(late), None);
    }
}
