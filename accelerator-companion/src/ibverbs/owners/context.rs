//! An open device: found by a selector, with its port, its GIDs and its events.
//!
//! Promises: the step that fails is named with its number and what to do. Does not do: opening without a selector.

use std::path::Path;
use std::sync::Arc;

use lockgate::custody::{Charge, Domain, Owner};
use lockgate::{Error, ErrorKind};
use lockgate_verbs_shim::{
    self as shim, ContextHandle, ContextInfo, Device, DeviceAttributes, DeviceList, EventKind,
    GidEntry, PortAttributes, Subject,
};

use super::{admit, common, failed};
use crate::ibverbs::native::{self, DISASSOCIATE, Facts, core_errno};
use crate::ibverbs::pages::ForkMark;
use crate::ibverbs::select::{
    Candidate, GidChoice, GidRule, PathMtu, Selector, choose_device, choose_gid, choose_port,
};

const SYSFS: &str = "/sys/class/infiniband";
const LIST: &str = "list devices";
const OPEN: &str = "open device";

/// An open device.
#[derive(Debug)]
pub struct Context {
    pub(super) owner: Owner<native::Context>,
    attributes: DeviceAttributes,
    port: u8,
}

common!(Context, native::Context);

/// An asynchronous event of a device, acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it says.
    pub kind: EventKind,
    /// What it is about.
    pub subject: Subject,
}

impl Event {
    /// Whether nothing of the device can be used any more.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.kind == EventKind::DeviceFatal
    }
}

impl Context {
    /// Opens the device that the selector means, with one of its ports. A port needs no name where the device has only one, or
    /// where the selector is an interface.
    ///
    /// # Errors
    /// The step that failed: list, select or open the device, query it, select its port.
    pub fn open(domain: &Domain, selector: &Selector, port: Option<u8>) -> Result<Self, Error> {
        let list = DeviceList::read().map_err(no_list)?;
        let mut candidates = Vec::with_capacity(list.len());
        let mut devices = Vec::with_capacity(list.len());
        for device in list.iter() {
            let info = device.info().map_err(|errno| failed(LIST, errno))?;
            candidates.push(Candidate {
                netdevs: netdevs(&info.name),
                name: info.name.clone(),
                guid: info.guid,
            });
            devices.push((device, info));
        }
        if candidates.is_empty() {
            return Err(none_enumerated());
        }
        let (at, told) = choose_device(selector, &candidates)?;
        let (device, info) = &devices[at];
        let context = Self::take(domain, *device, info)?;
        let ports = u8::try_from(context.attributes.phys_port_cnt).unwrap_or(u8::MAX);
        // What was opened is closed by the drop of the owner.
        let port = choose_port(port, told, ports).map_err(|error| error.with_object(&info.name))?;
        Ok(Self { port, ..context })
    }

    fn take(domain: &Domain, device: Device<'_>, info: &shim::DeviceInfo) -> Result<Self, Error> {
        let admission = admit(domain, OPEN)?;
        let facts = Arc::new(Facts {
            device: info.name.clone(),
            driver: driver(&info.name),
            process: std::process::id(),
            disassociates: std::env::var_os(DISASSOCIATE).is_some(),
            mark: ForkMark::set().map_err(|error| Error::from_io("mark for forks", error))?,
        });
        let handle = device.open().map_err(|errno| not_opened(errno, info))?;
        let owner = admission.own(
            native::Context::new(handle, &facts),
            Vec::new(),
            Charge::none(),
        );
        let attributes = owner
            .native()
            .attributes()
            .map_err(|errno| failed("query device", errno).with_object(&info.name))?;
        Ok(Self {
            owner,
            attributes,
            port: 0,
        })
    }

    /// Its limits and capabilities, as they were when it was opened.
    #[must_use]
    pub fn attributes(&self) -> &DeviceAttributes {
        &self.attributes
    }

    /// The port that was chosen, from 1.
    #[must_use]
    pub fn port(&self) -> u8 {
        self.port
    }

