//! The settings that only the packet provider has.
//!
//! Promises: read and checked without a system call; every fault at once. Does not do: asking the kernel whether it grants them.

use lockgate::receive::{ConfigFaults, ReceiverConfig};

use crate::raw::selection;

/// How long an unfilled block may wait for its last packet, in milliseconds.
const BLOCK_TIMEOUT_MAX: u64 = 1_000;
/// What a block takes at least and at most; a power of two between.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = 4_096..=(4 << 20);
const FANOUTS: [&str; 6] = ["cpu", "hash", "load-balance", "queue", "random", "rollover"];

/// Which ring of the kernel's is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Version {
    /// TPACKET_V2: a slot for each packet, seen as soon as it is written.
    V2,
    /// TPACKET_V3: blocks of packets, seen when a block is full or its time is up.
    #[default]
    V3,
}

/// How the receivers of a group share the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fanout {
    /// `PACKET_FANOUT_*`.
    pub(super) mode: u32,
    pub(super) name: &'static str,
    pub(super) group: u16,
}

/// Who keeps the groups joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Membership {
    /// A kernel socket, which also reports them to the network.
    #[default]
    Kernel,
    /// The packet socket: the interface lets them in, and nobody is told.
    Link,
    /// Somebody else.
    None,
}

/// The options, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) version: Version,
    /// In milliseconds.
    pub(super) block_timeout: Option<u32>,
    pub(super) block_bytes: Option<u32>,
    pub(super) fanout: Option<Fanout>,
    pub(super) membership: Membership,
    pub(super) promiscuous: bool,
}

/// Reads the options of a configuration, and adds what is wrong with them, and with fields that mean nothing here, to `faults`.
pub(super) fn read(config: &ReceiverConfig, faults: &mut ConfigFaults) -> Options {
    selection::check(config, faults);
    let mut reader = config.options.reader();
    let version = match reader.word("version", &["v2", "v3"]) {
        Some("v2") => Version::V2,
        _ => Version::V3,
    };
    let number = |value: Option<u64>| value.and_then(|value| u32::try_from(value).ok());
    let block_timeout = number(reader.integer("block-timeout", 1..=BLOCK_TIMEOUT_MAX));
    let block_bytes = number(reader.integer("block-bytes", BLOCK_BYTES));
    let mode = reader.word("fanout", &FANOUTS);
    let group = reader.integer("fanout-group", 0..=u16::MAX.into());
    let options = Options {
        version,
        block_timeout,
        block_bytes,
        fanout: mode
            .zip(group.and_then(|group| u16::try_from(group).ok()))
            .map(|(name, group)| Fanout {
                mode: fanout_mode(name),
                name,
                group,
            }),
        membership: match reader.word("membership", &["kernel", "link", "none"]) {
            Some("link") => Membership::Link,
            Some("none") => Membership::None,
            _ => Membership::Kernel,
        },
        promiscuous: reader.flag("promiscuous").unwrap_or_default(),
    };
    let given = |name| config.options.get(name);
    for name in ["block-timeout", "block-bytes"] {
        if let Some(value) = given(name).filter(|_| version == Version::V2) {
            reader.fault(name, value, "means nothing to v2", "only with version v3");
        }
    }
    if let Some(bytes) = block_bytes {
        if !bytes.is_power_of_two() {
            let problem = "is not a power of two";
            reader.fault("block-bytes", &bytes.into(), problem, "a power of two");
        }
        if u64::from(bytes) < super::layout::block_least(config.buffer_bytes) {
            let least = super::layout::block_least(config.buffer_bytes);
            reader.fault(
                "block-bytes",
                &bytes.into(),
                "holds not even one packet",
                &format!("at least {least} for buffer_bytes {}", config.buffer_bytes),
            );
        }
    }
    for (name, other) in [("fanout", "fanout-group"), ("fanout-group", "fanout")] {
        if let (Some(value), None) = (given(name), given(other)) {
            let allowed = format!("{name} together with {other}");
            reader.fault(name, value, "stands alone", &allowed);
        }
    }
    reader.finish(faults);
    options
}

fn fanout_mode(name: &str) -> u32 {
    match name {
        "cpu" => libc::PACKET_FANOUT_CPU,
        "load-balance" => libc::PACKET_FANOUT_LB,
        "queue" => libc::PACKET_FANOUT_QM,
        "random" => libc::PACKET_FANOUT_RND,
        "rollover" => libc::PACKET_FANOUT_ROLLOVER,
        _ => libc::PACKET_FANOUT_HASH,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(change: impl FnOnce(&mut ReceiverConfig)) -> (Options, String) {
        let mut config = ReceiverConfig::default();
        change(&mut config);
        let mut faults = ConfigFaults::new();
        let options = read(&config, &mut faults);
        (options, faults.to_string())
    }

    #[test]
    fn the_default_is_v3_with_a_kernel_membership() {
        let (options, text) = faults(|_| {});
        assert_eq!(options, Options::default());
        assert_eq!(options.version, Version::V3);
        assert_eq!(options.membership, Membership::Kernel);
        assert_eq!(text, ConfigFaults::new().to_string());
    }

    #[test]
    fn every_option_is_read() {
        let (options, text) = faults(|config| {
            config.options.set("version", "v3");
            config.options.set("block-timeout", 5);
            config.options.set("block-bytes", 65_536);
            config.options.set("fanout", "load-balance");
            config.options.set("fanout-group", 9);
            config.options.set("membership", "link");
            config.options.set("promiscuous", true);
        });
        assert_eq!(text, ConfigFaults::new().to_string());
        assert_eq!(
            options,
            Options {
                version: Version::V3,
                block_timeout: Some(5),
                block_bytes: Some(65_536),
                fanout: Some(Fanout {
                    mode: libc::PACKET_FANOUT_LB,
                    name: "load-balance",
                    group: 9
                }),
                membership: Membership::Link,
                promiscuous: true,
            }
        );
    }

    #[test]
    fn every_fault_is_reported_at_once_with_what_is_allowed() {
        let (_, text) = faults(|config| {
            config.device = Some("mlx5_0".to_owned());
            config.unicast = Some("0.0.0.0:5000".parse().unwrap());
            config.options.set("version", "v2");
            config.options.set("block-timeout", 5);
            config.options.set("fanout", "fair");
            config.options.set("membership", "maybe");
            config.options.set("ring", 1);
        });
        assert_eq!(
            text,
            "7 faults in the configuration\n  \
             device: value \"mlx5_0\" means nothing to packet sockets; allowed: no device; the interface goes into interface\n  \
             unicast: value 0.0.0.0:5000 is a wildcard, which no frame is addressed to; allowed: one address of the interface\n  \
             options.fanout: value \"fair\" is not one of the words; allowed: cpu, hash, load-balance, queue, random, rollover\n  \
             options.membership: value \"maybe\" is not one of the words; allowed: kernel, link, none\n  \
             options.block-timeout: value 5 means nothing to v2; allowed: only with version v3\n  \
             options.fanout: value \"fair\" stands alone; allowed: fanout together with fanout-group\n  \
             options.ring: value 1 is not known; allowed: version, block-timeout, block-bytes, fanout, fanout-group, membership, \
             promiscuous"
        );
    }

    #[test]
    fn a_block_holds_a_packet_and_is_a_power_of_two() {
        let (_, text) = faults(|config| {
            config.buffer_bytes = 9_100;
            config.options.set("block-bytes", 5_000);
        });
        assert!(text.contains("5000 is not a power of two"), "{text}");
        assert!(text.contains("5000 holds not even one packet"), "{text}");
    }
}
