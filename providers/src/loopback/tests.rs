//! Tests of the loopback provider: what matches, what is counted where, what the plan does, and the ring between two threads.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lockgate::clock::ManualClock;
use lockgate::custody::{Domain, Live};
use lockgate::fault::{Class, Plan, Rule, Truncate};
use lockgate::receive::{
    ChecksumPolicy, Event, Readiness, Receiver, ReceiverConfig, State, Timestamp, TimestampMode,
    WaitMode,
};
use lockgate::registry::Registry;
use lockgate::{Errno, ErrorKind};

use super::*;

const GROUP: &str = "239.7.7.7:47000";

struct Bench {
    clock: Arc<ManualClock>,
    network: Network,
    registry: Registry,
}

fn bench(plan: Plan) -> Bench {
    let clock = Arc::new(ManualClock::new());
    let network = Network::new(clock.clone(), plan);
    let mut registry = Registry::new();
    registry.register(network.factory()).unwrap();
    Bench {
        clock,
        network,
        registry,
    }
}

fn config(groups: &[&str]) -> ReceiverConfig {
    ReceiverConfig {
        groups: groups.iter().map(|group| group.parse().unwrap()).collect(),
        ring: 16,
        batch: 8,
        ..ReceiverConfig::default()
    }
}

impl Bench {
    fn open(&self, config: &ReceiverConfig) -> Receiver {
        self.registry.open_receiver(NAME, config).unwrap()
    }

    fn send(&self, destination: &str, payload: &[u8]) {
        self.send_from("10.0.0.1:9", destination, None, payload);
    }

    fn send_from(&self, source: &str, destination: &str, vlan: Option<u16>, payload: &[u8]) {
        self.network
            .sender()
            .send(&Datagram {
                source: source.parse().unwrap(),
                destination: destination.parse().unwrap(),
                payload,
                vlan,
            })
            .unwrap();
    }
}

/// Everything that a receiver has, by polling until nothing comes.
fn drain(receiver: &mut Receiver) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let batch = receiver.poll().unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(|packet| packet.payload().to_vec()));
    }
}

fn numbers(receiver: &mut Receiver) -> Vec<u8> {
    drain(receiver).iter().map(|payload| payload[0]).collect()
}

#[test]
fn a_receiver_gets_exactly_what_matches() {
    let bench = bench(Plan::quiet());
    let from_one = "232.1.1.1:5000"
        .parse::<lockgate::receive::Group>()
        .unwrap();
    let cases: Vec<(ReceiverConfig, &[u8])> = vec![
        (config(&[GROUP]), &[1, 6]),
        (config(&["239.7.7.7:47001"]), &[2]),
        (config(&["239.7.7.8:47000", "[ff15::7]:47000"]), &[3, 4]),
        (
            ReceiverConfig {
                groups: vec![from_one.from_sources(["10.0.0.2".parse().unwrap()])],
                ..config(&[])
            },
            &[8],
        ),
        (
            ReceiverConfig {
                vlan: Some(7),
                ..config(&[GROUP])
            },
            &[6],
        ),
        (
            ReceiverConfig {
                unicast: Some("10.9.9.9:5000".parse().unwrap()),
                ..config(&[])
            },
            &[5],
        ),
        (
            ReceiverConfig {
                unicast: Some("0.0.0.0:5000".parse().unwrap()),
                ..config(&[])
            },
            &[5],
        ),
    ];
    let mut receivers: Vec<_> = cases.iter().map(|(config, _)| bench.open(config)).collect();
    bench.send(GROUP, &[1]);
    bench.send("239.7.7.7:47001", &[2]);
    bench.send("239.7.7.8:47000", &[3]);
    bench.send_from("[fd00::1]:9", "[ff15::7]:47000", None, &[4]);
    bench.send("10.9.9.9:5000", &[5]);
    bench.send_from("10.0.0.1:9", GROUP, Some(7), &[6]);
    bench.send_from("10.0.0.1:9", "232.1.1.1:5000", None, &[7]);
    bench.send_from("10.0.0.2:9", "232.1.1.1:5000", None, &[8]);
    bench.send("239.99.99.99:1", &[9]);
    for (receiver, (config, expected)) in receivers.iter_mut().zip(&cases) {
        assert_eq!(numbers(receiver), *expected, "{config:?}");
        let filtered = receiver.statistics().losses.filtered;
        assert_eq!(filtered, Some(9 - expected.len() as u64), "{config:?}");
    }
    let counters = bench.network.counters();
    assert_eq!((counters.sent, counters.unclaimed), (9, 2), "7 and 9");
}

