//! What the tests on Soft-RoCE devices share: one end of a connection, made of the owners.
//!
//! Promises: everything is made through the public owners, in one domain per end. Does not do: closing; tests do.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod sys;

use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate::custody::Domain;
use lockgate_accel::ibverbs::{
    Beyond, Context, CqLane, Endpoint, GidRule, LaneOptions, MemoryRegion, Pages, PathMtu,
    ProtectionDomain, QueuePair, Selector,
};
use lockgate_verbs_shim::{
    Access, Completion, Piece, QpOptions, QpType, SendRequest, completion_status,
};

pub(crate) const ALL: Access = Access::from_bits(
    Access::LOCAL_WRITE.bits()
        | Access::REMOTE_READ.bits()
        | Access::REMOTE_WRITE.bits()
        | Access::BIND.bits(),
);

/// What a queue pair lets its peer do: a bind right is a region's, not a queue pair's.
pub(crate) const PEER: Access = Access::from_bits(ALL.bits() & !Access::BIND.bits());

/// The addresses that `cargo xtask vm` gives the interfaces beneath the devices.
pub(crate) const ADDRESSES: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

pub(crate) fn devices() -> [String; 2] {
    let names = std::env::var("LOCKGATE_RXE")
        .expect("LOCKGATE_RXE names two devices; run this with `cargo xtask vm`");
    let (first, second) = names
        .split_once(',')
        .expect("two names with a comma between");
    [first.to_owned(), second.to_owned()]
}

pub(crate) fn options(kind: QpType) -> QpOptions {
    QpOptions {
        kind,
        max_send: 32,
        max_receive: 16,
        max_send_pieces: 2,
        max_receive_pieces: 2,
        max_inline: 0,
        flags: 0,
        signal_all: false,
    }
}

/// One end of a connection. The fields stand in the order in which a quiet drop lets them go.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) mr: MemoryRegion,
    pub(crate) lane: CqLane,
    pub(crate) pd: ProtectionDomain,
    pub(crate) context: Context,
    pub(crate) domain: Arc<Domain>,
    pub(crate) at: usize,
}

impl End {
    pub(crate) fn new(at: usize, bytes: usize) -> Self {
        let device = &devices()[at];
        let domain = Domain::new(device, 64 << 20);
        let context = Context::open(&domain, &Selector::Name(device.clone()), None).unwrap();
        let pd = ProtectionDomain::allocate(&domain, &context).unwrap();
        let wanted = LaneOptions {
            events: true,
            ..LaneOptions::one(64)
        };
        let lane = CqLane::create(&domain, &context, &pd, &wanted).unwrap();
        let kind = options(QpType::ReliableConnection);
        let qp =
            QueuePair::create(&domain, &context, &pd, (&lane, 0, 0), kind, Beyond::Refuse).unwrap();
        let pages = Pages::map(bytes).unwrap();
        let mr = MemoryRegion::register(&domain, &pd, pages, ALL).unwrap();
        Self {
            qp,
            mr,
            lane,
            pd,
            context,
            domain,
            at,
        }
    }

    pub(crate) fn endpoint(&self) -> Endpoint {
        let rule = GidRule {
            address: ADDRESSES[self.at].parse().unwrap(),
            index: None,
        };
        let choice = self.context.choose_gid(rule).unwrap();
        Endpoint {
            qpn: self.qp.info().qp_num,
            psn: 17 + u32::try_from(self.at).unwrap(),
            gid: choice.entry.gid,
            gid_index: u8::try_from(choice.entry.index).unwrap(),
            mtu: self.context.path_mtu().unwrap(),
            reads: u8::try_from(self.context.attributes().max_qp_rd_atom.min(16)).unwrap(),
        }
    }

    pub(crate) fn connect(&self, peer: &End) -> PathMtu {
        let (local, remote) = (self.endpoint(), peer.endpoint());
        self.qp
            .connect(self.context.port(), &local, &remote, PEER)
            .unwrap()
    }

    pub(crate) fn piece(&self, offset: usize, length: usize) -> [Piece; 1] {
        let info = self.mr.info();
        [Piece::of(
            info.addr + offset as u64,
            u32::try_from(length).unwrap(),
            info.lkey,
        )]
    }

    /// Posts one request and waits for its completion.
    pub(crate) fn complete(&self, request: SendRequest<'_>) -> Completion {
        sys::post_send(self, &[request]).unwrap();
        self.next()
    }

    /// Spins until a completion has come: the device works in the kernel, and these tests ask for no event.
    pub(crate) fn next(&self) -> Completion {
        next(&self.lane)
    }
}

pub(crate) fn next(lane: &CqLane) -> Completion {
    let limit = Instant::now() + Duration::from_secs(60);
    let mut completion = [Completion::default()];
    while lane.poll(0, &mut completion).unwrap() == 0 {
        assert!(Instant::now() < limit, "no completion within a minute");
        std::thread::yield_now();
    }
    completion[0]
}

pub(crate) fn pair(bytes: usize) -> (End, End) {
    let (a, b) = (End::new(0, bytes), End::new(1, bytes));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

#[track_caller]
pub(crate) fn succeeded(completion: Completion, wr_id: u64) {
    assert!(
        completion.is_success(),
        "{:?}: {completion:?}",
        completion_status(completion.status)
    );
    assert_eq!(completion.wr_id, wr_id);
}

/// Bytes without a period that a shifted or torn copy could hide in.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .collect()
}
