//! The one error of the open core.
//!
//! Promises: every error says which operation failed, of which provider, on which object; the raw errno and the source are
//! kept; where something can be done about it, the remedy is named. [`ErrorKind`] separates what a program treats
//! differently. Does not do: logging. The place that decides about an error logs it.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use crate::errno::Errno;
use crate::registry::Refusal;

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, where, and what to do about it.
///
/// Cheap to clone, so that a failed close can be answered again without a second native call.
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    operation: Cow<'static, str>,
    provider: Option<String>,
    object: Option<String>,
    errno: Option<Errno>,
    detail: Option<String>,
    remedy: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// What sort of failure an [`Error`] is. The variants differ in what a caller does next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The library broke a promise of its own. Please report it.
    Bug,
    /// The configuration asks for something that this provider does not claim.
    Capability,
    /// The object was closed before the call.
    Closed,
    /// A device or network interface is missing, or went away.
    Device,
    /// The configuration has values that are not allowed; each fault is listed.
    #[cfg(feature = "receive")]
    Invalid(crate::receive::ConfigFaults),
    /// A library or kernel facility is missing or too old.
    Library,
    /// A limit on locked memory or a budget is too small.
    MemoryLimit,
    /// Whoever is on the other side broke the protocol or went away.
    Peer,
    /// A privilege is missing.
    Permission,
    /// The provider itself failed: its driver, its device or its plugin.
    Provider,
    /// No factory was asked, or the one asked for is not to be had; nothing was opened.
    Refused(Box<Refusal>),
    /// The system is out of something: descriptors, memory, queue entries.
    Resource,
    /// A system call failed in a way that fits none of the other kinds.
    System,
    /// The text of a configuration could not be read.
    Syntax,
    /// The object could not be proven quiet; it is in its domain's quarantine.
    Unquiesced,
}

/// Who has to act on an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The library.
    Bug,
    /// The caller: another argument or another order of calls.
    Caller,
    /// The operator of the host: device, library, privilege.
    Environment,
    /// The other side of a connection.
    Peer,
    /// The operator or the caller: a limit, a budget, a full table.
    Resource,
}

impl Error {
    /// Starts an error of `kind` about `operation`, such as `"join group"`.
    #[must_use]
    pub fn new(kind: ErrorKind, operation: impl Into<Cow<'static, str>>) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                operation: operation.into(),
                provider: None,
                object: None,
                errno: None,
                detail: None,
                remedy: None,
                source: None,
            }),
        }
    }

    /// An error about a failed system call: the kind follows from the number where the cause is certain.
    #[must_use]
    pub fn from_errno(operation: impl Into<Cow<'static, str>>, errno: Errno) -> Self {
        Self::new(kind_of(errno), operation).with_errno(errno)
    }

    /// An error about a failed call of the standard library; keeps it as the source where it carries no errno.
    #[must_use]
    pub fn from_io(operation: impl Into<Cow<'static, str>>, error: std::io::Error) -> Self {
        match Errno::from_io(&error) {
            Some(errno) => Self::from_errno(operation, errno),
            None => Self::new(ErrorKind::System, operation).with_source(error),
        }
    }

    /// Names the provider, unless a deeper layer has named it.
    #[must_use]
    pub fn with_provider(mut self, provider: impl Into<String>) -> Self {
        let inner = self.inner_mut();
        if inner.provider.is_none() {
            inner.provider = Some(provider.into());
        }
        self
    }

    /// Names the object: an interface, a group, a queue pair.
    #[must_use]
    pub fn with_object(mut self, object: impl Into<String>) -> Self {
        self.inner_mut().object = Some(object.into());
        self
    }

    /// Adds the raw error number.
    #[must_use]
    pub fn with_errno(mut self, errno: Errno) -> Self {
        self.inner_mut().errno = Some(errno);
        self
    }

    /// Adds what is known beyond the number: values asked for, values found.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.inner_mut().detail = Some(detail.into());
        self
    }

    /// Adds the one thing to do about it.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        self.inner_mut().remedy = Some(remedy.into());
        self
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.inner_mut().source = Some(source.into());
        self
    }

    /// What sort of failure it is.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.inner.kind
    }

    /// Who has to act.
    #[must_use]
    pub fn class(&self) -> Class {
        match self.inner.kind {
            ErrorKind::Bug => Class::Bug,
            ErrorKind::Capability
            | ErrorKind::Closed
            | ErrorKind::Refused(_)
            | ErrorKind::Syntax => Class::Caller,
            #[cfg(feature = "receive")]
            ErrorKind::Invalid(_) => Class::Caller,
            ErrorKind::Device
            | ErrorKind::Library
            | ErrorKind::Permission
            | ErrorKind::Provider
            | ErrorKind::System
            | ErrorKind::Unquiesced => Class::Environment,
            ErrorKind::Peer => Class::Peer,
            ErrorKind::MemoryLimit | ErrorKind::Resource => Class::Resource,
        }
    }

    /// The step that failed.
    #[must_use]
    pub fn operation(&self) -> &str {
        &self.inner.operation
    }

    /// The provider it happened in.
    #[must_use]
    pub fn provider(&self) -> Option<&str> {
        self.inner.provider.as_deref()
    }

    /// The object it happened to.
    #[must_use]
    pub fn object(&self) -> Option<&str> {
        self.inner.object.as_deref()
    }

    /// The raw error number, as it came.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        self.inner.errno
    }

    /// What is known beyond the number.
    #[must_use]
    pub fn detail(&self) -> Option<&str> {
        self.inner.detail.as_deref()
    }

    /// The one thing to do about it, where there is one.
    #[must_use]
    pub fn remedy(&self) -> Option<&str> {
        self.inner.remedy.as_deref()
    }

    /// The refusal, if this is one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match &self.inner.kind {
            ErrorKind::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// The faults of the configuration, if this is a refused configuration.
    #[cfg(feature = "receive")]
    #[must_use]
    pub fn faults(&self) -> Option<&crate::receive::ConfigFaults> {
        match &self.inner.kind {
            ErrorKind::Invalid(faults) => Some(faults),
            _ => None,
        }
    }

    /// The parts, to add to. The builder methods own the only reference, except after a clone, which then gets its own copy.
    fn inner_mut(&mut self) -> &mut Inner {
        if Arc::get_mut(&mut self.inner).is_none() {
            let old = &self.inner;
            self.inner = Arc::new(Inner {
                kind: old.kind.clone(),
                operation: old.operation.clone(),
                provider: old.provider.clone(),
                object: old.object.clone(),
                errno: old.errno,
                detail: old.detail.clone(),
                remedy: old.remedy.clone(),
                // A boxed source can't be cloned; the shared original stays reachable as the source of the copy.
                source: Some(Box::new(self.clone())),
            });
        }
        #[expect(
            clippy::expect_used,
            reason = "the branch above has just made the reference unique"
        )]
        Arc::get_mut(&mut self.inner).expect("unique reference")
    }
}

