//! The skips that tests report, and which of them are not allowed.
//!
//! `cargo test` hides what a passing test prints. A test that cannot run because its equipment is missing therefore
//! appends one line, `SKIP <group>: <reason>`, to the file that `LOCKGATE_SKIP_LOG` names, besides printing it, and
//! returns. One line stands for one test. `LOCKGATE_REQUIRE` (a comma list of groups, or `all`) asks the test to panic
//! instead.
//!
//! Promises: a line of any other form in that file, or without a reason, is an error and not overlooked; a skip that a
//! test only printed, past the capture of the test runner, counts as well, and one that was both printed and logged
//! counts once.

use std::fmt;
use std::path::Path;

use crate::error::{Error, Result};

/// The variable that names the file which tests append their skips to.
pub(crate) const LOG_VARIABLE: &str = "LOCKGATE_SKIP_LOG";

/// The variable that lists the groups whose absence is a panic.
pub(crate) const REQUIRE_VARIABLE: &str = "LOCKGATE_REQUIRE";

/// Groups that a hosted run (`CI=true`) must have: without them most of what this workspace claims is not shown.
const REQUIRED_IN_CI: &[&str] = &["namespaces", "softverbs", "ucx", "vm"];

/// One test that did not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Skip {
    pub(crate) group: String,
    pub(crate) reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIP {}: {}", self.group, self.reason)
    }
}

/// Reads the log of one step; no file means that nothing was skipped.
pub(crate) fn read(log: &Path) -> Result<Vec<Skip>> {
    let text = match std::fs::read_to_string(log) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::new(format!("read {}", log.display()), error)),
    };
    text.lines().map(parse).collect()
}

fn parse(line: &str) -> Result<Skip> {
    let malformed = || {
        Error::new(
            "read the skip log",
            format!("`{line}` is not `SKIP <group>: <reason>`"),
        )
    };
    let (group, reason) = line
        .strip_prefix("SKIP ")
        .and_then(|rest| rest.split_once(':'))
        .ok_or_else(malformed)?;
    let (group, reason) = (group.trim(), reason.trim());
    if group.is_empty() || reason.is_empty() {
        return Err(malformed());
    }
    Ok(Skip {
        group: group.to_owned(),
        reason: reason.to_owned(),
    })
}

/// The skips that tests printed past the capture of the test runner; other lines are passed over.
pub(crate) fn printed(output: &str) -> Vec<Skip> {
    // With one test thread, the runner's own words stand before what the test prints.
    let skip_of = |line: &str| {
        let at = if line.starts_with("SKIP ") {
            0
        } else {
            line.find(" ... SKIP ")? + " ... ".len()
        };
        parse(&line[at..]).ok()
    };
    output.lines().filter_map(skip_of).collect()
}

/// The skips of one step from its log and its output: one that is in both is one.
pub(crate) fn merge(logged: Vec<Skip>, printed: &[Skip]) -> Vec<Skip> {
    let count = |skips: &[Skip], skip: &Skip| skips.iter().filter(|other| *other == skip).count();
    let mut all = logged;
    for skip in printed {
        if count(&all, skip) < count(printed, skip) {
            all.push(skip.clone());
        }
    }
    all
}

/// Which groups may not be skipped in this run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Required {
    all: bool,
    groups: Vec<String>,
}

impl Required {
    /// From the environment: what the caller requires, and in a hosted run what is required there.
    pub(crate) fn of_this_run() -> Self {
        let asked = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
        Self::new(
            &asked,
            std::env::var("CI").is_ok_and(|value| value == "true"),
        )
    }

    fn new(asked: &str, hosted: bool) -> Self {
        let mut groups: Vec<String> = asked
            .split(',')
            .map(str::trim)
            .filter(|group| !group.is_empty())
            .map(str::to_owned)
            .collect();
        if hosted {
            groups.extend(REQUIRED_IN_CI.iter().map(|&group| group.to_owned()));
        }
        groups.sort();
        groups.dedup();
        Self {
            all: groups.iter().any(|group| group == "all"),
            groups,
        }
    }

