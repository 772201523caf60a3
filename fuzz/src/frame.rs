//! What must hold of the frame parser and of rewriting for any bytes at all.
//!
//! Promises: `check` panics when something does not hold. The fuzzer calls it with what it makes up, and an ordinary test
//! of the workspace with the corpus that is checked in. The first octet of an input chooses policy and entry, the rest is
//! the frame. Does not do: comparing with another parser; the test against Wireshark does that.

use std::net::SocketAddr;

use lockgate::receive::frame::{
    Addresses, BadSum, Check, Checksum, Frame, Ipv6Zero, Origin, Place, Policy, Reject, Rewrite,
    complete_checksum, parse, parse_ip, rewrite,
};

/// Runs every check over one input.
pub(crate) fn check(input: &[u8]) {
    let Some((choice, bytes)) = input.split_first() else {
        return;
    };
    let policy = policy(*choice);
    let entry: Entry = if choice & 0x80 == 0 { parse } else { parse_ip };
    match entry(bytes, &policy) {
        Ok(frame) => {
            inside(&frame, bytes);
            sums(&frame, bytes, &policy);
            cuts(&frame, bytes, entry);
            rewriting(&frame, bytes, &policy, entry);
        }
        Err(reject) => refused(&reject, bytes, &policy, entry),
    }
}

type Entry = fn(&[u8], &Policy) -> Result<Frame, Reject>;

const TRUST: Policy = {
    let mut policy = STRICT;
    policy.ip = Check::Trust;
    policy.udp = Check::Trust;
    policy.ipv6_zero = Ipv6Zero::Accept;
    policy
};
const STRICT: Policy = Policy {
    ip: Check::Drop,
    udp: Check::Drop,
    ipv6_zero: Ipv6Zero::Drop,
    origin: Origin::Wire,
};

fn policy(choice: u8) -> Policy {
    let check =
        |bits: u8| [Check::Drop, Check::Flag, Check::Trust, Check::Flag][usize::from(bits & 3)];
    let origin = [
        Origin::Wire,
        Origin::Partial,
        Origin::Verified,
        Origin::MayBePartial,
    ];
    Policy {
        ip: check(choice),
        udp: check(choice >> 2),
        ipv6_zero: if choice & 0x40 == 0 {
            Ipv6Zero::Drop
        } else {
            Ipv6Zero::Accept
        },
        origin: origin[usize::from(choice >> 4 & 3)],
    }
}

/// Places lie inside the bytes, in order, and say what stands there.
fn inside(frame: &Frame, bytes: &[u8]) {
    let (l3, payload, len) = (
        frame.l3_offset as usize,
        frame.payload_offset as usize,
        frame.payload_len as usize,
    );
    let header = match frame.addresses {
        Addresses::V4 { .. } => 20,
        Addresses::V6 { .. } => 40,
    };
    assert!(
        l3 + header + 8 <= payload && payload + len <= bytes.len(),
        "{frame:?}"
    );
    assert_eq!(frame.payload(bytes), &bytes[payload..payload + len]);
    let udp = &bytes[payload - 8..payload];
    assert_eq!(frame.source_port, u16::from_be_bytes([udp[0], udp[1]]));
    assert_eq!(frame.destination_port, u16::from_be_bytes([udp[2], udp[3]]));
    assert_eq!(len + 8, usize::from(u16::from_be_bytes([udp[4], udp[5]])));
    let tags = frame.vlan.count();
    assert!(l3 == 0 && tags == 0 || l3 == 14 + 4 * tags);
    if header == 20 {
        let head = &bytes[l3..];
        assert_eq!(head[9], 17);
        assert_eq!(
            u16::from_be_bytes([head[6], head[7]]) & 0x3fff,
            0,
            "a fragment was taken"
        );
        assert_eq!(payload, l3 + usize::from(head[0] & 15) * 4 + 8);
    }
}

/// The states of the sums are what a plain computation gives.
fn sums(frame: &Frame, bytes: &[u8], policy: &Policy) {
    let (l3, payload) = (frame.l3_offset as usize, frame.payload_offset as usize);
    let mut pseudo = Vec::new();
    match frame.addresses {
        Addresses::V4 {
            source,
            destination,
        } => {
            pseudo.extend(source.octets());
            pseudo.extend(destination.octets());
            let right = plain_sum(&bytes[l3..payload - 8]) == 0xffff;
            let expected = match (policy.ip, right) {
                (Check::Trust, _) => Checksum::NotChecked,
                (_, true) => Checksum::Verified,
                (Check::Flag, false) => Checksum::Bad,
                (Check::Drop, false) => panic!("a bad header was taken"),
            };
            assert_eq!(frame.ip_checksum, expected);
        }
        Addresses::V6 {
            source,
            destination,
        } => {
            pseudo.extend(source.octets());
            pseudo.extend(destination.octets());
            assert_eq!(frame.ip_checksum, Checksum::Absent);
        }
    }
    let datagram = &bytes[payload - 8..payload + frame.payload_len as usize];
    pseudo.extend([0, 17, datagram[4], datagram[5]]);
    let field = u16::from_be_bytes([datagram[6], datagram[7]]);
    let partial = plain_sum(&pseudo) == field;
    pseudo.extend(datagram);
    let right = plain_sum(&pseudo) == 0xffff;
    match frame.udp_checksum {
        Checksum::Verified => assert!(right && field != 0),
        Checksum::Bad => assert!(!right && field != 0 && policy.udp == Check::Flag),
        Checksum::Zero => assert!(field == 0),
        Checksum::NotChecked => assert!(policy.udp == Check::Trust && field != 0),
        Checksum::Vouched => assert_eq!(policy.origin, Origin::Verified),
        Checksum::Partial => assert!(
            policy.origin == Origin::Partial || policy.origin == Origin::MayBePartial && partial
        ),
        other => panic!("{other:?}"),
    }
}

