//! How a case ends, and the macros that end it early.
//!
//! Promises: a case passes, fails with a text, or is skipped with a reason; a skip without a reason is a failure.

use std::fmt;

use lockgate::registry::Capability;

/// Why a case ended before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The provider broke a promise.
    Fail(String),
    /// The case doesn't apply: what for is in the text.
    Skip(String),
}

/// What a case returns.
pub type Checked<T = ()> = Result<T, Stop>;

impl Stop {
    /// A broken promise.
    #[must_use]
    pub fn fail(text: impl Into<String>) -> Self {
        Self::Fail(text.into())
    }

    /// A case that can't run on this equipment. A blank reason makes it a failure.
    #[must_use]
    pub fn skip(reason: impl Into<String>) -> Self {
        let reason = reason.into();
        if reason.trim().is_empty() {
            return Self::Fail("skipped without a reason".to_owned());
        }
        Self::Skip(reason)
    }

    /// A case about a capability that the provider doesn't claim.
    #[must_use]
    pub fn unclaimed(capability: Capability) -> Self {
        Self::Skip(format!("{capability} is not claimed"))
    }
}

impl From<lockgate::Error> for Stop {
    /// An error where the case expected success.
    fn from(error: lockgate::Error) -> Self {
        Self::Fail(format!("unexpected error: {error}"))
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A promise was broken; which one, and how.
    Failed(String),
    /// Every promise of the case was kept.
    Passed,
    /// It doesn't apply, for this reason.
    Skipped(String),
}

impl From<Checked> for Outcome {
    fn from(checked: Checked) -> Self {
        match checked {
            Ok(()) => Self::Passed,
            Err(Stop::Fail(text)) => Self::Failed(text),
            // A variant can be made without `Stop::skip`, so that the rule is kept here too.
            Err(Stop::Skip(reason)) if reason.trim().is_empty() => {
                Self::Failed("skipped without a reason".to_owned())
            }
            Err(Stop::Skip(reason)) => Self::Skipped(reason),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) => write!(f, "FAILED: {text}"),
            Self::Passed => f.write_str("passed"),
            Self::Skipped(reason) => write!(f, "skipped: {reason}"),
        }
    }
}

/// Ends the case as failed unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err($crate::Stop::fail(format!($($text)+)));
        }
    };
}

/// Ends the case as failed unless both values are equal; the text says what they are.
macro_rules! check_eq {
    ($left:expr, $right:expr, $($text:tt)+) => {
        match (&$left, &$right) {
            (left, right) => {
                if left != right {
                    return Err($crate::Stop::fail(format!(
                        "{}: {left:?}, expected {right:?}",
                        format_args!($($text)+)
                    )));
                }
            }
        }
    };
}

pub(crate) use {check, check_eq};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_without_a_reason_is_a_failure() {
        for stop in [Stop::skip(""), Stop::skip(" \n"), Stop::Skip(String::new())] {
            assert_eq!(
                Outcome::from(Err(stop)),
                Outcome::Failed("skipped without a reason".to_owned())
            );
        }
        assert_eq!(
            Outcome::from(Err(Stop::unclaimed(Capability::Ipv6))),
            Outcome::Skipped("ipv6 is not claimed".to_owned())
        );
    }
}
