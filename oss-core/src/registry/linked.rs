//! The read-only list of the provider crates that are linked into the program.
//!
//! Promises: being on the list does nothing. Only [`Registry::register_linked`](super::Registry::register_linked) makes a
//! factory out of an entry, and only for the name that it is given. Does not do: noticing by itself that a linker dropped a
//! crate that nothing refers to. That can't be seen from inside; [`Registry::expect_linked`](super::Registry::expect_linked) asks
//! for names and tells which are missing.

use std::sync::Arc;

use super::description::{Kind, Origin};
use super::factory::Factory;

/// An entry of the list. Provider crates submit theirs with [`submit_factory!`](crate::submit_factory).
pub struct LinkedFactory {
    /// The name of the factory that `make` makes.
    pub name: &'static str,
    /// What it opens.
    pub kinds: &'static [Kind],
    /// The crate that submitted it.
    pub origin: Origin,
    /// Makes the factory; it must not touch the host.
    pub make: fn() -> Arc<dyn Factory>,
}

inventory::collect!(LinkedFactory);

/// Every linked entry, ordered by name and then by crate, so that listings don't depend on the linker.
#[must_use]
pub fn linked() -> Vec<&'static LinkedFactory> {
    let mut all: Vec<_> = inventory::iter::<LinkedFactory>.into_iter().collect();
    all.sort_by_key(|entry| (entry.name, entry.origin.to_string()));
    all
}

/// Puts a factory of the calling crate on the list of linked factories.
///
/// ```
/// # use std::sync::Arc;
/// # use lockgate::registry::{Description, Factory, Kind};
/// # struct Mine(Description);
/// # impl Factory for Mine { fn description(&self) -> &Description { &self.0 } }
/// # impl Mine { fn new() -> Self { unreachable!() } }
/// lockgate::submit_factory!("mine", &[Kind::Receiver], || Arc::new(Mine::new()));
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! submit_factory {
    ($name:expr, $kinds:expr, $make:expr $(,)?) => {
        $crate::registry::__inventory::submit! {
            $crate::registry::LinkedFactory {
                name: $name,
                kinds: $kinds,
                origin: $crate::linked_origin!(),
                make: $make,
            }
        }
    };
}
