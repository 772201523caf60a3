//! `udp` over a cable between network namespaces: what the loopback interface can't show.
//!
//! Links that go and come back, VLAN interfaces, other interfaces, IPv6 scopes, fragments, and missing
//! privileges. Needs root and `ip`; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use lockgate::receive::{Event, Group, Readiness, Receiver, ReceiverConfig, Setting};
use lockgate::registry::Registry;
use lockgate::{Errno, ErrorKind};
use lockgate_tests::netns::{self, Cable, Namespace};
use lockgate_tests::tools;

/// More than any of it takes on a busy machine. Nothing waits for it unless it fails.
const PATIENCE: Duration = Duration::from_secs(20);

fn try_open(space: &Namespace, config: &ReceiverConfig) -> lockgate::Result<Receiver> {
    space.enter(|| open_here(config))
}

fn open_here(config: &ReceiverConfig) -> lockgate::Result<Receiver> {
    let mut registry = Registry::new();
    registry
        .register(lockgate_providers::udp::factory())
        .unwrap();
    registry.open_receiver("udp", config)
}

fn open(space: &Namespace, config: &ReceiverConfig) -> Receiver {
    try_open(space, config).unwrap()
}

fn group(text: &str) -> Group {
    text.parse().unwrap()
}

fn on(interface: &str, groups: &[&str]) -> ReceiverConfig {
    ReceiverConfig::multicast(interface, groups.iter().map(|text| group(text)))
}

/// A sender in a namespace, whose groups leave through an interface.
fn sender(space: &Namespace, interface: &str, from: &str) -> UdpSocket {
    let index: u32 = space
        .enter(|| std::fs::read_to_string("/proc/thread-self/net/dev_mcast"))
        .unwrap()
        .lines()
        .map(|line| line.split_whitespace())
        .find_map(|mut words| {
            let index = words.next()?;
            (words.next()? == interface).then(|| index.parse().unwrap())
        })
        .expect("the interface is in dev_mcast");
    space.enter(|| {
        let socket = UdpSocket::bind(SocketAddr::new(from.parse().unwrap(), 0)).unwrap();
        let handle = socket2::SockRef::from(&socket);
        match socket.local_addr().unwrap() {
            SocketAddr::V4(address) => handle.set_multicast_if_v4(address.ip()).unwrap(),
            SocketAddr::V6(_) => handle.set_multicast_if_v6(index).unwrap(),
        }
        handle.set_multicast_loop_v4(false).ok();
        socket
    })
}

fn send(sender: &UdpSocket, payload: &[u8], to: &str) {
    sender
        .send_to(payload, to.parse::<SocketAddr>().unwrap())
        .unwrap();
}

/// Waits for that many packets, and then makes sure that no more are queued.
fn payloads(receiver: &mut Receiver, count: usize) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let batch = receiver.poll().unwrap();
        all.extend(batch.iter().map(|packet| packet.payload().to_vec()));
        if batch.is_empty() {
            if all.len() >= count {
                return all;
            }
            let waited = receiver.wait(Some(PATIENCE)).unwrap();
            assert_eq!(waited, Readiness::Ready, "{} of {count} packets", all.len());
        }
    }
}

/// Waits for the next event. The receiver wakes up for it.
fn next_event(receiver: &mut Receiver) -> Event {
    loop {
        if let Some(event) = receiver.take_event() {
            return event;
        }
        let waited = receiver.wait(Some(PATIENCE)).unwrap();
        assert_eq!(waited, Readiness::Ready, "no event came");
    }
}

fn v0() -> String {
    "v0".to_owned()
}

fn rejoined(group: &str) -> Event {
    Event::Rejoined {
        group: group.parse().unwrap(),
        interface: v0(),
    }
}

