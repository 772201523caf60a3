//! The parts of `infiniband/verbs.h` that the child reads or fills.
//!
//! Promises: the layouts are those of the verbs ABI 1.1, which later versions only extend; [`LAYOUT`] lists them, and a test
//! compares the list with the header through a C compiler. Does not do: declaring anything that is not used here.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

/// A C struct that only the library looks into.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => { $(
        $(#[$doc])*
        #[repr(C)]
        pub(crate) struct $name {
            _private: [u8; 0],
        }
    )* };
}

opaque! {
    /// `struct ibv_context`.
    Context,
    /// `struct ibv_pd`.
    Pd,
    /// `struct ibv_mr`.
    Mr,
    /// `struct ibv_cq`.
    Cq,
    /// `struct ibv_qp`.
    Qp,
    /// `struct ibv_flow`.
    Flow,
}

/// `struct ibv_device`.
#[repr(C)]
pub(crate) struct RawDevice {
    ops: [*mut c_void; 2],
    node_type: c_int,
    transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    dev_path: [c_char; 256],
    ibdev_path: [c_char; 256],
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct QpCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QpInitAttr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: QpCap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `IBV_QPT_RAW_PACKET`.
pub(crate) const QPT_RAW_PACKET: c_int = 8;
/// `IBV_QPS_INIT`.
pub(crate) const QPS_INIT: u32 = 1;
/// `IBV_QP_STATE | IBV_QP_PORT`.
pub(crate) const QP_STATE_AND_PORT: c_int = 1 | 1 << 5;
/// `IBV_ACCESS_LOCAL_WRITE`.
pub(crate) const ACCESS_LOCAL_WRITE: c_int = 1;

/// `struct ibv_qp_attr`, as far as the state and the port.
#[repr(C)]
pub(crate) struct QpAttr {
    pub(crate) qp_state: u32,
    before_port: [u8; 125],
    pub(crate) port_num: u8,
    behind_port: [u8; 14],
}

impl QpAttr {
    /// Towards INIT on a port.
    pub(crate) const fn init(port_num: u8) -> Self {
        Self {
            qp_state: QPS_INIT,
            before_port: [0; 125],
            port_num,
            behind_port: [0; 14],
        }
    }
}

/// `struct ibv_device_attr`, as far as the firmware and the number of ports.
#[repr(C, align(8))]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [c_char; 64],
    rest: [u8; 168],
}

impl DeviceAttr {
    /// All zeros.
    pub(crate) const fn zeroed() -> Self {
        Self {
            fw_ver: [0; 64],
            rest: [0; 168],
        }
    }
}

/// `struct ibv_port_attr`, as far as the MTUs. The exported call fills less than the whole of it.
#[repr(C)]
pub(crate) struct PortAttr {
    state: c_uint,
    pub(crate) max_mtu: c_uint,
    pub(crate) active_mtu: c_uint,
    rest: [u8; 40],
}

impl PortAttr {
    /// All zeros.
    pub(crate) const fn zeroed() -> Self {
        Self {
            state: 0,
            max_mtu: 0,
            active_mtu: 0,
            rest: [0; 40],
        }
    }
}

/// `struct ibv_flow_attr` with one `struct ibv_flow_spec_eth` behind it.
#[repr(C)]
pub(crate) struct EthFlow {
    comp_mask: u32,
    kind: c_uint,
    size: u16,
    priority: u16,
    num_of_specs: u8,
    port: u8,
    flags: u32,
    spec_kind: c_uint,
    spec_size: u16,
    value: [u8; 16],
    mask: [u8; 16],
}

impl EthFlow {
    /// Steers one destination that no real station has: a locally administered address of zeros.
    pub(crate) const fn harmless(port: u8) -> Self {
        let mut value = [0; 16];
        value[0] = 0x02;
        let mut mask = [0; 16];
        let mut at = 0;
        while at < 6 {
            mask[at] = 0xff;
            at += 1;
        }
        Self {
            comp_mask: 0,
            kind: 0,                        // IBV_FLOW_ATTR_NORMAL
            size: size_of::<Self>() as u16, // 60, see LAYOUT
            priority: 0,
            num_of_specs: 1,
            port,
            flags: 0,
            spec_kind: 0x20, // IBV_FLOW_SPEC_ETH
            spec_size: 40,   // sizeof(struct ibv_flow_spec_eth), see LAYOUT
            value,
            mask,
        }
    }
}

