//! Steps and the runner that runs and records them.
//!
//! A [`Step`] is a value: a name, a group, and either a command line or a check inside this process. The [`Runner`] runs
//! steps one after the other, passes their output on as it comes, and keeps a [`Record`] of each: command, environment,
//! folder, start, duration, exit, whole output, tests per target and skips.
//!
//! Promises: a step that fails, dies or cannot start is recorded as such and never run again; a command that leaves a
//! process behind which still holds its output is reported as failed, and the runner goes on.
//! Does not do: run steps side by side, or end processes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::error::{Error, Result};
use crate::skips::{self, Required};
use crate::testlog::{self, Target};

mod invocation;
mod record;

pub(crate) use invocation::Invocation;
use invocation::{Streamed, stream};
pub(crate) use record::Record;
use record::{Exit, print_faults, save, summarise};

/// One thing to run.
pub(crate) struct Step<'a> {
    /// Chosen by on the command line, such as `clippy`; several steps may share one.
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) work: Work<'a>,
    /// Its failure is shown and recorded, but does not fail the run: what needed it will.
    pub(crate) lenient: bool,
}

/// What a step does.
pub(crate) enum Work<'a> {
    /// A check inside this process: writes what it sees, gives the faults it found.
    Check(CheckFn<'a>),
    /// A command that passes when it exits with 0.
    Command(Invocation),
    /// `cargo test`: passes when it exits with 0, every target reported, and no required group was skipped.
    Tests(Invocation),
}

/// The faults that a check found are lines of text; none means that it passed.
pub(crate) type CheckFn<'a> = Box<dyn FnOnce(&mut dyn Write) -> Result<Vec<String>> + 'a>;

impl<'a> Step<'a> {
    pub(crate) fn command(
        group: &'static str,
        name: impl Into<String>,
        invocation: Invocation,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            work: Work::Command(invocation),
            lenient: false,
        }
    }

    pub(crate) fn tests(
        group: &'static str,
        name: impl Into<String>,
        invocation: Invocation,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            work: Work::Tests(invocation),
            lenient: false,
        }
    }

    /// Makes it a step whose failure is shown and recorded, but does not fail the run.
    pub(crate) fn leniently(self) -> Self {
        Self {
            lenient: true,
            ..self
        }
    }

    pub(crate) fn check(
        group: &'static str,
        name: impl Into<String>,
        check: impl FnOnce(&mut dyn Write) -> Result<Vec<String>> + 'a,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            work: Work::Check(Box::new(check)),
            lenient: false,
        }
    }
}

/// Runs steps and keeps their records.
pub(crate) struct Runner<W> {
    sink: W,
    required: Required,
    /// Holds the skip log of the step that runs.
    scratch: PathBuf,
    /// How long a process that outlived its step may keep the output open.
    grace: Duration,
    records: Vec<Record>,
}

impl<W: Write> Runner<W> {
    /// Passes output on to `sink`; `scratch` is an existing folder for files that live as long as a step.
    pub(crate) fn new(sink: W, required: Required, scratch: &Path) -> Self {
        Self {
            sink,
            required,
            scratch: scratch.to_path_buf(),
            grace: Duration::from_secs(10),
            records: Vec::new(),
        }
    }

    /// Where the runner's output goes, for words between the steps.
    pub(crate) fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Runs one step. The error is the runner's own: its output could not be written.
    pub(crate) fn run(&mut self, step: Step<'_>) -> Result<&Record> {
        let told = |error| Error::new("write the output of a step", error);
        writeln!(self.sink, "\n== {}", step.name).map_err(told)?;
        let started = SystemTime::now();
        let clock = Instant::now();
        let (group, name, lenient) = (step.group, step.name, step.lenient);
        let mut record = match step.work {
            Work::Check(check) => self.check(check),
            Work::Command(invocation) => self.command(invocation),
            Work::Tests(invocation) => self.tests(invocation),
        }
        .map_err(told)?;
        record.group = group;
        record.name = name;
        record.started = started;
        record.duration = clock.elapsed();
        if lenient {
            record.warnings = std::mem::take(&mut record.faults);
        }
        print_faults(&record, &mut self.sink).map_err(told)?;
        self.sink.flush().map_err(told)?;
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
    }

