//! The explicit registry: a value that holds factories, and the only way to open anything.
//!
//! Promises: registering and describing open nothing; an open names its provider and gives that provider or a typed error; two
//! registries don't see each other. There is no global registry, no default, no look-up in the environment, no folder scan and no
//! fall-back. Does not do: loading plugins.
//!
//! Threads: a [`Registry`] is `Send + Sync`. Registering takes `&mut self`, opening takes `&self`, so that any number of threads
//! open through one registry without a lock.

mod description;
mod factory;
mod linked;
mod refusal;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;

pub use description::{
    Availability, Capabilities, Capability, Description, Inspection, Kind, Origin, Unavailable,
};
pub use factory::{Factory, OpenContext};
pub use linked::{LinkedFactory, linked};
pub use refusal::{Candidate, CandidateStatus, Refusal, RefusalCause};

#[doc(hidden)]
pub use inventory as __inventory;

use crate::custody::Domain;
use crate::error::{Error, ErrorKind, Result};

/// The longest name of a provider.
const NAME_MAX: usize = 32;

/// A value that holds factories and opens them by name.
///
/// It opens everything in one [`Domain`]: [`Registry::new`] makes one of its own, [`Registry::in_domain`] takes the caller's.
pub struct Registry {
    domain: Arc<Domain>,
    factories: Vec<Arc<dyn Factory>>,
    /// Names that are known without a factory, and factories that were refused.
    others: Vec<Candidate>,
}

impl Registry {
    /// A registry without any factory, in a domain of its own with an unlimited budget. Nothing is found or registered by
    /// itself.
    #[must_use]
    pub fn new() -> Self {
        Self::in_domain(Domain::new("registry", u64::MAX))
    }

    /// A registry without any factory that opens everything in `domain`.
    #[must_use]
    pub fn in_domain(domain: Arc<Domain>) -> Self {
        Self {
            domain,
            factories: Vec::new(),
            others: Vec::new(),
        }
    }

    /// The domain that owns what is opened through this registry.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Takes a factory in. Opens nothing.
    ///
    /// # Errors
    /// The factory comes back, unharmed, if its name is taken or not allowed. The registry remembers the rejection for
    /// its listings.
    pub fn register(&mut self, factory: Arc<dyn Factory>) -> Result<(), Box<RegisterError>> {
        let description = factory.description();
        let name = description.name.to_string();
        let cause = if !valid_name(&name) {
            RegisterCause::InvalidName
        } else if let Some(present) = self.factory(&name) {
            RegisterCause::Duplicate {
                registered: present.description().origin.clone(),
            }
        } else {
            self.factories.push(factory);
            return Ok(());
        };
        let error = Box::new(RegisterError {
            name: name.clone(),
            origin: description.origin.clone(),
            cause,
            factory: Arc::clone(&factory),
        });
        self.others.push(Candidate {
            name,
            kinds: description.kinds.to_vec(),
            status: CandidateStatus::Rejected {
                reason: error.cause.to_string(),
            },
            origin: Some(description.origin.clone()),
        });
        Err(error)
    }

    /// Registers the one linked factory of that name.
    ///
    /// # Errors
    /// If no linked crate, or more than one, has submitted that name, or if the name is taken.
    pub fn register_linked(&mut self, name: &str) -> Result<(), LinkedError> {
        let all = linked();
        let mut matching = all.iter().filter(|entry| entry.name == name);
        let Some(entry) = matching.next() else {
            return Err(LinkedError::Missing(NotLinked::new(&[name], &all)));
        };
        let others: Vec<_> = matching.map(|entry| entry.origin.clone()).collect();
        if !others.is_empty() {
            let mut origins = vec![entry.origin.clone()];
            origins.extend(others);
            return Err(LinkedError::Ambiguous {
                name: name.to_owned(),
                origins,
            });
        }
        self.register((entry.make)()).map_err(LinkedError::Rejected)
    }

