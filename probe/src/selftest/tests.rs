//! Tests of the self-test: faults that are put into the way of the stream must be found, and a sound stream must pass.

use std::sync::Arc;

use lockgate::Errno;
use lockgate::clock::SystemClock;
use lockgate::fault::Plan;
use lockgate::receive::{Group, ReceiverConfig};
use lockgate::registry::Registry;
use lockgate_providers::loopback::{Datagram, Network};

use super::*;

const SOURCE: &str = "127.0.0.1:47001";
const GROUP: &str = "239.255.0.1:47000";

const SHORT: Pace = Pace {
    packets: 2_000,
    under_way: Some(64),
    rate: None,
    limit: Duration::from_secs(5),
};

/// Sends into a network, and does to each payload what the test wants.
struct Through<F> {
    network: Network,
    change: F,
}

impl<F: FnMut(u64, &mut Vec<u8>) -> Sent + Send> Outlet for Through<F> {
    fn send(&mut self, payload: &[u8]) -> lockgate::Result<()> {
        let number = crate::stream::parse(payload).map_or(0, |header| header.sequence);
        let mut payload = payload.to_vec();
        let source = match (self.change)(number, &mut payload) {
            Sent::Yes => SOURCE,
            Sent::FromElsewhere => "127.0.0.2:47001",
            Sent::No => return Ok(()),
            Sent::Failed(errno) => return Err(lockgate::Error::from_errno("send", errno)),
        };
        self.network.sender().send(&Datagram {
            source: source.parse().unwrap(),
            destination: GROUP.parse().unwrap(),
            payload: &payload,
            vlan: None,
        })
    }
}

enum Sent {
    Yes,
    FromElsewhere,
    No,
    Failed(Errno),
}

fn pass(
    plan: Plan,
    change: impl FnMut(u64, &mut Vec<u8>) -> Sent + Send + 'static,
) -> Result<Pass, lockgate::Error> {
    pass_at(SHORT, 1024, plan, change)
}

fn pass_at(
    pace: Pace,
    ring: u32,
    plan: Plan,
    change: impl FnMut(u64, &mut Vec<u8>) -> Sent + Send + 'static,
) -> Result<Pass, lockgate::Error> {
    let network = Network::new(Arc::new(SystemClock::new()), plan);
    let mut registry = Registry::new();
    registry.register(network.factory()).unwrap();
    let config = ReceiverConfig {
        groups: vec![GROUP.parse::<Group>().unwrap()],
        ring,
        batch: ring.min(64),
        ..ReceiverConfig::default()
    };
    let mut setup = Setup {
        receiver: registry.open_receiver("loopback", &config)?,
        outlet: Box::new(Through { network, change }),
        source: SOURCE.parse().unwrap(),
        destination: GROUP.parse().unwrap(),
    };
    let pass = pass::run(&mut setup, &pace, PAYLOAD, &Interrupt::default())?;
    setup.receiver.close()?;
    Ok(pass)
}

fn plan(rules: &str) -> Plan {
    let text = format!("seed = 7\n{rules}");
    Plan::from_toml(&text, Arc::new(SystemClock::new())).unwrap()
}

#[test]
fn a_sound_stream_passes_with_every_packet() {
    let pass = pass(Plan::quiet(), |_, _| Sent::Yes).unwrap();
    assert_eq!((pass.sent, pass.unique), (SHORT.packets, SHORT.packets));
    assert_eq!(pass.wrong(), None);
    assert_eq!(pass.losses.total(), 0);
    let latency = pass.latency.expect("packets have arrived");
    assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.p99_9);
    assert!(latency.p99_9 <= latency.max && latency.max > 0);
    assert!(pass.packets_per_second > 0);
}

#[test]
fn what_is_lost_and_counted_is_not_wrong() {
    // Nothing holds the sender back, and the ring has one place.
    let flood = Pace {
        under_way: None,
        ..SHORT
    };
    let pass = pass_at(flood, 1, Plan::quiet(), |_, _| Sent::Yes).unwrap();
    assert_eq!(pass.sent, SHORT.packets);
    assert!(pass.missing() > 0, "{pass:?}");
    assert_eq!(pass.losses.ring_full, Some(pass.missing()));
    assert_eq!(pass.wrong(), None);
}

