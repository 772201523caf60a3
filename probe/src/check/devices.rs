//! The devices: what sysfs shows, which node each has, and whether this process may open it.
//!
//! Promises: no node is opened: `access` asks the kernel the same question, and its answer counts the device cgroup too. The tree is the
//! one that libibverbs reads, `SYSFS_PATH` included. Does not do: judging.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, StatVfsMountFlags};
use serde::Serialize;

use super::ports::{self, Port};

/// What sysfs shows.
#[derive(Debug, Serialize)]
pub(crate) struct Sysfs {
    /// The root of the tree.
    pub(crate) root: PathBuf,
    /// Why the list of devices can't be read, if it can't.
    pub(crate) fault: Option<String>,
    /// The number of the interface of the kernel, if the module for it is loaded.
    pub(crate) kernel_abi: Option<String>,
    /// The devices, by name.
    pub(crate) devices: Vec<Device>,
}

/// One device.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Device {
    /// Its name.
    pub(crate) name: String,
    /// The driver in the kernel.
    pub(crate) kernel_driver: Option<String>,
    /// The driver that it needs in user space, where that is known.
    pub(crate) needs_driver: Option<&'static str>,
    /// The number of the ABI between the two.
    pub(crate) driver_abi: Option<String>,
    /// Such as `1: CA`.
    pub(crate) node_type: Option<String>,
    /// The firmware.
    pub(crate) firmware: Option<String>,
    /// The board.
    pub(crate) board: Option<String>,
    /// The GUID of the device.
    pub(crate) node_guid: Option<String>,
    /// The GUID of the board.
    pub(crate) system_guid: Option<String>,
    /// The address on the bus, for PCI devices.
    pub(crate) pci: Option<String>,
    /// The NUMA node that it is near to.
    pub(crate) numa: Option<i64>,
    /// Its node; none if the kernel has no interface for it.
    pub(crate) node: Option<Node>,
    /// Its ports.
    pub(crate) ports: Vec<Port>,
}

/// The node by which a device is opened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Node {
    /// Its path.
    pub(crate) path: PathBuf,
    /// The numbers that sysfs gives, major and minor.
    pub(crate) numbers: Option<String>,
    /// What is there, if something is.
    pub(crate) file: Option<NodeFile>,
}

/// What is at the path of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct NodeFile {
    /// Whether it is a character device.
    pub(crate) character: bool,
    /// Its numbers.
    pub(crate) numbers: String,
    /// Its permissions, in octal digits.
    pub(crate) mode: String,
    /// Its owner.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// The error number of opening it for reading and writing, as `access` tells it.
    pub(crate) errno: Option<i32>,
    /// Whether the file system that it is on forbids devices.
    pub(crate) nodev: bool,
}

impl Sysfs {
    /// Reads the tree; of these devices only, if any is named.
    pub(crate) fn read(wanted: &[String]) -> Self {
        let root = root();
        let mut sysfs = Self {
            kernel_abi: attribute(&root.join("class/infiniband_verbs/abi_version")),
            root,
            fault: None,
            devices: Vec::new(),
        };
        let nodes = nodes(&sysfs.root);
        let class = sysfs.root.join("class/infiniband");
        let mut names = match names(&class) {
            Ok(names) => names,
            Err(error) => {
                sysfs.fault = Some(format!("{}: {error}", class.display()));
                return sysfs;
            }
        };
        names.retain(|name| wanted.is_empty() || wanted.contains(name));
        for name in names {
            let node = nodes.iter().find(|(device, ..)| *device == name);
            sysfs.devices.push(Device::read(&class, name, node));
        }
        sysfs
    }
}

/// Of `class/infiniband_verbs`: the device, the name of the node, and the folder.
type NodeEntry = (String, String, PathBuf);

fn nodes(root: &Path) -> Vec<NodeEntry> {
    let class = root.join("class/infiniband_verbs");
    let names = names(&class).unwrap_or_default();
    names
        .into_iter()
        .filter_map(|name| {
            let folder = class.join(&name);
            Some((attribute(&folder.join("ibdev"))?, name, folder))
        })
        .collect()
}

impl Device {
    fn read(class: &Path, name: String, node: Option<&NodeEntry>) -> Self {
        let folder = class.join(&name);
        let parent = folder.join("device");
        let read = |file: &str| attribute(&folder.join(file));
        let kernel_driver = link_name(&parent.join("driver"));
        Self {
            needs_driver: needs(kernel_driver.as_deref(), &name),
            driver_abi: node.and_then(|(_, _, folder)| attribute(&folder.join("abi_version"))),
            kernel_driver,
            node_type: read("node_type"),
            firmware: read("fw_ver"),
            board: read("board_id"),
            node_guid: read("node_guid"),
            system_guid: read("sys_image_guid"),
            pci: link_name(&parent).filter(|name| is_pci(name)),
            numa: read("device/numa_node").and_then(|text| text.parse().ok()),
            node: node.map(|(_, node, folder)| Node::read(node, folder)),
            ports: ports::read(&folder),
            name,
        }
    }
}

impl Node {
    fn read(name: &str, folder: &Path) -> Self {
        let path = Path::new("/dev/infiniband").join(name);
        Self {
            numbers: attribute(&folder.join("dev")),
            file: NodeFile::read(&path),
            path,
        }
    }

