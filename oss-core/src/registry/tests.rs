//! Tests of the registry: what it takes in, what it lists, and every refusal with its full text.
//!
//! The entries that this file submits to the list of linked factories are in every listing of this test binary.

#![cfg(all(feature = "receive", not(loom)))]

use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use super::*;
use crate::error::Class;
use crate::receive::{
    Batch, PacketReceiver, Readiness, Receiver, ReceiverConfig, ReceiverFactory, ReceiverSpec,
    Statistics,
};

/// A factory that is made of its description and counts its opens.
struct Fake {
    description: Description,
    availability: Availability,
    has_receiver_side: bool,
    opens: AtomicU32,
    /// The domain of the last open.
    domain: Mutex<Option<Arc<Domain>>>,
}

impl Fake {
    fn named(name: &'static str) -> Self {
        Self {
            description: Description {
                name: Cow::Borrowed(name),
                version: Cow::Borrowed("1.2.3"),
                summary: Cow::Borrowed("for tests"),
                kinds: Cow::Borrowed(&[Kind::Receiver]),
                capabilities: Capabilities::of(&[
                    Capability::Ipv4,
                    Capability::Multicast,
                    Capability::EventWait,
                ]),
                origin: Origin::linked("fake", "1.2.3"),
            },
            availability: Availability::Available,
            has_receiver_side: true,
            opens: AtomicU32::new(0),
            domain: Mutex::new(None),
        }
    }

    fn kinds(mut self, kinds: &'static [Kind]) -> Self {
        self.description.kinds = Cow::Borrowed(kinds);
        self
    }

    fn from(mut self, origin: Origin) -> Self {
        self.description.origin = origin;
        self
    }

    fn unavailable(mut self, reason: Unavailable) -> Self {
        self.availability = Availability::Unavailable { reason };
        self
    }

    fn opens(&self) -> u32 {
        self.opens.load(Ordering::Relaxed)
    }
}

impl Factory for Fake {
    fn description(&self) -> &Description {
        &self.description
    }

    fn availability(&self) -> Availability {
        self.availability.clone()
    }

    fn receiver(&self) -> Option<&dyn ReceiverFactory> {
        self.has_receiver_side.then_some(self)
    }
}

impl ReceiverFactory for Fake {
    fn open(
        &self,
        _: &ReceiverConfig,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn PacketReceiver>> {
        assert_eq!(context.name(), self.description.name);
        self.opens.fetch_add(1, Ordering::Relaxed);
        *self.domain.lock().unwrap() = Some(Arc::clone(context.domain()));
        Ok(Box::new(Quiet))
    }
}

/// Receives nothing.
struct Quiet;

impl PacketReceiver for Quiet {
    fn poll(&mut self) -> Result<Batch<'_>> {
        Ok(Batch::EMPTY)
    }

    fn wait(&mut self, _: Option<Duration>) -> Result<Readiness> {
        Ok(Readiness::TimedOut)
    }

    fn statistics(&mut self) -> Statistics {
        Statistics::default()
    }

    fn close(&mut self) -> Result<()> {
        Ok(())
    }
}

crate::submit_factory!("linked-once", &[Kind::Receiver], || Arc::new(Fake::named(
    "linked-once"
)));
crate::submit_factory!("misnamed", &[Kind::Receiver], || Arc::new(Fake::named(
    "another"
)));

inventory::submit! {
    LinkedFactory {
        name: "twice",
        kinds: &[Kind::Receiver],
        origin: Origin::linked("second", "2.0.0"),
        make: || Arc::new(Fake::named("twice")),
    }
}

inventory::submit! {
    LinkedFactory {
        name: "twice",
        kinds: &[Kind::Receiver],
        origin: Origin::linked("first", "1.0.0"),
        make: || Arc::new(Fake::named("twice")),
    }
}

/// What every listing ends with, but for entries that are registered.
const LINKED: &str = concat!(
    "\n  linked-once: linked in, not registered (crate lockgate ",
    env!("CARGO_PKG_VERSION"),
    ")\n  misnamed: linked in, not registered (crate lockgate ",
    env!("CARGO_PKG_VERSION"),
    ")",
    "\n  twice: linked in, not registered (crate first 1.0.0)",
    "\n  twice: linked in, not registered (crate second 2.0.0)",
);

fn registry(fakes: impl IntoIterator<Item = Fake>) -> Registry {
    let mut registry = Registry::new();
    for fake in fakes {
        registry.register(Arc::new(fake)).unwrap();
    }
    registry
}

