//! The table of settings that only one provider understands.
//!
//! Promises: a factory reads it with [`OptionReader`], which turns every unknown name and every value of another type or out of
//! its range into a fault, all at once, without a system call.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::fault::ConfigFaults;
use super::unique;

/// Settings by name, as they stood in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Options(Map<String, Value>);

impl<'de> Deserialize<'de> for Options {
    /// A table; a name that stands there twice, at any depth, is an error.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        unique::table(deserializer).map(Self)
    }
}

impl Options {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets one.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// The raw value of one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Reads them; see [`OptionReader`].
    #[must_use]
    pub fn reader(&self) -> OptionReader<'_> {
        OptionReader {
            options: self,
            known: Vec::new(),
            faults: ConfigFaults::new(),
        }
    }
}

/// Reads a table of options and gathers every fault in it.
///
/// ```
/// use lockgate::receive::{ConfigFaults, Options};
/// let mut options = Options::default();
/// options.set("gro", true);
/// options.set("recieve-buffer", 4096);
/// let mut reader = options.reader();
/// let gro = reader.flag("gro").unwrap_or(false);
/// let buffer = reader.integer("receive-buffer", 1..=1 << 30);
/// let mut faults = ConfigFaults::new();
/// reader.finish(&mut faults);
/// assert!(gro && buffer.is_none());
/// assert!(faults.to_string().contains("options.recieve-buffer: value 4096 is not known"));
/// ```
#[derive(Debug)]
pub struct OptionReader<'a> {
    options: &'a Options,
    known: Vec<&'static str>,
    faults: ConfigFaults,
}

impl<'a> OptionReader<'a> {
    /// A flag: `true` or `false`.
    pub fn flag(&mut self, name: &'static str) -> Option<bool> {
        let value = self.value(name)?;
        let flag = value.as_bool();
        if flag.is_none() {
            self.fault(name, value, "is not a flag", "true or false");
        }
        flag
    }

    /// A whole number within a range.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Option<u64> {
        let value = self.value(name)?;
        let allowed = format!("a whole number from {} to {}", range.start(), range.end());
        match value.as_u64() {
            Some(number) if range.contains(&number) => Some(number),
            Some(_) => {
                self.fault(name, value, "is out of range", &allowed);
                None
            }
            None => {
                self.fault(name, value, "is not a whole number", &allowed);
                None
            }
        }
    }

    /// One word of a list.
    pub fn word(&mut self, name: &'static str, words: &[&'static str]) -> Option<&'static str> {
        let value = self.value(name)?;
        let found = value
            .as_str()
            .and_then(|text| words.iter().copied().find(|word| *word == text));
        if found.is_none() {
            self.fault(name, value, "is not one of the words", &words.join(", "));
        }
        found
    }

    /// Any text.
    pub fn text(&mut self, name: &'static str) -> Option<&'a str> {
        let value = self.value(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.fault(name, value, "is not a text", "a text in quotes");
        }
        text
    }

    /// A value of any type that serde can read; `allowed` describes it.
    pub fn parsed<T: serde::de::DeserializeOwned>(
        &mut self,
        name: &'static str,
        allowed: &str,
    ) -> Option<T> {
        let value = self.value(name)?;
        match T::deserialize(value) {
            Ok(parsed) => Some(parsed),
            Err(error) => {
                self.fault(name, value, &format!("can't be read ({error})"), allowed);
                None
            }
        }
    }

    /// Adds a fault that the types above can't see.
    pub fn fault(&mut self, name: &str, value: &Value, problem: &str, allowed: &str) {
        self.faults
            .push(format!("options.{name}"), value, problem, allowed);
    }

    /// Ends the reading: every option that was not asked for is unknown.
    pub fn finish(mut self, faults: &mut ConfigFaults) {
        let allowed = if self.known.is_empty() {
            "this provider has no options".to_owned()
        } else {
            self.known.join(", ")
        };
        for (name, value) in &self.options.0 {
            if !self.known.contains(&name.as_str()) {
                self.faults
                    .push(format!("options.{name}"), value, "is not known", &allowed);
            }
        }
        for fault in self.faults.list() {
            faults.push(
                fault.field.clone(),
                &fault.value,
                fault.problem.clone(),
                fault.allowed.clone(),
            );
        }
    }

    fn value(&mut self, name: &'static str) -> Option<&'a Value> {
        self.known.push(name);
        self.options.0.get(name)
    }
}
