//! The findings as text: the verdicts first, then what they rest on.
//!
//! Promises: fits the width of the screen. Does not do: judging.

use std::io;

use super::devices::{Device, Node};
use super::ports::Port;
use super::process::Process;
use super::providers::{Fault, Providers};
use super::trial::Trials;
use super::{Document, library::Library};
use crate::host::{Limit, Reading};
use crate::linkage::VERBS;
use crate::output::{self, Look, Screen};
use crate::verdict::{self, Level};

pub(crate) fn print(screen: &mut Screen, document: &Document<'_>) -> io::Result<()> {
    let findings = document.findings;
    headline(screen, document)?;
    screen.gap()?;
    screen.heading("Verdicts")?;
    verdict::print(screen, document.verdicts)?;
    screen.gap()?;
    library(screen, &findings.library)?;
    screen.gap()?;
    providers(screen, &findings.providers)?;
    for device in &findings.sysfs.devices {
        screen.gap()?;
        let enumerated = findings.is_enumerated(&device.name);
        print_device(screen, device, enumerated, findings.trials.as_ref())?;
    }
    screen.gap()?;
    process(screen, &findings.process)?;
    screen.gap()?;
    screen.hanging(
        "  ",
        2,
        Look::Dim,
        "what a code means: probe check --explain CODE",
    )
}

fn headline(screen: &mut Screen, document: &Document<'_>) -> io::Result<()> {
    let summary = &document.summary;
    let failures = count(document, Level::Failure);
    let warnings = count(document, Level::Warning);
    let usable = summary.usable.len();
    let text = format!(
        "RDMA: {} in sysfs, {} enumerated, {usable} usable; {failures}, {warnings}",
        plural(summary.devices, "device"),
        summary.enumerated,
        failures = plural(failures, "failure"),
        warnings = plural(warnings, "warning"),
    );
    let look = if failures > 0 {
        Look::Bad
    } else if warnings > 0 {
        Look::Warning
    } else {
        Look::Good
    };
    screen.hanging("", 2, look, &text)
}

fn count(document: &Document<'_>, level: Level) -> usize {
    let verdicts = document.verdicts.iter();
    verdicts.filter(|verdict| verdict.level == level).count()
}

fn plural(number: usize, word: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{number} {word}{end}")
}

fn library(screen: &mut Screen, library: &Library) -> io::Result<()> {
    screen.heading("Library")?;
    match &library.search.found {
        Some(found) => {
            let text = format!("{} by {}", found.file.display(), found.how.text());
            screen.field("would map", text)?;
        }
        None => screen.field("would map", format!("no {VERBS}"))?,
    }
    for passed in &library.search.passed {
        screen.field(
            "passes over",
            format!("{}: {}", passed.path.display(), passed.reason),
        )?;
    }
    if let Some(file) = &library.file {
        let known =
            |value: &Option<String>| value.clone().unwrap_or_else(|| "no version".to_owned());
        let abi = file
            .private_abi
            .map_or_else(|| "none".to_owned(), |abi| abi.to_string());
        screen.field(
            "has",
            format!(
                "{}, private ABI {abi}, {}",
                known(&file.highest),
                file.architecture
            ),
        )?;
        let dmabuf = if file.dmabuf {
            "yes, IBVERBS_1.12"
        } else {
            "no"
        };
        screen.field("dmabuf call", dmabuf)?;
    }
    let loading = &library.loading;
    let step = loading
        .step
        .iter()
        .map(|step| format!(" while {step}"))
        .collect::<String>();
    let text = match &loading.refused {
        Some(refused) => format!("refused: {refused}"),
        None => format!("the child {}{step}", loading.end.text()),
    };
    screen.field("loading", text)?;
    if let Some(errno) = loading.errno {
        screen.field("enumerating", super::judge::error_text(errno))?;
    }
    for file in &library.mapped {
        screen.field("did map", file.display())?;
    }
    if let Some(fork) = library.fork {
        screen.field("fork", fork)?;
    }
    for message in &library.messages {
        screen.field("it said", message)?;
    }
    Ok(())
}

fn providers(screen: &mut Screen, providers: &Providers) -> io::Result<()> {
    screen.heading("Drivers")?;
    match &providers.folder_fault {
        Some(fault) => screen.field(
            "named in",
            format!("{}: {fault}", providers.folder.display()),
        )?,
        None => screen.field("named in", providers.folder.display())?,
    }
    if let Some((name, value)) = &providers.environment {
        screen.field("and by", format!("{name}={value}"))?;
    }
    for line in &providers.ignored {
        screen.field("ignored", line)?;
    }
    let all = providers.drivers.iter();
    let fit: Vec<&str> = all
        .clone()
        .filter(|driver| driver.fault.is_none())
        .map(|driver| driver.short_name())
        .collect();
    if !fit.is_empty() {
        screen.field("fit", fit.join(" "))?;
    }
    for driver in all {
        let Some(fault) = &driver.fault else { continue };
        let text = match fault {
            Fault::Abi { wants, .. } => format!("is for the private ABI {wants}"),
            Fault::Absent { .. } => "is not installed".to_owned(),
            Fault::Architecture { is, .. } => format!("is {is}"),
            Fault::Broken { reason, .. } => reason.clone(),
            Fault::Versions {
                versions, library, ..
            } => {
                format!("needs {} of {library}", versions.join(", "))
            }
        };
        screen.field("unfit", format!("{}: {text}", driver.name))?;
    }
    Ok(())
}

