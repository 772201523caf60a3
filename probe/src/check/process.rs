//! This process: what it may lock, map and do, and the environment variables that change what the library does.
//!
//! Promises: limits, capabilities and huge pages are the readings of [`Host`]; the rest is of this process's own `/proc` entries. Does
//! not do: judging.

use std::path::Path;

use serde::Serialize;

use crate::host::{Capabilities, Host, HugePages, Limit, Reading};

/// This process.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    /// The running kernel's release.
    pub(crate) kernel: String,
    /// The effective user.
    pub(crate) uid: u32,
    /// The limit on locked memory.
    pub(crate) memlock: Limit,
    /// What is locked now, in KiB.
    pub(crate) locked_kib: Option<u64>,
    /// What is pinned for devices now, in KiB.
    pub(crate) pinned_kib: Option<u64>,
    /// The capabilities.
    pub(crate) capabilities: Reading<Capabilities>,
    /// The pools of huge pages.
    pub(crate) hugepages: Reading<Vec<HugePages>>,
    /// How many mappings there are.
    pub(crate) maps: Option<u64>,
    /// How many there may be.
    pub(crate) most_maps: Option<u64>,
    /// Whether system calls are filtered.
    pub(crate) seccomp: Option<&'static str>,
    /// Whether privileges can't be gained.
    pub(crate) no_new_privileges: Option<bool>,
    /// Signs of a container.
    pub(crate) container: Vec<String>,
    /// Variables that change what the library does, with their values.
    pub(crate) switches: Vec<Switch>,
    /// Modules of the kernel that have to do with RDMA or peer memory.
    pub(crate) modules: Vec<String>,
}

/// An environment variable that changes what the library does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Switch {
    /// Its name.
    pub(crate) name: String,
    /// Its value.
    pub(crate) value: String,
    /// What it does, where that is known.
    pub(crate) effect: Option<&'static str>,
    /// Whether it is in effect and changes what can be relied on.
    pub(crate) safety: bool,
}

/// Known variables: whether they change what can be relied on, and what they do.
const SWITCHES: &[(&str, bool, &str)] = &[
    ("IBV_DRIVERS", true, "loads these drivers first"),
    ("IBV_FORK_SAFE", false, "marks registered memory for fork"),
    (
        "IBV_SHOW_WARNINGS",
        false,
        "tells of devices without a driver",
    ),
    (
        "LD_LIBRARY_PATH",
        false,
        "is searched before the system's folders",
    ),
    ("LD_PRELOAD", false, "is loaded before everything else"),
    (
        "MLX4_DEVICE_FATAL_CLEANUP",
        true,
        "destroy reports success when the device is gone",
    ),
    (
        "MLX5_SINGLE_THREADED",
        true,
        "takes the locks out of the mlx5 driver",
    ),
    (
        "RDMAV_ALLOW_DISASSOC_DESTROY",
        true,
        "destroy reports success when the device is gone",
    ),
    ("RDMAV_DRIVERS", true, "loads these drivers first"),
    ("RDMAV_FORK_SAFE", false, "marks registered memory for fork"),
    (
        "RDMAV_HUGEPAGES_SAFE",
        false,
        "looks for the page size of what is marked",
    ),
    ("SYSFS_PATH", true, "the library reads this tree, not /sys"),
];

/// Other variables of the library and its drivers start so.
const PREFIXES: [&str; 4] = ["IBV_", "MLX4_", "MLX5_", "RDMAV_"];

impl Process {
    /// Reads them.
    pub(crate) fn read(host: &Host) -> Self {
        let status = read("/proc/self/status").unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let number = |name: &str| field(name)?.split_whitespace().next()?.parse::<u64>().ok();
        Self {
            kernel: host.kernel.release.clone(),
            uid: host.user.uid,
            memlock: host.memlock,
            locked_kib: number("VmLck:"),
            pinned_kib: number("VmPin:"),
            capabilities: host.capabilities.clone(),
            hugepages: host.hugepages.clone(),
            maps: read("/proc/self/maps").map(|text| text.lines().count() as u64),
            most_maps: read("/proc/sys/vm/max_map_count").and_then(|text| text.trim().parse().ok()),
            seccomp: number("Seccomp:").map(|mode| match mode {
                0 => "off",
                1 => "strict",
                _ => "filtered",
            }),
            no_new_privileges: number("NoNewPrivs:").map(|value| value != 0),
            container: container(),
            switches: switches(std::env::vars_os().filter_map(|(name, value)| {
                Some((
                    name.into_string().ok()?,
                    value.to_string_lossy().into_owned(),
                ))
            })),
            modules: modules(&read("/proc/modules").unwrap_or_default()),
        }
    }

