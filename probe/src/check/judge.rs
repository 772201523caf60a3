//! The verdicts, from what was found.
//!
//! Promises: pure: the same findings give the same verdicts; causes stand before their effects, so that the first failure is the one
//! to mend first. Does not do: looking at the host.

use lockgate::Errno;

use super::Findings;
use super::child::End;
use super::devices::{Device, Node, NodeFile};
use super::library::Library;
use super::ports::{AddressKind, Port};
use super::process::Process;
use super::providers::{Driver, Fault};
use super::trial::{self, Trials};
use crate::linkage::VERBS;
use crate::verdict::{Code, Level, Subject, Verdict};

const PACKAGES: &str = "Debian and Ubuntu ibverbs-providers, Fedora and RHEL libibverbs";
/// Below this not even the queues of one receiver fit.
const MEMLOCK_NEEDED: u64 = 1 << 20;
/// Below this a ring of 1,024 buffers of 2 KiB and what a driver locks beside it do not fit twice.
const MEMLOCK_GOOD: u64 = 8 << 20;

/// Everything that is to be said.
pub(crate) fn verdicts(found: &Findings) -> Vec<Verdict> {
    let mut all = Vec::new();
    library(&found.library, &mut all);
    copies(&found.library, &mut all);
    host(found, &mut all);
    providers(found, &mut all);
    for device in &found.sysfs.devices {
        let before = all.len();
        of_device(device, found, &mut all);
        if all[before..]
            .iter()
            .all(|verdict| verdict.level != Level::Failure)
        {
            all.push(usable(device));
        }
    }
    if let Some(trials) = &found.trials {
        all.extend(trial::broken_off(trials));
    }
    process(found, &mut all);
    all
}

/// Whether nothing stands in the way of a device.
pub(crate) fn is_usable(device: &str, verdicts: &[Verdict]) -> bool {
    let subject = Subject::Device(device.to_owned());
    let mut own = verdicts.iter().filter(|verdict| verdict.subject == subject);
    own.all(|verdict| verdict.level != Level::Failure)
}

fn library(library: &Library, all: &mut Vec<Verdict>) {
    let fail = |code, cause: String| {
        let verdict = Verdict::new(code, Level::Failure, Subject::Library, cause);
        let step = library.loading.step.iter();
        verdict.saw_all(step.map(|step| format!("{step}: {}", library.loading.end.text())))
    };
    let passed = || library.search.passed.iter().map(|passed| passed.text());
    let messages = || library.messages.iter().take(3).cloned();
    let found = library.search.found.as_ref();
    let file = found.map_or_else(
        || VERBS.to_owned(),
        |found| found.file.display().to_string(),
    );
    let other = library
        .search
        .passed
        .iter()
        .any(|passed| passed.other_architecture);
    if let Some(refused) = &library.loading.refused {
        let verdict = match found {
            None if other => fail(
                Code::LibraryWrongArch,
                format!("{VERBS} is there for another architecture only"),
            )
            .remedy("install the library of this program's architecture"),
            None if library.search.passed.is_empty() => {
                fail(Code::LibraryMissing, format!("the loader finds no {VERBS}"))
                    .remedy("install it: Debian and Ubuntu libibverbs1, Fedora and RHEL libibverbs")
            }
            None => fail(
                Code::LibraryDamaged,
                format!("the file of {VERBS} is damaged"),
            )
            .remedy("install its package again"),
            Some(_) => fail(Code::LibraryBroken, format!("{file} can't be loaded"))
                .remedy(format!("probe verify-linkage {file}")),
        };
        all.push(verdict.saw(refused.clone()).saw_all(passed()));
        return;
    }
    if library.broke_while_enumerating() {
        // A driver is to blame if one was caught: then the verdict is its own.
        return;
    }
    match &library.loading.end {
        End::Done => {}
        End::Hung { .. } => all.push(
            fail(
                Code::LibraryHang,
                format!("{file} does not come back from being loaded"),
            )
            .saw_all(messages())
            .remedy(
                "look into what its constructor waits for: gdb, strace; install its package again",
            ),
        ),
        End::Crashed { .. } | End::Exited { .. } => all.push(
            fail(
                Code::LibraryCrash,
                format!("{file} ends the process that loads it"),
            )
            .saw_all(messages())
            .remedy("install its package again; look for a foreign build and for LD_PRELOAD"),
        ),
        End::NotStarted { reason } => all.push(
            fail(
                Code::LibraryBroken,
                "the process that is to load it can't be started".to_owned(),
            )
            .saw(reason.clone())
            .remedy("mount /proc; allow this user another process"),
        ),
    }
}

