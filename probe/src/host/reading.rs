//! A value that was read, or the reason why it could not be.

use std::fs;

use serde::Serialize;

/// A value, or why there is none. In JSON: `{"value": …}` or `{"unreadable": "reason"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reading<T> {
    /// What was read.
    Value(T),
    /// Why it could not be read.
    Unreadable(String),
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub(crate) fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::Unreadable(_) => None,
        }
    }

    /// Goes on with the value.
    pub(crate) fn and_then<U>(self, next: impl FnOnce(T) -> Reading<U>) -> Reading<U> {
        match self {
            Self::Value(value) => next(value),
            Self::Unreadable(reason) => Reading::Unreadable(reason),
        }
    }
}

/// The whole text of a file of the kernel.
pub(crate) fn file(path: &str) -> Reading<String> {
    match fs::read_to_string(path) {
        Ok(text) => Reading::Value(text),
        Err(error) => Reading::Unreadable(format!("{path}: {error}")),
    }
}

/// A file that holds one number.
pub(crate) fn number(path: &str) -> Reading<u64> {
    file(path).and_then(|text| match text.trim().parse() {
        Ok(number) => Reading::Value(number),
        Err(_) => Reading::Unreadable(format!("{path}: {:?} is not a number", text.trim())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_unreadable_with_path_and_reason() {
        let Reading::Unreadable(reason) = number("/proc/no-such-file") else {
            panic!("it was read");
        };
        assert!(
            reason.contains("/proc/no-such-file: No such file"),
            "{reason}"
        );
        let json = serde_json::to_string(&Reading::Value(3)).unwrap();
        assert_eq!(json, r#"{"value":3}"#);
    }

    #[test]
    fn a_file_without_a_number_is_unreadable_not_zero() {
        assert!(
            matches!(number("/proc/version"), Reading::Unreadable(reason) if reason.contains("not a number"))
        );
    }
}
