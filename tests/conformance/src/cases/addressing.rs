//! Cases about what a receiver takes and what it keeps out.
//!
//! Packets that must not come are followed by one that must: when that one is there, the others have been decided.

use std::net::{IpAddr, SocketAddr};

use lockgate::receive::{Group, Receiver, ReceiverConfig};
use lockgate::registry::Capability;

use crate::equipment::{Family, Outgoing};
use crate::outcome::{Checked, Stop, check, check_eq};
use crate::rig::{Arrived, Rig, numbered};

pub(crate) fn receives_ipv4(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Ipv4)?;
    receives(rig, Family::V4)
}

pub(crate) fn receives_ipv6(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Ipv6)?;
    receives(rig, Family::V6)
}

fn receives(rig: &Rig<'_>, family: Family) -> Checked {
    let (config, to) = rig.target(family)?;
    let mut receiver = rig.open(&config)?;
    let source = rig.source(to)?;
    rig.send_numbered(to, 0..10, 120)?;
    for (number, packet) in rig.collect(&mut receiver, 10)?.iter().enumerate() {
        check!(
            packet.payload == numbered(number as u32, 120),
            "packet {number} is not as it was sent"
        );
        check_eq!(packet.source, Some(source), "the source");
        check_eq!(
            packet.destination,
            Some((to.ip(), to.port())),
            "the destination"
        );
    }
    Ok(receiver.close()?)
}

pub(crate) fn receives_unicast(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Unicast)?;
    let mut tested = 0;
    let mut reason = None;
    for (family, capability) in [
        (Family::V4, Capability::Ipv4),
        (Family::V6, Capability::Ipv6),
    ] {
        if !rig.claims(capability) || rig.equipment.shows(capability).is_err() {
            continue;
        }
        let to = match rig.equipment.unicast(family) {
            Ok(to) => to,
            Err(Stop::Skip(why)) => {
                reason = Some(why);
                continue;
            }
            Err(stop) => return Err(stop),
        };
        let config = ReceiverConfig {
            unicast: Some(to),
            ..rig.equipment.config()
        };
        let mut receiver = rig.open(&config)?;
        let other = SocketAddr::new(to.ip(), rig.equipment.port());
        rig.send_numbered(other, 90..91, 64)?;
        rig.send_numbered(to, 0..5, 64)?;
        rig.collect_numbered(&mut receiver, 0, 5, 64)?;
        rig.expect_nothing(&mut receiver)?;
        receiver.close()?;
        tested += 1;
    }
    match (tested, reason) {
        (0, Some(reason)) => Err(Stop::skip(reason)),
        _ => Ok(()),
    }
}

pub(crate) fn keeps_other_groups_out(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Multicast)?;
    each_family(rig, keeps_other_groups_of_out)
}

fn keeps_other_groups_of_out(rig: &Rig<'_>, family: Family) -> Checked {
    let (config, to) = rig.target(family)?;
    let mut receiver = rig.open(&config)?;
    // Somebody else on this host listens to the other group on the same port, as happens on hosts with several feeds.
    let other = Group::new(rig.equipment.group(family), to.port());
    let shares = rig.equipment.shares_interface().is_ok();
    let mut neighbour = shares
        .then(|| rig.open(&rig.with_groups([other.clone()])))
        .transpose()?;
    rig.send_numbered(other.socket_address(), 90..95, 64)?;
    rig.send_numbered(to, 0..2, 64)?;
    rig.collect_numbered(&mut receiver, 0, 2, 64)?;
    rig.expect_nothing(&mut receiver)?;
    if let Some(neighbour) = &mut neighbour {
        rig.collect_numbered(neighbour, 90, 5, 64)?;
        rig.expect_nothing(neighbour)?;
        neighbour.close()?;
    }
    Ok(receiver.close()?)
}

/// Runs a case for each family that can be shown; at least one.
fn each_family(rig: &Rig<'_>, case: fn(&Rig<'_>, Family) -> Checked) -> Checked {
    let families = rig.families();
    if families.is_empty() {
        return Err(Stop::skip("neither IPv4 nor IPv6 can be shown here"));
    }
    families
        .into_iter()
        .try_for_each(|family| case(rig, family))
}

pub(crate) fn keeps_other_ports_out(rig: &Rig<'_>) -> Checked {
    let (config, to) = rig.target(rig.family())?;
    let mut receiver = rig.open(&config)?;
    let other = SocketAddr::new(to.ip(), rig.equipment.port());
    rig.send_numbered(other, 90..95, 64)?;
    rig.send_numbered(to, 0..2, 64)?;
    rig.collect_numbered(&mut receiver, 0, 2, 64)?;
    rig.expect_nothing(&mut receiver)?;
    Ok(receiver.close()?)
}

pub(crate) fn takes_several_groups(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Multicast)?;
    rig.need(Capability::SeveralGroups)?;
    each_family(rig, |rig, family| {
        let port = rig.equipment.port();
        let groups: Vec<Group> = (0..4)
            .map(|_| Group::new(rig.equipment.group(family), port))
            .collect();
        takes_exactly(rig, &groups, &[])
    })
}