fn copies(library: &Library, all: &mut Vec<Verdict>) {
    if library.mapped.len() < 2 {
        return;
    }
    let files = library.mapped.iter().map(|file| file.display().to_string());
    all.push(
        Verdict::new(
            Code::LibraryTwoCopies,
            Level::Failure,
            Subject::Library,
            format!(
                "{} copies of libibverbs were in one process",
                library.mapped.len()
            ),
        )
        .saw_all(files)
        .remedy("let all parts find the same file: no LD_PRELOAD, no vendored copy, one run path"),
    );
}

fn host(found: &Findings, all: &mut Vec<Verdict>) {
    let sysfs = &found.sysfs;
    let class = sysfs.root.join("class/infiniband");
    let fail = |code, cause: &str| Verdict::new(code, Level::Failure, Subject::Host, cause);
    if sysfs.devices.is_empty() {
        let evidence = match (&sysfs.fault, found.wanted.is_empty()) {
            (Some(fault), _) => fault.clone(),
            (None, true) => format!("{} is empty", class.display()),
            (None, false) => format!("{} has no {}", class.display(), found.wanted.join(", ")),
        };
        all.push(
            fail(Code::NoDevice, "no RDMA device is there")
                .saw(evidence)
                .remedy("load the kernel's driver (lspci -k), or, for tests, make a soft device: modprobe rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE"),
        );
    } else if sysfs.devices.iter().all(|device| device.node.is_none()) {
        all.push(
            fail(
                Code::ModuleMissing,
                "the kernel has devices and no interface to them",
            )
            .saw(format!(
                "{} is empty",
                sysfs.root.join("class/infiniband_verbs").display()
            ))
            .remedy("modprobe ib_uverbs"),
        );
    }
    let providers = &found.providers;
    if let Some(fault) = &providers.folder_fault {
        let needed = !sysfs.devices.is_empty();
        let level = if needed {
            Level::Failure
        } else {
            Level::Warning
        };
        all.push(
            Verdict::new(
                Code::ConfigMissing,
                level,
                Subject::Host,
                format!("{} can't be read: the library knows no driver", providers.folder.display()),
            )
            .saw(fault.clone())
            .remedy(format!("install the drivers ({PACKAGES}), or mount the folder with the drivers of the same version")),
        );
    }
    if !found.process.container.is_empty() {
        all.push(
            Verdict::new(
                Code::InContainer,
                Level::Note,
                Subject::Host,
                "this looks like a container",
            )
            .saw_all(found.process.container.iter().cloned()),
        );
    }
}