fn config() -> ReceiverConfig {
    ReceiverConfig::multicast("eth0", ["239.7.7.7:47000".parse().unwrap()])
}

fn refused(registry: &Registry, name: &str) -> Error {
    let error = registry.open_receiver(name, &config()).unwrap_err();
    assert!(error.refusal().is_some(), "{error}");
    assert_eq!(error.class(), Class::Caller);
    error
}

/// The whole text of a refusal: every listing in between is the registered ones, then what is linked.
#[track_caller]
fn check(registry: &Registry, name: &str, cause: &str, listed: &str, remedy: &str) {
    assert_eq!(
        refused(registry, name).to_string(),
        format!("open receiver: refused, {cause}{listed}\n{remedy}")
    );
}

#[test]
fn an_open_without_a_name_is_refused_even_with_exactly_one_provider() {
    let fake = Arc::new(Fake::named("alpha"));
    let mut registry = Registry::new();
    registry.register(fake.clone()).unwrap();
    let listed = format!("\n  alpha: registered (crate fake 1.2.3){LINKED}");
    let remedy = "name one of these: alpha";
    check(&registry, "", "no provider was named", &listed, remedy);

    let spec = ReceiverSpec {
        provider: None,
        receive: config(),
    };
    let by_name = refused(&registry, "");
    for error in [
        registry.open_receiver_spec(&spec).unwrap_err(),
        Receiver::open_with(&registry, "", &config()).unwrap_err(),
    ] {
        assert_eq!(error.to_string(), by_name.to_string());
    }
    assert_eq!(fake.opens(), 0);
    let spec = ReceiverSpec {
        provider: Some("alpha".to_owned()),
        ..spec
    };
    assert_eq!(
        registry.open_receiver_spec(&spec).unwrap().provider(),
        "alpha"
    );
    assert_eq!(fake.opens(), 1);
}

#[test]
fn the_implicit_constructor_refuses_and_lists_what_is_linked() {
    assert_eq!(
        Receiver::open(&config()).unwrap_err().to_string(),
        format!(
            "open receiver: refused, no provider was named{LINKED}\
             \nregister the factory of the provider that you want, then open it by name"
        )
    );
}

#[test]
fn an_empty_refusal_says_that_there_is_nothing() {
    let error = refusal::refuse(
        "open receiver",
        Some(Kind::Receiver),
        RefusalCause::Implicit,
        Vec::new(),
    );
    assert_eq!(
        error.to_string(),
        "open receiver: refused, no provider was named\
         \n  no provider is registered or linked in\
         \nregister the factory of the provider that you want, then open it by name"
    );
}

#[test]
fn an_unknown_name_lists_what_is_there_and_suggests_what_looks_like_it() {
    let registry = registry([Fake::named("packet"), Fake::named("udp")]);
    let listed = "\n  packet: registered (crate fake 1.2.3)";
    // The linked ones come in between, by name.
    let listed = format!(
        "{}{listed}{}\n  udp: registered (crate fake 1.2.3)",
        &LINKED[..LINKED.find("\n  twice").unwrap()],
        &LINKED[LINKED.find("\n  twice").unwrap()..],
    );
    check(
        &registry,
        "upd",
        "no provider is called \"upd\"; did you mean udp?",
        &listed,
        "name the provider: provider = \"udp\"",
    );
    check(
        &registry,
        "xyz",
        "no provider is called \"xyz\"",
        &listed,
        "name one of these: packet, udp",
    );
    // What looks like it is only linked: it has to be registered first.
    check(
        &registry,
        "linked-onse",
        "no provider is called \"linked-onse\"; did you mean linked-once?",
        &listed,
        "name one of these: packet, udp",
    );
}

#[test]
fn suggestions_are_near_misses_only() {
    let known = ["udp", "packet", "loopback", "devices"];
    for (name, suggestion) in [
        ("UDP", Some("udp")),
        ("ud", Some("udp")),
        ("upd", Some("udp")),
        ("tcp", None),
        ("pakcet", Some("packet")),
        ("paket", Some("packet")),
        ("loobpakc", Some("loopback")),
        ("devicse", Some("devices")),
        ("vices", Some("devices")),
        ("xdp", Some("udp")),
        ("af_xdp", None),
        ("", None),
    ] {
        assert_eq!(
            near_miss(name, known.into_iter()).as_deref(),
            suggestion,
            "{name:?}"
        );
    }
}

