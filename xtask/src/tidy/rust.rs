//! Rules on Rust sources: their heads, and where `unsafe` may stand.

use super::Finding;
use super::tree::{Tree, name};
use crate::lexer::{Kind, lines_with_word, only};

/// Crates that have no `unsafe` at all, by their root files.
const SAFE_CRATES: &[&str] = &["probe/src/main.rs", "xtask/src/main.rs"];

/// Every file says first what it is for.
pub(super) fn heads(tree: &Tree) -> Vec<Finding> {
    let rust = tree
        .with_extension(&["rs"])
        .filter(|(_, text)| !has_head(text));
    let mut found: Vec<_> = rust
        .map(|(path, _)| Finding::new(path, 1, "open the file with `//!` and what it is for"))
        .collect();
    let c = tree
        .with_extension(&["c", "h"])
        .filter(|(_, text)| !text.starts_with("/*") && !text.starts_with("//"));
    found.extend(
        c.map(|(path, _)| Finding::new(path, 1, "open the file with a comment and what it is for")),
    );
    found
}

/// The first line is `//!` and more than that.
fn has_head(text: &str) -> bool {
    text.lines()
        .next()
        .and_then(|line| line.strip_prefix("//! "))
        .is_some_and(|words| !words.trim().is_empty())
}

/// `unsafe`, and the permission for it, stand only in `sys.rs` and `ffi.rs`.
pub(super) fn unsafe_places(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree
        .with_extension(&["rs"])
        .filter(|(path, _)| !may_be_unsafe(path))
    {
        let code = only(text, &[Kind::Code]);
        for line in lines_with_word(&code, "unsafe") {
            found.push(Finding::new(
                path,
                line,
                "move `unsafe` into a file named sys.rs or ffi.rs",
            ));
        }
        for line in lines_with_word(&code, "unsafe_code") {
            let permits = code
                .lines()
                .nth(line - 1)
                .is_some_and(|line| line.contains("allow") || line.contains("expect"));
            if permits {
                found.push(Finding::new(
                    path,
                    line,
                    "permit `unsafe_code` only in files named sys.rs or ffi.rs",
                ));
            }
        }
    }
    found
}

fn may_be_unsafe(path: &str) -> bool {
    matches!(name(path), "sys.rs" | "ffi.rs")
}

/// The files that may hold `unsafe`, for a reader to see at a glance.
pub(super) fn list_of_unsafe_files(tree: &Tree) -> Vec<String> {
    let files = tree
        .with_extension(&["rs"])
        .filter(|(path, _)| may_be_unsafe(path));
    files
        .map(|(path, text)| {
            let lines = lines_with_word(&only(text, &[Kind::Code]), "unsafe").len();
            format!("{path} may hold unsafe code and does on {lines} lines")
        })
        .collect()
}

/// The crates that promise to have no `unsafe` say so to the compiler.
pub(super) fn safe_crates(tree: &Tree) -> Vec<Finding> {
    let forbids = |path: &&&str| {
        let code = tree.text(path).map(|text| only(text, &[Kind::Code]));
        !code.is_some_and(|code| code.contains("#![forbid(unsafe_code)]"))
    };
    SAFE_CRATES
        .iter()
        .filter(forbids)
        .map(|path| Finding::new(path, 0, "this crate must state `#![forbid(unsafe_code)]`"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_head_is_found() {
        let tree = Tree::of(&[
            ("a.rs", "// a\n"),
            ("b.rs", "#![forbid(unsafe_code)]\n//! b\n"),
            ("c.rs", "//!\n//! c\n"),
            ("d.c", "#include <stdio.h>\n"),
            ("good.rs", "//! Good.\n"),
            ("good.h", "/* Good. */\n"),
            ("good.c", "// Good.\n"),
        ]);
        let paths: Vec<_> = heads(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(paths, ["a.rs", "b.rs", "c.rs", "d.c"]);
    }

    #[test]
    fn unsafe_outside_its_files_is_found_and_words_are_not() {
        let tree = Tree::of(&[
            (
                "a/src/x.rs",
                "//! unsafe\n#![deny(unsafe_code)]\n// unsafe\nlet x = \"unsafe\";\nunsafe { f() }\n",
            ),
            (
                "a/src/y.rs",
                "#![allow(unsafe_code)]\n#[expect(unsafe_code)]\n",
            ),
            ("a/src/sys.rs", "#![allow(unsafe_code)]\nunsafe { f() }\n"),
            ("a/ffi.rs", "unsafe extern \"C\" {}\n"),
        ]);
        let places: Vec<_> = unsafe_places(&tree)
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect();
        let expected = [("a/src/x.rs", 5), ("a/src/y.rs", 1), ("a/src/y.rs", 2)];
        assert_eq!(places, expected.map(|(path, line)| (path.to_owned(), line)));
        assert_eq!(list_of_unsafe_files(&tree).len(), 2);
    }

    #[test]
    fn a_safe_crate_that_does_not_say_so_is_found() {
        let good = "//! Good.\n#![forbid(unsafe_code)]\n";
        let tree = Tree::of(&[
            (
                "probe/src/main.rs",
                "//! Bad.\n// #![forbid(unsafe_code)]\n",
            ),
            ("xtask/src/main.rs", good),
        ]);
        let paths: Vec<_> = safe_crates(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(paths, ["probe/src/main.rs"]);
    }
}
