//! Cases about what a factory says about itself.

use lockgate::registry::{Availability, Kind, RegisterCause, Registry};

use crate::outcome::{Checked, Stop, check, check_eq};
use crate::process::Holdings;
use crate::rig::Rig;

pub(crate) fn is_static_and_cheap(rig: &Rig<'_>) -> Checked {
    let before = holdings()?;
    let factory = rig.equipment.factory();
    let (first, again) = (factory.description().clone(), factory.description().clone());
    check_eq!(again, first, "a second description");
    check_eq!(
        factory.availability(),
        Availability::Available,
        "availability on a host where it is tested"
    );
    let other = rig.equipment.factory();
    check_eq!(*other.description(), first, "another factory's description");
    if rig.alone {
        check_eq!(holdings()?, before, "what the process holds afterwards");
    }
    Ok(())
}

pub(crate) fn names_what_it_is(rig: &Rig<'_>) -> Checked {
    let factory = rig.equipment.factory();
    let description = factory.description();
    check_eq!(description.name, rig.equipment.provider(), "its name");
    check!(!description.version.is_empty(), "it has no version");
    check!(
        !description.summary.is_empty() && !description.summary.contains('\n'),
        "its summary is not one line: {:?}",
        description.summary
    );
    check!(
        description.kinds.contains(&Kind::Receiver),
        "its kinds don't name receivers: {:?}",
        description.kinds
    );
    check!(
        factory.receiver().is_some(),
        "its kinds name receivers, and it has no receiver side"
    );
    let text = description.origin.to_string();
    check!(!text.trim().is_empty(), "its origin is empty");
    Ok(())
}

pub(crate) fn inspects_when_asked(rig: &Rig<'_>) -> Checked {
    let inspection = rig.registry.inspect(rig.equipment.provider())?;
    check!(
        inspection.usable,
        "it calls itself unusable on a host where it is tested: {:?}",
        inspection.findings
    );
    check!(
        inspection.findings.iter().any(|one| !one.trim().is_empty()),
        "it found nothing to tell"
    );
    check_eq!(rig.spy.opens(), 0, "opens through the registry");
    Ok(())
}

pub(crate) fn is_given_back_when_registered_twice(rig: &Rig<'_>) -> Checked {
    let mut registry = Registry::new();
    let first = rig.equipment.factory();
    let origin = first.description().origin.clone();
    registry
        .register(first)
        .map_err(|error| Stop::fail(error.to_string()))?;
    let Err(error) = registry.register(rig.equipment.factory()) else {
        return Err(Stop::fail("the second factory was taken in"));
    };
    check_eq!(
        error.name,
        rig.equipment.provider(),
        "the name in the error"
    );
    check_eq!(error.origin, origin, "the origin of the rejected factory");
    check_eq!(
        error.cause,
        RegisterCause::Duplicate { registered: origin },
        "the cause"
    );
    check_eq!(
        error.factory.description().name,
        rig.equipment.provider(),
        "the factory that came back"
    );
    Ok(())
}

pub(crate) fn holdings() -> Checked<Holdings> {
    Holdings::now().map_err(|error| Stop::fail(format!("read /proc/self: {error}")))
}
