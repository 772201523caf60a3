//! What custody and completion cost in instructions: owners, debts, and the sweep however many debts are retained.
//!
//! Promises: without arguments it runs itself under `valgrind --tool=callgrind`, collects only inside the measured call, and
//! prints the instructions per call as a Markdown table. With `--check` it also fails when a call is above [`LIMITS`], or when
//! sweeps over 1, 1,000 and 1,000,000 retained debts differ by more than [`SPREAD`] percent. Does not do: wall-clock time.
//!
//! Beside each debt stands what a user would otherwise write: a map from numbers to boxes behind a mutex.

use std::any::Any;
use std::collections::HashMap;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate::completion::{
    Cause, Debt, Fence, Handle, Lane, LaneHandle, Ledger, Observation, Outcome, SlotId, Submission,
    Watch,
};
use lockgate::custody::{Charge, Domain, Identity, Native, Owner, Receipt, Release};

/// The most instructions per call: a tenth above what was measured.
const LIMITS: &[(&str, u64)] = &[
    ("submit", 759),
    ("poll", 670),
    ("take", 474),
    ("own", 551),
    ("close", 1314),
    ("sweep-changed", 1492),
    ("sweep-asked", 29948),
    ("sweep-nothing", 606),
];

/// By how much, in percent, sweeps may differ when only the number of retained debts does.
const SPREAD: f64 = 5.0;

const RETAINED: [u64; 3] = [1, 1_000, 1_000_000];

const CALLS: u64 = 1_000;

fn main() -> ExitCode {
    // Cargo adds `--bench` for harnesses of its own.
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        [] => measure_all(false),
        ["--check"] => measure_all(true),
        ["run", subject, retained] => match retained.parse() {
            Ok(retained) if run(subject, retained) => ExitCode::SUCCESS,
            _ => usage(),
        },
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!(
        "usage: cargo xtask bench custody [--check]\n   or: cargo xtask bench custody run SUBJECT RETAINED"
    );
    ExitCode::from(2)
}

fn measure_all(check: bool) -> ExitCode {
    let mut problems = Vec::new();
    println!("| call | instructions | map behind a mutex |\n| --- | ---: | ---: |");
    for (subject, other) in [
        ("submit", Some("map-insert")),
        ("poll", Some("map-look")),
        ("take", Some("map-remove")),
        ("own", None),
        ("close", None),
    ] {
        let (Some(cost), Some(other)) = (
            measure(subject, 1),
            other.map_or(Some(0), |o| measure(o, 1)),
        ) else {
            return ExitCode::FAILURE;
        };
        let other = if other == 0 {
            "-".to_owned()
        } else {
            other.to_string()
        };
        println!("| {subject} | {cost} | {other} |");
        problems.extend(above(subject, cost));
    }
    println!(
        "\n| sweep | 1 retained | 1,000 | 1,000,000 | spread |\n| --- | ---: | ---: | ---: | ---: |"
    );
    for subject in ["sweep-nothing", "sweep-changed", "sweep-asked"] {
        // A lane that is asked has as many to ask as there are, up to the 64 of a sweep.
        let sizes = if subject == "sweep-asked" {
            [64, 1_000, 1_000_000]
        } else {
            RETAINED
        };
        let mut costs = Vec::new();
        for retained in sizes {
            let Some(cost) = measure(subject, retained) else {
                return ExitCode::FAILURE;
            };
            problems.extend(above(subject, cost));
            costs.push(cost);
        }
        let least = costs.iter().min().copied().unwrap_or(0);
        let most = costs.iter().max().copied().unwrap_or(0);
        let spread = (most - least) as f64 * 100.0 / least as f64;
        println!(
            "| {subject} | {} | {} | {} | {spread:.1} % |",
            costs[0], costs[1], costs[2]
        );
        if spread > SPREAD {
            problems.push(format!(
                "{subject}: the spread of {spread:.1} % is above {SPREAD} %"
            ));
        }
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    if check && !problems.is_empty() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn above(subject: &str, cost: u64) -> Option<String> {
    let (_, limit) = LIMITS.iter().find(|(name, _)| *name == subject)?;
    (cost > *limit)
        .then(|| format!("{subject}: {cost} instructions are above the limit of {limit}"))
}

/// Instructions per call inside the measured function alone.
fn measure(subject: &str, retained: u64) -> Option<u64> {
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => {
            eprintln!("cannot find this program: {error}");
            return None;
        }
    };
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg("--toggle-collect=*measured*")
        .arg(this)
        .args(["run", subject, &retained.to_string()])
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            eprintln!("cannot run valgrind (package valgrind): {error}");
            return None;
        }
    };
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, count)| count.trim().parse::<u64>().ok())
        .filter(|count| output.status.success() && *count > CALLS);
    if collected.is_none() {
        eprintln!("{subject}: valgrind said nothing usable:\n{text}");
    }
    Some(collected? / CALLS)
}

