//! Completions, their queues and channels, and the asynchronous events of a device.
//!
//! Promises: a completion lies in memory as the library writes it, so that a poll copies nothing. Does not do: naming the
//! cause of an error completion beyond its text.

pub(crate) mod sys;

use crate::ffi;
use crate::sys::sized;

sized!(
    pub(crate) lgv_async_event,
    pub(crate) lgv_cq_create,
    pub lgv_cq_info,
);

/// What a queue is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CqOptions {
    /// At least this many entries.
    pub entries: u32,
    /// Where its events go.
    pub channel: Option<sys::ChannelHandle>,
    /// Comes back with its events.
    pub token: u64,
    /// Below the device's number of completion vectors.
    pub vector: u32,
    /// What completions of an extended queue carry: [`extended`].
    pub extended: u32,
}

impl CqOptions {
    fn native(&self) -> ffi::lgv_cq_create {
        ffi::lgv_cq_create {
            cqe: self.entries,
            channel: self
                .channel
                .map_or(std::ptr::null_mut(), sys::ChannelHandle::as_ptr),
            token: self.token,
            comp_vector: self.vector,
            wc_flags: self.extended,
            ..ffi::lgv_cq_create::new()
        }
    }
}

/// What was made; see `struct lgv_cq_info`.
pub type CqInfo = ffi::lgv_cq_info;

/// One completion; see `struct lgv_wc`.
pub type Completion = ffi::lgv_wc;

impl Completion {
    /// Whether the request succeeded. If not, only `wr_id`, `status`, `qp_num` and `vendor_err` mean something.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status == 0
    }

    /// Whether it is of a receive.
    #[must_use]
    pub fn is_receive(&self) -> bool {
        self.opcode & ffi::LGV_WC_RECV != 0
    }
}

/// One completion of an extended queue; see `struct lgv_wc_ex`.
pub type CompletionEx = ffi::lgv_wc_ex;

/// Bits of [`CqOptions::extended`].
pub mod extended {
    pub use crate::ffi::LGV_WC_EX_BYTE_LEN as BYTE_LENGTH;
    pub use crate::ffi::LGV_WC_EX_CVLAN as CVLAN;
    pub use crate::ffi::LGV_WC_EX_IMM as IMMEDIATE;
    pub use crate::ffi::LGV_WC_EX_QP_NUM as QP_NUMBER;
    pub use crate::ffi::LGV_WC_EX_SRC_QP as SOURCE_QP;
    pub use crate::ffi::LGV_WC_EX_TIMESTAMP as TIMESTAMP;
    pub use crate::ffi::LGV_WC_EX_TIMESTAMP_WALLCLOCK as TIMESTAMP_WALLCLOCK;
}

/// Bits of `wc_flags`.
pub mod completion_flags {
    pub use crate::ffi::LGV_WC_GRH as GRH;
    pub use crate::ffi::LGV_WC_IP_CSUM_OK as IP_CHECKSUM_OK;
    pub use crate::ffi::LGV_WC_WITH_IMM as WITH_IMMEDIATE;
    pub use crate::ffi::LGV_WC_WITH_INV as WITH_INVALIDATE;
}

/// Values of a completion's `opcode` on success.
pub mod opcodes {
    /// A bind of a window.
    pub const BIND: u32 = 5;
    /// An atomic fetch and add.
    pub const FETCH_AND_ADD: u32 = 4;
    /// An invalidation of a key of one's own.
    pub const LOCAL_INVALIDATE: u32 = 6;
    /// A READ.
    pub const READ: u32 = 2;
    /// A receive.
    pub const RECEIVE: u32 = crate::ffi::LGV_WC_RECV;
    /// A SEND.
    pub const SEND: u32 = 0;
    /// A WRITE.
    pub const WRITE: u32 = 1;
}

/// The library's name for a completion's status, or `None` for one that this crate doesn't know.
#[must_use]
pub fn completion_status(status: u32) -> Option<&'static str> {
    const NAMES: [&str; 24] = [
        "success",
        "local length error",
        "local QP operation error",
        "local EE context operation error",
        "local protection error",
        "work request flushed",
        "memory window bind error",
        "bad response",
        "local access error",
        "remote invalid request",
        "remote access error",
        "remote operation error",
        "transport retry counter exceeded",
        "receiver not ready, retry counter exceeded",
        "local RDD violation",
        "remote invalid RD request",
        "remote aborted",
        "invalid EE context number",
        "invalid EE context state",
        "fatal error",
        "response time-out",
        "general error",
        "tag matching error",
        "tag matching rendezvous incomplete",
    ];
    NAMES.get(usize::try_from(status).ok()?).copied()
}