/// The same frame without its padding is the same packet; one octet less is none.
fn cuts(frame: &Frame, bytes: &[u8], entry: Entry) {
    let l3 = frame.l3_offset as usize;
    let announced = match frame.addresses {
        Addresses::V4 { .. } => usize::from(u16::from_be_bytes([bytes[l3 + 2], bytes[l3 + 3]])),
        Addresses::V6 { .. } => {
            40 + usize::from(u16::from_be_bytes([bytes[l3 + 4], bytes[l3 + 5]]))
        }
    };
    let end = l3 + announced;
    let bare = entry(&bytes[..end], &TRUST).unwrap();
    assert_eq!(
        (bare.payload_offset, bare.payload_len),
        (frame.payload_offset, frame.payload_len)
    );
    let cut = entry(&bytes[..end - 1], &TRUST);
    assert!(
        matches!(cut, Err(Reject::Truncated { needed, .. }) if needed as usize == end),
        "{cut:?}"
    );
}

/// There and back again gives the packet that was, and the sums keep their state on the way.
fn rewriting(frame: &Frame, bytes: &[u8], policy: &Policy, entry: Entry) {
    let (source, destination): (SocketAddr, SocketAddr) = match frame.addresses {
        Addresses::V4 { .. } => (
            ([198, 51, 100, 7], 65_535).into(),
            ([239, 255, 0, 1], 1).into(),
        ),
        Addresses::V6 { .. } => (
            ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7], 65_535).into(),
            ([0xff0e; 8], 1).into(),
        ),
    };
    let there = Rewrite {
        source: Some(source),
        destination: Some(destination),
        ..Rewrite::default()
    };
    let back = Rewrite {
        source: Some(frame.source()),
        destination: Some(frame.destination()),
        ..Rewrite::default()
    };
    let mut changed = bytes.to_vec();
    let there = rewrite(&mut changed, frame, &there).unwrap();
    assert_eq!((there.source(), there.destination()), (source, destination));
    let mut again = entry(&changed, policy).unwrap();
    if policy.origin == Origin::MayBePartial && frame.udp_checksum != Checksum::Verified {
        // One sum in 65,536 is both the pseudo-header's and right, or wrong and the pseudo-header's: with such an origin
        // the state is a guess, and new addresses may change the guess.
        again.udp_checksum = there.udp_checksum;
    }
    assert_eq!(again, there, "parsed anew");
    assert_eq!(rewrite(&mut changed, &there, &back).unwrap(), *frame);
    assert_eq!(changed.len(), bytes.len());
    let l3 = frame.l3_offset as usize;
    let udp = frame.payload_offset as usize - 8;
    for (at, (was, is)) in bytes.iter().zip(&changed).enumerate() {
        // A sum of zero has two forms; the states above were compared already.
        let sum = at == udp + 6
            || at == udp + 7
            || matches!(frame.addresses, Addresses::V4 { .. }) && (at == l3 + 10 || at == l3 + 11);
        assert!(was == is || sum, "octet {at}");
    }
    let complete = complete_checksum(&mut changed, frame).unwrap();
    assert_eq!(complete.udp_checksum, Checksum::Verified);
    let verify = Policy {
        ip: Check::Trust,
        ..STRICT
    };
    assert_eq!(
        entry(&changed, &verify).unwrap().udp_checksum,
        Checksum::Verified
    );
}

/// A refusal that no sum is the reason of does not depend on the policy, and its text is printable.
fn refused(reject: &Reject, bytes: &[u8], policy: &Policy, entry: Entry) {
    assert!(!reject.to_string().is_empty());
    assert!(Place::ALL.contains(&reject.place()));
    match *reject {
        Reject::Checksum(BadSum::IpHeader) => assert_eq!(policy.ip, Check::Drop),
        Reject::Checksum(BadSum::Udp) => {
            assert_eq!(policy.udp, Check::Drop);
            assert!(entry(bytes, &TRUST).is_ok());
        }
        Reject::Checksum(BadSum::Ipv6Zero) => {
            assert_eq!(policy.ipv6_zero, Ipv6Zero::Drop);
            assert!(entry(bytes, &TRUST).is_ok());
        }
        Reject::Truncated {
            needed, captured, ..
        } => {
            assert_eq!(captured as usize, bytes.len());
            assert!(needed > captured);
            assert_eq!(entry(bytes, &TRUST), Err(*reject));
        }
        other => assert_eq!(entry(bytes, &TRUST), Err(other)),
    }
}

/// The Internet checksum's sum, the plain way (RFC 1071).
fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
