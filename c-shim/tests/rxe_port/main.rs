//! What a device says when its link goes away and comes back.
//!
//! A binary of its own, since it takes the link away from everything else. It puts the addresses, routes and neighbours
//! back as `cargo xtask vm` lays them, so that other suites can follow in the same guest.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[path = "../rxe/sys.rs"]
mod sys;

use std::process::Command;
use std::time::{Duration, Instant};

use lockgate_verbs_shim::{EventKind, PortState, Subject};
use sys::Context;

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .unwrap();
    assert!(status.success(), "ip {arguments}");
}

/// Takes the link of the first device away, from the other side of its cable, until it is dropped.
struct Unplugged;

impl Unplugged {
    fn now() -> Self {
        ip("link set veth1 down");
        Self
    }
}

impl Drop for Unplugged {
    fn drop(&mut self) {
        ip("link set veth1 up");
        ip("route replace 10.77.0.1 dev veth1 src 10.77.0.2 table 102");
        ip("neigh replace 10.77.0.1 lladdr 52:54:00:aa:00:01 dev veth1 nud permanent");
    }
}

/// The first event of this kind; others, such as a change of a GID, are acknowledged and passed over.
fn wait_for(context: &Context, kind: EventKind) -> Subject {
    let limit = Instant::now() + Duration::from_secs(30);
    let descriptor = context.info().unwrap().async_fd;
    loop {
        let left = limit.saturating_duration_since(Instant::now());
        assert!(
            sys::readable(descriptor, left),
            "no {kind:?} within half a minute"
        );
        let event = context.async_event().unwrap();
        let (seen, subject) = (event.kind(), event.subject());
        sys::acknowledge(event);
        if seen == kind {
            return subject;
        }
    }
}

#[test]
fn a_port_that_goes_down_and_up_says_so() {
    let names = std::env::var("LOCKGATE_RXE").expect("run this with `cargo xtask vm`");
    let context = sys::open(names.split(',').next().unwrap());
    let state = || PortState::from(context.port(1).unwrap().state);
    assert_eq!(state(), PortState::Active);

    let unplugged = Unplugged::now();
    assert_eq!(wait_for(&context, EventKind::PortError), Subject::Port(1));
    assert_eq!(state(), PortState::Down);

    drop(unplugged);
    assert_eq!(wait_for(&context, EventKind::PortActive), Subject::Port(1));
    assert_eq!(state(), PortState::Active);
}
