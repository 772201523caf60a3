//! Why a registry took no factory in.
//!
//! Promises: a rejected factory comes back, with the origin of both sides; a name that isn't linked is told together with those
//! that are, and with what keeps a crate linked. Does not do: refusals of opens; those are in `refusal.rs`.

use std::fmt;
use std::sync::Arc;

use super::description::Origin;
use super::factory::Factory;
use super::linked::LinkedFactory;

/// The longest name of a provider.
const NAME_MAX: usize = 32;

/// Whether a factory may be called so.
pub(super) fn valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_MAX
        && name.bytes().next().is_some_and(plain)
        && name
            .bytes()
            .all(|byte| plain(byte) || byte == b'-' || byte == b'_')
}

/// A factory that a registry did not take in.
#[derive(Clone)]
pub struct RegisterError {
    /// Its name.
    pub name: String,
    /// Where its code came from.
    pub origin: Origin,
    /// Why it was refused.
    pub cause: RegisterCause,
    /// The factory itself, given back.
    pub factory: Arc<dyn Factory>,
}

/// Why a registry did not take a factory in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterCause {
    /// The name is taken.
    Duplicate {
        /// Where the code of the registered factory came from.
        registered: Origin,
    },
    /// The name is empty, too long, or has characters that are not allowed.
    InvalidName,
}

impl fmt::Display for RegisterCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { registered } => {
                write!(f, "the name is already registered from {registered}")
            }
            Self::InvalidName => write!(
                f,
                "the name is not allowed: 1 to {NAME_MAX} of a-z, 0-9, - and _, starting with a letter or digit"
            ),
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "register provider {:?} from {}: {}",
            self.name, self.origin, self.cause
        )
    }
}

impl fmt::Debug for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterError")
            .field("name", &self.name)
            .field("origin", &self.origin)
            .field("cause", &self.cause)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for RegisterError {}

/// Why a linked factory could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkedError {
    /// Two crates submitted the same name, so that the name doesn't say which is meant.
    #[error(
        "register linked provider {name:?}: submitted more than once, by {}; register the factory that you mean by value",
        join(origins)
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// The crates that submitted it.
        origins: Vec<Origin>,
    },
    /// The factory that was submitted under the name calls itself otherwise.
    #[error(
        "register linked provider {name:?}: the factory that {origin} submitted calls itself {described:?}; report it to that crate"
    )]
    Misnamed {
        /// The name that was asked for.
        name: String,
        /// What the factory calls itself.
        described: String,
        /// The crate that submitted it.
        origin: Origin,
    },
    /// No linked crate submitted it.
    #[error("register linked provider: {0}")]
    Missing(#[source] NotLinked),
    /// The registry refused it.
    #[error(transparent)]
    Rejected(Box<RegisterError>),
}

/// Providers that were expected and are not linked in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not linked in: {}; linked in: {}; a linker drops a crate that nothing refers to: name something of it, such as `use CRATE as _;`, and check that its feature is on",
    missing.join(", "),
    if linked.is_empty() { "nothing".to_owned() } else { linked.join(", ") }
)]
pub struct NotLinked {
    /// The names that no linked crate submitted.
    pub missing: Vec<String>,
    /// The names that are there.
    pub linked: Vec<String>,
}

impl NotLinked {
    pub(super) fn new(missing: &[&str], linked: &[&LinkedFactory]) -> Self {
        Self {
            missing: missing.iter().map(|name| (*name).to_owned()).collect(),
            linked: linked.iter().map(|entry| entry.name.to_owned()).collect(),
        }
    }
}

fn join(origins: &[Origin]) -> String {
    let texts: Vec<_> = origins.iter().map(ToString::to_string).collect();
    texts.join(" and ")
}
