//! The conformance kit over `udp` in a network namespace of its own, where IPv6 multicast is delivered and the link can be
//! taken down.
//!
//! The test runs itself again inside the namespace, so that the sockets of provider and sender are there alone.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

use std::env;
use std::ffi::OsStr;
use std::process::Command;

use lockgate_conformance::run_all;
use lockgate_tests::tools;

#[path = "../../providers/tests/equipment/udp.rs"]
#[allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
mod udp;

/// Tells the second run that it is inside.
const INSIDE: &str = "LOCKGATE_TEST_INSIDE_NAMESPACE";

#[test]
fn udp_passes_where_it_has_an_interface_to_itself() {
    if env::var_os(INSIDE).is_some() {
        inside();
        return;
    }
    // Without privileges a user namespace comes first, if this host allows one.
    let unshare = |rest: &[&OsStr]| {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--net", "--"])
            .args(rest);
        command
    };
    for tool in ["unshare", "ip"] {
        if tools::require_tool(tool).is_err() {
            return;
        }
    }
    let probe = unshare(&["ip".as_ref(), "link".as_ref()]).output().unwrap();
    if !probe.status.success() {
        let told = String::from_utf8_lossy(&probe.stderr);
        tools::skip("namespaces", &format!("unshare: {}", told.trim()));
        return;
    }
    let program = env::current_exe().unwrap();
    let output = unshare(&[
        program.as_os_str(),
        "--exact".as_ref(),
        "--nocapture".as_ref(),
        "udp_passes_where_it_has_an_interface_to_itself".as_ref(),
    ])
    .env(INSIDE, "1")
    .output()
    .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{told}");
    assert!(output.status.success(), "{told}{errors}");
    assert!(
        told.contains("udp in a namespace: "),
        "the second run printed no table: {told}{errors}"
    );
}

fn inside() {
    let table = run_all(&udp::Udp::in_namespace().unwrap());
    println!("{table}");
    assert!(table.is_green());
    assert_eq!(
        table.unproven(),
        [
            lockgate::registry::Capability::Unicast,
            lockgate::registry::Capability::HardwareTimestamps,
            lockgate::registry::Capability::AnyInterface,
        ],
        "everything else that udp claims is shown here"
    );
}
