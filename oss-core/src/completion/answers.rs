//! What the ledger answers: observations, sweeps, and why something was refused.
//!
//! Promises: plain data; a refusal carries everything back. Does not do: keeping anything alive.

use std::fmt;

use super::loan::Debt;
use super::outcome::Cause;
use super::slot::SlotId;

/// The most slots that one sweep observes.
pub(super) const MOST_SWEPT: usize = 64;

/// What is known about a debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Observation {
    /// The device cannot say, or there is no fence to ask. Everything stays owned.
    Indeterminate,
    /// Not finished. Everything stays owned.
    Pending,
    /// A drain has failed. Everything stays owned; an explicit retry is allowed.
    Quarantined,
    /// Settled. The loans are back, and the outcome can be taken.
    Ready,
}

/// What one sweep saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// The slots that were observed, and what was seen. A slot is ready here only in the sweep that settled it.
    pub observations: Vec<(SlotId, Observation)>,
    /// How many debts are left in the ledger, with those whose result nobody has taken.
    pub retained: usize,
    /// How many of them are quarantined.
    pub quarantined: usize,
}

/// A sweep observes 1 to 64 slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepSize {
    /// What was asked for.
    pub asked: usize,
}

impl fmt::Display for SweepSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a sweep of {} slots was asked for, allowed is 1 to {MOST_SWEPT}",
            self.asked
        )
    }
}

impl std::error::Error for SweepSize {}

/// Why a slot does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SlotError {
    /// It was a debt once; its outcome has been taken or was not wanted.
    Gone,
    /// A drain is not permissible: no blocking observation was in vain, nothing was possibly submitted, no drain failed.
    NotEligible,
    /// Its value is of another type; nothing was taken.
    OtherType,
    /// This number never was a debt of this ledger.
    Unknown,
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "the outcome of this slot has been taken before",
            Self::NotEligible => {
                "a drain is allowed only after a blocking wait in vain, for a possible submission, \
                 or after a failed drain"
            }
            Self::OtherType => "the value of this slot is of another type",
            Self::Unknown => "this number never was a debt of this ledger",
        })
    }
}

impl std::error::Error for SlotError {}

/// Nothing was submitted, and here is everything back.
pub struct Rejected<T> {
    /// Why.
    pub refusal: Refusal,
    /// The debt as it was handed in.
    pub debt: Debt<T>,
}

impl<T> Rejected<T> {
    pub(super) fn new(refusal: Refusal, debt: Debt<T>) -> Self {
        Self { refusal, debt }
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not submitted: ")?;
        match &self.refusal {
            Refusal::Exhausted => f.write_str("all slots of this ledger are used up"),
            Refusal::GateClosed => f.write_str("the domain is shutting down"),
            Refusal::LaneClosed => f.write_str("the lane is closed; replace it to go on"),
            Refusal::NotSubmitted(cause) => cause.fmt(f),
        }
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rejected({self})")
    }
}

impl<T> std::error::Error for Rejected<T> {}

/// Why nothing was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// All slots are used up.
    Exhausted,
    /// The gate of the domain is closed, or its ledger was left.
    GateClosed,
    /// The lane was closed, by a possible submission or by hand.
    LaneClosed,
    /// The provider says that the device certainly never saw it.
    NotSubmitted(Cause),
}
