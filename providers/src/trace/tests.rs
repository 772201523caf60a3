//! What `trace` tells, seen by a subscriber that writes it down.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate::Errno;
use lockgate::clock::ManualClock;
use lockgate::receive::{Event, PacketReceiver};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

use super::Trace;
use crate::testing::{Script, polled};

/// Writes events down as `SPAN LEVEL message field=value`, with the spans that are entered.
#[derive(Clone, Default)]
struct Log {
    shared: Arc<Mutex<Written>>,
}

#[derive(Default)]
struct Written {
    lines: Vec<String>,
    /// The spans that are entered, innermost last.
    entered: Vec<u64>,
    /// Every span that was made; its number is its place and one.
    spans: Vec<String>,
}

impl Log {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().unwrap().lines)
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => write!(self.0, " {value:?}").unwrap(),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let mut line = Line(attributes.metadata().name().to_owned());
        attributes.record(&mut line);
        let mut shared = self.shared.lock().unwrap();
        shared.spans.push(line.0);
        Id::from_u64(shared.spans.len() as u64)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut shared = self.shared.lock().unwrap();
        let span = match shared.entered.last() {
            Some(id) => shared.spans[*id as usize - 1].clone(),
            None => "no span".to_owned(),
        };
        let mut line = Line(format!("[{span}] {}", event.metadata().level()));
        event.record(&mut line);
        shared.lines.push(line.0);
    }
    fn enter(&self, span: &Id) {
        self.shared.lock().unwrap().entered.push(span.into_u64());
    }
    fn exit(&self, span: &Id) {
        assert_eq!(
            self.shared.lock().unwrap().entered.pop(),
            Some(span.into_u64()),
            "spans are left in the order in which they were entered"
        );
    }
}

/// Runs `check` with a scripted receiver under `trace`, on a clock that it moves.
fn with_trace(check: impl FnOnce(&Script, &ManualClock, &Log, &mut dyn PacketReceiver)) {
    let (script, clock, log) = (Script::new(), Arc::new(ManualClock::new()), Log::default());
    tracing::subscriber::with_default(log.clone(), || {
        let mut receiver = Trace::new("feed-a")
            .clock(clock.clone())
            .wrap(script.receiver());
        assert_eq!(
            log.take(),
            ["[receiver name=\"feed-a\"] DEBUG receiver decorated"]
        );
        check(&script, &clock, &log, &mut *receiver);
    });
}

const SPAN: &str = "[receiver name=\"feed-a\"]";

#[test]
fn traffic_and_losses_are_told_once_an_interval() {
    with_trace(|script, clock, log, receiver| {
        script.numbers([1, 2, 3]);
        script.numbers([4]);
        assert_eq!(polled(receiver), [1, 2, 3]);
        assert_eq!(polled(receiver), [4]);
        assert_eq!(polled(receiver), [0; 0]);
        assert_eq!(log.take(), [""; 0], "nothing within the interval");
        script.lose(5);
        clock.advance(Duration::from_secs(1));
        assert_eq!(polled(receiver), [0; 0]);
        assert_eq!(
            log.take(),
            [
                format!("{SPAN} DEBUG receiver traffic polls=3 empty=1 packets=4 bytes=16"),
                format!("{SPAN} WARN packets lost place=\"kernel-drop\" lost=5 total=5"),
            ]
        );
        script.lose(7);
        clock.advance(Duration::from_secs(1));
        polled(receiver);
        assert_eq!(
            log.take(),
            [
                format!("{SPAN} DEBUG receiver traffic polls=1 empty=1 packets=0 bytes=0"),
                format!("{SPAN} WARN packets lost place=\"kernel-drop\" lost=2 total=7"),
            ]
        );
    });
}

#[test]
fn a_storm_of_failures_is_told_once_and_counted() {
    with_trace(|script, clock, log, receiver| {
        for _ in 0..4 {
            script.error(Errno::IO);
            assert!(receiver.poll().is_err());
        }
        assert_eq!(log.take().len(), 1, "the first of four");
        clock.advance(Duration::from_secs(1));
        script.error(Errno::IO);
        assert!(receiver.poll().is_err());
        let lines = log.take();
        assert!(lines[1].contains("ERROR poll failed"), "{lines:?}");
        assert!(
            lines[1].contains("EIO (5)") && lines[1].contains("suppressed=3"),
            "{lines:?}"
        );
    });
}

#[test]
fn events_and_the_close_are_told_within_the_span() {
    with_trace(|script, _, log, receiver| {
        script.event(Event::LinkDown {
            interface: "eth0".to_owned(),
        });
        assert!(receiver.take_event().is_some());
        assert!(receiver.take_event().is_none());
        assert_eq!(
            log.take(),
            [format!(
                "{SPAN} INFO receiver event event=LinkDown {{ interface: \"eth0\" }}"
            )]
        );
        script.numbers([1, 2]);
        polled(receiver);
        receiver.close().unwrap();
        assert_eq!(
            log.take(),
            [
                format!("{SPAN} DEBUG receiver traffic polls=1 empty=0 packets=2 bytes=8"),
                format!("{SPAN} INFO receiver closed packets=2 bytes=8 batches=1 lost=0"),
            ]
        );
    });
}

#[test]
fn a_failed_close_is_told_and_passed_on() {
    with_trace(|script, _, log, receiver| {
        script.fail_close(Errno::BUSY);
        let error = receiver.close().unwrap_err();
        assert_eq!(error.errno(), Some(Errno::BUSY));
        let lines = log.take();
        assert!(
            lines.last().unwrap().contains("ERROR close failed"),
            "{lines:?}"
        );
    });
}