    /// Whether an effective capability is there; none if the set can't be read.
    pub(crate) fn can(&self, capability: &str) -> Option<bool> {
        let all = self.capabilities.value()?;
        Some(all.effective.iter().any(|one| one == capability))
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

fn container() -> Vec<String> {
    let mut signs = Vec::new();
    for file in [
        "/.dockerenv",
        "/run/.containerenv",
        "/run/systemd/container",
    ] {
        if Path::new(file).exists() {
            signs.push(format!("{file} is there"));
        }
    }
    if let Some(value) = std::env::var_os("container") {
        signs.push(format!("container={}", value.to_string_lossy()));
    }
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
        signs.push("KUBERNETES_SERVICE_HOST is set".to_owned());
    }
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    for word in ["docker", "kubepods", "containerd", "libpod", "lxc"] {
        if groups.contains(word) {
            signs.push(format!("the cgroup's path has {word}"));
        }
    }
    let users = read("/proc/self/uid_map").unwrap_or_default();
    let whole = users.split_whitespace().collect::<Vec<_>>() == ["0", "0", "4294967295"];
    if !users.is_empty() && !whole {
        signs.push("a user namespace of its own".to_owned());
    }
    signs
}

fn switches(variables: impl Iterator<Item = (String, String)>) -> Vec<Switch> {
    let mut all: Vec<Switch> = variables
        .filter_map(|(name, value)| {
            let known = SWITCHES.iter().find(|(known, ..)| *known == name);
            let related = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
            if value.is_empty() || known.is_none() && !related {
                return None;
            }
            Some(Switch {
                // Where the library takes a number, 0 is off.
                safety: known.is_some_and(|(_, safety, _)| *safety) && value != "0",
                effect: known.map(|(_, _, effect)| *effect),
                name,
                value,
            })
        })
        .collect();
    all.sort_by(|one, other| one.name.cmp(&other.name));
    all
}

fn modules(text: &str) -> Vec<String> {
    const OTHERS: [&str; 8] = [
        "irdma",
        "mana_ib",
        "nv_peer_mem",
        "nvidia_peermem",
        "ocrdma",
        "qedr",
        "rdmavt",
        "siw",
    ];
    let name = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let mut names: Vec<String> = text
        .lines()
        .filter_map(name)
        .filter(|name| {
            name.starts_with("ib_")
                || name.starts_with("rdma_")
                || name.starts_with("mlx")
                || name.ends_with("_ib")
                || name.ends_with("_re")
                || OTHERS.contains(&name.as_str())
        })
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_those_of_the_library_and_zero_is_off() {
        let variables = [
            ("RDMAV_ALLOW_DISASSOC_DESTROY", "1"),
            ("MLX4_DEVICE_FATAL_CLEANUP", "0"),
            ("RDMAV_NEW_ONE", "x"),
            ("HOME", "/root"),
            ("SYSFS_PATH", ""),
        ];
        let owned = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let found = switches(owned.into_iter());
        let names: Vec<_> = found
            .iter()
            .map(|one| (one.name.as_str(), one.safety))
            .collect();
        assert_eq!(
            names,
            [
                ("MLX4_DEVICE_FATAL_CLEANUP", false),
                ("RDMAV_ALLOW_DISASSOC_DESTROY", true),
                ("RDMAV_NEW_ONE", false),
            ]
        );
    }

    #[test]
    fn modules_are_those_of_rdma_and_peer_memory() {
        let text =
            "ib_core 1 2 - Live 0\next4 1 1 - Live 0\nnvidia_peermem 1 0 - Live\nmlx5_ib 1 0\n";
        assert_eq!(modules(text), ["ib_core", "mlx5_ib", "nvidia_peermem"]);
    }
}