/// From a context to its `abi_compat`, and from the context back to entries of `struct verbs_context` that is around it. The
/// struct "grows up": distances from its end, where the context lies, never change.
pub(crate) const ABI_COMPAT_AT: usize = 8 + 32 * 8 + 3 * 4 + 4 + MUTEX;
/// `sizeof(pthread_mutex_t)` of the 64-bit GNU C library.
const MUTEX: usize = if cfg!(target_arch = "aarch64") {
    48
} else {
    40
};
/// `__VERBS_ABI_IS_EXTENDED`.
pub(crate) const ABI_IS_EXTENDED: usize = usize::MAX;
/// Back to `sz`.
pub(crate) const SZ_BEFORE: usize = 8;
/// Back to `ibv_create_flow`.
pub(crate) const CREATE_FLOW_BEFORE: usize = 80;
/// Back to `ibv_destroy_flow`.
pub(crate) const DESTROY_FLOW_BEFORE: usize = 96;
/// `sizeof(struct ibv_context)`: what `sz` counts beside the entries in front of it.
pub(crate) const CONTEXT_SIZE: usize = ABI_COMPAT_AT + 8;

/// C expressions and what they have to be, for the test that asks the header.
#[doc(hidden)]
pub const LAYOUT: &[(&str, usize)] = &[
    ("sizeof(struct ibv_device)", size_of::<RawDevice>()),
    (
        "offsetof(struct ibv_device, name)",
        offset_of!(RawDevice, name),
    ),
    (
        "offsetof(struct ibv_device, dev_name)",
        offset_of!(RawDevice, dev_name),
    ),
    ("sizeof(struct ibv_qp_init_attr)", size_of::<QpInitAttr>()),
    (
        "offsetof(struct ibv_qp_init_attr, cap)",
        offset_of!(QpInitAttr, cap),
    ),
    (
        "offsetof(struct ibv_qp_init_attr, qp_type)",
        offset_of!(QpInitAttr, qp_type),
    ),
    ("IBV_QPT_RAW_PACKET", QPT_RAW_PACKET as usize),
    ("IBV_QPS_INIT", QPS_INIT as usize),
    ("IBV_QP_STATE | IBV_QP_PORT", QP_STATE_AND_PORT as usize),
    ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE as usize),
    ("sizeof(struct ibv_qp_attr)", size_of::<QpAttr>()),
    (
        "offsetof(struct ibv_qp_attr, port_num)",
        offset_of!(QpAttr, port_num),
    ),
    ("sizeof(struct ibv_device_attr)", size_of::<DeviceAttr>()),
    ("sizeof(struct ibv_port_attr)", size_of::<PortAttr>()),
    (
        "offsetof(struct ibv_port_attr, max_mtu)",
        offset_of!(PortAttr, max_mtu),
    ),
    (
        "offsetof(struct ibv_port_attr, active_mtu)",
        offset_of!(PortAttr, active_mtu),
    ),
    ("IBV_MTU_256", 1),
    ("IBV_MTU_4096", 5),
    (
        "sizeof(struct ibv_flow_attr) + sizeof(struct ibv_flow_spec_eth)",
        size_of::<EthFlow>(),
    ),
    (
        "sizeof(struct ibv_flow_attr)",
        offset_of!(EthFlow, spec_kind),
    ),
    (
        "offsetof(struct ibv_flow_attr, port)",
        offset_of!(EthFlow, port),
    ),
    (
        "sizeof(struct ibv_flow_attr) + offsetof(struct ibv_flow_spec_eth, val)",
        offset_of!(EthFlow, value),
    ),
    (
        "sizeof(struct ibv_flow_attr) + offsetof(struct ibv_flow_spec_eth, mask)",
        offset_of!(EthFlow, mask),
    ),
    ("IBV_FLOW_SPEC_ETH", 0x20),
    ("IBV_FLOW_ATTR_NORMAL", 0),
    ("sizeof(struct ibv_flow_spec_eth)", 40),
    ("offsetof(struct ibv_context, abi_compat)", ABI_COMPAT_AT),
    ("sizeof(struct ibv_context)", CONTEXT_SIZE),
    (
        "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz)",
        SZ_BEFORE,
    ),
    (
        "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, ibv_create_flow)",
        CREATE_FLOW_BEFORE,
    ),
    (
        "offsetof(struct verbs_context, context) - offsetof(struct verbs_context, ibv_destroy_flow)",
        DESTROY_FLOW_BEFORE,
    ),
];
