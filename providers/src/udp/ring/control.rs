//! Reads the control messages that come with a datagram.
//!
//! Promises: every length is checked; what is not known is skipped; nothing is read beyond what the kernel wrote. Does not do:
//! deciding what a value means.

use libc::c_int;

/// `SO_RXQ_OVFL`'s control message has the option's own number.
const DROPS: c_int = libc::SO_RXQ_OVFL;
/// So has `SO_TIMESTAMPING`'s.
const STAMPS: c_int = libc::SCM_TIMESTAMPING;
/// The bytes of a control message's header: length, level, type.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// One thing that came with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Where it was sent to, IPv4 in the first four bytes, and the interface that it came in through.
    Destination { address: [u8; 16], interface: u32 },
    /// The socket's drop counter when the datagram was queued. The kernel leaves it out while it is zero.
    Drops(u32),
    /// The size of all but the last segment of a coalesced buffer; not zero.
    Segment(u32),
    /// The time stamps.
    Stamps(Stamps),
}

/// Nanoseconds by the system's and by the device's clock; zero where none was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) software: u64,
    pub(super) hardware: u64,
}

/// The stamps, if they are all that `bytes` has: the usual case, and a quick one.
#[inline]
pub(super) fn only_stamps(bytes: &[u8]) -> Option<Stamps> {
    const LEN: usize = HEADER + size_of::<[libc::timespec; 3]>();
    let bytes: &[u8; LEN] = bytes.try_into().ok()?;
    let raw = first(bytes)?;
    let only = raw.len == LEN && raw.level == libc::SOL_SOCKET && raw.kind == STAMPS;
    if only { stamps(raw.data) } else { None }
}

/// Hands out what is known among the control messages in `bytes`, in their order.
#[inline]
pub(super) fn each(mut bytes: &[u8], mut take: impl FnMut(Message)) {
    while let Some(raw) = first(bytes) {
        if let Some(message) = one(raw.level, raw.kind, raw.data) {
            take(message);
        }
        let next = raw.len.next_multiple_of(size_of::<usize>());
        bytes = bytes.get(next..).unwrap_or(&[]);
    }
}

#[inline]
fn one(level: c_int, kind: c_int, data: &[u8]) -> Option<Message> {
    match (level, kind) {
        (libc::SOL_SOCKET, STAMPS) => Some(Message::Stamps(stamps(data)?)),
        (libc::SOL_SOCKET, DROPS) => Some(Message::Drops(number(data, 0)?)),
        // An `int`; zero or less would be no segment at all.
        (libc::SOL_UDP, libc::UDP_GRO) => match number(data, 0)? {
            0 => None,
            size if size > i32::MAX as u32 => None,
            size => Some(Message::Segment(size)),
        },
        (libc::SOL_IP, libc::IP_PKTINFO) => packet_info(data),
        (libc::SOL_IPV6, libc::IPV6_PKTINFO) => packet_info6(data),
        _ => None,
    }
}

/// A message before its meaning is known.
struct Raw<'a> {
    /// With its header.
    len: usize,
    level: c_int,
    kind: c_int,
    data: &'a [u8],
}

/// The first message.
#[inline]
fn first(bytes: &[u8]) -> Option<Raw<'_>> {
    const SIZE: usize = size_of::<usize>();
    let header = bytes.first_chunk::<HEADER>()?;
    let len = usize::from_ne_bytes(*header.first_chunk::<SIZE>()?);
    Some(Raw {
        len,
        level: number(header, SIZE)? as c_int,
        kind: number(header, SIZE + 4)? as c_int,
        data: bytes.get(HEADER..len)?,
    })
}

#[inline]
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

/// `struct scm_timestamping`: software, unused, hardware.
#[inline]
fn stamps(data: &[u8]) -> Option<Stamps> {
    const SIZE: usize = size_of::<i64>();
    let parts = data.first_chunk::<{ 6 * SIZE }>()?;
    let part = |index: usize| {
        let (part, _) = parts[index * SIZE..].split_first_chunk::<SIZE>()?;
        Some(u64::from_ne_bytes(*part))
    };
    let time = |index| {
        let nanos = part(index)?.wrapping_mul(1_000_000_000);
        Some(nanos.wrapping_add(part(index + 1)?))
    };
    Some(Stamps {
        software: time(0)?,
        hardware: time(4)?,
    })
}

/// `struct in_pktinfo`: interface, local address, destination in the header.
#[inline]
fn packet_info(data: &[u8]) -> Option<Message> {
    let mut address = [0; 16];
    address[..4].copy_from_slice(data.get(8..12)?);
    let interface = number(data, 0)?;
    Some(Message::Destination { address, interface })
}

