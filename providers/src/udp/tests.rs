//! Tests on the loopback interface, without privileges and without another process.
//!
//! The kernel delivers on the loopback interface before the send call returns, so that nothing here has to wait for packets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lockgate::receive::{
    Event, Group, Packet, Readiness, Receiver, ReceiverConfig, Statistics, Timestamp,
    TimestampMode, WaitMode,
};
use lockgate::registry::Registry;
use lockgate::{Errno, Error, ErrorKind};

use super::sys;

/// Opens through a registry of this test's own.
fn open(config: &ReceiverConfig) -> Result<Receiver, Error> {
    let mut registry = Registry::new();
    registry.register(super::factory()).unwrap();
    registry.open_receiver("udp", config)
}

/// An IPv4 group that no other test of this run uses, nor of one beside it.
fn unique_group() -> Ipv4Addr {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(239, high, low, next as u8)
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

fn group() -> Group {
    Group::new(unique_group().into(), free_port())
}

fn on_lo(groups: &[Group]) -> ReceiverConfig {
    ReceiverConfig::multicast("lo", groups.iter().cloned())
}

/// A sender whose datagrams leave through the loopback interface.
fn sender(from: &str) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
    let handle = socket2::SockRef::from(&socket);
    match socket.local_addr().unwrap().ip() {
        IpAddr::V4(_) => handle.set_multicast_if_v4(&Ipv4Addr::LOCALHOST).unwrap(),
        IpAddr::V6(_) => handle
            .set_multicast_if_v6(sys::interface_index("lo").unwrap())
            .unwrap(),
    }
    socket
}

/// A packet, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Copied {
    payload: Vec<u8>,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    interface: Option<u32>,
    timestamp: Timestamp,
}

impl From<Packet<'_>> for Copied {
    fn from(packet: Packet<'_>) -> Self {
        Self {
            payload: packet.payload().to_vec(),
            source: packet.source(),
            destination: packet.destination(),
            interface: packet.interface(),
            timestamp: packet.timestamp(),
        }
    }
}

/// Everything that is queued.
fn drain(receiver: &mut Receiver) -> Vec<Copied> {
    let mut all = Vec::new();
    loop {
        let batch = receiver.poll().unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch.iter().map(Copied::from));
    }
}

fn payloads(receiver: &mut Receiver) -> Vec<String> {
    drain(receiver)
        .into_iter()
        .map(|one| String::from_utf8(one.payload).unwrap())
        .collect()
}

#[test]
fn a_group_is_received_with_everything_that_is_known_of_it() {
    let group = group();
    let mut receiver = open(&on_lo(std::slice::from_ref(&group))).unwrap();
    let sender = sender("127.0.0.1");
    // Three batches of 64 and some.
    let sent: Vec<Vec<u8>> = (0..200_u32)
        .map(|number| vec![number as u8; number as usize])
        .collect();
    for payload in &sent {
        sender.send_to(payload, group.socket_address()).unwrap();
    }
    let received = drain(&mut receiver);
    assert_eq!(received.len(), sent.len());
    for (received, sent) in received.iter().zip(&sent) {
        assert_eq!(&received.payload, sent);
        assert_eq!(received.source, Some(sender.local_addr().unwrap()));
        assert_eq!(received.destination, Some(group.socket_address()));
        assert_eq!(
            received.interface,
            Some(sys::interface_index("lo").unwrap())
        );
        assert_eq!(received.timestamp, Timestamp::Unavailable);
    }
    let statistics = receiver.statistics();
    assert_eq!(statistics.packets, 200);
    assert_eq!(statistics.bytes, (0..200).sum::<u64>());
    assert_eq!(statistics.batches, 4);
    assert_eq!(statistics.losses.total(), 0);
    assert_eq!(statistics.losses.kernel_drop, Some(0));
    assert_eq!(
        statistics.losses.filtered, None,
        "nobody counts what the kernel filters"
    );
    assert_eq!(statistics.losses.fragment, None);
    receiver.close().unwrap();
    assert_eq!(receiver.statistics(), statistics, "the last totals stay");
}

