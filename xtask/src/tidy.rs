//! `cargo xtask tidy`: the rules of this workspace that no compiler checks.
//!
//! Each rule is a function from the [`Tree`] to its findings, with a test that shows it failing on a bad input.
//! Promises: the real tree passes before anything is merged, as a test of this crate holds; a finding names file, line
//! and what to do. Does not do: change files, or repeat what rustc, rustfmt and clippy check.

use std::fmt;
use std::io::Write;

use crate::Verdict;
use crate::context::Context;
use crate::error::{Error, Result};

mod docs;
mod invariants;
mod manifests;
mod rust;
mod text;
mod tree;

use tree::Tree;

/// A fault, with its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    /// Counted from 1; 0 stands for the whole file.
    line: usize,
    text: String,
}

impl Finding {
    fn new(path: &str, line: usize, text: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            text: text.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.text),
            line => write!(f, "{}:{line}: {}", self.path, self.text),
        }
    }
}

/// One rule.
struct Rule {
    name: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        name: "heads",
        check: rust::heads,
    },
    Rule {
        name: "unsafe only in sys.rs and ffi.rs",
        check: rust::unsafe_places,
    },
    Rule {
        name: "safe crates",
        check: rust::safe_crates,
    },
    Rule {
        name: "lengths",
        check: text::lengths,
    },
    Rule {
        name: "white space",
        check: text::white_space,
    },
    Rule {
        name: "notes to self",
        check: text::notes_to_self,
    },
    Rule {
        name: "places and numbers that mean nothing to others",
        check: text::private_references,
    },
    Rule {
        name: "shell scripts",
        check: text::shell_scripts,
    },
    Rule {
        name: "links",
        check: docs::links,
    },
    Rule {
        name: "decisions",
        check: docs::decisions,
    },
    Rule {
        name: "invariants",
        check: invariants::guarded,
    },
    Rule {
        name: "members",
        check: manifests::members,
    },
    Rule {
        name: "dependencies declared once",
        check: manifests::dependencies,
    },
    Rule {
        name: "minimum Rust version stated once",
        check: manifests::rust_version,
    },
    Rule {
        name: "cargo configuration",
        check: manifests::cargo_configuration,
    },
];

pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<Verdict> {
    if !arguments.is_empty() {
        return Err(Error::usage("usage: cargo xtask tidy"));
    }
    let mut out = std::io::stdout();
    let faults = check(context, &mut out)?;
    for fault in &faults {
        println!("{fault}");
    }
    println!("tidy: {} faults", faults.len());
    Ok(if faults.is_empty() {
        Verdict::Passed
    } else {
        Verdict::Failed
    })
}

/// Checks the checkout. What is worth knowing but no fault goes to `out`.
pub(crate) fn check(context: &Context, out: &mut dyn Write) -> Result<Vec<String>> {
    let tree = Tree::of_checkout(&context.root)?;
    let mut notes = vec![format!("{} files", tree.len())];
    notes.extend(rust::list_of_unsafe_files(&tree));
    notes.extend(text::long_files(&tree));
    notes.extend(invariants::not_yet_guarded(&tree));
    for note in notes {
        writeln!(out, "note: {note}")
            .map_err(|error| Error::new("write the notes of tidy", error))?;
    }
    Ok(findings(&tree))
}

fn findings(tree: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    for rule in RULES {
        let mut found = (rule.check)(tree);
        found.sort();
        lines.extend(
            found
                .iter()
                .map(|finding| format!("{finding} ({})", rule.name)),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_checkout_is_tidy() {
        let faults = check(&Context::of_this_checkout().unwrap(), &mut std::io::sink()).unwrap();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn an_empty_tree_is_not_tidy() {
        // A check that reads files which are gone must not pass for want of them.
        let faults = findings(&Tree::of(&[]));
        for rule in ["(invariants)", "(members)", "(decisions)", "(safe crates)"] {
            assert!(
                faults.iter().any(|fault| fault.ends_with(rule)),
                "{rule}: {faults:?}"
            );
        }
    }

    #[test]
    fn an_argument_is_a_usage_error() {
        assert!(
            run(&Context::of_this_checkout().unwrap(), &["x".to_owned()])
                .unwrap_err()
                .is_usage()
        );
    }
}
