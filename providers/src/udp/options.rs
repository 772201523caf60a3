//! The settings that only the udp provider has.
//!
//! Promises: read and checked without a system call; every fault at once. Does not do: asking the kernel whether it grants them.

use std::net::SocketAddr;

use lockgate::receive::{ConfigFaults, ReceiverConfig, TimestampMode};

use super::socket::is_scoped;

/// `SO_RCVBUF` is an `int` that the kernel doubles.
const RECEIVE_BUFFER_MAX: u64 = (i32::MAX / 2) as u64;
/// A second of spinning in the kernel is beyond any use.
const BUSY_POLL_MAX: u64 = 1_000_000;

/// One poll takes no more memory than this: the largest batch of the largest IP packets fits three times.
const BUFFERS_MAX: u64 = 1 << 30;

/// Which groups share a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sharing {
    /// Each group has its own.
    PerGroup,
    /// Groups of one family and port share one, which keeps the order of arrival among them.
    #[default]
    PerPort,
}

/// The options, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// `SO_RCVBUF`, in bytes.
    pub(super) receive_buffer: Option<u32>,
    /// Take `SO_RCVBUFFORCE` for it.
    pub(super) force_receive_buffer: bool,
    /// `SO_REUSEPORT`.
    pub(super) reuse_port: bool,
    /// `SO_BUSY_POLL`, in microseconds.
    pub(super) busy_poll: Option<u32>,
    /// `UDP_GRO`.
    pub(super) gro: bool,
    /// Take destination and interface of each datagram from the kernel, even if they are known.
    pub(super) packet_info: bool,
    /// Which groups share a socket.
    pub(super) sockets: Sharing,
}

/// Reads the options of a configuration, and adds what is wrong with them, and with the fields that mean something to
/// sockets only, to `faults`.
pub(super) fn read(config: &ReceiverConfig, faults: &mut ConfigFaults) -> Options {
    if let Some(device) = &config.device {
        faults.push(
            "device",
            format!("{device:?}"),
            "means nothing to sockets",
            "no device; the interface goes into interface",
        );
    }
    if config.timestamps == TimestampMode::Hardware && config.interface.is_none() {
        faults.push(
            "timestamps",
            "\"hardware\"",
            "asks for an interface's clock without an interface",
            "hardware together with interface",
        );
    }
    let buffers = u64::from(config.batch) * u64::from(config.buffer_bytes);
    if buffers > BUFFERS_MAX {
        faults.push(
            "batch",
            config.batch,
            format!(
                "makes buffers of {buffers} bytes with buffer_bytes {}",
                config.buffer_bytes
            ),
            format!("batch times buffer_bytes at most {BUFFERS_MAX}"),
        );
    }
    check_scopes(config, faults);
    let mut reader = config.options.reader();
    let options = Options {
        receive_buffer: reader
            .integer("receive-buffer", 1..=RECEIVE_BUFFER_MAX)
            .and_then(|bytes| u32::try_from(bytes).ok()),
        force_receive_buffer: reader.flag("force-receive-buffer").unwrap_or_default(),
        reuse_port: reader.flag("reuse-port").unwrap_or_default(),
        busy_poll: reader
            .integer("busy-poll", 0..=BUSY_POLL_MAX)
            .and_then(|micros| u32::try_from(micros).ok()),
        gro: reader.flag("gro").unwrap_or_default(),
        packet_info: reader.flag("packet-info").unwrap_or_default(),
        sockets: match reader.word("sockets", &["per-group", "per-port"]) {
            Some("per-group") => Sharing::PerGroup,
            _ => Sharing::PerPort,
        },
    };
    if options.force_receive_buffer && config.options.get("receive-buffer").is_none() {
        reader.fault(
            "force-receive-buffer",
            &true.into(),
            "has no size to force",
            "true together with receive-buffer",
        );
    }
    reader.finish(faults);
    options
}