#[test]
fn an_ipv6_group_is_received_on_its_interface() {
    let port = free_port();
    for address in ["ff15::4c47", "ff12::4c47", "ff11::4c47"] {
        let mut group = Group::new(address.parse().unwrap(), port);
        let IpAddr::V6(address) = group.address else {
            unreachable!()
        };
        let mut segments = address.segments();
        segments[5] = std::process::id() as u16;
        group.address = std::net::Ipv6Addr::from(segments).into();
        let mut receiver = open(&on_lo(std::slice::from_ref(&group))).unwrap();
        let sender = sender("::1");
        if let Err(error) = sender.send_to(b"six", group.socket_address()) {
            // Some containers have no IPv6 route at all, not even on the loopback interface.
            assert_eq!(error.raw_os_error(), Some(libc::ENETUNREACH), "{error}");
            eprintln!("no route for {} here: not sent", group.address);
            continue;
        }
        let received = drain(&mut receiver);
        assert_eq!(received.len(), 1, "{}", group.address);
        assert_eq!(received[0].payload, b"six");
        assert_eq!(received[0].source, Some(sender.local_addr().unwrap()));
        let destination = received[0].destination.unwrap();
        assert_eq!(
            (destination.ip(), destination.port()),
            (group.address, port)
        );
    }
}

#[test]
fn unicast_is_received_in_both_families() {
    for (address, from) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1")] {
        let address = SocketAddr::new(address.parse().unwrap(), free_port());
        let mut receiver = open(&ReceiverConfig::unicast(address)).unwrap();
        let sender = sender(from);
        sender.send_to(b"one", address).unwrap();
        sender.send_to(b"", address).unwrap();
        sender.send_to(b"three", address).unwrap();
        let received = drain(&mut receiver);
        let texts: Vec<&[u8]> = received.iter().map(|one| &one.payload[..]).collect();
        assert_eq!(
            texts,
            [&b"one"[..], b"", b"three"],
            "an empty datagram is one"
        );
        for one in received {
            assert_eq!(one.source, Some(sender.local_addr().unwrap()));
            assert_eq!(one.destination, Some(address));
            assert_eq!(one.interface, None, "nobody asked for it");
        }
    }
}

#[test]
fn a_wildcard_tells_the_address_that_was_sent_to() {
    let port = free_port();
    let mut receiver = open(&ReceiverConfig::unicast(SocketAddr::new(
        Ipv4Addr::UNSPECIFIED.into(),
        port,
    )))
    .unwrap();
    let to = SocketAddr::new("127.0.0.9".parse().unwrap(), port);
    sender("127.0.0.1").send_to(b"nine", to).unwrap();
    let received = drain(&mut receiver);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].destination, Some(to));
    assert_eq!(
        received[0].interface,
        Some(sys::interface_index("lo").unwrap())
    );
}

#[test]
fn packet_information_tells_the_interface_of_unicast() {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port());
    let mut config = ReceiverConfig::unicast(address);
    config.options.set("packet-info", true);
    let mut receiver = open(&config).unwrap();
    sender("127.0.0.1").send_to(b"x", address).unwrap();
    let received = drain(&mut receiver);
    assert_eq!(received[0].destination, Some(address));
    assert_eq!(
        received[0].interface,
        Some(sys::interface_index("lo").unwrap())
    );
}

/// The fault of a kind: a socket that is bound to a port gets what any process of the host has joined.
#[test]
fn what_others_have_joined_is_not_delivered() {
    let mine = group();
    let also_mine = Group::new(unique_group().into(), mine.port);
    let others = Group::new(unique_group().into(), mine.port);
    let mut alone = open(&on_lo(std::slice::from_ref(&mine))).unwrap();
    let mut shared = open(&on_lo(&[mine.clone(), also_mine.clone()])).unwrap();
    // A receiver on the same port that makes the host a member of the other group.
    let mut other = open(&on_lo(std::slice::from_ref(&others))).unwrap();
    let sender = sender("127.0.0.1");
    for (text, group) in [("mine", &mine), ("others", &others), ("also", &also_mine)] {
        sender
            .send_to(text.as_bytes(), group.socket_address())
            .unwrap();
    }
    assert_eq!(payloads(&mut alone), ["mine"]);
    assert_eq!(payloads(&mut shared), ["mine", "also"]);
    assert_eq!(payloads(&mut other), ["others"]);
    assert_eq!(shared.statistics().losses.filtered, Some(0));
}

