//! What this host is, read once: kernel, user, interfaces, limits, capabilities.
//!
//! Promises: reads files and asks the kernel; changes nothing, opens no device, loads nothing. What can't be read is reported as
//! unreadable with the reason, never guessed. Everything is of the network namespace and the user of this process. Does not do:
//! judging. [`findings`] does.

mod capabilities;
pub(crate) mod findings;
mod interfaces;
mod limits;
mod membership;
mod netlink;
mod reading;
mod udp;

use serde::Serialize;

pub(crate) use capabilities::Capabilities;
pub(crate) use findings::{Finding, Level};
pub(crate) use interfaces::Interface;
pub(crate) use limits::{HugePages, Limit, Sysctl};
pub(crate) use reading::Reading;
pub(crate) use udp::UdpCounters;

/// One look at the host.
#[derive(Debug, Serialize)]
pub(crate) struct Host {
    /// The running kernel.
    pub(crate) kernel: Kernel,
    /// Who runs this.
    pub(crate) user: User,
    /// The network interfaces, by index.
    pub(crate) interfaces: Reading<Vec<Interface>>,
    /// The limit on locked memory.
    pub(crate) memlock: Limit,
    /// The pools of huge pages, by size.
    pub(crate) hugepages: Reading<Vec<HugePages>>,
    /// The capabilities of this process.
    pub(crate) capabilities: Reading<Capabilities>,
    /// Kernel settings that receiving depends on.
    pub(crate) sysctls: Vec<Sysctl>,
    /// What became of UDP datagrams.
    pub(crate) udp: Reading<UdpCounters>,
}

/// The running kernel, as `uname` tells it. The name of the host is left out: a report should not say whose it is.
#[derive(Debug, Serialize)]
pub(crate) struct Kernel {
    /// Such as `Linux`.
    pub(crate) system: String,
    /// Such as `6.1.0-18-amd64`.
    pub(crate) release: String,
    /// Such as `x86_64`.
    pub(crate) machine: String,
}

/// Who runs this.
#[derive(Debug, Serialize)]
pub(crate) struct User {
    /// The effective user id.
    pub(crate) uid: u32,
    /// The effective group id.
    pub(crate) gid: u32,
}

impl Host {
    /// Looks.
    pub(crate) fn read() -> Self {
        Self {
            kernel: Kernel::read(),
            user: User {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
            },
            interfaces: interfaces::read(),
            memlock: limits::memlock(),
            hugepages: limits::hugepages(),
            capabilities: capabilities::read(),
            sysctls: limits::sysctls(),
            udp: udp::read(),
        }
    }

    /// An interface by name, if the interfaces could be read.
    pub(crate) fn interface(&self, name: &str) -> Option<&Interface> {
        let Reading::Value(all) = &self.interfaces else {
            return None;
        };
        all.iter().find(|one| one.name == name)
    }

    /// The loopback interface: by its flag, whatever its name.
    pub(crate) fn loopback(&self) -> Option<&Interface> {
        let Reading::Value(all) = &self.interfaces else {
            return None;
        };
        all.iter().find(|one| one.loopback)
    }
}

impl Kernel {
    fn read() -> Self {
        let name = rustix::system::uname();
        Self {
            system: name.sysname().to_string_lossy().into_owned(),
            release: name.release().to_string_lossy().into_owned(),
            machine: name.machine().to_string_lossy().into_owned(),
        }
    }
}
