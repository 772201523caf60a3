//! Random schedules of everything that a domain can be asked, against a plain oracle of the truth table.
//!
//! After each step the world must be what the oracle says: the number of native calls of each object, the charges, what is
//! held, what the quarantine lists, what is published. The seed of a failing schedule is printed with its shortest form.
//!
//! `LOCKGATE_SCHEDULES` sets the number of schedules (100,000 by default), `LOCKGATE_SEED` the first seed.
#![cfg(not(loom))]
#![allow(clippy::expect_used, reason = "a test fails by panic")]

mod oracle;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use oracle::{Step, World};

/// Each schedule starts from its own seed and has this many steps.
const STEPS: usize = 40;

fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().expect("a number"),
        Err(_) => otherwise,
    }
}

fn schedule(seed: u64) -> Vec<Step> {
    let mut rng = oracle::Rng::new(seed);
    (0..STEPS).map(|_| Step::draw(&mut rng)).collect()
}

fn run(steps: &[Step]) -> Result<(), String> {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new();
        for step in steps {
            world.step(*step);
            world.check();
        }
        world.finish();
    }));
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let words = panic
            .downcast_ref::<&str>()
            .map(|words| (*words).to_owned());
        text.or(words).unwrap_or_default()
    })
}

/// Leaves out steps as long as the rest still fails.
fn shortest(mut steps: Vec<Step>) -> Vec<Step> {
    let mut size = steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let end = (at + size).min(steps.len());
            let without: Vec<Step> = [&steps[..at], &steps[end..]].concat();
            if run(&without).is_err() {
                steps = without;
            } else {
                at = end;
            }
        }
        size /= 2;
    }
    steps
}

#[test]
fn random_schedules_never_violate_the_truth_table() {
    let schedules = number("LOCKGATE_SCHEDULES", 100_000);
    // A fixed first seed: a failure seen once is seen again.
    let first = number("LOCKGATE_SEED", 1);
    println!("schedules {schedules}, first seed {first}");
    // Planned panics happen in many schedules; their words would hide those of a failure.
    std::panic::set_hook(Box::new(|_| {}));
    let next = AtomicU64::new(first);
    let failed = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed - first >= schedules {
                            return None;
                        }
                        if let Err(words) = run(&schedule(seed)) {
                            return Some((seed, words));
                        }
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().expect("panics are caught"))
            .next()
    });
    let shown = failed.map(|(seed, words)| {
        let steps = shortest(schedule(seed));
        let last = run(&steps).err().unwrap_or_default();
        format!("seed {seed}: {words}\nshortest form: {steps:#?}\nwhich fails with: {last}")
    });
    let _ = std::panic::take_hook();
    if let Some(shown) = shown {
        panic!("{shown}");
    }
    oracle::assert_everything_happened();
}