#[test]
fn groups_of_one_port_keep_their_order_and_unicast_to_it_is_filtered() {
    let first = group();
    let second = Group::new(unique_group().into(), first.port);
    let mut receiver = open(&on_lo(&[first.clone(), second.clone()])).unwrap();
    let sender = sender("127.0.0.1");
    let unicast = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), first.port);
    let mut expected = Vec::new();
    for number in 0..100_u32 {
        let to = match number % 3 {
            0 => first.socket_address(),
            1 => second.socket_address(),
            _ => unicast,
        };
        sender.send_to(&number.to_be_bytes(), to).unwrap();
        if number % 3 != 2 {
            expected.push((number.to_be_bytes().to_vec(), Some(to)));
        }
    }
    let received: Vec<_> = drain(&mut receiver)
        .into_iter()
        .map(|one| (one.payload, one.destination))
        .collect();
    assert_eq!(received, expected);
    assert_eq!(receiver.statistics().losses.filtered, Some(33));
}

#[test]
fn no_socket_waits_behind_a_busy_one() {
    let groups = [group(), group(), group()];
    let mut config = on_lo(&groups);
    config.batch = 8;
    config.options.set("receive-buffer", 200_000);
    let mut receiver = open(&config).unwrap();
    let sender = sender("127.0.0.1");
    for _ in 0..100 {
        sender.send_to(b"busy", groups[0].socket_address()).unwrap();
    }
    for quiet in &groups[1..] {
        sender.send_to(b"quiet", quiet.socket_address()).unwrap();
    }
    // A full batch of the busy one at most before both of the others had their turn.
    let mut polls = Vec::new();
    for _ in 0..3 {
        let batch = receiver.poll().unwrap();
        polls.extend(batch.iter().map(|one| one.destination().unwrap().port()));
    }
    for quiet in &groups[1..] {
        assert!(polls.contains(&quiet.port), "{polls:?}");
    }
    assert_eq!(polls.len() + drain(&mut receiver).len(), 102);
}

#[test]
fn only_the_named_sources_are_received() {
    for groups in 1..=2 {
        let wanted = group().from_sources(["127.0.0.2".parse().unwrap()]);
        let mut all = vec![wanted.clone()];
        // A second group on the port makes the socket a shared one.
        all.extend((1..groups).map(|_| Group::new(unique_group().into(), wanted.port)));
        let mut receiver = open(&on_lo(&all)).unwrap();
        for (from, text) in [
            ("127.0.0.1", "no"),
            ("127.0.0.2", "yes"),
            ("127.0.0.3", "no"),
        ] {
            sender(from)
                .send_to(text.as_bytes(), wanted.socket_address())
                .unwrap();
        }
        assert_eq!(payloads(&mut receiver), ["yes"], "{groups} groups");
    }
}

#[test]
fn what_is_longer_than_the_buffer_is_counted_and_not_delivered() {
    let group = group();
    let mut config = on_lo(std::slice::from_ref(&group));
    (config.mtu, config.buffer_bytes) = (100, 122);
    let mut receiver = open(&config).unwrap();
    let sender = sender("127.0.0.1");
    for len in [121, 122, 123, 5000, 1] {
        sender
            .send_to(&vec![len as u8; len], group.socket_address())
            .unwrap();
    }
    let lengths: Vec<usize> = drain(&mut receiver)
        .iter()
        .map(|one| {
            assert!(
                one.payload
                    .iter()
                    .all(|byte| *byte == one.payload.len() as u8)
            );
            one.payload.len()
        })
        .collect();
    assert_eq!(lengths, [121, 122, 1]);
    assert_eq!(receiver.statistics().losses.truncated, Some(2));
    assert_eq!(receiver.statistics().losses.total(), 2);
}

#[test]
fn what_the_kernel_drops_is_counted_exactly() {
    for several in [false, true] {
        let mut groups = vec![group()];
        if several {
            groups.push(group());
        }
        let mut config = on_lo(&groups);
        config.options.set("receive-buffer", 8192);
        let mut receiver = open(&config).unwrap();
        let sender = sender("127.0.0.1");
        let mut sent = 0;
        let mut received = 0;
        for round in 1..=3 {
            for _ in 0..500 {
                for group in &groups {
                    sender.send_to(&[7; 64], group.socket_address()).unwrap();
                    sent += 1;
                }
            }
            received += drain(&mut receiver).len() as u64;
            let statistics = receiver.statistics();
            let dropped = statistics.losses.kernel_drop.unwrap();
            assert!(dropped > 0);
            assert_eq!(received + dropped, sent, "round {round}, several {several}");
            assert_eq!(statistics.packets, received);
        }
        receiver.close().unwrap();
        let Statistics {
            packets, losses, ..
        } = receiver.statistics();
        assert_eq!(packets + losses.total(), sent);
    }
}

