//! The owners over the kernel's Soft-RoCE devices: each made, used and closed with a receipt.
//!
//! Selected by the feature `__rxe`; `LOCKGATE_RXE` names two devices that reach each other, as `cargo xtask vm` sets it.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[path = "../rxe_support/mod.rs"]
mod support;

use std::process::Command;

use lockgate::custody::{Alive, Domain};
use lockgate::receive::ReceiverConfig;
use lockgate::registry::Registry;
use lockgate_accel::AcceleratorProvider;
use lockgate_accel::ibverbs::{
    Beyond, Context, CqLane, Endpoint, FlowSteering, LaneOptions, MemoryRegion, MemoryWindow,
    MulticastAttachment, Pages, PathMtu, ProtectionDomain, QueuePair, Selector, gid_of, is_proof,
};
use lockgate_verbs_shim::{
    Access, DeviceList, FlowRule, QpAttributes, QpState, QpType, SendRequest, WindowType,
    completion_status, flow_layers, qp_fields, requests, rkey_next, send_flags,
};
use support::{ADDRESSES, ALL, End, devices, options, pair, pattern, succeeded, sys};

#[test]
fn a_device_is_opened_by_name_interface_and_guid() {
    let domain = Domain::new("selectors", 0);
    let list = DeviceList::read().unwrap();
    for (at, name) in devices().into_iter().enumerate() {
        let info = list
            .iter()
            .map(|device| device.info().unwrap())
            .find(|info| info.name == name)
            .unwrap();
        for selector in [
            Selector::Name(name.clone()),
            Selector::Netdev(format!("veth{at}")),
            Selector::Guid(info.guid),
        ] {
            let context = Context::open(&domain, &selector, None).unwrap();
            assert_eq!(context.identity().name(), name, "{selector}");
            assert_eq!(context.port(), 1);
            assert_eq!(context.evidence().alive, Alive::Yes);
            let receipt = context.close().unwrap();
            assert!(is_proof(&receipt), "{receipt}");
        }
    }
    let absent = Selector::Name("rxe9".to_owned());
    let error = Context::open(&domain, &absent, None).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("select device rxe9"), "{text}");
    assert!(
        text.contains("rxe0") && text.contains("over veth1"),
        "{text}"
    );
    let error = Context::open(&domain, &Selector::Name(devices()[0].clone()), Some(2)).unwrap_err();
    assert_eq!(error.operation(), "select port");
    assert_eq!(domain.live().owners, 0);
    domain.quarantine().assert_empty();
}

#[test]
fn gids_are_chosen_by_address_and_explained() {
    let end = End::new(0, 1);
    let endpoint = end.endpoint();
    assert_eq!(endpoint.gid, gid_of(ADDRESSES[0].parse().unwrap()));
    assert_eq!(endpoint.mtu, PathMtu::Bytes4096);
    let other = lockgate_accel::ibverbs::GidRule {
        address: ADDRESSES[1].parse().unwrap(),
        index: None,
    };
    let error = end.context.choose_gid(other).unwrap_err();
    assert!(error.to_string().contains("another address"), "{error}");
}

/// Opens everything, uses it, closes everything, and finds nothing left.
#[test]
fn writes_and_reads_carry_every_byte_and_everything_closes_with_a_receipt() {
    let (a, b) = pair(1 << 20);
    let remote = *b.mr.info();
    for (length, seed) in [(1, 1), (4095, 2), (4096, 3), (65_537, 4), (1 << 20, 5)] {
        let data = pattern(length, seed);
        let mut seen = vec![0; length];
        let piece = a.piece(0, length);
        a.mr.pages().write(0, &data);
        let write = SendRequest::new(requests::WRITE, seed, send_flags::SIGNALED, &piece)
            .remote(remote.addr, remote.rkey);
        succeeded(a.complete(write), seed);
        b.mr.pages().read(0, &mut seen);
        assert!(seen == data, "WRITE of {length}");

        let data = pattern(length, seed + 100);
        b.mr.pages().write(0, &data);
        let read = SendRequest::new(requests::READ, seed, send_flags::SIGNALED, &piece)
            .remote(remote.addr, remote.rkey);
        succeeded(a.complete(read), seed);
        a.mr.pages().read(0, &mut seen);
        assert!(seen == data, "READ of {length}");
    }
    for end in [a, b] {
        assert!(end.domain.live().bytes > 1 << 20);
        assert_eq!(end.qp.evidence().answer, "ibv_query_qp: ReadyToSend");
        let qpn = end.qp.info().qp_num;
        let receipt = end.qp.close().unwrap();
        assert_eq!(receipt.identity().number("qpn"), Some(qpn.into()));
        assert_ne!(receipt.stamp().unwrap().thread_id(), 0);
        assert!(receipt.bytes() > 0 && is_proof(&receipt), "{receipt}");
        assert_eq!(end.mr.close().unwrap().bytes(), 1 << 20);
        assert_eq!(end.lane.close().unwrap().0.len(), 2);
        assert!(is_proof(&end.pd.close().unwrap()));
        assert!(is_proof(&end.context.close().unwrap()));
        let live = end.domain.live();
        assert_eq!((live.owners, live.bytes, live.quarantined), (0, 0, 0));
    }
}