#[test]
fn ipv6_groups_of_every_scope_come_over_the_cable() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    for address in [
        "ff11::7",
        "ff12::7",
        "ff15::7",
        "ff18::7",
        "ff1e::7",
        "ff32::8000:7",
    ] {
        let text = format!("[{address}]:5000");
        let mut receiver = open(&cable.near, &on("v0", &[&text]));
        if address == "ff11::7" {
            // Interface scope stays on the host: opening works, and nothing may come.
            continue;
        }
        let sender = sender(&cable.far, "v0", "fd77::2");
        send(&sender, address.as_bytes(), &text);
        assert_eq!(payloads(&mut receiver, 1), [address.as_bytes()]);
    }
}

#[test]
fn a_link_local_source_has_its_interface_as_scope() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.far.ip("address add fe80::77/64 dev v0 nodad");
    let mut receiver = open(&cable.near, &on("v0", &["[ff12::9]:5000"]));
    let sender = cable.far.enter(|| {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::DGRAM, None).unwrap();
        socket.bind_device(Some(b"v0")).unwrap();
        let from = "[fe80::77]:0".parse::<SocketAddr>().unwrap();
        socket.bind(&from.into()).unwrap();
        UdpSocket::from(socket)
    });
    send(&sender, b"local", "[ff12::9]:5000");
    let _ = receiver.wait(Some(PATIENCE)).unwrap();
    let batch = receiver.poll().unwrap();
    let packet = batch.get(0).expect("a packet");
    let Some(SocketAddr::V6(source)) = packet.source() else {
        panic!("{packet:?}");
    };
    assert_eq!(source.ip().to_string(), "fe80::77");
    assert_eq!(Some(source.scope_id()), packet.interface());
    assert_ne!(source.scope_id(), 0);
}

#[test]
fn the_scope_of_a_link_local_source_is_known_without_an_interface() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.near.ip("address add fe80::78/64 dev v0 nodad");
    cable.far.ip("address add fe80::77/64 dev v0 nodad");
    let index = |space: &Namespace| -> u32 {
        let path = "/proc/thread-self/net/if_inet6";
        let table = space.enter(|| std::fs::read_to_string(path)).unwrap();
        let line = table.lines().find(|line| line.ends_with(" v0")).unwrap();
        u32::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap()
    };
    let (near, far) = (index(&cable.near), index(&cable.far));
    let at = |address: &str, scope| SocketAddrV6::new(address.parse().unwrap(), 5000, 0, scope);
    let config = ReceiverConfig::unicast(at("fe80::78", near).into());
    let mut receiver = open(&cable.near, &config);
    let sender = cable
        .far
        .enter(|| UdpSocket::bind(at("fe80::77", far)).unwrap());
    sender.send_to(b"local", at("fe80::78", far)).unwrap();
    let _ = receiver.wait(Some(PATIENCE)).unwrap();
    let batch = receiver.poll().unwrap();
    let packet = batch.get(0).expect("a packet");
    assert_eq!(packet.source(), Some(at("fe80::77", near).into()));
}

/// The fault of a kind: a membership on one interface brings what arrives on another.
#[test]
fn what_arrives_on_another_interface_is_not_delivered() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.plug("w0", 78);
    for (text, second, from) in [
        (
            "239.7.7.7:5000",
            "239.7.7.8:5000",
            ["10.77.0.2", "10.78.0.2"],
        ),
        ("[ff15::7]:5000", "[ff15::8]:5000", ["fd77::2", "fd78::2"]),
    ] {
        // Each receiver's socket is a member on its own interface, alone and shared with another group.
        let mut all = [
            open(&cable.near, &on("v0", &[text])),
            open(&cable.near, &on("w0", &[text])),
            open(&cable.near, &on("v0", &[text, second])),
            open(&cable.near, &on("w0", &[text, second])),
        ];
        send(&sender(&cable.far, "v0", from[0]), b"v", text);
        send(&sender(&cable.far, "w0", from[1]), b"w", text);
        for (receiver, expected) in all.iter_mut().zip(["v", "w", "v", "w"]) {
            assert_eq!(payloads(receiver, 1), [expected.as_bytes()], "{text}");
        }
    }
}

