//! What stays owned when a native release fails, at every level of a tree of owners, in both classes, by close and by drop.
#![cfg(not(loom))]
#![allow(clippy::expect_used, reason = "a test fails by panic")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockgate::Errno;
use lockgate::completion::{Cause, Debt, Direction, Fence, Handle, Loan, Observation, Submission};
use lockgate::custody::{
    Alive, Class, Domain, EntryId, Held, Identity, Owner, Receipt, RetryError, Unreleased,
};
use lockgate::fault::{self, Plan, Rule};
use support::{Calls, Fake, Probe, Scripted};

/// Every object of the tree in the order in which an engine lets go, with its charge.
const OBJECTS: [(&str, u64); 7] = [
    ("qp", 8192),
    ("grant", 64),
    ("mr", 4096),
    ("cq", 2048),
    ("channel", 0),
    ("pd", 0),
    ("device", 0),
];

/// The design's table: the object whose release fails, whether a request is still open on grant and region, and what
/// stays owned. `""` is a teardown in which nothing fails.
const TABLE: [(&str, bool, &[&str]); 16] = [
    ("", false, &[]),
    ("", true, &["grant", "mr", "pd", "device"]),
    ("qp", false, &["qp", "cq", "channel", "pd", "device"]),
    (
        "qp",
        true,
        &["qp", "grant", "mr", "cq", "channel", "pd", "device"],
    ),
    ("grant", false, &["grant", "mr", "pd", "device"]),
    ("grant", true, &["grant", "mr", "pd", "device"]),
    ("mr", false, &["mr", "pd", "device"]),
    ("mr", true, &["grant", "mr", "pd", "device"]),
    ("cq", false, &["cq", "channel", "pd", "device"]),
    (
        "cq",
        true,
        &["grant", "mr", "cq", "channel", "pd", "device"],
    ),
    ("channel", false, &["channel", "device"]),
    ("channel", true, &["grant", "mr", "channel", "pd", "device"]),
    ("pd", false, &["pd", "device"]),
    ("pd", true, &["grant", "mr", "pd", "device"]),
    ("device", false, &["device"]),
    ("device", true, &["grant", "mr", "pd", "device"]),
];

/// An engine over one device. The fields go in this order when it is dropped.
struct Engine {
    qp: Owner<Fake>,
    grant: Owner<Fake>,
    mr: Owner<Fake>,
    cq: Owner<Fake>,
    channel: Owner<Fake>,
    pd: Owner<Fake>,
    device: Owner<Fake>,
}

struct Scene {
    domain: Arc<Domain>,
    plan: Plan,
    calls: Arc<Calls>,
    lane: Arc<Scripted>,
    backing_drops: Arc<AtomicUsize>,
    ids: BTreeMap<&'static str, EntryId>,
}

