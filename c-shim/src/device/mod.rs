//! The link, devices, and what can be asked of them.
//!
//! Promises: unknown values are kept as numbers. Does not do: choosing a device or a GID.

pub(crate) mod sys;

use crate::errno::Errno;
use crate::ffi;
use crate::sys::{sized, text};

sized!(
    pub(crate) lgv_clock,
    pub lgv_context_info,
    pub lgv_device_attr,
    pub(crate) lgv_device_info,
    pub(crate) lgv_gid_entry,
    pub lgv_port_attr,
);

/// How this binary was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Against libibverbs.
    Library,
    /// Without it: every call is refused with [`Errno::NOT_LINKED`].
    Stub,
}

/// How this binary was built; asked of the C side, so that it is true of what was linked.
#[must_use]
pub fn link_mode() -> LinkMode {
    match sys::link_mode() {
        ffi::LGV_LINK_LIBRARY => LinkMode::Library,
        _ => LinkMode::Stub,
    }
}

/// A verb that older libraries lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Optional {
    /// Registration of another device's buffer: `IBVERBS_1.12`, rdma-core 34.
    DmaBuf,
    /// Whether the process is safe to fork: `IBVERBS_1.13`, rdma-core 35.
    ForkStatus,
    /// GID entries with type and interface: `IBVERBS_1.11`, rdma-core 33.
    GidEntry,
}

impl Optional {
    /// Whether the loaded library has it.
    #[must_use]
    pub fn is_there(self) -> bool {
        sys::link_optional(match self {
            Self::DmaBuf => ffi::LGV_OPTIONAL_DMABUF,
            Self::ForkStatus => ffi::LGV_OPTIONAL_FORK_STATUS,
            Self::GidEntry => ffi::LGV_OPTIONAL_GID_ENTRY,
        })
    }
}

/// Whether registered pages survive a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkStatus {
    /// A child may take pages away from under a device.
    Disabled,
    /// `ibv_fork_init` is in force.
    Enabled,
    /// The kernel takes care.
    Unneeded,
    /// A number that this crate doesn't know.
    Unknown(u32),
}

/// The fork status of this process.
///
/// # Errors
/// [`Errno::NOT_SUPPORTED`] from libraries before rdma-core 35.
pub fn fork_status() -> Result<ForkStatus, Errno> {
    Ok(match sys::fork_status()? {
        ffi::LGV_FORK_DISABLED => ForkStatus::Disabled,
        ffi::LGV_FORK_ENABLED => ForkStatus::Enabled,
        ffi::LGV_FORK_UNNEEDED => ForkStatus::Unneeded,
        other => ForkStatus::Unknown(other),
    })
}

/// What is known of a device without opening it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The kernel's name: `rxe0`.
    pub name: String,
    /// The name of its node below `/dev/infiniband`: `uverbs0`.
    pub node: String,
    /// Its folder below `/sys/class/infiniband`.
    pub sysfs: String,
    /// The node GUID, network order.
    pub guid: [u8; 8],
    /// The kernel's index, where it has one.
    pub index: Option<u32>,
    /// The library's number for the kind of node.
    pub node_type: i32,
    /// The library's number for the transport.
    pub transport: i32,
}

impl DeviceInfo {
    pub(crate) fn from_native(native: &ffi::lgv_device_info) -> Self {
        Self {
            name: text(&native.name),
            node: text(&native.dev_name),
            sysfs: text(&native.ibdev_path),
            guid: native.guid,
            index: u32::try_from(native.index).ok(),
            node_type: native.node_type,
            transport: native.transport_type,
        }
    }
}

/// The descriptors and vectors of an open device.
pub type ContextInfo = ffi::lgv_context_info;

/// Limits and capabilities of an open device; see `struct lgv_device_attr`.
pub type DeviceAttributes = ffi::lgv_device_attr;

impl DeviceAttributes {
    /// The version of its firmware.
    #[must_use]
    pub fn firmware(&self) -> String {
        text(&self.fw_ver)
    }
}

/// State and limits of a port; see `struct lgv_port_attr`.
pub type PortAttributes = ffi::lgv_port_attr;

/// Bits of `cap_flags` in [`DeviceAttributes`].
pub mod device_capabilities {
    pub use crate::ffi::LGV_DEVICE_MANAGED_FLOW_STEERING as FLOW_STEERING;
    pub use crate::ffi::LGV_DEVICE_MEM_MGT_EXTENSIONS as LOCAL_INVALIDATE;
    pub use crate::ffi::LGV_DEVICE_MEM_WINDOW as WINDOW_TYPE_1;
    pub use crate::ffi::LGV_DEVICE_MEM_WINDOW_TYPE_2A as WINDOW_TYPE_2A;
    pub use crate::ffi::LGV_DEVICE_MEM_WINDOW_TYPE_2B as WINDOW_TYPE_2B;
}

/// The state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Carries traffic.
    Active,
    /// Active, about to be taken down by the fabric.
    ActiveDefer,
    /// Configured, not yet active.
    Armed,
    /// No link.
    Down,
    /// A link without configuration.
    Init,
    /// A number that this crate doesn't know.
    Unknown(u32),
}

impl From<u32> for PortState {
    fn from(raw: u32) -> Self {
        match raw {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            other => Self::Unknown(other),
        }
    }
}

/// What a port runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// RoCE and raw packets.
    Ethernet,
    /// Native InfiniBand.
    InfiniBand,
    /// A number that this crate doesn't know; 0 stands for "not said".
    Unknown(u8),
}

impl From<u8> for LinkLayer {
    fn from(raw: u8) -> Self {
        match raw {
            1 => Self::InfiniBand,
            2 => Self::Ethernet,
            other => Self::Unknown(other),
        }
    }
}

/// The kind of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidType {
    /// Of an InfiniBand port.
    InfiniBand,
    /// RoCE v1: frames of their own Ethernet type, not routed.
    RoceV1,
    /// RoCE v2: UDP.
    RoceV2,
    /// A number that this crate doesn't know.
    Unknown(u32),
}

impl From<u32> for GidType {
    fn from(raw: u32) -> Self {
        match raw {
            ffi::LGV_GID_TYPE_IB => Self::InfiniBand,
            ffi::LGV_GID_TYPE_ROCE_V1 => Self::RoceV1,
            ffi::LGV_GID_TYPE_ROCE_V2 => Self::RoceV2,
            other => Self::Unknown(other),
        }
    }
}

/// One entry of a port's GID table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GidEntry {
    /// Its place in the table.
    pub index: u32,
    /// The sixteen bytes.
    pub gid: [u8; 16],
    /// Its kind.
    pub kind: GidType,
    /// The network interface that it belongs to, where there is one.
    pub netdev: Option<u32>,
}

impl GidEntry {
    pub(crate) fn from_native(native: &ffi::lgv_gid_entry) -> Self {
        Self {
            index: native.gid_index,
            gid: native.gid,
            kind: native.gid_type.into(),
            netdev: Some(native.netdev_index).filter(|index| *index != 0),
        }
    }
}