#[test]
fn a_changed_byte_is_found() {
    let pass = pass(Plan::quiet(), |number, payload| {
        if number == 77 {
            payload[200] ^= 1;
        }
        Sent::Yes
    })
    .unwrap();
    let wrong = pass.wrong().expect("it is found");
    assert!(wrong.contains("the byte at offset 200 differs"), "{wrong}");
    assert_eq!(pass.bad, 1);
}

#[test]
fn a_packet_that_was_never_sent_on_is_missing_and_not_counted_as_lost() {
    let pass = pass(Plan::quiet(), |number, _| {
        if number % 1_000 == 500 {
            Sent::No
        } else {
            Sent::Yes
        }
    })
    .unwrap();
    let wrong = pass.wrong().expect("it is found");
    assert!(
        wrong.contains("2 packets are missing, and only 0 were counted as lost"),
        "{wrong}"
    );
}

#[test]
fn a_lost_tail_and_a_lost_window_do_not_stall_the_pass() {
    let started = std::time::Instant::now();
    let pass = pass(Plan::quiet(), |number, _| {
        if (500..600).contains(&number) || number >= 1_990 {
            Sent::No
        } else {
            Sent::Yes
        }
    })
    .unwrap();
    assert_eq!(pass.missing(), 110);
    assert!(started.elapsed() < Duration::from_secs(5), "{pass:?}");
}

#[test]
fn a_double_is_found_and_a_late_one_is_only_counted() {
    let double = pass(
        plan("[[rules]]\nsite = \"loopback.receive\"\ncall = 5\nduplicate = 1\n"),
        |_, _| Sent::Yes,
    )
    .unwrap();
    let wrong = double.wrong().expect("it is found");
    assert!(wrong.contains("1 packets arrived twice"), "{wrong}");

    let late = pass(
        plan("[[rules]]\nsite = \"loopback.receive\"\ncall = 5\nreorder = 3\n"),
        |_, _| Sent::Yes,
    )
    .unwrap();
    assert_eq!(late.wrong(), None);
    assert_eq!(late.reordered, 1);
}

#[test]
fn a_wrong_source_is_found() {
    let pass = pass(Plan::quiet(), |number, _| {
        if number == 3 {
            Sent::FromElsewhere
        } else {
            Sent::Yes
        }
    })
    .unwrap();
    let wrong = pass.wrong().expect("it is found");
    assert!(wrong.contains("arrived from 127.0.0.2:47001"), "{wrong}");
}

#[test]
fn an_error_of_the_sender_ends_the_pass_and_is_kept() {
    let pass = pass(Plan::quiet(), |number, _| {
        if number == 10 {
            Sent::Failed(Errno::NODEV)
        } else {
            Sent::Yes
        }
    })
    .unwrap();
    assert_eq!(pass.sent, 10);
    let error = pass.send_error.expect("the error is kept");
    assert_eq!(Exit::of(&error), Exit::NoHardware);
}

#[test]
fn an_error_of_the_receiver_is_the_result() {
    let error = pass(
        plan("[[rules]]\nsite = \"loopback.receive\"\ncall = 9\nerror = 5\n"),
        |_, _| Sent::Yes,
    )
    .unwrap_err();
    assert_eq!(error.errno(), Some(Errno::IO));
}

#[test]
fn judging_gives_each_outcome_its_own_exit() {
    let judged = |pass: Result<Pass, lockgate::Error>| {
        let mut test = SelfTest::new("loopback", String::new());
        test.judge(pass, &Interrupt::default());
        test.exit
    };
    assert_eq!(judged(pass(Plan::quiet(), |_, _| Sent::Yes)), Exit::Ok);
    // So few that the window never stalls.
    let few = Pace {
        packets: 10,
        ..SHORT
    };
    assert_eq!(
        judged(pass_at(few, 1024, Plan::quiet(), |_, _| Sent::No)),
        Exit::NoPackets
    );
    let one_missing = pass(Plan::quiet(), |number, _| {
        if number == 5 { Sent::No } else { Sent::Yes }
    });
    assert_eq!(judged(one_missing), Exit::Verification);
    let not_sent = pass(Plan::quiet(), |_, _| Sent::Failed(Errno::PERM));
    assert_eq!(judged(not_sent), Exit::Permission);
}

#[test]
fn a_thread_that_does_not_start_is_out_of_something() {
    for raw in [11, 12] {
        let error = pass::no_thread(std::io::Error::from_raw_os_error(raw));
        assert_eq!(Exit::of(&error), Exit::Resource, "{error}");
        assert!(error.to_string().contains("ulimit -u"), "{error}");
    }
}