fn providers(found: &Findings, all: &mut Vec<Verdict>) {
    let mut absent = Vec::new();
    let mut caught = false;
    for driver in &found.providers.drivers {
        let subject = || Subject::Provider(driver.short_name().to_owned());
        let named = format!("named by {}", driver.named_by);
        let file = driver
            .file
            .as_ref()
            .map(|file| file.display().to_string())
            .unwrap_or_default();
        if let Some(end @ (End::Crashed { .. } | End::Hung { .. })) = &driver.end {
            caught = true;
            let (code, cause) = match end {
                End::Hung { .. } => (Code::ProviderHang, "does not come back from being loaded"),
                _ => (Code::ProviderCrash, "ends every process that loads it"),
            };
            all.push(
                Verdict::new(code, Level::Failure, subject(), cause)
                    .saw(format!("loading {file}: {}", end.text()))
                    .saw(named)
                    .remedy("take its name out of there until it is mended, or install its package again"),
            );
            continue;
        }
        match &driver.fault {
            None => {}
            Some(_) if needed(driver, found) => {} // told with the device
            Some(Fault::Absent { .. }) => absent.push(driver.short_name().to_owned()),
            Some(fault) => all.push(
                fault_verdict(fault, subject(), Level::Warning)
                    .saw(named)
                    .saw("no device that is here needs it"),
            ),
        }
    }
    if !absent.is_empty() {
        all.push(
            Verdict::new(
                Code::DriverUnneeded,
                Level::Note,
                Subject::Host,
                "drivers are configured and not installed; no device needs them: harmless",
            )
            .saw(absent.join(", ")),
        );
    }
    if found.library.broke_while_enumerating() && !caught {
        let (code, cause) = match found.library.loading.end {
            End::Hung { .. } => (
                Code::LibraryHang,
                "does not come back when it is asked for devices",
            ),
            _ => (
                Code::LibraryCrash,
                "ends the process that asks it for devices",
            ),
        };
        all.push(
            Verdict::new(code, Level::Failure, Subject::Library, cause)
                .saw(found.library.loading.end.text())
                .saw_all(found.library.messages.iter().take(3).cloned())
                .remedy("no single driver is to blame; run ibv_devices under gdb or strace"),
        );
    }
}

fn needed(driver: &Driver, found: &Findings) -> bool {
    let devices = &found.sysfs.devices;
    devices.iter().any(|device| {
        device.needs_driver == Some(driver.short_name())
            // What came from the environment was asked for by hand.
            && !found.is_enumerated(&device.name)
    })
}

fn fault_verdict(fault: &Fault, subject: Subject, level: Level) -> Verdict {
    let new = |code, cause: String| Verdict::new(code, level, subject.clone(), cause);
    match fault {
        Fault::Abi {
            file,
            wants,
            library,
        } => new(
            Code::ProviderAbi,
            format!("its driver has the private ABI {wants}, the library {library}"),
        )
        .saw(format!("{} needs IBVERBS_PRIVATE_{wants}", file.display()))
        .remedy("install library and drivers from the same source, of the same version"),
        Fault::Absent { looked } => {
            let all: Vec<String> = looked
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            new(
                Code::DriverMissing,
                "the driver that it needs is not installed".to_owned(),
            )
            .saw(format!("not there: {}", all.join(", ")))
            .remedy(format!("install the drivers: {PACKAGES}"))
        }
        Fault::Architecture { file, is, wanted } => new(
            Code::ProviderWrongArch,
            format!("its driver is {is}, wanted is {wanted}"),
        )
        .saw(file.display().to_string())
        .remedy(format!(
            "install the drivers of this architecture: {PACKAGES}"
        )),
        Fault::Broken { file, reason } => new(
            Code::ProviderBroken,
            "its driver can't be loaded".to_owned(),
        )
        .saw(format!("{}: {reason}", file.display()))
        .remedy(format!("install the drivers again: {PACKAGES}")),
        Fault::Versions {
            file,
            library,
            library_file,
            versions,
        } => new(
            Code::ProviderVersions,
            format!(
                "its driver needs {} of {library}, which is not there",
                versions.join(", ")
            ),
        )
        .saw(format!("needed by {}", file.display()))
        .saw(format!("found {}", library_file.display()))
        .remedy("install library and drivers from the same source, of the same version"),
    }
}