#[test]
fn the_buffer_that_was_granted_is_told_with_what_to_raise() {
    let mut config = on_lo(&[group()]);
    config.options.set("receive-buffer", 1 << 29);
    let receiver = open(&config).unwrap();
    let settings = receiver.settings();
    let buffer = settings
        .iter()
        .find(|one| one.name == "receive-buffer")
        .unwrap();
    let limit = super::remedy::sysctl("net.core.rmem_max").unwrap();
    assert_eq!(buffer.asked, (1 << 29).to_string());
    assert_eq!(buffer.granted, limit);
    assert_eq!(
        buffer.warning.as_deref().unwrap(),
        format!(
            "net.core.rmem_max is {limit}: raise it with: sysctl -w net.core.rmem_max=536870912"
        )
    );
    config.options.set("receive-buffer", 10_000);
    let settings = open(&config).unwrap().settings();
    assert_eq!(settings[0].granted, "10000");
    assert_eq!(settings[0].warning, None);
}

#[test]
fn software_stamps_are_of_the_system_clock_and_in_order() {
    let group = group();
    let mut config = on_lo(std::slice::from_ref(&group));
    config.timestamps = TimestampMode::Software;
    let mut receiver = open(&config).unwrap();
    let sender = sender("127.0.0.1");
    let before = lockgate::receive::Stamp::now();
    for _ in 0..100 {
        sender.send_to(b"now", group.socket_address()).unwrap();
    }
    let received = drain(&mut receiver);
    let after = lockgate::receive::Stamp::now();
    assert_eq!(received.len(), 100);
    let mut last = before;
    for one in &received {
        // Even the first: opening waits until the kernel stamps.
        let stamp = one.timestamp.system().expect("a stamp");
        assert!(
            stamp >= last && stamp <= after,
            "{last:?} {stamp:?} {after:?}"
        );
        last = stamp;
    }
    let settings = receiver.settings();
    let timestamps = settings.iter().find(|one| one.name == "timestamps");
    assert_eq!(timestamps.unwrap().warning, None);
}

#[test]
fn hardware_stamps_are_refused_where_there_is_no_clock() {
    let mut config = on_lo(&[group()]);
    config.timestamps = TimestampMode::Hardware;
    let error = open(&config).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Device, "{error}");
    assert_eq!(error.operation(), "ask for hardware time stamps");
    assert!(error.remedy().unwrap().contains("ethtool -T lo"), "{error}");
}

#[test]
fn coalesced_buffers_come_as_the_datagrams_that_were_sent() {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port());
    // A batch of 7 cuts every coalesced buffer somewhere.
    for batch in [7, 64] {
        let mut config = ReceiverConfig::unicast(address);
        config.batch = batch;
        config.options.set("gro", true);
        let mut receiver = open(&config).unwrap();
        let sender = sender("127.0.0.1");
        let mut expected = Vec::new();
        for (size, count, last) in [(100, 10, 100), (300, 20, 17), (1200, 5, 1)] {
            sys::set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, &size).unwrap();
            let size = size as usize;
            let bytes: Vec<u8> = (0..size * (count - 1) + last)
                .map(|at| (at / size) as u8 ^ at as u8)
                .collect();
            sender.send_to(&bytes, address).unwrap();
            expected.extend(bytes.chunks(size).map(<[u8]>::to_vec));
        }
        sys::set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, &0).unwrap();
        for single in [&b"alone"[..], b""] {
            sender.send_to(single, address).unwrap();
            expected.push(single.to_vec());
        }
        let received = drain(&mut receiver);
        for one in &received {
            assert_eq!(one.source, Some(sender.local_addr().unwrap()));
            assert_eq!(one.destination, Some(address));
        }
        let received: Vec<_> = received.into_iter().map(|one| one.payload).collect();
        assert_eq!(received, expected, "batch {batch}");
        let statistics = receiver.statistics();
        assert_eq!(statistics.packets, expected.len() as u64);
    }
}

