//! Rules on every text file: white space, length, and words that mean nothing to a reader elsewhere.

use super::Finding;
use super::tree::{Tree, extension, is_recorded, name};
use crate::lexer::has_word;

/// From here on a file should have a reason to be one.
const LONG: usize = 800;
/// From here on it is split.
const TOO_LONG: usize = 1200;

const SOURCES: &[&str] = &["rs", "c", "h", "sh"];

/// No tabs where spaces are the rule, no trailing space, Unix line ends, one line end at the end.
pub(super) fn white_space(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !is_recorded(path)) {
        // C is laid out as in the kernel, with tabs.
        let tabs_allowed =
            matches!(extension(path), "c" | "h" | "map" | "mk") || name(path) == "Makefile";
        for (index, line) in text.split('\n').enumerate() {
            if line.contains('\t') && !tabs_allowed {
                found.push(Finding::new(path, index + 1, "has a tab"));
            }
            if line.ends_with([' ', '\t', '\r']) {
                found.push(Finding::new(path, index + 1, "ends with white space"));
            }
        }
        if !text.is_empty() && (!text.ends_with('\n') || text.ends_with("\n\n")) {
            found.push(Finding::new(
                path,
                text.lines().count(),
                "must end with exactly one line end",
            ));
        }
    }
    found
}

/// No source longer than a reader can hold.
pub(super) fn lengths(tree: &Tree) -> Vec<Finding> {
    sources_from(tree, TOO_LONG + 1)
        .map(|(path, lines)| {
            Finding::new(
                path,
                0,
                format!("has {lines} lines; split it, {TOO_LONG} are the limit"),
            )
        })
        .collect()
}

/// The sources that should have a reason to be as long as they are.
pub(super) fn long_files(tree: &Tree) -> Vec<String> {
    sources_from(tree, LONG + 1)
        .map(|(path, lines)| format!("{path} has {lines} lines; ask whether it is one file"))
        .collect()
}

fn sources_from(tree: &Tree, limit: usize) -> impl Iterator<Item = (&str, usize)> {
    tree.with_extension(SOURCES)
        .filter(|(_, text)| !text.lines().take(5).any(|line| line.contains("@generated")))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(move |(_, lines)| *lines >= limit)
}

/// What is left to do belongs into an issue, where somebody finds it.
pub(super) fn notes_to_self(tree: &Tree) -> Vec<Finding> {
    // Put together here, so that this file passes its own rule.
    let words = [concat!("TO", "DO"), concat!("FIX", "ME")];
    let text = |path: &str, number, line: &str| {
        words
            .iter()
            .find(|word| has_word(line, word))
            .map(|word| Finding::new(path, number, format!("`{word}`: do it, or file it")))
    };
    each_line(tree, text)
}

/// Nothing that only means something on one machine or to one group of people.
pub(super) fn private_references(tree: &Tree) -> Vec<Finding> {
    let folders = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("/Us", "ers/"),
    ];
    each_line(tree, |path, number, line| {
        if let Some(folder) = folders.iter().find(|folder| is_absolute_in(line, folder)) {
            return Some(Finding::new(
                path,
                number,
                format!("names a folder of one machine, `{folder}`"),
            ));
        }
        numbered_issue(line).then(|| {
            Finding::new(
                path,
                number,
                "names an issue by number; say what it is about",
            )
        })
    })
}

/// Whether `folder` stands in `line` as the start of a path, not in the middle of one.
fn is_absolute_in(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        !line[..at]
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || "._-/}$".contains(c))
    })
}

/// The word, in any case, with a number of one or two digits behind it.
fn numbered_issue(line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    line.match_indices(concat!("iss", "ue ")).any(|(at, word)| {
        let digits = line[at + word.len()..]
            .trim_start_matches('#')
            .chars()
            .take_while(char::is_ascii_digit)
            .count();
        (1..=2).contains(&digits)
    })
}