#[test]
fn a_linked_provider_that_is_not_registered_is_refused_with_the_way_to_register_it() {
    check(
        &Registry::new(),
        "linked-once",
        "provider linked-once is linked in but not registered",
        LINKED,
        "register it: registry.register_linked(\"linked-once\")",
    );
}

#[test]
fn each_reason_of_unavailability_is_told_with_its_remedy() {
    let nothing = "register the factory of the provider that you want, then open it by name";
    let cases = [
        (
            Unavailable::NotBuiltIn {
                package: "other".into(),
                feature: "fast".into(),
            },
            "known but not built in (feature fast of package other)",
            "rebuild with feature fast of package other",
        ),
        (
            Unavailable::LinkStub {
                library: "libnative.so.1".into(),
                remedy: "unset STUB and build again".into(),
            },
            "built against a link stub in place of libnative.so.1",
            "unset STUB and build again",
        ),
        (
            Unavailable::Platform {
                needs: "AF_XDP".into(),
            },
            "this platform has no AF_XDP",
            nothing,
        ),
        (
            Unavailable::Rejected {
                rule: "its file is writable by others".into(),
            },
            "rejected: its file is writable by others",
            nothing,
        ),
    ];
    for (reason, told, remedy) in cases {
        let cause = format!("provider a is {told}");
        let mut known = Registry::new();
        known.declare_known("a", &[Kind::Receiver], reason.clone());
        check(
            &known,
            "a",
            &cause,
            &format!("\n  a: {told}{LINKED}"),
            remedy,
        );

        let registered = registry([Fake::named("a").unavailable(reason)]);
        let listed = format!("\n  a: registered, {told} (crate fake 1.2.3){LINKED}");
        check(&registered, "a", &cause, &listed, remedy);
    }
}

#[test]
fn a_provider_of_other_kinds_is_refused() {
    let registry = registry([
        Fake::named("both").kinds(&[Kind::Memory, Kind::Device]),
        Fake::named("good"),
    ]);
    check(
        &registry,
        "both",
        "provider both opens memory and device",
        &format!(
            "\n  both: registered (crate fake 1.2.3)\
             \n  good: registered (crate fake 1.2.3){LINKED}"
        ),
        "name one of these: good",
    );
}

#[test]
fn a_provider_without_the_side_that_it_describes_is_a_fault_of_the_provider() {
    let mut fake = Fake::named("hollow");
    fake.has_receiver_side = false;
    let error = registry([fake])
        .open_receiver("hollow", &config())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "hollow: open receiver: the provider failed; \
         its kinds name receivers, and its factory has no receiver side"
    );
    assert_eq!(*error.kind(), ErrorKind::Provider);
}

#[test]
fn a_duplicate_gives_the_factory_back_with_both_origins_and_is_listed() {
    let plugin = Origin::Plugin {
        path: "/opt/udp.so".into(),
        sha256: "0badcafe".to_owned(),
    };
    let second: Arc<dyn Factory> = Arc::new(Fake::named("udp").from(plugin.clone()));
    let mut registry = registry([Fake::named("udp")]);
    let error = registry.register(second.clone()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "register provider \"udp\" from plugin /opt/udp.so sha256 0badcafe: \
         the name is already registered from crate fake 1.2.3"
    );
    assert_eq!(error.origin, plugin);
    assert_eq!(
        error.cause,
        RegisterCause::Duplicate {
            registered: Origin::linked("fake", "1.2.3")
        }
    );
    assert!(Arc::ptr_eq(&error.factory, &second), "the same, unharmed");
    assert!(format!("{error:?}").contains("/opt/udp.so"));

    // Offered again and again, it is listed once; and the first one still opens.
    registry.register(second).unwrap_err();
    check(
        &registry,
        "",
        "no provider was named",
        &format!(
            "{LINKED}\n  udp: registered (crate fake 1.2.3)\
             \n  udp: rejected: the name is already registered from crate fake 1.2.3 \
             (plugin /opt/udp.so sha256 0badcafe)"
        ),
        "name one of these: udp",
    );
    registry.open_receiver("udp", &config()).unwrap();
}

