//! The companion of the open crates: the native providers that need a vendor's or a system's library.
//!
//! Promises: builds, and tells why, without any such library; in such a build every provider of this crate is known by name, so
//! that a refusal can say what is missing. With the feature `ibverbs` the factory of that name makes the real set-up, and the
//! module `ibverbs` gives the native owners. Does not do yet: receiving over `ibverbs`; an open ends with the step that fails, or
//! after the set-up.
//!
//! # Purpose
//! An application that depends on this crate registers all of it with one call, in every build. What a build carries and what it
//! leaves out is then told by the registry, not by a compile error.
//!
//! # Quick start
//! ```
//! use lockgate::registry::Registry;
//! use lockgate_accel::AcceleratorProvider;
//!
//! let mut registry = Registry::new();
//! AcceleratorProvider::register_into(&mut registry)?;
//! let config = lockgate::receive::ReceiverConfig::multicast("lo", ["239.7.7.7:47000".parse()?]);
//! // Without the feature the refusal names it; with it, a host without a device is told which step failed.
//! let error = registry.open_receiver("ibverbs", &config).unwrap_err();
//! if !cfg!(feature = "ibverbs") {
//!     assert!(error.to_string().contains("known but not built in"), "{error}");
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//! | feature | default | gives |
//! | --- | --- | --- |
//! | `ibverbs` | no | the `ibverbs` factory and the owners over libibverbs (`libibverbs-dev` to build, `libibverbs.so.1` to run) |
//!
//! # Errors
//! [`AcceleratorProvider::register_into`] hands a factory back whose name is taken.

#![cfg_attr(not(feature = "ibverbs"), forbid(unsafe_code))]

#[cfg(feature = "ibverbs")]
pub mod ibverbs;

use std::borrow::Cow;
use std::sync::Arc;

use lockgate::registry::{Factory, Kind, RegisterError, Registry, Unavailable};

/// The name that opens the native provider.
pub const IBVERBS: &str = "ibverbs";

/// The providers of this crate.
#[derive(Clone, Copy, Debug)]
pub struct AcceleratorProvider;

impl AcceleratorProvider {
    /// A factory for each provider that this build carries. None in a build without the native library.
    #[must_use]
    pub fn factories() -> Vec<Arc<dyn Factory>> {
        #[cfg(feature = "ibverbs")]
        return vec![ibverbs::factory()];
        #[cfg(not(feature = "ibverbs"))]
        Vec::new()
    }

    /// Why each provider that this build does not carry is not in it.
    #[must_use]
    pub fn absent() -> Vec<(&'static str, &'static [Kind], Unavailable)> {
        if cfg!(feature = "ibverbs") {
            return Vec::new();
        }
        vec![(
            IBVERBS,
            &[Kind::Memory, Kind::Receiver],
            Unavailable::NotBuiltIn {
                package: Cow::Borrowed(env!("CARGO_PKG_NAME")),
                feature: Cow::Borrowed(IBVERBS),
            },
        )]
    }

    /// Registers what this build carries, and declares the rest as known with its reason. Opens, loads and probes nothing.
    ///
    /// # Errors
    /// The first factory that the registry does not take in; those before it stay registered.
    pub fn register_into(registry: &mut Registry) -> Result<(), Box<RegisterError>> {
        for factory in Self::factories() {
            registry.register(factory)?;
        }
        for (name, kinds, reason) in Self::absent() {
            registry.declare_known(name, kinds, reason);
        }
        Ok(())
    }
}

#[cfg(not(feature = "ibverbs"))]
#[cfg(test)]
mod tests {
    use lockgate::registry::{CandidateStatus, RefusalCause};

    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::new();
        AcceleratorProvider::register_into(&mut registry).unwrap();
        registry
    }

    #[test]
    fn every_provider_is_either_registered_or_known_with_a_reason() {
        let candidates = registry().candidates();
        let one = candidates
            .iter()
            .find(|one| one.name == IBVERBS)
            .expect("ibverbs is listed");
        assert!(
            matches!(&one.status, CandidateStatus::Known { reason } if reason.remedy().is_some()),
            "{one}"
        );
        assert_eq!(one.kinds, [Kind::Memory, Kind::Receiver]);
    }

    #[test]
    fn an_open_is_refused_with_the_feature_to_turn_on() {
        let error = registry()
            .open_receiver(IBVERBS, &Default::default())
            .unwrap_err();
        let refusal = error.refusal().expect("refused");
        assert!(matches!(
            &refusal.cause,
            RefusalCause::Unavailable { name, .. } if name == IBVERBS
        ));
        assert_eq!(
            refusal.remedy,
            "rebuild with feature ibverbs of package lockgate-accel"
        );
    }
}
