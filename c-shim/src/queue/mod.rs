//! Queue pairs, what is posted to them, and what steers packets to them.
//!
//! Promises: requests lie in memory as the shim takes them. Does not do: checking the order of state changes.

pub(crate) mod sys;

use crate::errno::Errno;
use crate::ffi;
use crate::memory::Access;
use crate::memory::sys::{MrHandle, MwHandle};
use crate::sys::sized;

sized!(
    pub lgv_ah_attr,
    pub lgv_flow_create,
    pub lgv_qp_attr,
    pub(crate) lgv_qp_create,
    pub lgv_qp_info,
);

/// The kind of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Ethernet frames as they are; needs `CAP_NET_RAW`.
    RawPacket,
    /// Reliable, one peer.
    ReliableConnection,
    /// Unreliable, one peer.
    UnreliableConnection,
    /// Datagrams to anybody.
    UnreliableDatagram,
}

impl QpType {
    pub(crate) fn native(self) -> u32 {
        match self {
            Self::RawPacket => ffi::LGV_QPT_RAW_PACKET,
            Self::ReliableConnection => ffi::LGV_QPT_RC,
            Self::UnreliableConnection => ffi::LGV_QPT_UC,
            Self::UnreliableDatagram => ffi::LGV_QPT_UD,
        }
    }
}

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpState {
    /// Broken or being taken down; everything posted is flushed.
    Error,
    /// Receives may be posted.
    Init,
    /// Receives.
    ReadyToReceive,
    /// Receives and sends.
    ReadyToSend,
    /// New, or emptied.
    Reset,
    /// Sends no more, what was begun is finished.
    SendQueueDrain,
    /// The send side is broken.
    SendQueueError,
    /// A number that this crate doesn't know.
    Unknown(u32),
}

impl From<u32> for QpState {
    fn from(raw: u32) -> Self {
        match raw {
            ffi::LGV_QPS_RESET => Self::Reset,
            ffi::LGV_QPS_INIT => Self::Init,
            ffi::LGV_QPS_RTR => Self::ReadyToReceive,
            ffi::LGV_QPS_RTS => Self::ReadyToSend,
            ffi::LGV_QPS_SQD => Self::SendQueueDrain,
            ffi::LGV_QPS_SQE => Self::SendQueueError,
            ffi::LGV_QPS_ERR => Self::Error,
            other => Self::Unknown(other),
        }
    }
}

impl QpState {
    /// The library's number.
    #[must_use]
    pub fn raw(self) -> u32 {
        match self {
            Self::Error => ffi::LGV_QPS_ERR,
            Self::Init => ffi::LGV_QPS_INIT,
            Self::ReadyToReceive => ffi::LGV_QPS_RTR,
            Self::ReadyToSend => ffi::LGV_QPS_RTS,
            Self::Reset => ffi::LGV_QPS_RESET,
            Self::SendQueueDrain => ffi::LGV_QPS_SQD,
            Self::SendQueueError => ffi::LGV_QPS_SQE,
            Self::Unknown(raw) => raw,
        }
    }
}

/// What a queue pair is to be; see `struct lgv_qp_create`. Queues are arguments of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Its kind.
    pub kind: QpType,
    /// Requests that may wait in the send queue.
    pub max_send: u32,
    /// Requests that may wait in the receive queue.
    pub max_receive: u32,
    /// Pieces of one send.
    pub max_send_pieces: u32,
    /// Pieces of one receive.
    pub max_receive_pieces: u32,
    /// Bytes that a send may carry in the request itself.
    pub max_inline: u32,
    /// [`qp_create`] flags.
    pub flags: u32,
    /// Every send completes, without [`send_flags::SIGNALED`].
    pub signal_all: bool,
}

/// Flags of [`QpOptions::flags`].
pub mod qp_create {
    pub use crate::ffi::LGV_QP_CREATE_BLOCK_SELF_MCAST_LB as BLOCK_OWN_MULTICAST;
    pub use crate::ffi::LGV_QP_CREATE_CVLAN_STRIPPING as STRIP_VLAN;
    pub use crate::ffi::LGV_QP_CREATE_SCATTER_FCS as KEEP_FCS;
}

/// What was granted; see `struct lgv_qp_info`.
pub type QpInfo = ffi::lgv_qp_info;

/// Attributes of a queue pair; see `struct lgv_qp_attr`. Which fields count is told with [`qp_fields`].
pub type QpAttributes = ffi::lgv_qp_attr;

