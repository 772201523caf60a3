//! The events that an owner delivers when a device's link goes away and comes back.
//!
//! A binary of its own, since it takes the link away from everything else. It puts the addresses, routes and neighbours
//! back as `cargo xtask vm` lays them, so that other suites can follow in the same guest.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::process::Command;
use std::time::{Duration, Instant};

use lockgate::custody::Domain;
use lockgate_accel::ibverbs::{Context, Selector};
use lockgate_verbs_shim::{EventKind, PortState, Subject};

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

/// The first event of this kind; others are passed over. Yields between looks: the descriptor is the owner's.
fn wait_for(context: &Context, kind: EventKind) -> Subject {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        match context.take_event().unwrap() {
            Some(event) if event.kind == kind => return event.subject,
            Some(event) => assert!(!event.is_fatal(), "{event:?}"),
            None => std::thread::yield_now(),
        }
        assert!(Instant::now() < limit, "no {kind:?} within half a minute");
    }
}

#[test]
fn a_port_that_goes_down_and_up_says_so_to_its_owner() {
    let names = std::env::var("LOCKGATE_RXE").expect("run this with `cargo xtask vm`");
    let domain = Domain::new("port", 0);
    let name = names.split(',').next().unwrap().to_owned();
    let context = Context::open(&domain, &Selector::Name(name), None).unwrap();
    let state = || PortState::from(context.port_attributes().unwrap().state);
    assert_eq!(state(), PortState::Active);
    assert_eq!(context.take_event().unwrap(), None);

    let unplugged = Unplugged::now();
    assert_eq!(wait_for(&context, EventKind::PortError), Subject::Port(1));
    assert_eq!(state(), PortState::Down);

    drop(unplugged);
    assert_eq!(wait_for(&context, EventKind::PortActive), Subject::Port(1));
    assert_eq!(state(), PortState::Active);
    context.close().unwrap();
}