fn of_device(device: &Device, found: &Findings, all: &mut Vec<Verdict>) {
    let subject = || Subject::Device(device.name.clone());
    let fail = |code, cause: String| Verdict::new(code, Level::Failure, subject(), cause);
    match &device.node {
        None => all.push(
            fail(
                Code::NodeMissing,
                "the kernel has no interface to it".to_owned(),
            )
            .saw(format!(
                "not in {}",
                found.sysfs.root.join("class/infiniband_verbs").display()
            ))
            .remedy("modprobe ib_uverbs"),
        ),
        Some(node) => {
            if let Some(verdict) = of_node(node, device, found) {
                all.push(verdict);
            }
        }
    }
    let there = device.node.as_ref().is_some_and(|node| node.file.is_some());
    if there && found.library.enumerated.is_some() && !found.is_enumerated(&device.name) {
        all.push(unseen(device, found));
    } else if !found.library.loaded() || found.library.enumerated.is_none() {
        all.push(
            fail(
                Code::DeviceUnseen,
                "the library could not be asked for it".to_owned(),
            )
            .saw(match found.library.loading.errno {
                Some(errno) => format!("its list of devices: {}", error_text(errno)),
                None => "see the failures of the library and its drivers".to_owned(),
            }),
        );
    }
    ports(device, all);
    if let Some(trials) = &found.trials {
        tried(device, trials, all);
    }
}

fn of_node(node: &Node, device: &Device, found: &Findings) -> Option<Verdict> {
    let path = node.path.display();
    let fail = |code, cause: String| {
        Verdict::new(
            code,
            Level::Failure,
            Subject::Device(device.name.clone()),
            cause,
        )
    };
    let contained = !found.process.container.is_empty();
    let Some(file) = &node.file else {
        let numbers = node.numbers.as_deref().unwrap_or("unknown");
        return Some(
            fail(Code::NodeMissing, format!("{path} is not there"))
                .saw(format!(
                    "{} shows the device, with numbers {numbers}",
                    found.sysfs.root.display()
                ))
                .remedy(if contained {
                    format!("give the node to the container: --device {path}")
                } else {
                    "start udev, or udevadm trigger; in a container, map the node: --device"
                        .to_owned()
                }),
        );
    };
    if !node.is_its_own() {
        let kind = if file.character {
            "character device"
        } else {
            "no character device"
        };
        return Some(
            fail(Code::NodeStale, format!("{path} stands for something else"))
                .saw(format!(
                    "it is a {kind} {}, sysfs says {}",
                    file.numbers,
                    node.numbers.as_deref().unwrap_or("nothing")
                ))
                .remedy("remove the node and let udev make it, or map it anew"),
        );
    }
    let (cause, remedy) = denied(file)?;
    let owner = format!(
        "mode {}, owner {}, group {}; this is user {}",
        file.mode, file.uid, file.gid, found.process.uid
    );
    let mut verdict = fail(
        Code::NodeDenied,
        format!("{path} may not be opened: {cause}"),
    )
    .saw(owner);
    if let Some(errno) = file.errno {
        verdict = verdict.saw(format!(
            "access for reading and writing: {}",
            error_text(errno)
        ));
    }
    Some(verdict.remedy(remedy))
}

fn denied(file: &NodeFile) -> Option<(&'static str, &'static str)> {
    if file.nodev {
        return Some((
            "it is on a mount with nodev",
            "mount /dev without nodev, or map the node into the container: --device",
        ));
    }
    Some(match file.errno.map(Errno::from_raw) {
        None => return None,
        Some(Errno::PERM) => (
            "the device cgroup or a security module forbids it",
            "allow the device in the container: --device, or DeviceAllow=char-infiniband_verbs rw in the unit",
        ),
        Some(_) => (
            "its mode forbids it",
            "chmod 0666, as rdma-core's udev rules do, or put the user into the node's group",
        ),
    })
}

