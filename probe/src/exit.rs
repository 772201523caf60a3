//! The exit codes: one table, and the one place that maps a failure to its code.
//!
//! Promises: a code never changes its meaning; what `--help` and the JSON reports print comes from this table, and a test holds
//! the page in `docs/` to it. Does not do: deciding what counts as a failure. The commands do.

use std::fmt::Write as _;
use std::process::ExitCode;

use lockgate::ErrorKind;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

use crate::outlet;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// What was asked for was done.
    Ok = 0,
    /// A failure that fits none of the codes below.
    Failed = 1,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// Nothing was opened: no provider was named, or the named one is not to be had.
    Refused = 3,
    /// A device or a network interface is missing, down or gone.
    NoHardware = 4,
    /// A library or a kernel facility is missing or too old.
    Library = 5,
    /// The provider itself failed.
    Provider = 6,
    /// A privilege is missing.
    Permission = 7,
    /// A limit on locked memory is too small.
    MemoryLimit = 8,
    /// The provider does not claim what was asked for.
    Capability = 9,
    /// No packets, or fewer than asked for, within the time.
    NoPackets = 10,
    /// Packets arrived that are not the ones that were sent.
    Verification = 11,
    /// The system is out of descriptors, memory or table entries.
    Resource = 12,
    /// Something could not be proven quiet at the close.
    Unquiesced = 13,
    /// A capture is broken, or no capture.
    Capture = 14,
    /// No way leads to where packets shall be sent.
    Unreachable = 15,
    /// Stopped by a signal before it was done.
    Interrupted = 130,
    /// Whoever read the output went away.
    OutputClosed = 141,
}

/// Code, name and meaning of each, in the order of the codes.
pub(crate) const TABLE: &[(Exit, &str, &str)] = &[
    (Exit::Ok, "ok", "what was asked for was done"),
    (Exit::Failed, "failed", "a failure that fits no other code"),
    (
        Exit::Usage,
        "usage",
        "the command line or configuration is wrong",
    ),
    (
        Exit::Refused,
        "refused",
        "no provider named, or the named one is not to be had",
    ),
    (
        Exit::NoHardware,
        "no-hardware",
        "a device or interface is missing, down or gone",
    ),
    (
        Exit::Library,
        "library",
        "a library or kernel facility is missing or too old",
    ),
    (Exit::Provider, "provider", "the provider itself failed"),
    (Exit::Permission, "permission", "a privilege is missing"),
    (
        Exit::MemoryLimit,
        "memory-limit",
        "a limit on locked memory is too small",
    ),
    (
        Exit::Capability,
        "capability",
        "the provider does not claim what was asked for",
    ),
    (
        Exit::NoPackets,
        "no-packets",
        "none, or fewer than --count, within the time",
    ),
    (
        Exit::Verification,
        "verification",
        "packets differ from what was sent",
    ),
    (
        Exit::Resource,
        "resource",
        "out of descriptors, memory or table entries",
    ),
    (
        Exit::Unquiesced,
        "unquiesced",
        "something could not be proven quiet at the close",
    ),
    (
        Exit::Capture,
        "capture",
        "the capture is broken; what stands before that was sent",
    ),
    (
        Exit::Unreachable,
        "unreachable",
        "no way leads to where packets shall be sent",
    ),
    (
        Exit::Interrupted,
        "interrupted",
        "stopped by a signal before it was done",
    ),
    (
        Exit::OutputClosed,
        "output-closed",
        "whoever read the output went away",
    ),
];

impl Exit {
    /// The number that the process ends with.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }

