//! What `record` writes, read back, and what it does when it can't write.
//!
//! Other programs read recordings in the workspace's own tests.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate::clock::ManualClock;
use lockgate::receive::{Event, PacketReceiver, State};
use lockgate::{Errno, ErrorKind};

use super::{Monitor, Record, Sink, block};
use crate::testing::{Given, Script, polled};

/// A sink in memory that takes only so much, and lets the test look.
#[derive(Clone, Default)]
struct Disk {
    shared: Arc<Mutex<Contents>>,
}

#[derive(Default)]
struct Contents {
    bytes: Vec<u8>,
    room: Option<usize>,
    writes: usize,
    refuse_cut: bool,
}

impl Disk {
    fn with_room(room: usize) -> Self {
        let disk = Self::default();
        disk.shared.lock().unwrap().room = Some(room);
        disk
    }

    #[cfg(feature = "capture")]
    fn bytes(&self) -> Vec<u8> {
        self.shared.lock().unwrap().bytes.clone()
    }

    fn writes(&self) -> usize {
        self.shared.lock().unwrap().writes
    }
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shared = self.shared.lock().unwrap();
        shared.writes += 1;
        let room = shared.room.unwrap_or(usize::MAX) - shared.bytes.len();
        if room == 0 {
            return Err(io::Error::from_raw_os_error(28));
        }
        // Half at most, so that the rest of a write is asked for again.
        let len = bytes.len().div_ceil(2).min(room);
        shared.bytes.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Disk {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        let mut shared = self.shared.lock().unwrap();
        if shared.refuse_cut {
            return Err(io::Error::from_raw_os_error(22));
        }
        shared.bytes.truncate(len as usize);
        Ok(())
    }
}

struct Set {
    script: Script,
    clock: Arc<ManualClock>,
    disk: Disk,
    monitor: Monitor,
    receiver: Box<dyn PacketReceiver>,
}

fn set(disk: &Disk) -> Set {
    let (script, clock) = (Script::new(), Arc::new(ManualClock::new()));
    clock.advance(Duration::from_secs(100));
    let record = Record::to("memory", Box::new(disk.clone()))
        .unwrap()
        .clock(clock.clone());
    Set {
        monitor: record.monitor(),
        receiver: record.wrap(script.receiver()),
        script,
        clock,
        disk: disk.clone(),
    }
}

/// Counts of a monitor: recorded, pending, unrecorded.
fn counts(monitor: &Monitor) -> [u64; 3] {
    [monitor.recorded(), monitor.pending(), monitor.unrecorded()]
}

#[cfg(feature = "capture")]
mod read_back {
    use lockgate::receive::frame::{Builder, Policy, VlanTag, VlanTags, parse, parse_ip};
    use lockgate::receive::mac::MacAddress;
    use lockgate::receive::{Descriptor, Stamp, Timestamp};

    use super::*;
    use crate::capture::{LinkType, OwnedPacket, Reader};

