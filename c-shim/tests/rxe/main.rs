//! The shim against the kernel's Soft-RoCE devices: what each call gives, and the number with which each is refused.
//!
//! Selected by the feature `__rxe`; `LOCKGATE_RXE` names two devices that reach each other, as `cargo xtask vm` sets it.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

mod sys;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockgate_verbs_shim::{
    Access, AddressVector, Completion, CompletionEx, DeviceList, Errno, FlowRule, GidType,
    LinkLayer, MrOptions, MwBind, Partial, Piece, PortState, QpAttributes, QpOptions, QpState,
    QpType, RecvRequest, SendRequest, WindowType, completion_flags, completion_status, extended,
    flow_layers, opcodes, qp_fields, requests, rkey_next, send_flags,
};
use sys::{Ah, Buffer, Channel, Context, Cq, Flow, Mr, Mw, Pd, Qp};

const ALL: Access = Access::from_bits(
    Access::LOCAL_WRITE.bits()
        | Access::REMOTE_READ.bits()
        | Access::REMOTE_WRITE.bits()
        | Access::REMOTE_ATOMIC.bits()
        | Access::BIND.bits(),
);

/// What a queue pair lets its peer do: a bind right is a region's, not a queue pair's.
const PEER: Access = Access::from_bits(ALL.bits() & !Access::BIND.bits());

fn devices() -> [String; 2] {
    let names = std::env::var("LOCKGATE_RXE")
        .expect("LOCKGATE_RXE names two devices; run this with `cargo xtask vm`");
    let (first, second) = names
        .split_once(',')
        .expect("two names with a comma between");
    [first.to_owned(), second.to_owned()]
}

/// The index and bytes of the RoCE v2 entry of a device's IPv4 address.
fn ipv4_gid(context: &Context) -> (u8, [u8; 16]) {
    let table = context.port(1).unwrap().gid_tbl_len;
    let entry = (0..table)
        .filter_map(|index| context.gid(1, index).ok())
        .find(|entry| {
            entry.kind == GidType::RoceV2 && entry.gid[..12] == *b"\0\0\0\0\0\0\0\0\0\0\xff\xff"
        })
        .expect("an entry of an IPv4 address");
    (u8::try_from(entry.index).unwrap(), entry.gid)
}

fn options(kind: QpType) -> QpOptions {
    QpOptions {
        kind,
        // Twice the number of requests that the shim chains at a time.
        max_send: 32,
        max_receive: 16,
        max_send_pieces: 4,
        max_receive_pieces: 4,
        max_inline: 64,
        flags: 0,
        signal_all: false,
    }
}

/// One end of a connection, with memory that the other may use.
struct End {
    qp: Qp,
    mr: Mr,
    pd: Arc<Pd>,
    context: Arc<Context>,
}

impl End {
    fn new(device: &str, pages: usize) -> Self {
        let context = sys::open(device);
        let cq = Cq::new(&context, 64);
        Self::on(context, &cq, pages)
    }

    fn on(context: Arc<Context>, cq: &Arc<Cq>, pages: usize) -> Self {
        let pd = Pd::new(&context);
        let qp = Qp::new(&pd, cq, &options(QpType::ReliableConnection)).unwrap();
        let mr = Mr::new(&pd, &Buffer::new(pages), ALL).unwrap();
        Self {
            qp,
            mr,
            pd,
            context,
        }
    }

    fn to_init(&self) {
        let attributes = QpAttributes {
            qp_state: QpState::Init.raw(),
            port_num: 1,
            access: PEER.bits(),
            ..QpAttributes::new()
        };
        let fields = qp_fields::STATE | qp_fields::PKEY_INDEX | qp_fields::PORT | qp_fields::ACCESS;
        self.qp.modify(&attributes, fields).unwrap();
    }