    #[cfg(test)]
    pub(crate) fn require(groups: &[&str]) -> Self {
        Self::new(&groups.join(","), false)
    }

    /// The value for the tests' own environment.
    pub(crate) fn variable(&self) -> String {
        self.groups.join(",")
    }

    pub(crate) fn forbids(&self, skip: &Skip) -> bool {
        self.all || self.groups.contains(&skip.group)
    }
}

/// Groups equal skips: each distinct one once, with how many tests it stands for.
pub(crate) fn by_reason(skips: &[Skip]) -> Vec<(&Skip, usize)> {
    let mut sorted: Vec<&Skip> = skips.iter().collect();
    sorted.sort();
    let mut groups: Vec<(&Skip, usize)> = Vec::new();
    for skip in sorted {
        match groups.last_mut() {
            Some((last, count)) if *last == skip => *count += 1,
            _ => groups.push((skip, 1)),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skip(group: &str, reason: &str) -> Skip {
        Skip {
            group: group.to_owned(),
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_line_has_a_group_and_a_reason() {
        assert_eq!(
            parse("SKIP namespaces: unshare: EPERM (1)").unwrap(),
            skip("namespaces", "unshare: EPERM (1)")
        );
    }

    #[test]
    fn any_other_line_is_an_error() {
        for line in [
            "SKIP namespaces",
            "SKIP namespaces:",
            "SKIP : reason",
            "namespaces: reason",
            "",
        ] {
            assert!(
                parse(line)
                    .unwrap_err()
                    .to_string()
                    .contains("is not `SKIP"),
                "{line:?}"
            );
        }
    }

    #[test]
    fn printed_skips_are_found_and_prose_is_not() {
        let output = "running 2 tests\nSKIP vm: no kvm\ntest x ... SKIP tshark: absent\nok\nSKIP\nto SKIP a: b\nSKIP x\n";
        assert_eq!(
            printed(output),
            [skip("vm", "no kvm"), skip("tshark", "absent")]
        );
    }

    #[test]
    fn a_skip_that_was_logged_and_printed_is_one() {
        let [a, b] = [skip("a", "x"), skip("b", "y")];
        for (logged, printed, expected) in [
            (vec![&a], vec![&a], vec![&a]),
            (vec![&a], vec![&a, &b, &a], vec![&a, &a, &b]),
            (vec![&a, &a], vec![&b], vec![&a, &a, &b]),
        ] {
            let owned = |skips: Vec<&Skip>| skips.into_iter().cloned().collect::<Vec<_>>();
            let mut merged = merge(owned(logged), &owned(printed));
            merged.sort();
            assert_eq!(merged, owned(expected));
        }
    }

    #[test]
    fn no_log_means_no_skips() {
        assert_eq!(read(Path::new("/proc/self/no-such-file")).unwrap(), []);
    }

    #[test]
    fn a_hosted_run_requires_its_groups_and_nothing_else() {
        let required = Required::new("", true);
        assert!(required.forbids(&skip("namespaces", "x")));
        assert!(required.forbids(&skip("ucx", "x")));
        assert!(!required.forbids(&skip("tshark", "x")));
        assert!(!Required::new("", false).forbids(&skip("namespaces", "x")));
    }

    #[test]
    fn what_the_caller_requires_is_passed_on_once() {
        assert_eq!(
            Required::new("vm, tshark", true).variable(),
            "namespaces,softverbs,tshark,ucx,vm"
        );
        assert!(Required::new("all", false).forbids(&skip("anything", "x")));
    }

    #[test]
    fn equal_skips_are_counted_together() {
        let skips = [skip("b", "y"), skip("a", "x"), skip("b", "y")];
        assert_eq!(
            by_reason(&skips),
            [(&skip("a", "x"), 1), (&skip("b", "y"), 2)]
        );
    }
}