#[test]
fn names_that_are_not_allowed_are_refused_and_listed_in_quotes() {
    const RULE: &str =
        "the name is not allowed: 1 to 32 of a-z, 0-9, - and _, starting with a letter or digit";
    for name in [
        "",
        "-udp",
        "_udp",
        "UDP",
        "u dp",
        "udp\n",
        "ünicode",
        "u.dp",
        "a23456789012345678901234567890123",
    ] {
        let mut registry = Registry::new();
        let error = registry.register(Arc::new(Fake::named(name))).unwrap_err();
        assert_eq!(error.cause, RegisterCause::InvalidName, "{name:?}");
        assert_eq!(
            error.to_string(),
            format!("register provider {name:?} from crate fake 1.2.3: {RULE}")
        );
        let listed = refused(&registry, "nothing-like-it-at-all").to_string();
        let line = format!("\n  {name:?}: rejected: {RULE} (crate fake 1.2.3)");
        assert!(listed.contains(&line), "{listed}");
        assert!(registry.descriptions().is_empty());
    }
    for name in [
        "a",
        "0",
        "af_xdp",
        "ucx-1",
        "a2345678901234567890123456789012",
    ] {
        registry([Fake::named(name)]);
    }
}

#[test]
fn a_note_of_a_provider_gives_way_to_the_provider() {
    let reason = Unavailable::NotBuiltIn {
        package: "p".into(),
        feature: "f".into(),
    };
    let mut registry = Registry::new();
    for name in ["alpha", "linked-once", "gone"] {
        registry.declare_known(name, &[Kind::Receiver], reason.clone());
        registry.declare_known(name, &[Kind::Receiver], reason.clone());
    }
    registry.register(Arc::new(Fake::named("alpha"))).unwrap();
    let statuses: Vec<_> = registry
        .candidates()
        .into_iter()
        .map(|one| (one.name, one.status))
        .collect();
    let expected = [
        ("alpha", CandidateStatus::Registered),
        ("gone", CandidateStatus::Known { reason }),
        ("linked-once", CandidateStatus::Linked),
        ("misnamed", CandidateStatus::Linked),
        ("twice", CandidateStatus::Linked),
        ("twice", CandidateStatus::Linked),
    ];
    assert_eq!(
        statuses,
        expected.map(|(name, status)| (name.to_owned(), status))
    );
    registry.open_receiver("alpha", &config()).unwrap();
}

#[test]
fn a_linked_factory_is_registered_by_its_name() {
    let mut registry = Registry::new();
    registry.register_linked("linked-once").unwrap();
    registry.open_receiver("linked-once", &config()).unwrap();
    let error = registry.register_linked("linked-once").unwrap_err();
    assert_eq!(
        error.to_string(),
        "register provider \"linked-once\" from crate fake 1.2.3: \
         the name is already registered from crate fake 1.2.3"
    );
    assert!(matches!(error, LinkedError::Rejected(_)));
}

#[test]
fn a_name_that_two_crates_submitted_is_ambiguous() {
    let mut registry = Registry::new();
    assert_eq!(
        registry.register_linked("twice").unwrap_err().to_string(),
        "register linked provider \"twice\": submitted more than once, by crate first 1.0.0 and \
         crate second 2.0.0; register the factory that you mean by value"
    );
    assert!(registry.descriptions().is_empty());
    // By value it is clear which one is meant.
    let first = linked().into_iter().find(|entry| entry.name == "twice");
    registry.register((first.unwrap().make)()).unwrap();
    registry.open_receiver("twice", &config()).unwrap();
}

#[test]
fn a_linked_factory_that_calls_itself_otherwise_is_not_registered() {
    let mut registry = Registry::new();
    assert_eq!(
        registry
            .register_linked("misnamed")
            .unwrap_err()
            .to_string(),
        format!(
            "register linked provider \"misnamed\": the factory that crate lockgate {} submitted \
             calls itself \"another\"; report it to that crate",
            env!("CARGO_PKG_VERSION")
        )
    );
    assert!(registry.descriptions().is_empty());
}

#[test]
fn what_is_expected_and_not_linked_is_told() {
    let mut registry = Registry::new();
    assert_eq!(registry.expect_linked(&["twice", "linked-once"]), Ok(()));
    assert_eq!(registry.expect_linked(&[]), Ok(()));
    let error = registry
        .expect_linked(&["udp", "linked-once", "xdp"])
        .unwrap_err();
    let rest = "linked in: linked-once, misnamed, twice, twice; a linker drops a crate that nothing \
                refers to: name something of it, such as `use CRATE as _;`, and check that its \
                feature is on";
    assert_eq!(
        error.to_string(),
        format!("not linked in: udp, xdp; {rest}")
    );
    assert_eq!(error.missing, ["udp", "xdp"]);
    let error = registry.register_linked("udp").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("register linked provider: not linked in: udp; {rest}")
    );
    assert!(registry.descriptions().is_empty(), "nothing was registered");
    assert_eq!(
        NotLinked::new(&["a"], &[]).to_string().split("; ").nth(1),
        Some("linked in: nothing")
    );
}