#[test]
fn two_networks_do_not_see_each_other() {
    let (left, right) = (bench(Plan::quiet()), bench(Plan::quiet()));
    let mut receiver = right.open(&config(&[GROUP]));
    left.send(GROUP, &[1]);
    assert!(drain(&mut receiver).is_empty());
    assert_eq!(right.network.counters(), Counters::default());
    assert_eq!((left.network.attached(), right.network.attached()), (0, 1));
}

#[test]
fn a_full_ring_and_a_long_payload_are_counted_exactly() {
    let bench = bench(Plan::quiet());
    let mut receiver = bench.open(&config(&[GROUP]));
    for number in 0..20 {
        bench.send(GROUP, &[number]);
    }
    assert_eq!(numbers(&mut receiver), (0..16).collect::<Vec<_>>());
    bench.send(GROUP, &[1; 2048]);
    bench.send(GROUP, &[1; 2049]);
    assert_eq!(drain(&mut receiver), [vec![1; 2048]]);
    let statistics = receiver.statistics();
    assert_eq!(statistics.losses.ring_full, Some(4));
    assert_eq!(statistics.losses.truncated, Some(1));
    assert_eq!((statistics.packets, statistics.bytes), (17, 16 + 2048));
    assert_eq!(statistics.losses.no_buffer, None, "there is no such place");
}

#[test]
fn a_batch_keeps_its_slots_until_the_next_call() {
    let bench = bench(Plan::quiet());
    let config = ReceiverConfig {
        ring: 4,
        batch: 4,
        ..config(&[GROUP])
    };
    let mut receiver = bench.open(&config);
    for number in 0..4 {
        bench.send(GROUP, &[number]);
    }
    let batch = receiver.poll().unwrap();
    bench.send(GROUP, &[9]);
    let payloads: Vec<_> = batch.iter().map(|packet| packet.payload()[0]).collect();
    assert_eq!(payloads, [0, 1, 2, 3], "nothing is written over a batch");
    assert!(drain(&mut receiver).is_empty());
    assert_eq!(receiver.statistics().losses.ring_full, Some(1));
    bench.send(GROUP, &[5]);
    assert_eq!(numbers(&mut receiver), [5]);
}

#[test]
fn the_plan_loses_duplicates_reorders_cuts_and_delays() {
    let site = "loopback.receive";
    let cases: [(Rule, &[u8]); 4] = [
        (Rule::at(site).call(2).drop_it(), &[0, 2, 3]),
        (Rule::at(site).call(2).duplicate(2), &[0, 1, 1, 1, 2, 3]),
        (Rule::at(site).call(1).reorder(2), &[1, 2, 0, 3]),
        (
            Rule::at(site).call(3).truncate(Truncate::Anywhere),
            &[0, 1, 3],
        ),
    ];
    for (rule, expected) in cases {
        let bench = bench(Plan::seeded(5).with(rule.clone()));
        let mut receiver = bench.open(&config(&[GROUP]));
        for number in 0..4 {
            bench.send(GROUP, &[number]);
        }
        assert_eq!(numbers(&mut receiver), expected, "{rule:?}");
        let counters = bench.network.counters();
        assert_eq!(
            counters.sent + counters.duplicated,
            expected.len() as u64 + counters.dropped + receiver.statistics().losses.total(),
            "{rule:?}"
        );
    }
}

#[test]
fn a_delay_runs_on_the_injected_clock() {
    let rule = Rule::at("loopback.receive")
        .call(1)
        .delay(Duration::from_millis(5));
    let bench = bench(Plan::quiet().with(rule));
    let mut receiver = bench.open(&config(&[GROUP]));
    bench.send(GROUP, &[1]);
    bench.send(GROUP, &[2]);
    assert_eq!(numbers(&mut receiver), [2]);
    bench.clock.advance(Duration::from_millis(4));
    assert!(drain(&mut receiver).is_empty());
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(receiver.wait(None).unwrap(), Readiness::Ready);
    assert_eq!(numbers(&mut receiver), [1]);
}