    fn check(&mut self, check: CheckFn<'_>) -> io::Result<Record> {
        let mut both = Tee {
            sink: &mut self.sink,
            kept: Vec::new(),
        };
        let outcome = check(&mut both);
        let output = both.kept;
        let (exit, faults) = match outcome {
            Ok(faults) => (Exit::Checked, faults),
            Err(error) => (Exit::Impossible(error.to_string()), vec![error.to_string()]),
        };
        Ok(blank(None, exit, output, faults))
    }

    fn command(&mut self, invocation: Invocation) -> io::Result<Record> {
        writeln!(self.sink, "$ {invocation}")?;
        let mut output = Vec::new();
        let mut faults = Vec::new();
        let exit = match stream(
            &mut invocation.prepared(),
            &mut self.sink,
            &mut output,
            self.grace,
        )? {
            Streamed::Ended { exit, left_behind } => {
                match &exit {
                    Exit::Code(0) => {}
                    Exit::Code(code) => faults.push(format!("exit code {code}")),
                    Exit::Signal(signal) => faults.push(format!("ended by signal {signal}")),
                    Exit::Checked | Exit::Impossible(_) => {
                        faults.push(format!("ended as {exit:?}"))
                    }
                }
                if left_behind {
                    faults.push(
                        "a process that it started outlived it and still holds its output"
                            .to_owned(),
                    );
                }
                exit
            }
            Streamed::NotStarted(error) => {
                let text = format!("could not start {}: {error}", invocation.program);
                faults.push(text.clone());
                Exit::Impossible(text)
            }
        };
        Ok(blank(Some(invocation), exit, output, faults))
    }

    fn tests(&mut self, invocation: Invocation) -> io::Result<Record> {
        // Several runners of one process may share the folder.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let log = self
            .scratch
            .join(format!("skips-{}-{number}.log", std::process::id()));
        let mut invocation = invocation.with(skips::LOG_VARIABLE, log.to_string_lossy());
        let required = self.required.variable();
        if !required.is_empty() {
            invocation = invocation.with(skips::REQUIRE_VARIABLE, required);
        }
        let mut record = self.command(invocation)?;
        let output = String::from_utf8_lossy(&record.output).into_owned();
        record.targets = testlog::parse(&output);
        record
            .faults
            .extend(record.targets.iter().flat_map(Target::faults));
        if record.faults.is_empty() && record.targets.is_empty() {
            record.faults.push("no test target ran".to_owned());
        }
        let failed = record.targets.iter().flat_map(|target| {
            target
                .failures
                .iter()
                .map(|test| format!("{}: {test}", target.name))
        });
        record.faults.extend(failed);
        match skips::read(&log) {
            Ok(logged) => record.skips = skips::merge(logged, &skips::printed(&output)),
            Err(error) => record.faults.push(error.to_string()),
        }
        for (skip, count) in skips::by_reason(&record.skips) {
            if self.required.forbids(skip) {
                record.faults.push(format!(
                    "{count} tests of a required group did not run: {skip}"
                ));
            }
        }
        let passed: u64 = record.targets.iter().map(|target| target.passed).sum();
        if record.skips.len() as u64 > passed {
            record.faults.push(format!(
                "{} skips were reported by {passed} passed tests",
                record.skips.len()
            ));
        }
        match std::fs::remove_file(&log) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                record
                    .faults
                    .push(format!("remove {}: {error}", log.display()));
            }
            _ => {}
        }
        Ok(record)
    }
}

fn blank(
    invocation: Option<Invocation>,
    exit: Exit,
    output: Vec<u8>,
    faults: Vec<String>,
) -> Record {
    Record {
        group: "",
        name: String::new(),
        invocation,
        started: SystemTime::UNIX_EPOCH,
        duration: Duration::ZERO,
        exit,
        output,
        targets: Vec::new(),
        skips: Vec::new(),
        faults,
        warnings: Vec::new(),
    }
}

/// Writes to both, so that a check's words are recorded as a command's are.
struct Tee<'a, W> {
    sink: &'a mut W,
    kept: Vec<u8>,
}

impl<W: Write> Write for Tee<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.kept.extend_from_slice(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

/// Ends a run: keeps its records in `folder`, prints the summary and the closing line. True if every step passed.
pub(crate) fn finish<W: Write>(runner: &mut Runner<W>, folder: &Path) -> Result<bool> {
    save(&runner.records, folder)?;
    let Runner { records, sink, .. } = runner;
    summarise(records, folder, sink).map_err(|error| Error::new("write the summary", error))?;
    Ok(records.iter().all(Record::passed))
}

#[cfg(test)]
mod tests;
