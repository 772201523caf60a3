//! The runner's one error: what was being done, why it could not be done.
//!
//! Promises: every error names its step; the text of the cause is kept as it came.
//! Does not do: stand for a failed check. That is a [`Verdict`](crate::Verdict), because finding a fault is a result.

use std::fmt;

pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Error {
    usage: bool,
    text: String,
}

impl Error {
    /// The command line was wrong; exits with 2.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self {
            usage: true,
            text: text.into(),
        }
    }

    /// `step` could not be done because of `cause`.
    pub(crate) fn new(step: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            usage: false,
            text: format!("{step}: {cause}"),
        }
    }

    pub(crate) fn is_usage(&self) -> bool {
        self.usage
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
