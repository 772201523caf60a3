//! The address of a debt.
//!
//! Promises: one number for one debt, never reused in its ledger. Does not do: reaching a debt of another ledger; whoever hands
//! an address to the wrong ledger may meet an unrelated debt there.

use std::fmt;

use serde::{Serialize, Serializer};

/// The address of one debt in its ledger. It fits the 64 bits that devices give back with a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(u64);

impl SlotId {
    pub(super) fn new(place: u32, turn: u32) -> Self {
        Self(u64::from(turn) << 32 | u64::from(place))
    }

    /// The address from a number that came back with a completion.
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number to hand to a device.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    pub(super) fn place(self) -> u32 {
        // The lower half holds the place.
        (self.0 & u64::from(u32::MAX)) as u32
    }

    pub(super) fn turn(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

impl fmt::Display for SlotId {
    /// `17.3`: place 17, used for the third time.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.place(), self.turn())
    }
}

impl Serialize for SlotId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
