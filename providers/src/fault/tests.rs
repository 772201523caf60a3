//! What `fault` makes of written batches, on a clock that the test moves.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use lockgate::Errno;
use lockgate::clock::{ManualClock, SystemClock};
use lockgate::fault::{Plan, Rule, Truncate};
use lockgate::receive::{Descriptor, PacketReceiver, Readiness, State};

use super::{Fault, Monitor};
use crate::testing::{Given, Script, SocketReceiver, numbers, polled};

const SITE: &str = "a.receive";
const MS: Duration = Duration::from_millis(1);

struct Set {
    script: Script,
    clock: Arc<ManualClock>,
    monitor: Monitor,
    receiver: Box<dyn PacketReceiver>,
    plan: Plan,
}

fn set_with(rules: &[Rule], change: impl FnOnce(Fault) -> Fault) -> Set {
    let clock = Arc::new(ManualClock::new());
    let plan = Plan::on_clock(7, clock.clone());
    for rule in rules {
        plan.add(rule.clone());
    }
    let script = Script::new();
    let fault = change(Fault::new("a", &plan));
    Set {
        monitor: fault.monitor(),
        receiver: fault.wrap(script.receiver()),
        script,
        clock,
        plan,
    }
}

fn set(rules: &[Rule]) -> Set {
    set_with(rules, |fault| fault)
}

impl Set {
    /// Feeds written batches and gives what the same number of polls delivers.
    fn feed(&mut self, batches: &[&[u32]]) -> Vec<Vec<u32>> {
        for batch in batches {
            self.script.numbers(batch.iter().copied());
        }
        batches.iter().map(|_| self.poll()).collect()
    }

    fn poll(&mut self) -> Vec<u32> {
        polled(&mut *self.receiver)
    }
}

#[test]
fn a_quiet_plan_passes_batches_untouched_and_uncopied() {
    let mut set = set(&[]);
    set.script.numbers([1, 2, 3]);
    let batch = set.receiver.poll().unwrap();
    assert_eq!(numbers(batch), [1, 2, 3]);
    assert_eq!(batch.descriptors().as_ptr().addr(), set.script.place());
    assert!(set.receiver.readiness_fd().is_none(), "as the receiver");
    assert_eq!(set.plan.calls(SITE), 3);
    assert_eq!(set.monitor.counts(), super::Counts::default());
}

#[test]
fn drops_and_duplicates_keep_the_order() {
    let mut set = set(&[
        Rule::at(SITE).call(2).drop_it(),
        Rule::at(SITE).call(3).duplicate(2),
    ]);
    assert_eq!(
        set.feed(&[&[1, 2, 3, 4], &[5]]),
        [vec![1, 3, 3, 3, 4], vec![5]]
    );
    let counts = set.monitor.counts();
    assert_eq!((counts.dropped, counts.duplicated), (1, 2));
    let statistics = set.receiver.statistics();
    assert_eq!(
        (statistics.packets, statistics.bytes, statistics.batches),
        (6, 24, 2)
    );
    assert!(set.plan.unfired().is_empty());
}

#[test]
fn a_batch_of_which_everything_is_dropped_is_empty_and_not_counted() {
    let mut set = set(&[Rule::at(SITE).drop_it()]);
    assert_eq!(set.feed(&[&[1, 2]]), [vec![0; 0]]);
    assert_eq!(set.receiver.statistics().batches, 0);
}

#[test]
fn a_cut_packet_says_so_and_keeps_its_length_on_the_wire() {
    let mut set = set(&[Rule::at(SITE).truncate(Truncate::To(3))]);
    let frame: Vec<u8> = (0..60).collect();
    set.script.batch([
        Given::payload(b"abcdef"),
        Given::payload(b"ab"),
        Given::payload(&frame).with(|one| {
            one.flags |= Descriptor::FRAME;
            one.payload_offset = 42;
            one.payload_len = 10;
        }),
    ]);
    let batch = set.receiver.poll().unwrap();
    let seen: Vec<_> = batch
        .iter()
        .map(|one| (one.payload(), one.is_truncated(), one.descriptor().wire_len))
        .collect();
    assert_eq!(
        seen,
        [
            (&b"abc"[..], true, 6),
            (b"ab", false, 2),
            (&[42, 43, 44], true, 60)
        ]
    );
    assert_eq!(batch.get(2).unwrap().frame(), Some(&frame[..45]));
    assert_eq!(set.monitor.counts().truncated, 2);
}