#[test]
fn ipv6_sources_are_filtered() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.far.ip("address add fd77::3/64 dev v0 nodad");
    let wanted = group("[ff35::8000:1]:5000").from_sources(["fd77::3".parse().unwrap()]);
    let mut receiver = open(&cable.near, &ReceiverConfig::multicast("v0", [wanted]));
    for (from, text) in [("fd77::2", "no"), ("fd77::3", "yes")] {
        send(
            &sender(&cable.far, "v0", from),
            text.as_bytes(),
            "[ff35::8000:1]:5000",
        );
    }
    assert_eq!(payloads(&mut receiver, 1), [b"yes"]);
}

#[test]
fn a_vlan_interface_is_an_interface() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    if let Err(reason) = cable
        .near
        .try_ip("link add link v0 name v0.1 type vlan id 1")
    {
        tools::skip("vlan", &format!("no VLAN interface can be made: {reason}"));
        return;
    }
    for (side, address) in [(&cable.near, "10.99.0.1/24"), (&cable.far, "10.99.0.2/24")] {
        side.ip("link add link v0 name v0.7 type vlan id 7");
        side.ip(&format!("address add {address} dev v0.7"));
        side.ip("link set v0.7 up");
    }
    let mut tagged = open(&cable.near, &on("v0.7", &["239.7.7.7:5000"]));
    let mut plain = open(&cable.near, &on("v0", &["239.7.7.7:5000"]));
    send(
        &sender(&cable.far, "v0.7", "10.99.0.2"),
        b"tagged",
        "239.7.7.7:5000",
    );
    send(
        &sender(&cable.far, "v0", "10.77.0.2"),
        b"plain",
        "239.7.7.7:5000",
    );
    assert_eq!(payloads(&mut tagged, 1), [b"tagged"]);
    assert_eq!(payloads(&mut plain, 1), [b"plain"]);
}

#[test]
fn a_datagram_in_fragments_comes_whole() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    let mut config = on("v0", &["239.7.7.7:5000"]);
    (config.mtu, config.buffer_bytes) = (9000, 9100);
    let mut receiver = open(&cable.near, &config);
    let payload: Vec<u8> = (0..8000_u32).map(|at| (at / 7) as u8).collect();
    send(
        &sender(&cable.far, "v0", "10.77.0.2"),
        &payload,
        "239.7.7.7:5000",
    );
    assert_eq!(payloads(&mut receiver, 1), [payload]);
    assert_eq!(receiver.statistics().losses.fragment, None);
}

#[test]
fn a_lost_carrier_is_told_and_the_groups_are_joined_again() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    // Three sockets, so that the epoll set is in the game as well as the single socket.
    for groups in [
        &["239.7.7.7:5000"][..],
        &["239.7.7.7:5000", "[ff15::7]:5000", "239.7.7.8:5001"],
    ] {
        let mut receiver = open(&cable.near, &on("v0", groups));
        assert_eq!(receiver.take_event(), None);
        for round in 0..3 {
            cable.far.ip("link set v0 down");
            assert_eq!(
                next_event(&mut receiver),
                Event::LinkDown { interface: v0() }
            );
            cable.far.ip("link set v0 up");
            assert_eq!(next_event(&mut receiver), Event::LinkUp { interface: v0() });
            for group in groups {
                let group: SocketAddr = group.parse().unwrap();
                assert_eq!(next_event(&mut receiver), rejoined(&group.ip().to_string()));
            }
            let sender = sender(&cable.far, "v0", "10.77.0.2");
            send(&sender, &[round], "239.7.7.7:5000");
            assert_eq!(payloads(&mut receiver, 1), [[round]]);
            assert_eq!(receiver.take_event(), None);
        }
    }
}

#[test]
fn an_interface_that_is_down_at_the_start_is_told() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.near.ip("link set v0 down");
    let mut receiver = open(&cable.near, &on("v0", &["239.7.7.7:5000"]));
    assert_eq!(
        receiver.take_event(),
        Some(Event::LinkDown { interface: v0() })
    );
    cable.near.ip("link set v0 up");
    assert_eq!(next_event(&mut receiver), Event::LinkUp { interface: v0() });
}