/// Fields of [`QpAttributes`], as bits.
pub mod qp_fields {
    pub use crate::ffi::LGV_QP_ACCESS_FLAGS as ACCESS;
    pub use crate::ffi::LGV_QP_AV as ADDRESS;
    pub use crate::ffi::LGV_QP_CUR_STATE as CURRENT_STATE;
    pub use crate::ffi::LGV_QP_DEST_QPN as DESTINATION;
    pub use crate::ffi::LGV_QP_MAX_DEST_RD_ATOMIC as MAX_DESTINATION_READS;
    pub use crate::ffi::LGV_QP_MAX_QP_RD_ATOMIC as MAX_READS;
    pub use crate::ffi::LGV_QP_MIN_RNR_TIMER as MIN_RNR_TIMER;
    pub use crate::ffi::LGV_QP_PATH_MTU as PATH_MTU;
    pub use crate::ffi::LGV_QP_PKEY_INDEX as PKEY_INDEX;
    pub use crate::ffi::LGV_QP_PORT as PORT;
    pub use crate::ffi::LGV_QP_QKEY as QKEY;
    pub use crate::ffi::LGV_QP_RETRY_CNT as RETRY_COUNT;
    pub use crate::ffi::LGV_QP_RNR_RETRY as RNR_RETRY;
    pub use crate::ffi::LGV_QP_RQ_PSN as RECEIVE_PSN;
    pub use crate::ffi::LGV_QP_SQ_PSN as SEND_PSN;
    pub use crate::ffi::LGV_QP_STATE as STATE;
    pub use crate::ffi::LGV_QP_TIMEOUT as TIMEOUT;
}

/// The way to a peer; see `struct lgv_ah_attr`.
pub type AddressVector = ffi::lgv_ah_attr;

/// One piece of memory in a request; see `struct lgv_sge`.
pub type Piece = ffi::lgv_sge;

impl Piece {
    /// A piece of registered memory.
    #[must_use]
    pub const fn of(address: u64, length: u32, lkey: u32) -> Self {
        Self {
            addr: address,
            length,
            lkey,
        }
    }
}

/// A receive request; see `struct lgv_recv_wr`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct RecvRequest<'pieces> {
    native: ffi::lgv_recv_wr,
    pieces: std::marker::PhantomData<&'pieces [Piece]>,
}

impl<'pieces> RecvRequest<'pieces> {
    /// A receive into these pieces of memory; `wr_id` comes back with the completion.
    #[must_use]
    pub fn new(wr_id: u64, pieces: &'pieces [Piece]) -> Self {
        Self {
            native: ffi::lgv_recv_wr {
                wr_id,
                link: 0,
                sg_list: pieces.as_ptr(),
                num_sge: count(pieces),
                reserved: 0,
            },
            pieces: std::marker::PhantomData,
        }
    }
}

/// More pieces than fit in 32 bits are more than any device takes, and so is this number.
fn count(pieces: &[Piece]) -> u32 {
    u32::try_from(pieces.len()).unwrap_or(u32::MAX)
}

/// A send request; see `struct lgv_send_wr`.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct SendRequest<'pieces> {
    native: ffi::lgv_send_wr,
    pieces: std::marker::PhantomData<&'pieces [Piece]>,
}

impl<'pieces> SendRequest<'pieces> {
    /// A request of any opcode; the fields that it needs are set with the other functions.
    #[must_use]
    pub fn new(opcode: u32, wr_id: u64, flags: u32, pieces: &'pieces [Piece]) -> Self {
        Self {
            native: ffi::lgv_send_wr {
                wr_id,
                sg_list: pieces.as_ptr(),
                num_sge: count(pieces),
                opcode,
                send_flags: flags,
                ..ffi::lgv_send_wr::default()
            },
            pieces: std::marker::PhantomData,
        }
    }

    /// Where a READ, WRITE or atomic goes.
    #[must_use]
    pub fn remote(mut self, address: u64, rkey: u32) -> Self {
        self.native.remote_addr = address;
        self.native.rkey = rkey;
        self
    }

    /// The operands of an atomic.
    #[must_use]
    pub fn atomic(mut self, compare_or_add: u64, swap: u64) -> Self {
        self.native.compare_add = compare_or_add;
        self.native.swap = swap;
        self
    }

