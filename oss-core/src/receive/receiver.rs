//! The receiver: what providers implement and what applications hold.
//!
//! Promises: a poll makes no allocation, takes no lock and costs one virtual call a batch; "nothing has arrived yet" is an empty
//! batch, not an error; a close is idempotent, and a failed close answers the same failure again without a second native
//! call. Does not do: opening without a provider's name.
//!
//! Threads: a receiver is `Send` and belongs to one thread at a time.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use serde::Serialize;

use super::batch::Batch;
use super::config::{ConfigFaults, ReceiverConfig, required_capabilities};
use super::statistics::{Event, Setting, Statistics};
use crate::error::{Error, ErrorKind, Result};
use crate::registry::{Description, Kind, OpenContext, Registry, refuse_without_registry};

/// What a provider of packets implements. Object-safe; decorators implement it over another one.
pub trait PacketReceiver: Send {
    /// Takes what has arrived, without waiting: at most a batch. An empty batch means that nothing has arrived yet.
    ///
    /// # Errors
    /// Only if nothing more can be received or the provider failed; losses are counted, not errors.
    fn poll(&mut self) -> Result<Batch<'_>>;

    /// Waits until a poll may find something, at most `timeout`; for ever without one. May wake up early.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness>;

    /// A descriptor that becomes readable when a poll may find something, where there is one.
    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Totals since it was opened. After a close: the last totals.
    fn statistics(&mut self) -> Statistics;

    /// What happened besides packets, oldest first; one at a time.
    fn take_event(&mut self) -> Option<Event> {
        None
    }

    /// What was asked of the system and what it granted.
    fn settings(&self) -> Vec<Setting> {
        Vec::new()
    }

    /// Ends it: gives groups back and releases what it owns. Called once; the [`Receiver`] answers later calls.
    ///
    /// # Errors
    /// If something could not be proven quiet. It is then in the domain's quarantine, with what depends on it.
    fn close(&mut self) -> Result<()>;
}

/// What a wait found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Readiness {
    /// A poll may find something.
    Ready,
    /// The time is up.
    TimedOut,
}

/// Where a receiver stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It receives.
    Open,
    /// It was closed, and everything was released.
    Closed,
    /// It was closed, and something could not be proven quiet; that is in the quarantine.
    Unquiesced,
}

/// The receiver side of a factory.
pub trait ReceiverFactory {
    /// Adds every fault that only this provider sees: its options, its bounds. Pure, no system call.
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        config.options.reader().finish(faults);
    }

    /// Opens a receiver of a configuration that has been validated, and that asks for nothing that the factory doesn't claim.
    ///
    /// # Errors
    /// Names the step, the number and the remedy. Whatever was opened by then is closed again.
    fn open(
        &self,
        config: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>>;
}

/// An open receiver: what an open through a registry returns, and nothing else.
///
/// ```compile_fail
/// # use lockgate::receive::{PacketReceiver, Receiver};
/// fn put_together(inner: Box<dyn PacketReceiver>) -> Receiver {
///     Receiver { inner } // the fields are private
/// }
/// ```
///
/// A decorator is put around one that was opened:
///
/// ```
/// # use lockgate::receive::{PacketReceiver, Receiver};
/// fn put_around(receiver: Receiver, decorate: fn(Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver>) -> Receiver {
///     receiver.decorate(decorate)
/// }
/// ```
pub struct Receiver {
    inner: Box<dyn PacketReceiver>,
    provider: String,
    state: State,
    failure: Option<Error>,
}

impl Receiver {
    /// Always refuses: an open names its provider. The error lists the providers that are linked in and says what to do.
    ///
    /// # Errors
    /// Always [`ErrorKind::Refused`].
    pub fn open(config: &ReceiverConfig) -> Result<Self> {
        let _ = config;
        Err(refuse_without_registry("open receiver", Kind::Receiver))
    }

    /// Opens through a registry, by name; the same as [`Registry::open_receiver`].
    ///
    /// # Errors
    /// As there.
    pub fn open_with(registry: &Registry, name: &str, config: &ReceiverConfig) -> Result<Self> {
        registry.open_receiver(name, config)
    }