    fn connect(&self, peer: &End) {
        self.to_init();
        let (sgid_index, _) = ipv4_gid(&self.context);
        let (_, dgid) = ipv4_gid(&peer.context);
        let attributes = QpAttributes {
            qp_state: QpState::ReadyToReceive.raw(),
            path_mtu: 5,
            dest_qp_num: peer.qp.1.qp_num,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            ah: AddressVector {
                is_global: 1,
                port_num: 1,
                sgid_index,
                dgid,
                hop_limit: 64,
                ..AddressVector::new()
            },
            ..QpAttributes::new()
        };
        let fields = qp_fields::STATE
            | qp_fields::ADDRESS
            | qp_fields::PATH_MTU
            | qp_fields::DESTINATION
            | qp_fields::RECEIVE_PSN
            | qp_fields::MAX_DESTINATION_READS
            | qp_fields::MIN_RNR_TIMER;
        self.qp.modify(&attributes, fields).unwrap();
        let attributes = QpAttributes {
            qp_state: QpState::ReadyToSend.raw(),
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            max_rd_atomic: 4,
            ..QpAttributes::new()
        };
        let fields = qp_fields::STATE
            | qp_fields::TIMEOUT
            | qp_fields::RETRY_COUNT
            | qp_fields::RNR_RETRY
            | qp_fields::SEND_PSN
            | qp_fields::MAX_READS;
        self.qp.modify(&attributes, fields).unwrap();
    }

    fn piece(&self, length: usize) -> [Piece; 1] {
        let info = self.mr.info().unwrap();
        [Piece::of(
            info.addr,
            u32::try_from(length).unwrap(),
            info.lkey,
        )]
    }

    /// Posts one request and waits for its completion.
    fn complete(&self, request: SendRequest<'_>) -> Completion {
        self.qp.post_send(&[request]).unwrap();
        next(&self.qp.2)
    }
}

fn pair(pages: usize) -> (End, End) {
    let [first, second] = devices();
    let (a, b) = (End::new(&first, pages), End::new(&second, pages));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}

/// Spins until a completion has come. The device works in the kernel, so there is nothing else to wait on here.
fn next(cq: &Cq) -> Completion {
    let limit = Instant::now() + Duration::from_secs(60);
    let mut completion = [Completion::default()];
    while cq.poll(&mut completion).unwrap() == 0 {
        assert!(Instant::now() < limit, "no completion within a minute");
        std::thread::yield_now();
    }
    completion[0]
}

#[track_caller]
fn succeeded(completion: Completion, wr_id: u64, opcode: u32) {
    assert!(
        completion.is_success(),
        "{:?}: {completion:?}",
        completion_status(completion.status)
    );
    assert_eq!((completion.wr_id, completion.opcode), (wr_id, opcode));
}

