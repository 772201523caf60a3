//! The Debian packages that the tests use, and their installation.
//!
//! Every package stands in one table with the group of tests that needs it and why. Promises: only what is missing is
//! installed, only as root on Debian or a descendant of it, and the command is printed before it runs; everywhere else
//! the command is printed and nothing is done. A failed installation is not an error of the run: the tests that miss
//! their tool skip with a reason, or fail where their group is required.
//! Does not do: remove or upgrade anything.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::context::Context;
use crate::error::{Error, Result};
use crate::steps::{Invocation, Runner, Step};

/// A package and what it is for.
struct Package {
    name: &'static str,
    /// The group that tests name when they skip for want of it.
    group: &'static str,
    why: &'static str,
}

/// Only what a test in this tree uses. Packages of a later test come with that test.
const PACKAGES: &[Package] = &[
    Package {
        name: "gcc",
        group: "bench",
        why: "builds the C loops that the benchmarks compare with",
    },
    Package {
        name: "libc6-dev",
        group: "bench",
        why: "headers for those loops",
    },
    Package {
        name: "libpcap-dev",
        group: "bench",
        why: "what packet and xdp are compared with beside those loops",
    },
    Package {
        name: "valgrind",
        group: "callgrind",
        why: "counts instructions per packet",
    },
    Package {
        name: "ethtool",
        group: "namespaces",
        why: "turns off offloads of the virtual interfaces",
    },
    Package {
        name: "iperf",
        group: "namespaces",
        why: "sends multicast from a program that is not ours",
    },
    Package {
        name: "iproute2",
        group: "namespaces",
        why: "`ip` makes the namespaces and the interfaces in them",
    },
    Package {
        name: "tcpdump",
        group: "namespaces",
        why: "captures the packets that ours are compared with",
    },
    Package {
        name: "tcpreplay",
        group: "namespaces",
        why: "sends recorded frames, VLAN tags and fragments included",
    },
    Package {
        name: "strace",
        group: "strace",
        why: "shows what `probe check` opens and what it does not",
    },
    Package {
        name: "tshark",
        group: "tshark",
        why: "second opinion on every field that the frame parser reads",
    },
    Package {
        name: "libclang-dev",
        group: "verbs",
        why: "reads the shim's header, from which its binding is made",
    },
    Package {
        name: "libibverbs-dev",
        group: "verbs",
        why: "the library that the verbs shim is built against",
    },
    Package {
        name: "pkg-config",
        group: "verbs",
        why: "finds that library",
    },
    Package {
        name: "ibverbs-providers",
        group: "vm",
        why: "the user-space driver of the guest's Soft-RoCE devices",
    },
    Package {
        name: "qemu-system-x86",
        group: "vm",
        why: "runs the guest that has RDMA devices",
    },
];

/// Says what is missing and, where that is possible and wanted, installs it as a step of `runner`.
pub(crate) fn provide<W: Write>(
    context: &Context,
    runner: &mut Runner<W>,
    install: bool,
) -> Result<()> {
    let told = |error| Error::new("write the list of packages", error);
    let host = Host::this();
    let missing: Vec<&Package> = match host.system {
        System::Debian => PACKAGES
            .iter()
            .filter(|package| !is_installed(package.name))
            .collect(),
        System::Other => PACKAGES.iter().collect(),
    };
    let plan = Plan::new(&host, &missing, install);
    let out = runner.sink();
    writeln!(out, "\n== packages\n{}", plan.words()).map_err(told)?;
    if let Plan::Install(names) = &plan {
        apt(context, runner, vec!["update".to_owned(), "-q".to_owned()])?;
        apt(context, runner, install_arguments(names))?;
        // One package that this release does not have keeps apt from installing the others.
        let left: Vec<&str> = names
            .iter()
            .copied()
            .filter(|name| !is_installed(name))
            .collect();
        if left.len() > 1 {
            left.iter()
                .try_for_each(|name| apt(context, runner, install_arguments(&[name])))?;
        }
        let left: Vec<&str> = left
            .into_iter()
            .filter(|name| !is_installed(name))
            .collect();
        if !left.is_empty() {
            let left = left.join(" ");
            writeln!(
                runner.sink(),
                "still missing: {left}; tests that use them skip with a reason"
            )
            .map_err(told)?;
        }
    }
    Ok(())
}

/// Runs apt-get. Its failure must show, but whether it matters is decided by the tests that needed the package.
fn apt<W: Write>(context: &Context, runner: &mut Runner<W>, arguments: Vec<String>) -> Result<()> {
    let invocation = Invocation::new("apt-get", &arguments)
        .in_folder(&context.root)
        .with("DEBIAN_FRONTEND", "noninteractive")
        .with("LC_ALL", "C.UTF-8");
    let name = format!("apt-get {}", arguments[0]);
    runner.run(Step::command("packages", name, invocation).leniently())?;
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Debian,
    Other,
}

struct Host {
    system: System,
    root: bool,
}

impl Host {
    fn this() -> Self {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            system: system(&release),
            root: is_root(&status),
        }
    }
}

