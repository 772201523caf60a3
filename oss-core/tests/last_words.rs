//! Dropping a domain whose quarantine is not empty leaks on purpose and says so once. A process of its own, since it
//! listens to the log.
#![cfg(not(loom))]
#![allow(clippy::expect_used, reason = "a test fails by panic")]

mod support;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use lockgate::Errno;
use lockgate::completion::{Debt, Direction, Loan, Submission};
use lockgate::custody::{Domain, Held, Identity};
use lockgate::fault::{Class, Plan, Rule};
use support::{Calls, Fake, Probe, Scripted};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

/// Collects one line for each event: level, message, and the other fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn with(&self, words: &str) -> Vec<String> {
        let lines = self.0.lock().expect("no panic under the lock");
        lines
            .iter()
            .filter(|line| line.contains(words))
            .cloned()
            .collect()
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Line(String);
        impl Visit for Line {
            fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
                let _ = write!(self.0, " {} {value:?}", field.name());
            }
        }
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().expect("no panic under the lock").push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn a_dropped_domain_leaks_its_quarantine_and_says_count_and_bytes_once() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let domain = Domain::new("lost", 1 << 20);
        let calls = Arc::new(Calls::default());
        let plan = Plan::seeded(1).with(Rule::at("mr").release(Errno::IO, Class::Ambiguous));
        let drops = Arc::new(AtomicUsize::new(0));
        let backing = Held::value(Identity::new("backing"), 100, Probe(Arc::clone(&drops)));
        let charge = domain.budget().reserve(4096).expect("fits").commit();
        let budget = domain.budget().clone();
        let mr = domain.admit().expect("open").own(
            Fake::new("mr", plan.site("mr"), &calls),
            vec![backing],
            charge,
        );
        let late = domain.admit().expect("open").own(
            Fake::new("mr", plan.site("mr"), &calls),
            Vec::new(),
            domain.budget().reserve(1).expect("fits").commit(),
        );
        let ledger = domain.ledger();
        let port = ledger.attach(Scripted::new());
        let buffer = Held::value(Identity::new("buffer"), 10, Probe(Arc::clone(&drops)));
        let generation = domain.serials().take().expect("not exhausted").into();
        let debt = Debt::new(Probe(Arc::clone(&drops))).lend(Loan::new(
            buffer,
            generation,
            0..10,
            Direction::Write,
        ));
        drop(
            ledger
                .submit(&port, debt, |_| Submission::Submitted)
                .expect("submitted"),
        );
        drop(mr);
        drop(ledger);

        assert_eq!(lines.with("domain dropped"), Vec::<String>::new());
        drop(domain);
        let last = lines.with("domain dropped");
        assert_eq!(last.len(), 1, "{last:?}");
        for words in ["ERROR", "domain \"lost\"", "count 2", "bytes 4206"] {
            assert!(last[0].contains(words), "{words} is missing in {last:?}");
        }
        // An owner may outlive its domain; if it can't be released, that is said, too.
        drop(late);
        assert_eq!(lines.with("its domain is gone").len(), 1);
        drop(port);
        assert_eq!(lines.with("domain dropped").len(), 1);
        assert_eq!(
            drops.load(Ordering::SeqCst),
            0,
            "backing, buffer and payload are leaked"
        );
        assert_eq!(calls.dropped(), Vec::<String>::new(), "handles are leaked");
        assert_eq!(calls.releases("mr"), 2, "one native call each");
        assert_eq!(budget.charged(), 4097, "charges are never given back");
    });
}

#[test]
fn a_dropped_domain_with_nothing_left_says_nothing() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let domain = Domain::new("clean", 0);
        let calls = Arc::new(Calls::default());
        let owner = domain.admit().expect("open").own(
            Fake::new("mr", Plan::quiet().site("mr"), &calls),
            Vec::new(),
            lockgate::custody::Charge::none(),
        );
        drop(domain);
        drop(owner);
        assert_eq!(
            calls.releases("mr"),
            1,
            "a quiet owner makes its call also then"
        );
    });
    assert_eq!(lines.with("ERROR"), Vec::<String>::new());
    assert_eq!(lines.with("owner dropped without close").len(), 1);
}

#[test]
fn a_settled_result_is_not_leaked_but_goes_with_its_domain_or_its_handle() {
    let lines = Lines::default();
    tracing::subscriber::with_default(lines.clone(), || {
        let domain = Domain::new("settled", 0);
        let lane = Scripted::new();
        lane.set_all(lockgate::completion::Fence::Succeeded);
        let ledger = domain.ledger();
        let port = ledger.attach(lane);
        let drops = [Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0))];
        let [detached, held] = drops.each_ref().map(|drops| {
            let debt = Debt::new(Probe(Arc::clone(drops)));
            let handle = ledger
                .submit(&port, debt, |_| Submission::Submitted)
                .expect("submitted");
            handle.poll().expect("not taken");
            handle
        });
        drop(detached);
        drop((domain, ledger));
        let dropped = || drops.each_ref().map(|drops| drops.load(Ordering::SeqCst));
        assert_eq!(dropped(), [1, 0]);
        drop(held);
        assert_eq!(dropped(), [1, 1]);
    });
    assert_eq!(lines.with("domain dropped"), Vec::<String>::new());
}
