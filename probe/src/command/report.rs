//! `probe` without a command: the host, the providers, and the self-test.
//!
//! Promises: each part is printed as soon as it is known; a part that fails does not keep the others from running; the exit code is
//! that of the first self-test that did not end well.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::providers::{self, Entry};
use crate::exit::Exit;
use crate::host::{Finding, Host, Interface, Level, Limit, Reading, findings};
use crate::interrupt::Interrupt;
use crate::output::{Look, Screen, bytes, grouped, nanoseconds};
use crate::providers::Providers;
use crate::report::{self, Failure};
use crate::selftest::{self, Pass, SelfTest};

#[derive(Debug, Serialize)]
struct Body {
    /// Seconds since 1970.
    unix_time: u64,
    host: Host,
    findings: Vec<Finding>,
    providers: Vec<Entry>,
    self_tests: Vec<SelfTest>,
}

/// Reports.
pub(crate) fn run(screen: &mut Screen, json: bool) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install()?;
    let host = Host::read();
    let findings = findings::of(&host);
    let registered = Providers::register()?;
    let entries = providers::list(&registered, false);
    if !json {
        print_host(screen, &host)?;
        print_providers(screen, &entries)?;
        print_findings(screen, &findings)?;
        screen.flush()?;
    }
    let mut tests = Vec::new();
    let udp = || selftest::udp(&registered, &host, &interrupt);
    let loopback = || selftest::loopback(&registered, &interrupt);
    let all: [(&str, &dyn Fn() -> SelfTest); 2] = [("udp", &udp), ("loopback", &loopback)];
    for (name, run) in all {
        if interrupt.asked() {
            break;
        }
        if !json {
            // Before it runs, so that nobody waits in front of nothing.
            screen.heading(&format!("Self-test of {name}"))?;
            screen.flush()?;
        }
        let test = run();
        if !json {
            print_test(screen, &test)?;
            screen.flush()?;
        }
        tests.push(test);
    }
    let exit = exit_of(&tests, &interrupt);
    if json {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let body = Body {
            unix_time: since.map_or(0, |since| since.as_secs()),
            host,
            findings,
            providers: entries,
            self_tests: tests,
        };
        report::document(screen, "report", exit, body)?;
    } else {
        print_verdict(screen, exit, &tests)?;
    }
    Ok(exit)
}

fn exit_of(tests: &[SelfTest], interrupt: &Interrupt) -> Exit {
    if interrupt.asked() {
        return Exit::Interrupted;
    }
    tests
        .iter()
        .map(|test| test.exit)
        .find(|exit| *exit != Exit::Ok)
        .unwrap_or(Exit::Ok)
}

fn print_host(screen: &mut Screen, host: &Host) -> io::Result<()> {
    let kernel = &host.kernel;
    screen.heading("Host")?;
    screen.field(
        "kernel",
        format!("{} {} {}", kernel.system, kernel.release, kernel.machine),
    )?;
    screen.field(
        "user",
        format!("uid {}, gid {}", host.user.uid, host.user.gid),
    )?;
    print_capabilities(screen, host)?;
    let Limit { soft, hard } = host.memlock;
    let text = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), bytes);
    screen.field(
        "memlock",
        format!("soft {}, hard {}", text(soft), text(hard)),
    )?;
    match &host.hugepages {
        Reading::Value(pools) if pools.is_empty() => {
            screen.field("huge pages", "this kernel has none")?;
        }
        Reading::Value(pools) => {
            let pools: Vec<_> = pools
                .iter()
                .map(|pool| {
                    let (total, free) = (grouped(pool.total), grouped(pool.free));
                    format!("{total} of {}, {free} free", bytes(pool.page_bytes))
                })
                .collect();
            screen.field("huge pages", pools.join("; "))?;
        }
        Reading::Unreadable(reason) => unreadable(screen, "huge pages", reason)?,
    }
    screen.gap()?;
    print_interfaces(screen, host)?;
    screen.gap()?;
    screen.heading("Receive settings")?;
    let mut rows = Vec::new();
    for sysctl in &host.sysctls {
        let (value, meaning) = match &sysctl.value {
            Reading::Value(value) => (grouped(*value), sysctl.meaning.to_owned()),
            Reading::Unreadable(reason) => ("?".to_owned(), format!("unreadable: {reason}")),
        };
        rows.push(vec![sysctl.name.to_owned(), value, meaning]);
    }
    screen.table(&["NAME", "VALUE", "LIMITS"], &rows)?;
    screen.gap()
}

fn print_capabilities(screen: &mut Screen, host: &Host) -> io::Result<()> {
    let capabilities = match &host.capabilities {
        Reading::Value(capabilities) => capabilities,
        Reading::Unreadable(reason) => return unreadable(screen, "capabilities", reason),
    };
    let count = capabilities.effective.len();
    let text = match count {
        0 => "none".to_owned(),
        _ if capabilities.all => format!("all {count} of the bounding set"),
        1..=6 => capabilities.effective.join(", "),
        _ => format!("{count}; the whole list is in --json"),
    };
    screen.field("capabilities", text)?;
    for needed in &capabilities.needed {
        let (look, word) = match needed.effective {
            true => (Look::Plain, "yes"),
            false => (Look::Dim, "no "),
        };
        let text = format!("{:<12} {word}  {}", needed.name, needed.purpose);
        screen.columns(look, &text)?;
    }
    Ok(())
}

