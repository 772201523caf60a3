//! Debian's packages: the kernel and the guest's tools come from the archive that the host's `apt` is set up for.
//!
//! Promises: `apt` checks each download against the archive's signatures; nothing is installed but QEMU, and that only
//! as root and only where it is missing. Does not do: any other distribution.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::Failure;

/// The kernel series. 6.12 panicked about once in ninety boots with two rxe devices; 6.1 never has.
const SERIES: &str = "linux-image-6.1.";

/// Names that may depend on a kernel of the series: the release's own default first.
const KERNELS: [&str; 2] = ["linux-image-amd64", "linux-image-6.1-amd64"];

/// The program that emulates the guest, and the package it comes from.
const QEMU: (&str, &str) = ("qemu-system-x86_64", "qemu-system-x86");

/// Downloads `packages` and unpacks them all into `into`.
pub(super) fn unpack(packages: &[&str], into: &Path) -> Result<(), Failure> {
    let mut download = Command::new("apt-get");
    download.args(["-qq", "download"]);
    // As root `apt` would change to its own user, which can't write here, and warn.
    if rustix::process::geteuid().is_root() {
        download.args(["-o", "APT::Sandbox::User=root"]);
    }
    download.args(packages).current_dir(into);
    run(download, "download of packages")
        .map_err(|failure| failure.remedy("run `apt-get update` as root and try again"))?;
    let archives = std::fs::read_dir(into)
        .map_err(|error| Failure::io("packages", "list", into, &error))?
        .flatten()
        .map(|item| item.path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "deb"));
    for archive in archives {
        let mut unpack = Command::new("dpkg-deb");
        unpack.arg("-x").arg(&archive).arg(into);
        run(unpack, "unpacking of packages")?;
        std::fs::remove_file(&archive)
            .map_err(|error| Failure::io("packages", "remove", &archive, &error))?;
    }
    Ok(())
}

/// The name of the newest package of the kernel series.
pub(super) fn kernel() -> Result<String, Failure> {
    for name in KERNELS {
        let output = Command::new("apt-cache")
            .args(["depends", name])
            .stderr(Stdio::null())
            .output()
            .map_err(|error| {
                Failure::new("kernel", format!("apt-cache doesn't run: {error}"))
                    .remedy("the harness needs Debian's apt and dpkg")
            })?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let found = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .find(|package| package.starts_with(SERIES));
        if let Some(package) = found {
            return Ok(package.to_owned());
        }
    }
    Err(Failure::new(
        "kernel",
        format!(
            "apt knows no kernel {SERIES}* behind {}",
            KERNELS.join(" or ")
        ),
    )
    .remedy("run `apt-get update`; on other releases add Debian 12 to apt's sources"))
}

/// Where QEMU lies; installed first if it is missing and this is root.
pub(super) fn qemu() -> Result<PathBuf, Failure> {
    let (program, package) = QEMU;
    if let Some(path) = find_program(program) {
        return Ok(path);
    }
    let remedy = format!("apt-get install {package}");
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("qemu", format!("{program} isn't on the PATH")).remedy(remedy));
    }
    let mut install = Command::new("apt-get");
    install
        .args(["install", "-y", "-qq", "--no-install-recommends"])
        .args(["-o", "DPkg::Lock::Timeout=300", package])
        .env("DEBIAN_FRONTEND", "noninteractive");
    run(install, "installation of QEMU")?;
    find_program(program).ok_or_else(|| {
        Failure::new(
            "qemu",
            format!("{program} isn't on the PATH after `{remedy}`"),
        )
    })
}

/// What this host lacks for good: `apt`, or an emulator and the right to install one.
pub(super) fn impossible() -> Option<String> {
    let (program, package) = QEMU;
    if find_program("apt-get").is_none() {
        return Some("the guest is made of Debian's packages, and there is no apt-get".to_owned());
    }
    if find_program(program).is_none() && !rustix::process::geteuid().is_root() {
        return Some(format!("{program} is missing; install {package}"));
    }
    None
}

/// Looks a program up as the shell does.
pub(super) fn find_program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Runs a command to its end; a failure carries what it said.
pub(super) fn run(mut command: Command, step: &'static str) -> Result<Vec<u8>, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::new(step, format!("{program} doesn't run: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(
        step,
        format!("{program} ended with {}: {}", output.status, said.trim()),
    ))
}