    /// The word for it in reports.
    pub(crate) fn name(self) -> &'static str {
        // A test holds that every code stands in the table.
        TABLE
            .iter()
            .find(|(exit, _, _)| *exit == self)
            .map_or("", |(_, name, _)| name)
    }

    /// The code of a library error. The only place where kinds are mapped.
    pub(crate) fn of(error: &lockgate::Error) -> Self {
        if error.errno().is_some_and(outlet::is_unreachable) {
            return Self::Unreachable;
        }
        match error.kind() {
            ErrorKind::Capability => Self::Capability,
            ErrorKind::Device => Self::NoHardware,
            ErrorKind::Invalid(_) | ErrorKind::Syntax => Self::Usage,
            ErrorKind::Library => Self::Library,
            ErrorKind::MemoryLimit => Self::MemoryLimit,
            ErrorKind::Permission => Self::Permission,
            ErrorKind::Provider => Self::Provider,
            ErrorKind::Refused(_) => Self::Refused,
            ErrorKind::Resource => Self::Resource,
            ErrorKind::Unquiesced => Self::Unquiesced,
            // Bug, Closed, Peer, System, and kinds that a later core adds.
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

impl Serialize for Exit {
    /// `{"code": 3, "name": "refused"}`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Exit", 2)?;
        object.serialize_field("code", &self.code())?;
        object.serialize_field("name", self.name())?;
        object.end()
    }
}

/// The table for `--help`.
pub(crate) fn help() -> String {
    let mut text = "Exit codes:\n".to_owned();
    for (exit, name, meaning) in TABLE {
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {:>3}  {name:<14} {meaning}", exit.code());
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::{Errno, Error};

    #[test]
    fn codes_and_names_are_distinct_and_in_order() {
        assert!(
            TABLE
                .windows(2)
                .all(|pair| pair[0].0.code() < pair[1].0.code())
        );
        let mut names: Vec<_> = TABLE.iter().map(|(_, name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TABLE.len());
        // Every name below comes from the table, so none of the codes is missing from it.
        assert!(TABLE.iter().all(|(exit, name, _)| exit.name() == *name));
    }

    #[test]
    fn kinds_map_to_codes_that_tell_them_apart() {
        let cases = [
            (ErrorKind::Bug, Exit::Failed),
            (ErrorKind::Capability, Exit::Capability),
            (ErrorKind::Closed, Exit::Failed),
            (ErrorKind::Device, Exit::NoHardware),
            (ErrorKind::Invalid(Default::default()), Exit::Usage),
            (ErrorKind::Library, Exit::Library),
            (ErrorKind::MemoryLimit, Exit::MemoryLimit),
            (ErrorKind::Peer, Exit::Failed),
            (ErrorKind::Permission, Exit::Permission),
            (ErrorKind::Provider, Exit::Provider),
            (ErrorKind::Resource, Exit::Resource),
            (ErrorKind::Syntax, Exit::Usage),
            (ErrorKind::System, Exit::Failed),
            (ErrorKind::Unquiesced, Exit::Unquiesced),
        ];
        for (kind, exit) in cases {
            assert_eq!(Exit::of(&Error::new(kind.clone(), "open")), exit, "{kind}");
        }
        let refused = lockgate::registry::Registry::new()
            .open_receiver("", &Default::default())
            .unwrap_err();
        assert_eq!(Exit::of(&refused), Exit::Refused);
        let errno = Error::from_errno("open", Errno::PERM);
        assert_eq!(Exit::of(&errno), Exit::Permission);
        for unreachable in [101, 113] {
            let errno = Error::from_errno("send", Errno::from_raw(unreachable));
            assert_eq!(Exit::of(&errno), Exit::Unreachable);
        }
    }

    #[test]
    fn the_page_in_docs_has_the_same_table() {
        let page = include_str!("../../docs/PROBE.md");
        for (exit, name, meaning) in TABLE {
            let row = format!("| {} | `{name}` | {meaning} |", exit.code());
            assert!(page.contains(&row), "docs/PROBE.md lacks the row: {row}");
        }
    }

    #[test]
    fn the_help_fits_80_columns() {
        assert!(
            help().lines().all(|line| line.chars().count() <= 80),
            "{}",
            help()
        );
    }
}
