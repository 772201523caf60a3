//! The trait of what a registry holds.
//!
//! Promises: a factory describes itself without touching the host. Opening is possible only through a registry, because only a
//! registry can make the [`OpenContext`] that opening takes. Does not do: choosing between factories.

use std::sync::Arc;

use crate::custody::Domain;

use super::description::{Availability, Description, Inspection};

/// A value that describes one provider and can open it.
///
/// Made by hand, by a provider crate's constructor, and handed to [`Registry::register`](super::Registry::register).
/// Every method but [`inspect`](Self::inspect) and the kinds' own `open` must return without a system call.
pub trait Factory: Send + Sync {
    /// Name, version, kinds, capabilities and origin. Static: the same answer for the life of the factory.
    fn description(&self) -> &Description;

    /// Whether this build on this platform could open anything.
    fn availability(&self) -> Availability {
        Availability::Available
    }

    /// Looks at the host. Only called when the application asks for it.
    ///
    /// May open, load and query what it needs for the look, and closes it again.
    fn inspect(&self) -> Inspection {
        match self.availability() {
            Availability::Available => Inspection::usable(vec!["nothing to look at".to_owned()]),
            Availability::Unavailable { reason } => {
                Inspection::unusable(vec![reason.to_string()], reason.remedy())
            }
        }
    }

    /// The receiver side, for factories whose kinds name it.
    #[cfg(feature = "receive")]
    fn receiver(&self) -> Option<&dyn crate::receive::ReceiverFactory> {
        None
    }
}

/// What an open is done in: only a registry makes one, so that nothing opens without a name.
///
/// A factory can be asked to open only by who has been handed a context:
///
/// ```
/// # #[cfg(feature = "receive")] mod receive {
/// # use lockgate::receive::{PacketReceiver, ReceiverConfig, ReceiverFactory};
/// # use lockgate::registry::OpenContext;
/// fn pass_on(
///     inner: &dyn ReceiverFactory,
///     config: &ReceiverConfig,
///     context: &OpenContext<'_>,
/// ) -> lockgate::Result<Box<dyn PacketReceiver>> {
///     inner.open(config, context)
/// }
/// # }
/// ```
///
/// Nobody else can make one. The fields are private, and so is the constructor:
///
/// ```compile_fail
/// # use std::sync::Arc;
/// # use lockgate::custody::Domain;
/// # use lockgate::receive::{PacketReceiver, ReceiverConfig, ReceiverFactory};
/// # use lockgate::registry::OpenContext;
/// fn bypass(
///     inner: &dyn ReceiverFactory,
///     config: &ReceiverConfig,
///     domain: &Arc<Domain>,
/// ) -> lockgate::Result<Box<dyn PacketReceiver>> {
///     inner.open(config, &OpenContext { name: "udp", domain })
/// }
/// ```
///
/// ```compile_fail
/// # use std::sync::Arc;
/// # use lockgate::custody::Domain;
/// # use lockgate::receive::{PacketReceiver, ReceiverConfig, ReceiverFactory};
/// # use lockgate::registry::OpenContext;
/// fn bypass(
///     inner: &dyn ReceiverFactory,
///     config: &ReceiverConfig,
///     domain: &Arc<Domain>,
/// ) -> lockgate::Result<Box<dyn PacketReceiver>> {
///     inner.open(config, &OpenContext::new("udp", domain))
/// }
/// ```
#[derive(Debug)]
pub struct OpenContext<'a> {
    name: &'a str,
    domain: &'a Arc<Domain>,
}

impl<'a> OpenContext<'a> {
    #[cfg(feature = "receive")]
    pub(super) fn new(name: &'a str, domain: &'a Arc<Domain>) -> Self {
        Self { name, domain }
    }

    /// The domain that owns what is opened: its budget is charged, its quarantine keeps what can't be proven quiet.
    #[must_use]
    pub fn domain(&self) -> &'a Arc<Domain> {
        self.domain
    }

    /// The name that was asked for.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }
}
