//! What is known of a step after it ran, and of a whole run: the summary that people read and the files that are kept.
//!
//! Promises: the log of a step is its unedited output; counts are those of the tests, and a step that failed without a
//! failed test to show for it counts as one. Does not do: sign or seal anything.

use std::fmt;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::invocation::Invocation;
use crate::error::{Error, Result};
use crate::skips::{self, Skip};
use crate::testlog::Target;

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// A check inside this process came to its end.
    Checked,
    /// The command exited with this code.
    Code(i32),
    /// There was no exit: the command could not be started, or the check could not be made.
    Impossible(String),
    /// The command was ended by this signal.
    Signal(i32),
}

impl Exit {
    fn to_json(&self) -> Value {
        match self {
            Self::Checked => json!("checked"),
            Self::Code(code) => json!({ "code": code }),
            Self::Impossible(why) => json!({ "impossible": why }),
            Self::Signal(signal) => json!({ "signal": signal }),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Impossible(format!("unknown wait status {}", status.into_raw())),
        }
    }
}

/// What is known of a step after it ran.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    /// The command, unless the step was a check inside this process.
    pub(crate) invocation: Option<Invocation>,
    pub(crate) started: SystemTime,
    pub(crate) duration: Duration,
    pub(crate) exit: Exit,
    /// Whole and unedited.
    pub(crate) output: Vec<u8>,
    /// Empty for steps that are not tests.
    pub(crate) targets: Vec<Target>,
    pub(crate) skips: Vec<Skip>,
    /// Why the step failed; empty if it passed.
    pub(crate) faults: Vec<String>,
    /// Faults of a step whose failure was allowed.
    pub(crate) warnings: Vec<String>,
}

impl Record {
    pub(crate) fn passed(&self) -> bool {
        self.faults.is_empty()
    }

    fn to_json(&self, log: &str) -> Value {
        let started = self
            .started
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        let invocation = self.invocation.as_ref().map(|invocation| {
            json!({
                "program": invocation.program,
                "arguments": invocation.arguments,
                "environment": invocation.environment,
                "folder": invocation.folder,
            })
        });
        let targets: Vec<Value> = self
            .targets
            .iter()
            .map(|target| {
                json!({
                    "name": target.name,
                    "passed": target.passed,
                    "failed": target.failed,
                    "ignored": target.ignored,
                    "failures": target.failures,
                })
            })
            .collect();
        json!({
            "group": self.group,
            "name": self.name,
            "command": invocation,
            "started_unix_ms": u64::try_from(started.as_millis()).unwrap_or(u64::MAX),
            "duration_ms": u64::try_from(self.duration.as_millis()).unwrap_or(u64::MAX),
            "exit": self.exit.to_json(),
            "log": log,
            "targets": targets,
            "skips": self.skips.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "warnings": self.warnings,
            "faults": self.faults,
        })
    }

    /// Tests by outcome. A test that skipped itself is counted by libtest as passed; here it counts as skipped.
    pub(crate) fn totals(&self) -> Totals {
        let sum = |count: fn(&Target) -> u64| self.targets.iter().map(count).sum::<u64>();
        let skipped = self.skips.len() as u64;
        let failed = sum(|target| target.failed);
        Totals {
            passed: sum(|target| target.passed).saturating_sub(skipped),
            // A step that failed with no failed test to show for it counts as one.
            failed: if failed == 0 && !self.passed() {
                1
            } else {
                failed
            },
            skipped: sum(|target| target.ignored) + skipped,
        }
    }
}

/// The version of the form of `steps.json`.
const SCHEMA: u32 = 1;

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl std::iter::Sum for Totals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |a, b| Self {
            passed: a.passed + b.passed,
            failed: a.failed + b.failed,
            skipped: a.skipped + b.skipped,
        })
    }
}

/// The closing line of every run.
impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// Prints the time of each step, what was skipped and why, what failed, and the closing line.
pub(super) fn summarise(
    records: &[Record],
    folder: &Path,
    sink: &mut impl Write,
) -> io::Result<()> {
    writeln!(sink, "\n== summary")?;
    for record in records {
        let verdict = match (record.passed(), record.warnings.is_empty()) {
            (true, true) => "ok",
            (true, false) => "warned",
            (false, _) => "FAILED",
        };
        writeln!(
            sink,
            "{verdict:<7}{:>8.1} s  {}",
            record.duration.as_secs_f64(),
            record.name
        )?;
    }
    let skips: Vec<Skip> = records
        .iter()
        .flat_map(|record| record.skips.iter().cloned())
        .collect();
    for (skip, count) in skips::by_reason(&skips) {
        writeln!(
            sink,
            "{skip} ({count} {})",
            if count == 1 { "test" } else { "tests" }
        )?;
    }
    for target in records.iter().flat_map(|record| &record.targets) {
        for (test, reason) in &target.ignores {
            writeln!(sink, "SKIP ignored: {}: {test}: {reason}", target.name)?;
        }
    }
    for record in records {
        print_faults(record, sink)?;
    }
    writeln!(sink, "the record of this run is in {}", folder.display())?;
    writeln!(
        sink,
        "{}",
        records.iter().map(Record::totals).sum::<Totals>()
    )
}

pub(super) fn print_faults(record: &Record, sink: &mut impl Write) -> io::Result<()> {
    for warning in &record.warnings {
        writeln!(sink, "WARNING {}: {warning}", record.name)?;
    }
    for fault in &record.faults {
        writeln!(sink, "FAILED {}: {fault}", record.name)?;
    }
    Ok(())
}

/// Writes the records into `folder`, made anew: `steps.json`, and the output of step N as `N.log`.
pub(super) fn save(records: &[Record], folder: &Path) -> Result<()> {
    let failed = |error| Error::new(format!("write the record in {}", folder.display()), error);
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => std::fs::create_dir_all(folder).map_err(failed)?,
    }
    let mut steps = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let log = format!("{:02}.log", index + 1);
        std::fs::write(folder.join(&log), &record.output).map_err(failed)?;
        steps.push(record.to_json(&log));
    }
    let report = json!({ "schema": SCHEMA, "steps": steps });
    std::fs::write(folder.join("steps.json"), format!("{report:#}\n")).map_err(failed)
}
