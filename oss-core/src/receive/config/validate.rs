//! What a configuration may say.
//!
//! Promises: pure; every fault at once; the texts are fixed by tests. Does not do: asking the system whether an interface or an
//! address exists. Opening does, and names the step.

use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr};

use super::fault::ConfigFaults;
use super::{ReceiverConfig, TimestampMode, WaitMode};
use crate::registry::Capability;

/// Linux's limit on the name of an interface, without the closing zero (IFNAMSIZ).
const INTERFACE_NAME_MAX: usize = 15;
/// The limit on the name of an RDMA device, without the closing zero (IBV_SYSFS_NAME_MAX).
const DEVICE_NAME_MAX: usize = 63;
/// More than any of it would be a mistake: a ring of 2^22 buffers of 2 KiB is 8 GiB.
const RING_MAX: u32 = 1 << 22;
/// One poll returns no more than this.
const BATCH_MAX: u32 = 4096;
/// The smallest IPv4 MTU (RFC 791) and the largest IP packet without jumbograms.
const MTU: std::ops::RangeInclusive<u32> = 68..=65_535;
/// Ethernet header and two VLAN tags.
const LINK_HEADER: u32 = 14 + 2 * 4;
/// The largest buffer: the largest IP packet with its link header fits many times.
const BUFFER_MAX: u32 = 1 << 20;
/// What is wrong with an IPv4-mapped address.
const MAPPED: &str = "is an IPv4 address in the form of an IPv6 one";
/// The largest VLAN that is not reserved (IEEE 802.1Q).
const VLAN_MAX: u16 = 4094;

impl ReceiverConfig {
    /// Checks every value. The registry does it before every open; a program may do it earlier.
    ///
    /// # Errors
    /// Every fault, in the order of the fields.
    pub fn validate(&self) -> Result<(), ConfigFaults> {
        let mut faults = ConfigFaults::new();
        self.check(&mut faults);
        if faults.is_empty() {
            Ok(())
        } else {
            Err(faults)
        }
    }

    pub(crate) fn check(&self, faults: &mut ConfigFaults) {
        name(
            faults,
            "interface",
            self.interface.as_deref(),
            INTERFACE_NAME_MAX,
        );
        name(faults, "device", self.device.as_deref(), DEVICE_NAME_MAX);
        self.check_addresses(faults);
        if let Some(vlan) = self.vlan.filter(|vlan| *vlan > VLAN_MAX) {
            faults.push("vlan", vlan, "is reserved", format!("0 to {VLAN_MAX}"));
        }
        range(faults, "ring", self.ring, 1..=RING_MAX);
        range(faults, "batch", self.batch, 1..=BATCH_MAX);
        if self.batch > self.ring && self.ring >= 1 {
            let allowed = format!("at most ring, which is {}", self.ring);
            faults.push("batch", self.batch, "is larger than the ring", allowed);
        }
        let mtu_fits = range(faults, "mtu", self.mtu, MTU);
        let least = self.mtu.saturating_add(LINK_HEADER);
        if mtu_fits && self.buffer_bytes < least {
            let allowed = format!(
                "at least {least}: mtu {} and {LINK_HEADER} of link header",
                self.mtu
            );
            faults.push(
                "buffer_bytes",
                self.buffer_bytes,
                "is below the MTU with its link header",
                allowed,
            );
        }
        if self.buffer_bytes > BUFFER_MAX {
            let allowed = format!("at most {BUFFER_MAX}");
            faults.push("buffer_bytes", self.buffer_bytes, "is too large", allowed);
        }
    }

    fn check_addresses(&self, faults: &mut ConfigFaults) {
        const EITHER: &str = "groups or unicast, one of the two";
        match (&self.groups[..], self.unicast) {
            ([], None) => faults.push("groups", "[]", "says nothing to receive", EITHER),
            ([_, ..], Some(unicast)) => {
                faults.push("unicast", unicast, "stands beside groups", EITHER);
            }
            _ => {}
        }
        for (at, group) in self.groups.iter().enumerate() {
            if !group.address.is_multicast() {
                faults.push(
                    format!("groups[{at}].address"),
                    group.address,
                    "is not a multicast address",
                    "224.0.0.0/4 or ff00::/8; a unicast address goes into unicast",
                );
            }
            port(faults, format!("groups[{at}].port"), group.port);
            if self.groups[..at]
                .iter()
                .any(|earlier| earlier.address == group.address && earlier.port == group.port)
            {
                faults.push(
                    format!("groups[{at}]"),
                    group,
                    "stands there twice",
                    "each group and port once, with all its sources",
                );
            }
            for (place, source) in group.sources.iter().enumerate() {
                let field = format!("groups[{at}].sources[{place}]");
                if source.is_ipv4() != group.address.is_ipv4() {
                    let allowed = format!("{} addresses, as the group's", family(group.address));
                    faults.push(field, source, "is of the other family", allowed);
                } else if let Some(plain) = mapped(*source) {
                    faults.push(field, source, MAPPED, format!("the sender's {plain}"));
                } else if source.is_multicast() || source.is_unspecified() {
                    let allowed = "the unicast address of a sender";
                    faults.push(field, source, "is not a sender's address", allowed);
                } else if group.sources[..place].contains(source) {
                    faults.push(field, source, "stands there twice", "each source once");
                }
            }
        }
        if let Some(unicast) = self.unicast {
            if unicast.ip().is_multicast() {
                faults.push(
                    "unicast",
                    unicast.ip(),
                    "is a multicast address",
                    "a unicast address; a multicast address goes into groups",
                );
            }
            if let Some(plain) = mapped(unicast.ip()) {
                faults.push("unicast", unicast.ip(), MAPPED, plain.to_string());
            }
            port(faults, "unicast".to_owned(), unicast.port());
        }
    }
}

