//! Asking the kernel for its interfaces and their addresses over rtnetlink.
//!
//! Promises: the answer is that of this process's network namespace, which `/sys/class/net` is not where `/sys` was mounted in
//! another one; a message that contradicts itself ends the reading with an error. Does not do: changing anything.
//!
//! Numbers and layouts: rtnetlink(7) and the kernel's `uapi/linux/rtnetlink.h`, `if_link.h` and `if_addr.h`.

use std::io;

use rustix::fd::OwnedFd;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Which table to dump.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dump {
    /// Interfaces: `RTM_GETLINK`, answered with `RTM_NEWLINK`.
    Links,
    /// Addresses: `RTM_GETADDR`, answered with `RTM_NEWADDR`.
    Addresses,
}

impl Dump {
    const fn request(self) -> u16 {
        match self {
            Self::Links => 18,
            Self::Addresses => 22,
        }
    }

    const fn answer(self) -> u16 {
        match self {
            Self::Links => 16,
            Self::Addresses => 20,
        }
    }

    /// The fixed part of a message, in front of its attributes.
    const fn fixed(self) -> usize {
        match self {
            Self::Links => 16,
            Self::Addresses => 8,
        }
    }
}

const NLMSG_HEADER: usize = 16;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
/// The kernel fills at most 32 KiB in one answer to a dump.
const BUFFER: usize = 64 * 1024;
/// How often a dump is asked again that a change in the table has cut short.
const TRIES: usize = 5;

/// One entry of a table: the fixed part, and the attributes behind it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// The fixed part.
    pub(super) fixed: Vec<u8>,
    attributes: Vec<u8>,
}

impl Entry {
    /// The payload of the first attribute of that number.
    pub(super) fn attribute(&self, kind: u16) -> Option<&[u8]> {
        attributes(&self.attributes).find_map(|(found, payload)| (found == kind).then_some(payload))
    }
}

/// Dumps a table.
pub(super) fn dump(which: Dump) -> io::Result<Vec<Entry>> {
    // Protocol 0 of this family is NETLINK_ROUTE.
    let (family, flags) = (AddressFamily::NETLINK, SocketFlags::CLOEXEC);
    let socket = rustix::net::socket_with(family, SocketType::RAW, flags, None)?;
    for _ in 0..TRIES {
        if let Some(entries) = dump_once(&socket, which)? {
            return Ok(entries);
        }
    }
    Err(io::Error::other(
        "the table changed during every attempt to read it",
    ))
}