/// Its node is there and the library does not list it.
fn unseen(device: &Device, found: &Findings) -> Verdict {
    let subject = Subject::Device(device.name.clone());
    let fail = |code, cause: String| Verdict::new(code, Level::Failure, subject.clone(), cause);
    let kernel = device.kernel_driver.as_deref();
    let counted = format!(
        "in sysfs: {}; enumerated: {}",
        found.sysfs.devices.len(),
        found.library.enumerated.as_ref().map_or(0, Vec::len)
    );
    let Some(needed) = device.needs_driver else {
        return fail(
            Code::DeviceUnseen,
            "the library does not list it".to_owned(),
        )
        .saw(counted)
        .saw(format!(
            "kernel driver {}, which driver it needs is not known",
            kernel.unwrap_or("none")
        ))
        .saw_all(found.library.messages.iter().take(3).cloned())
        .remedy("configure the driver of its vendor; rdma link tells what the device is");
    };
    let needs = format!(
        "it needs the driver {needed} (kernel driver {})",
        kernel.unwrap_or("none")
    );
    let verdict = match found.providers.driver(needed) {
        None => fail(Code::DriverMissing, format!("no file names its driver {needed}"))
            .saw(format!("looked into {}", found.providers.folder.display()))
            .remedy(format!("install the drivers: {PACKAGES}")),
        Some(driver) => match (&driver.fault, &driver.file) {
            (Some(fault), _) => fault_verdict(fault, subject.clone(), Level::Failure)
                .saw(format!("named by {}", driver.named_by)),
            (None, Some(file)) => fail(Code::DeviceUnseen, "the library does not list it".to_owned())
                .saw(format!("{} is there and fits", file.display()))
                .saw_all(found.library.messages.iter().take(3).cloned())
                .remedy("install a newer library with its drivers; compare the network namespaces: rdma system"),
            (None, None) => fail(Code::DeviceUnseen, "the library does not list it".to_owned()),
        },
    };
    verdict.saw(needs).saw(counted)
}

fn ports(device: &Device, all: &mut Vec<Verdict>) {
    let subject = || Subject::Device(device.name.clone());
    let down: Vec<&Port> = device.ports.iter().filter(|port| !port.active()).collect();
    let level = if down.len() == device.ports.len() {
        Level::Failure
    } else {
        Level::Warning
    };
    for port in down {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        let remedy = match (&port.netdev, port.ethernet()) {
            (Some(netdev), true) => format!("ip link set {netdev} up; check cable and switch"),
            (None, true) => "set its network interface up; check cable and switch".to_owned(),
            (_, false) => "check cable and switch; is a subnet manager there?".to_owned(),
        };
        all.push(
            Verdict::new(
                Code::PortDown,
                level,
                subject(),
                format!("port {} is not active", port.number),
            )
            .saw(format!(
                "state {}, physical {}",
                text(&port.state),
                text(&port.physical)
            ))
            .remedy(remedy),
        );
    }
    for port in device
        .ports
        .iter()
        .filter(|port| port.ethernet() && port.active())
    {
        if port.choice.index.is_some() {
            continue;
        }
        let local = port
            .gids
            .iter()
            .any(|gid| gid.v2() && gid.address == AddressKind::LinkLocal);
        let code = if local {
            Code::GidLinkLocal
        } else {
            Code::GidNone
        };
        let netdev = port.netdev.as_deref().unwrap_or("INTERFACE");
        all.push(
            Verdict::new(
                code,
                Level::Warning,
                subject(),
                format!("port {} has no GID that the rule takes", port.number),
            )
            .saw(port.choice.why.clone())
            .remedy(format!("ip address add ADDRESS/PREFIX dev {netdev}")),
        );
    }
}

fn tried(device: &Device, trials: &Trials, all: &mut Vec<Verdict>) {
    let Some(own) = trials.of(&device.name) else {
        return;
    };
    all.extend(trial::verdicts(device, own));
}

fn usable(device: &Device) -> Verdict {
    let node = device
        .node
        .as_ref()
        .map(|node| node.path.display().to_string());
    Verdict::new(
        Code::DeviceUsable,
        Level::Ok,
        Subject::Device(device.name.clone()),
        "enumerated, and its node may be opened",
    )
    .saw_all(node)
}

