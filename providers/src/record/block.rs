//! The three blocks of pcapng that a recording is made of, little-endian, laid out in place.
//!
//! Promises: no allocation as long as the vector has room, which the caller sees to. Does not do: options of packets.
//!
//! Source: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>, sections 4.1 to 4.3. Why no crate: `docs/decisions/pcap-crate.md`.

use std::fmt;
use std::io::Write as _;

/// Link type: Ethernet.
pub(super) const ETHERNET: u16 = 1;
/// Link type: IPv4 or IPv6 without a link header.
pub(super) const RAW: u16 = 101;

/// What a packet's block has beside its data.
pub(super) const PACKET_FRAME: usize = 32;
/// More than an interface's block with its description takes.
pub(super) const INTERFACE_MOST: usize = 256;
const PACKET: u32 = 6;

/// Writes a section header, with the name of the program that wrote it.
pub(super) fn section(to: &mut Vec<u8>) {
    let start = begin(to, 0x0a0d_0d0a);
    to.extend(0x1a2b_3c4du32.to_le_bytes());
    // Version 1.0; the section's length is not known.
    to.extend([1, 0, 0, 0]);
    to.extend([0xff; 8]);
    option(
        to,
        4,
        format_args!("lockgate {}", env!("CARGO_PKG_VERSION")),
    );
    end_options(to);
    end(to, start);
}

/// Writes an interface whose times are in nanoseconds, with a description.
pub(super) fn interface(to: &mut Vec<u8>, link: u16, description: fmt::Arguments<'_>) {
    let start = begin(to, 1);
    to.extend(link.to_le_bytes());
    to.extend([0; 2]);
    // Nothing is cut.
    to.extend([0; 4]);
    option(to, 3, description);
    // if_tsresol: 10^-9.
    to.extend([9, 0, 1, 0, 9, 0, 0, 0]);
    end_options(to);
    end(to, start);
}

/// Writes a packet; `data` appends exactly `captured` octets.
pub(super) fn packet(
    to: &mut Vec<u8>,
    interface: u32,
    nanos: u64,
    captured: u32,
    wire_len: u32,
    data: impl FnOnce(&mut Vec<u8>),
) {
    let start = begin(to, PACKET);
    for number in [
        interface,
        (nanos >> 32) as u32,
        nanos as u32,
        captured,
        wire_len,
    ] {
        to.extend(number.to_le_bytes());
    }
    let at = to.len();
    data(to);
    debug_assert_eq!(to.len() - at, captured as usize);
    pad(to, at);
    end(to, start);
}

/// How many of the first `len` octets are whole blocks, and how many of those are packets.
pub(super) fn whole(blocks: &[u8], len: usize) -> (usize, u64) {
    let (mut at, mut packets) = (0, 0);
    while let Some([kind, length]) = words(blocks, at) {
        let next = at + length as usize;
        if next > len {
            break;
        }
        packets += u64::from(kind == PACKET);
        at = next;
    }
    (at, packets)
}

fn words(blocks: &[u8], at: usize) -> Option<[u32; 2]> {
    let (kind, rest) = blocks.get(at..)?.split_first_chunk::<4>()?;
    let length = rest.first_chunk::<4>()?;
    Some([u32::from_le_bytes(*kind), u32::from_le_bytes(*length)])
}

fn begin(to: &mut Vec<u8>, kind: u32) -> usize {
    let start = to.len();
    to.extend(kind.to_le_bytes());
    to.extend([0; 4]);
    start
}

fn end(to: &mut Vec<u8>, start: usize) {
    // A block is at most the buffer long.
    let len = ((to.len() - start + 4) as u32).to_le_bytes();
    to[start + 4..start + 8].copy_from_slice(&len);
    to.extend(len);
}

fn option(to: &mut Vec<u8>, code: u16, text: fmt::Arguments<'_>) {
    to.extend(code.to_le_bytes());
    to.extend([0; 2]);
    let at = to.len();
    // A vector takes everything.
    let _ = to.write_fmt(text);
    let len = ((to.len() - at) as u16).to_le_bytes();
    to[at - 2..at].copy_from_slice(&len);
    pad(to, at);
}

fn end_options(to: &mut Vec<u8>) {
    to.extend([0; 4]);
}

fn pad(to: &mut Vec<u8>, since: usize) {
    let len = to.len() - since;
    to.extend(&[0; 3][..len.next_multiple_of(4) - len]);
}