#[test]
fn a_delayed_packet_comes_when_the_clock_says_so() {
    let mut set = set(&[
        Rule::at(SITE).call(1).delay(20 * MS),
        Rule::at(SITE).call(2).delay(10 * MS),
    ]);
    assert_eq!(set.feed(&[&[1, 2, 3]]), [vec![3]]);
    set.clock.advance(9 * MS);
    assert_eq!(set.poll(), [0; 0]);
    set.clock.advance(MS);
    assert_eq!(set.poll(), [2]);
    set.script.numbers([4]);
    set.clock.advance(10 * MS);
    assert_eq!(
        set.poll(),
        [1],
        "what is due comes first, in a batch of its own"
    );
    assert_eq!(set.poll(), [4]);
    assert_eq!(set.monitor.counts().delayed, 2);
}

#[test]
fn packets_due_together_come_in_the_order_of_their_times() {
    let mut set = set(&[
        Rule::at(SITE).call(1).delay(20 * MS),
        Rule::at(SITE).call(2).delay(10 * MS),
        Rule::at(SITE).call(3).delay(10 * MS),
    ]);
    assert_eq!(set.feed(&[&[1, 2, 3]]), [vec![0; 0]]);
    set.clock.advance(20 * MS);
    assert_eq!(set.poll(), [2, 3, 1]);
}

#[test]
fn a_reordered_packet_comes_behind_exactly_so_many_later_ones() {
    for (behind, batches, expected) in [
        (1, vec![&[1, 2, 3][..]], vec![vec![2, 1, 3]]),
        (2, vec![&[1, 2, 3]], vec![vec![2, 3, 1]]),
        (
            3,
            vec![&[1, 2, 3], &[4, 5]],
            vec![vec![2, 3], vec![4, 1, 5]],
        ),
        (
            2,
            vec![&[1], &[2], &[3], &[4]],
            vec![vec![], vec![2], vec![3, 1], vec![4]],
        ),
    ] {
        let mut set = set(&[Rule::at(SITE).call(1).reorder(behind)]);
        assert_eq!(set.feed(&batches), expected, "behind {behind}");
        assert_eq!(set.monitor.counts().reordered, 1);
    }
}

#[test]
fn everything_about_a_copied_packet_is_kept() {
    let mut set = set(&[Rule::at(SITE).call(1).reorder(1)]);
    let given = |number: u32| {
        Given::number(number).with(|one| {
            one.interface = 10 + number;
            one.vlan = 5;
            one.flags = Descriptor::VLAN;
            one.timestamp = u64::from(number);
            one.clock = 1;
        })
    };
    set.script.batch([given(1), given(2)]);
    let batch = set.receiver.poll().unwrap();
    for (packet, number) in batch.iter().zip([2, 1]) {
        let expected = Descriptor {
            offset: packet.descriptor().offset,
            ..given(number).descriptor
        };
        assert_eq!(*packet.descriptor(), expected);
    }
    assert_eq!(numbers(batch), [2, 1]);
}

#[test]
fn a_reordered_packet_is_not_lost_when_the_feed_ends() {
    let mut set = set_with(&[Rule::at(SITE).call(1).reorder(100)], |fault| {
        fault.patience(50 * MS)
    });
    assert_eq!(set.feed(&[&[1, 2]]), [vec![2]]);
    set.clock.advance(49 * MS);
    assert_eq!(set.poll(), [0; 0]);
    set.clock.advance(MS);
    assert_eq!(set.poll(), [1]);
}

#[test]
fn an_error_takes_nothing_away() {
    let mut set = set(&[
        Rule::at("a.poll").call(2).error(Errno::IO),
        Rule::at("a.wait").call(1).error(Errno::NOMEM),
    ]);
    set.script.numbers([1]);
    set.script.numbers([2]);
    assert_eq!(set.poll(), [1]);
    let error = set.receiver.poll().unwrap_err();
    assert_eq!(
        (error.errno(), error.operation()),
        (Some(Errno::IO), "poll")
    );
    assert!(
        error
            .detail()
            .unwrap()
            .contains("call 2 of a fault plan with seed 7"),
        "{error}"
    );
    assert_eq!(
        set.receiver.wait(None).unwrap_err().errno(),
        Some(Errno::NOMEM)
    );
    assert_eq!(set.receiver.wait(None).unwrap(), Readiness::Ready);
    assert_eq!(set.poll(), [2]);
    assert_eq!(set.monitor.counts().errors, 2);
}

