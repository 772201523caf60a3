//! Reading configurations from TOML and JSON text.
//!
//! Promises: an error names the line and column and what was expected; nothing is guessed and no unknown field is skipped.

use serde::de::DeserializeOwned;

use super::table::Table;
use super::{ReceiverConfig, ReceiverSpec};
use crate::error::{Error, ErrorKind, Result};

impl ReceiverConfig {
    /// Reads a configuration, without a provider, from JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line, column and what was expected.
    pub fn from_json(text: &str) -> Result<Self> {
        json("read receiver configuration", text)
    }

    /// Reads a configuration, without a provider, from TOML.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line, column and what was expected.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self> {
        toml("read receiver configuration", text)
    }
}

impl ReceiverSpec {
    /// Reads a provider's name and a configuration from JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line, column and what was expected.
    pub fn from_json(text: &str) -> Result<Self> {
        json("read receiver specification", text)
    }

    /// Reads a provider's name and a configuration from TOML.
    ///
    /// # Errors
    /// [`ErrorKind::Syntax`] with line, column and what was expected.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str) -> Result<Self> {
        toml("read receiver specification", text)
    }
}

fn json<T: DeserializeOwned>(operation: &'static str, text: &str) -> Result<T> {
    let read = serde_json::from_str::<Table<T>>(text);
    read.map(|Table(value)| value).map_err(|error| {
        Error::new(ErrorKind::Syntax, operation)
            .with_detail(error.to_string())
            .with_source(error)
    })
}

#[cfg(feature = "toml")]
fn toml<T: DeserializeOwned>(operation: &'static str, text: &str) -> Result<T> {
    let read = ::toml::from_str::<Table<T>>(text);
    read.map(|Table(value)| value).map_err(|error| {
        let place = error.span().map(|span| {
            let before = text.get(..span.start).unwrap_or(text);
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|one| *one != '\n').count() + 1;
            format!(" at line {line} column {column}")
        });
        let detail = format!("{}{}", error.message(), place.unwrap_or_default());
        Error::new(ErrorKind::Syntax, operation)
            .with_detail(detail)
            .with_source(error)
    })
}