fn print_device(
    screen: &mut Screen,
    device: &Device,
    enumerated: bool,
    trials: Option<&Trials>,
) -> io::Result<()> {
    screen.heading(&format!("Device {}", device.name))?;
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    screen.field("enumerated", if enumerated { "yes" } else { "no" })?;
    let needs = device.needs_driver.unwrap_or("unknown");
    let kernel = device.kernel_driver.as_deref().unwrap_or("none");
    screen.field("driver", format!("kernel {kernel}, user space {needs}"))?;
    screen.field("firmware", or(&device.firmware))?;
    if let Some(pci) = &device.pci {
        let numa = device
            .numa
            .map_or_else(|| "unknown".to_owned(), |node| node.to_string());
        screen.field("PCI", format!("{pci}, NUMA node {numa}"))?;
    }
    if let Some(guid) = &device.node_guid {
        screen.field("GUID", guid)?;
    }
    match &device.node {
        Some(node) => screen.field("node", node_text(node))?,
        None => screen.field("node", "none: the kernel has no interface to it")?,
    }
    for port in &device.ports {
        print_port(screen, port)?;
    }
    let own = trials.and_then(|trials| trials.of(&device.name));
    for trial in own.into_iter().flatten() {
        let detail = trial.detail.as_deref().unwrap_or("works");
        let text = match (trial.worked, trial.what.as_str(), trial.errno) {
            (true, ..) => format!("{}: {detail}", trial.what),
            (false, "dmabuf", Some(9)) => "dmabuf: the kernel's driver has the call".to_owned(),
            (false, ..) => format!("{}: no, {detail}", trial.what),
        };
        screen.field("tried", text)?;
    }
    Ok(())
}

fn node_text(node: &Node) -> String {
    let path = node.path.display();
    match &node.file {
        None => format!("{path} is not there"),
        Some(file) => {
            let access = match file.errno {
                None => "may be opened".to_owned(),
                Some(errno) => super::judge::error_text(errno),
            };
            let (mode, uid, gid) = (&file.mode, file.uid, file.gid);
            format!(
                "{path} {} mode {mode} owner {uid}:{gid}, {access}",
                file.numbers
            )
        }
    }
}

fn print_port(screen: &mut Screen, port: &Port) -> io::Result<()> {
    let or = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
    let text = format!(
        "{}, {}, {}, {}",
        or(&port.state),
        or(&port.physical),
        or(&port.link_layer),
        or(&port.rate)
    );
    screen.field(&format!("port {}", port.number), text)?;
    if let Some(netdev) = &port.netdev {
        let mtu = port
            .netdev_mtu
            .map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
        let fitting = port
            .fitting_mtu
            .map_or_else(|| "none".to_owned(), |mtu| mtu.to_string());
        screen.field(
            "",
            format!("netdev {netdev}, MTU {mtu}: RDMA MTU {fitting} fits"),
        )?;
    }
    for gid in &port.gids {
        let chosen = if port.choice.index == Some(gid.index) {
            ", chosen"
        } else {
            ""
        };
        let netdev = gid.netdev.as_deref().unwrap_or("no netdev");
        let text = format!(
            "{} {} {} {netdev}{chosen}",
            gid.index,
            gid.gid,
            or(&gid.kind)
        );
        screen.field("GID", text)?;
    }
    if !port.gids.is_empty() {
        screen.field("GID rule", &port.choice.why)?;
    }
    Ok(())
}

fn process(screen: &mut Screen, process: &Process) -> io::Result<()> {
    screen.heading("Process")?;
    screen.field(
        "user",
        format!("{}, kernel {}", process.uid, process.kernel),
    )?;
    let needed = ["NET_RAW", "IPC_LOCK"].map(|name| match process.can(name) {
        Some(true) => format!("{name} yes"),
        Some(false) => format!("{name} no"),
        None => format!("{name} unknown"),
    });
    screen.field("capabilities", needed.join(", "))?;
    let Limit { soft, hard } = process.memlock;
    let bytes = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), output::bytes);
    let kib =
        |value: Option<u64>| value.map_or_else(|| "unknown".to_owned(), |kib| format!("{kib} KiB"));
    screen.field(
        "memlock",
        format!(
            "soft {}, hard {}; locked {}, pinned {}",
            bytes(soft),
            bytes(hard),
            kib(process.locked_kib),
            kib(process.pinned_kib)
        ),
    )?;
    match &process.hugepages {
        Reading::Value(pools) => {
            for pool in pools {
                let size = output::bytes(pool.page_bytes);
                screen.field(
                    "huge pages",
                    format!("{size}: {} free of {}", pool.free, pool.total),
                )?;
            }
        }
        Reading::Unreadable(reason) => screen.field("huge pages", reason)?,
    }
    if let (Some(maps), Some(most)) = (process.maps, process.most_maps) {
        screen.field("mappings", format!("{maps} of {most}"))?;
    }
    let seccomp = process.seccomp.unwrap_or("unknown");
    let gain = match process.no_new_privileges {
        Some(true) => "; privileges can't be gained",
        _ => "",
    };
    screen.field("seccomp", format!("{seccomp}{gain}"))?;
    for sign in &process.container {
        screen.field("container", sign)?;
    }
    for switch in &process.switches {
        let effect = switch
            .effect
            .map(|effect| format!(": {effect}"))
            .unwrap_or_default();
        screen.field(
            "variable",
            format!("{}={}{effect}", switch.name, switch.value),
        )?;
    }
    let peers = process.modules.iter().filter(|name| name.contains("peer"));
    let peers: Vec<&str> = peers.map(String::as_str).collect();
    let peers = if peers.is_empty() {
        "no module for it".to_owned()
    } else {
        peers.join(" ")
    };
    screen.field("peer memory", peers)?;
    let modules = if process.modules.is_empty() {
        "none for RDMA".to_owned()
    } else {
        process.modules.join(" ")
    };
    screen.field("modules", modules)
}