#[test]
fn an_error_of_the_receiver_is_passed_on_and_held_packets_stay() {
    let mut set = set(&[Rule::at(SITE).call(1).delay(MS)]);
    set.script.numbers([1]);
    set.script.error(Errno::IO);
    assert_eq!(set.poll(), [0; 0]);
    assert_eq!(set.receiver.poll().unwrap_err().errno(), Some(Errno::IO));
    set.clock.advance(MS);
    assert_eq!(set.poll(), [1]);
}

#[test]
#[should_panic(expected = "fault plan: poll panics at its call 2")]
fn a_panic_of_the_plan_is_one() {
    let mut set = set(&[Rule::at("a.poll").call(2).panic()]);
    set.poll();
    set.poll();
}

#[test]
fn a_close_that_shall_fail_closes_the_receiver_and_fails() {
    let set = set(&[
        Rule::at("a.close").error(Errno::BUSY),
        Rule::at(SITE).call(1).delay(MS),
    ]);
    set.script.numbers([1]);
    let mut receiver = crate::testing::open(set.receiver);
    assert!(receiver.poll().unwrap().is_empty());
    for _ in 0..2 {
        assert_eq!(receiver.close().unwrap_err().errno(), Some(Errno::BUSY));
    }
    assert_eq!(receiver.state(), State::Unquiesced);
    assert_eq!(set.script.closes(), 1);
    assert_eq!(set.monitor.counts().undelivered, 1);
}

#[test]
fn no_batch_is_larger_than_allowed_and_the_rest_comes_next_in_order() {
    let mut set = set_with(&[Rule::at(SITE).duplicate(2)], |fault| fault.batch(4));
    assert_eq!(set.feed(&[&[1, 2, 3]]), [vec![1, 1, 1, 2]]);
    set.script.numbers([4]);
    assert_eq!(set.receiver.wait(None).unwrap(), Readiness::Ready);
    assert_eq!(set.poll(), [2, 2, 3, 3]);
    assert_eq!(set.poll(), [3]);
    assert_eq!(set.poll(), [4, 4, 4]);
}

#[test]
fn beyond_the_limit_packets_are_delivered_at_once_and_counted() {
    let mut set = set_with(&[Rule::at(SITE).delay(MS)], |fault| fault.most_held(2));
    assert_eq!(set.feed(&[&[1, 2, 3, 4]]), [vec![3, 4]]);
    let counts = set.monitor.counts();
    assert_eq!((counts.delayed, counts.not_held), (2, 2));
    let settings = set.receiver.settings();
    let held = settings
        .iter()
        .find(|one| one.name == "fault.held")
        .unwrap();
    assert_eq!(
        held.granted,
        "2 delayed, 0 reordered, each by a copy; 2 held now"
    );
    assert!(
        held.warning
            .as_ref()
            .unwrap()
            .starts_with("2 were delivered at once")
    );
    set.clock.advance(MS);
    assert_eq!(set.poll(), [1, 2]);
}

#[test]
fn a_wait_is_no_longer_than_until_the_next_held_packet() {
    let mut set = set(&[Rule::at(SITE).call(1).delay(20 * MS)]);
    set.feed(&[&[1]]);
    assert_eq!(
        set.receiver.wait(Some(5 * MS)).unwrap(),
        Readiness::TimedOut
    );
    assert_eq!(set.receiver.wait(None).unwrap(), Readiness::Ready);
    assert_eq!(set.receiver.wait(Some(50 * MS)).unwrap(), Readiness::Ready);
    assert_eq!(
        set.script.waits(),
        [Some(5 * MS), Some(20 * MS), Some(20 * MS)]
    );
    set.clock.advance(20 * MS);
    assert_eq!(set.receiver.wait(None).unwrap(), Readiness::Ready);
    assert_eq!(
        set.script.waits().len(),
        3,
        "nobody is asked for what is due"
    );
    assert_eq!(set.poll(), [1]);
    assert_eq!(set.receiver.wait(None).unwrap(), Readiness::TimedOut);
    assert_eq!(set.script.waits()[3], None);
}

