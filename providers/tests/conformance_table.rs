//! The whole kit over every provider, one case after the other in a process that does nothing else: descriptors, threads and
//! mappings are compared exactly. Prints the table of providers and cases.
//!
//! The one test of this binary, so that nothing runs beside it.

mod equipment;

use equipment::loopback::Loopback;
#[cfg(feature = "udp")]
use equipment::udp::Udp;
use lockgate_conformance::{Equipment, Table, render, run_all};

#[test]
fn every_provider_passes_alone_in_a_process() {
    let all: Vec<Box<dyn Equipment>> = vec![
        Box::new(Loopback::new()),
        Box::new(Loopback::with_frames()),
        #[cfg(feature = "udp")]
        Box::new(Udp::on_host()),
    ];
    let tables: Vec<Table> = all.iter().map(|one| run_all(&**one)).collect();
    println!("{}", render(&tables));
    for table in &tables {
        assert!(table.is_green(), "{table}");
    }
}
