//! The whole kit over every provider, one case after the other in a process that does nothing else: descriptors, threads and
//! mappings are compared exactly. Prints the table of providers and cases.
//!
//! The one test of this binary, so that nothing runs beside it.

mod equipment;

use equipment::loopback::Loopback;
use lockgate_conformance::{Equipment, Table, render, run_all};

#[test]
fn every_provider_passes_alone_in_a_process() {
    let all: [&dyn Equipment; 1] = [&Loopback::new()];
    let tables: Vec<Table> = all.iter().map(|one| run_all(*one)).collect();
    println!("{}", render(&tables));
    for table in &tables {
        assert!(table.is_green(), "{table}");
    }
}
