//! Limits and settings that receiving depends on: locked memory, huge pages, buffers.
//!
//! Promises: the process's own limits, and the settings of its network namespace. Does not do: changing them.

use std::fs;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;

use super::reading::{self, Reading};

/// A limit of this process; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Limit {
    /// What holds now, in bytes.
    pub(crate) soft: Option<u64>,
    /// What the process may raise it to, in bytes.
    pub(crate) hard: Option<u64>,
}

/// The pool of huge pages of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HugePages {
    /// The size of a page, in bytes.
    pub(crate) page_bytes: u64,
    /// How many there are.
    pub(crate) total: u64,
    /// How many of them nobody uses.
    pub(crate) free: u64,
}

/// A kernel setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Sysctl {
    /// As `sysctl` calls it.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) value: Reading<u64>,
    /// What it limits.
    pub(crate) meaning: &'static str,
}

/// The limit on locked memory.
pub(super) fn memlock() -> Limit {
    let limit = getrlimit(Resource::Memlock);
    Limit {
        soft: limit.current,
        hard: limit.maximum,
    }
}

/// The pools of huge pages, by size.
pub(super) fn hugepages() -> Reading<Vec<HugePages>> {
    const POOLS: &str = "/sys/kernel/mm/hugepages";
    let folder = match fs::read_dir(POOLS) {
        Ok(folder) => folder,
        Err(error) => return Reading::Unreadable(format!("{POOLS}: {error}")),
    };
    let mut pools = Vec::new();
    for entry in folder {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return Reading::Unreadable(format!("{POOLS}: {error}")),
        };
        let name = entry.file_name().to_string_lossy().into_owned();
        let kib = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"))
            .and_then(|kib| kib.parse::<u64>().ok());
        let Some(kib) = kib else { continue };
        let field = |file: &str| reading::number(&format!("{POOLS}/{name}/{file}"));
        match (field("nr_hugepages"), field("free_hugepages")) {
            (Reading::Value(total), Reading::Value(free)) => pools.push(HugePages {
                page_bytes: kib * 1024,
                total,
                free,
            }),
            (Reading::Unreadable(reason), _) | (_, Reading::Unreadable(reason)) => {
                return Reading::Unreadable(reason);
            }
        }
    }
    pools.sort_by_key(|pool| pool.page_bytes);
    Reading::Value(pools)
}

/// The settings that receiving depends on.
pub(super) fn sysctls() -> Vec<Sysctl> {
    [
        ("net.core.rmem_max", "bytes a socket may ask for"),
        ("net.core.rmem_default", "bytes a socket gets unasked"),
        ("net.core.netdev_max_backlog", "packets queued per CPU"),
        ("net.ipv4.igmp_max_memberships", "groups per IPv4 socket"),
        ("net.ipv4.igmp_max_msf", "sources per IPv4 membership"),
    ]
    .into_iter()
    .map(|(name, meaning)| Sysctl {
        name,
        value: reading::number(&format!("/proc/sys/{}", name.replace('.', "/"))),
        meaning,
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_one_that_proc_shows() {
        let text = fs::read_to_string("/proc/self/limits").unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Max locked memory"))
            .unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let shown = |limit: Option<u64>| {
            limit.map_or_else(|| "unlimited".to_owned(), |bytes| bytes.to_string())
        };
        let limit = memlock();
        assert_eq!(shown(limit.soft), words[0]);
        assert_eq!(shown(limit.hard), words[1]);
    }

    #[test]
    fn settings_are_found_where_the_kernel_keeps_them() {
        for sysctl in sysctls() {
            match sysctl.value {
                Reading::Value(value) => assert!(value > 0, "{}", sysctl.name),
                // In a network namespace of its own an older kernel hides the net.core ones.
                Reading::Unreadable(reason) => {
                    assert!(reason.contains("/proc/sys/net/"), "{reason}")
                }
            }
        }
    }
}
