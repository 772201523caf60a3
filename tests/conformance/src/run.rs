//! Runs cases: one as a test, or all of them into a table.
//!
//! Promises: a panic inside a case, be it the provider's, is that case's failure and ends nothing else; every skip is printed and
//! noted in the skip log.

use std::any::Any;
use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use crate::cases::{CASES, Case};
use crate::equipment::Equipment;
use crate::outcome::Outcome;
use crate::rig::Rig;
use crate::table::{Row, Table};

/// The environment variable with the name of the file to which skips are appended.
const SKIP_LOG: &str = "LOCKGATE_SKIP_LOG";

/// Runs every case, one after the other, in a process that does nothing else meanwhile: descriptors, threads and mappings are
/// compared exactly.
#[must_use]
pub fn run_all(equipment: &dyn Equipment) -> Table {
    let name = equipment.name();
    let rows = CASES
        .iter()
        .map(|case| {
            let start = Instant::now();
            let outcome = run(equipment, case, true);
            if let Outcome::Skipped(reason) = &outcome {
                note_skip(&name, case, reason);
            }
            Row {
                subject: case.subject,
                case: case.name,
                proves: case.proves,
                outcome,
                took: start.elapsed(),
            }
        })
        .collect();
    Table {
        claimed: equipment.factory().description().capabilities,
        name,
        rows,
    }
}

/// Runs one case, in a process that does nothing else meanwhile; nothing if there is no such case.
#[must_use]
pub fn run_case(equipment: &dyn Equipment, subject: &str, name: &str) -> Option<Outcome> {
    find(subject, name).map(|case| run(equipment, case, true))
}

/// The body of one mounted test. Called by [`mount!`](crate::mount).
///
/// # Panics
/// If the case fails: that is how a test fails.
#[doc(hidden)]
pub fn __run_mounted(equipment: &dyn Equipment, subject: &str, name: &str) {
    let Some(case) = find(subject, name) else {
        panic!("there is no case {subject}::{name}");
    };
    match run(equipment, case, false) {
        Outcome::Passed => {}
        Outcome::Skipped(reason) => note_skip(&equipment.name(), case, &reason),
        Outcome::Failed(text) => panic!(
            "{} breaks {subject}::{name} ({}): {text}",
            equipment.name(),
            case.about
        ),
    }
}

fn find(subject: &str, name: &str) -> Option<&'static Case> {
    CASES
        .iter()
        .find(|case| case.subject == subject && case.name == name)
}

fn run(equipment: &dyn Equipment, case: &Case, alone: bool) -> Outcome {
    let checked = catch_unwind(AssertUnwindSafe(|| {
        let rig = Rig::new(equipment, alone)?;
        (case.run)(&rig)?;
        rig.expect_nothing_alive()
    }));
    match checked {
        Ok(checked) => checked.into(),
        Err(panic) => Outcome::Failed(format!("panicked: {}", text_of(&*panic))),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "without a text"
    }
}

/// Makes a skip visible: on the output, and in the log that the task runner reads.
fn note_skip(name: &str, case: &Case, reason: &str) {
    let line = format!(
        "SKIP conformance: {name} {}::{}: {reason}",
        case.subject, case.name
    );
    // The test runner captures what the print macros write; this goes past it. A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
    let Some(path) = env::var_os(SKIP_LOG).filter(|path| !path.is_empty()) else {
        return;
    };
    // One write of one line in append mode: lines of several processes don't mix.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    assert!(
        written.is_ok(),
        "{SKIP_LOG} names {}, which can't be appended to: {written:?}",
        path.display()
    );
}