impl Scene {
    fn new(plan: Plan) -> (Self, Engine) {
        let domain = Domain::new("tree", 1 << 20);
        let calls = Arc::new(Calls::default());
        let backing_drops = Arc::new(AtomicUsize::new(0));
        let mut ids = BTreeMap::new();
        let mut own = |name: &'static str, deps: Vec<Arc<Held>>| {
            let bytes = OBJECTS
                .iter()
                .find(|(object, _)| *object == name)
                .map_or(0, |(_, bytes)| *bytes);
            let charge = domain.budget().reserve(bytes).expect("fits").commit();
            let site = plan.site(format!("{name}.release"));
            let admission = domain.admit().expect("open");
            let owner = admission.own(Fake::new(name, site, &calls), deps, charge);
            ids.insert(name, EntryId::Object(owner.object()));
            owner
        };
        let device = own("device", Vec::new());
        let pd = own("pd", vec![device.hold()]);
        let channel = own("channel", vec![device.hold()]);
        let cq = own("cq", vec![channel.hold(), pd.hold()]);
        let qp = own("qp", vec![cq.hold(), pd.hold()]);
        let backing = Held::value(
            Identity::new("backing"),
            4096,
            Probe(Arc::clone(&backing_drops)),
        );
        let mr = own("mr", vec![pd.hold(), backing]);
        let grant = own("grant", vec![mr.hold(), pd.hold()]);
        let scene = Self {
            domain: Arc::clone(&domain),
            plan: plan.clone(),
            calls: Arc::clone(&calls),
            lane: Scripted::new(),
            backing_drops,
            ids,
        };
        let engine = Engine {
            qp,
            grant,
            mr,
            cq,
            channel,
            pd,
            device,
        };
        (scene, engine)
    }

    fn open_request(&self, engine: &Engine) -> Handle<()> {
        let generation = self.domain.serials().take().expect("not exhausted").into();
        let loan =
            |owner: &Owner<Fake>| Loan::new(owner.hold(), generation, 0..64, Direction::ReadWrite);
        let debt = Debt::new(())
            .lend(loan(&engine.grant))
            .lend(loan(&engine.mr));
        let port = self.domain.ledger().attach(self.lane.clone());
        self.domain
            .ledger()
            .submit(&port, debt, |_| Submission::Submitted)
            .expect("submitted")
    }

    fn quarantined(&self) -> Vec<&'static str> {
        let listed: Vec<EntryId> = self
            .domain
            .quarantine()
            .list()
            .iter()
            .map(|report| report.entry)
            .collect();
        OBJECTS
            .iter()
            .map(|(name, _)| *name)
            .filter(|name| listed.contains(&self.ids[name]))
            .collect()
    }

    /// What is owned, charged and kept must be exactly this, and each native call must have been made this often.
    fn assert_retained(&self, retained: &[&str], failing: (&str, usize), told: &str) {
        assert_eq!(self.quarantined(), retained, "{told}");
        let charged: u64 = OBJECTS
            .iter()
            .filter(|(name, _)| retained.contains(name))
            .map(|(_, bytes)| bytes)
            .sum();
        let live = self.domain.live();
        assert_eq!(live.bytes, charged, "{told}: charges");
        assert_eq!(live.owners, retained.len() as u64, "{told}: owners");
        let kept_backing = retained.contains(&"mr");
        let backing_drops = self.backing_drops.load(Ordering::SeqCst);
        assert_eq!(backing_drops, usize::from(!kept_backing), "{told}: backing");
        let backing_bytes = if kept_backing { 4096 } else { 0 };
        let bytes = self.domain.quarantine().bytes();
        assert_eq!(
            bytes,
            charged + backing_bytes,
            "{told}: bytes of the quarantine"
        );
        for (name, _) in OBJECTS {
            let calls = match name {
                _ if name == failing.0 => failing.1,
                _ => usize::from(!retained.contains(&name)),
            };
            assert_eq!(self.calls.releases(name), calls, "{told}: calls for {name}");
            let dropped = self.calls.dropped().iter().any(|dropped| dropped == name);
            assert_eq!(
                dropped,
                !retained.contains(&name),
                "{told}: handle of {name}"
            );
        }
    }
}

