//! Reads licence expressions as crates write them: SPDX identifiers with `AND`, `OR`, `WITH` and parentheses.
//!
//! Promises: an expression that does not parse is an error, not an allowed one; the old form `MIT/Apache-2.0` is read as
//! `OR`. Does not do: know which identifiers exist; the allow-list does.

use std::collections::BTreeSet;

/// A licence expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expression {
    All(Vec<Expression>),
    Any(Vec<Expression>),
    /// An identifier, with its exception if it has one: `Apache-2.0 WITH LLVM-exception`.
    Licence(String),
}

impl Expression {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let spaced = text
            .replace('(', " ( ")
            .replace(')', " ) ")
            .replace('/', " OR ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut parser = Parser { words: &words };
        let expression = parser.any()?;
        match parser.words {
            [] => Ok(expression),
            [word, ..] => Err(format!("`{word}` is not expected in `{text}`")),
        }
    }

    /// Whether the licences in `allowed` suffice.
    pub(crate) fn is_allowed(&self, allowed: &BTreeSet<&str>) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.is_allowed(allowed)),
            Self::Any(parts) => parts.iter().any(|part| part.is_allowed(allowed)),
            Self::Licence(name) => allowed.contains(name.as_str()),
        }
    }

    /// Every licence that the expression names.
    pub(crate) fn names(&self) -> Vec<&str> {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().flat_map(Self::names).collect(),
            Self::Licence(name) => vec![name],
        }
    }
}

/// `AND` binds more tightly than `OR`.
struct Parser<'a> {
    words: &'a [&'a str],
}

impl Parser<'_> {
    fn any(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.all()?];
        while self.take("OR") {
            parts.push(self.all()?);
        }
        Ok(one_or(parts, Expression::Any))
    }

    fn all(&mut self) -> Result<Expression, String> {
        let mut parts = vec![self.licence()?];
        while self.take("AND") {
            parts.push(self.licence()?);
        }
        Ok(one_or(parts, Expression::All))
    }

    fn licence(&mut self) -> Result<Expression, String> {
        if self.take("(") {
            let inner = self.any()?;
            return if self.take(")") {
                Ok(inner)
            } else {
                Err("a parenthesis is not closed".to_owned())
            };
        }
        let mut name = self.identifier()?;
        if self.take("WITH") {
            name = format!("{name} WITH {}", self.identifier()?);
        }
        Ok(Expression::Licence(name))
    }

    fn identifier(&mut self) -> Result<String, String> {
        match self.words {
            [word, ..] if !matches!(*word, "AND" | "OR" | "WITH" | "(" | ")") => {
                self.words = &self.words[1..];
                Ok((*word).to_owned())
            }
            [word, ..] => Err(format!("`{word}` stands where a licence is expected")),
            [] => Err("a licence is missing at the end".to_owned()),
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.words.first() == Some(&word);
        if found {
            self.words = &self.words[1..];
        }
        found
    }
}

fn one_or(mut parts: Vec<Expression>, many: fn(Vec<Expression>) -> Expression) -> Expression {
    if parts.len() == 1 {
        parts.remove(0)
    } else {
        many(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, allowed: &[&str], expected: bool) {
        let allowed = allowed.iter().copied().collect();
        assert_eq!(
            Expression::parse(expression).unwrap().is_allowed(&allowed),
            expected,
            "{expression}"
        );
    }

    #[test]
    fn one_of_a_choice_suffices_and_all_of_a_conjunction_are_needed() {
        check("MIT OR GPL-3.0", &["MIT"], true);
        check("MIT AND GPL-3.0", &["MIT"], false);
        check("MIT AND GPL-3.0", &["GPL-3.0", "MIT"], true);
        check("MIT/Apache-2.0", &["Apache-2.0"], true);
        check("GPL-3.0", &["MIT"], false);
    }

    #[test]
    fn conjunctions_bind_more_tightly_and_parentheses_override() {
        check("MIT OR Apache-2.0 AND Unicode-3.0", &["MIT"], true);
        check("(MIT OR Apache-2.0) AND Unicode-3.0", &["MIT"], false);
        check(
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            &["MIT", "Unicode-3.0"],
            true,
        );
    }

    #[test]
    fn an_exception_makes_another_licence() {
        check("Apache-2.0 WITH LLVM-exception", &["Apache-2.0"], false);
        check(
            "Apache-2.0 WITH LLVM-exception",
            &["Apache-2.0 WITH LLVM-exception"],
            true,
        );
    }

    #[test]
    fn what_does_not_parse_is_an_error() {
        for text in [
            "",
            "MIT OR",
            "OR MIT",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "MIT WITH",
            "()",
        ] {
            assert!(Expression::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn every_name_is_listed() {
        let expression = Expression::parse("(MIT OR Apache-2.0) AND Unicode-3.0").unwrap();
        assert_eq!(expression.names(), ["MIT", "Apache-2.0", "Unicode-3.0"]);
    }
}