#[test]
fn dropping_everything_in_any_order_lets_everything_go() {
    let (a, b) = pair(4096);
    let (first, second) = (a.domain.clone(), b.domain.clone());
    drop(a);
    // Parents first: they wait in the quarantine for their holders.
    let End {
        qp,
        mr,
        lane,
        pd,
        context,
        ..
    } = b;
    drop((context, pd, lane));
    assert_eq!(second.quarantine().count(), 4);
    drop((mr, qp));
    let done = second.quarantine().maintain(16);
    assert_eq!((done.receipts.len(), done.failed.len()), (4, 0));
    for domain in [first, second] {
        domain.quarantine().assert_empty();
        assert_eq!((domain.live().owners, domain.live().bytes), (0, 0));
    }
}

#[test]
fn a_window_opens_its_range_until_it_is_invalidated() {
    let (a, b) = pair(8192);
    let mut window = MemoryWindow::allocate(&b.domain, &b.pd, WindowType::Two).unwrap();
    window.keep(&b.mr);
    let region = *b.mr.info();
    let key = rkey_next(window.info().rkey);
    let bind = SendRequest::new(requests::BIND, 1, send_flags::SIGNALED, &[]).bind(
        window.bare(),
        key,
        b.mr.bare(),
        region.addr + 4096,
        4096,
        Access::REMOTE_READ | Access::REMOTE_WRITE,
    );
    succeeded(b.complete(bind), 1);
    let data = pattern(4096, 11);
    a.mr.pages().write(0, &data);
    let piece = a.piece(0, 4096);
    let through = SendRequest::new(requests::WRITE, 3, send_flags::SIGNALED, &piece)
        .remote(region.addr + 4096, key);
    succeeded(a.complete(through), 3);
    let mut seen = vec![0; 8192];
    b.mr.pages().read(0, &mut seen);
    assert!(seen[4096..] == data && seen[..4096].iter().all(|byte| *byte == 0));

    let invalidate =
        SendRequest::new(requests::LOCAL_INVALIDATE, 4, send_flags::SIGNALED, &[]).invalidate(key);
    succeeded(b.complete(invalidate), 4);
    let refused = a.complete(through);
    assert_eq!(
        completion_status(refused.status),
        Some("remote access error")
    );
    // The region goes after its window.
    let unreleased = b.mr.close().unwrap_err();
    assert!(unreleased.failure().is_none(), "{unreleased}");
    assert!(is_proof(&window.close().unwrap()));
    assert!(is_proof(&unreleased.close().unwrap()));
}

#[test]
fn a_group_is_attached_and_detached() {
    let end = End::new(0, 1);
    let kind = options(QpType::UnreliableDatagram);
    let parts = (&end.lane, 0, 0);
    let qp = QueuePair::create(
        &end.domain,
        &end.context,
        &end.pd,
        parts,
        kind,
        Beyond::Refuse,
    )
    .unwrap();
    let group = gid_of("ff0e::ffff:239.1.2.3".parse().unwrap());
    let attached = MulticastAttachment::attach(&end.domain, &qp, group).unwrap();
    // The queue pair does not go before its membership: no native call is made.
    let unreleased = qp.close().unwrap_err();
    assert!(unreleased.failure().is_none(), "{unreleased}");
    let receipt = attached.close().unwrap();
    assert_eq!(receipt.identity().kind(), "multicast attachment");
    assert!(is_proof(&unreleased.close().unwrap()));

    let error = MulticastAttachment::attach(&end.domain, &end.qp, group).unwrap_err();
    assert_eq!(error.errno(), Some(lockgate::Errno::INVAL));
}

#[test]
fn a_rule_that_the_device_does_not_steer_by_is_refused_and_leaves_nothing() {
    let end = End::new(0, 1);
    let owners = end.domain.live().owners;
    let rule = FlowRule {
        layers: flow_layers::ETHERNET,
        port: 1,
        ..FlowRule::new()
    };
    let error = FlowSteering::create(&end.domain, &end.qp, &rule).unwrap_err();
    assert_eq!(error.operation(), "steer packets");
    assert_eq!(
        error.errno().map(lockgate::Errno::raw),
        Some(libc::EOPNOTSUPP)
    );
    assert_eq!(end.domain.live().owners, owners);
    end.qp.close().unwrap();
}

#[test]
fn a_lane_announces_the_queue_that_has_a_completion() {
    let (a, b) = pair(4096);
    a.lane.notify(0).unwrap();
    let remote = *b.mr.info();
    let piece = a.piece(0, 8);
    let write = SendRequest::new(requests::WRITE, 7, send_flags::SIGNALED, &piece)
        .remote(remote.addr, remote.rkey);
    sys::post_send(&a, &[write]).unwrap();
    assert_eq!(a.lane.wait().unwrap(), 0);
    succeeded(a.next(), 7);
    assert!(a.lane.notify(1).is_err(), "there is no second queue");
    // A destroy call waits for events that were not acknowledged; this one does not hang.
    a.qp.close().unwrap();
    a.lane.close().unwrap();
}

