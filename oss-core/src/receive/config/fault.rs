//! What is wrong with a configuration: every fault, each with field, value and what is allowed.

use std::fmt;

use serde::Serialize;

/// One value that is not allowed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigFault {
    /// The field, as a path: `groups[1].port`.
    pub field: String,
    /// The value, as text.
    pub value: String,
    /// What is wrong with it.
    pub problem: String,
    /// What is allowed.
    pub allowed: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            value,
            problem,
            allowed,
        } = self;
        write!(f, "{field}: value {value} {problem}; allowed: {allowed}")
    }
}

/// Every fault of a configuration, in the order of its fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ConfigFaults {
    list: Vec<ConfigFault>,
}

impl ConfigFaults {
    /// No faults yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one.
    pub fn push(
        &mut self,
        field: impl Into<String>,
        value: impl fmt::Display,
        problem: impl Into<String>,
        allowed: impl Into<String>,
    ) {
        self.list.push(ConfigFault {
            field: field.into(),
            value: value.to_string(),
            problem: problem.into(),
            allowed: allowed.into(),
        });
    }

    /// The faults.
    #[must_use]
    pub fn list(&self) -> &[ConfigFault] {
        &self.list
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

impl fmt::Display for ConfigFaults {
    /// A head, then a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.list.len() {
            1 => f.write_str("1 fault in the configuration")?,
            count => write!(f, "{count} faults in the configuration")?,
        }
        for fault in &self.list {
            write!(f, "\n  {fault}")?;
        }
        Ok(())
    }
}