    /// The name of the provider that it was opened with.
    #[must_use]
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// Takes what has arrived, without waiting. An empty batch means that nothing has arrived yet.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after a close; else what the provider met.
    #[inline]
    pub fn poll(&mut self) -> Result<Batch<'_>> {
        if self.state != State::Open {
            return Err(self.closed("poll"));
        }
        let provider = &self.provider;
        self.inner
            .poll()
            .map_err(|error| error.with_provider(provider.as_str()))
    }

    /// Waits until a poll may find something, at most `timeout`; for ever without one. May wake up early.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        if self.state != State::Open {
            return Err(self.closed("wait"));
        }
        self.inner
            .wait(timeout)
            .map_err(|error| error.with_provider(self.provider.as_str()))
    }

    /// A descriptor that becomes readable when a poll may find something, where there is one and the receiver is open.
    #[must_use]
    pub fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.state {
            State::Open => self.inner.readiness_fd(),
            State::Closed | State::Unquiesced => None,
        }
    }

    /// Totals since it was opened; after a close the last ones.
    pub fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    /// What happened besides packets, oldest first; one at a time.
    pub fn take_event(&mut self) -> Option<Event> {
        self.inner.take_event()
    }

    /// What was asked of the system and what it granted.
    #[must_use]
    pub fn settings(&self) -> Vec<Setting> {
        self.inner.settings()
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Puts a decorator around it: tracing, recording, injected faults, metrics.
    ///
    /// If the decorator panics, the provider is dropped with it.
    #[must_use]
    pub fn decorate(
        mut self,
        decorator: impl FnOnce(Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver>,
    ) -> Self {
        let inner = std::mem::replace(&mut self.inner, Box::new(Taken));
        self.inner = decorator(inner);
        self
    }

    /// Ends it: gives groups back and releases what it owns. Idempotent: a second close of a closed receiver succeeds, and
    /// one after a failed close answers the same failure without a native call.
    ///
    /// # Errors
    /// [`ErrorKind::Unquiesced`] and others if something could not be proven quiet; it is then in the quarantine.
    pub fn close(&mut self) -> Result<()> {
        match (&self.state, &self.failure) {
            (State::Closed, _) => return Ok(()),
            (State::Unquiesced, Some(failure)) => return Err(failure.clone()),
            _ => {}
        }
        // This stands if the provider's close panics: nothing is proven then, and nobody may ask the native side again.
        self.state = State::Unquiesced;
        let failure = Error::new(ErrorKind::Unquiesced, "close")
            .with_provider(self.provider.as_str())
            .with_detail("the provider panicked in its close");
        self.failure = Some(failure);
        match self.inner.close() {
            Ok(()) => {
                self.state = State::Closed;
                self.failure = None;
                Ok(())
            }
            Err(error) => {
                let error = error.with_provider(self.provider.as_str());
                self.failure = Some(error.clone());
                Err(error)
            }
        }
    }

    #[cold]
    fn closed(&self, operation: &'static str) -> Error {
        let error = Error::new(ErrorKind::Closed, operation).with_provider(self.provider.as_str());
        match &self.failure {
            Some(failure) => error.with_detail(format!("its close failed: {failure}")),
            None => error,
        }
    }
}

impl Drop for Receiver {
    /// Closes an open receiver and logs once: nobody is left to ask. A provider that panics in its close doesn't take the
    /// program with it.
    fn drop(&mut self) {
        if self.state != State::Open {
            return;
        }
        let closed = catch_unwind(AssertUnwindSafe(|| self.close()));
        // After a panic `close` has left the failure that says so.
        let failure = match closed {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(_) => self.failure.take(),
        };
        let provider = &self.provider;
        match failure {
            None => tracing::debug!(%provider, "receiver dropped without close"),
            Some(error) => {
                tracing::warn!(%provider, %error, "receiver dropped without close, and its close failed");
            }
        }
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("provider", &self.provider)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Opens through a factory's receiver side; the registry has found it by name.
pub(crate) fn open(
    factory: &dyn ReceiverFactory,
    description: &Description,
    config: &ReceiverConfig,
    context: &OpenContext<'_>,
) -> Result<Receiver> {
    const OPERATION: &str = "open receiver";
    let mut faults = ConfigFaults::new();
    config.check(&mut faults);
    factory.validate(config, &mut faults);
    if !faults.is_empty() {
        return Err(Error::new(ErrorKind::Invalid(faults), OPERATION));
    }
    for (capability, field) in required_capabilities(config) {
        if !description.capabilities.has(capability) {
            let claimed: Vec<_> = description
                .capabilities
                .iter()
                .map(|one| one.name())
                .collect();
            return Err(Error::new(ErrorKind::Capability, OPERATION)
                .with_object(capability.name())
                .with_detail(format!(
                    "field {field} asks for it; claimed: {}",
                    claimed.join(", ")
                ))
                .with_remedy(
                    "ask for something else in this field, or open another provider by name",
                ));
        }
    }
    Ok(Receiver {
        inner: factory.open(config, context)?,
        provider: context.name().to_owned(),
        state: State::Open,
        failure: None,
    })
}

/// Stands in for the inner receiver while a decorator is put around it, and stays if the decorator panics.
struct Taken;

impl PacketReceiver for Taken {
    fn poll(&mut self) -> Result<Batch<'_>> {
        Err(Error::new(ErrorKind::Closed, "poll").with_detail("the decorator panicked"))
    }

    fn wait(&mut self, _: Option<Duration>) -> Result<Readiness> {
        Err(Error::new(ErrorKind::Closed, "wait").with_detail("the decorator panicked"))
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