    /// Checks that the named providers are linked in. Registers nothing.
    ///
    /// A linker drops a crate that nothing refers to, and with it the entry that the crate would have submitted. This turns
    /// that into a message.
    ///
    /// # Errors
    /// Names what is missing, what is there, and what keeps a crate linked.
    pub fn expect_linked(&self, names: &[&str]) -> Result<(), NotLinked> {
        let all = linked();
        let missing: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| !all.iter().any(|entry| entry.name == *name))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        Err(NotLinked::new(&missing, &all))
    }

    /// Notes a provider that exists but isn't in this build, so that refusals can name it. It can't be opened.
    pub fn declare_known(&mut self, name: &str, kinds: &[Kind], reason: Unavailable) {
        self.others.push(Candidate {
            name: name.to_owned(),
            kinds: kinds.to_vec(),
            status: CandidateStatus::Known { reason },
            origin: None,
        });
    }

    /// Everything that this registry knows of, by name: registered, known but not built in, rejected, and linked but not
    /// registered.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let registered = self.factories.iter().map(|factory| {
            let description = factory.description();
            Candidate {
                name: description.name.to_string(),
                kinds: description.kinds.to_vec(),
                status: match factory.availability() {
                    Availability::Available => CandidateStatus::Registered,
                    Availability::Unavailable { reason } => {
                        CandidateStatus::RegisteredUnavailable { reason }
                    }
                },
                origin: Some(description.origin.clone()),
            }
        });
        let mut all: Vec<Candidate> = registered.chain(self.others.iter().cloned()).collect();
        for candidate in linked_candidates() {
            if !all.iter().any(|known| known.name == candidate.name) {
                all.push(candidate);
            }
        }
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all
    }

    /// The descriptions of what is registered, by name. Static and cheap: nothing is opened, loaded or probed.
    #[must_use]
    pub fn descriptions(&self) -> Vec<&Description> {
        let mut all: Vec<_> = self
            .factories
            .iter()
            .map(|factory| factory.description())
            .collect();
        all.sort_by(|left, right| left.name.cmp(&right.name));
        all
    }

    /// Looks at the host for one registered provider. The only call here that may touch it without opening.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if nothing of that name is registered.
    pub fn inspect(&self, name: &str) -> Result<Inspection> {
        match self.factory(name) {
            Some(factory) => Ok(factory.inspect()),
            None => Err(self.refuse("inspect provider", Kind::Receiver, self.absent(name))),
        }
    }

    /// Opens a receiver of the provider `name`. Validates first: a bad value costs no system call.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if `name` is empty, unknown, not to be had, or opens no receivers;
    /// [`ErrorKind::Invalid`] with every fault of the configuration; [`ErrorKind::Capability`] if it asks for what the
    /// provider doesn't claim; else what the provider met while opening. Whatever it had opened by then is closed again.
    #[cfg(feature = "receive")]
    pub fn open_receiver(
        &self,
        name: &str,
        config: &crate::receive::ReceiverConfig,
    ) -> Result<crate::receive::Receiver> {
        const OPERATION: &str = "open receiver";
        let refuse = |cause| self.refuse(OPERATION, Kind::Receiver, cause);
        if name.is_empty() {
            return Err(refuse(RefusalCause::Implicit));
        }
        let Some(factory) = self.factory(name) else {
            return Err(refuse(self.absent(name)));
        };
        let description = factory.description();
        if let Availability::Unavailable { reason } = factory.availability() {
            return Err(refuse(RefusalCause::Unavailable {
                name: name.to_owned(),
                reason,
            }));
        }
        let wrong_kind = || {
            refuse(RefusalCause::WrongKind {
                name: name.to_owned(),
                kinds: description.kinds.to_vec(),
            })
        };
        if !description.kinds.contains(&Kind::Receiver) {
            return Err(wrong_kind());
        }
        let receiver = factory.receiver().ok_or_else(wrong_kind)?;
        crate::receive::open(
            receiver,
            description,
            config,
            &OpenContext::new(name, &self.domain),
        )
        .map_err(|error| error.with_provider(name))
    }

    /// Opens the receiver that a file or a command line describes.
    ///
    /// # Errors
    /// As [`open_receiver`](Self::open_receiver); a specification without a provider is refused, even if exactly one
    /// provider is registered.
    #[cfg(feature = "receive")]
    pub fn open_receiver_spec(
        &self,
        spec: &crate::receive::ReceiverSpec,
    ) -> Result<crate::receive::Receiver> {
        self.open_receiver(spec.provider.as_deref().unwrap_or(""), &spec.receive)
    }

    fn factory(&self, name: &str) -> Option<&Arc<dyn Factory>> {
        self.factories
            .iter()
            .find(|factory| factory.description().name == name)
    }

    /// Why a name that isn't registered can't be opened.
    fn absent(&self, name: &str) -> RefusalCause {
        let name = name.to_owned();
        let candidates = self.candidates();
        let known = candidates.iter().find(|candidate| candidate.name == name);
        match known.map(|candidate| &candidate.status) {
            Some(CandidateStatus::Linked) => RefusalCause::Unregistered { name },
            Some(CandidateStatus::Known { reason }) => RefusalCause::Unavailable {
                name,
                reason: reason.clone(),
            },
            Some(CandidateStatus::Rejected { reason }) => RefusalCause::Unavailable {
                name,
                reason: Unavailable::Rejected {
                    rule: reason.clone().into(),
                },
            },
            _ => RefusalCause::Unknown {
                suggestion: near_miss(&name, candidates.iter().map(|one| one.name.as_str())),
                name,
            },
        }
    }

    fn refuse(&self, operation: &'static str, kind: Kind, cause: RefusalCause) -> Error {
        refuse(operation, kind, cause, self.candidates())
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("candidates", &self.candidates())
            .finish()
    }
}

/// The error of an open that has no registry to look into: what is linked is all that can be listed.
#[cfg(feature = "receive")]
pub(crate) fn refuse_without_registry(operation: &'static str, kind: Kind) -> Error {
    let candidates = linked_candidates().collect();
    refuse(operation, kind, RefusalCause::Implicit, candidates)
}

fn refuse(
    operation: &'static str,
    kind: Kind,
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
fn remedy(kind: Kind, cause: &RefusalCause, candidates: &[Candidate]) -> String {
    let registered: Vec<&str> = candidates
        .iter()
        .filter(|one| one.status == CandidateStatus::Registered && one.kinds.contains(&kind))
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

fn linked_candidates() -> impl Iterator<Item = Candidate> {
    linked().into_iter().map(|entry| Candidate {
        name: entry.name.to_owned(),
        kinds: entry.kinds.to_vec(),
        status: CandidateStatus::Linked,
        origin: Some(entry.origin.clone()),
    })
}

fn valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    name.len() <= NAME_MAX
        && name.bytes().next().is_some_and(plain)
        && name
            .bytes()
            .all(|byte| plain(byte) || byte == b'-' || byte == b'_')
}

/// The known name closest to `name`, if it is close enough to be meant.
fn near_miss<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    known
        .map(|candidate| (strsim::damerau_levenshtein(&lower, candidate), candidate))
        .filter(|(distance, candidate)| *distance * 3 <= candidate.len().max(3))
        .min()
        .map(|(_, candidate)| candidate.to_owned())
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
    fn new(missing: &[&str], linked: &[&LinkedFactory]) -> Self {
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