fn print_interfaces(screen: &mut Screen, host: &Host) -> io::Result<()> {
    screen.heading("Interfaces")?;
    let interfaces = match &host.interfaces {
        Reading::Value(interfaces) => interfaces,
        Reading::Unreadable(reason) => return unreadable(screen, "interfaces", reason),
    };
    let rows: Vec<_> = interfaces.iter().map(interface_row).collect();
    screen.table(
        &["NAME", "STATE", "MTU", "MULTICAST", "GROUPS", "ADDRESSES"],
        &rows,
    )
}

fn interface_row(one: &Interface) -> Vec<String> {
    let state = match (one.up, one.running) {
        (false, _) => "down",
        (true, false) => "no link",
        (true, true) => "up",
    };
    let multicast = match (one.multicast, one.loopback, one.all_multicast) {
        (true, _, true) => "all",
        (true, _, false) => "yes",
        // The kernel lets groups be joined on lo although its flags don't say so.
        (false, true, _) => "local",
        (false, false, _) => "no",
    };
    let groups = match &one.memberships {
        Reading::Value(memberships) => memberships.groups.len().to_string(),
        Reading::Unreadable(_) => "?".to_owned(),
    };
    let addresses: Vec<_> = one.addresses.iter().map(ToString::to_string).collect();
    let kind = one.kind.as_ref().map(|kind| format!(" ({kind})"));
    vec![
        format!("{}{}", one.name, kind.unwrap_or_default()),
        state.to_owned(),
        one.mtu.to_string(),
        multicast.to_owned(),
        groups,
        if addresses.is_empty() {
            "none".to_owned()
        } else {
            addresses.join(" ")
        },
    ]
}

fn print_providers(screen: &mut Screen, entries: &[Entry]) -> io::Result<()> {
    screen.heading("Providers")?;
    for entry in entries {
        providers::print_short(screen, entry)?;
    }
    screen.gap()
}

fn print_findings(screen: &mut Screen, findings: &[Finding]) -> io::Result<()> {
    screen.heading("Findings")?;
    if findings.is_empty() {
        screen.field_as(Look::Good, "none", "nothing stands in the way")?;
    }
    for finding in findings {
        let (word, look) = match finding.level {
            Level::Note => ("note", Look::Plain),
            Level::Warning => ("warning", Look::Warning),
        };
        screen.field_as(
            look,
            word,
            format!("{} [{}]", finding.evidence, finding.code),
        )?;
        screen.field("  remedy", &finding.remedy)?;
    }
    screen.gap()
}

fn unreadable(screen: &mut Screen, label: &str, reason: &str) -> io::Result<()> {
    screen.field_as(Look::Warning, label, format!("unreadable: {reason}"))
}

fn print_test(screen: &mut Screen, test: &SelfTest) -> io::Result<()> {
    screen.field(
        "path",
        format!("{}, {} bytes a packet", test.path, test.payload_bytes),
    )?;
    if let Some(burst) = &test.burst {
        let rate = grouped(burst.packets_per_second);
        screen.field("flat out", format!("{}, {rate} packets/s", arrived(burst)))?;
        screen.field("  lost", report::losses(&burst.losses))?;
    }
    if let Some(paced) = &test.paced {
        let rate = grouped(paced.packets_per_second);
        screen.field("paced", format!("{}, {rate} packets/s", arrived(paced)))?;
        screen.field("  lost", report::losses(&paced.losses))?;
        if let Some(latency) = paced.latency {
            screen.field(
                "  latency",
                format!(
                    "p50 {}, p99 {}, p99.9 {}, max {}",
                    nanoseconds(latency.p50),
                    nanoseconds(latency.p99),
                    nanoseconds(latency.p99_9),
                    nanoseconds(latency.max)
                ),
            )?;
        }
    }
    match &test.problem {
        None => {
            let text = "every byte, number and address of what arrived";
            screen.field_as(Look::Good, "verified", text)?;
        }
        Some(problem) => match &problem.error {
            Some(error) => {
                report::print_error(screen, &format!("  {}: ", test.exit.name()), error)?
            }
            None => {
                screen.field_as(Look::Bad, test.exit.name(), &problem.text)?;
                if let Some(remedy) = &problem.remedy {
                    screen.field("remedy", remedy)?;
                }
            }
        },
    }
    screen.gap()
}

fn arrived(pass: &Pass) -> String {
    let mut text = format!(
        "{} of {} packets in {}",
        grouped(pass.unique),
        grouped(pass.sent),
        nanoseconds(pass.nanoseconds)
    );
    for (count, word) in [
        (pass.reordered, "out of order"),
        (pass.foreign, "of somebody else"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {word}", grouped(count)));
        }
    }
    text
}

fn print_verdict(screen: &mut Screen, exit: Exit, tests: &[SelfTest]) -> io::Result<()> {
    let (look, text) = match exit {
        Exit::Ok => (
            Look::Good,
            "ok: this host receives with udp and loopback; nothing else was opened".to_owned(),
        ),
        exit => {
            let failed: Vec<_> = tests
                .iter()
                .filter(|test| test.exit != Exit::Ok)
                .map(|test| test.provider)
                .collect();
            let of = match failed.is_empty() {
                true => String::new(),
                false => format!(" in {}", failed.join(" and ")),
            };
            (
                Look::Bad,
                format!("{}{of}; exit code {}", exit.name(), exit.code()),
            )
        }
    };
    screen.hanging("Verdict: ", 9, look, &text)
}