/// Whether a descriptor is readable within `timeout`.
fn is_readable(receiver: &dyn PacketReceiver, timeout: Duration) -> bool {
    let fd = receiver.readiness_fd().unwrap().as_raw_fd();
    super::sys::tests::is_readable(fd, timeout)
}

#[test]
fn the_descriptor_wakes_for_packets_and_for_held_ones() {
    const LONG: Duration = Duration::from_secs(10);
    let plan = Plan::on_clock(1, Arc::new(SystemClock::new()))
        .with(Rule::at(SITE).call(2).delay(20 * MS))
        .with(Rule::at(SITE).call(3).duplicate(1));
    let (socket, sender) = SocketReceiver::pair(1);
    let mut receiver = Fault::new("a", &plan).batch(1).wrap(socket);
    assert!(!is_readable(&*receiver, Duration::ZERO));
    let send = |number: u32| sender.send(&number.to_be_bytes()).unwrap();

    send(1);
    assert!(is_readable(&*receiver, LONG));
    assert_eq!(polled(&mut *receiver), [1]);
    assert!(!is_readable(&*receiver, Duration::ZERO));

    send(2);
    assert!(is_readable(&*receiver, LONG));
    let held_at = plan.clock().now();
    assert_eq!(polled(&mut *receiver), [0; 0]);
    assert!(is_readable(&*receiver, LONG), "the timer");
    assert!(plan.clock().now() - held_at >= 19 * MS);
    while plan.clock().now() - held_at < 20 * MS {
        std::hint::spin_loop();
    }
    assert_eq!(polled(&mut *receiver), [2]);
    assert!(!is_readable(&*receiver, Duration::ZERO));

    send(3);
    assert!(is_readable(&*receiver, LONG));
    assert_eq!(polled(&mut *receiver), [3]);
    assert!(
        is_readable(&*receiver, LONG),
        "the second of two is there already"
    );
    assert_eq!(polled(&mut *receiver), [3]);
    assert!(!is_readable(&*receiver, Duration::ZERO));
    receiver.close().unwrap();
    assert!(receiver.readiness_fd().is_none());
}

/// Every packet that was not dropped comes, as often as it shall, whatever the plan does to it.
#[test]
fn nothing_is_lost_or_made_up_under_random_plans() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    for round in 0..40 {
        let clock = Arc::new(ManualClock::new());
        let plan = Plan::on_clock(seed + round, clock.clone())
            .with(Rule::at(SITE).chance(0.1).drop_it())
            .with(Rule::at(SITE).chance(0.1).duplicate(3))
            .with(Rule::at(SITE).chance(0.2).delay(3 * MS))
            .with(Rule::at(SITE).chance(0.2).reorder(5))
            .with(Rule::at("a.poll").chance(0.05).error(Errno::IO));
        // The same decisions, asked for beforehand from a plan of its own.
        let twin = Plan::from_json(&plan.to_json(), clock.clone()).unwrap();
        let script = Script::new();
        let fault = Fault::new("a", &plan).batch(16);
        let monitor = fault.monitor();
        let mut receiver = fault.wrap(script.receiver());
        let mut expected = Vec::new();
        for number in 0..300 {
            let decision = twin.consult(SITE);
            if !decision.drop {
                expected.extend((0..=decision.duplicate).map(|_| number));
            }
        }
        for batch in 0..30 {
            script.numbers(batch * 10..batch * 10 + 10);
        }
        let mut seen = Vec::new();
        // Long enough for everything that is held; the patience is a second.
        for step in 0..2_000 {
            if let Ok(batch) = receiver.poll() {
                assert!(batch.len() <= 16);
                seen.extend(numbers(batch));
            }
            clock.advance(if step % 3 == 0 {
                2 * MS
            } else {
                Duration::ZERO
            });
        }
        let counts = monitor.counts();
        assert!(
            counts.dropped > 0 && counts.delayed > 0 && counts.reordered > 0,
            "{counts:?}"
        );
        assert_eq!(seen.len() as u64, receiver.statistics().packets);
        seen.sort_unstable();
        assert_eq!(seen, expected, "seed {seed} round {round}");
    }
}
