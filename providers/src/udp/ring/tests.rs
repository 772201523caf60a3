//! Tests of the ring with plain sockets, without a receiver around it.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use lockgate::receive::Descriptor;

use super::{Clock, Drops, Ring, Source};
use crate::udp::sys;

/// A socket, one that sends to it, and what is in common to its datagrams.
fn field(clock: Option<Clock>) -> (UdpSocket, UdpSocket, Source) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = receiver.local_addr().unwrap();
    sender.connect(address).unwrap();
    let mut template = Descriptor::default();
    template.set_destination(address.ip(), address.port());
    let source = Source {
        template,
        only: None,
        clock,
        drops: Drops::default(),
    };
    (receiver, sender, source)
}

fn set(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    sys::set_option(socket, level, name, &value).unwrap();
}

fn lengths(ring: &Ring) -> Vec<u32> {
    let (_, descriptors) = ring.filled();
    descriptors.iter().map(|one| one.payload_len).collect()
}

#[test]
fn a_stamp_does_not_stay_for_the_next_datagram_that_has_none() {
    for prepared in [false, true] {
        let (receiver, sender, mut source) = field(Some(Clock::System));
        let flags = (libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE) as i32;
        let mut ring = Ring::new(4, 64, false).unwrap();
        if prepared {
            ring.prepare(source.template);
        }
        set(&receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags);
        assert!(crate::udp::stamping::settle(flags as u32));
        for stamps in [true, false, true] {
            let flags = if stamps { flags } else { 0 };
            set(&receiver, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags);
            sender.send(b"x").unwrap();
            ring.begin();
            ring.receive(receiver.as_fd(), 0, &mut source).unwrap();
            let (_, [one]) = ring.filled() else {
                panic!("not one packet");
            };
            assert_eq!(one.clock != 0, stamps, "prepared {prepared}");
            assert_eq!(one.timestamp != 0, stamps, "prepared {prepared}");
        }
    }
}

/// Datagrams tell of the drops by themselves, so that the counter can't wrap unseen between two looks.
#[test]
fn the_drop_counter_comes_with_the_datagrams() {
    let (receiver, sender, mut source) = field(None);
    set(&receiver, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
    set(&receiver, libc::SOL_SOCKET, libc::SO_RCVBUF, 4096);
    let mut ring = Ring::new(64, 64, false).unwrap();
    let (mut sent, mut received) = (0, 0);
    for count in [300, 1] {
        for _ in 0..count {
            sender.send(&[0; 64]).unwrap();
            sent += 1;
        }
        while {
            ring.begin();
            ring.receive(receiver.as_fd(), 0, &mut source).is_ok()
        } {
            received += lengths(&ring).len() as u64;
        }
    }
    assert!(source.drops.total() > 0);
    assert_eq!(received + source.drops.total(), sent);
}

#[test]
fn coalesced_buffers_of_several_sockets_wait_for_room_and_keep_their_sockets() {
    let fields = [field(None), field(None)];
    for (receiver, sender, _) in &fields {
        set(receiver, libc::SOL_UDP, libc::UDP_GRO, 1);
        set(sender, libc::SOL_UDP, libc::UDP_SEGMENT, 10);
    }
    let [(first, to_first, one), (second, to_second, two)] = fields;
    let mut sources = [one, two];
    let ports = sources.each_ref().map(|one| one.template.destination_port);
    let mut ring = Ring::new(5, 64, true).unwrap();
    to_first.send(&[1; 35]).unwrap();
    to_second.send(&[2; 45]).unwrap();
    ring.begin();
    ring.receive(first.as_fd(), 0, &mut sources[0]).unwrap();
    ring.receive(second.as_fd(), 1, &mut sources[1]).unwrap();
    ring.split(&mut sources);
    assert_eq!(lengths(&ring), [10, 10, 10, 5, 10]);
    assert!(ring.has_pending());
    // What came meanwhile does not touch what waits.
    to_first.send(&[3; 7]).unwrap();
    ring.begin();
    assert!(ring.has_pending());
    ring.split(&mut sources);
    assert_eq!(lengths(&ring), [10, 10, 10, 5]);
    assert!(!ring.has_pending());
    let (slab, descriptors) = ring.filled();
    for descriptor in descriptors {
        assert_eq!(descriptor.destination_port, ports[1]);
        let start = descriptor.offset as usize;
        let bytes = &slab[start..start + descriptor.payload_len as usize];
        assert!(bytes.iter().all(|byte| *byte == 2));
    }
    ring.begin();
    ring.receive(first.as_fd(), 0, &mut sources[0]).unwrap();
    ring.split(&mut sources);
    assert_eq!(lengths(&ring), [7]);
    assert_eq!(ring.bytes, 35 + 45 + 7);
}

#[test]
fn every_cut_of_a_coalesced_buffer_gives_the_same_datagrams() {
    let (receiver, sender, source) = field(None);
    let mut sources = [source];
    set(&receiver, libc::SOL_UDP, libc::UDP_GRO, 1);
    set(&sender, libc::SOL_UDP, libc::UDP_SEGMENT, 8);
    for batch in 1..=12 {
        for len in 1..=80_usize {
            let bytes: Vec<u8> = (0..len as u8).collect();
            sender.send(&bytes).unwrap();
            let mut ring = Ring::new(batch, 64, true).unwrap();
            let mut got = Vec::new();
            ring.begin();
            ring.receive(receiver.as_fd(), 0, &mut sources[0]).unwrap();
            loop {
                ring.split(&mut sources);
                let (slab, descriptors) = ring.filled();
                assert!(!descriptors.is_empty() && descriptors.len() <= batch);
                got.extend(descriptors.iter().map(|one| {
                    let start = one.offset as usize;
                    slab[start..start + one.payload_len as usize].to_vec()
                }));
                if !ring.has_pending() {
                    break;
                }
                ring.begin();
            }
            let expected: Vec<&[u8]> = bytes.chunks(8).collect();
            assert_eq!(got, expected, "batch {batch}, length {len}");
        }
    }
}

#[test]
fn the_drop_counter_wraps_and_does_not_run_backwards() {
    let mut drops = Drops::default();
    let mut expected = 0;
    for (value, step) in [
        (0, 0),
        (5, 5),
        // A datagram that was queued before the last direct look.
        (3, 0),
        (5, 0),
        (0x7fff_ffff, 0x7fff_fffa),
        (u32::MAX, 0x8000_0000 - (1 << 31)),
    ] {
        drops.seen(value);
        expected += step;
        assert_eq!(drops.total(), expected, "after {value}");
    }
    // Around the end of 32 bits.
    let mut drops = Drops {
        last: u32::MAX - 1,
        total: 10,
    };
    drops.seen(3);
    assert_eq!(drops.total(), 15);
}