#[test]
fn a_removed_interface_is_told_and_taken_up_again_when_it_comes_back() {
    if !netns::require() {
        return;
    }
    let groups = ["239.7.7.7:5000", "239.7.7.8:5000", "[ff15::7]:5000"];
    for groups in [&groups[..1], &groups[2..], &groups] {
        let cable = Cable::new();
        let mut receiver = open(&cable.near, &on("v0", groups));
        for round in 0..2 {
            send_to_each(&cable, groups, round);
            assert_eq!(payloads(&mut receiver, groups.len()).len(), groups.len());
            cable.near.ip("link delete v0");
            assert_eq!(
                next_event(&mut receiver),
                Event::LinkDown { interface: v0() }
            );
            let removed = Event::InterfaceRemoved { interface: v0() };
            assert_eq!(next_event(&mut receiver), removed);
            // Others come and go; and the new one has another index.
            cable
                .near
                .ip("link add other type veth peer name other-peer");
            cable.plug("v0", 77);
            let mut seen = Vec::new();
            while seen.len() < groups.len() + 1 {
                seen.push(next_event(&mut receiver));
            }
            assert!(
                seen.contains(&Event::LinkUp { interface: v0() }),
                "{seen:?}"
            );
            for group in groups {
                let group: SocketAddr = group.parse().unwrap();
                assert!(
                    seen.contains(&rejoined(&group.ip().to_string())),
                    "{seen:?}"
                );
            }
            cable.near.ip("link delete other");
            send_to_each(&cable, groups, round);
            assert_eq!(payloads(&mut receiver, groups.len()).len(), groups.len());
        }
        assert_eq!(receiver.take_event(), None);
        receiver.close().unwrap();
    }
}

fn send_to_each(cable: &Cable, groups: &[&str], payload: u8) {
    for to in groups {
        let from = match to.parse::<SocketAddr>().unwrap().ip() {
            IpAddr::V4(_) => "10.77.0.2",
            IpAddr::V6(_) => "fd77::2",
        };
        send(&sender(&cable.far, "v0", from), &[payload], to);
    }
}

#[test]
fn without_privilege_an_ipv6_receiver_says_that_it_must_be_opened_again() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    let config = on("v0", &["[ff15::7]:5000"]);
    let mut receiver = cable.near.enter(|| open_here(&config)).unwrap();
    cable.near.ip("link delete v0");
    assert_eq!(
        next_event(&mut receiver),
        Event::LinkDown { interface: v0() }
    );
    assert_eq!(
        next_event(&mut receiver),
        Event::InterfaceRemoved { interface: v0() }
    );
    cable.plug("v0", 77);
    // The thread that polls has no privilege.
    let text = cable.near.enter_without_privilege(|| {
        loop {
            if let Event::Other { text } = next_event(&mut receiver) {
                return text;
            }
        }
    });
    assert!(text.contains("bind to interface again v0: EPERM"), "{text}");
    assert!(text.contains("CAP_NET_RAW"), "{text}");
}

#[test]
fn without_an_interface_the_routing_table_decides() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    let mut config = on("v0", &["239.7.7.7:5000"]);
    config.interface = None;
    let error = try_open(&cable.near, &config).unwrap_err();
    assert_eq!(error.operation(), "join group");
    assert_eq!(error.errno(), Some(Errno::NODEV));
    assert_eq!(*error.kind(), ErrorKind::Device);
    assert!(error.remedy().unwrap().contains("ip route add"), "{error}");
    cable.near.ip("route add 224.0.0.0/4 dev v0");
    let mut receiver = open(&cable.near, &config);
    send(
        &sender(&cable.far, "v0", "10.77.0.2"),
        b"routed",
        "239.7.7.7:5000",
    );
    assert_eq!(payloads(&mut receiver, 1), [b"routed"]);
}