#[test]
fn sizes_beyond_the_device_are_refused_by_name_or_clamped() {
    let end = End::new(0, 1);
    let most = end.context.attributes().max_sge;
    let wanted = lockgate_verbs_shim::QpOptions {
        max_send_pieces: most + 1,
        ..options(QpType::ReliableConnection)
    };
    let make = |beyond| {
        let parts = (&end.lane, 0, 0);
        QueuePair::create(&end.domain, &end.context, &end.pd, parts, wanted, beyond)
    };
    let error = make(Beyond::Refuse).unwrap_err();
    assert_eq!(error.object(), Some("max_send_pieces"));
    let qp = make(Beyond::Clamp).unwrap();
    assert_eq!(qp.clamped()[0].given, most);
    let entries = end.context.attributes().max_cqe + 1;
    let lane = CqLane::create(
        &end.domain,
        &end.context,
        &end.pd,
        &LaneOptions::one(entries),
    );
    assert_eq!(lane.unwrap_err().object(), Some("entries"));
}

#[test]
fn a_refused_change_of_state_is_explained() {
    let end = End::new(0, 1);
    let attributes = QpAttributes {
        qp_state: QpState::ReadyToSend.raw(),
        ..QpAttributes::new()
    };
    let error = end.qp.modify(&attributes, qp_fields::STATE).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("there is no such change; from Reset to: Init"),
        "{error}"
    );
    let attributes = QpAttributes {
        qp_state: QpState::Init.raw(),
        port_num: 1,
        ..QpAttributes::new()
    };
    let fields = qp_fields::STATE | qp_fields::PORT;
    let error = end.qp.modify(&attributes, fields).unwrap_err();
    assert!(
        error.to_string().contains("missing: access, pkey_index"),
        "{error}"
    );
    assert_eq!(end.qp.state().unwrap(), QpState::Reset);
}

#[test]
fn two_ends_use_the_smaller_path_mtu() {
    let (a, b) = (End::new(0, 4096), End::new(1, 4096));
    let remote = Endpoint {
        mtu: PathMtu::Bytes1024,
        ..b.endpoint()
    };
    let mtu =
        a.qp.connect(a.context.port(), &a.endpoint(), &remote, support::PEER)
            .unwrap();
    assert_eq!(mtu, PathMtu::Bytes1024);
    assert_eq!(a.qp.query(qp_fields::PATH_MTU).unwrap().path_mtu, mtu.raw());
}

#[test]
fn a_raw_packet_open_ends_at_the_queue_pair_and_leaves_nothing() {
    let domain = Domain::new("receiver", 16 << 20);
    let mut registry = Registry::in_domain(domain.clone());
    AcceleratorProvider::register_into(&mut registry).unwrap();
    let config = ReceiverConfig {
        device: Some(devices()[0].clone()),
        groups: vec!["239.7.7.7:47000".parse().unwrap()],
        ..ReceiverConfig::default()
    };
    let error = registry.open_receiver("ibverbs", &config).unwrap_err();
    assert_eq!(error.operation(), "create raw packet queue pair", "{error}");
    assert_eq!(
        error.errno().map(lockgate::Errno::raw),
        Some(libc::EOPNOTSUPP)
    );
    assert!(error.remedy().is_some());
    domain.quarantine().assert_empty();
    assert_eq!((domain.live().owners, domain.live().bytes), (0, 0));
}

#[test]
fn a_child_may_not_use_the_device() {
    let end = End::new(0, 4096);
    let passed = sys::in_child(|| {
        let refused = end.qp.state().unwrap_err();
        let posted = sys::post_send(&end, &[]).unwrap_err();
        refused.to_string().contains("open the device in the child")
            && posted.errno == lockgate_verbs_shim::Errno::IN_CHILD
            && end.qp.evidence().alive == Alive::Unknown
    });
    assert!(passed);
    assert_eq!(end.qp.state().unwrap(), QpState::Reset);
}

/// Runs itself again in a process of its own, since one does not get its rights back.
#[test]
fn a_plain_users_limit_on_locked_memory_explains_itself() {
    const AGAIN: &str = "LOCKGATE_TEST_PLAIN_USER";
    const NAME: &str = "a_plain_users_limit_on_locked_memory_explains_itself";
    if std::env::var_os(AGAIN).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(AGAIN, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let domain = Domain::new("plain", 64 << 20);
    let name = Selector::Name(devices()[0].clone());
    let context = Context::open(&domain, &name, None).unwrap();
    let pd = ProtectionDomain::allocate(&domain, &context).unwrap();
    sys::become_plain_user(64 << 10);
    let pages = Pages::map(1 << 20).unwrap();
    let error = MemoryRegion::register(&domain, &pd, pages, ALL).unwrap_err();
    assert_eq!(error.errno(), Some(lockgate::Errno::NOMEM), "{error}");
    let text = error.to_string();
    for words in [
        "register memory: ENOMEM",
        "asked for 1048576 bytes; pinned ",
        "soft 65536, hard 65536 bytes",
        " mappings; remedy",
        "ulimit -l",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    // What was refused is not charged.
    assert_eq!(domain.live().bytes, 0);
}