#[test]
fn a_wait_finds_what_has_arrived_and_what_is_left_of_a_coalesced_buffer() {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port());
    for mode in [WaitMode::Event, WaitMode::BusyPoll] {
        let mut config = ReceiverConfig::unicast(address);
        config.wait = mode;
        config.batch = 2;
        config.options.set("gro", true);
        let mut receiver = open(&config).unwrap();
        let began = Instant::now();
        let short = Duration::from_millis(3);
        assert_eq!(receiver.wait(Some(short)).unwrap(), Readiness::TimedOut);
        assert!(began.elapsed() >= short);
        assert_eq!(
            receiver.wait(Some(Duration::ZERO)).unwrap(),
            Readiness::TimedOut
        );
        let sender = sender("127.0.0.1");
        sys::set_option(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, &10).unwrap();
        sender.send_to(&[1; 50], address).unwrap();
        for expected in [2, 2, 1] {
            assert_eq!(receiver.wait(None).unwrap(), Readiness::Ready);
            assert_eq!(receiver.poll().unwrap().len(), expected);
        }
        assert_eq!(
            receiver.wait(Some(Duration::ZERO)).unwrap(),
            Readiness::TimedOut
        );
    }
}

#[test]
fn a_wait_without_end_is_woken_by_a_packet_of_another_thread() {
    for ports in [1, 2] {
        let groups: Vec<Group> = (0..ports).map(|_| group()).collect();
        let mut receiver = open(&on_lo(&groups)).unwrap();
        let to = groups.last().unwrap().socket_address();
        let thread = std::thread::spawn(move || sender("127.0.0.1").send_to(b"up", to).unwrap());
        while receiver.poll().unwrap().is_empty() {
            assert_eq!(receiver.wait(None).unwrap(), Readiness::Ready);
        }
        thread.join().unwrap();
    }
}

#[test]
fn the_descriptor_is_readable_exactly_when_a_poll_finds_something() {
    for ports in [1, 3] {
        let groups: Vec<Group> = (0..ports).map(|_| group()).collect();
        let mut receiver = open(&on_lo(&groups)).unwrap();
        let readable = |receiver: &Receiver| {
            let fd = receiver.readiness_fd().unwrap();
            sys::wait_readable(fd, None, Some(Duration::ZERO)).unwrap()[0]
        };
        assert!(!readable(&receiver));
        let sender = sender("127.0.0.1");
        for group in &groups {
            sender.send_to(b"x", group.socket_address()).unwrap();
            assert!(readable(&receiver));
            assert_eq!(drain(&mut receiver).len(), 1);
            assert!(!readable(&receiver));
        }
        receiver.close().unwrap();
        assert!(receiver.readiness_fd().is_none());
    }
}

#[test]
fn an_icmp_error_at_the_socket_does_not_end_the_receiver() {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port());
    let mut receiver = open(&ReceiverConfig::unicast(address)).unwrap();
    // The kernel reports such errors to connected sockets. Connect the receiver's own to a port where nobody listens.
    let closed = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port());
    let fd = receiver.readiness_fd().unwrap();
    let handle = socket2::SockRef::from(&fd);
    handle.connect(&closed.into()).unwrap();
    handle.send(b"anybody there?").unwrap();
    assert_eq!(receiver.poll().unwrap().len(), 0);
    let event = receiver.take_event();
    let Some(Event::Other { text }) = &event else {
        panic!("{event:?}");
    };
    assert!(text.contains("ECONNREFUSED"), "{text}");
    // From now on it takes datagrams from that port only: the peer comes up.
    let peer = UdpSocket::bind(closed).unwrap();
    peer.send_to(b"here", address).unwrap();
    assert_eq!(payloads(&mut receiver), ["here"]);
}

#[test]
fn a_missing_interface_is_named_with_those_that_are_there() {
    let mut config = on_lo(&[group()]);
    config.interface = Some("nowhere0".to_owned());
    let error = open(&config).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Device);
    assert_eq!(error.operation(), "resolve interface");
    assert_eq!(error.object(), Some("nowhere0"));
    assert_eq!(error.errno(), Some(Errno::NODEV));
    assert!(error.detail().unwrap().contains("lo"), "{error}");
    assert!(error.remedy().is_some());
}

#[test]
fn a_port_that_is_taken_is_explained() {
    let holder = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap();
    let error = open(&ReceiverConfig::unicast(address)).unwrap_err();
    assert_eq!(error.operation(), "bind");
    assert_eq!(error.errno(), Some(Errno::from_raw(libc::EADDRINUSE)));
    let remedy = error.remedy().unwrap();
    let command = format!("ss -uanp 'sport = :{}'", address.port());
    assert!(remedy.contains(&command), "{remedy}");
}