#[test]
fn unicast_is_tied_to_its_interface() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    cable.plug("w0", 78);
    let mut config = ReceiverConfig::unicast("0.0.0.0:5000".parse().unwrap());
    config.interface = Some("v0".to_owned());
    let mut receiver = open(&cable.near, &config);
    send(
        &sender(&cable.far, "w0", "10.78.0.2"),
        b"w",
        "10.78.0.1:5000",
    );
    send(
        &sender(&cable.far, "v0", "10.77.0.2"),
        b"v",
        "10.77.0.1:5000",
    );
    assert_eq!(payloads(&mut receiver, 1), [b"v"]);
}

#[test]
fn what_needs_privilege_is_explained_without_it() {
    if !netns::require() {
        return;
    }
    let space = Namespace::new();
    space.sysctl("net.ipv4.ip_unprivileged_port_start", "1024");
    let unicast = |port: u16| ReceiverConfig::unicast((Ipv4Addr::LOCALHOST, port).into());
    let mut force = unicast(5000);
    force.options.set("receive-buffer", 1 << 28);
    force.options.set("force-receive-buffer", true);
    let mut busy_config = unicast(5000);
    busy_config.options.set("busy-poll", 1000);
    for (config, operation, errno, word) in [
        (
            &force,
            "set SO_RCVBUFFORCE",
            Errno::PERM,
            "net.core.rmem_max=268435456",
        ),
        (&unicast(80), "bind", Errno::ACCES, "CAP_NET_BIND_SERVICE"),
    ] {
        let opened = space.enter_without_privilege(|| open_here(config));
        let error = opened.expect_err(operation);
        assert_eq!(error.operation(), operation);
        assert_eq!(error.errno(), Some(errno), "{error}");
        assert_eq!(*error.kind(), ErrorKind::Permission);
        assert!(error.remedy().unwrap().contains(word), "{error}");
    }
    // With privilege, the same is granted.
    let forced = space.enter(|| open_here(&force)).unwrap().settings();
    assert_eq!(forced[0].granted, (1 << 28).to_string());
    assert_eq!(forced[0].warning, None);
    let is_granted = |one: &Setting| one.name == "busy-poll" && one.granted == "1000";
    let busy = space.enter(|| open_here(&busy_config)).unwrap().settings();
    assert!(busy.iter().any(is_granted), "{busy:?}");
    // Newer kernels ask for no privilege to spin; older ones do.
    match space.enter_without_privilege(|| open_here(&busy_config)) {
        Ok(receiver) => assert!(receiver.settings().iter().any(is_granted)),
        Err(error) => {
            assert_eq!(error.operation(), "set SO_BUSY_POLL");
            assert_eq!(error.errno(), Some(Errno::PERM), "{error}");
        }
    }
    // And what most receivers do needs none.
    let mut plain = on("lo", &["239.7.7.7:5000", "[ff15::7]:5000"]);
    plain.options.set("reuse-port", true);
    plain.options.set("gro", true);
    space.enter_without_privilege(|| open_here(&plain)).unwrap();
}

#[test]
fn a_full_table_of_sources_in_ipv6_is_explained() {
    if !netns::require() {
        return;
    }
    let cable = Cable::new();
    // One for the whole host.
    let limit: u16 = std::fs::read_to_string("/proc/sys/net/ipv6/mld_max_msf")
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let sources = (0..=limit)
        .map(|last| IpAddr::from(std::net::Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 1, last + 1)));
    let wanted = group("[ff35::8000:1]:5000").from_sources(sources);
    let error = try_open(&cable.near, &ReceiverConfig::multicast("v0", [wanted])).unwrap_err();
    assert_eq!(error.operation(), "join group for source");
    assert_eq!(
        error.errno(),
        Some(Errno::from_raw(libc::ENOBUFS)),
        "{error}"
    );
    assert!(
        error.remedy().unwrap().contains("net.ipv6.mld_max_msf"),
        "{error}"
    );
}