/// A lane whose fences a benchmark sets.
struct Still {
    watch: Watch,
    done: bool,
}

impl Lane for Still {
    fn identity(&self) -> Identity {
        Identity::new("lane")
    }
    fn query(&self, _: SlotId) -> Fence {
        if self.done {
            Fence::Succeeded
        } else {
            Fence::Pending
        }
    }
    fn wait(&self, slot: SlotId, _: Option<Duration>) -> Fence {
        self.query(slot)
    }
    fn drain(&self) -> Result<Receipt, Cause> {
        Ok(Receipt::of(self.identity()))
    }
    fn watch(&self) -> Watch {
        self.watch
    }
}

struct Nothing;

impl Native for Nothing {
    fn identity(&self) -> Identity {
        Identity::new("nothing").with("handle", 1)
    }
    fn release(&mut self) -> Release {
        Release::Released(Receipt::of(self.identity()))
    }
}

// The measured functions. Their names are what callgrind is told to collect inside of.

#[inline(never)]
fn measured_submit(ledger: &Ledger, port: &LaneHandle) -> Option<Handle<()>> {
    ledger
        .submit(port, Debt::new(()), |_| Submission::Submitted)
        .ok()
}

#[inline(never)]
fn measured_poll(handle: &Handle<()>) -> Option<Observation> {
    handle.poll().ok()
}

#[inline(never)]
fn measured_take(handle: &Handle<()>) -> bool {
    matches!(handle.take(), Ok(Some(Outcome::Succeeded(()))))
}

#[inline(never)]
fn measured_sweep(ledger: &Ledger) -> usize {
    ledger.sweep(64).map_or(0, |sweep| sweep.observations.len())
}

#[inline(never)]
fn measured_own(domain: &Domain) -> Option<Owner<Nothing>> {
    let admission = domain.admit().ok()?;
    let charge = domain.budget().reserve(4096).ok()?.commit();
    Some(admission.own(Nothing, Vec::new(), charge))
}

#[inline(never)]
fn measured_close(owner: Owner<Nothing>) -> bool {
    owner.close().is_ok()
}

type Map = Mutex<HashMap<u64, Box<dyn Any + Send>>>;

#[inline(never)]
fn measured_insert(map: &Map, number: u64) {
    if let Ok(mut map) = map.lock() {
        map.insert(number, Box::new(()));
    }
}

#[inline(never)]
fn measured_look(map: &Map, number: u64) -> bool {
    map.lock().is_ok_and(|map| map.contains_key(&number))
}

#[inline(never)]
fn measured_remove(map: &Map, number: u64) -> bool {
    map.lock()
        .is_ok_and(|mut map| map.remove(&number).is_some())
}

