//! Reads a structure from a table only.
//!
//! Promises: a list is an error. serde's derived code also takes a list for a structure and goes by the places of its items, which
//! would hold whoever writes one to the order of the fields. Does not do: anything else than serde does by itself.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};

/// A value that was read from a table.
pub(super) struct Table<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        only(deserializer).map(Self)
    }
}

/// For a field that is a structure.
pub(super) fn only<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    deserializer.deserialize_map(Form(PhantomData))
}

struct Form<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Form<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