fn process(found: &Findings, all: &mut Vec<Verdict>) {
    let process = &found.process;
    let new = |code, level, cause: String| Verdict::new(code, level, Subject::Process, cause);
    memlock(process, !found.sysfs.devices.is_empty(), all);
    if process.can("NET_RAW") == Some(false) {
        all.push(
            new(
                Code::NetRawMissing,
                Level::Warning,
                "CAP_NET_RAW is missing: no queue pairs for raw packets".to_owned(),
            )
            .saw(format!(
                "not among the effective capabilities of user {}",
                process.uid
            ))
            .remedy(
                "setcap cap_net_raw+ep FILE, AmbientCapabilities=CAP_NET_RAW, or --cap-add NET_RAW",
            ),
        );
    }
    if let Some(pools) = process.hugepages.value()
        && pools.iter().all(|pool| pool.total == 0)
    {
        all.push(new(
            Code::HugepagesNone,
            Level::Note,
            "no huge pages are reserved; none are needed".to_owned(),
        ));
    }
    if let (Some(maps), Some(most)) = (process.maps, process.most_maps)
        && maps > most / 10 * 8
    {
        all.push(
            new(
                Code::MapCountHigh,
                Level::Warning,
                "most of the mappings are used".to_owned(),
            )
            .saw(format!("{maps} of vm.max_map_count {most}"))
            .remedy("sysctl -w vm.max_map_count=1048576"),
        );
    }
    if found.library.fork == Some("disabled") && !found.sysfs.devices.is_empty() {
        all.push(
            new(
                Code::ForkUnsafe,
                Level::Note,
                "fork protection is off: use no verbs memory in a child of fork".to_owned(),
            )
            .saw("ibv_is_fork_initialized: disabled"),
        );
    }
    for switch in process.switches.iter().filter(|switch| switch.safety) {
        all.push(
            new(
                Code::SwitchUnsafe,
                Level::Warning,
                format!(
                    "{} is set: {}",
                    switch.name,
                    switch.effect.unwrap_or("unknown")
                ),
            )
            .saw(format!("{}={}", switch.name, switch.value))
            .remedy(format!("unset {}, unless it is meant", switch.name)),
        );
    }
}

fn memlock(process: &Process, devices: bool, all: &mut Vec<Verdict>) {
    let Some(soft) = process.memlock.soft.filter(|soft| *soft < MEMLOCK_GOOD) else {
        return;
    };
    if process.can("IPC_LOCK") == Some(true) {
        return;
    }
    let level = if devices && soft < MEMLOCK_NEEDED {
        Level::Failure
    } else {
        Level::Warning
    };
    let hard = process
        .memlock
        .hard
        .map_or_else(|| "unlimited".to_owned(), |hard| format!("{hard} bytes"));
    let remedy = match process.memlock.hard {
        Some(hard) if hard < MEMLOCK_GOOD => {
            "raise it: LimitMEMLOCK=infinity in the unit, memlock in /etc/security/limits.conf, --ulimit memlock=-1 of the container"
        }
        _ => "raise it before the start: ulimit -l unlimited",
    };
    all.push(
        Verdict::new(
            Code::MemlockLow,
            level,
            Subject::Process,
            format!("no more than {soft} bytes may be locked"),
        )
        .saw(format!(
            "RLIMIT_MEMLOCK soft {soft} bytes, hard {hard}; no CAP_IPC_LOCK"
        ))
        .saw_all(
            process
                .pinned_kib
                .map(|kib| format!("pinned now: {kib} KiB")),
        )
        .remedy(remedy),
    );
}

/// An error number with its text.
pub(crate) fn error_text(errno: i32) -> String {
    Errno::from_raw(errno).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(errno: Option<i32>, nodev: bool) -> NodeFile {
        NodeFile {
            character: true,
            numbers: "231:192".to_owned(),
            mode: "0666".to_owned(),
            uid: 0,
            gid: 0,
            errno,
            nodev,
        }
    }

    #[test]
    fn a_cgroup_is_told_from_a_mode_and_from_a_mount() {
        assert_eq!(denied(&file(None, false)), None);
        let cause = |errno, nodev| denied(&file(errno, nodev)).unwrap().0;
        assert!(cause(Some(Errno::PERM.raw()), false).contains("cgroup"));
        assert!(cause(Some(Errno::ACCES.raw()), false).contains("mode"));
        assert!(cause(None, true).contains("nodev"));
    }
}
