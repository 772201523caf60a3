//! What the quarantine tells about one entry.
//!
//! Promises: everything that is known, as plain data with a text and a JSON form. Does not do: keeping anything alive; a report
//! can be stored and printed long after the entry has gone.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

use super::identity::{Evidence, Identity};
use super::quarantine::EntryId;
use super::serials::Serial;
use super::stamp::Stamp;
use crate::Errno;

/// What may be done with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// No native call was made; maintenance makes it once nobody holds the object any more.
    NeverAttempted,
    /// The last call certainly did nothing; an explicit retry may make another.
    Retryable,
    /// The last call may have done anything; no further call is ever made.
    Terminal,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverAttempted => "never attempted",
            Self::Retryable => "retryable",
            Self::Terminal => "terminal",
        })
    }
}

/// A native call that did not give a receipt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The call, by its native name.
    pub call: Cow<'static, str>,
    /// The number that it returned; `None` if it panicked or returned none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<Errno>,
    /// Whether another attempt is allowed.
    pub class: Class,
    /// More words, such as the text of a panic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.call)?;
        if let Some(errno) = self.errno {
            write!(f, ": {errno}")?;
        }
        if let Some(detail) = &self.detail {
            write!(f, ": {detail}")?;
        }
        write!(f, " ({})", self.class)
    }
}

/// One native call that was made for an entry, by whom, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Attempt {
    /// How it failed.
    pub failure: Failure,
    /// Who made it, and when.
    pub by: Stamp,
}

/// Something that an entry keeps alive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeldReport {
    /// What it is.
    pub identity: Identity,
    /// Its serial, if it is the owner of a native object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Serial>,
    /// Its bytes, if it is a plain value.
    pub bytes: u64,
}

/// Everything that is known about one entry.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Its address in the quarantine.
    pub entry: EntryId,
    /// The native object, or the lane of a debt.
    pub identity: Identity,
    /// What may be done with it.
    pub class: Class,
    /// What it waits for, where there is more to say than its class does.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub waits_for: Cow<'static, str>,
    /// Every call that was made, oldest first.
    pub attempts: Vec<Attempt>,
    /// Who put it here, and when.
    pub since: Stamp,
    /// The bytes that it keeps charged.
    pub bytes: u64,
    /// What it keeps alive.
    pub held: Vec<HeldReport>,
    /// How many others still hold it.
    pub holders: usize,
    /// What a live native query says at this moment.
    pub evidence: Evidence,
    /// An attempt is running at this moment; the rest is as it was before.
    pub in_progress: bool,
}

impl Report {
    /// The last failure, if a call was made.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.attempts.last().map(|attempt| &attempt.failure)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.entry, self.identity, self.class)?;
        if self.in_progress {
            f.write_str(", an attempt is running")?;
        }
        if !self.waits_for.is_empty() {
            write!(f, "\n  waits for: {}", self.waits_for)?;
        }
        for attempt in &self.attempts {
            write!(f, "\n  tried: {}, by {}", attempt.failure, attempt.by)?;
        }
        write!(f, "\n  since: {}", self.since)?;
        write!(f, "\n  retains: {} bytes charged", self.bytes)?;
        for held in &self.held {
            write!(f, "; {}", held.identity)?;
            match held.object {
                Some(object) => write!(f, " [object {object}]")?,
                None => write!(f, " [{} bytes]", held.bytes)?,
            }
        }
        write!(f, "\n  held by: {} others", self.holders)?;
        write!(f, "\n  evidence: {}", self.evidence)
    }
}
