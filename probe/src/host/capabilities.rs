//! The effective capabilities of this process, by name.
//!
//! Promises: the set is the kernel's own, from `/proc/self/status`; a bit that this build has no name for is kept as its number.
//! Does not do: telling what a container or a security module forbids beyond them.

use serde::Serialize;

use super::reading::{self, Reading};

const STATUS: &str = "/proc/self/status";

/// The capabilities of this process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Capabilities {
    /// Whether every capability that the kernel's bounding set could give is there.
    pub(crate) all: bool,
    /// The effective ones, by name.
    pub(crate) effective: Vec<String>,
    /// Those that providers need, and what for.
    pub(crate) needed: Vec<Needed>,
}

/// A capability that a provider needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Needed {
    /// Its name, without `CAP_`.
    pub(crate) name: &'static str,
    /// Whether this process has it.
    pub(crate) effective: bool,
    /// What needs it.
    pub(crate) purpose: &'static str,
}

const NEEDED: &[(&str, &str)] = &[
    ("NET_RAW", "packet sockets, AF_XDP, raw queue pairs"),
    ("NET_ADMIN", "XDP programs, flow steering"),
    ("BPF", "load XDP programs (with NET_ADMIN)"),
    ("IPC_LOCK", "lock memory beyond the memlock limit"),
    ("SYS_RESOURCE", "raise the memlock limit"),
];

/// Reads them.
pub(super) fn read() -> Reading<Capabilities> {
    reading::file(STATUS).and_then(|text| parse(&text))
}

fn parse(status: &str) -> Reading<Capabilities> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    let (Some(effective), Some(bounding)) = (field("CapEff:"), field("CapBnd:")) else {
        return Reading::Unreadable(format!(
            "{STATUS}: no CapEff or CapBnd in hexadecimal digits"
        ));
    };
    let names: Vec<String> = (0..u64::BITS)
        .filter(|bit| effective & (1 << bit) != 0)
        .map(|bit| {
            NAMES
                .get(bit as usize)
                .map_or_else(|| bit.to_string(), |name| (*name).to_owned())
        })
        .collect();
    let needed = NEEDED
        .iter()
        .map(|(name, purpose)| Needed {
            name,
            effective: names.iter().any(|one| one == name),
            purpose,
        })
        .collect();
    Reading::Value(Capabilities {
        all: effective != 0 && effective == bounding,
        effective: names,
        needed,
    })
}

/// By bit, from the kernel's `uapi/linux/capability.h`.
const NAMES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_have_the_kernels_names() {
        // The numbers of capability.h for the ones that matter here.
        for (bit, name) in [
            (12, "NET_ADMIN"),
            (13, "NET_RAW"),
            (14, "IPC_LOCK"),
            (24, "SYS_RESOURCE"),
            (39, "BPF"),
        ] {
            assert_eq!(NAMES[bit], name);
        }
        let status = format!(
            "Name:\tx\nCapEff:\t{:016x}\nCapBnd:\t{:016x}\n",
            1_u64 << 13 | 1 << 50,
            1_u64 << 13 | 1 << 50
        );
        let Reading::Value(found) = parse(&status) else {
            panic!("unreadable");
        };
        assert_eq!(found.effective, ["NET_RAW", "50"]);
        assert!(found.all);
        let raw: Vec<_> = found.needed.iter().filter(|one| one.effective).collect();
        assert_eq!(raw.len(), 1);
        assert_eq!(raw[0].name, "NET_RAW");
    }

    #[test]
    fn an_empty_set_is_not_all_and_a_broken_line_is_unreadable() {
        let Reading::Value(none) = parse("CapEff:\t0\nCapBnd:\t0\n") else {
            panic!("unreadable");
        };
        assert!(!none.all && none.effective.is_empty());
        assert!(matches!(
            parse("CapEff:\tnope\nCapBnd:\t0\n"),
            Reading::Unreadable(_)
        ));
        assert!(matches!(parse(""), Reading::Unreadable(_)));
    }

    #[test]
    fn every_needed_name_is_a_capability() {
        assert!(NEEDED.iter().all(|(name, _)| NAMES.contains(name)));
    }
}