#[test]
fn what_is_held_back_goes_when_the_network_settles() {
    let plan = Plan::quiet().with(Rule::at("loopback.receive").times(1).reorder(9));
    let bench = bench(plan);
    let mut receiver = bench.open(&config(&[GROUP]));
    bench.send(GROUP, &[1]);
    assert!(drain(&mut receiver).is_empty());
    bench.network.settle();
    assert_eq!(numbers(&mut receiver), [1]);
}

#[test]
fn a_seed_gives_the_same_packets_again() {
    let run = |seed: u64| {
        let plan = Plan::seeded(seed)
            .with(Rule::at("loopback.receive").chance(0.2).drop_it())
            .with(Rule::at("loopback.receive").chance(0.2).reorder(3))
            .with(Rule::at("loopback.receive").chance(0.2).duplicate(1));
        let bench = bench(plan);
        let mut receiver = bench.open(&ReceiverConfig {
            ring: 1024,
            ..config(&[GROUP])
        });
        for number in 0..200 {
            bench.send(GROUP, &[number]);
        }
        bench.network.settle();
        numbers(&mut receiver)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_plan_fails_opens_sends_polls_and_closes() {
    let plan = Plan::quiet()
        .with(Rule::at("loopback.open").call(1).error(Errno::NOMEM))
        .with(Rule::at("loopback.send").call(1).error(Errno::IO))
        .with(Rule::at("loopback.receive").call(1).error(Errno::NODEV))
        .with(Rule::at("loopback.close").release(Errno::IO, Class::Ambiguous));
    let bench = bench(plan);
    let error = bench.registry.open_receiver(NAME, &config(&[GROUP]));
    assert_eq!(error.unwrap_err().errno(), Some(Errno::NOMEM));
    assert_eq!(bench.network.attached(), 0);

    let mut receiver = bench.open(&config(&[GROUP]));
    let datagram = Datagram {
        source: "10.0.0.1:9".parse().unwrap(),
        destination: GROUP.parse().unwrap(),
        payload: &[7],
        vlan: None,
    };
    let error = bench.network.sender().send(&datagram).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::IO));
    assert_eq!(bench.network.counters().sent, 0);

    bench.send(GROUP, &[7]);
    assert_eq!(receiver.wait(None).unwrap(), Readiness::Ready);
    let error = receiver.poll().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::NODEV));
    assert_eq!(numbers(&mut receiver), [7], "told once, and nothing lost");

    let domain = Arc::clone(bench.registry.domain());
    let ring = u64::from(config(&[GROUP]).ring) * 2048;
    assert_eq!((domain.live().owners, domain.live().bytes), (1, ring));
    let error = receiver.close().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unquiesced);
    assert_eq!(receiver.state(), State::Unquiesced);
    drop(receiver);
    assert_eq!(bench.network.attached(), 1, "kept, as its close failed");
    let kept = domain.quarantine().list();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].identity.to_string(), "port loopback0 (id 0)");
    assert_eq!(kept[0].class, lockgate::custody::Class::Terminal);
    assert_eq!(kept[0].bytes, ring);
    assert_eq!(kept[0].evidence.alive, lockgate::custody::Alive::Yes);
    assert_eq!(error.errno(), Some(Errno::IO));
    assert_eq!(
        error.to_string(),
        format!(
            "loopback: detach receiver loopback0: EIO (5): Input/output error; {}, {} of the quarantine",
            kept[0].class, kept[0].entry
        )
    );
}

#[test]
fn times_are_the_injected_clocks() {
    let bench = bench(Plan::quiet());
    bench.clock.advance(Duration::from_nanos(77));
    for (mode, expected) in [
        (TimestampMode::None, Timestamp::Unavailable),
        (
            TimestampMode::Software,
            Timestamp::System(lockgate::receive::Stamp::from_raw(77)),
        ),
        (
            TimestampMode::Hardware,
            Timestamp::DeviceFreeRunning(lockgate::receive::Stamp::from_raw(77)),
        ),
    ] {
        let mut receiver = bench.open(&ReceiverConfig {
            timestamps: mode,
            ..config(&[GROUP])
        });
        bench.send(GROUP, &[1]);
        let batch = receiver.poll().unwrap();
        assert_eq!(batch.get(0).unwrap().timestamp(), expected);
    }
}