/// An address of interface or link scope is another one on every interface, so one has to be named: the kernel binds to none without.
fn check_scopes(config: &ReceiverConfig, faults: &mut ConfigFaults) {
    if config.interface.is_some() {
        return;
    }
    let groups = config.groups.iter().enumerate();
    let unicast = config.unicast.filter(|unicast| match unicast {
        SocketAddr::V4(_) => false,
        // A scope names the interface.
        SocketAddr::V6(address) => address.scope_id() == 0,
    });
    groups
        .map(|(at, group)| (format!("groups[{at}].address"), group.address))
        .chain(unicast.map(|unicast| ("unicast".to_owned(), unicast.ip())))
        .filter(|(_, address)| is_scoped(*address))
        .for_each(|(field, address)| {
            faults.push(
                field,
                address,
                "is of interface or link scope, and no interface is named",
                "such an address together with interface",
            );
        });
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
    fn the_default_asks_for_nothing() {
        let (options, text) = faults(|_| {});
        assert_eq!(options, Options::default());
        assert_eq!(text, ConfigFaults::new().to_string());
    }

    #[test]
    fn every_option_is_read() {
        let (options, text) = faults(|config| {
            config.options.set("receive-buffer", 8_388_608);
            config.options.set("force-receive-buffer", true);
            config.options.set("reuse-port", true);
            config.options.set("busy-poll", 50);
            config.options.set("gro", true);
            config.options.set("packet-info", true);
            config.options.set("sockets", "per-group");
        });
        assert_eq!(text, ConfigFaults::new().to_string());
        assert_eq!(
            options,
            Options {
                receive_buffer: Some(8_388_608),
                force_receive_buffer: true,
                reuse_port: true,
                busy_poll: Some(50),
                gro: true,
                packet_info: true,
                sockets: Sharing::PerGroup,
            }
        );
    }

    #[test]
    fn every_fault_is_reported_at_once_with_what_is_allowed() {
        let (_, text) = faults(|config| {
            config.device = Some("mlx5_0".to_owned());
            config.timestamps = TimestampMode::Hardware;
            config.options.set("receive-buffer", 0);
            config.options.set("busy-poll", -1);
            config.options.set("gro", "yes");
            config.options.set("sockets", "one");
            config.options.set("recieve-buffer", 1);
        });
        assert_eq!(
            text,
            "7 faults in the configuration\n  \
             device: value \"mlx5_0\" means nothing to sockets; allowed: no device; the interface goes into interface\n  \
             timestamps: value \"hardware\" asks for an interface's clock without an interface; allowed: hardware together with \
             interface\n  \
             options.receive-buffer: value 0 is out of range; allowed: a whole number from 1 to 1073741823\n  \
             options.busy-poll: value -1 is not a whole number; allowed: a whole number from 0 to 1000000\n  \
             options.gro: value \"yes\" is not a flag; allowed: true or false\n  \
             options.sockets: value \"one\" is not one of the words; allowed: per-group, per-port\n  \
             options.recieve-buffer: value 1 is not known; allowed: receive-buffer, force-receive-buffer, reuse-port, \
             busy-poll, gro, packet-info, sockets"
        );
    }

    #[test]
    fn buffers_stay_within_what_a_host_has() {
        let with = |batch, buffer_bytes| {
            faults(|config| (config.batch, config.buffer_bytes) = (batch, buffer_bytes)).1
        };
        let none = ConfigFaults::new().to_string();
        assert_eq!(with(4096, 65_557), none);
        assert_eq!(with(1024, 1 << 20), none);
        for (batch, buffer_bytes) in [(1025, 1 << 20), (4096, 1 << 20), (u32::MAX, u32::MAX)] {
            let bytes = u64::from(batch) * u64::from(buffer_bytes);
            let expected = format!(
                "batch: value {batch} makes buffers of {bytes} bytes with buffer_bytes {buffer_bytes}; allowed: batch times \
                 buffer_bytes at most 1073741824"
            );
            let text = with(batch, buffer_bytes);
            assert!(text.contains(&expected), "{text}");
        }
    }

    #[test]
    fn addresses_of_a_scope_need_an_interface() {
        let groups = |texts: &[&str], interface: Option<&str>| {
            faults(|config| {
                config.groups = texts.iter().map(|one| one.parse().unwrap()).collect();
                config.interface = interface.map(str::to_owned);
            })
            .1
        };
        let unicast = |text: &str| faults(|config| config.unicast = text.parse().ok()).1;
        let none = ConfigFaults::new().to_string();
        let scoped = ["[ff15::1]:5000", "[ff02::1]:5000", "[ff11::1]:5000"];
        assert_eq!(
            groups(&scoped, None),
            "2 faults in the configuration\n  \
             groups[1].address: value ff02::1 is of interface or link scope, and no interface is named; allowed: such an \
             address together with interface\n  \
             groups[2].address: value ff11::1 is of interface or link scope, and no interface is named; allowed: such an \
             address together with interface"
        );
        assert_eq!(groups(&scoped, Some("lo")), none);
        assert_eq!(groups(&["224.0.0.5:5000"], None), none);
        assert!(unicast("[fe80::1]:5").contains("unicast: value fe80::1 is of"));
        assert_eq!(unicast("[fe80::1%2]:5"), none);
        assert_eq!(unicast("[::]:5"), none);
        assert_eq!(unicast("169.254.0.1:5"), none);
    }

    #[test]
    fn forcing_needs_a_size() {
        let (_, text) = faults(|config| config.options.set("force-receive-buffer", true));
        assert!(
            text.contains("force-receive-buffer: value true has no size to force"),
            "{text}"
        );
    }
}