    /// State and limits of the port, now.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn port_attributes(&self) -> Result<PortAttributes, Error> {
        const STEP: &str = "query port";
        self.facts().check_process(STEP)?;
        let answer = self.owner.native().port(self.port);
        answer.map_err(|errno| failed(STEP, errno).with_object(format!("port {}", self.port)))
    }

    /// Its descriptors and vectors.
    ///
    /// # Errors
    /// None in a library build.
    pub fn info(&self) -> Result<ContextInfo, Error> {
        let answer = self.owner.native().info();
        answer.map_err(|errno| failed("read descriptors", errno))
    }

    /// The entries of the port's GID table that are not empty.
    ///
    /// # Errors
    /// The kernel's number; `EOPNOTSUPP` from libraries before rdma-core 33.
    pub fn gids(&self) -> Result<Vec<GidEntry>, Error> {
        const STEP: &str = "read GID table";
        let count = self.port_attributes()?.gid_tbl_len;
        (0..count)
            .filter_map(|index| match self.owner.native().gid(self.port, index) {
                Err(errno) if errno == shim::Errno::NO_DATA => None,
                answer => Some(
                    answer
                        .map_err(|errno| failed(STEP, errno).with_object(format!("index {index}"))),
                ),
            })
            .collect()
    }

    /// The GID by the rule, with the reason for every entry.
    ///
    /// # Errors
    /// None, or several entries match; with the table.
    pub fn choose_gid(&self, rule: GidRule) -> Result<GidChoice, Error> {
        choose_gid(&self.gids()?, rule)
    }

    /// The path MTU that the port runs with; the peer's is to be agreed with ([`PathMtu::agree`]).
    ///
    /// # Errors
    /// The kernel's number, or one for an MTU that there is not.
    pub fn path_mtu(&self) -> Result<PathMtu, Error> {
        let raw = self.port_attributes()?.active_mtu;
        PathMtu::from_raw(raw).ok_or_else(|| {
            Error::new(ErrorKind::Provider, "read path MTU")
                .with_object(format!("port {}", self.port))
                .with_detail(format!("the driver says {raw}, and 1 to 5 are known"))
        })
    }

    /// The next asynchronous event, or nothing if none has come. Its acknowledgement is made here, since a destroy call of its
    /// object waits for that.
    ///
    /// # Errors
    /// The number that reading it gave.
    pub fn take_event(&self) -> Result<Option<Event>, Error> {
        const STEP: &str = "take event";
        self.facts().check_process(STEP)?;
        let event = match self.owner.native().async_event() {
            Err(errno) if errno == shim::Errno::AGAIN => return Ok(None),
            answer => answer.map_err(|errno| failed(STEP, errno))?,
        };
        let taken = Event {
            kind: event.kind(),
            subject: event.subject(),
        };
        native::acknowledge(event).map_err(|errno| failed(STEP, errno))?;
        Ok(Some(taken))
    }

    /// The bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare(&self) -> ContextHandle {
        self.owner.native().handle()
    }

    pub(super) fn facts(&self) -> &Arc<Facts> {
        self.owner.native().facts()
    }
}

fn no_list(errno: shim::Errno) -> Error {
    let error = failed(LIST, errno);
    match errno {
        shim::Errno::NO_SYSTEM => error
            .with_detail("the kernel has no RDMA subsystem loaded")
            .with_remedy(
                "load the driver of the device and ib_uverbs; in a container, on the host",
            ),
        shim::Errno::NOT_LINKED => error
            .with_detail("this build is a link stub without libibverbs")
            .with_remedy("rebuild without LOCKGATE_VERBS_LINK_STUB"),
        _ => error,
    }
}

/// The library has enumerated nothing: either there is nothing, or it has no driver for what the kernel shows.
fn none_enumerated() -> Error {
    let shown = names_in(Path::new(SYSFS));
    let error = Error::new(ErrorKind::Device, LIST);
    if shown.is_empty() {
        return error
            .with_detail(format!("the library enumerates none, and {SYSFS} has none"))
            .with_remedy("load the driver of the device; see `rdma link`");
    }
    error
        .with_detail(format!(
            "the library enumerates none, and {SYSFS} has: {}",
            shown.join(", ")
        ))
        .with_remedy(
            "install the library's drivers (ibverbs-providers or rdma-core), and give the container /dev/infiniband and \
             /sys/class/infiniband_verbs",
        )
}

fn not_opened(errno: shim::Errno, info: &shim::DeviceInfo) -> Error {
    let node = format!("/dev/infiniband/{}", info.node);
    let error = Error::from_errno(OPEN, core_errno(errno)).with_object(&info.name);
    let there = Path::new(&node).exists();
    match errno.raw() {
        libc::ENOENT | libc::ENODEV | libc::ENXIO if !there => error
            .with_detail(format!("{node} is not there"))
            .with_remedy(format!("give the container the node: --device {node}")),
        libc::EACCES | libc::EPERM => error.with_detail(format!("{node} is there")).with_remedy(
            "give the process the node's group, or the container's device cgroup the node",
        ),
        _ => error.with_detail(format!(
            "{node} is {}there",
            if there { "" } else { "not " }
        )),
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The interfaces that a device's ports run over, each once.
fn netdevs(device: &str) -> Vec<(u8, String)> {
    let ports = Path::new(SYSFS).join(device).join("ports");
    let mut found = Vec::new();
    for port in names_in(&ports) {
        let Ok(number) = port.parse() else { continue };
        let table = ports.join(&port).join("gid_attrs/ndevs");
        for index in names_in(&table) {
            // An empty entry can't be read.
            let Ok(netdev) = std::fs::read_to_string(table.join(index)) else {
                continue;
            };
            let entry = (number, netdev.trim().to_owned());
            if !found.contains(&entry) {
                found.push(entry);
            }
        }
    }
    found
}

/// The module of a device's driver. Soft-RoCE has no hardware below it, and is the one that tells a parent interface.
fn driver(device: &str) -> Option<String> {
    let folder = Path::new(SYSFS).join(device);
    if let Ok(link) = std::fs::read_link(folder.join("device/driver")) {
        return Some(link.file_name()?.to_str()?.to_owned());
    }
    folder
        .join("parent")
        .exists()
        .then(|| "rdma_rxe".to_owned())
}
