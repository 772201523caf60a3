//! What stands in the way on this host, judged from what was read.
//!
//! Promises: each finding has a stable code, the evidence it rests on, and the one thing to do about it. What could not be
//! read gives no finding. Does not do: looking at the host; [`Host`] has.

use serde::Serialize;

use super::{Host, Interface, Reading};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Good to know; nothing is wrong.
    Note,
    /// Will cost packets or fail under load or in some uses.
    Warning,
}

/// One thing that stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// A stable name.
    pub(crate) code: &'static str,
    /// How much it matters.
    pub(crate) level: Level,
    /// What was found.
    pub(crate) evidence: String,
    /// What to do.
    pub(crate) remedy: String,
}

/// A receive buffer below this holds less than 3 ms of a 10 Gbit/s feed.
const RMEM_MAX_GOOD: u64 = 4 << 20;
/// Locked memory below this is too little for one ring of 1,024 buffers of 2 KiB and what a driver locks beside it.
const MEMLOCK_GOOD: u64 = 8 << 20;

/// Everything that stands in the way, in the order of the report.
pub(crate) fn of(host: &Host) -> Vec<Finding> {
    let mut all = Vec::new();
    interfaces(host, &mut all);
    memlock(host, &mut all);
    buffers(host, &mut all);
    all
}

fn interfaces(host: &Host, all: &mut Vec<Finding>) {
    let Some(interfaces) = host.interfaces.value() else {
        return;
    };
    match interfaces.iter().find(|one| one.loopback) {
        Some(lo) if !lo.up => all.push(loopback_down(lo)),
        _ => {}
    }
    let usable = |one: &Interface| one.up && one.multicast && !one.loopback;
    if !interfaces.iter().any(usable) {
        all.push(Finding {
            code: "no-multicast-interface",
            level: Level::Note,
            evidence: "no interface besides lo is up and carries multicast".to_owned(),
            remedy: "to receive from a network: ip link set INTERFACE up multicast on".to_owned(),
        });
    }
    for one in interfaces.iter().filter(|one| one.up && !one.loopback) {
        if one.rp_filter == Reading::Value(1) {
            all.push(Finding {
                code: "rp-filter-strict",
                level: Level::Note,
                evidence: format!(
                    "{}: rp_filter 1 drops IPv4 from sources that the routing table would answer through another interface",
                    one.name
                ),
                remedy: format!(
                    "if a feed's source is not routed there: sysctl -w net.ipv4.conf.{}.rp_filter=2",
                    one.name
                ),
            });
        }
    }
}

/// The loopback interface is down, as in a new network namespace.
pub(crate) fn loopback_down(lo: &Interface) -> Finding {
    Finding {
        code: "loopback-down",
        level: Level::Warning,
        evidence: format!("interface {} is down", lo.name),
        remedy: format!("ip link set {} up", lo.name),
    }
}

fn memlock(host: &Host, all: &mut Vec<Finding>) {
    let Some(soft) = host.memlock.soft.filter(|soft| *soft < MEMLOCK_GOOD) else {
        return;
    };
    let exempt = host
        .capabilities
        .value()
        .is_some_and(|capabilities| capabilities.effective.iter().any(|one| one == "IPC_LOCK"));
    if exempt {
        return;
    }
    let raise = match host.memlock.hard {
        Some(hard) if hard < MEMLOCK_GOOD => {
            "raise it: LimitMEMLOCK= in the unit, memlock in /etc/security/limits.conf, or --ulimit memlock=-1 of the container"
        }
        _ => "raise it before the start: ulimit -l unlimited",
    };
    all.push(Finding {
        code: "memlock-low",
        level: Level::Warning,
        evidence: format!(
            "memlock soft limit {soft} bytes; providers that register memory need more, udp does not"
        ),
        remedy: raise.to_owned(),
    });
}

fn buffers(host: &Host, all: &mut Vec<Finding>) {
    let value = |name: &str| {
        let found = host.sysctls.iter().find(|one| one.name == name)?;
        found.value.value().copied()
    };
    if let Some(max) = value("net.core.rmem_max").filter(|max| *max < RMEM_MAX_GOOD) {
        all.push(Finding {
            code: "rmem-max-low",
            level: Level::Note,
            evidence: format!(
                "net.core.rmem_max {max} bytes: a burst beyond it is lost in the kernel"
            ),
            remedy: format!("for fast feeds: sysctl -w net.core.rmem_max={}", 64 << 20),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Capabilities, Limit, Sysctl};

    fn host() -> Host {
        let mut host = Host::read();
        host.interfaces = Reading::Value(Vec::new());
        host.memlock = Limit {
            soft: None,
            hard: None,
        };
        host.sysctls.clear();
        host.capabilities = Reading::Value(Capabilities {
            all: false,
            effective: Vec::new(),
            needed: Vec::new(),
        });
        host
    }

    fn codes(host: &Host) -> Vec<&'static str> {
        of(host).iter().map(|finding| finding.code).collect()
    }

    #[test]
    fn a_low_memlock_limit_is_found_unless_the_process_is_exempt() {
        let mut host = host();
        host.memlock.soft = Some(64 << 10);
        assert!(codes(&host).contains(&"memlock-low"));
        host.capabilities = Reading::Value(Capabilities {
            all: false,
            effective: vec!["IPC_LOCK".to_owned()],
            needed: Vec::new(),
        });
        assert!(!codes(&host).contains(&"memlock-low"));
    }

    #[test]
    fn a_small_buffer_limit_is_found_and_an_unreadable_one_is_not_judged() {
        let mut host = host();
        let mut sysctl = Sysctl {
            name: "net.core.rmem_max",
            value: Reading::Value(212_992),
            meaning: "",
        };
        host.sysctls = vec![sysctl.clone()];
        assert!(codes(&host).contains(&"rmem-max-low"));
        sysctl.value = Reading::Unreadable("hidden".to_owned());
        host.sysctls = vec![sysctl];
        assert!(!codes(&host).contains(&"rmem-max-low"));
    }

    #[test]
    fn interfaces_that_could_not_be_read_give_no_finding() {
        let mut host = host();
        assert_eq!(codes(&host), ["no-multicast-interface"]);
        host.interfaces = Reading::Unreadable("no netlink".to_owned());
        assert_eq!(codes(&host), [] as [&str; 0]);
    }

    #[test]
    fn every_code_is_in_the_page_and_in_the_schema() {
        let mut host = host();
        host.memlock.soft = Some(0);
        host.sysctls = vec![Sysctl {
            name: "net.core.rmem_max",
            value: Reading::Value(1),
            meaning: "",
        }];
        host.interfaces = Host::read().interfaces;
        let Reading::Value(interfaces) = &mut host.interfaces else {
            panic!("unreadable");
        };
        // One of each kind that gives a finding: a loopback interface that is down, and one that filters strictly.
        interfaces.retain(|one| one.loopback);
        interfaces[0].up = false;
        let mut strict = interfaces[0].clone();
        strict.loopback = false;
        strict.multicast = false;
        strict.up = true;
        strict.rp_filter = Reading::Value(1);
        interfaces.push(strict);
        let codes = codes(&host);
        assert_eq!(codes.len(), 5, "{codes:?}");
        let page = include_str!("../../../docs/PROBE.md");
        let schema = include_str!("../../schema/report-1.schema.json");
        for code in codes {
            assert!(page.contains(&format!("| `{code}` | ")), "{code}");
            assert!(schema.contains(&format!("\"{code}\"")), "{code}");
        }
    }
}
