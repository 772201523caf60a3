//! The outcomes of a submission and of a fence, and the cause that a device gave.
//!
//! Promises: the raw numbers that a device or a library gave are kept as they came. Does not do: deciding what follows from
//! an outcome; the ledger does.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use crate::Errno;

/// Why something failed, in the device's or the library's own numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cause {
    /// The step that failed, as a provider names it: `post_send`, `copy`, `completion`.
    pub step: Cow<'static, str>,
    /// The error number, where the failure has one.
    pub errno: Option<Errno>,
    /// A status that is not an error number, such as the status of a completion entry.
    pub status: Option<u64>,
}

impl Cause {
    /// A failed step without a number.
    #[must_use]
    pub fn step(step: impl Into<Cow<'static, str>>) -> Self {
        Self {
            step: step.into(),
            errno: None,
            status: None,
        }
    }

    /// A failed step with the error number it gave.
    #[must_use]
    pub fn errno(step: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self {
            errno: Some(errno),
            ..Self::step(step)
        }
    }

    /// A failed step with a status that is no error number.
    #[must_use]
    pub fn status(step: impl Into<Cow<'static, str>>, status: u64) -> Self {
        Self {
            status: Some(status),
            ..Self::step(step)
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.step)?;
        if let Some(errno) = self.errno {
            write!(f, ": {errno}")?;
        }
        if let Some(status) = self.status {
            write!(f, ": status {status}")?;
        }
        Ok(())
    }
}

/// What became of one request when it was handed to a device. A partial post has one of these for each of its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// The device certainly never saw the request: everything rolls back to the state before.
    NotSubmitted(Cause),
    /// The device may have it and there is no fence to ask: only a proven drain of the lane settles it.
    PossiblySubmitted(Cause),
    /// The device has it, and its fence can be asked.
    Submitted,
}

/// What one observation of submitted work says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fence {
    /// Finished without its effect, and nothing still runs: owners may be released, the destination is poisoned.
    FailedQuiescent(Cause),
    /// The device cannot say: nothing may be released and nothing published.
    Indeterminate,
    /// Not finished.
    Pending,
    /// Finished with its effect: owners may be released and the result published.
    Succeeded,
}

impl Fence {
    /// Whether nothing of this work still runs.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        matches!(self, Self::Succeeded | Self::FailedQuiescent(_))
    }
}
