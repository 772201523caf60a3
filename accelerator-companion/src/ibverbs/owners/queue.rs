//! Queue pairs, and what is attached to them.
//!
//! Promises: a queue pair holds its queues, its protection domain and what it is told to keep; a refused change of state is
//! explained by the state table; both ends agree on the smaller path MTU. Does not do: exchanging the ends' data.

use std::sync::Arc;

use lockgate::Error;
use lockgate::custody::{Charge, Domain, Held, Owner};
use lockgate_verbs_shim::{
    self as shim, Access, AddressVector, FlowRule, QpAttributes, QpHandle, QpInfo, QpOptions,
    QpState, QpType, qp_fields,
};

use super::{Context, CqLane, ProtectionDomain, admit, charge, common, failed};
use crate::ibverbs::limits::{Beyond, Clamped, fit_queue_pair, memory_error};
use crate::ibverbs::native::{self, core_errno};
use crate::ibverbs::select::PathMtu;
use crate::ibverbs::states;

/// The bytes that a request is charged: the common drivers' smallest, and each piece of memory that it names.
const REQUEST: u64 = 64;
const PIECE: u64 = 16;

/// A queue pair.
#[derive(Debug)]
pub struct QueuePair {
    pub(super) owner: Owner<native::Qp>,
    info: QpInfo,
    kind: QpType,
    clamped: Vec<Clamped>,
}

common!(QueuePair, native::Qp);

/// One end of a connection: what the other has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The number of its queue pair.
    pub qpn: u32,
    /// The number of its first packet, 24 bits.
    pub psn: u32,
    /// Its GID.
    pub gid: [u8; 16],
    /// The place of the GID in its own table; of no use to the other end.
    pub gid_index: u8,
    /// The path MTU of its port.
    pub mtu: PathMtu,
    /// The READs and atomics that it serves, and has under way, at a time: at most the device's `max_qp_rd_atom`.
    pub reads: u8,
}

impl QueuePair {
    /// Makes a queue pair whose sends and receives complete on these queues of the lane.
    ///
    /// # Errors
    /// A size that is beyond the device's, by name; the budget; the kernel's number, explained where it is certain.
    pub fn create(
        domain: &Domain,
        context: &Context,
        pd: &ProtectionDomain,
        (lane, send, receive): (&CqLane, usize, usize),
        mut options: QpOptions,
        beyond: Beyond,
    ) -> Result<Self, Error> {
        let step = match options.kind {
            QpType::RawPacket => "create raw packet queue pair",
            _ => "create queue pair",
        };
        context.facts().check_process(step)?;
        let (send, receive) = (lane.queue(send, step)?, lane.queue(receive, step)?);
        // A queue pair over objects of two devices is not the kernel's to sort out.
        for facts in [
            pd.owner.native().facts(),
            send.native().facts(),
            receive.native().facts(),
        ] {
            if !Arc::ptr_eq(facts, context.facts()) {
                return Err(failed(step, shim::Errno::INVALID)
                    .with_detail("protection domain and queues are of another device"));
            }
        }
        let clamped = fit_queue_pair(context.attributes(), &mut options, beyond)?;
        let admission = admit(domain, step)?;
        let bytes = |requests: u32, pieces: u32| {
            u64::from(requests) * (REQUEST + PIECE * u64::from(pieces))
        };
        let asked = bytes(options.max_send, options.max_send_pieces)
            + bytes(options.max_receive, options.max_receive_pieces);
        let charge = charge(domain, step, asked)?;
        let (qp, info) =
            native::Qp::create(pd.owner.native(), send.native(), receive.native(), &options)
                .map_err(|errno| not_created(step, options.kind, errno, asked))?;
        let parents = vec![context.hold(), pd.hold(), send.hold(), receive.hold()];
        let mut owner = admission.own(qp, parents, charge);
        let granted =
            bytes(info.max_send_wr, info.max_send_sge) + bytes(info.max_recv_wr, info.max_recv_sge);
        if granted > asked {
            let _ = owner.raise_charge(granted);
        }
        Ok(Self {
            owner,
            info,
            kind: options.kind,
            clamped,
        })
    }

    /// What was granted, with its number.
    #[must_use]
    pub fn info(&self) -> &QpInfo {
        &self.info
    }

    /// What was clamped to the device's limits.
    #[must_use]
    pub fn clamped(&self) -> &[Clamped] {
        &self.clamped
    }

    /// Keeps something, such as a region, until this queue pair has a receipt.
    pub fn keep(&mut self, held: Arc<Held>) {
        self.owner.depend_on(held);
    }

    /// Changes the fields that `fields` names.
    ///
    /// # Errors
    /// The kernel's number, explained by the state table.
    pub fn modify(&self, attributes: &QpAttributes, fields: u32) -> Result<(), Error> {
        const STEP: &str = "modify queue pair";
        let qp = self.owner.native();
        qp.facts().check_process(STEP)?;
        // Asked before, since a refused change leaves it.
        qp.modify(attributes, fields).map_err(|errno| {
            let to = QpState::from(attributes.qp_state);
            let error = failed(STEP, errno).with_object(format!("qpn {}", self.info.qp_num));
            match (errno, self.state()) {
                (shim::Errno::INVALID, Ok(from)) if fields & qp_fields::STATE != 0 => {
                    error.with_detail(states::explain(self.kind, from, to, fields))
                }
                _ => error,
            }
        })
    }