/// `struct in6_pktinfo`: destination in the header, interface.
#[inline]
fn packet_info6(data: &[u8]) -> Option<Message> {
    let address = *data.first_chunk::<16>()?;
    let interface = number(data, 16)?;
    Some(Message::Destination { address, interface })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: c_int, kind: c_int, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0xaa);
        bytes
    }

    fn stamps(software: (i64, i64), hardware: (i64, i64)) -> Vec<u8> {
        let times = [software.0, software.1, 0, 0, hardware.0, hardware.1];
        let data: Vec<u8> = times.iter().flat_map(|part| part.to_ne_bytes()).collect();
        message(libc::SOL_SOCKET, STAMPS, &data)
    }

    fn read(bytes: &[u8]) -> Vec<Message> {
        let mut found = Vec::new();
        each(bytes, |message| found.push(message));
        found
    }

    fn taken(software: u64, hardware: u64) -> Message {
        Message::Stamps(Stamps { software, hardware })
    }

    #[test]
    fn stamps_alone_are_read_quickly_and_nothing_else_is() {
        let bytes = stamps((5, 6), (0, 9));
        let expected = Stamps {
            software: 5_000_000_006,
            hardware: 9,
        };
        assert_eq!(only_stamps(&bytes), Some(expected));
        for cut in 0..bytes.len() {
            assert_eq!(only_stamps(&bytes[..cut]), None, "cut at {cut}");
        }
        // Another length, level and type.
        for at in [0, 8, 12] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(only_stamps(&other), None, "byte {at}");
        }
        let more = [bytes, message(libc::SOL_SOCKET, DROPS, &[1, 0, 0, 0])].concat();
        assert_eq!(only_stamps(&more), None);
        assert_eq!(only_stamps(&[]), None);
    }

    #[test]
    fn every_kind_is_read_and_unknown_ones_are_skipped() {
        let mut info = 7_u32.to_ne_bytes().to_vec();
        info.extend([10, 0, 0, 1, 239, 1, 2, 3]);
        let mut info6 = [0xfd; 16].to_vec();
        info6.extend(3_u32.to_ne_bytes());
        let bytes = [
            message(libc::SOL_SOCKET, 9999, &[1, 2, 3]),
            stamps((5, 6), (0, 9)),
            message(libc::SOL_SOCKET, DROPS, &41_u32.to_ne_bytes()),
            message(libc::SOL_UDP, libc::UDP_GRO, &1200_i32.to_ne_bytes()),
            message(libc::SOL_IP, libc::IP_PKTINFO, &info),
            message(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info6),
        ]
        .concat();
        let mut group = [0; 16];
        group[..4].copy_from_slice(&[239, 1, 2, 3]);
        assert_eq!(
            read(&bytes),
            [
                taken(5_000_000_006, 9),
                Message::Drops(41),
                Message::Segment(1200),
                Message::Destination {
                    address: group,
                    interface: 7
                },
                Message::Destination {
                    address: [0xfd; 16],
                    interface: 3
                },
            ]
        );
    }

    #[test]
    fn a_stamp_that_was_not_taken_is_zero() {
        assert_eq!(read(&stamps((0, 0), (0, 0))), [taken(0, 0)]);
    }

    #[test]
    fn a_segment_of_no_bytes_is_none() {
        for size in [0, -1, i32::MIN] {
            let bytes = message(libc::SOL_UDP, libc::UDP_GRO, &size.to_ne_bytes());
            assert_eq!(read(&bytes), [], "size {size}");
        }
    }

    #[test]
    fn nothing_is_read_beyond_a_cut_or_from_a_wrong_length() {
        let whole = [
            stamps((1, 2), (3, 4)),
            message(libc::SOL_SOCKET, DROPS, &41_u32.to_ne_bytes()),
        ]
        .concat();
        for cut in 0..whole.len() {
            // 16 of header and 48 of data; 16 of header and 4 of data.
            let expected = usize::from(cut >= 64) + usize::from(cut >= 64 + 20);
            assert_eq!(read(&whole[..cut]).len(), expected, "cut at {cut}");
        }
        for len in [0, 1, 15, usize::MAX, usize::MAX - 7] {
            let mut bytes = whole.clone();
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(read(&bytes), [], "length {len}");
        }
        // A header without data.
        let mut bytes = whole;
        bytes[..8].copy_from_slice(&16_usize.to_ne_bytes());
        assert!(
            !read(&bytes)
                .iter()
                .any(|one| matches!(one, Message::Stamps(_)))
        );
    }
}