/// Prepares, then makes the measured call [`CALLS`] times. Says whether each did what it should.
fn run(subject: &str, retained: u64) -> bool {
    let domain = Domain::new("bench", 1 << 30);
    let ledger = domain.ledger();
    let lane = |watch, done| ledger.attach(Arc::new(Still { watch, done }));
    match subject {
        "submit" | "poll" | "take" => debts(subject, &ledger, &lane(Watch::Query, true)),
        "own" | "close" => owners(subject, &domain),
        "sweep-nothing" | "sweep-changed" => {
            let port = lane(Watch::Report, false);
            let kept: Vec<_> = (0..retained).map(|_| submit(&ledger, &port)).collect();
            let done = sweeps(subject == "sweep-changed", &ledger, &port);
            done && kept.iter().all(Option::is_some)
        }
        "sweep-asked" => {
            let port = lane(Watch::Query, false);
            let kept: Vec<_> = (0..retained).map(|_| submit(&ledger, &port)).collect();
            let done = (0..CALLS).all(|_| measured_sweep(black_box(&ledger)) == 64);
            done && kept.iter().all(Option::is_some)
        }
        "map-insert" | "map-look" | "map-remove" => maps(subject),
        _ => false,
    }
}

/// Not measured.
fn submit(ledger: &Ledger, port: &LaneHandle) -> Option<Handle<()>> {
    ledger
        .submit(port, Debt::new(()), |_| Submission::Submitted)
        .ok()
}

fn debts(subject: &str, ledger: &Ledger, port: &LaneHandle) -> bool {
    (0..CALLS).all(|_| {
        let handle = match subject {
            "submit" => measured_submit(black_box(ledger), black_box(port)),
            _ => submit(ledger, port),
        };
        let Some(handle) = handle else {
            return false;
        };
        let ready = match subject {
            "poll" => measured_poll(black_box(&handle)),
            _ => handle.poll().ok(),
        };
        let taken = match subject {
            "take" => measured_take(black_box(&handle)),
            _ => matches!(handle.take(), Ok(Some(Outcome::Succeeded(())))),
        };
        ready == Some(Observation::Ready) && taken
    })
}

fn sweeps(changed: bool, ledger: &Ledger, port: &LaneHandle) -> bool {
    let reports = ledger.reports();
    (0..CALLS).all(|_| {
        if !changed {
            return measured_sweep(black_box(ledger)) == 0;
        }
        let Some(handle) = submit(ledger, port) else {
            return false;
        };
        reports.changed(handle.slot(), Fence::Succeeded);
        let one = measured_sweep(black_box(ledger)) == 1;
        one && matches!(handle.take(), Ok(Some(Outcome::Succeeded(()))))
    })
}

fn owners(subject: &str, domain: &Domain) -> bool {
    // The first receipt of a thread reads its name.
    drop(
        domain
            .admit()
            .map(|admission| admission.own(Nothing, Vec::new(), Charge::none())),
    );
    (0..CALLS).all(|_| {
        let owner = match subject {
            "own" => measured_own(black_box(domain)),
            _ => domain.admit().ok().map(|admission| {
                let charge = domain
                    .budget()
                    .reserve(4096)
                    .map(|reservation| reservation.commit());
                admission.own(Nothing, Vec::new(), charge.unwrap_or(Charge::none()))
            }),
        };
        owner.is_some_and(|owner| match subject {
            "close" => measured_close(black_box(owner)),
            _ => owner.close().is_ok(),
        })
    })
}

fn maps(subject: &str) -> bool {
    let map = Map::default();
    (0..CALLS).all(|number| {
        match subject {
            "map-insert" => measured_insert(black_box(&map), number),
            _ => {
                if let Ok(mut map) = map.lock() {
                    map.insert(number, Box::new(()));
                }
            }
        }
        let there = subject != "map-look" || measured_look(black_box(&map), number);
        let removed = match subject {
            "map-remove" => measured_remove(black_box(&map), number),
            _ => map
                .lock()
                .is_ok_and(|mut map| map.remove(&number).is_some()),
        };
        there && removed
    })
}
