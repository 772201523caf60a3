//! Why a registry opened nothing.
//!
//! Promises: a refusal lists every candidate that the registry knows, each with its reason, and ends with the one thing to do.
//! Nothing was opened, loaded or probed to make it.

use std::fmt;

use serde::Serialize;

use super::description::{Kind, Origin, Unavailable};
use super::error::valid_name;
use crate::error::{Error, ErrorKind};

/// A refused open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Why.
    pub cause: RefusalCause,
    /// What was to be opened; nothing if it was only to be looked at.
    pub kind: Option<Kind>,
    /// Everything that the registry knows of, by name.
    pub candidates: Vec<Candidate>,
    /// The one thing to do.
    pub remedy: String,
}

/// Why an open was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusalCause {
    /// No provider was named.
    Implicit,
    /// The name is known, but the provider can't be had.
    Unavailable {
        /// The name.
        name: String,
        /// Why it can't be had.
        reason: Unavailable,
    },
    /// The provider's crate is linked in, but its factory was not registered.
    Unregistered {
        /// The name.
        name: String,
    },
    /// Nothing has this name.
    Unknown {
        /// The name.
        name: String,
        /// A known name that looks like it.
        suggestion: Option<String>,
    },
    /// The provider opens other kinds of objects.
    WrongKind {
        /// The name.
        name: String,
        /// What it opens.
        kinds: Vec<Kind>,
    },
}

/// One provider that a refusal or a listing names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// What it opens.
    pub kinds: Vec<Kind>,
    /// How it stands with the registry.
    pub status: CandidateStatus,
    /// Where its code came from, if there is code.
    pub origin: Option<Origin>,
}

/// How a candidate stands with a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum CandidateStatus {
    /// Known by name only.
    Known {
        /// Why it isn't here.
        reason: Unavailable,
    },
    /// Linked into the program, and not registered.
    Linked,
    /// Registered: it can be opened by name.
    Registered,
    /// Registered, and it can't open anything here.
    RegisteredUnavailable {
        /// Why not.
        reason: Unavailable,
    },
    /// Offered to the registry and refused.
    Rejected {
        /// The rule that it broke.
        reason: String,
    },
}

impl fmt::Display for CandidateStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { reason } => write!(f, "{reason}"),
            Self::Linked => f.write_str("linked in, not registered"),
            Self::Registered => f.write_str("registered"),
            Self::RegisteredUnavailable { reason } => write!(f, "registered, {reason}"),
            Self::Rejected { reason } => write!(f, "rejected: {reason}"),
        }
    }
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if valid_name(&self.name) {
            write!(f, "{}: {}", self.name, self.status)?;
        } else {
            write!(f, "{:?}: {}", self.name, self.status)?;
        }
        if let Some(origin) = &self.origin {
            write!(f, " ({origin})")?;
        }
        Ok(())
    }
}

impl fmt::Display for RefusalCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Implicit => f.write_str("refused, no provider was named"),
            Self::Unavailable { name, reason } => {
                write!(f, "refused, provider {name} is {reason}")
            }
            Self::Unregistered { name } => {
                write!(
                    f,
                    "refused, provider {name} is linked in but not registered"
                )
            }
            Self::Unknown { name, suggestion } => {
                write!(f, "refused, no provider is called {name:?}")?;
                match suggestion {
                    Some(suggestion) => write!(f, "; did you mean {suggestion}?"),
                    None => Ok(()),
                }
            }
            Self::WrongKind { name, kinds } => {
                let kinds: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
                write!(f, "refused, provider {name} opens {}", kinds.join(" and "))
            }
        }
    }
}

impl fmt::Display for Refusal {
    /// The cause, then a line for each candidate, then the one thing to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        if self.candidates.is_empty() {
            f.write_str("\n  no provider is registered or linked in")?;
        }
        for candidate in &self.candidates {
            write!(f, "\n  {candidate}")?;
        }
        write!(f, "\n{}", self.remedy)
    }
}

/// The error of an open that has no registry to look into: what is linked is all that can be listed.
#[cfg(feature = "receive")]
pub(crate) fn refuse_without_registry(operation: &'static str, kind: Kind) -> Error {
    let candidates = super::linked_candidates().collect();
    refuse(operation, Some(kind), RefusalCause::Implicit, candidates)
}

pub(super) fn refuse(
    operation: &'static str,
    kind: Option<Kind>,
    cause: RefusalCause,
    candidates: Vec<Candidate>,
) -> Error {
    let remedy = remedy(kind, &cause, &candidates);
    Error::new(
        ErrorKind::Refused(Box::new(Refusal {
            cause,
            kind,
            candidates,
            remedy,
        })),
        operation,
    )
}

/// The one thing to do about a refusal.
fn remedy(kind: Option<Kind>, cause: &RefusalCause, candidates: &[Candidate]) -> String {
    let registered: Vec<&str> = candidates
        .iter()
        .filter(|one| {
            one.status == CandidateStatus::Registered
                && kind.is_none_or(|kind| one.kinds.contains(&kind))
        })
        .map(|one| one.name.as_str())
        .collect();
    match cause {
        RefusalCause::Unavailable { reason, .. } if reason.remedy().is_some() => {
            // The guard has just seen the remedy.
            reason.remedy().unwrap_or_default()
        }
        RefusalCause::Unregistered { name } => {
            format!("register it: registry.register_linked({name:?})")
        }
        RefusalCause::Unknown {
            suggestion: Some(suggestion),
            ..
        } if registered.contains(&suggestion.as_str()) => {
            format!("name the provider: provider = {suggestion:?}")
        }
        _ if registered.is_empty() => {
            "register the factory of the provider that you want, then open it by name".to_owned()
        }
        _ => format!("name one of these: {}", registered.join(", ")),
    }
}

/// The known name closest to `name`, if it is close enough to be meant.
pub(super) fn near_miss<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    known
        .map(|candidate| (strsim::damerau_levenshtein(&lower, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(3))
        .min()
        .map(|(_, candidate)| candidate.to_owned())
}
