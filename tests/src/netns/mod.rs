//! Network namespaces for tests: made by `ip`, entered by threads, gone with the value.
//!
//! Promises: names are unique per process and counter, so that suites run side by side; a namespace that this made is deleted when
//! its value is dropped, also when the test panics. Where namespaces can't be made, [`require`] says so, and
//! never in silence. Does not do: anything to the namespace that the test was started in.
#![allow(clippy::expect_used, reason = "a helper that fails fails its test")]

mod sys;

use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::tools;

const GROUP: &str = "namespaces";
/// How often to ask for a route that the kernel adds in the background; a question takes about a millisecond.
const QUESTIONS: usize = 10_000;

/// Whether namespaces can be made here. If not, the skip has been told, and the test returns.
///
/// # Panics
/// If they can't, and `LOCKGATE_REQUIRE` names the group `namespaces` or says `all`.
#[must_use]
pub fn require() -> bool {
    let probe = match Command::new("ip").args(["netns", "list"]).output() {
        Err(error) => Err(format!("`ip` can't be run: {error}")),
        Ok(_) => match Namespace::try_new() {
            Ok(_) => Ok(()),
            Err(reason) => Err(format!("a network namespace can't be made: {reason}")),
        },
    };
    match probe {
        Ok(()) => true,
        Err(reason) => {
            tools::skip(GROUP, &reason);
            false
        }
    }
}

/// Whether this process runs as root, in whatever user namespace that is.
#[must_use]
pub fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    ids.and_then(|ids| ids.split_whitespace().nth(1)) == Some("0")
}

/// A network namespace with its loopback interface up.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes one.
    ///
    /// # Panics
    /// If it can't be made; ask [`require`] first.
    #[must_use]
    pub fn new() -> Self {
        Self::try_new().expect("a network namespace")
    }

    fn try_new() -> Result<Self, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-{}-{next}", std::process::id());
        let made = Command::new("ip")
            .args(["netns", "add", &name])
            .output()
            .map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let this = Self { name };
        this.ip("link set lo up");
        Ok(this)
    }

    /// Its name, as `ip netns` takes it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` inside, with arguments parted by spaces.
    ///
    /// # Panics
    /// If it fails, with what it printed.
    pub fn ip(&self, arguments: &str) -> String {
        self.try_ip(arguments)
            .unwrap_or_else(|error| panic!("`ip {arguments}` failed: {error}"))
    }

    /// Asks until IPv6 groups can be sent through an interface. The kernel adds their route some time after the link is up.
    ///
    /// # Panics
    /// If it doesn't.
    pub fn wait_for_ipv6(&self, interface: &str) {
        let route = format!("-6 route show table local type multicast dev {interface}");
        let found = (0..QUESTIONS).any(|_| self.ip(&route).contains("ff00::/8"));
        assert!(found, "no IPv6 on {interface} of {}", self.name);
    }

    /// Tries `ip` inside, with arguments parted by spaces.
    ///
    /// # Errors
    /// What it printed, if it fails.
    ///
    /// # Panics
    /// If it can't be run at all.
    pub fn try_ip(&self, arguments: &str) -> Result<String, String> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name]).args(arguments.split(' '));
        let output = command.output().expect("`ip` runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// A command that will run inside.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }

    /// Sets a kernel setting inside.
    ///
    /// # Panics
    /// If it can't be set.
    pub fn sysctl(&self, name: &str, value: &str) {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.enter(|| std::fs::write(&path, value))
            .unwrap_or_else(|error| panic!("set {name} to {value}: {error}"));
    }

    /// Runs `inside` on a thread of its own that is in the namespace. Sockets that it opens stay in there.
    ///
    /// # Panics
    /// If `inside` does.
    pub fn enter<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        let path = format!("/run/netns/{}", self.name);
        run_thread(|| {
            let handle = File::open(&path).unwrap_or_else(|error| panic!("open {path}: {error}"));
            sys::enter_network(&handle).unwrap_or_else(|error| panic!("enter {path}: {error}"));
            inside()
        })
    }

    /// As [`enter`](Self::enter), as a user without any privilege.
    ///
    /// # Panics
    /// If `inside` does.
    pub fn enter_without_privilege<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        self.enter(|| {
            sys::drop_privilege().unwrap_or_else(|error| panic!("drop privilege: {error}"));
            inside()
        })
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // There is nobody to tell; a namespace that stays shows in `ip netns list` under this process's id.
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.name])
            .output();
    }
}

/// Two namespaces with a cable between them: interface `v0` on both sides, 10.77.0.1 and fd77::1 near, .2 and ::2 far.
#[derive(Debug)]
pub struct Cable {
    /// Where the test receives.
    pub near: Namespace,
    /// Where it sends.
    pub far: Namespace,
}

impl Cable {
    /// Makes both, and plugs them together.
    ///
    /// # Panics
    /// If something can't be made; ask [`require`] first.
    #[must_use]
    pub fn new() -> Self {
        let this = Self {
            near: Namespace::new(),
            far: Namespace::new(),
        };
        this.plug("v0", 77);
        this
    }

    /// Adds a pair of interfaces of one name, with addresses in 10.`net`.0.0/24 and fd`net`::/64.
    pub fn plug(&self, interface: &str, net: u8) {
        self.near.ip(&format!(
            "link add {interface} type veth peer name {interface} netns {}",
            self.far.name
        ));
        for (side, host) in [(&self.near, 1), (&self.far, 2)] {
            // Without the flag, IPv6 waits a second for somebody else who may have the address.
            side.ip(&format!(
                "address add fd{net}::{host}/64 dev {interface} nodad"
            ));
            side.ip(&format!("address add 10.{net}.0.{host}/24 dev {interface}"));
            side.ip(&format!("link set {interface} up"));
        }
        for side in [&self.near, &self.far] {
            side.wait_for_ipv6(interface);
        }
    }
}

impl Default for Cable {
    fn default() -> Self {
        Self::new()
    }
}

fn run_thread<T: Send>(inside: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| match scope.spawn(inside).join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_carries_packets_and_its_namespaces_go_with_it() {
        if !require() {
            return;
        }
        let cable = Cable::new();
        let names = [cable.near.name().to_owned(), cable.far.name().to_owned()];
        let receiver = cable
            .near
            .enter(|| std::net::UdpSocket::bind("10.77.0.1:0").unwrap());
        let to = receiver.local_addr().unwrap();
        cable.far.enter(|| {
            let sender = std::net::UdpSocket::bind("10.77.0.2:0").unwrap();
            sender.send_to(b"over the cable", to).unwrap();
        });
        let mut buffer = [0; 64];
        let (len, from) = receiver.recv_from(&mut buffer).unwrap();
        assert_eq!(&buffer[..len], b"over the cable");
        assert_eq!(from.ip().to_string(), "10.77.0.2");
        drop(cable);
        let list = Command::new("ip").args(["netns", "list"]).output().unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        for name in names {
            assert!(
                !list
                    .lines()
                    .any(|line| line.split(' ').next() == Some(&name))
            );
        }
    }

    #[test]
    fn a_thread_without_privilege_has_none_and_the_others_keep_theirs() {
        if !require() {
            return;
        }
        let space = Namespace::new();
        let status = || std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let effective = |status: &str| {
            let line = status.lines().find(|line| line.starts_with("CapEff:"));
            u64::from_str_radix(line.unwrap()[7..].trim(), 16).unwrap()
        };
        assert_eq!(effective(&space.enter_without_privilege(status)), 0);
        assert_ne!(effective(&status()), 0);
    }
}
