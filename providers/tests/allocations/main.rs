//! The data path of `trace`, `metrics` and `record` allocates nothing, alone and stacked in every order.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

#[path = "../../src/testing.rs"]
mod testing;

mod sys;

use std::fs::OpenOptions;

use lockgate::receive::{PacketReceiver, Receiver};
use lockgate_providers::metrics::Metrics;
use lockgate_providers::record::Record;
use lockgate_providers::trace::Trace;
use testing::{Given, Script};

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

/// A recording that really writes, into nothing.
struct Null(std::fs::File);

impl std::io::Write for Null {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl lockgate_providers::record::Sink for Null {
    fn cut(&mut self, _: u64) -> std::io::Result<()> {
        Ok(())
    }
}

type Inner = Box<dyn PacketReceiver>;
type Decorator = fn(Inner) -> Inner;

fn trace(inner: Inner) -> Inner {
    Trace::new("a").wrap(inner)
}

fn metrics(inner: Inner) -> Inner {
    Metrics::new("a").wrap(inner)
}

fn record(inner: Inner) -> Inner {
    let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
    let record = Record::to("null", Box::new(Null(null))).unwrap();
    // Zero: every poll writes.
    record.flush_interval(std::time::Duration::ZERO).wrap(inner)
}

/// Allocations of 1,000 polls with packets and as many waits, after the first ones.
fn allocations(mut receiver: Receiver) -> u64 {
    let mut polls = |count: u32| {
        for _ in 0..count {
            assert_eq!(receiver.poll().unwrap().len(), 32);
            let _ = receiver.statistics();
        }
    };
    polls(10);
    let before = sys::calls();
    polls(1_000);
    sys::calls() - before
}

fn script() -> Script {
    let script = Script::new();
    script.batch((0..32).map(|number| Given::payload(&[number; 200])));
    script.forever();
    script
}

#[test]
fn the_counter_counts() {
    let before = sys::calls();
    let boxed = Box::new(7);
    assert_eq!((*boxed, sys::calls() - before), (7, 1));
}

#[test]
fn no_decorator_allocates_on_the_data_path() {
    assert_eq!(allocations(script().open()), 0, "bare");
    let all: [(&str, Decorator); 3] = [("trace", trace), ("metrics", metrics), ("record", record)];
    for (first, one) in all {
        assert_eq!(allocations(script().open().decorate(one)), 0, "{first}");
        for (second, other) in all {
            let stacked = script().open().decorate(one).decorate(other);
            assert_eq!(allocations(stacked), 0, "{second} around {first}");
        }
    }
}