#[test]
fn two_registries_do_not_see_each_other() {
    let (left, right) = (
        registry([Fake::named("left")]),
        registry([Fake::named("right")]),
    );
    left.open_receiver("left", &config()).unwrap();
    assert!(matches!(
        refused(&left, "right").refusal().unwrap().cause,
        RefusalCause::Unknown { .. }
    ));
    let text = refused(&right, "left").to_string();
    assert!(text.contains("right: registered") && !text.contains("left: registered"));
    assert!(!Arc::ptr_eq(left.domain(), right.domain()));
    let names: Vec<_> = right.descriptions().iter().map(|one| &one.name).collect();
    assert_eq!(names, ["right"]);
}

#[test]
fn everything_opens_in_the_domain_that_was_given() {
    let domain = Domain::new("mine", 1 << 20);
    let mut registry = Registry::in_domain(Arc::clone(&domain));
    assert!(Arc::ptr_eq(registry.domain(), &domain));
    let fake = Arc::new(Fake::named("alpha"));
    registry.register(fake.clone()).unwrap();
    registry.open_receiver("alpha", &config()).unwrap();
    let seen = fake.domain.lock().unwrap().take().unwrap();
    assert!(Arc::ptr_eq(&seen, &domain));
    assert!(Registry::default().descriptions().is_empty());
}

#[test]
fn sixty_four_threads_open_through_one_registry() {
    const THREADS: u32 = 64;
    const EACH: u32 = 50;
    let (one, other) = (Arc::new(Fake::named("one")), Arc::new(Fake::named("other")));
    let mut registry = Registry::new();
    registry.register(one.clone()).unwrap();
    registry.register(other.clone()).unwrap();
    let barrier = Barrier::new(THREADS as usize);
    thread::scope(|scope| {
        for at in 0..THREADS {
            let (registry, barrier) = (&registry, &barrier);
            scope.spawn(move || {
                let name = if at % 2 == 0 { "one" } else { "other" };
                barrier.wait();
                for _ in 0..EACH {
                    let mut receiver = registry.open_receiver(name, &config()).unwrap();
                    assert_eq!(receiver.provider(), name);
                    assert!(registry.open_receiver("", &config()).is_err());
                    receiver.close().unwrap();
                }
            });
        }
    });
    assert_eq!(one.opens(), THREADS / 2 * EACH);
    assert_eq!(other.opens(), THREADS / 2 * EACH);
}

#[test]
fn an_inspection_is_made_for_what_is_registered_only() {
    let registry = registry([
        Fake::named("good"),
        Fake::named("store").kinds(&[Kind::Memory]),
        Fake::named("bad").unavailable(Unavailable::Platform {
            needs: "a device".into(),
        }),
    ]);
    assert!(registry.inspect("good").unwrap().usable);
    let bad = registry.inspect("bad").unwrap();
    assert!(!bad.usable);
    assert_eq!(bad.findings, ["this platform has no a device"]);
    for (name, cause) in [
        ("", "no provider was named"),
        ("god", "no provider is called \"god\"; did you mean good?"),
        (
            "linked-once",
            "provider linked-once is linked in but not registered",
        ),
    ] {
        let error = registry.inspect(name).unwrap_err().to_string();
        let head = format!("inspect provider: refused, {cause}\n");
        assert!(error.starts_with(&head), "{error}");
    }
    let error = registry.inspect("xxxxxx").unwrap_err().to_string();
    // Any kind can be looked at.
    assert!(
        error.ends_with("\nname one of these: good, store"),
        "{error}"
    );
}

#[test]
fn a_refusal_is_data_too() {
    let registry = registry([Fake::named("udp")]);
    let error = refused(&registry, "upd");
    let value = serde_json::to_value(error.refusal().unwrap()).unwrap();
    assert_eq!(value["cause"]["cause"], "unknown");
    assert_eq!(value["cause"]["suggestion"], "udp");
    assert_eq!(value["kind"], "receiver");
    let udp = value["candidates"].as_array().unwrap().last().unwrap();
    assert_eq!(udp["status"]["status"], "registered");
    assert_eq!(udp["origin"]["crate"], "fake");
}

#[test]
fn a_registry_prints_what_it_knows() {
    let text = format!("{:?}", registry([Fake::named("udp")]));
    assert!(
        text.contains("udp") && text.contains("Registered"),
        "{text}"
    );
}

#[test]
fn a_registry_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Registry>();
    shared::<Error>();
}