/// What an asynchronous event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The fabric's manager asks to register again.
    ClientReregister,
    /// The first packet came to a queue pair that isn't ready to send yet.
    CommunicationEstablished,
    /// A completion queue has overrun or is broken.
    CqError,
    /// The device is gone for all purposes.
    DeviceFatal,
    /// The GID table changed.
    GidChange,
    /// The last receive of a queue pair on a shared queue was used.
    LastWqeReached,
    /// The local identifier changed.
    LidChange,
    /// A path moved to its alternative.
    PathMigrated,
    /// It could not.
    PathMigrationError,
    /// The partition key table changed.
    PkeyChange,
    /// A port carries traffic.
    PortActive,
    /// A port doesn't any more.
    PortError,
    /// A peer touched what it may not.
    QpAccessError,
    /// A queue pair is broken.
    QpFatal,
    /// A peer sent what can't be right.
    QpRequestError,
    /// The fabric's manager changed.
    SmChange,
    /// A send queue that was being drained is empty.
    SqDrained,
    /// A shared receive queue is broken.
    SrqError,
    /// A shared receive queue is below its mark.
    SrqLimitReached,
    /// A number that this crate doesn't know.
    Unknown(u32),
    /// A work queue is broken.
    WqFatal,
}

impl From<u32> for EventKind {
    fn from(raw: u32) -> Self {
        const KINDS: [EventKind; 20] = [
            EventKind::CqError,
            EventKind::QpFatal,
            EventKind::QpRequestError,
            EventKind::QpAccessError,
            EventKind::CommunicationEstablished,
            EventKind::SqDrained,
            EventKind::PathMigrated,
            EventKind::PathMigrationError,
            EventKind::DeviceFatal,
            EventKind::PortActive,
            EventKind::PortError,
            EventKind::LidChange,
            EventKind::PkeyChange,
            EventKind::SmChange,
            EventKind::SrqError,
            EventKind::SrqLimitReached,
            EventKind::LastWqeReached,
            EventKind::ClientReregister,
            EventKind::GidChange,
            EventKind::WqFatal,
        ];
        usize::try_from(raw)
            .ok()
            .and_then(|at| KINDS.get(at).copied())
            .unwrap_or(Self::Unknown(raw))
    }
}

/// What an asynchronous event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A completion queue, by [`CqHandle::address`](sys::CqHandle::address).
    Cq(u64),
    /// The whole device.
    Device,
    /// Something that this crate doesn't use, by its address.
    Other(u64),
    /// A port.
    Port(u32),
    /// A queue pair, by [`QpHandle::address`](crate::QpHandle::address).
    Qp(u64),
}

/// An asynchronous event that has been taken and must be acknowledged.
#[derive(Debug)]
#[must_use = "the destroy call of its object waits until the event is acknowledged"]
pub struct AsyncEvent {
    native: ffi::lgv_async_event,
}

impl AsyncEvent {
    pub(crate) fn from_native(native: ffi::lgv_async_event) -> Self {
        Self { native }
    }
}

impl AsyncEvent {
    /// What it says.
    #[must_use]
    pub fn kind(&self) -> EventKind {
        self.native.type_.into()
    }

    /// What it is about.
    #[must_use]
    pub fn subject(&self) -> Subject {
        match self.native.subject {
            ffi::LGV_EVENT_ON_DEVICE => Subject::Device,
            ffi::LGV_EVENT_ON_PORT => Subject::Port(self.native.port),
            ffi::LGV_EVENT_ON_CQ => Subject::Cq(self.native.object),
            ffi::LGV_EVENT_ON_QP => Subject::Qp(self.native.object),
            _ => Subject::Other(self.native.object),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventKind, completion_status};

    #[test]
    fn unknown_numbers_are_kept() {
        assert_eq!(EventKind::from(10), EventKind::PortError);
        assert_eq!(EventKind::from(19), EventKind::WqFatal);
        assert_eq!(EventKind::from(20), EventKind::Unknown(20));
        assert_eq!(EventKind::from(u32::MAX), EventKind::Unknown(u32::MAX));
    }

    #[test]
    fn statuses_have_the_librarys_numbers() {
        for (status, name) in [
            (0, "success"),
            (4, "local protection error"),
            (5, "work request flushed"),
            (10, "remote access error"),
            (12, "transport retry counter exceeded"),
            (21, "general error"),
        ] {
            assert_eq!(completion_status(status), Some(name));
        }
        assert_eq!(completion_status(24), None);
    }
}