    fn read(disk: &Disk) -> Vec<OwnedPacket> {
        let bytes = disk.bytes();
        let packets = Reader::new(&bytes[..]).unwrap().packets();
        packets.collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn a_payload_becomes_an_ip_packet_with_its_addresses_and_right_sums() {
        for (source, destination) in [("192.0.2.7", "239.7.7.7"), ("fd00::7", "ff15::7")] {
            let mut set = set(&Disk::default());
            set.script.batch([Given::payload(b"tick").with(|one| {
                one.set_source(source.parse().unwrap(), 4000);
                one.set_destination(destination.parse().unwrap(), 5000);
                one.set_timestamp(Timestamp::System(Stamp::from_raw(
                    1_700_000_000_123_456_789,
                )));
            })]);
            set.receiver.poll().unwrap();
            set.receiver.close().unwrap();
            let [packet] = &read(&set.disk)[..] else {
                panic!("one packet")
            };
            assert_eq!(packet.link, LinkType::RAW);
            assert_eq!(packet.nanos, Some(1_700_000_000_123_456_789));
            assert_eq!(packet.wire_len as usize, packet.bytes.len());
            let frame = parse_ip(&packet.bytes, &Policy::default()).unwrap();
            assert_eq!(
                frame.source().to_string().rsplit_once(':').unwrap().1,
                "4000"
            );
            assert_eq!(frame.source().ip().to_string(), source);
            assert_eq!(frame.destination().ip().to_string(), destination);
            assert_eq!(frame.payload(&packet.bytes), b"tick");
            assert_eq!(counts(&set.monitor), [1, 0, 0]);
            assert_eq!(
                set.monitor.outcome().unwrap().bytes,
                set.disk.bytes().len() as u64
            );
        }
    }

    #[test]
    fn frames_and_ip_packets_are_kept_and_a_vlan_tag_that_was_taken_out_is_put_back() {
        let builder = Builder::udp(
            "192.0.2.7:4000".parse().unwrap(),
            "239.7.7.7:5000".parse().unwrap(),
        )
        .unwrap();
        let mac = |last| MacAddress::new([2, 0, 0, 0, 0, last]);
        let write = |builder: Builder| {
            let mut bytes = vec![0; builder.len(4)];
            builder.write(b"tick", &mut bytes).unwrap();
            bytes
        };
        let tagged = VlanTags::single(VlanTag::customer(0x602a));
        let ip = write(builder);
        let plain = write(builder.ethernet(mac(1), mac(2), VlanTags::NONE));
        let with_tag = write(builder.ethernet(mac(1), mac(2), tagged));
        let given = |bytes: &[u8], flags: u32, vlan: u16| {
            Given::payload(bytes).with(|one| {
                one.payload_offset = bytes.len() as u16 - 4;
                one.payload_len = 4;
                one.flags = flags;
                one.vlan = vlan;
            })
        };
        let frame = Descriptor::FRAME;
        let mut set = set(&Disk::default());
        set.script.batch([
            given(&ip, Descriptor::IP_PACKET, 0),
            given(&plain, frame, 0),
            given(&with_tag, frame | Descriptor::VLAN, 0x602a),
            given(&plain, frame | Descriptor::VLAN, 0x602a),
        ]);
        set.receiver.poll().unwrap();
        set.receiver.close().unwrap();
        let packets = read(&set.disk);
        let seen: Vec<_> = packets.iter().map(|one| (one.link, &one.bytes)).collect();
        assert_eq!(
            seen,
            [
                (LinkType::RAW, &ip),
                (LinkType::ETHERNET, &plain),
                (LinkType::ETHERNET, &with_tag),
                (LinkType::ETHERNET, &with_tag),
            ]
        );
        assert_eq!(packets[3].wire_len as usize, with_tag.len());
        let tags = parse(&packets[3].bytes, &Policy::default()).unwrap().vlan;
        assert_eq!(tags.outer().map(|tag| tag.tci), Some(0x602a));
    }

    #[test]
    fn each_origin_of_the_time_and_each_interface_is_told_apart() {
        let mut set = set(&Disk::default());
        let stamped = |timestamp| Given::number(0).with(|one| one.set_timestamp(timestamp));
        set.script.batch([
            stamped(Timestamp::System(Stamp::from_raw(5))),
            stamped(Timestamp::DeviceRealTime(Stamp::from_raw(6))),
            stamped(Timestamp::DeviceFreeRunning(Stamp::from_raw(7))),
            stamped(Timestamp::Unavailable),
            stamped(Timestamp::System(Stamp::from_raw(8))).with(|one| one.interface = 3),
            stamped(Timestamp::System(Stamp::from_raw(9))),
        ]);
        set.receiver.poll().unwrap();
        set.receiver.close().unwrap();
        let polled = 100_000_000_000;
        let seen: Vec<_> = read(&set.disk)
            .iter()
            .map(|one| (one.interface, one.nanos.unwrap()))
            .collect();
        assert_eq!(
            seen,
            [(0, 5), (1, 6), (2, polled), (2, polled), (3, 8), (0, 9)]
        );
        let text = String::from_utf8_lossy(&set.disk.bytes()).into_owned();
        for description in [
            "interface index 0; payload under headers made from the socket's addresses; time: system clock",
            "time: device clock, real time",
            "time: system clock at the poll",
            "interface index 3;",
        ] {
            assert!(text.contains(description), "{description}");
        }
    }

    #[test]
    fn a_cut_packet_announces_its_length_on_the_wire() {
        for (source, destination, head) in
            [("192.0.2.7", "239.7.7.7", 28), ("fd00::7", "ff15::7", 48)]
        {
            let mut set = set(&Disk::default());
            set.script.batch([Given::payload(b"tick").with(|one| {
                one.set_source(source.parse().unwrap(), 4000);
                one.set_destination(destination.parse().unwrap(), 5000);
                one.wire_len = 1000;
                one.flags = Descriptor::TRUNCATED;
            })]);
            set.receiver.poll().unwrap();
            set.receiver.close().unwrap();
            let packet = &read(&set.disk)[0];
            assert!(packet.view().is_cut());
            assert_eq!(
                (packet.bytes.len(), packet.wire_len),
                (head + 4, head as u32 + 1000)
            );
            // With the rest filled in, the headers are those of the whole packet.
            let mut whole = packet.bytes.clone();
            whole.resize(head + 1000, 0);
            let policy = Policy {
                ipv6_zero: lockgate::receive::frame::Ipv6Zero::Accept,
                ..Policy::default()
            };
            let frame = parse_ip(&whole, &policy).unwrap();
            assert_eq!(frame.payload_len, 1000);
        }
    }

    #[test]
    fn what_a_full_disk_leaves_is_a_whole_capture_of_what_was_counted() {
        let whole = {
            let mut set = set(&Disk::default());
            set.script.numbers(0..5);
            set.script.numbers(5..8);
            set.receiver.poll().unwrap();
            set.receiver.poll().unwrap();
            set.receiver.close().unwrap();
            set.disk.bytes().len()
        };
        let section = set(&Disk::default()).disk.bytes().len();
        for room in section..whole {
            let mut set = set(&Disk::with_room(room));
            set.script.numbers(0..5);
            set.script.numbers(5..8);
            assert_eq!(polled(&mut *set.receiver), [0, 1, 2, 3, 4]);
            set.clock.advance(Duration::from_secs(1));
            assert_eq!(polled(&mut *set.receiver), [5, 6, 7], "room {room}");
            set.receiver.close().unwrap();
            let packets = read(&set.disk).len() as u64;
            assert_eq!(
                counts(&set.monitor),
                [packets, 0, 8 - packets],
                "room {room}"
            );
            assert!(packets < 8);
            assert_eq!(set.monitor.bytes(), set.disk.bytes().len() as u64);
        }
    }
}

#[test]
fn a_failed_write_is_told_once_in_every_way_and_packets_go_on() {
    let disk = Disk::with_room(150);
    let mut set = set(&disk);
    disk.shared.lock().unwrap().refuse_cut = true;
    set.script.numbers([1, 2]);
    set.script.numbers([3]);
    set.script.event(Event::LinkUp {
        interface: "eth0".to_owned(),
    });
    assert_eq!(polled(&mut *set.receiver), [1, 2]);
    set.clock.advance(Duration::from_secs(1));
    assert_eq!(polled(&mut *set.receiver), [3]);
    let Some(Event::RecordingStopped {
        target,
        errno,
        problem,
    }) = set.receiver.take_event()
    else {
        panic!("the event comes first")
    };
    assert_eq!((&target[..], errno.unwrap().raw()), ("memory", 28));
    assert!(problem.contains("its last block may be torn"), "{problem}");
    assert!(matches!(
        set.receiver.take_event(),
        Some(Event::LinkUp { .. })
    ));
    assert_eq!(set.receiver.take_event(), None);
    let settings = set.receiver.settings();
    let setting = settings.iter().find(|one| one.name == "record").unwrap();
    assert_eq!(setting.granted, "stopped after 0 packets");
    let warning = setting.warning.as_ref().unwrap();
    assert!(warning.contains("ENOSPC (28)"), "{warning}");
    assert!(warning.contains("3 packets are not recorded"), "{warning}");
    assert_eq!(counts(&set.monitor), [0, 0, 3]);
    let writes = disk.writes();
    set.script.numbers([4]);
    assert_eq!(polled(&mut *set.receiver), [4]);
    set.receiver.close().unwrap();
    assert_eq!(
        disk.writes(),
        writes,
        "nothing is written after the failure"
    );
    assert_eq!(set.monitor.unrecorded(), 4);
    let error = set.monitor.outcome().unwrap_err();
    assert_eq!(error.errno().map(Errno::raw), Some(28));
}

#[test]
fn the_buffer_is_written_when_the_interval_is_over_before_long_waits_and_at_the_close() {
    let mut set = set(&Disk::default());
    let at_start = set.disk.writes();
    set.script.numbers([1]);
    polled(&mut *set.receiver);
    polled(&mut *set.receiver);
    assert_eq!(counts(&set.monitor), [0, 1, 0]);
    let _ = set.receiver.wait(Some(Duration::from_millis(999))).unwrap();
    assert_eq!(counts(&set.monitor), [0, 1, 0], "a short wait");
    let _ = set.receiver.wait(None).unwrap();
    assert_eq!(counts(&set.monitor), [1, 0, 0], "an endless wait");

    set.script.numbers([2]);
    polled(&mut *set.receiver);
    set.clock.advance(Duration::from_secs(1));
    polled(&mut *set.receiver);
    assert_eq!(counts(&set.monitor), [2, 0, 0], "the interval");

    set.script.numbers([3]);
    polled(&mut *set.receiver);
    assert!(set.receiver.readiness_fd().is_none());
    polled(&mut *set.receiver);
    assert_eq!(
        counts(&set.monitor),
        [3, 0, 0],
        "an empty poll of an event loop"
    );

    set.script.numbers([4]);
    polled(&mut *set.receiver);
    set.receiver.close().unwrap();
    assert_eq!(counts(&set.monitor), [4, 0, 0], "the close");
    let writes = set.disk.writes();
    assert!(writes > at_start);
    drop(set.receiver);
    assert_eq!(set.disk.writes(), writes, "nothing is left for the drop");
}

#[test]
fn a_drop_without_close_writes_what_is_left() {
    let mut set = set(&Disk::default());
    set.script.numbers([1, 2]);
    polled(&mut *set.receiver);
    drop(set.receiver);
    assert_eq!(counts(&set.monitor), [2, 0, 0]);
    assert_eq!(set.script.closes(), 0);
}

#[test]
fn a_close_that_fails_still_writes_and_a_second_one_writes_nothing() {
    let set = set(&Disk::default());
    set.script.fail_close(Errno::BUSY);
    set.script.numbers([1]);
    let mut receiver = crate::testing::open(set.receiver);
    assert_eq!(receiver.poll().unwrap().len(), 1);
    assert_eq!(receiver.close().unwrap_err().errno(), Some(Errno::BUSY));
    assert_eq!(receiver.state(), State::Unquiesced);
    assert_eq!(counts(&set.monitor), [1, 0, 0]);
    let writes = set.disk.writes();
    assert!(receiver.close().is_err());
    assert_eq!(set.disk.writes(), writes);
    assert_eq!(set.script.closes(), 1);
}

#[test]
fn more_than_the_buffer_holds_is_written_on_the_way() {
    let mut set = set(&Disk::default());
    let large = vec![7; 60_000];
    for _ in 0..4 {
        set.script.batch((0..16).map(|_| Given::payload(&large)));
        set.receiver.poll().unwrap();
    }
    assert!(set.monitor.recorded() > 0, "2 MiB are less than 3.8 MB");
    set.receiver.close().unwrap();
    assert_eq!(counts(&set.monitor), [64, 0, 0]);
}

#[test]
fn a_payload_that_no_ip_packet_holds_is_counted() {
    let mut set = set(&Disk::default());
    set.script
        .batch([Given::payload(&[7; 65_508]), Given::number(2)]);
    assert_eq!(set.receiver.poll().unwrap().len(), 2);
    set.receiver.close().unwrap();
    assert_eq!(counts(&set.monitor), [1, 0, 1]);
    let error = set.monitor.outcome().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Resource);
    assert!(
        error
            .to_string()
            .contains("1 packets could not be recorded"),
        "{error}"
    );
    let settings = set.receiver.settings();
    assert!(
        settings
            .iter()
            .any(|one| one.name == "record" && one.warning.is_some())
    );
}

/// A path of this test alone, removed at the end.
struct Path(PathBuf);

impl Path {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-record-{}-{number}.pcapng", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn an_existing_file_is_replaced_only_when_asked() {
    let path = Path::new();
    std::fs::write(&path.0, b"precious").unwrap();
    let error = Record::create(&path.0).err().unwrap();
    assert_eq!(error.errno().map(Errno::raw), Some(17));
    assert_eq!(error.object(), path.0.to_str());
    assert!(error.remedy().unwrap().contains("name another file"));
    assert_eq!(std::fs::read(&path.0).unwrap(), b"precious");
    drop(Record::replace(&path.0).unwrap());
    let bytes = std::fs::read(&path.0).unwrap();
    assert_eq!(block::whole(&bytes, bytes.len()), (bytes.len(), 0));
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
}

#[test]
fn a_device_that_is_full_from_the_start_is_refused() {
    let error = Record::replace("/dev/full").err().unwrap();
    assert_eq!(error.operation(), "start recording");
    assert_eq!(error.errno().map(Errno::raw), Some(28));
}
