//! Tests of the open receiver: its states, what reaches the provider, and what a drop does.

#![cfg(not(loom))]

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::Errno;
use crate::receive::{Descriptor, TimestampMode, WaitMode};
use crate::registry::{Capabilities, Capability, Factory, Origin};

/// What the provider below was asked for, and what it shall answer.
#[derive(Default)]
struct Script {
    opens: AtomicU32,
    polls: AtomicU32,
    waits: AtomicU32,
    closes: AtomicU32,
    drops: AtomicU32,
    close: Mutex<Close>,
    open_fails: bool,
    poll_fails: bool,
}

#[derive(Clone, Copy, Default)]
enum Close {
    Fails,
    Panics,
    #[default]
    Succeeds,
}

impl Script {
    fn closing(close: Close) -> Arc<Self> {
        Arc::new(Self {
            close: Mutex::new(close),
            ..Self::default()
        })
    }

    fn counts(&self) -> [u32; 3] {
        [&self.polls, &self.waits, &self.closes].map(|count| count.load(Ordering::Relaxed))
    }
}

fn count(counter: &AtomicU32) {
    counter.fetch_add(1, Ordering::Relaxed);
}

struct Scripted {
    script: Arc<Script>,
    bytes: [u8; 4],
    descriptors: [Descriptor; 1],
    file: std::fs::File,
}

impl PacketReceiver for Scripted {
    fn poll(&mut self) -> Result<Batch<'_>> {
        count(&self.script.polls);
        if self.script.poll_fails {
            return Err(Error::from_errno("poll", Errno::NODEV));
        }
        Batch::new(&self.bytes[..], &self.descriptors)
            .map_err(|bad| Error::new(ErrorKind::Bug, "poll").with_source(bad))
    }

    fn wait(&mut self, _: Option<Duration>) -> Result<Readiness> {
        count(&self.script.waits);
        if self.script.poll_fails {
            return Err(Error::from_errno("wait", Errno::NODEV));
        }
        Ok(Readiness::Ready)
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(std::os::fd::AsFd::as_fd(&self.file))
    }

    fn statistics(&mut self) -> Statistics {
        Statistics {
            packets: 42,
            ..Statistics::default()
        }
    }

    fn close(&mut self) -> Result<()> {
        count(&self.script.closes);
        let close = *self.script.close.lock().unwrap();
        match close {
            Close::Fails => {
                Err(Error::new(ErrorKind::Unquiesced, "destroy queue pair").with_errno(Errno::IO))
            }
            Close::Panics => panic!("the provider's close"),
            Close::Succeeds => Ok(()),
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        count(&self.script.drops);
    }
}

struct Provider {
    description: Description,
    script: Arc<Script>,
}

impl Factory for Provider {
    fn description(&self) -> &Description {
        &self.description
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        Some(self)
    }
}

impl ReceiverFactory for Provider {
    fn validate(&self, config: &ReceiverConfig, faults: &mut ConfigFaults) {
        let mut reader = config.options.reader();
        reader.flag("loud");
        reader.finish(faults);
    }

    fn open(&self, _: &ReceiverConfig, _: &OpenContext<'_>) -> Result<Box<dyn PacketReceiver>> {
        count(&self.script.opens);
        if self.script.open_fails {
            return Err(Error::from_errno("join group", Errno::NODEV).with_object("239.7.7.7"));
        }
        Ok(Box::new(Scripted {
            script: Arc::clone(&self.script),
            bytes: *b"four",
            descriptors: [Descriptor::payload(0, 0, 4)],
            file: std::fs::File::open("/dev/null").unwrap(),
        }))
    }
}

fn registry(script: &Arc<Script>) -> Registry {
    let mut registry = Registry::new();
    registry
        .register(Arc::new(Provider {
            description: Description {
                name: Cow::Borrowed("scripted"),
                version: Cow::Borrowed("1"),
                summary: Cow::Borrowed("for tests"),
                kinds: Cow::Borrowed(&[Kind::Receiver]),
                capabilities: Capabilities::of(&[
                    Capability::Ipv4,
                    Capability::Multicast,
                    Capability::EventWait,
                ]),
                origin: Origin::linked("scripted", "1"),
            },
            script: Arc::clone(script),
        }))
        .unwrap();
    registry
}

fn config() -> ReceiverConfig {
    ReceiverConfig::multicast("eth0", ["239.7.7.7:47000".parse().unwrap()])
}

fn open(script: &Arc<Script>) -> Receiver {
    registry(script)
        .open_receiver("scripted", &config())
        .unwrap()
}

#[test]
fn a_poll_is_one_call_of_the_provider() {
    let script = Arc::new(Script::default());
    let mut receiver = open(&script);
    assert_eq!(receiver.state(), State::Open);
    let batch = receiver.poll().unwrap();
    assert_eq!(batch.get(0).unwrap().payload(), b"four");
    assert_eq!(receiver.wait(None).unwrap(), Readiness::Ready);
    assert!(receiver.readiness_fd().is_some());
    assert_eq!(script.counts(), [1, 1, 0]);
}