/// Bytes without a period that a shifted or torn copy could hide in.
fn pattern(length: usize, seed: u64) -> Vec<u8> {
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

#[test]
fn both_devices_are_enumerated_and_tell_what_they_are() {
    let list = DeviceList::read().unwrap();
    let infos: Vec<_> = list.iter().map(|device| device.info().unwrap()).collect();
    for name in devices() {
        let info = infos
            .iter()
            .find(|info| info.name == name)
            .expect("enumerated");
        assert!(info.node.starts_with("uverbs"), "{info:?}");
        assert_eq!(info.sysfs, format!("/sys/class/infiniband/{name}"));
        assert!(info.index.is_some());
        assert_ne!(info.guid, [0; 8]);

        let context = sys::open(&name);
        let opened = context.info().unwrap();
        assert!(opened.cmd_fd > 2 && opened.async_fd > 2, "{opened:?}");
        assert!(opened.num_comp_vectors > 0);
        let attributes = context.attributes().unwrap();
        assert_eq!(attributes.node_guid, info.guid);
        assert_eq!(attributes.phys_port_cnt, 1);
        assert!(attributes.max_qp > 0 && attributes.max_cqe > 0 && attributes.max_mr_size > 0);
        // Version 6.1 has neither of these two.
        assert_eq!(attributes.timestamp_mask, 0);
        assert_eq!(context.clock(), Err(Errno::NOT_SUPPORTED));
    }
}

#[test]
fn ports_gids_and_keys_are_read() {
    for (name, last) in devices().iter().zip([1, 2]) {
        let context = sys::open(name);
        let port = context.port(1).unwrap();
        assert_eq!(PortState::from(port.state), PortState::Active);
        assert_eq!(LinkLayer::from(port.link_layer), LinkLayer::Ethernet);
        assert_eq!(port.active_mtu, 5);
        assert_eq!(context.port(2).unwrap_err(), Errno::INVALID);

        let (index, gid) = ipv4_gid(&context);
        assert_eq!(gid[12..], [10, 77, 0, last]);
        assert_eq!(context.raw_gid(1, index.into()), Ok(gid));
        let netdev = context
            .gid(1, index.into())
            .unwrap()
            .netdev
            .expect("an interface");
        let path = format!("/sys/class/net/veth{}/ifindex", last - 1);
        assert_eq!(
            std::fs::read_to_string(path).unwrap().trim(),
            netdev.to_string()
        );
        assert_eq!(context.gid(1, port.gid_tbl_len - 1), Err(Errno::NO_DATA));
        assert_eq!(context.gid(1, port.gid_tbl_len), Err(Errno::INVALID));

        assert_eq!(context.pkey(1, 0), Ok(0xffff));
    }
}

#[test]
fn writes_and_reads_carry_every_byte() {
    let (a, b) = pair(256);
    let remote = b.mr.info().unwrap();
    for (length, seed) in [(1, 1), (4095, 2), (4096, 3), (65_537, 4), (1 << 20, 5)] {
        let data = pattern(length, seed);
        let piece = a.piece(length);
        a.mr.1.fill(&data);
        b.mr.1.fill(&vec![0; length]);
        let write = SendRequest::new(requests::WRITE, seed, send_flags::SIGNALED, &piece)
            .remote(remote.addr, remote.rkey);
        succeeded(a.complete(write), seed, opcodes::WRITE);
        assert!(b.mr.1.bytes(length) == data, "WRITE of {length}");

        let data = pattern(length, seed + 100);
        b.mr.1.fill(&data);
        let read = SendRequest::new(requests::READ, seed, send_flags::SIGNALED, &piece)
            .remote(remote.addr, remote.rkey);
        succeeded(a.complete(read), seed, opcodes::READ);
        assert!(a.mr.1.bytes(length) == data, "READ of {length}");
    }
}

#[test]
fn sends_immediates_and_atomics_arrive() {
    let (a, b) = pair(1);
    let (from, to) = (a.piece(64), b.piece(4096));
    let data = pattern(64, 9);
    a.mr.1.fill(&data);
    b.qp.post_receive(&mut [RecvRequest::new(70, &to)]).unwrap();
    let send = SendRequest::new(
        requests::SEND_WITH_IMMEDIATE,
        7,
        send_flags::SIGNALED,
        &from,
    )
    .immediate([1, 2, 3, 4]);
    succeeded(a.complete(send), 7, opcodes::SEND);
    let received = next(&b.qp.2);
    succeeded(received, 70, opcodes::RECEIVE);
    assert!(received.is_receive());
    assert_eq!(received.byte_len, 64);
    assert_ne!(received.wc_flags & completion_flags::WITH_IMMEDIATE, 0);
    assert_eq!(received.imm_or_rkey.to_ne_bytes(), [1, 2, 3, 4]);
    assert_eq!(b.mr.1.bytes(64), data);

    b.mr.1.fill(&37_u64.to_ne_bytes());
    let remote = b.mr.info().unwrap();
    let word = a.piece(8);
    let add = SendRequest::new(requests::FETCH_AND_ADD, 8, send_flags::SIGNALED, &word)
        .remote(remote.addr, remote.rkey)
        .atomic(5, 0);
    succeeded(a.complete(add), 8, opcodes::FETCH_AND_ADD);
    assert_eq!(a.mr.1.bytes(8), 37_u64.to_ne_bytes());
    assert_eq!(b.mr.1.bytes(8), 42_u64.to_ne_bytes());
}

#[test]
fn a_window_of_type_2_opens_its_range_until_it_is_invalidated() {
    let (a, b) = pair(2);
    let window = Mw::new(&b.pd, WindowType::Two);
    let region = b.mr.info().unwrap();
    let key = rkey_next(window.info().unwrap().rkey);
    let bind = SendRequest::new(requests::BIND, 1, send_flags::SIGNALED, &[]).bind(
        window.0,
        key,
        b.mr.0,
        region.addr + 4096,
        4096,
        Access::REMOTE_READ | Access::REMOTE_WRITE,
    );
    succeeded(b.complete(bind), 1, opcodes::BIND);

    let data = pattern(4096, 11);
    a.mr.1.fill(&data);
    let piece = a.piece(4096);
    let through = |at: u64| {
        SendRequest::new(requests::WRITE, 2, send_flags::SIGNALED, &piece).remote(at, key)
    };
    succeeded(a.complete(through(region.addr + 4096)), 2, opcodes::WRITE);
    assert!(b.mr.1.bytes(8192)[4096..] == data);
    assert!(b.mr.1.bytes(4096).iter().all(|byte| *byte == 0));

    // rxe says EINVAL where other drivers say EBUSY; the region is still there.
    assert_eq!(b.mr.refused(), Errno::INVALID);

    let invalidate =
        SendRequest::new(requests::LOCAL_INVALIDATE, 3, send_flags::SIGNALED, &[]).invalidate(key);
    succeeded(b.complete(invalidate), 3, opcodes::LOCAL_INVALIDATE);
    let refused = a.complete(through(region.addr + 4096));
    assert_eq!(
        completion_status(refused.status),
        Some("remote access error")
    );
}

#[test]
fn a_window_of_type_1_is_bound_by_its_own_call() {
    let (a, b) = pair(1);
    let region = b.mr.info().unwrap();
    let window = Mw::new(&b.pd, WindowType::One);
    let bind = MwBind {
        wr_id: 5,
        mr: b.mr.0,
        address: region.addr,
        length: 64,
        access: Access::REMOTE_WRITE,
        flags: send_flags::SIGNALED,
    };
    window.bind(&b.qp, &bind).unwrap();
    succeeded(next(&b.qp.2), 5, opcodes::BIND);
    let data = pattern(64, 12);
    a.mr.1.fill(&data);
    let piece = a.piece(64);
    let write = SendRequest::new(requests::WRITE, 6, send_flags::SIGNALED, &piece)
        .remote(region.addr, window.info().unwrap().rkey);
    succeeded(a.complete(write), 6, opcodes::WRITE);
    assert_eq!(b.mr.1.bytes(64), data);

    let two = Mw::new(&b.pd, WindowType::Two);
    assert_eq!(two.bind(&b.qp, &bind), Err(Errno::INVALID));
}

#[test]
fn a_batch_says_which_request_was_refused() {
    let (a, b) = pair(1);
    let (from, to) = (a.piece(8), b.piece(8));

    // More receives than the queue holds; rxe rounds up what was asked for.
    let room = b.qp.1.max_recv_wr as usize;
    let mut receives = vec![RecvRequest::new(0, &to); 8 * room];
    let full = b.qp.post_receive(&mut receives).unwrap_err();
    assert_eq!(full.errno, Errno::NO_MEMORY);
    assert!((room..8 * room).contains(&full.posted), "{full:?}");
    let again = b.qp.post_receive(&mut receives[..1]).unwrap_err();
    assert_eq!((again.posted, again.errno), (0, Errno::NO_MEMORY));

    // One of more pieces than were asked for, in the middle. Behind a batch longer than the shim chains at a time.
    let many = vec![to[0]; b.qp.1.max_recv_sge as usize + 1];
    let c = End::new(&devices()[0], 1);
    c.to_init();
    let mut receives = [RecvRequest::new(0, &to); 5];
    receives[3] = RecvRequest::new(3, &many);
    let middle = c.qp.post_receive(&mut receives).unwrap_err();
    assert_eq!((middle.posted, middle.errno), (3, Errno::INVALID));

    let many = vec![from[0]; a.qp.1.max_send_sge as usize + 1];
    for at in [0, 1, 15, 16, 17, 30] {
        let (a, b) = pair(1);
        let remote = b.mr.info().unwrap();
        let piece = a.piece(8);
        let send = SendRequest::new(requests::WRITE, 0, 0, &piece).remote(remote.addr, remote.rkey);
        let mut sends = vec![send; 31];
        sends[at] = SendRequest::new(requests::WRITE, 0, 0, &many).remote(remote.addr, remote.rkey);
        let refused = a.qp.post_send(&sends).unwrap_err();
        assert_eq!((refused.posted, refused.errno), (at, Errno::INVALID));
    }
}

#[test]
fn nothing_of_a_batch_with_an_unknown_request_is_posted() {
    let (a, b) = pair(1);
    let piece = a.piece(8);
    let remote = b.mr.info().unwrap();
    let good = SendRequest::new(requests::WRITE, 1, send_flags::SIGNALED, &piece)
        .remote(remote.addr, remote.rkey);
    let nothing = Err(Partial {
        posted: 0,
        errno: Errno::INVALID,
    });
    for bad in [
        SendRequest::new(10, 2, 0, &piece),
        SendRequest::new(u32::MAX, 2, 0, &piece),
        SendRequest::new(requests::WRITE, 2, 1 << 5, &piece),
        SendRequest::new(requests::BIND, 2, 0, &[]),
    ] {
        assert_eq!(a.qp.post_send(&[good, bad]), nothing, "{bad:?}");
    }
    // Only the good one that follows completes.
    succeeded(a.complete(good), 1, opcodes::WRITE);
    assert_eq!(a.qp.2.poll(&mut [Completion::default()]), Ok(0));
}

#[test]
fn unknown_bits_are_refused_before_the_library_sees_them() {
    let end = End::new(&devices()[0], 1);
    let unknown = Access::from_bits(1 << 8);
    assert_eq!(
        Mr::new(&end.pd, &Buffer::new(1), unknown).err(),
        Some(Errno::INVALID)
    );
    let state = QpAttributes {
        qp_state: QpState::Init.raw(),
        ..QpAttributes::new()
    };
    for fields in [1 << 2, 1 << 14, 1 << 25, 1 << 31] {
        assert_eq!(
            end.qp.modify(&state, fields),
            Err(Errno::INVALID),
            "{fields:#x}"
        );
        assert_eq!(
            end.qp.query(fields).err(),
            Some(Errno::INVALID),
            "{fields:#x}"
        );
    }
    let wrong = QpAttributes { size: 4, ..state };
    assert_eq!(end.qp.modify(&wrong, qp_fields::STATE), Err(Errno::INVALID));
    let flags = QpOptions {
        flags: 1 << 10,
        ..options(QpType::ReliableConnection)
    };
    assert_eq!(
        Qp::new(&end.pd, &end.qp.2, &flags).err(),
        Some(Errno::INVALID)
    );
    let both = FlowRule {
        layers: flow_layers::IPV4 | flow_layers::IPV6,
        ..FlowRule::new()
    };
    assert_eq!(Flow::new(&end.qp, &both).err(), Some(Errno::INVALID));
    assert_eq!(
        Cq::extended(&end.context, 1 << 10).err(),
        Some(Errno::INVALID)
    );
}

#[test]
fn what_is_in_use_is_busy_and_stays() {
    let context = sys::open(&devices()[0]);
    let channel = Channel::new(&context);
    let cq = Cq::with_channel(&context, &channel, 0);
    assert_eq!(channel.refused(), Errno::BUSY);
    let pd = Pd::new(&context);
    assert!(pd.kernel_handle().is_ok());
    let mr = Mr::new(&pd, &Buffer::new(1), ALL).unwrap();
    assert_eq!(pd.refused(), Errno::BUSY);
    drop(mr);
    let window = Mw::new(&pd, WindowType::Two);
    assert_eq!(pd.refused(), Errno::BUSY);
    drop(window);
    let qp = Qp::new(&pd, &cq, &options(QpType::ReliableConnection)).unwrap();
    assert_eq!(cq.refused(), Errno::BUSY);
    assert_eq!(pd.refused(), Errno::BUSY);
    assert_eq!(
        QpState::from(qp.query(qp_fields::STATE).unwrap().qp_state),
        QpState::Reset
    );
}

#[test]
fn what_the_device_lacks_is_not_supported() {
    let end = End::new(&devices()[0], 1);
    let raw = Qp::new(&end.pd, &end.qp.2, &options(QpType::RawPacket));
    assert_eq!(raw.err(), Some(Errno::NOT_SUPPORTED));
    let rule = FlowRule {
        layers: flow_layers::ETHERNET,
        port: 1,
        ..FlowRule::new()
    };
    assert_eq!(Flow::new(&end.qp, &rule).err(), Some(Errno::NOT_SUPPORTED));
    for stamps in [extended::TIMESTAMP, extended::TIMESTAMP_WALLCLOCK] {
        assert_eq!(
            Cq::extended(&end.context, stamps).err(),
            Some(Errno::NOT_SUPPORTED)
        );
    }
    let buffer = MrOptions {
        address: 0,
        length: 4096,
        remote_address: 0,
        access: ALL,
    };
    assert_eq!(
        sys::register_dmabuf(&end.pd, &buffer, -1),
        Errno::NOT_SUPPORTED
    );
}

#[test]
fn a_registration_is_refused_with_the_kernels_own_number() {
    let end = End::new(&devices()[0], 1);
    let alone = Mr::new(&end.pd, &Buffer::new(1), Access::REMOTE_WRITE);
    assert_eq!(alone.err(), Some(Errno::INVALID));
}

#[test]
fn an_extended_queue_gives_the_fields_it_was_made_for() {
    let fields = extended::BYTE_LENGTH | extended::QP_NUMBER | extended::IMMEDIATE;
    let [first, second] = devices();
    let a = End::new(&first, 1);
    let context = sys::open(&second);
    let cq = Cq::extended(&context, fields).unwrap();
    let b = End::on(context, &cq, 1);
    a.connect(&b);
    b.connect(&a);
    let (from, to) = (a.piece(32), b.piece(4096));
    let mut got = [CompletionEx::default(); 4];
    assert_eq!(cq.poll_extended(fields, &mut got), Ok(0));

    let mut receives = [
        RecvRequest::new(1, &to),
        RecvRequest::new(2, &to),
        RecvRequest::new(3, &to),
    ];
    b.qp.post_receive(&mut receives).unwrap();
    for id in 1..=3 {
        let send = SendRequest::new(
            requests::SEND_WITH_IMMEDIATE,
            id,
            send_flags::SIGNALED,
            &from,
        )
        .immediate([0, 0, 0, u8::try_from(id).unwrap()]);
        succeeded(a.complete(send), id, opcodes::SEND);
    }
    // Two by two: the second poll must find what the first left.
    let mut seen = Vec::new();
    let limit = Instant::now() + Duration::from_secs(60);
    while seen.len() < 3 {
        assert!(Instant::now() < limit, "{seen:?}");
        let count = cq.poll_extended(fields, &mut got[..2]).unwrap();
        seen.extend_from_slice(&got[..count]);
    }
    for (completion, id) in seen.iter().zip(1..) {
        assert_eq!(
            (completion.status, completion.opcode),
            (0, opcodes::RECEIVE)
        );
        assert_eq!((completion.wr_id, completion.byte_len), (id, 32));
        assert_eq!(completion.qp_num, b.qp.1.qp_num);
        assert_eq!(u64::from(completion.imm_or_rkey.to_ne_bytes()[3]), id);
        assert_eq!((completion.timestamp, completion.src_qp), (0, 0));
    }
    assert_eq!(cq.poll_extended(fields, &mut got), Ok(0));
}

#[test]
fn a_channel_announces_a_completion_once_per_request() {
    const TOKEN: u64 = 0x0123_4567_89ab_cdef;
    let [first, second] = devices();
    let context = sys::open(&first);
    let channel = Channel::new(&context);
    let cq = Cq::with_channel(&context, &channel, TOKEN);
    let (a, b) = (End::on(context, &cq, 1), End::new(&second, 1));
    a.connect(&b);
    b.connect(&a);
    assert!(channel.descriptor().unwrap() > 2);

    cq.notify(false).unwrap();
    let remote = b.mr.info().unwrap();
    let piece = a.piece(8);
    let write = SendRequest::new(requests::WRITE, 1, send_flags::SIGNALED, &piece)
        .remote(remote.addr, remote.rkey);
    a.qp.post_send(&[write]).unwrap();
    // The descriptor blocks, so this waits until the device has told.
    let (announced, token) = channel.event().unwrap();
    assert_eq!((announced, token), (cq.0, TOKEN));
    cq.acknowledge(1).unwrap();
    succeeded(next(&cq), 1, opcodes::WRITE);
}

#[test]
fn a_multicast_group_is_received_while_attached() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 2, 3);
    const QKEY: u32 = 0x1111_1111;
    let mut group = [0; 16];
    group[10..12].fill(0xff);
    group[12..].copy_from_slice(&GROUP.octets());

    let datagrams = |device: &str| {
        let context = sys::open(device);
        let pd = Pd::new(&context);
        let cq = Cq::new(&context, 16);
        let qp = Qp::new(&pd, &cq, &options(QpType::UnreliableDatagram)).unwrap();
        let mr = Mr::new(&pd, &Buffer::new(2), Access::LOCAL_WRITE).unwrap();
        let mut attributes = QpAttributes {
            qp_state: QpState::Init.raw(),
            port_num: 1,
            qkey: QKEY,
            ..QpAttributes::new()
        };
        let fields = qp_fields::STATE | qp_fields::PKEY_INDEX | qp_fields::PORT | qp_fields::QKEY;
        qp.modify(&attributes, fields).unwrap();
        attributes.qp_state = QpState::ReadyToReceive.raw();
        qp.modify(&attributes, qp_fields::STATE).unwrap();
        attributes.qp_state = QpState::ReadyToSend.raw();
        qp.modify(&attributes, qp_fields::STATE | qp_fields::SEND_PSN)
            .unwrap();
        (qp, mr, pd, context)
    };
    let [first, second] = devices();
    let (to, to_mr, ..) = datagrams(&first);
    let (from, from_mr, from_pd, from_context) = datagrams(&second);

    to.attach(&group, 0).unwrap();
    assert_eq!(to.refused(), Errno::BUSY);
    let end = End::new(&first, 1);
    assert_eq!(end.qp.attach(&group, 0), Err(Errno::INVALID));
    assert_eq!(
        to.attach(&ipv4_gid(&from_context).1, 0),
        Err(Errno::INVALID)
    );

    // Below the verbs the kernel itself must want the group's frames.
    let socket = UdpSocket::bind((GROUP, 0)).unwrap();
    socket
        .join_multicast_v4(&GROUP, &Ipv4Addr::new(10, 77, 0, 1))
        .unwrap();

    let info = to_mr.info().unwrap();
    let into = [Piece::of(info.addr, 4096, info.lkey)];
    to.post_receive(&mut [RecvRequest::new(1, &into)]).unwrap();
    let address = AddressVector {
        is_global: 1,
        port_num: 1,
        sgid_index: ipv4_gid(&from_context).0,
        dgid: group,
        hop_limit: 8,
        ..AddressVector::new()
    };
    let ah = Ah::new(&from_pd, &address).unwrap();
    let data = pattern(100, 13);
    from_mr.1.fill(&data);
    let info = from_mr.info().unwrap();
    let piece = [Piece::of(info.addr, 100, info.lkey)];
    let send = SendRequest::new(requests::SEND, 2, send_flags::SIGNALED, &piece).datagram(
        ah.0,
        0x00ff_ffff,
        QKEY,
    );
    from.post_send(&[send]).unwrap();
    succeeded(next(&from.2), 2, opcodes::SEND);
    let received = next(&to.2);
    succeeded(received, 1, opcodes::RECEIVE);
    assert_ne!(received.wc_flags & completion_flags::GRH, 0);
    assert_eq!(received.src_qp, from.1.qp_num);
    assert_eq!(to_mr.1.bytes(140)[40..], data);
    to.detach(&group, 0).unwrap();
    assert_eq!(to.detach(&group, 0), Err(Errno::INVALID));
}