/// Reads `ID` and `ID_LIKE` of `os-release(5)`.
fn system(release: &str) -> System {
    let ids = release
        .lines()
        .filter_map(|line| {
            line.strip_prefix("ID=")
                .or_else(|| line.strip_prefix("ID_LIKE="))
        })
        .flat_map(|value| value.trim_matches('"').split_whitespace());
    for id in ids {
        if matches!(id, "debian" | "ubuntu") {
            return System::Debian;
        }
    }
    System::Other
}

/// Reads the effective user of `/proc/self/status`: the second number behind `Uid:`.
fn is_root(status: &str) -> bool {
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    uids.and_then(|uids| uids.split_whitespace().nth(1)) == Some("0")
}

fn is_installed(package: &str) -> bool {
    Command::new("dpkg-query")
        .args(["--show", "--showformat=${db:Status-Status}", package])
        .stdin(Stdio::null())
        .output()
        .is_ok_and(|output| output.status.success() && output.stdout == b"installed")
}

fn install_arguments(names: &[&str]) -> Vec<String> {
    // The lock's time-out lets two runs on one machine wait for each other.
    [
        "install",
        "--yes",
        "--no-install-recommends",
        "-o",
        "DPkg::Lock::Timeout=300",
    ]
    .into_iter()
    .chain(names.iter().copied())
    .map(str::to_owned)
    .collect()
}

/// What is to be done about the missing packages.
enum Plan<'a> {
    Install(Vec<&'a str>),
    Nothing,
    Tell {
        missing: Vec<&'a Package>,
        command: Option<String>,
    },
}

impl<'a> Plan<'a> {
    fn new(host: &Host, missing: &[&'a Package], install: bool) -> Self {
        let names: Vec<&str> = missing.iter().map(|package| package.name).collect();
        match (host.system, host.root, install) {
            _ if missing.is_empty() => Self::Nothing,
            (System::Debian, true, true) => Self::Install(names),
            (System::Debian, root, _) => {
                let command = format!("apt-get {}", install_arguments(&names).join(" "));
                let command = if root {
                    command
                } else {
                    format!("sudo {command}")
                };
                Self::Tell {
                    missing: missing.to_vec(),
                    command: Some(command),
                }
            }
            (System::Other, ..) => Self::Tell {
                missing: missing.to_vec(),
                command: None,
            },
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Nothing => "all packages that the tests use are installed".to_owned(),
            Self::Install(names) => format!(
                "installing the packages that the tests use: {}",
                names.join(" ")
            ),
            Self::Tell { missing, command } => {
                let mut text = match command {
                    Some(command) => format!("not installed; to run every test, first run:\n  {command}\n"),
                    None => "this is not Debian or Ubuntu; the tests use these tools (Debian's package names):\n".to_owned(),
                };
                for package in missing {
                    text.push_str(&format!(
                        "  {:<10} {:<11} {}\n",
                        package.name, package.group, package.why
                    ));
                }
                text.push_str("tests that miss their tool skip with a reason");
                text
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<&'static Package> {
        PACKAGES.iter().take(2).collect()
    }

    #[test]
    fn debian_and_its_descendants_are_told_from_others() {
        assert_eq!(
            system("PRETTY_NAME=\"Debian\"\nID=debian\n"),
            System::Debian
        );
        assert_eq!(
            system("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"),
            System::Debian
        );
        assert_eq!(system("ID=fedora\nVERSION=\"not debian\"\n"), System::Other);
        assert_eq!(system(""), System::Other);
    }

    #[test]
    fn root_is_the_effective_user() {
        assert!(is_root("Name:\tx\nUid:\t1000\t0\t0\t0\n"));
        assert!(!is_root("Uid:\t0\t1000\t0\t0\n"));
        assert!(!is_root(""));
    }

    #[test]
    fn only_root_on_debian_installs_and_only_when_asked() {
        let host = |system, root| Host { system, root };
        assert!(
            matches!(Plan::new(&host(System::Debian, true), &two(), true), Plan::Install(names) if names.len() == 2)
        );
        for (host, install) in [
            (host(System::Debian, false), true),
            (host(System::Debian, true), false),
            (host(System::Other, true), true),
        ] {
            assert!(matches!(
                Plan::new(&host, &two(), install),
                Plan::Tell { .. }
            ));
        }
    }

    #[test]
    fn nothing_missing_is_nothing_to_do() {
        let host = Host {
            system: System::Debian,
            root: true,
        };
        assert!(matches!(Plan::new(&host, &[], true), Plan::Nothing));
    }

    #[test]
    fn who_may_not_install_is_given_the_exact_command_and_the_reasons() {
        let words = Plan::new(
            &Host {
                system: System::Debian,
                root: false,
            },
            &two(),
            true,
        )
        .words();
        assert!(
            words.contains(
                "\n  sudo apt-get install --yes --no-install-recommends -o DPkg::Lock::Timeout=300 gcc libc6-dev\n"
            ),
            "{words}"
        );
        assert!(words.contains(PACKAGES[0].why), "{words}");
    }

    #[test]
    fn the_table_is_sorted_by_group_and_each_package_stands_once() {
        assert!(
            PACKAGES
                .windows(2)
                .all(|pair| (pair[0].group, pair[0].name) < (pair[1].group, pair[1].name))
        );
        let mut names: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PACKAGES.len());
    }

    #[test]
    fn a_package_that_is_not_there_is_not_installed() {
        assert!(!is_installed("no-such-package-as-this"));
    }
}