impl Engine {
    /// Lets go child before parent, and goes on whatever fails.
    fn close(self) -> Vec<Result<Receipt, Unreleased<Fake>>> {
        [
            self.qp,
            self.grant,
            self.mr,
            self.cq,
            self.channel,
            self.pd,
            self.device,
        ]
        .map(Owner::close)
        .into_iter()
        .collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Close,
    Drop,
}

fn check(failing: &'static str, open: bool, retained: &[&str], class: fault::Class, way: Way) {
    let told = format!("{failing:?} fails, request open {open}, {class:?}, by {way:?}");
    let errno = match class {
        fault::Class::Ambiguous => Errno::IO,
        fault::Class::NothingDone => Errno::BUSY,
    };
    let plan = Plan::seeded(1);
    if !failing.is_empty() {
        plan.add(
            Rule::at(format!("{failing}.release"))
                .call(1)
                .release(errno, class),
        );
    }
    let (scene, engine) = Scene::new(plan);
    let request = open.then(|| scene.open_request(&engine));
    // An object that is held is never called, so its planned failure does not happen.
    let held = open && ["grant", "mr", "pd", "device"].contains(&failing);
    let first_calls = usize::from(!failing.is_empty() && !held);
    match way {
        Way::Close => {
            for (result, (name, bytes)) in engine.close().into_iter().zip(OBJECTS) {
                assert_eq!(result.is_err(), retained.contains(&name), "{told}: {name}");
                match result {
                    Ok(receipt) => {
                        assert_eq!(receipt.bytes(), bytes, "{told}: {name}");
                        assert_eq!(receipt.identity().kind(), name, "{told}");
                        assert!(receipt.stamp().is_some(), "{told}");
                    }
                    Err(unreleased) => check_unreleased(unreleased, &scene, name, &told),
                }
            }
        }
        Way::Drop => drop(engine),
    }
    let failing_calls = |calls| if held { ("", 0) } else { (failing, calls) };
    scene.assert_retained(retained, failing_calls(first_calls), &told);
    let class_of = |name: &str| {
        let report = scene.domain.quarantine().report(scene.ids[name]);
        report.map(|report| report.class)
    };
    for name in retained {
        let expected = match class {
            _ if *name != failing || held => Class::NeverAttempted,
            fault::Class::Ambiguous => Class::Terminal,
            fault::Class::NothingDone => Class::Retryable,
        };
        assert_eq!(class_of(name), Some(expected), "{told}: {name}");
    }

    // Nothing is called again by itself, however often one looks or maintains.
    for _ in 0..2 {
        let done = scene.domain.quarantine().maintain(100);
        assert_eq!(done.attempted(), 0, "{told}: {done:?}");
        let _ = scene.domain.quarantine().text();
    }
    scene.assert_retained(retained, failing_calls(first_calls), &told);

    // The device answers after all, so the request's loans come back.
    if let Some(request) = request {
        scene.lane.set_all(Fence::Succeeded);
        assert_eq!(request.poll(), Ok(Observation::Ready));
        assert!(matches!(request.take(), Ok(Some(_))));
    }
    if held {
        // The planned failure happens now, at the first attempt.
        let done = scene.domain.quarantine().maintain(100);
        assert_eq!(done.failed, [scene.ids[failing]], "{told}");
    }
    let quarantine = scene.domain.quarantine();
    match class {
        _ if failing.is_empty() => {}
        fault::Class::Ambiguous => {
            for _ in 0..2 {
                let refused = quarantine.retry(scene.ids[failing]);
                let Err(RetryError::Terminal(failure)) = refused else {
                    panic!("{told}: {refused:?}");
                };
                assert_eq!(failure.errno, Some(errno), "{told}");
            }
            assert_eq!(
                scene.calls.releases(failing),
                1,
                "{told}: no second native call"
            );
            let done = quarantine.maintain(100);
            assert_eq!(done.failed, [], "{told}");
            // Only the failed object and what it needs stay.
            let chain = TABLE
                .iter()
                .find(|(name, open, _)| *name == failing && !open)
                .map_or(&[][..], |(_, _, retained)| retained);
            scene.assert_retained(chain, (failing, 1), &told);
            return;
        }
        fault::Class::NothingDone => {
            let receipt = quarantine
                .retry(scene.ids[failing])
                .expect("the cause has gone");
            assert_eq!(receipt.identity().kind(), failing, "{told}");
            assert_eq!(
                scene.calls.releases(failing),
                2,
                "{told}: one explicit retry"
            );
        }
    }
    let done = quarantine.maintain(100);
    assert_eq!((done.failed.len(), done.left), (0, 0), "{told}");
    quarantine.assert_empty();
    scene.assert_retained(
        &[],
        (failing, if failing.is_empty() { 0 } else { 2 }),
        &told,
    );
    let unfired: Vec<_> = scene.plan.unfired();
    assert!(unfired.is_empty(), "{told}: {unfired:?}");
}

/// Closing again answers the same failure without a native call.
fn check_unreleased(unreleased: Unreleased<Fake>, scene: &Scene, name: &str, told: &str) {
    let calls = scene.calls.releases(name);
    let failure = unreleased.failure().cloned();
    let mut unreleased = unreleased;
    for _ in 0..2 {
        unreleased = unreleased.close().expect_err("the same failure");
        assert_eq!(unreleased.failure().cloned(), failure, "{told}: {name}");
        assert_eq!(scene.calls.releases(name), calls, "{told}: {name}");
    }
    assert_eq!(unreleased.native().name, name);
    // By hand or by drop, it ends in the quarantine.
    if name.len().is_multiple_of(2) {
        assert_eq!(unreleased.quarantine(), scene.ids[name]);
    }
}

fn table(class: fault::Class, way: Way) {
    for (failing, open, retained) in TABLE {
        check(failing, open, retained, class, way);
    }
}

#[test]
fn ambiguous_failures_by_close() {
    table(fault::Class::Ambiguous, Way::Close);
}

#[test]
fn ambiguous_failures_by_drop() {
    table(fault::Class::Ambiguous, Way::Drop);
}

#[test]
fn failures_that_did_nothing_by_close() {
    table(fault::Class::NothingDone, Way::Close);
}

#[test]
fn failures_that_did_nothing_by_drop() {
    table(fault::Class::NothingDone, Way::Drop);
}

#[test]
fn a_retry_is_refused_without_a_call_while_somebody_holds_the_object() {
    let plan = Plan::seeded(1).with(
        Rule::at("pd.release")
            .call(1)
            .release(Errno::BUSY, fault::Class::NothingDone),
    );
    let (scene, engine) = Scene::new(plan);
    let Engine {
        qp,
        grant,
        mr,
        cq,
        channel,
        pd,
        device,
    } = engine;
    for owner in [qp, grant, mr, cq, channel] {
        owner.close().expect("nothing fails");
    }
    let unreleased = pd.close().expect_err("planned");
    let entry = unreleased.quarantine();
    let held = device.close().expect_err("held by the domain").quarantine();
    assert_eq!(
        scene.domain.quarantine().retry(held),
        Err(RetryError::Held { holders: 1 })
    );
    assert_eq!(scene.calls.releases("device"), 0);
    scene.domain.quarantine().retry(entry).expect("works now");
    assert_eq!(
        scene.domain.quarantine().retry(entry),
        Err(RetryError::Unknown(entry))
    );
    // An entry for which no call was made may also be addressed exactly.
    scene
        .domain
        .quarantine()
        .retry(held)
        .expect("nobody holds it");
    scene.domain.quarantine().assert_empty();
}

#[test]
fn maintenance_is_bounded_and_goes_on_where_it_stopped() {
    let (scene, engine) = Scene::new(Plan::quiet());
    let request = scene.open_request(&engine);
    drop(engine);
    assert_eq!(scene.quarantined(), ["grant", "mr", "pd", "device"]);
    scene.lane.set_all(Fence::Succeeded);
    assert_eq!(request.poll(), Ok(Observation::Ready));
    // Parents come after their children, whatever the bound.
    for (left, name) in [(3, "grant"), (2, "mr"), (1, "pd"), (0, "device")] {
        let done = scene.domain.quarantine().maintain(1);
        assert_eq!((done.receipts.len(), done.left), (1, left));
        assert_eq!(done.receipts[0].identity().kind(), name);
    }
    assert_eq!(scene.domain.quarantine().maintain(1).attempted(), 0);
}

#[test]
fn a_panic_of_the_release_is_terminal_and_never_leaves_the_drop() {
    for way in [Way::Close, Way::Drop] {
        let (scene, engine) = Scene::new(Plan::seeded(1).with(Rule::at("qp.release").panic()));
        match way {
            Way::Close => drop(engine.close()),
            Way::Drop => drop(engine),
        }
        let report = scene
            .domain
            .quarantine()
            .report(scene.ids["qp"])
            .expect("kept");
        assert_eq!(report.class, Class::Terminal);
        let failure = report.failure().expect("a call was made");
        assert_eq!(failure.errno, None);
        let detail = failure.detail.as_deref().unwrap_or_default();
        assert!(detail.contains("planned panic of qp"), "{detail}");
        assert_eq!(scene.calls.releases("qp"), 1);
    }
}

#[test]
fn the_listing_tells_everything_as_text_and_as_json() {
    let plan =
        Plan::seeded(1).with(Rule::at("mr.release").release(Errno::IO, fault::Class::Ambiguous));
    let (scene, engine) = Scene::new(plan);
    std::thread::Builder::new()
        .name("teardown".to_owned())
        .spawn(move || drop(engine.close()))
        .expect("a thread")
        .join()
        .expect("no panic");
    // The listing, and with it the native query, runs on another thread than the teardown.
    let quarantine = scene.domain.quarantine();
    let text = quarantine.text();
    for told in [
        "quarantine of domain \"tree\": 3 entries, 8192 bytes",
        "mr fake0 (handle 7): terminal",
        "tried: fake_destroy: EIO (5): Input/output error (terminal), by thread \"teardown\" (tid ",
        "retains: 4096 bytes charged; pd fake0 (handle 7) [object ",
        "; backing [4096 bytes]",
        "waits for: its holders, then maintenance",
        "held by: 1 others",
        "evidence: alive, fake_query answers",
    ] {
        assert!(text.contains(told), "{told:?} is missing in\n{text}");
    }
    let json = quarantine.json();
    assert_eq!(json["count"], 3);
    assert_eq!(json["bytes"], 8192);
    let entries = json["entries"].as_array().expect("a list");
    let mr = entries
        .iter()
        .find(|entry| entry["identity"]["kind"] == "mr")
        .expect("the region is listed");
    assert_eq!(mr["class"], "terminal");
    assert_eq!(mr["attempts"][0]["failure"]["errno"], 5);
    assert_eq!(mr["attempts"][0]["by"]["thread"], "teardown");
    assert_eq!(mr["held"][1]["identity"]["kind"], "backing");
    assert_eq!(mr["evidence"]["alive"], "yes");
    let error = quarantine.ensure_empty().expect_err("three entries");
    assert_eq!(error.count(), 3);
    assert!(error.to_string().contains("EIO"));
}

#[test]
#[should_panic(expected = "mr fake0 (handle 7): terminal")]
fn asserting_an_empty_quarantine_panics_with_the_listing() {
    let plan =
        Plan::seeded(1).with(Rule::at("mr.release").release(Errno::IO, fault::Class::Ambiguous));
    let (scene, engine) = Scene::new(plan);
    drop(engine);
    scene.domain.quarantine().assert_empty();
}

/// A native call that hangs until it is let go.
struct Hanging {
    entered: std::sync::mpsc::Sender<()>,
    go: std::sync::mpsc::Receiver<()>,
}

impl lockgate::custody::Native for Hanging {
    fn identity(&self) -> Identity {
        Identity::new("hanging")
    }
    fn release(&mut self) -> lockgate::custody::Release {
        self.entered.send(()).expect("the test listens");
        self.go.recv().expect("the test answers");
        lockgate::custody::Release::Released(Receipt::of(self.identity()))
    }
}

#[test]
fn the_quarantine_can_be_read_while_an_attempt_hangs() {
    let domain = Domain::new("hanging", 0);
    let (entered, is_inside) = std::sync::mpsc::channel();
    let (let_go, go) = std::sync::mpsc::channel();
    let owner = domain.admit().expect("open").own(
        Hanging { entered, go },
        Vec::new(),
        lockgate::custody::Charge::none(),
    );
    let holder = owner.hold();
    let entry = owner.close().expect_err("held").quarantine();
    drop(holder);
    std::thread::scope(|scope| {
        let attempt = scope.spawn(|| domain.quarantine().maintain(1));
        is_inside.recv().expect("the attempt runs");
        let report = domain.quarantine().report(entry).expect("still listed");
        assert!(report.in_progress);
        assert!(domain.quarantine().text().contains("an attempt is running"));
        assert_eq!(domain.quarantine().retry(entry), Err(RetryError::Running));
        assert_eq!(domain.quarantine().maintain(1).attempted(), 0);
        let_go.send(()).expect("the attempt listens");
        assert_eq!(attempt.join().expect("no panic").receipts.len(), 1);
    });
    domain.quarantine().assert_empty();
}

#[test]
fn a_shutdown_waits_for_objects_that_are_just_being_made() {
    let domain = Domain::new("admission", 0);
    let admission = domain.admit().expect("open");
    let begun = domain.shutdown(Some(Duration::from_millis(1)));
    assert_eq!(
        (begun.quiet, begun.live.tickets, begun.live.owners),
        (false, 1, 0)
    );
    assert!(domain.admit().is_err());
    let calls = Arc::new(Calls::default());
    let owner = admission.own(
        Fake::new("late", Plan::quiet().site("late"), &calls),
        Vec::new(),
        lockgate::custody::Charge::none(),
    );
    let done = domain.shutdown(None);
    assert_eq!(
        (done.quiet, done.live.tickets, done.live.owners),
        (true, 0, 1)
    );
    owner.close().expect("quiet");
    assert_eq!(
        domain.shutdown(None).live,
        lockgate::custody::Live::default()
    );
}

#[test]
fn evidence_of_a_lane_stands_beside_its_debt() {
    let (scene, engine) = Scene::new(Plan::quiet());
    let port = scene.domain.ledger().attach(scene.lane.clone());
    let debt = Debt::new(()).lend(Loan::new(
        engine.mr.hold(),
        scene.domain.serials().take().expect("not exhausted").into(),
        0..1,
        Direction::Read,
    ));
    let handle = scene
        .domain
        .ledger()
        .submit(&port, debt, |_| {
            Submission::PossiblySubmitted(Cause::errno("post", Errno::IO))
        })
        .expect("not refused");
    scene.lane.fail_drains(1);
    assert_eq!(handle.recover(), Ok(Observation::Quarantined));
    let report = scene
        .domain
        .quarantine()
        .report(EntryId::Slot(handle.slot()))
        .expect("listed");
    assert_eq!(report.evidence.alive, Alive::Yes);
    assert_eq!(report.held[0].identity.kind(), "mr");
    let text = report.to_string();
    assert!(text.contains("tried: drain: EIO (5)"), "{text}");
    assert_eq!(handle.recover(), Ok(Observation::Ready));
    drop(engine);
}

#[test]
fn an_awaited_release_follows_the_same_rules() {
    let (scene, engine) = Scene::new(Plan::quiet());
    let Engine {
        qp,
        grant,
        mr,
        cq,
        channel,
        pd,
        device,
    } = engine;
    // Held: nothing begins.
    let unreleased = cq.begin_close().expect_err("the queue pair holds it");
    assert_eq!(unreleased.class(), Class::NeverAttempted);
    drop(unreleased);
    // Released: the receipt comes from what was awaited.
    let mut releasing = qp.begin_close().expect("nobody holds it");
    let identity = Identity::new(releasing.native_mut().name);
    let receipt = releasing
        .finish(lockgate::custody::Release::Released(Receipt::of(identity)))
        .expect("released");
    assert_eq!(receipt.bytes(), 8192);
    // Failed: retryable or terminal as ever.
    let releasing = grant.begin_close().expect("nobody holds it");
    let unreleased = releasing
        .finish(lockgate::custody::Release::NothingDone(Errno::BUSY))
        .expect_err("failed");
    assert_eq!(unreleased.class(), Class::Retryable);
    scene
        .domain
        .quarantine()
        .retry(unreleased.quarantine())
        .expect("works now");
    // Given up in the middle, as by a cancelled future: unknown for ever.
    let releasing = mr.begin_close().expect("nobody holds it");
    drop(releasing);
    let refused = scene.domain.quarantine().retry(scene.ids["mr"]);
    let Err(RetryError::Terminal(failure)) = refused else {
        panic!("{refused:?}");
    };
    assert!(
        failure
            .detail
            .is_some_and(|words| words.contains("given up"))
    );
    drop((channel, pd, device));
    let _ = scene.domain.quarantine().maintain(100);
    assert_eq!(scene.quarantined(), ["mr", "pd", "device"]);
    assert_eq!(scene.domain.live().bytes, 4096);
    // Awaited releases are the caller's; the library made none for them but the explicit retry.
    for (name, calls) in [
        ("qp", 0),
        ("grant", 1),
        ("mr", 0),
        ("cq", 1),
        ("channel", 1),
    ] {
        assert_eq!(scene.calls.releases(name), calls, "{name}");
    }
}
