//! The settings that only the xdp provider has.
//!
//! Promises: read and checked without a system call; every fault at once. Does not do: asking the kernel whether it grants them.

use lockgate::receive::{ConfigFaults, ReceiverConfig};

use crate::raw::selection;

/// What the kernel keeps free before a frame (`XDP_PACKET_HEADROOM`).
pub(super) const HEADROOM: u32 = 256;
/// The kernel takes chunks of these sizes, and of no others where pages have 4 KiB.
const CHUNKS: [u32; 2] = [2_048, 4_096];
/// More queues than any interface has.
const QUEUES_MAX: u32 = 1_024;

/// Where the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// In the kernel's own receive path, behind every driver.
    Generic,
    /// In the driver.
    #[default]
    Native,
}

/// Who moves a frame into the memory of the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Copying {
    /// Whatever the kernel can: the settings say which it was.
    #[default]
    Any,
    /// The kernel.
    Copy,
    /// The device.
    ZeroCopy,
}

/// Which receive queues are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Queues {
    /// As many as the interface has.
    #[default]
    All,
    /// These, in order and each once.
    Some(Vec<u32>),
}

/// The options, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) mode: Mode,
    pub(super) copying: Copying,
    pub(super) queues: Queues,
    /// The kernel need not look for frames by itself, and says when it wants to be woken up.
    pub(super) no_need_wakeup: bool,
    /// Somebody else keeps the groups joined.
    pub(super) no_membership: bool,
}

/// Reads the options of a configuration, and adds what is wrong with them, and with fields that mean nothing here, to `faults`.
pub(super) fn read(config: &ReceiverConfig, faults: &mut ConfigFaults) -> Options {
    selection::check(config, faults);
    if chunk_bytes(config).is_none() {
        let most = CHUNKS[1] - HEADROOM;
        faults.push(
            "buffer_bytes",
            config.buffer_bytes,
            "is more than a frame's memory has",
            format!("at most {most}; the provider packet takes longer ones"),
        );
    }
    let mut reader = config.options.reader();
    let queues = match reader.text("queues") {
        None | Some("all") => Queues::All,
        Some(text) => match list(text) {
            Some(list) => Queues::Some(list),
            None => {
                reader.fault(
                    "queues",
                    &text.into(),
                    "is no list of queues",
                    &format!("all, or numbers and ranges below {QUEUES_MAX}: \"0\", \"0,2-3\""),
                );
                Queues::All
            }
        },
    };
    let options = Options {
        mode: match reader.word("mode", &["generic", "native"]) {
            Some("generic") => Mode::Generic,
            _ => Mode::Native,
        },
        copying: match reader.word("copy", &["any", "copy", "zero-copy"]) {
            Some("copy") => Copying::Copy,
            Some("zero-copy") => Copying::ZeroCopy,
            _ => Copying::Any,
        },
        queues,
        no_need_wakeup: reader.flag("need-wakeup") == Some(false),
        no_membership: reader.word("membership", &["kernel", "none"]) == Some("none"),
    };
    if (options.mode, options.copying) == (Mode::Generic, Copying::ZeroCopy) {
        reader.fault(
            "copy",
            &"zero-copy".into(),
            "needs the driver",
            "zero-copy only with mode native",
        );
    }
    reader.finish(faults);
    options
}

/// How large a frame's chunk must be; nothing if there is none so large.
pub(super) fn chunk_bytes(config: &ReceiverConfig) -> Option<u32> {
    let least = config.buffer_bytes.checked_add(HEADROOM)?;
    CHUNKS.into_iter().find(|chunk| *chunk >= least)
}

/// Reads `0,2-3`. In order, each once.
fn list(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let number = |text: &str| {
            let number: u32 = text.trim().parse().ok()?;
            (number < QUEUES_MAX).then_some(number)
        };
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return None;
        }
        all.extend(first..=last);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
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
    fn the_default_is_native_on_all_queues() {
        let (options, text) = faults(|_| {});
        assert_eq!(options, Options::default());
        assert_eq!(
            (options.mode, options.copying, options.queues),
            (Mode::Native, Copying::Any, Queues::All)
        );
        assert_eq!(text, ConfigFaults::new().to_string());
    }

    #[test]
    fn every_option_is_read() {
        let (options, text) = faults(|config| {
            config.options.set("mode", "generic");
            config.options.set("copy", "copy");
            config.options.set("queues", "3, 0-1,1");
            config.options.set("need-wakeup", false);
            config.options.set("membership", "none");
        });
        assert_eq!(text, ConfigFaults::new().to_string());
        assert_eq!(
            options,
            Options {
                mode: Mode::Generic,
                copying: Copying::Copy,
                queues: Queues::Some(vec![0, 1, 3]),
                no_need_wakeup: true,
                no_membership: true,
            }
        );
    }

    #[test]
    fn every_fault_is_reported_at_once_with_what_is_allowed() {
        let (_, text) = faults(|config| {
            config.buffer_bytes = 9_022;
            config.options.set("mode", "generic");
            config.options.set("copy", "zero-copy");
            config.options.set("queues", "3-1");
            config.options.set("zero", true);
        });
        assert_eq!(
            text,
            "4 faults in the configuration\n  \
             buffer_bytes: value 9022 is more than a frame's memory has; allowed: at most 3840; the provider packet takes longer \
             ones\n  \
             options.queues: value \"3-1\" is no list of queues; allowed: all, or numbers and ranges below 1024: \"0\", \"0,2-3\"\n  \
             options.copy: value \"zero-copy\" needs the driver; allowed: zero-copy only with mode native\n  \
             options.zero: value true is not known; allowed: queues, mode, copy, need-wakeup, membership"
        );
    }

    #[test]
    fn queues_are_numbers_and_ranges() {
        for (text, expected) in [
            ("0", Some(vec![0])),
            ("2-4,0", Some(vec![0, 2, 3, 4])),
            ("", None),
            ("1,", None),
            ("-1", None),
            ("1024", None),
            ("a", None),
        ] {
            assert_eq!(list(text), expected, "{text}");
        }
    }

    #[test]
    fn a_chunk_holds_the_buffer_and_the_headroom() {
        for (buffer, chunk) in [
            (90, Some(2048)),
            (1792, Some(2048)),
            (1793, Some(4096)),
            (3840, Some(4096)),
            (3841, None),
        ] {
            let config = ReceiverConfig {
                buffer_bytes: buffer,
                ..ReceiverConfig::default()
            };
            assert_eq!(chunk_bytes(&config), chunk, "{buffer}");
        }
    }
}