/// The table, or nothing if it changed while it was read.
fn dump_once(socket: &OwnedFd, which: Dump) -> io::Result<Option<Vec<Entry>>> {
    let mut request = Vec::with_capacity(NLMSG_HEADER + which.fixed());
    let length = (NLMSG_HEADER + which.fixed()) as u32; // 32 at most
    request.extend(length.to_ne_bytes());
    request.extend(which.request().to_ne_bytes());
    request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
    request.extend([0; 8]); // sequence and port: one question at a time, answered by the kernel
    request.resize(length as usize, 0);
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(socket, &request, SendFlags::empty(), &kernel)?;

    let mut entries = Vec::new();
    let mut whole = true;
    let mut buffer = vec![0; BUFFER];
    loop {
        let (_, length) = rustix::net::recv(socket, &mut buffer[..], RecvFlags::TRUNC)?;
        let bytes = buffer
            .get(..length)
            .ok_or_else(|| broken("an answer longer than the buffer"))?;
        match read_answer(bytes, which, &mut entries)? {
            Answer::More { interrupted } => whole &= !interrupted,
            Answer::Done { interrupted } => {
                return Ok((whole && !interrupted).then_some(entries));
            }
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    More { interrupted: bool },
    Done { interrupted: bool },
}

/// Reads the messages of one datagram.
fn read_answer(mut bytes: &[u8], which: Dump, entries: &mut Vec<Entry>) -> io::Result<Answer> {
    let mut interrupted = false;
    while !bytes.is_empty() {
        let header = bytes
            .get(..NLMSG_HEADER)
            .ok_or_else(|| broken("a message shorter than its header"))?;
        let length = u32_at(header, 0).unwrap_or(0) as usize;
        let kind = u16_at(header, 4).unwrap_or(0);
        let flags = u16_at(header, 6).unwrap_or(0);
        let body = bytes
            .get(NLMSG_HEADER..length)
            .ok_or_else(|| broken("a message longer than the datagram"))?;
        interrupted |= flags & NLM_F_DUMP_INTR != 0;
        if kind == NLMSG_DONE {
            return Ok(Answer::Done { interrupted });
        }
        if kind == NLMSG_ERROR {
            let number = u32_at(body, 0).ok_or_else(|| broken("an error without a number"))?;
            // The kernel sends the negative number.
            return Err(io::Error::from_raw_os_error((number as i32).wrapping_neg()));
        }
        if kind == which.answer() {
            let (fixed, attributes) = body
                .split_at_checked(which.fixed())
                .ok_or_else(|| broken("an entry shorter than its fixed part"))?;
            entries.push(Entry {
                fixed: fixed.to_vec(),
                attributes: attributes.to_vec(),
            });
        }
        bytes = bytes.get(align(length)..).unwrap_or(&[]);
    }
    Ok(Answer::More { interrupted })
}

/// Number and payload of each attribute. Ends at the first one that does not fit.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` share the field with the number.
    const NUMBER: u16 = 0x3fff;
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & NUMBER;
        let payload = bytes.get(4..length)?;
        bytes = bytes.get(align(length)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

/// The 16 bits at an offset, in the host's order.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_ne_bytes([bytes[0], bytes[1]]))
}

/// The 32 bits at an offset, in the host's order.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The 64 bits at an offset, in the host's order.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(bytes))
}

/// Messages and attributes start at multiples of 4.
const fn align(length: usize) -> usize {
    (length + 3) & !3
}

fn broken(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the kernel's answer has {what}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(((NLMSG_HEADER + body.len()) as u32).to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes.extend(body);
        bytes.resize(align(bytes.len()), 0);
        bytes
    }

    #[test]
    fn entries_have_their_attributes_and_the_end_is_seen() {
        let mut body = vec![7; 8];
        body.extend([7, 0, 3, 0x80, b'l', b'o', 0, 0]); // length 7, number 3 with the nested bit
        let mut bytes = message(20, 0, &body);
        bytes.extend(message(NLMSG_DONE, NLM_F_DUMP_INTR, &[0; 4]));
        let mut entries = Vec::new();
        let answer = read_answer(&bytes, Dump::Addresses, &mut entries).unwrap();
        assert_eq!(answer, Answer::Done { interrupted: true });
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].attribute(3), Some(&b"lo\0"[..]));
        assert_eq!(entries[0].attribute(4), None);
    }

    #[test]
    fn a_datagram_cut_anywhere_is_an_error_or_fewer_attributes_and_never_a_panic() {
        let mut body = vec![0; 16];
        body.extend([8, 0, 4, 0, 1, 2, 3, 4]);
        let whole = message(16, 0, &body);
        for cut in 1..whole.len() {
            let mut entries = Vec::new();
            let answer = read_answer(&whole[..cut], Dump::Links, &mut entries);
            assert!(answer.is_err(), "cut at {cut}");
        }
        for cut in 0..8 {
            assert_eq!(attributes(&body[16..16 + cut]).count(), 0, "cut at {cut}");
        }
        // A length of zero must end the walk, not loop.
        assert_eq!(attributes(&[0; 64]).count(), 0);
    }

    #[test]
    fn an_error_message_carries_its_number() {
        let bytes = message(NLMSG_ERROR, 0, &(-1_i32).to_ne_bytes());
        let error = read_answer(&bytes, Dump::Links, &mut Vec::new()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1));
    }
}
