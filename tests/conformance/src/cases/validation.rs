//! Cases about configurations: bad values cost no open.

use lockgate::receive::{ConfigFaults, Group, ReceiverConfig};
use lockgate::registry::Factory;

use super::describe::holdings;
use crate::equipment::Family;
use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::Rig;

pub(crate) fn accepts_what_the_equipment_asks_for(rig: &Rig<'_>) -> Checked {
    let (config, _) = rig.target(rig.family())?;
    check_eq!(config.validate(), Ok(()), "faults that every provider has");
    let faults = faults_of(&*rig.equipment.factory(), &config)?;
    check!(faults.is_empty(), "the provider's own faults: {faults}");
    Ok(())
}

/// A change that makes a good configuration bad, and the field that it is about.
type Change = (&'static str, fn(&mut ReceiverConfig));

const CHANGES: &[Change] = &[
    ("interface", |config| config.interface = Some(String::new())),
    ("interface", |config| {
        config.interface = Some("a-name-that-is-too-long".to_owned());
    }),
    ("interface", |config| {
        config.interface = Some("a/b".to_owned());
    }),
    ("groups", |config| {
        config.groups.clear();
        config.unicast = None;
    }),
    ("unicast", |config| {
        config.groups = vec![group([239, 1, 1, 1], 5000)];
        config.unicast = Some(([10, 0, 0, 1], 5000).into());
    }),
    ("groups[0].address", |config| {
        config.unicast = None;
        config.groups = vec![group([10, 0, 0, 1], 5000)];
    }),
    ("groups[0].port", |config| {
        config.unicast = None;
        config.groups = vec![group([239, 1, 1, 1], 0)];
    }),
    ("groups[1]", |config| {
        config.unicast = None;
        config.groups = vec![group([239, 1, 1, 1], 5000), group([239, 1, 1, 1], 5000)];
    }),
    ("groups[0].sources[0]", |config| {
        let sources = [std::net::Ipv6Addr::LOCALHOST.into()];
        config.unicast = None;
        config.groups = vec![group([239, 1, 1, 1], 5000).from_sources(sources)];
    }),
    ("vlan", |config| config.vlan = Some(4095)),
    ("ring", |config| config.ring = 0),
    ("batch", |config| config.batch = 0),
    ("batch", |config| config.batch = config.ring + 1),
    ("mtu", |config| config.mtu = 0),
    ("buffer_bytes", |config| config.buffer_bytes = config.mtu),
];

pub(crate) fn comes_before_any_open(rig: &Rig<'_>) -> Checked {
    let (good, _) = rig.target(rig.family())?;
    for (at, (field, change)) in CHANGES.iter().enumerate() {
        let mut config = good.clone();
        change(&mut config);
        let faults = refused(rig, &config)?;
        let fault = faults.list().iter().find(|fault| fault.field == *field);
        let Some(fault) = fault else {
            return Err(Stop::fail(format!(
                "change {at} should be a fault of {field}: {faults}"
            )));
        };
        check!(
            !fault.value.is_empty() && !fault.problem.is_empty() && !fault.allowed.is_empty(),
            "a fault has an empty part: {fault:?}"
        );
    }
    check_eq!(rig.spy.opens(), 0, "opens that reached the provider");
    Ok(())
}

pub(crate) fn tells_every_fault_at_once(rig: &Rig<'_>) -> Checked {
    let (mut config, _) = rig.target(rig.family())?;
    config.interface = Some(String::new());
    config.vlan = Some(4095);
    config.ring = 0;
    config.options.set("no-such-option", 7);
    let faults = refused(rig, &config)?;
    for field in ["interface", "vlan", "ring", "options.no-such-option"] {
        check!(
            faults.list().iter().any(|fault| fault.field == field),
            "{field} is missing: {faults}"
        );
    }
    check_eq!(rig.spy.opens(), 0, "opens that reached the provider");
    Ok(())
}

pub(crate) fn refuses_unknown_options(rig: &Rig<'_>) -> Checked {
    let (mut config, _) = rig.target(rig.family())?;
    config.options.set("no-such-option", 7);
    let faults = refused(rig, &config)?;
    check_eq!(faults.list().len(), 1, "faults");
    check_eq!(
        faults.list()[0].field,
        "options.no-such-option",
        "the field"
    );
    check_eq!(rig.spy.opens(), 0, "opens that reached the provider");
    Ok(())
}

pub(crate) fn is_pure(rig: &Rig<'_>) -> Checked {
    let (good, _) = rig.target(rig.family())?;
    let factory = rig.equipment.factory();
    let before = holdings()?;
    for (_, change) in CHANGES {
        let mut config = good.clone();
        change(&mut config);
        let first = faults_of(&*factory, &config)?;
        let second = faults_of(&*factory, &config)?;
        check_eq!(second, first, "the second validation");
    }
    if rig.alone {
        check_eq!(holdings()?, before, "what the process holds afterwards");
    }
    check_eq!(rig.spy.opens(), 0, "opens that reached the provider");
    Ok(())
}

/// The faults that the provider itself finds.
fn faults_of(factory: &dyn Factory, config: &ReceiverConfig) -> Checked<ConfigFaults> {
    let Some(receiver) = factory.receiver() else {
        return Err(Stop::fail("it has no receiver side"));
    };
    let mut faults = ConfigFaults::new();
    receiver.validate(config, &mut faults);
    Ok(faults)
}

/// The faults with which the registry refuses a configuration.
fn refused(rig: &Rig<'_>, config: &ReceiverConfig) -> Checked<ConfigFaults> {
    match rig.equipment.open(&rig.registry, config) {
        Ok(_) => Err(Stop::fail(format!("it opened {config:?}"))),
        Err(error) => match error.faults() {
            Some(faults) => Ok(faults.clone()),
            None => Err(Stop::fail(format!("not a list of faults: {error}"))),
        },
    }
}

fn group(address: [u8; 4], port: u16) -> Group {
    debug_assert_eq!(crate::rig::family_of(address.into()), Family::V4);
    Group::new(address.into(), port)
}
