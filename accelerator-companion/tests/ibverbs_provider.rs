//! The `ibverbs` factory of a build that carries it, on any host: what is refused before anything is set up, and what the set-up
//! says where there is no device.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use lockgate::ErrorKind;
use lockgate::receive::{Receiver, ReceiverConfig};
use lockgate::registry::{CandidateStatus, RefusalCause, Registry, Unavailable};
use lockgate_accel::{AcceleratorProvider, IBVERBS};
use lockgate_verbs_shim::{DeviceList, Errno, LinkMode, link_mode};

/// A name that no device has: the kernel numbers its devices.
const ABSENT: &str = "lockgate-absent";

fn registry() -> Registry {
    let mut registry = Registry::new();
    AcceleratorProvider::register_into(&mut registry).unwrap();
    registry
}

fn config() -> ReceiverConfig {
    ReceiverConfig {
        device: Some(ABSENT.to_owned()),
        groups: vec!["239.7.7.7:47000".parse().unwrap()],
        ..ReceiverConfig::default()
    }
}

#[test]
fn the_factory_is_there_and_nothing_is_declared_absent() {
    let registry = registry();
    let candidates = registry.candidates();
    let one = candidates.iter().find(|one| one.name == IBVERBS).unwrap();
    assert!(
        !matches!(one.status, CandidateStatus::Known { .. }),
        "{one}"
    );
    assert!(AcceleratorProvider::absent().is_empty());
}

#[test]
fn an_open_without_a_name_is_still_refused() {
    let error = Receiver::open(&config()).unwrap_err();
    assert!(error.refusal().is_some(), "{error}");
}

#[test]
fn a_bad_value_is_refused_before_any_set_up() {
    if link_mode() == LinkMode::Stub {
        let error = registry().open_receiver(IBVERBS, &config()).unwrap_err();
        assert!(
            error.refusal().is_some(),
            "a stub refuses before it validates: {error}"
        );
        return;
    }
    for (name, value) in [("port", 0), ("port", 256), ("prot", 1)] {
        let mut config = config();
        config.options.set(name, value);
        let error = registry().open_receiver(IBVERBS, &config).unwrap_err();
        let faults = error.faults().expect("a configuration with a fault");
        assert!(
            faults.to_string().contains(&format!("options.{name}")),
            "{faults}"
        );
    }
    let nowhere = ReceiverConfig {
        device: None,
        ..config()
    };
    let error = registry().open_receiver(IBVERBS, &nowhere).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Capability, "{error}");
}

#[test]
fn the_set_up_names_its_step_and_number() {
    let error = registry().open_receiver(IBVERBS, &config()).unwrap_err();
    if link_mode() == LinkMode::Stub {
        let refusal = error.refusal().expect("a stub opens nothing");
        assert!(
            matches!(
                &refusal.cause,
                RefusalCause::Unavailable {
                    reason: Unavailable::LinkStub { .. },
                    ..
                }
            ),
            "{refusal}"
        );
        return;
    }
    assert_eq!(error.provider(), Some(IBVERBS));
    assert!(error.remedy().is_some(), "{error}");
    match DeviceList::read() {
        Ok(list) if list.is_empty() => {
            assert_eq!(
                (error.operation(), error.errno()),
                ("list devices", None),
                "{error}"
            );
        }
        Ok(_) => {
            assert_eq!(
                (error.operation(), error.object()),
                ("select device", Some(ABSENT)),
                "{error}"
            );
        }
        Err(errno) => {
            let number = error.errno().map(lockgate::Errno::raw);
            assert_eq!(
                (error.operation(), number),
                ("list devices", Some(errno.raw())),
                "{error}"
            );
            assert_ne!(errno, Errno::NOT_LINKED);
        }
    }
}