#[test]
fn link_changes_are_told_once_each_and_wake_a_wait() {
    let bench = bench(Plan::quiet());
    let mut receiver = bench.open(&config(&[GROUP]));
    bench.network.set_link(false);
    bench.network.set_link(false);
    bench.send(GROUP, &[1]);
    assert_eq!(receiver.wait(None).unwrap(), Readiness::Ready);
    let interface = INTERFACE.to_owned();
    assert_eq!(
        receiver.take_event(),
        Some(Event::LinkDown {
            interface: interface.clone()
        })
    );
    assert_eq!(receiver.take_event(), None);
    assert!(drain(&mut receiver).is_empty());
    assert_eq!(bench.network.counters().link_down, 1);
    bench.network.set_link(true);
    bench.send(GROUP, &[2]);
    assert_eq!(receiver.take_event(), Some(Event::LinkUp { interface }));
    assert_eq!(numbers(&mut receiver), [2]);
}

#[test]
fn generated_packets_are_complete_in_order_and_verified() {
    let bench = bench(Plan::quiet());
    let mut config = config(&[GROUP, "239.7.7.8:47000"]);
    let order = r#"{"count": 100, "size": 61, "seed": 3}"#;
    let text = format!(r#"{{"groups": ["{GROUP}"], "options": {{"generate": {order}}}}}"#);
    config.options = ReceiverConfig::from_json(&text).unwrap().options;
    let mut receiver = bench.open(&config);
    let mut seen = 0;
    while receiver.wait(Some(Duration::ZERO)).unwrap() == Readiness::Ready {
        for packet in receiver.poll().unwrap().iter() {
            assert_eq!(packet.payload().len(), 61);
            assert_eq!(stream::verify(3, packet.payload()), Some(seen));
            assert_eq!(stream::verify(4, packet.payload()), None);
            let group = &config.groups[usize::try_from(seen % 2).unwrap()];
            assert_eq!(packet.destination(), Some(group.socket_address()));
            seen += 1;
        }
    }
    assert_eq!(seen, 100);
    assert_eq!(bench.network.counters().sent, 100);
}

#[test]
fn a_rate_runs_on_the_injected_clock() {
    let bench = bench(Plan::quiet());
    let mut config = config(&[GROUP]);
    let text = r#"{"options": {"generate": {"count": 10, "rate": 1000}}}"#;
    config.options = ReceiverConfig::from_json(text).unwrap().options;
    let mut receiver = bench.open(&config);
    assert_eq!(drain(&mut receiver).len(), 1, "the first is due at once");
    bench.clock.advance(Duration::from_micros(999));
    assert_eq!(drain(&mut receiver).len(), 0);
    bench.clock.advance(Duration::from_micros(2001));
    assert_eq!(drain(&mut receiver).len(), 3);
    bench.clock.advance(Duration::from_secs(9));
    assert_eq!(drain(&mut receiver).len(), 6);
}

#[test]
fn options_are_validated_with_every_other_fault() {
    let bench = bench(Plan::quiet());
    let cases = [
        (
            r#"{"interface": "eth0"}"#,
            "interface: value \"eth0\" is not an interface of this provider; allowed: loopback0",
        ),
        (
            r#"{"device": "mlx5_0"}"#,
            "device: value \"mlx5_0\" is not a device; allowed: leave it out: this provider has no devices",
        ),
        (
            r#"{"ring": 4194304}"#,
            "ring: value 4194304 makes a ring of 8589934592 bytes with buffer_bytes 2048; allowed: ring times buffer_bytes at most 1073741824",
        ),
        (
            r#"{"options": {"generate": {"count": 0, "size": 7}}}"#,
            "options.generate.count: value 0 is out of range; allowed: 1 or more\n  options.generate.size: value 7 is out of range; allowed: 8 to 2048",
        ),
        (
            r#"{"options": {"generate": {"count": 1, "sise": 7}}}"#,
            "unknown field `sise`",
        ),
        (
            r#"{"options": {"faults": {"seed": 1, "rules": [{"site": "a", "chance": 2}]}}}"#,
            "rules[0].chance is 2, allowed is 0 to 1",
        ),
        (
            r#"{"options": {"generat": 1}}"#,
            "options.generat: value 1 is not known; allowed: generate, faults",
        ),
    ];
    for (text, told) in cases {
        let mut config = ReceiverConfig::from_json(text).unwrap();
        config.groups = vec![GROUP.parse().unwrap()];
        let error = bench.registry.open_receiver(NAME, &config).unwrap_err();
        assert!(error.faults().is_some(), "{error}");
        assert!(
            error.to_string().contains(told),
            "{error}\nshould tell\n{told}"
        );
    }
    assert_eq!(bench.network.attached(), 0);
}

#[test]
fn a_receiver_can_have_a_plan_of_its_own() {
    let bench = bench(Plan::quiet());
    let text = r#"{"options": {"faults": {"seed": 1, "rules": [{"site": "loopback.receive", "call": 2, "drop": true}]}}}"#;
    let mut disturbed = config(&[GROUP]);
    disturbed.options = ReceiverConfig::from_json(text).unwrap().options;
    let (mut left, mut right) = (bench.open(&disturbed), bench.open(&config(&[GROUP])));
    for number in 0..3 {
        bench.send(GROUP, &[number]);
    }
    assert_eq!(numbers(&mut left), [0, 2]);
    assert_eq!(numbers(&mut right), [0, 1, 2]);
}

#[test]
fn a_bad_datagram_is_refused_with_all_its_faults() {
    let bench = bench(Plan::quiet());
    let error = bench
        .network
        .sender()
        .send(&Datagram {
            source: "[ff02::1]:0".parse().unwrap(),
            destination: GROUP.parse().unwrap(),
            payload: &[0; 65_508],
            vlan: Some(4095),
        })
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "loopback: send datagram: 5 faults in the configuration\
         \n  source: value [ff02::1]:0 is of the other family; allowed: an IPv4 address, as the destination's\
         \n  source: value [ff02::1]:0 is not a sender's address; allowed: the unicast address of a sender\
         \n  source: value 0 is not a port; allowed: 1 to 65535\
         \n  payload: value 65508 is too long; allowed: at most 65507 bytes\
         \n  vlan: value 4095 is reserved; allowed: 0 to 4094"
    );
}

