//! The conformance kit over the receivers of whole frames, at one end of a pair of virtual Ethernet interfaces in a network
//! namespace of its own.
//!
//! Each test runs this program again inside a namespace, so that the sockets of provider and sender are there alone.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

use std::env;
use std::process::Command;
use std::sync::Arc;

use lockgate::registry::Capability;
use lockgate_conformance::{Equipment, run_all};
use lockgate_tests::tools;

#[path = "../../providers/tests/equipment/frames.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod frames;
#[path = "../../providers/tests/equipment/packet.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod packet;
#[path = "../../providers/tests/equipment/sys.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod sys;

#[path = "../../providers/tests/equipment/xdp.rs"]
#[allow(unreachable_pub, reason = "shared with other tests")]
mod xdp;

use frames::Pair;
use packet::Packet;
use xdp::Xdp;

/// Tells the second run that it is inside.
const INSIDE: &str = "LOCKGATE_TEST_INSIDE_NAMESPACE";

/// Runs a test of this program again in a network namespace of its own, and answers whether this is that second run.
fn inside(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    // Root has the rights anyway, and keeps those that a user namespace would take.
    let user: &[&str] = if lockgate_tests::netns::is_root() {
        &[]
    } else {
        &["--user", "--map-root-user"]
    };
    for tool in ["unshare", "ip"] {
        if tools::require_tool(tool).is_err() {
            return false;
        }
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(user).args(["--net", "--"]);
        command
    };
    let probe = unshare().args(["ip", "link"]).output().unwrap();
    if !probe.status.success() {
        let told = String::from_utf8_lossy(&probe.stderr);
        tools::skip("namespaces", &format!("unshare: {}", told.trim()));
        return false;
    }
    let output = unshare()
        .arg(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", test])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{told}");
    assert!(output.status.success(), "{told}{errors}");
    assert!(
        told.contains("1 passed"),
        "the second run ran nothing: {told}{errors}"
    );
    false
}

#[test]
fn packet_passes_in_both_versions() {
    if !inside("packet_passes_in_both_versions") {
        return;
    }
    let pair = Arc::new(Pair::in_namespace().unwrap());
    for version in ["v2", "v3"] {
        let equipment = Packet {
            pair: Arc::clone(&pair),
            version,
        };
        let table = run_all(&equipment);
        println!("{table}");
        assert!(table.is_green());
        assert_eq!(
            table.unproven(),
            [Capability::HardwareTimestamps, Capability::ChecksumPolicy],
            "everything else that packet claims is shown here"
        );
    }
}

#[test]
fn xdp_passes_in_both_modes() {
    if !inside("xdp_passes_in_both_modes") {
        return;
    }
    let pair = Arc::new(Pair::in_namespace().unwrap());
    for mode in ["generic", "native"] {
        let equipment = Xdp {
            pair: Arc::clone(&pair),
            mode,
        };
        // A user namespace gives no right to load programs.
        let inspection = equipment.factory().inspect();
        if !inspection.usable {
            tools::skip("xdp", &inspection.findings.join("; "));
            return;
        }
        let table = run_all(&equipment);
        println!("{table}");
        assert!(table.is_green());
        assert_eq!(
            table.unproven(),
            [Capability::ChecksumPolicy],
            "everything else that xdp claims is shown here"
        );
    }
}
