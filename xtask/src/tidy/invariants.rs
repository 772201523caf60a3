//! Reads the table of invariants in `docs/ARCHITECTURE.md` and holds it to the tests that it names.
//!
//! The last column of a row names what guards the invariant, each name in back ticks: `path/to/file.rs::test_name` for a
//! test function, `path/to/file` for a file that is a test by itself, such as a compile-fail case. A row may say
//! `not yet: ` and what is missing instead; tidy lists those rows on every run.
//! Does not do: judge whether the test shows what the row says.

use super::Finding;
use super::tree::Tree;
use crate::lexer::{Kind, only};

const PAGE: &str = "docs/ARCHITECTURE.md";
const NOT_YET: &str = "not yet: ";

struct Row<'a> {
    line: usize,
    number: &'a str,
    guard: &'a str,
}

/// The rows of the table whose first column is headed `#` and last `guarded by`.
fn rows(page: &str) -> Vec<Row<'_>> {
    let table = page
        .lines()
        .enumerate()
        .skip_while(|(_, line)| !is_heading(line))
        .skip(2);
    table
        .map_while(|(index, line)| {
            let cells = cells(line)?;
            Some(Row {
                line: index + 1,
                number: cells.first().copied()?,
                guard: cells.last().copied()?,
            })
        })
        .collect()
}

fn is_heading(line: &str) -> bool {
    cells(line)
        .is_some_and(|cells| cells.first() == Some(&"#") && cells.last() == Some(&"guarded by"))
}

fn cells(line: &str) -> Option<Vec<&str>> {
    Some(
        line.strip_prefix('|')?
            .strip_suffix('|')?
            .split('|')
            .map(str::trim)
            .collect(),
    )
}

/// Every invariant is numbered in order, and its guards exist.
pub(super) fn guarded(tree: &Tree) -> Vec<Finding> {
    let rows = tree.text(PAGE).map(rows).unwrap_or_default();
    if rows.is_empty() {
        return vec![Finding::new(
            PAGE,
            0,
            "has no table of invariants, headed `#` to `guarded by`",
        )];
    }
    let mut found = Vec::new();
    for (index, row) in rows.iter().enumerate() {
        if row.number != (index + 1).to_string() {
            found.push(Finding::new(
                PAGE,
                row.line,
                format!("is numbered `{}`, expected {}", row.number, index + 1),
            ));
        }
        if row
            .guard
            .strip_prefix(NOT_YET)
            .is_some_and(|missing| !missing.is_empty())
        {
            continue;
        }
        let guards: Vec<&str> = row.guard.split('`').skip(1).step_by(2).collect();
        if guards.is_empty() {
            found.push(Finding::new(
                PAGE,
                row.line,
                format!("name a guard in back ticks, or say `{NOT_YET}` and what is missing"),
            ));
        }
        found.extend(
            guards
                .iter()
                .filter_map(|guard| Some(Finding::new(PAGE, row.line, missing(tree, guard)?))),
        );
    }
    found
}

/// The invariants without a guard, for the notes.
pub(super) fn not_yet_guarded(tree: &Tree) -> Vec<String> {
    let rows = tree.text(PAGE).map(rows).unwrap_or_default();
    let open = rows.iter().filter(|row| row.guard.starts_with(NOT_YET));
    open.map(|row| format!("invariant {} has no test, {}", row.number, row.guard))
        .collect()
}

/// Why the guard is not one; `None` if it is.
fn missing(tree: &Tree, guard: &str) -> Option<String> {
    let Some((path, test)) = guard.split_once("::") else {
        return tree
            .text(guard)
            .is_none()
            .then(|| format!("there is no file {guard}"));
    };
    let Some(text) = tree.text(path) else {
        return Some(format!("there is no file {path}"));
    };
    let test = test.rsplit("::").next().unwrap_or(test);
    (!has_test(&only(text, &[Kind::Code]), test)).then(|| format!("{path} has no test `{test}`"))
}

/// Whether `code` has a function of that name with `#[test]` among the attributes above it.
fn has_test(code: &str, test: &str) -> bool {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let start = format!("fn {test}(");
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with(&start))
        .any(|(at, _)| {
            // Attributes, comments blanked out by the lexer, and the lines of an attribute that spans several.
            lines[..at]
                .iter()
                .rev()
                .take_while(|line| !line.ends_with(['}', '{', ';']))
                .any(|line| *line == "#[test]")
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "//! T.\n#[test]\n#[should_panic(expected = \"x\")]\nfn holds() {\n}\n\nfn helper() {\n}\n\n// #[test]\nfn old() {\n}\n";

    fn page(guards: &[&str]) -> String {
        let rows: String = guards
            .iter()
            .enumerate()
            .map(|(index, guard)| format!("| {} | X. | {guard} |\n", index + 1))
            .collect();
        format!(
            "# A\n\n| a | b |\n| --- | --- |\n\n| # | invariant | guarded by |\n| --- | --- | --- |\n{rows}\nAfter.\n"
        )
    }

    fn faults(guards: &[&str]) -> Vec<(usize, String)> {
        let tree = Tree::of(&[
            (PAGE, &page(guards)),
            ("tests/a.rs", TEST),
            ("tests/ui/b.rs", "//! B.\n"),
        ]);
        guarded(&tree)
            .into_iter()
            .map(|finding| (finding.line, finding.text))
            .collect()
    }

    #[test]
    fn guards_that_exist_pass() {
        assert_eq!(
            faults(&[
                "`tests/a.rs::holds` and `tests/ui/b.rs`",
                "not yet: the shim",
                "`tests/a.rs::tests::holds`"
            ]),
            []
        );
    }

    #[test]
    fn guards_that_do_not_exist_are_found() {
        let found = faults(&[
            "`tests/a.rs::gone`",
            "`tests/no.rs::holds`",
            "`tests/ui/no.rs`",
            "`tests/a.rs::helper`",
            "`tests/a.rs::old`",
        ]);
        let texts: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
        let expected = [
            "tests/a.rs has no test `gone`",
            "there is no file tests/no.rs",
            "there is no file tests/ui/no.rs",
            "tests/a.rs has no test `helper`",
            "tests/a.rs has no test `old`",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn an_empty_guard_and_an_unreasoned_delay_are_found() {
        assert_eq!(faults(&["", "not yet:", "by care"]).len(), 3);
    }

    #[test]
    fn a_gap_in_the_numbers_is_found() {
        let page = page(&["not yet: x", "not yet: y"]).replace("| 2 |", "| 3 |");
        assert_eq!(guarded(&Tree::of(&[(PAGE, &page)])).len(), 1);
    }

    #[test]
    fn a_page_without_the_table_is_found() {
        assert_eq!(guarded(&Tree::of(&[(PAGE, "# A\n")])).len(), 1);
        assert_eq!(guarded(&Tree::of(&[])).len(), 1);
    }

    #[test]
    fn invariants_without_a_test_are_listed() {
        let tree = Tree::of(&[(PAGE, &page(&["`x`", "not yet: the shim"]))]);
        assert_eq!(
            not_yet_guarded(&tree),
            ["invariant 2 has no test, not yet: the shim"]
        );
    }
}