    /// Reads the fields that `fields` names.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn query(&self, fields: u32) -> Result<QpAttributes, Error> {
        const STEP: &str = "query queue pair";
        let qp = self.owner.native();
        qp.facts().check_process(STEP)?;
        qp.query(fields).map_err(|errno| failed(STEP, errno))
    }

    /// Its state now.
    ///
    /// # Errors
    /// The kernel's number.
    pub fn state(&self) -> Result<QpState, Error> {
        Ok(self.query(qp_fields::STATE)?.qp_state.into())
    }

    /// Connects a reliable queue pair: through all states to ready to send, with the smaller path MTU of the two ends and no more
    /// READs under way than the other serves. Gives the path MTU that was agreed.
    ///
    /// # Errors
    /// The change that was refused, explained.
    pub fn connect(
        &self,
        port: u8,
        local: &Endpoint,
        remote: &Endpoint,
        access: Access,
    ) -> Result<PathMtu, Error> {
        let mtu = local.mtu.agree(remote.mtu);
        let init = QpAttributes {
            qp_state: QpState::Init.raw(),
            port_num: port,
            access: access.bits(),
            ..QpAttributes::new()
        };
        self.modify(
            &init,
            qp_fields::STATE | qp_fields::PKEY_INDEX | qp_fields::PORT | qp_fields::ACCESS,
        )?;
        let receive = QpAttributes {
            qp_state: QpState::ReadyToReceive.raw(),
            path_mtu: mtu.raw(),
            dest_qp_num: remote.qpn,
            rq_psn: remote.psn,
            max_dest_rd_atomic: local.reads,
            min_rnr_timer: 12,
            ah: AddressVector {
                is_global: 1,
                port_num: port,
                sgid_index: local.gid_index,
                dgid: remote.gid,
                hop_limit: 64,
                ..AddressVector::new()
            },
            ..QpAttributes::new()
        };
        self.modify(
            &receive,
            qp_fields::STATE
                | qp_fields::ADDRESS
                | qp_fields::PATH_MTU
                | qp_fields::DESTINATION
                | qp_fields::RECEIVE_PSN
                | qp_fields::MAX_DESTINATION_READS
                | qp_fields::MIN_RNR_TIMER,
        )?;
        let send = QpAttributes {
            qp_state: QpState::ReadyToSend.raw(),
            sq_psn: local.psn,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: local.reads.min(remote.reads),
            ..QpAttributes::new()
        };
        self.modify(
            &send,
            qp_fields::STATE
                | qp_fields::TIMEOUT
                | qp_fields::RETRY_COUNT
                | qp_fields::RNR_RETRY
                | qp_fields::SEND_PSN
                | qp_fields::MAX_READS,
        )?;
        Ok(mtu)
    }

    /// The bare handle; every call on it is `unsafe`, and its caller's to answer for.
    #[must_use]
    pub fn bare(&self) -> QpHandle {
        self.owner.native().handle()
    }
}

fn not_created(step: &'static str, kind: QpType, errno: shim::Errno, asked: u64) -> Error {
    let raw = kind == QpType::RawPacket;
    match errno {
        shim::Errno::NO_MEMORY => memory_error(step, core_errno(errno), asked),
        shim::Errno::NOT_SUPPORTED if raw => failed(step, errno)
            .with_detail("the device's driver has no raw packet queue pairs")
            .with_remedy("receive with a provider over the kernel, or use a device that has them"),
        _ if raw && errno.raw() == libc::EPERM => failed(step, errno)
            .with_detail("raw packets need CAP_NET_RAW")
            .with_remedy("give the process CAP_NET_RAW, in a container with --cap-add=NET_RAW"),
        _ => failed(step, errno),
    }
}

/// A rule that steers packets to a queue pair.
#[derive(Debug)]
pub struct FlowSteering {
    owner: Owner<native::Flow>,
}

common!(FlowSteering, native::Flow);

impl FlowSteering {
    /// Steers packets to a queue pair.
    ///
    /// # Errors
    /// The driver's number; `EEXIST`: the same rule is there.
    pub fn create(domain: &Domain, qp: &QueuePair, rule: &FlowRule) -> Result<Self, Error> {
        const STEP: &str = "steer packets";
        qp.owner.native().facts().check_process(STEP)?;
        let admission = admit(domain, STEP)?;
        let flow = native::Flow::create(qp.owner.native(), rule).map_err(|errno| {
            let error = failed(STEP, errno).with_object(format!("qpn {}", qp.info.qp_num));
            match errno.raw() {
                libc::EEXIST => error.with_detail("the same rule is there already"),
                libc::EPERM => error.with_remedy("give the process CAP_NET_RAW"),
                _ => error,
            }
        })?;
        let owner = admission.own(flow, vec![qp.hold()], Charge::none());
        Ok(Self { owner })
    }
}

/// A queue pair's membership in a multicast group.
#[derive(Debug)]
pub struct MulticastAttachment {
    owner: Owner<native::Multicast>,
}

common!(MulticastAttachment, native::Multicast);

impl MulticastAttachment {
    /// Lets a datagram queue pair receive a group. Over Ethernet the kernel must want the group's frames, too: a joined socket is
    /// the caller's.
    ///
    /// # Errors
    /// The driver's number; `EINVAL` for another kind of queue pair or a GID that is no group.
    pub fn attach(domain: &Domain, qp: &QueuePair, group: [u8; 16]) -> Result<Self, Error> {
        const STEP: &str = "attach multicast group";
        qp.owner.native().facts().check_process(STEP)?;
        let admission = admit(domain, STEP)?;
        let attached = native::Multicast::attach(qp.owner.native(), group, 0)
            .map_err(|errno| failed(STEP, errno).with_object(format!("qpn {}", qp.info.qp_num)))?;
        let owner = admission.own(attached, vec![qp.hold()], Charge::none());
        Ok(Self { owner })
    }
}