/// What a provider must claim to serve a configuration, and the field that asks for it.
#[must_use]
pub fn required_capabilities(config: &ReceiverConfig) -> Vec<(Capability, &'static str)> {
    let groups = &config.groups;
    // Exactly one of the two is there in a valid configuration.
    let addressed = if groups.is_empty() {
        "unicast"
    } else {
        "groups"
    };
    let addresses = || {
        groups
            .iter()
            .map(|group| group.address)
            .chain(config.unicast.map(|unicast| unicast.ip()))
    };
    let checksums_chosen = config.checksums != super::ChecksumPolicy::default();
    [
        (
            Capability::Ipv4,
            addressed,
            addresses().any(|ip| ip.is_ipv4()),
        ),
        (
            Capability::Ipv6,
            addressed,
            addresses().any(|ip| ip.is_ipv6()),
        ),
        (Capability::Multicast, "groups", !groups.is_empty()),
        (Capability::Unicast, "unicast", config.unicast.is_some()),
        (Capability::SeveralGroups, "groups", groups.len() > 1),
        (
            Capability::SeveralPorts,
            "groups",
            groups.windows(2).any(|pair| pair[0].port != pair[1].port),
        ),
        (
            Capability::SourceFilter,
            "groups.sources",
            groups.iter().any(|group| !group.sources.is_empty()),
        ),
        (Capability::VlanFilter, "vlan", config.vlan.is_some()),
        (
            Capability::EventWait,
            "wait",
            config.wait == WaitMode::Event,
        ),
        (
            Capability::BusyPoll,
            "wait",
            config.wait == WaitMode::BusyPoll,
        ),
        (
            Capability::SoftwareTimestamps,
            "timestamps",
            config.timestamps == TimestampMode::Software,
        ),
        (
            Capability::HardwareTimestamps,
            "timestamps",
            config.timestamps == TimestampMode::Hardware,
        ),
        (Capability::ChecksumPolicy, "checksums", checksums_chosen),
        (
            Capability::AnyInterface,
            "interface",
            config.interface.is_none() && config.device.is_none(),
        ),
    ]
    .into_iter()
    .filter(|(_, _, asked)| *asked)
    .map(|(capability, field, _)| (capability, field))
    .collect()
}

/// Linux's rule for interfaces (`dev_valid_name`), which names of devices keep too, as they are names of directories in sysfs.
fn name(faults: &mut ConfigFaults, field: &str, value: Option<&str>, most: usize) {
    let Some(value) = value else { return };
    let forbidden = |one: char| matches!(one, '/' | ':') || one.is_control() || one.is_whitespace();
    let problem = if value.is_empty() {
        "is empty"
    } else if value.len() > most {
        "is too long"
    } else if value.contains(forbidden) {
        "has a character that names can't have"
    } else if matches!(value, "." | "..") {
        "is the name of a directory"
    } else {
        return;
    };
    let allowed = format!("1 to {most} bytes without /, : and white space");
    faults.push(field, format!("{value:?}"), problem, allowed);
}

fn port(faults: &mut ConfigFaults, field: String, port: u16) {
    if port == 0 {
        faults.push(field, port, "is not a port to receive on", "1 to 65535");
    }
}

/// Whether the value lies within its range.
fn range<T: PartialOrd + Display>(
    faults: &mut ConfigFaults,
    field: &str,
    value: T,
    allowed: std::ops::RangeInclusive<T>,
) -> bool {
    let inside = allowed.contains(&value);
    if !inside {
        let text = format!("{} to {}", allowed.start(), allowed.end());
        faults.push(field, value, "is out of range", text);
    }
    inside
}

/// The IPv4 address in an IPv4-mapped one (RFC 4291), which never stands in an IPv6 packet.
fn mapped(address: IpAddr) -> Option<Ipv4Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    }
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// For providers whose ring must be a power of two: adds the fault if it isn't.
pub fn require_power_of_two_ring(config: &ReceiverConfig, faults: &mut ConfigFaults) {
    if !config.ring.is_power_of_two() {
        faults.push(
            "ring",
            config.ring,
            "is not a power of two",
            "a power of two for this provider",
        );
    }
}