#[test]
fn an_unclaimed_capability_is_refused() {
    let bench = bench(Plan::quiet());
    let mut config = config(&[GROUP]);
    config.checksums = ChecksumPolicy {
        bad: lockgate::receive::ChecksumAction::Deliver,
        ..ChecksumPolicy::default()
    };
    let error = bench.registry.open_receiver(NAME, &config).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Capability);
}

/// Senders and a receiver on threads of their own, more packets than slots: every byte of every packet, in order, or counted.
#[test]
fn the_ring_holds_between_threads() {
    for wait in [WaitMode::Event, WaitMode::BusyPoll] {
        let bench = bench(Plan::quiet());
        let mut receiver = bench.open(&ReceiverConfig {
            ring: 7,
            batch: 3,
            wait,
            ..config(&[GROUP])
        });
        let sender = bench.network.sender();
        let total = 20_000u64;
        let sending = thread::spawn(move || {
            let mut payload = [0u8; 100];
            for number in 0..total {
                stream::fill(11, number, &mut payload);
                let datagram = Datagram {
                    source: "10.0.0.1:9".parse().unwrap(),
                    destination: GROUP.parse().unwrap(),
                    payload: &payload,
                    vlan: None,
                };
                sender.send(&datagram).unwrap();
            }
        });
        let mut last = None;
        loop {
            let statistics = receiver.statistics();
            if statistics.packets + statistics.losses.total() == total {
                break;
            }
            // The last packets may be counted as lost between the look and the wait, hence the time-out.
            let _ = receiver.wait(Some(Duration::from_millis(20))).unwrap();
            for packet in receiver.poll().unwrap() {
                let number = stream::verify(11, packet.payload());
                assert!(number > last, "{number:?} after {last:?}");
                last = number;
            }
        }
        sending.join().unwrap();
        assert!(last.is_some());
    }
}