#[test]
fn a_closed_receiver_is_closed_once_and_answers_by_itself() {
    let script = Arc::new(Script::default());
    let mut receiver = open(&script);
    for _ in 0..3 {
        receiver.close().unwrap();
        assert_eq!(receiver.state(), State::Closed);
    }
    assert_eq!(
        receiver.poll().unwrap_err().to_string(),
        "scripted: poll: already closed"
    );
    assert_eq!(
        receiver.wait(None).unwrap_err().to_string(),
        "scripted: wait: already closed"
    );
    assert_eq!(*receiver.poll().unwrap_err().kind(), ErrorKind::Closed);
    assert!(receiver.readiness_fd().is_none());
    assert_eq!(receiver.statistics().packets, 42, "the last totals");
    drop(receiver);
    assert_eq!(script.counts(), [0, 0, 1]);
}

#[test]
fn a_failed_close_answers_the_same_failure_without_a_second_native_call() {
    let script = Script::closing(Close::Fails);
    let mut receiver = open(&script);
    let first = receiver.close().unwrap_err();
    assert_eq!(
        first.to_string(),
        "scripted: destroy queue pair: EIO (5): Input/output error"
    );
    assert_eq!(*first.kind(), ErrorKind::Unquiesced);
    // What would succeed now is not asked again.
    *script.close.lock().unwrap() = Close::Succeeds;
    for _ in 0..3 {
        assert_eq!(receiver.state(), State::Unquiesced);
        let again = receiver.close().unwrap_err();
        assert_eq!(again.to_string(), first.to_string());
        assert_eq!(again.errno(), Some(Errno::IO));
    }
    assert_eq!(
        receiver.poll().unwrap_err().to_string(),
        "scripted: poll: already closed; its close failed: \
         scripted: destroy queue pair: EIO (5): Input/output error"
    );
    assert!(receiver.wait(None).is_err());
    assert!(receiver.readiness_fd().is_none());
    drop(receiver);
    assert_eq!(script.counts(), [0, 0, 1]);
}

#[test]
fn a_close_that_panics_is_not_asked_again() {
    let script = Script::closing(Close::Panics);
    let mut receiver = open(&script);
    let panicked = catch_unwind(AssertUnwindSafe(|| receiver.close()));
    assert!(panicked.is_err(), "the panic is the caller's to see");
    assert_eq!(receiver.state(), State::Unquiesced);
    assert_eq!(
        receiver.close().unwrap_err().to_string(),
        "scripted: close: not proven quiet, kept in the quarantine; the provider panicked in its close"
    );
    drop(receiver);
    assert_eq!(script.counts(), [0, 0, 1]);
}

#[test]
fn errors_name_the_provider() {
    let script = Arc::new(Script {
        poll_fails: true,
        ..Script::default()
    });
    let mut receiver = open(&script);
    for (error, operation) in [
        (receiver.poll().unwrap_err(), "poll"),
        (receiver.wait(None).unwrap_err(), "wait"),
    ] {
        assert_eq!(
            error.to_string(),
            format!("scripted: {operation}: ENODEV (19): No such device")
        );
    }
    assert_eq!(
        receiver.state(),
        State::Open,
        "a failed poll closes nothing"
    );

    let script = Arc::new(Script {
        open_fails: true,
        ..Script::default()
    });
    let error = registry(&script)
        .open_receiver("scripted", &config())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "scripted: join group 239.7.7.7: ENODEV (19): No such device"
    );
}

#[test]
fn what_is_not_claimed_never_reaches_the_provider() {
    let script = Arc::new(Script::default());
    let registry = registry(&script);
    type Change = fn(&mut ReceiverConfig);
    let cases: [(Change, &str, &str); 4] = [
        (
            |config| config.wait = WaitMode::BusyPoll,
            "busy-poll",
            "wait",
        ),
        (
            |config| config.timestamps = TimestampMode::Hardware,
            "hardware-timestamps",
            "timestamps",
        ),
        (
            |config| config.groups[0] = "[ff15::7]:47000".parse().unwrap(),
            "ipv6",
            "groups",
        ),
        (
            |config| {
                config.groups.clear();
                config.unicast = Some("[::1]:47000".parse().unwrap());
            },
            "ipv6",
            "unicast",
        ),
    ];
    for (change, capability, field) in cases {
        let mut config = config();
        change(&mut config);
        let error = registry.open_receiver("scripted", &config).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Capability);
        assert_eq!(
            error.to_string(),
            format!(
                "scripted: open receiver {capability}: not claimed by this provider; \
                 field {field} asks for it; claimed: ipv4, multicast, event-wait; \
                 remedy: ask for something else in this field, or open another provider by name"
            )
        );
    }
    assert_eq!(script.opens.load(Ordering::Relaxed), 0);
}