#[test]
fn an_address_of_another_host_is_explained() {
    // TEST-NET-1 of RFC 5737.
    let error = open(&ReceiverConfig::unicast("192.0.2.1:5000".parse().unwrap())).unwrap_err();
    assert_eq!(error.operation(), "bind");
    assert_eq!(error.errno(), Some(Errno::from_raw(libc::EADDRNOTAVAIL)));
    assert!(error.remedy().unwrap().contains("ip address"), "{error}");
}

#[test]
fn reuse_port_lets_two_receivers_share_an_address() {
    let address = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), free_port());
    let mut config = ReceiverConfig::unicast(address);
    config.options.set("reuse-port", true);
    let mut both = [open(&config).unwrap(), open(&config).unwrap()];
    for _ in 0..64 {
        sender("127.0.0.1").send_to(b"x", address).unwrap();
    }
    let got = both.each_mut().map(|one| drain(one).len());
    assert_eq!(got[0] + got[1], 64);
    // By the hash over the senders' ports; all 64 on one side happen once in 2^63 runs.
    assert!(got[0] > 0 && got[1] > 0, "{got:?}");
}

#[test]
fn more_groups_than_a_socket_may_join_is_explained_and_has_a_way_out() {
    let limit: usize = super::remedy::sysctl("net.ipv4.igmp_max_memberships")
        .unwrap()
        .parse()
        .unwrap();
    if limit > 200 {
        eprintln!("net.ipv4.igmp_max_memberships is {limit}: too many to try");
        return;
    }
    let first = group();
    let mut groups = vec![first.clone()];
    groups.extend((0..limit).map(|_| Group::new(unique_group().into(), first.port)));
    let mut config = on_lo(&groups);
    let error = open(&config).unwrap_err();
    assert_eq!(error.operation(), "join group");
    assert_eq!(error.errno(), Some(Errno::from_raw(libc::ENOBUFS)));
    assert_eq!(*error.kind(), ErrorKind::Resource);
    assert!(
        error.detail().unwrap().contains(&limit.to_string()),
        "{error}"
    );
    assert_eq!(
        error.remedy(),
        Some("raise it: sysctl -w net.ipv4.igmp_max_memberships=N, or set sockets to per-group")
    );
    config.options.set("sockets", "per-group");
    let mut receiver = open(&config).unwrap();
    let sender = sender("127.0.0.1");
    for group in &groups {
        sender.send_to(b"x", group.socket_address()).unwrap();
    }
    assert_eq!(drain(&mut receiver).len(), groups.len());
}

#[test]
fn more_sources_than_a_group_may_have_is_explained() {
    let limit: u8 = match super::remedy::sysctl("net.ipv4.igmp_max_msf")
        .unwrap()
        .parse()
    {
        Ok(limit) if limit < 200 => limit,
        other => {
            eprintln!("net.ipv4.igmp_max_msf is {other:?}: too many to try");
            return;
        }
    };
    let sources = (0..=limit).map(|last| Ipv4Addr::new(10, 9, 8, last + 1).into());
    let error = open(&on_lo(&[group().from_sources(sources)])).unwrap_err();
    assert_eq!(error.operation(), "join group for source");
    assert_eq!(error.errno(), Some(Errno::from_raw(libc::ENOBUFS)));
    let detail = error.detail().unwrap();
    assert!(detail.contains("igmp_max_msf"), "{error}");
    assert!(
        error.remedy().unwrap().contains("net.ipv4.igmp_max_msf"),
        "{error}"
    );
}

#[test]
fn a_vlan_is_refused_because_a_socket_sees_no_tag() {
    let mut config = on_lo(&[group()]);
    config.vlan = Some(7);
    let error = open(&config).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Capability, "{error}");
}

#[test]
fn closing_twice_succeeds_and_polling_after_it_is_refused() {
    let mut receiver = open(&on_lo(&[group()])).unwrap();
    receiver.close().unwrap();
    receiver.close().unwrap();
    assert_eq!(*receiver.poll().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(
        *receiver.wait(Some(Duration::ZERO)).unwrap_err().kind(),
        ErrorKind::Closed
    );
    assert_eq!(receiver.take_event(), None);
}

#[test]
fn an_inspection_names_the_limits() {
    let inspection = super::factory().inspect();
    assert!(inspection.usable);
    let text = inspection.findings.join("\n");
    assert!(text.contains("net.core.rmem_max: "), "{text}");
    assert!(text.contains("lo"), "{text}");
}