/// A script stops at its first failure, or says why it must not.
pub(super) fn shell_scripts(tree: &Tree) -> Vec<Finding> {
    let scripts = tree.texts().filter(|(path, text)| {
        extension(path) == "sh"
            || text.starts_with("#!/")
                && text.lines().next().is_some_and(|line| line.ends_with("sh"))
    });
    scripts
        .filter(|(_, text)| {
            !text.lines().any(|line| {
                line == "set -euo pipefail" || line.starts_with("# No `set -euo pipefail`: ")
            })
        })
        .map(|(path, _)| {
            let rule = "must say `set -euo pipefail`, or \"# No `set -euo pipefail`: \" and why";
            Finding::new(path, 0, rule)
        })
        .collect()
}

fn each_line(tree: &Tree, check: impl Fn(&str, usize, &str) -> Option<Finding>) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| !is_recorded(path)) {
        found.extend(
            text.lines()
                .enumerate()
                .filter_map(|(index, line)| check(path, index + 1, line)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(found: Vec<Finding>) -> Vec<(String, usize)> {
        found
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect()
    }

    fn at(path: &str, line: usize) -> (String, usize) {
        (path.to_owned(), line)
    }

    #[test]
    fn bad_white_space_is_found() {
        let tree = Tree::of(&[
            ("a.rs", "x\n\ty\n"),
            ("b.md", "x \ny\n"),
            ("c.toml", "x\r\n"),
            ("d.rs", "x"),
            ("e.rs", "x\n\n"),
            ("good.c", "x\n\ty\n"),
            ("tests/fixtures/good.txt", "x \n\ty"),
            ("empty.rs", ""),
        ]);
        let expected = [
            at("a.rs", 2),
            at("b.md", 1),
            at("c.toml", 1),
            at("d.rs", 1),
            at("e.rs", 2),
        ];
        assert_eq!(places(white_space(&tree)), expected);
    }

    #[test]
    fn files_beyond_the_limit_are_found_and_long_ones_listed() {
        let (long, limit, beyond) = ("x\n".repeat(801), "x\n".repeat(1200), "x\n".repeat(1201));
        let generated = format!("//! @generated by a tool\n{beyond}");
        let tree = Tree::of(&[
            ("a.rs", &long),
            ("b.rs", &limit),
            ("c.rs", &beyond),
            ("d.rs", &generated),
            ("e.md", &beyond),
            ("f.rs", "x\n"),
        ]);
        assert_eq!(places(lengths(&tree)), [at("c.rs", 0)]);
        assert_eq!(long_files(&tree).len(), 3);
    }

    #[test]
    fn notes_to_self_are_found() {
        let text = concat!("// TO", "DO: later\n// FIX", "ME\n// to do, TO", "DOS\n");
        assert_eq!(
            places(notes_to_self(&Tree::of(&[("a.rs", text)]))),
            [at("a.rs", 1), at("a.rs", 2)]
        );
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        let text = concat!(
            "see /wo",
            "rk/x\n`/ro",
            "ot/.cargo`\nsrc/wo",
            "rk/x\n/ho",
            "me/me\n$HOME/ro",
            "ot/x\n"
        );
        let expected = [at("a.md", 1), at("a.md", 2), at("a.md", 4)];
        assert_eq!(
            places(private_references(&Tree::of(&[("a.md", text)]))),
            expected
        );
    }

    #[test]
    fn numbered_issues_are_found() {
        let text = concat!(
            "Iss",
            "ue 3\nissue",
            " #14\nrust-lang iss",
            "ue 12345\nan issue with 3\n"
        );
        let expected = [at("a.md", 1), at("a.md", 2)];
        assert_eq!(
            places(private_references(&Tree::of(&[("a.md", text)]))),
            expected
        );
    }

    #[test]
    fn scripts_that_go_on_after_a_failure_are_found() {
        let tree = Tree::of(&[
            ("a.sh", "echo\n"),
            ("b", "#!/usr/bin/env bash\nset -e\n"),
            ("good", "#!/bin/bash\nset -euo pipefail\n"),
            (
                "first.sh",
                "# No `set -euo pipefail`: the first process must not end\n",
            ),
            ("c.py", "#!/usr/bin/python3\n"),
        ]);
        assert_eq!(places(shell_scripts(&tree)), [at("a.sh", 0), at("b", 0)]);
    }
}