pub(crate) fn takes_both_families(rig: &Rig<'_>) -> Checked {
    for capability in [
        Capability::Multicast,
        Capability::SeveralGroups,
        Capability::Ipv4,
        Capability::Ipv6,
    ] {
        rig.need(capability)?;
    }
    let port = rig.equipment.port();
    let groups = [Family::V4, Family::V6, Family::V4, Family::V6]
        .map(|family| Group::new(rig.equipment.group(family), port));
    takes_exactly(rig, &groups, &[])
}

pub(crate) fn takes_several_ports(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Multicast)?;
    rig.need(Capability::SeveralPorts)?;
    each_family(rig, takes_several_ports_of)
}

fn takes_several_ports_of(rig: &Rig<'_>, family: Family) -> Checked {
    let groups: Vec<Group> = (0..3)
        .map(|_| Group::new(rig.equipment.group(family), rig.equipment.port()))
        .collect();
    // Each group on the port of another one: joined, and still not asked for.
    let mixed: Vec<SocketAddr> = groups
        .iter()
        .zip(groups.iter().cycle().skip(1))
        .map(|(group, other)| SocketAddr::new(group.address, other.port))
        .collect();
    takes_exactly(rig, &groups, &mixed)
}

/// Sends to all groups and, before that, to where nothing must come from; each wanted packet comes once, in its group's order.
fn takes_exactly(rig: &Rig<'_>, groups: &[Group], unwanted: &[SocketAddr]) -> Checked {
    const EACH: usize = 6;
    let mut receiver = rig.open(&rig.with_groups(groups.iter().cloned()))?;
    for to in unwanted {
        rig.send_numbered(*to, 90..93, 64)?;
    }
    for number in 0..EACH as u32 {
        for group in groups {
            rig.send_numbered(group.socket_address(), number..number + 1, 64)?;
        }
    }
    let all = rig.collect(&mut receiver, EACH * groups.len())?;
    for group in groups {
        let to = Some((group.address, group.port));
        let of_group: Vec<&Arrived> = all.iter().filter(|one| one.destination == to).collect();
        check_eq!(of_group.len(), EACH, "packets to {group}");
        for (number, packet) in of_group.iter().enumerate() {
            check!(
                packet.payload == numbered(number as u32, 64),
                "packet {number} to {group} is not the one that was sent there"
            );
        }
    }
    rig.expect_nothing(&mut receiver)?;
    Ok(receiver.close()?)
}

pub(crate) fn keeps_other_sources_out(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::Multicast)?;
    rig.need(Capability::SourceFilter)?;
    let mut tested = 0;
    for family in rig.families() {
        if let [wanted, other, ..] = rig.equipment.sources(family)[..] {
            keeps_other_source_out(rig, family, wanted, other)?;
            tested += 1;
        }
    }
    if tested == 0 {
        return Err(Stop::skip("this equipment can send from one address only"));
    }
    Ok(())
}

fn keeps_other_source_out(rig: &Rig<'_>, family: Family, wanted: IpAddr, other: IpAddr) -> Checked {
    let group = Group::new(rig.equipment.group(family), rig.equipment.port());
    let to = group.socket_address();
    let mut receiver = rig.open(&rig.with_groups([group.from_sources([wanted])]))?;
    let send = |source, number| {
        rig.equipment.send(&Outgoing {
            source,
            destination: to,
            payload: &numbered(number, 64),
            vlan: None,
        })
    };
    for number in 0..5 {
        send(other, 90 + number)?;
        send(wanted, number)?;
    }
    rig.collect_numbered(&mut receiver, 0, 5, 64)?;
    rig.expect_nothing(&mut receiver)?;
    Ok(receiver.close()?)
}

pub(crate) fn selects_a_vlan(rig: &Rig<'_>) -> Checked {
    rig.need(Capability::VlanFilter)?;
    let (mut config, to) = rig.target(rig.family())?;
    config.vlan = Some(1001);
    let mut receiver = rig.open(&config)?;
    let source = rig.source(to)?;
    let send = |vlan, number| {
        rig.equipment.send(&Outgoing {
            source,
            destination: to,
            payload: &numbered(number, 64),
            vlan,
        })
    };
    send(Some(1002), 90)?;
    send(None, 91)?;
    send(Some(1001), 0)?;
    send(Some(1001), 1)?;
    let all = rig.collect(&mut receiver, 2)?;
    for (number, packet) in all.iter().enumerate() {
        check_eq!(packet.vlan, Some(1001), "the VLAN");
        check!(
            packet.payload == numbered(number as u32, 64),
            "packet {number} is not the one that was sent in the VLAN"
        );
    }
    rig.expect_nothing(&mut receiver)?;
    close(receiver)
}

fn close(mut receiver: Receiver) -> Checked {
    Ok(receiver.close()?)
}
