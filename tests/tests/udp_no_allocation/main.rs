//! The data path of `udp` allocates nothing: poll, wait and looking at every packet, in each of its forms.
#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod sys;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use lockgate::receive::{Group, Receiver, ReceiverConfig, TimestampMode};
use lockgate::registry::Registry;

#[global_allocator]
static ALLOCATOR: sys::Counting = sys::Counting;

fn open(config: &ReceiverConfig) -> Receiver {
    let mut registry = Registry::new();
    registry
        .register(lockgate_providers::udp::factory())
        .unwrap();
    registry.open_receiver("udp", config).unwrap()
}

/// Sends to each address in turn, takes everything, and answers how many packets came and what it cost in allocations.
fn drain(receiver: &mut Receiver, sender: &UdpSocket, to: &[SocketAddr]) -> (usize, u64) {
    for number in 0..200_usize {
        sender.send_to(&[7; 100], to[number % to.len()]).unwrap();
    }
    let (mut packets, mut bytes) = (0, 0);
    let before = sys::allocations();
    loop {
        let batch = receiver.poll().unwrap();
        if batch.is_empty() {
            break;
        }
        for packet in batch {
            packets += 1;
            bytes += packet.payload().len();
            assert!(packet.source().is_some() && packet.destination().is_some());
        }
        let _ = receiver.wait(Some(Duration::ZERO)).unwrap();
    }
    // Enough empty polls to look at the interface's news.
    for _ in 0..100 {
        assert!(receiver.poll().unwrap().is_empty());
    }
    let allocations = sys::allocations() - before;
    assert_eq!(bytes, packets * 100);
    (packets, allocations)
}

#[test]
fn the_data_path_allocates_nothing() {
    let before = sys::allocations();
    drop(std::hint::black_box(Box::new(1)));
    assert_eq!(sys::allocations(), before + 1, "the counter counts");

    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&sender)
        .set_multicast_if_v4(&Ipv4Addr::LOCALHOST)
        .unwrap();
    let [_, _, high, low] = std::process::id().to_be_bytes();
    let port = 40_000 + (std::process::id() % 10_000) as u16;
    let group = |last, port| Group::new(Ipv4Addr::new(239, high, low, last).into(), port);
    let one = ReceiverConfig::multicast("lo", [group(1, port)]);
    let several =
        ReceiverConfig::multicast("lo", [group(2, port), group(3, port), group(4, port + 1)]);
    for (name, mut config) in [("one socket", one), ("several", several)] {
        for stamps in [TimestampMode::None, TimestampMode::Software] {
            for gro in [false, true] {
                config.timestamps = stamps;
                config.options.set("gro", gro);
                let mut receiver = open(&config);
                let to: Vec<_> = config.groups.iter().map(Group::socket_address).collect();
                let (packets, allocations) = drain(&mut receiver, &sender, &to);
                let case = format!("{name}, {stamps:?}, gro {gro}");
                assert_eq!(packets, 200, "{case}");
                assert_eq!(allocations, 0, "{case}");
            }
        }
    }
}
