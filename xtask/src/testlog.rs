//! Reads what `cargo test` printed: per test target, how many tests passed, failed or were ignored, and which.
//!
//! Promises: every target that cargo ran is in the result, also one that died before it could report; a target whose
//! parts don't add up is reported by [`Target::faults`], so that a lost test cannot look like a passed one.
//! Does not do: run anything. The wording is that of libtest and rustdoc as of Rust 1.88 to 1.95.

/// The tests of one binary, or the documentation tests of one crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// Such as `lockgate: src/lib.rs` or `lockgate: doc-tests`.
    pub(crate) name: String,
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
    pub(crate) measured: u64,
    /// Names of the tests that failed.
    pub(crate) failures: Vec<String>,
    /// Names of the ignored tests, each with its reason or an empty text.
    pub(crate) ignores: Vec<(String, String)>,
    /// The sum of all "running N tests" lines.
    announced: u64,
    /// How many such lines, less how many result lines, there were.
    unfinished: i64,
    results: u64,
}

impl Target {
    fn named(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// What is wrong with the report itself; empty for a sound one.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.results == 0 || self.unfinished != 0 {
            faults.push(format!("{}: ended without a result line", self.name));
        } else {
            let sum = self.passed + self.failed + self.ignored + self.measured;
            if sum != self.announced {
                faults.push(format!(
                    "{}: announced {} tests, reported {sum}",
                    self.name, self.announced
                ));
            }
        }
        for (test, _) in self.ignores.iter().filter(|(_, reason)| reason.is_empty()) {
            faults.push(format!("{}: {test} is ignored without a reason", self.name));
        }
        faults
    }
}

/// Splits the merged standard output and error of one `cargo test` into its targets, in the order in which they ran.
pub(crate) fn parse(output: &str) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    for line in output.lines() {
        if let Some(name) = heading(line) {
            targets.push(Target::named(name));
            continue;
        }
        if let Some(count) = announcement(line) {
            if targets.is_empty() {
                targets.push(Target::named("unnamed target".to_owned()));
            }
            if let Some(target) = targets.last_mut() {
                target.announced += count;
                target.unfinished += 1;
            }
            continue;
        }
        let Some(target) = targets.last_mut() else {
            continue;
        };
        if let Some(counts) = result(line) {
            target.passed += counts[0];
            target.failed += counts[1];
            target.ignored += counts[2];
            target.measured += counts[3];
            target.unfinished -= 1;
            target.results += 1;
        } else if let Some((test, verdict)) = test_line(line) {
            match verdict {
                "FAILED" => target.failures.push(test.to_owned()),
                "ignored" => target.ignores.push((test.to_owned(), String::new())),
                other => {
                    if let Some(reason) = other.strip_prefix("ignored, ") {
                        target
                            .ignores
                            .push((test.to_owned(), reason.trim().to_owned()));
                    }
                }
            }
        }
    }
    targets
}

/// `Running unittests src/lib.rs (target/debug/deps/lockgate-0123456789abcdef)` or `Doc-tests lockgate`.
fn heading(line: &str) -> Option<String> {
    // Cargo indents its status words; a test that prints such a line at the start of a line is not taken for one.
    let status = line.strip_prefix("  ")?.trim_start();
    if let Some(name) = status.strip_prefix("Doc-tests ") {
        return Some(format!("{}: doc-tests", name.trim()));
    }
    let (what, binary) = status
        .strip_prefix("Running ")?
        .strip_suffix(')')?
        .split_once(" (")?;
    let file = binary.rsplit('/').next()?;
    let name = file.rsplit_once('-').map_or(file, |(name, _)| name);
    Some(format!("{name}: {}", what.trim_start_matches("unittests ")))
}

/// `running 3 tests`.
fn announcement(line: &str) -> Option<u64> {
    let rest = line.strip_prefix("running ")?;
    let (count, word) = rest.split_once(' ')?;
    matches!(word, "test" | "tests").then(|| count.parse().ok())?
}

/// `test result: ok. 1 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.00s`.
fn result(line: &str) -> Option<[u64; 4]> {
    let rest = line.strip_prefix("test result: ")?;
    let (_, counts) = rest.split_once(". ")?;
    let mut parts = counts.split("; ");
    let mut next = |word: &str| parts.next()?.strip_suffix(word)?.trim().parse().ok();
    Some([
        next("passed")?,
        next("failed")?,
        next("ignored")?,
        next("measured")?,
    ])
}

/// `test name ... ok`.
fn test_line(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("test ")?.split_once(" ... ")
}

#[cfg(test)]
mod tests;
