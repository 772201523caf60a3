//! The whole kit over every provider under every decorator, and under every ordered pair of them. Prints the table.
//!
//! The one test of this binary, so that nothing runs beside it: descriptors, threads and mappings are compared exactly.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

mod equipment;

use equipment::loopback::Loopback;
#[cfg(feature = "udp")]
use equipment::udp::Udp;
use lockgate::fault::Plan;
use lockgate::receive::PacketReceiver;
use lockgate_conformance::{Decorated, Equipment, Table, render, run_all};
use lockgate_providers::fault::Fault;
use lockgate_providers::metrics::Metrics;
use lockgate_providers::record::Record;
use lockgate_providers::trace::Trace;

type Inner = Box<dyn PacketReceiver>;
type Decorator = fn(Inner) -> Inner;

const DECORATORS: [(&str, Decorator); 4] = [
    ("fault", |inner| Fault::new("a", &Plan::quiet()).wrap(inner)),
    ("metrics", |inner| Metrics::new("a").wrap(inner)),
    ("record", |inner| {
        Record::replace("/dev/null").unwrap().wrap(inner)
    }),
    ("trace", |inner| Trace::new("a").wrap(inner)),
];

/// The equipment under each decorator and each ordered pair.
fn stacks<E: Equipment + 'static>(bare: fn() -> E) -> Vec<Box<dyn Equipment>> {
    let mut all: Vec<Box<dyn Equipment>> = Vec::new();
    for (inside, one) in DECORATORS {
        all.push(Box::new(Decorated::new(bare(), inside, one)));
        for (outside, other) in DECORATORS {
            let stack = Decorated::new(bare(), inside, one);
            all.push(Box::new(Decorated::new(stack, outside, other)));
        }
    }
    all
}

#[test]
fn every_provider_passes_under_every_decorator_and_every_pair() {
    let mut all = stacks(Loopback::new);
    #[cfg(feature = "udp")]
    all.extend(stacks(Udp::on_host));
    let tables: Vec<Table> = all.iter().map(|one| run_all(&**one)).collect();
    println!("{}", render(&tables));
    for table in &tables {
        assert!(table.is_green(), "{table}");
    }
}
