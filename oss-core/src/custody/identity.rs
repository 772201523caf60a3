//! Which native object is meant, and what still proves it alive.
//!
//! Promises: a kind, a name and the raw numbers by which the device, the kernel and the library know the object.
//! Does not do: addressing. Nothing is looked up by an identity; it is what a person compares with other tools.

use std::borrow::Cow;
use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

/// The native identity of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    kind: Cow<'static, str>,
    name: Cow<'static, str>,
    numbers: Vec<(&'static str, u64)>,
}

impl Identity {
    /// An object of this kind: `QP`, `PD`, `CQ lane`, `MR`, `flow`, `stream`, `mapping`.
    #[must_use]
    pub fn new(kind: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind: kind.into(),
            name: Cow::Borrowed(""),
            numbers: Vec::new(),
        }
    }

    /// Adds the name of the device or of the object.
    #[must_use]
    pub fn named(mut self, name: impl Into<Cow<'static, str>>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a raw number, such as a handle, a queue pair number or an address.
    #[must_use]
    pub fn with(mut self, what: &'static str, number: u64) -> Self {
        self.numbers.push((what, number));
        self
    }

    /// The kind of the object.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The name of the device or the object, or the empty text.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A raw number by what it is.
    #[must_use]
    pub fn number(&self, what: &str) -> Option<u64> {
        self.numbers
            .iter()
            .find(|(name, _)| *name == what)
            .map(|(_, number)| *number)
    }
}

impl fmt::Display for Identity {
    /// `QP rxe0 (handle 3, qpn 17)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        let mut before = " (";
        for (what, number) in &self.numbers {
            write!(f, "{before}{what} {number}")?;
            before = ", ";
        }
        if !self.numbers.is_empty() {
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl Serialize for Identity {
    /// A flat map: `kind`, `name` where there is one, and each number under what it is.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("kind", &self.kind)?;
        if !self.name.is_empty() {
            map.serialize_entry("name", &self.name)?;
        }
        for (what, number) in &self.numbers {
            map.serialize_entry(what, number)?;
        }
        map.end()
    }
}

/// Whether a live native query still finds an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Alive {
    /// The query says that the object is gone.
    No,
    /// There is no query, or its answer proves nothing.
    Unknown,
    /// The query answers as only a live object can.
    Yes,
}

/// What a live native query said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// The verdict.
    pub alive: Alive,
    /// The query and its answer, for a person.
    pub answer: Cow<'static, str>,
}

impl Evidence {
    /// An answer of a native query.
    #[must_use]
    pub fn new(alive: Alive, answer: impl Into<Cow<'static, str>>) -> Self {
        Self {
            alive,
            answer: answer.into(),
        }
    }

    /// The provider has no query for this kind.
    #[must_use]
    pub fn none() -> Self {
        Self::new(Alive::Unknown, "no native query for this kind")
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alive = match self.alive {
            Alive::No => "gone",
            Alive::Unknown => "unknown",
            Alive::Yes => "alive",
        };
        write!(f, "{alive}, {}", self.answer)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_carry_every_number() {
        let qp = Identity::new("QP")
            .named("rxe0")
            .with("handle", 3)
            .with("qpn", 17);
        assert_eq!(qp.to_string(), "QP rxe0 (handle 3, qpn 17)");
        assert_eq!(
            serde_json::to_string(&qp).expect("serialises"),
            r#"{"kind":"QP","name":"rxe0","handle":3,"qpn":17}"#
        );
        assert_eq!((qp.number("qpn"), qp.number("lkey")), (Some(17), None));
        assert_eq!(Identity::new("lane").to_string(), "lane");
    }
}
