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

/// What came with one datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ancillary {
    /// The socket's drop counter when the datagram was queued. The kernel leaves it out while it is zero.
    pub(super) drops: Option<u32>,
    /// The size of all but the last segment of a coalesced buffer.
    pub(super) segment: Option<usize>,
    /// Nanoseconds by the system's clock.
    pub(super) software: Option<u64>,
    /// Nanoseconds by the device's clock.
    pub(super) hardware: Option<u64>,
    /// Destination address, IPv4 in the first four bytes, and the interface that it came in through.
    pub(super) destination: Option<([u8; 16], u32)>,
}

/// Reads all control messages in `bytes`.
#[inline]
pub(super) fn read(mut bytes: &[u8]) -> Ancillary {
    let mut found = Ancillary::default();
    while let Some((level, kind, data, rest)) = next(bytes) {
        match (level, kind) {
            (libc::SOL_SOCKET, DROPS) => found.drops = number(data, 0),
            (libc::SOL_SOCKET, STAMPS) => {
                found.software = time(data, 0);
                found.hardware = time(data, 2);
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                // An `int`; zero or less would be no segment at all.
                found.segment = number(data, 0)
                    .and_then(|size| usize::try_from(size as i32).ok())
                    .filter(|size| *size > 0);
            }
            (libc::SOL_IP, libc::IP_PKTINFO) => found.destination = packet_info(data),
            (libc::SOL_IPV6, libc::IPV6_PKTINFO) => found.destination = packet_info6(data),
            _ => {}
        }
        bytes = rest;
    }
    found
}

/// The first message, and what follows it.
#[inline]
fn next(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    const SIZE: usize = size_of::<usize>();
    let len = usize::from_ne_bytes(*bytes.first_chunk::<SIZE>()?);
    let level = number(bytes, SIZE)? as c_int;
    let kind = number(bytes, SIZE + 4)? as c_int;
    let data = bytes.get(HEADER..len)?;
    let rest = bytes.get(len.next_multiple_of(SIZE)..).unwrap_or(&[]);
    Some((level, kind, data, rest))
}

#[inline]
fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

/// One `timespec` of `struct scm_timestamping`; a zero one was not taken.
#[inline]
fn time(data: &[u8], index: usize) -> Option<u64> {
    const SIZE: usize = size_of::<i64>();
    let pair = data.get(index * 2 * SIZE..)?;
    let seconds = u64::from_ne_bytes(*pair.first_chunk::<SIZE>()?);
    let nanos = u64::from_ne_bytes(*pair.get(SIZE..)?.first_chunk::<SIZE>()?);
    match seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos) {
        0 => None,
        time => Some(time),
    }
}

/// `struct in_pktinfo`: interface, local address, destination in the header.
#[inline]
fn packet_info(data: &[u8]) -> Option<([u8; 16], u32)> {
    let mut address = [0; 16];
    address[..4].copy_from_slice(data.get(8..12)?);
    Some((address, number(data, 0)?))
}

/// `struct in6_pktinfo`: destination in the header, interface.
#[inline]
fn packet_info6(data: &[u8]) -> Option<([u8; 16], u32)> {
    Some((*data.first_chunk::<16>()?, number(data, 16)?))
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

    #[test]
    fn every_kind_is_read_and_unknown_ones_are_skipped() {
        let mut info = 7_u32.to_ne_bytes().to_vec();
        info.extend([10, 0, 0, 1, 239, 1, 2, 3]);
        let bytes = [
            message(libc::SOL_SOCKET, 9999, &[1, 2, 3]),
            stamps((5, 6), (0, 9)),
            message(libc::SOL_SOCKET, DROPS, &41_u32.to_ne_bytes()),
            message(libc::SOL_UDP, libc::UDP_GRO, &1200_i32.to_ne_bytes()),
            message(libc::SOL_IP, libc::IP_PKTINFO, &info),
        ]
        .concat();
        let mut group = [0; 16];
        group[..4].copy_from_slice(&[239, 1, 2, 3]);
        assert_eq!(
            read(&bytes),
            Ancillary {
                drops: Some(41),
                segment: Some(1200),
                software: Some(5_000_000_006),
                hardware: Some(9),
                destination: Some((group, 7)),
            }
        );
        let mut info = [0xfd; 16].to_vec();
        info.extend(3_u32.to_ne_bytes());
        let found = read(&message(libc::SOL_IPV6, libc::IPV6_PKTINFO, &info));
        assert_eq!(found.destination, Some(([0xfd; 16], 3)));
    }

    #[test]
    fn a_stamp_that_was_not_taken_is_none() {
        let found = read(&stamps((0, 0), (0, 0)));
        assert_eq!(found, Ancillary::default());
    }

    #[test]
    fn a_segment_of_no_bytes_is_none() {
        for size in [0, -1, i32::MIN] {
            let bytes = message(libc::SOL_UDP, libc::UDP_GRO, &size.to_ne_bytes());
            assert_eq!(read(&bytes).segment, None, "size {size}");
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
            let found = read(&whole[..cut]);
            // 16 of header and 48 of data.
            assert_eq!(found.software.is_some(), cut >= 64, "cut at {cut}");
            assert_eq!(found.drops.is_some(), cut >= 64 + 20, "cut at {cut}");
        }
        for len in [0, 1, 15, 16, usize::MAX, usize::MAX - 7] {
            let mut bytes = whole.clone();
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(read(&bytes).software, None, "length {len}");
        }
    }
}
