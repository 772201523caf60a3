//! The conformance kit over `udp` on the host's `lo`. What `lo` can't show there, the run in a namespace in
//! `conformance_table.rs` does.
#![cfg(feature = "udp")]

mod equipment;

use equipment::udp::Udp;

fn udp() -> Udp {
    Udp::on_host()
}

lockgate_conformance::mount!(udp);
