//! What the host shows about why nothing has come.
//!
//! Promises: each hint states what was read, not what is supposed; the next step is a command. Looked at while the receiver is
//! open, against a look from before. Does not do: changing anything.

use std::net::IpAddr;

use lockgate::receive::{Group, ReceiverSpec, Statistics};
use serde::Serialize;

use crate::host::{Host, Interface, Reading, UdpCounters};

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Hint {
    /// What was read.
    pub(super) evidence: String,
    /// What to try.
    pub(super) next: Option<String>,
}

impl Hint {
    fn new(evidence: impl Into<String>) -> Self {
        Self {
            evidence: evidence.into(),
            next: None,
        }
    }

    fn next(mut self, next: impl Into<String>) -> Self {
        self.next = Some(next.into());
        self
    }
}

/// The hints for a receiver that got nothing.
pub(super) fn of(
    spec: &ReceiverSpec,
    before: &Host,
    after: &Host,
    statistics: &Statistics,
) -> Vec<Hint> {
    let mut all = Vec::new();
    let lost = statistics.losses.total();
    if lost > 0 {
        all.push(Hint::new(format!(
            "{lost} packets came as far as the provider and were lost there: see the places above"
        )));
    }
    if let Some(filtered) = statistics.losses.filtered.filter(|count| *count > 0) {
        all.push(Hint::new(format!(
            "{filtered} packets came and did not match the groups, sources, ports or VLAN"
        )));
    }
    if spec.provider.as_deref() == Some("loopback") {
        all.push(
            Hint::new(
                "loopback receives only what is sent within this process, and nothing here sends",
            )
            .next("--option 'generate={\"count\":1000}'"),
        );
        return all;
    }
    if let (Reading::Value(before), Reading::Value(after)) = (&before.udp, &after.udp) {
        udp(before, after, &mut all);
    }
    match spec.receive.interface.as_deref() {
        Some(name) => match (before.interface(name), after.interface(name)) {
            (Some(before), Some(after)) => interface(spec, before, after, &mut all),
            _ => all.push(Hint::new(format!("interface {name} is not there any more"))),
        },
        None => all.push(
            Hint::new(
                "no interface was named: the routing table chose where the groups are joined",
            )
            .next("--interface NAME of the network that the feed comes in on"),
        ),
    }
    all
}

fn udp(before: &UdpCounters, after: &UdpCounters, all: &mut Vec<Hint>) {
    let bad = after.checksum_errors.saturating_sub(before.checksum_errors);
    if bad > 0 {
        all.push(
            Hint::new(format!(
                "the kernel dropped {bad} UDP datagrams in this time because their checksum was wrong"
            ))
            .next("look at the sender; a replayed capture of offloaded packets has such checksums: tcprewrite --fixcsum"),
        );
    }
    let full = after.buffer_errors.saturating_sub(before.buffer_errors);
    if full > 0 {
        all.push(Hint::new(format!(
            "the kernel dropped {full} UDP datagrams in this time because a socket's receive buffer was full"
        )));
    }
}

fn interface(spec: &ReceiverSpec, before: &Interface, after: &Interface, all: &mut Vec<Hint>) {
    let name = &after.name;
    if !after.up || !after.running {
        all.push(
            Hint::new(format!(
                "interface {name} is {}",
                if after.up {
                    "up, without a link"
                } else {
                    "down"
                }
            ))
            .next(format!("ip link set {name} up; ethtool {name}")),
        );
    }
    for group in &spec.receive.groups {
        joined(group, after, all);
    }
    let arrived = before
        .counters
        .zip(after.counters)
        .map(|(before, after)| after.rx_packets.saturating_sub(before.rx_packets));
    match arrived {
        Some(0) => all.push(
            Hint::new(format!("{name} received no packet of any kind in this time"))
                .next("check the cable, the switch port and the VLAN, and that the sender sends"),
        ),
        Some(count) => all.push(
            Hint::new(format!("{name} received {count} packets of any kind in this time"))
                .next(format!("tcpdump -ni {name} udp, to see whether the feed is among them; if it is, look for a firewall: nft list ruleset")),
        ),
        None => {}
    }
    let v4 = spec
        .receive
        .groups
        .iter()
        .any(|group| group.address.is_ipv4());
    if v4 && !after.loopback {
        igmp(after, all);
        reverse_path(after, all);
    }
}

fn joined(group: &Group, interface: &Interface, all: &mut Vec<Hint>) {
    let (name, address) = (&interface.name, group.address);
    let Reading::Value(memberships) = &interface.memberships else {
        return;
    };
    if memberships.groups.contains(&address) {
        all.push(Hint::new(format!(
            "the kernel has {address} joined on {name}"
        )));
    } else {
        all.push(
            Hint::new(format!(
                "the kernel does not show {address} as joined on {name}"
            ))
            .next(format!("ip maddress show dev {name}")),
        );
    }
    if !group.sources.is_empty() {
        let sources: Vec<_> = group.sources.iter().map(IpAddr::to_string).collect();
        all.push(Hint::new(format!(
            "only packets from {} are taken for {address}",
            sources.join(", ")
        )));
    }
}

fn igmp(interface: &Interface, all: &mut Vec<Hint>) {
    let Reading::Value(memberships) = &interface.memberships else {
        return;
    };
    let Some(version) = &memberships.igmp else {
        return;
    };
    all.push(
        Hint::new(format!(
            "{} speaks IGMP {version}; a switch that snoops forwards a group only where a querier keeps the membership alive",
            interface.name
        ))
        .next(format!("tcpdump -ni {} igmp, to see whether queries come", interface.name)),
    );
}

fn reverse_path(interface: &Interface, all: &mut Vec<Hint>) {
    let name = &interface.name;
    match interface.rp_filter {
        Reading::Value(1) => all.push(
            Hint::new(format!(
                "rp_filter is 1 (strict) on {name}: IPv4 from a source that is not routed through {name} is dropped"
            ))
            .next(format!("sysctl -w net.ipv4.conf.{name}.rp_filter=2, or add the route")),
        ),
        Reading::Value(2) => all.push(Hint::new(format!(
            "rp_filter is 2 (loose) on {name}: IPv4 from a source without any route is dropped"
        ))),
        _ => {}
    }
    if !interface.has_family(true) {
        all.push(
            Hint::new(format!("{name} has no IPv4 address"))
                .next(format!("ip address add ADDRESS/PREFIX dev {name}")),
        );
    }
}