impl fmt::Display for Error {
    /// `udp: join group 239.1.1.1: ENODEV (19): No such device; DETAIL; remedy: REMEDY`, with the absent parts left out.
    ///
    /// Refusals and faults print their own lines below.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.inner;
        if let Some(provider) = &inner.provider {
            write!(f, "{provider}: ")?;
        }
        f.write_str(&inner.operation)?;
        if let Some(object) = &inner.object {
            write!(f, " {object}")?;
        }
        match inner.errno {
            Some(errno) => write!(f, ": {errno}")?,
            None => write!(f, ": {}", inner.kind)?,
        }
        if let Some(detail) = &inner.detail {
            write!(f, "; {detail}")?;
        }
        if let Some(remedy) = &inner.remedy {
            write!(f, "; remedy: {remedy}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bug => f.write_str("the library broke its own promise"),
            Self::Capability => f.write_str("not claimed by this provider"),
            Self::Closed => f.write_str("already closed"),
            Self::Device => f.write_str("no such device"),
            #[cfg(feature = "receive")]
            Self::Invalid(faults) => write!(f, "{faults}"),
            Self::Library => f.write_str("library or kernel facility missing"),
            Self::MemoryLimit => f.write_str("memory limit too small"),
            Self::Peer => f.write_str("the peer failed"),
            Self::Permission => f.write_str("permission denied"),
            Self::Provider => f.write_str("the provider failed"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::Resource => f.write_str("out of resources"),
            Self::System => f.write_str("the system call failed"),
            Self::Syntax => f.write_str("the text could not be read"),
            Self::Unquiesced => f.write_str("not proven quiet, kept in the quarantine"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.inner, f)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.inner.source.as_deref()?;
        Some(source)
    }
}

/// The kind that a raw number proves. Everything else stays [`ErrorKind::System`]: a guess would send people the wrong way.
fn kind_of(errno: Errno) -> ErrorKind {
    match errno {
        Errno::PERM | Errno::ACCES => ErrorKind::Permission,
        Errno::NODEV => ErrorKind::Device,
        Errno::NOMEM => ErrorKind::Resource,
        // ENXIO, ENETDOWN, ENFILE, EMFILE, ENOBUFS, ENOSYS, EOPNOTSUPP, EPROTONOSUPPORT, EAFNOSUPPORT
        other => match other.raw() {
            6 | 100 => ErrorKind::Device,
            23 | 24 | 105 => ErrorKind::Resource,
            38 | 93 | 95 | 97 => ErrorKind::Library,
            _ => ErrorKind::System,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_provider_operation_object_number_detail_and_remedy() {
        let error = Error::from_errno("join group", Errno::NODEV)
            .with_object("239.1.1.1")
            .with_provider("udp")
            .with_detail("interface eth7")
            .with_remedy("name an interface that `ip link` shows");
        assert_eq!(
            error.to_string(),
            "udp: join group 239.1.1.1: ENODEV (19): No such device; interface eth7; \
             remedy: name an interface that `ip link` shows"
        );
        assert_eq!(*error.kind(), ErrorKind::Device);
        assert_eq!(error.class(), Class::Environment);
    }

    #[test]
    fn the_deepest_layer_names_the_provider() {
        let error = Error::new(ErrorKind::Provider, "poll")
            .with_provider("udp")
            .with_provider("record");
        assert_eq!(error.provider(), Some("udp"));
    }

    #[test]
    fn a_clone_can_be_added_to_and_leaves_the_original_alone() {
        let first = Error::new(ErrorKind::Closed, "poll");
        let second = first.clone().with_detail("closed by the first call");
        assert_eq!(first.detail(), None);
        assert_eq!(second.detail(), Some("closed by the first call"));
        assert!(second.source().is_some());
    }

    #[test]
    fn an_uncertain_number_is_not_given_a_cause() {
        assert_eq!(
            *Error::from_errno("ioctl", Errno::INVAL).kind(),
            ErrorKind::System
        );
    }
}