#[test]
fn faults_of_core_and_provider_are_told_together_and_before_the_open() {
    let script = Arc::new(Script::default());
    let mut config = config();
    config.vlan = Some(5000);
    config.wait = WaitMode::BusyPoll;
    config.options.set("loud", "very");
    config.options.set("soft", true);
    let error = registry(&script)
        .open_receiver("scripted", &config)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "scripted: open receiver: 3 faults in the configuration\
         \n  vlan: value 5000 is reserved; allowed: 0 to 4094\
         \n  options.loud: value \"very\" is not a flag; allowed: true or false\
         \n  options.soft: value true is not known; allowed: loud"
    );
    assert_eq!(error.faults().unwrap().list().len(), 3);
    assert_eq!(script.opens.load(Ordering::Relaxed), 0);
}

/// Passes polls on and counts them, as a decorator does.
struct Around {
    inner: Box<dyn PacketReceiver>,
    polls: Arc<AtomicU32>,
}

impl PacketReceiver for Around {
    fn poll(&mut self) -> Result<Batch<'_>> {
        count(&self.polls);
        self.inner.poll()
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        self.inner.wait(timeout)
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn close(&mut self) -> Result<()> {
        self.inner.close()
    }
}

#[test]
fn a_decorator_is_put_around_the_provider() {
    let script = Arc::new(Script::default());
    let polls = Arc::new(AtomicU32::new(0));
    let decorate = |inner| -> Box<dyn PacketReceiver> {
        let polls = Arc::clone(&polls);
        Box::new(Around { inner, polls })
    };
    let mut receiver = open(&script).decorate(decorate).decorate(decorate);
    assert_eq!(receiver.poll().unwrap().len(), 1);
    assert_eq!(polls.load(Ordering::Relaxed), 2);
    assert_eq!(script.counts(), [1, 0, 0]);
    // A provided method that the decorator doesn't pass on is the trait's, not the provider's.
    assert!(receiver.readiness_fd().is_none());
    receiver.close().unwrap();
    drop(receiver);
    assert_eq!(script.counts(), [1, 0, 1]);
    assert_eq!(script.drops.load(Ordering::Relaxed), 1);
}

#[test]
fn a_decorator_that_panics_takes_the_provider_with_it_and_nothing_else() {
    let script = Arc::new(Script::default());
    let receiver = open(&script);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        receiver.decorate(|_inner| panic!("the decorator"))
    }));
    assert!(panicked.is_err());
    assert_eq!(script.drops.load(Ordering::Relaxed), 1, "dropped once");
    assert_eq!(script.counts(), [0, 0, 0], "its drop is all that is left");
}

/// Counts the records that a drop leaves, by level.
#[derive(Clone, Default)]
struct Log {
    records: Arc<Mutex<Vec<tracing::Level>>>,
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        if event.metadata().target().starts_with("lockgate::receive") {
            self.records.lock().unwrap().push(*event.metadata().level());
        }
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn logged(act: impl FnOnce()) -> Vec<tracing::Level> {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), act);
    let records = log.records.lock().unwrap();
    records.clone()
}

#[test]
fn a_drop_without_close_closes_and_logs_once() {
    for (close, level) in [
        (Close::Succeeds, tracing::Level::DEBUG),
        (Close::Fails, tracing::Level::WARN),
        (Close::Panics, tracing::Level::WARN),
    ] {
        let script = Script::closing(close);
        let receiver = open(&script);
        assert_eq!(logged(|| drop(receiver)), [level]);
        assert_eq!(script.counts(), [0, 0, 1]);
        assert_eq!(script.drops.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_drop_after_a_close_logs_nothing_and_closes_nothing() {
    for close in [Close::Succeeds, Close::Fails] {
        let script = Script::closing(close);
        let mut receiver = open(&script);
        let _ = receiver.close();
        assert!(logged(|| drop(receiver)).is_empty());
        assert_eq!(script.counts(), [0, 0, 1]);
    }
}

#[test]
fn a_drop_while_unwinding_does_not_abort() {
    let script = Script::closing(Close::Panics);
    let receiver = open(&script);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _receiver = receiver;
        panic!("the application");
    }));
    assert_eq!(
        panicked.unwrap_err().downcast_ref::<&str>(),
        Some(&"the application")
    );
    assert_eq!(script.counts(), [0, 0, 1]);
}

#[test]
fn a_receiver_moves_between_threads() {
    fn moves<T: Send>() {}
    moves::<Receiver>();
}

#[test]
fn a_receiver_prints_provider_and_state() {
    let mut receiver = open(&Arc::new(Script::default()));
    receiver.close().unwrap();
    assert_eq!(
        format!("{receiver:?}"),
        "Receiver { provider: \"scripted\", state: Closed, .. }"
    );
}
