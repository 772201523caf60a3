//! What a receiver shall receive, and how.
//!
//! Promises: the configuration names no provider; [`ReceiverSpec`], the form of files and command lines, has the name beside
//! it. Validation is pure, costs no system call and reports every fault at once. Unknown fields are errors. Does not do: settings
//! that only one provider has; those stand in `options`, which the provider's factory validates.

mod fault;
mod group;
mod options;
mod table;
mod text;
mod unique;
mod validate;

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

pub use fault::{ConfigFault, ConfigFaults};
pub use group::{Group, ParseGroupError};
pub use options::{OptionReader, Options};
pub use validate::{require_power_of_two_ring, required_capabilities};

/// What a receiver shall receive, and how. Made in code with [`ReceiverConfig::default`] and field by field, or read from TOML
/// or JSON.
///
/// ```
/// use lockgate::receive::ReceiverConfig;
/// let config = ReceiverConfig::from_json(
///     r#"{ "interface": "eth0", "groups": ["239.7.7.7:47000"], "batch": 32 }"#,
/// )?;
/// assert_eq!(config.groups[0].address.to_string(), "239.7.7.7");
/// assert!(config.validate().is_ok());
/// # Ok::<(), lockgate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiverConfig {
    /// The network interface, by name. Without one, a provider that claims any-interface takes the routing table's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The device, for providers that open devices rather than interfaces: a name such as `mlx5_0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The multicast groups. Either these or `unicast`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<Group>,
    /// The unicast address and port. Either this or `groups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unicast: Option<SocketAddr>,
    /// Only this VLAN, 0 to 4094.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// How many packets the provider can hold before it loses some.
    pub ring: u32,
    /// How many packets one poll returns at most.
    pub batch: u32,
    /// How many bytes one packet's buffer has.
    pub buffer_bytes: u32,
    /// The largest IP packet to expect, in bytes.
    pub mtu: u32,
    /// How a wait waits.
    pub wait: WaitMode,
    /// Who stamps packets.
    pub timestamps: TimestampMode,
    /// What to do with UDP checksums.
    #[serde(deserialize_with = "table::only")]
    pub checksums: ChecksumPolicy,
    /// What only this provider understands.
    #[serde(skip_serializing_if = "Options::is_empty")]
    pub options: Options,
}

impl Default for ReceiverConfig {
    /// No groups and no address, which is not valid until one is given; a ring of 1,024, batches of 64, buffers of 2,048
    /// bytes for an MTU of 1,500.
    fn default() -> Self {
        Self {
            interface: None,
            device: None,
            groups: Vec::new(),
            unicast: None,
            vlan: None,
            ring: 1024,
            batch: 64,
            buffer_bytes: 2048,
            mtu: 1500,
            wait: WaitMode::Event,
            timestamps: TimestampMode::None,
            checksums: ChecksumPolicy::default(),
            options: Options::default(),
        }
    }
}

impl ReceiverConfig {
    /// A configuration for groups such as `"239.7.7.7:47000"` on an interface.
    #[must_use]
    pub fn multicast(interface: &str, groups: impl IntoIterator<Item = Group>) -> Self {
        Self {
            interface: Some(interface.to_owned()),
            groups: groups.into_iter().collect(),
            ..Self::default()
        }
    }

    /// A configuration for one unicast address.
    #[must_use]
    pub fn unicast(address: SocketAddr) -> Self {
        Self {
            unicast: Some(address),
            ..Self::default()
        }
    }
}

/// How a wait waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WaitMode {
    /// Spins: the least latency, one core.
    BusyPoll,
    /// Sleeps until the kernel or the device has something.
    #[default]
    Event,
}

/// Who stamps packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TimestampMode {
    /// The device.
    Hardware,
    /// Nobody.
    #[default]
    None,
    /// The kernel or the provider, by the system's clock.
    Software,
}

/// What to do with UDP checksums, for providers that see them. A socket's kernel drops bad ones before anybody can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ChecksumPolicy {
    /// Packets with a wrong checksum.
    pub bad: ChecksumAction,
    /// IPv6 packets without a checksum. On IPv4 its absence is always allowed.
    pub absent_ipv6: ChecksumAction,
}

/// What to do with a packet whose checksum is not as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ChecksumAction {
    /// Delivers it, marked.
    Deliver,
    /// Drops and counts it.
    #[default]
    Drop,
}

/// What a file or a command line says: a provider by name, and beside it the configuration.
///
/// ```
/// # #[cfg(feature = "toml")] {
/// use lockgate::receive::ReceiverSpec;
/// let spec = ReceiverSpec::from_toml(r#"
///     provider = "udp"
///     [receive]
///     interface = "eth0"
///     groups = ["239.7.7.7:47000", { address = "232.1.1.1", port = 5000, sources = ["10.0.0.1"] }]
/// "#)?;
/// assert_eq!(spec.provider.as_deref(), Some("udp"));
/// # }
/// # Ok::<(), lockgate::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiverSpec {
    /// The provider's name. Without one an open is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// What to receive.
    #[serde(deserialize_with = "table::only")]
    pub receive: ReceiverConfig,
}