    /// Whether what is there stands for the device that sysfs means.
    pub(crate) fn is_its_own(&self) -> bool {
        self.file.as_ref().is_some_and(|file| {
            file.character
                && self
                    .numbers
                    .as_ref()
                    .is_none_or(|numbers| *numbers == file.numbers)
        })
    }
}

impl NodeFile {
    fn read(path: &Path) -> Option<Self> {
        let data = fs::metadata(path).ok()?;
        let device = data.rdev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let asked = Access::READ_OK | Access::WRITE_OK;
        let answer = rustix::fs::accessat(CWD, path, asked, AtFlags::EACCESS);
        let mount = rustix::fs::statvfs(path).ok();
        Some(Self {
            character: data.file_type().is_char_device(),
            numbers: format!("{major}:{minor}"),
            mode: format!("{:04o}", data.mode() & 0o7777),
            uid: data.uid(),
            gid: data.gid(),
            errno: answer.err().map(rustix::io::Errno::raw_os_error),
            nodev: mount.is_some_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NODEV)),
        })
    }
}

/// The tree that libibverbs reads.
fn root() -> PathBuf {
    let named = std::env::var("SYSFS_PATH")
        .ok()
        .filter(|path| !path.is_empty());
    PathBuf::from(
        named
            .as_deref()
            .map_or("/sys", |path| path.trim_end_matches('/')),
    )
}

/// The value of a file of sysfs, without the end of the line; none if it is not there, empty or refuses.
pub(super) fn attribute(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The names in a folder, in order, numbers by their value.
pub(super) fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // `abi_version` lies beside the devices.
        if entry.path().is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort_by_key(|name| {
        let digits = name.len()
            - name
                .trim_end_matches(|one: char| one.is_ascii_digit())
                .len();
        let (front, number) = name.split_at(name.len() - digits);
        (front.to_owned(), number.parse::<u64>().unwrap_or(0))
    });
    Ok(names)
}

fn link_name(path: &Path) -> Option<String> {
    let target = fs::read_link(path).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

/// Such as `0000:17:00.0`.
fn is_pci(name: &str) -> bool {
    let mut parts = name.split([':', '.']);
    let hex = |part: Option<&str>, length: usize| {
        part.is_some_and(|part| {
            part.len() >= length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        })
    };
    hex(parts.next(), 4) && hex(parts.next(), 2) && hex(parts.next(), 2) && hex(parts.next(), 1)
}

/// The kernel's drivers and the user-space driver for each, from the match tables of rdma-core 44. A PCI driver may carry several
/// kinds of RDMA driver; where it does, the name of the device decides.
const DRIVERS: &[(&str, &str, &str)] = &[
    ("bnxt_en", "bnxt_re", "bnxt_re"),
    ("be2net", "ocrdma", "ocrdma"),
    ("cxgb4", "cxgb4_", "cxgb4"),
    ("efa", "efa_", "efa"),
    ("erdma", "erdma_", "erdma"),
    ("hfi1", "hfi1_", "hfi1verbs"),
    ("hns3", "hns_", "hns"),
    ("i40e", "irdma", "irdma"),
    ("ib_mthca", "mthca", "mthca"),
    ("ib_qib", "qib", "ipathverbs"),
    ("ice", "irdma", "irdma"),
    ("mana", "mana_", "mana"),
    ("mlx4_core", "mlx4_", "mlx4"),
    ("mlx5_core", "mlx5_", "mlx5"),
    ("qede", "qedr", "qedr"),
    ("vmw_pvrdma", "vmw_pvrdma", "vmw_pvrdma"),
    ("", "rxe", "rxe"),
    ("", "siw", "siw"),
];

/// The driver that a device needs: by the kernel's driver, or else, for those without hardware, by the usual name.
fn needs(kernel_driver: Option<&str>, name: &str) -> Option<&'static str> {
    let rows = DRIVERS.iter();
    match kernel_driver {
        Some(driver) => rows.clone().find(|(kernel, ..)| *kernel == driver),
        None => rows.clone().find(|(_, prefix, _)| name.starts_with(prefix)),
    }
    .map(|(_, _, needed)| *needed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_needed_driver_follows_the_kernels_driver_and_then_the_name() {
        assert_eq!(needs(Some("mlx5_core"), "ibp1s0"), Some("mlx5"));
        assert_eq!(needs(Some("hns3"), "hns_0"), Some("hns"));
        assert_eq!(needs(Some("something"), "mlx5_0"), None);
        assert_eq!(needs(None, "rxe0"), Some("rxe"));
        assert_eq!(needs(None, "fast0"), None);
    }

    #[test]
    fn a_pci_address_is_told_from_other_names() {
        assert!(is_pci("0000:17:00.0"));
        assert!(is_pci("10000:e1:00.1"));
        assert!(!is_pci("virtio0"));
        assert!(!is_pci("0000:17"));
    }

    #[test]
    fn a_node_that_is_another_file_is_not_the_devices_own() {
        let null = NodeFile::read(Path::new("/dev/null")).unwrap();
        assert!(null.character && null.errno.is_none());
        let mut node = Node {
            path: PathBuf::from("/dev/null"),
            numbers: Some("1:3".to_owned()),
            file: Some(null),
        };
        assert!(node.is_its_own());
        node.numbers = Some("231:192".to_owned());
        assert!(!node.is_its_own());
        assert_eq!(NodeFile::read(Path::new("/dev/no-such-node")), None);
    }
}