    /// The immediate data, sent in network order as it stands here.
    #[must_use]
    pub fn immediate(mut self, data: [u8; 4]) -> Self {
        self.native.imm_or_rkey = u32::from_ne_bytes(data);
        self
    }

    /// The key to invalidate.
    #[must_use]
    pub fn invalidate(mut self, rkey: u32) -> Self {
        self.native.imm_or_rkey = rkey;
        self
    }

    /// The receiver of a datagram.
    #[must_use]
    pub fn datagram(mut self, ah: sys::AhHandle, qpn: u32, qkey: u32) -> Self {
        self.native.ah = ah.as_ptr();
        self.native.remote_qpn = qpn;
        self.native.remote_qkey = qkey;
        self
    }

    /// A bind of a window of type 2 under a new key.
    #[must_use]
    pub fn bind(
        mut self,
        mw: MwHandle,
        rkey: u32,
        mr: MrHandle,
        address: u64,
        length: u64,
        access: Access,
    ) -> Self {
        self.native.mw = mw.as_ptr();
        self.native.imm_or_rkey = rkey;
        self.native.bind_mr = mr.as_ptr();
        self.native.bind_addr = address;
        self.native.bind_length = length;
        self.native.bind_access = access.bits();
        self
    }
}

/// Opcodes of a [`SendRequest`].
pub mod requests {
    pub use crate::ffi::LGV_WR_ATOMIC_CMP_AND_SWP as COMPARE_AND_SWAP;
    pub use crate::ffi::LGV_WR_ATOMIC_FETCH_AND_ADD as FETCH_AND_ADD;
    pub use crate::ffi::LGV_WR_BIND_MW as BIND;
    pub use crate::ffi::LGV_WR_LOCAL_INV as LOCAL_INVALIDATE;
    pub use crate::ffi::LGV_WR_RDMA_READ as READ;
    pub use crate::ffi::LGV_WR_RDMA_WRITE as WRITE;
    pub use crate::ffi::LGV_WR_RDMA_WRITE_WITH_IMM as WRITE_WITH_IMMEDIATE;
    pub use crate::ffi::LGV_WR_SEND as SEND;
    pub use crate::ffi::LGV_WR_SEND_WITH_IMM as SEND_WITH_IMMEDIATE;
    pub use crate::ffi::LGV_WR_SEND_WITH_INV as SEND_WITH_INVALIDATE;
}

/// Flags of a [`SendRequest`].
pub mod send_flags {
    pub use crate::ffi::LGV_SEND_FENCE as FENCE;
    pub use crate::ffi::LGV_SEND_INLINE as INLINE;
    pub use crate::ffi::LGV_SEND_IP_CSUM as IP_CHECKSUM;
    pub use crate::ffi::LGV_SEND_SIGNALED as SIGNALED;
    pub use crate::ffi::LGV_SEND_SOLICITED as SOLICITED;
}

/// A batch of which not everything was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// How many are with the device; the index of the one that was refused.
    pub posted: usize,
    /// Why it was refused.
    pub errno: Errno,
}

impl std::fmt::Display for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "request {} of the batch: {}", self.posted, self.errno)
    }
}

impl std::error::Error for Partial {}

/// A rule that steers packets; see `struct lgv_flow_create`.
pub type FlowRule = ffi::lgv_flow_create;

/// The fields that a rule compares; see `struct lgv_flow_match`.
pub type FlowMatch = ffi::lgv_flow_match;

/// Values of [`FlowRule`]'s type.
pub mod flow_types {
    pub use crate::ffi::LGV_FLOW_ALL_DEFAULT as ALL_DEFAULT;
    pub use crate::ffi::LGV_FLOW_MC_DEFAULT as MULTICAST_DEFAULT;
    pub use crate::ffi::LGV_FLOW_NORMAL as NORMAL;
    pub use crate::ffi::LGV_FLOW_SNIFFER as SNIFFER;
}

/// Layers that a [`FlowRule`] compares.
pub mod flow_layers {
    pub use crate::ffi::LGV_FLOW_LAYER_ETH as ETHERNET;
    pub use crate::ffi::LGV_FLOW_LAYER_IPV4 as IPV4;
    pub use crate::ffi::LGV_FLOW_LAYER_IPV6 as IPV6;
    pub use crate::ffi::LGV_FLOW_LAYER_TCP as TCP;
    pub use crate::ffi::LGV_FLOW_LAYER_UDP as UDP;
}