#[test]
fn the_linked_factory_has_a_network_of_its_own() {
    let mut registry = Registry::new();
    registry.register_linked(NAME).unwrap();
    assert_eq!(registry.descriptions()[0].name, NAME);
    let mut receiver = registry.open_receiver(NAME, &config(&[GROUP])).unwrap();
    assert!(drain(&mut receiver).is_empty());
    receiver.close().unwrap();
}

#[test]
fn a_network_with_frames_delivers_what_the_parser_takes() {
    use lockgate::receive::frame::{Policy, parse};

    let clock = Arc::new(ManualClock::new());
    let network = Network::with_frames(clock, Plan::quiet());
    let mut registry = Registry::new();
    registry.register(network.factory()).unwrap();
    let config = config(&[GROUP, "[ff15::7]:47000"]);
    let mut receiver = registry.open_receiver(NAME, &config).unwrap();
    let sent = [
        ("10.0.0.1:9", GROUP, None, 14),
        ("10.0.0.1:9", GROUP, Some(7), 18),
        ("[fd00::1]:9", "[ff15::7]:47000", None, 14),
    ];
    for (source, destination, vlan, _) in sent {
        let datagram = Datagram {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            payload: b"tick",
            vlan,
        };
        network.sender().send(&datagram).unwrap();
    }
    let batch = receiver.poll().unwrap();
    assert_eq!(batch.len(), sent.len());
    for (packet, (source, destination, vlan, link)) in batch.iter().zip(sent) {
        let bytes = packet.frame().unwrap();
        let frame = parse(bytes, &Policy::default()).unwrap();
        assert_eq!(frame.payload(bytes), b"tick");
        assert_eq!(packet.payload(), b"tick");
        assert_eq!(frame.l3_offset, link);
        assert_eq!(frame.source(), source.parse().unwrap());
        assert_eq!(frame.destination(), destination.parse().unwrap());
        assert_eq!(packet.vlan(), vlan);
    }
}

#[test]
fn generated_packets_of_both_families_have_senders_of_their_own() {
    let bench = bench(Plan::quiet());
    let mut config = config(&[GROUP, "[ff15::7]:47000"]);
    let text = r#"{"options": {"generate": {"count": 4}}}"#;
    config.options = ReceiverConfig::from_json(text).unwrap().options;
    let mut receiver = bench.open(&config);
    let batch = receiver.poll().unwrap();
    let senders: Vec<_> = batch
        .iter()
        .map(|packet| packet.source().unwrap().to_string())
        .collect();
    assert_eq!(
        senders,
        ["127.0.0.1:9", "[::1]:9", "127.0.0.1:9", "[::1]:9"]
    );
    assert_eq!(receiver.statistics().losses.malformed, Some(0));
}

#[test]
fn a_receiver_is_charged_to_its_domain_and_gives_everything_back() {
    let clock = Arc::new(ManualClock::new());
    let network = Network::new(clock, Plan::quiet());
    let domain = Domain::new("test", 16 * 2048);
    let mut registry = Registry::in_domain(Arc::clone(&domain));
    registry.register(network.factory()).unwrap();
    let mut first = registry.open_receiver(NAME, &config(&[GROUP])).unwrap();
    let error = registry.open_receiver(NAME, &config(&[GROUP])).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::MemoryLimit, "{error}");
    first.close().unwrap();
    drop(registry.open_receiver(NAME, &config(&[GROUP])).unwrap());
    assert_eq!(domain.live(), Live::default());
    assert_eq!(network.attached(), 0);
    domain.gate().close();
    let error = registry.open_receiver(NAME, &config(&[GROUP])).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(network.attached(), 0);
}

#[test]
fn a_close_that_did_nothing_can_be_retried_from_the_quarantine() {
    let rule = Rule::at("loopback.close").call(1);
    let bench = bench(Plan::quiet().with(rule.release(Errno::BUSY, Class::NothingDone)));
    let receiver = bench.open(&config(&[GROUP]));
    drop(receiver);
    let quarantine = bench.registry.domain().quarantine();
    let kept = quarantine.list();
    assert_eq!((kept.len(), bench.network.attached()), (1, 1));
    quarantine.retry(kept[0].entry).unwrap();
    assert_eq!(bench.network.attached(), 0);
    assert_eq!(bench.registry.domain().live(), Live::default());
}
