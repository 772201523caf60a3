//! Cases about claims, in both directions: what is claimed works, and what is not claimed never reaches the provider.

use lockgate::ErrorKind;
use lockgate::receive::{
    ChecksumAction, ChecksumPolicy, Group, ReceiverConfig, TimestampMode, WaitMode,
    required_capabilities,
};
use lockgate::registry::Capability;

use super::CASES;
use crate::Family;
use crate::equipment::{unused_group, unused_port};
use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::Rig;

/// Claims that a configuration can't ask for by themselves, or that need traffic which an equipment can't promise to send: a
/// provider's own tests prove them.
pub(super) const NOT_FOR_THIS_KIT: &[Capability] =
    &[Capability::AnyInterface, Capability::ChecksumPolicy];

pub(crate) fn unclaimed_is_refused_before_the_provider(rig: &Rig<'_>) -> Checked {
    let claimed = rig.claimed();
    let mut asked = Vec::new();
    for capability in Capability::all().iter().copied() {
        if claimed.has(capability) {
            continue;
        }
        let Some(config) = asking_for(rig, capability) else {
            continue;
        };
        let needs = required_capabilities(&config);
        check!(
            needs.iter().any(|(need, _)| *need == capability),
            "the kit's configuration for {capability} doesn't need it: {needs:?}"
        );
        let before = rig.spy.opens();
        let opened = rig.equipment.open(&rig.registry, &config);
        let Err(error) = opened else {
            return Err(Stop::fail(format!(
                "{capability} isn't claimed, and it opened"
            )));
        };
        check!(
            *error.kind() == ErrorKind::Capability || error.faults().is_some(),
            "{capability} isn't claimed, and the refusal is {error}"
        );
        check_eq!(rig.spy.opens(), before, "opens that reached the provider");
        asked.push(capability);
    }
    if asked.is_empty() {
        return Err(Stop::skip(
            "every capability that a configuration can ask for is claimed",
        ));
    }
    Ok(())
}

pub(crate) fn every_claim_has_a_case(rig: &Rig<'_>) -> Checked {
    for capability in rig.claimed().iter() {
        let proven = CASES.iter().any(|case| case.proves.contains(&capability));
        check!(
            proven || NOT_FOR_THIS_KIT.contains(&capability),
            "no case proves {capability}"
        );
    }
    Ok(())
}

/// A configuration that needs the capability, where one can.
fn asking_for(rig: &Rig<'_>, capability: Capability) -> Option<ReceiverConfig> {
    let (mut config, _) = rig.target(rig.family()).ok()?;
    let family = rig.family();
    let group = |family| Group::new(unused_group(family), unused_port());
    let groups = |config: &mut ReceiverConfig, groups: Vec<Group>| {
        config.unicast = None;
        config.groups = groups;
    };
    match capability {
        Capability::Ipv4 => groups(&mut config, vec![group(Family::V4)]),
        Capability::Ipv6 => groups(&mut config, vec![group(Family::V6)]),
        Capability::Multicast => groups(&mut config, vec![group(family)]),
        Capability::Unicast => {
            config.groups.clear();
            config.unicast = Some(match family {
                Family::V4 => ([127, 0, 0, 1], unused_port()).into(),
                Family::V6 => (std::net::Ipv6Addr::LOCALHOST, unused_port()).into(),
            });
        }
        Capability::SeveralGroups => {
            let (one, mut other) = (group(family), group(family));
            other.port = one.port;
            groups(&mut config, vec![one, other]);
        }
        Capability::SeveralPorts => groups(&mut config, vec![group(family), group(family)]),
        Capability::SourceFilter => {
            let source = rig.equipment.sources(family).first().copied()?;
            groups(&mut config, vec![group(family).from_sources([source])]);
        }
        Capability::VlanFilter => config.vlan = Some(7),
        Capability::EventWait => config.wait = WaitMode::Event,
        Capability::BusyPoll => config.wait = WaitMode::BusyPoll,
        Capability::SoftwareTimestamps => config.timestamps = TimestampMode::Software,
        Capability::HardwareTimestamps => config.timestamps = TimestampMode::Hardware,
        Capability::ChecksumPolicy => {
            config.checksums = ChecksumPolicy {
                bad: ChecksumAction::Deliver,
                absent_ipv6: ChecksumAction::Deliver,
            };
        }
        Capability::AnyInterface => {
            config.interface = None;
            config.device = None;
        }
        _ => return None,
    }
    Some(config)
}
