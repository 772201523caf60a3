//! The explicit registry: a value that holds factories, and the only way to open anything.
//!
//! Promises: registering and describing open nothing; an open names its provider and gives that provider or a typed error; two
//! registries don't see each other. There is no global registry, no default, no look-up in the environment, no folder scan and no
//! fall-back. Does not do: loading plugins.
//!
//! Threads: a [`Registry`] is `Send + Sync`. Registering takes `&mut self`, opening takes `&self`, so that any number of threads
//! open through one registry without a lock.

mod description;
mod error;
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
pub use error::{LinkedError, NotLinked, RegisterCause, RegisterError};
pub use factory::{Factory, OpenContext};
pub use linked::{LinkedFactory, linked};
#[cfg(feature = "receive")]
pub(crate) use refusal::refuse_without_registry;
pub use refusal::{Candidate, CandidateStatus, Refusal, RefusalCause};

#[doc(hidden)]
pub use inventory as __inventory;

use crate::custody::Domain;
#[cfg(feature = "receive")]
use crate::error::ErrorKind;
use crate::error::{Error, Result};

use error::valid_name;
use refusal::{near_miss, refuse};

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
        self.note(Candidate {
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
    /// If no linked crate, or more than one, has submitted that name, if its factory calls itself otherwise, or if the name is
    /// taken.
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
        let factory = (entry.make)();
        let described = &factory.description().name;
        if described != name {
            // Registered under the other name, it would be something that nobody asked for.
            return Err(LinkedError::Misnamed {
                name: name.to_owned(),
                described: described.to_string(),
                origin: entry.origin.clone(),
            });
        }
        self.register(factory).map_err(LinkedError::Rejected)
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

    /// Notes a provider that exists but isn't in this build, so that refusals can name it. It can't be opened, and the note is
    /// without effect on a provider of that name that is registered or linked.
    pub fn declare_known(&mut self, name: &str, kinds: &[Kind], reason: Unavailable) {
        self.note(Candidate {
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
        let mut all: Vec<Candidate> = registered.collect();
        for candidate in linked_candidates() {
            if self.factory(&candidate.name).is_none() {
                all.push(candidate);
            }
        }
        let has_code = |name: &str| all.iter().any(|candidate| candidate.name == name);
        let others: Vec<_> = self
            .others
            .iter()
            .filter(|other| {
                !matches!(other.status, CandidateStatus::Known { .. }) || !has_code(&other.name)
            })
            .cloned()
            .collect();
        all.extend(others);
        // Stable: of one name, what is registered comes first, then what is linked, then what was refused.
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
            None => Err(self.refuse("inspect provider", None, self.absent(name))),
        }
    }

    /// Opens a receiver of the provider `name`. Validates first: a bad value costs no system call.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if `name` is empty, unknown, not to be had, or opens no receivers;
    /// [`ErrorKind::Invalid`] with every fault of the configuration; [`ErrorKind::Capability`] if it asks for what the
    /// provider doesn't claim; [`ErrorKind::Provider`] if it describes itself as what it is not; else what the provider met
    /// while opening. Whatever it had opened by then is closed again.
    #[cfg(feature = "receive")]
    pub fn open_receiver(
        &self,
        name: &str,
        config: &crate::receive::ReceiverConfig,
    ) -> Result<crate::receive::Receiver> {
        const OPERATION: &str = "open receiver";
        let refuse = |cause| self.refuse(OPERATION, Some(Kind::Receiver), cause);
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
        if !description.kinds.contains(&Kind::Receiver) {
            return Err(refuse(RefusalCause::WrongKind {
                name: name.to_owned(),
                kinds: description.kinds.to_vec(),
            }));
        }
        let receiver = factory.receiver().ok_or_else(|| {
            Error::new(ErrorKind::Provider, OPERATION)
                .with_provider(name)
                .with_detail("its kinds name receivers, and its factory has no receiver side")
        })?;
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

    /// Keeps a candidate for the listings, once.
    fn note(&mut self, candidate: Candidate) {
        if !self.others.contains(&candidate) {
            self.others.push(candidate);
        }
    }

    /// Why a name that isn't registered can't be opened.
    fn absent(&self, name: &str) -> RefusalCause {
        if name.is_empty() {
            return RefusalCause::Implicit;
        }
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

    fn refuse(&self, operation: &'static str, kind: Option<Kind>, cause: RefusalCause) -> Error {
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

fn linked_candidates() -> impl Iterator<Item = Candidate> {
    linked().into_iter().map(|entry| Candidate {
        name: entry.name.to_owned(),
        kinds: entry.kinds.to_vec(),
        status: CandidateStatus::Linked,
        origin: Some(entry.origin.clone()),
    })
}
