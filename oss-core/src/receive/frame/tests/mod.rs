//! What the tests of the parser and of the builder share: frames of every kind, three policies, seeded randomness.
//!
//! Frames are put together octet by octet here where the builder can't make them.

mod builder;
mod parser;

use super::*;

const V4: ([&str; 2], u16) = (["192.0.2.1:4000", "239.1.2.3:5000"], 0x0800);

const V6: ([&str; 2], u16) = (["[2001:db8::1]:4000", "[ff3e::4321]:5000"], 0x86dd);

const PAYLOAD: &[u8] = b"an odd number of octets";

/// What a strict receiver accepts from a wire.
const STRICT: Policy = Policy {
    ip: Check::Drop,
    udp: Check::Drop,
    ipv6_zero: Ipv6Zero::Drop,
    origin: Origin::Wire,
};

/// Looks at no sum.
const TRUST: Policy = Policy {
    ip: Check::Trust,
    udp: Check::Trust,
    ipv6_zero: Ipv6Zero::Accept,
    origin: Origin::Wire,
};

/// Looks at every sum and refuses none.
const FLAG: Policy = Policy {
    ip: Check::Flag,
    udp: Check::Flag,
    ipv6_zero: Ipv6Zero::Accept,
    origin: Origin::Wire,
};

fn builder(family: ([&str; 2], u16)) -> Builder {
    let [source, destination] = family.0.map(|text| text.parse().unwrap());
    Builder::udp(source, destination).unwrap()
}

fn written(builder: Builder, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xee; builder.len(payload.len()) + 3];
    let len = builder.write(payload, &mut bytes).unwrap();
    assert_eq!(bytes[len..], [0xee; 3], "the builder wrote behind its end");
    bytes.truncate(len);
    bytes
}

fn framed(family: ([&str; 2], u16), vlan: VlanTags) -> Vec<u8> {
    let ethernet = builder(family).ethernet(
        MacAddress::new([2, 0, 0, 0, 0, 1]),
        MacAddress::BROADCAST,
        vlan,
    );
    written(ethernet, PAYLOAD)
}

fn plain(family: ([&str; 2], u16)) -> Vec<u8> {
    framed(family, VlanTags::NONE)
}

/// An untagged IPv4 frame with these options, a multiple of four octets, and the header's sum mended.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut bytes = plain(V4);
    bytes.splice(34..34, options.iter().copied());
    bytes[14] += (options.len() / 4) as u8;
    let total = (bytes.len() - 14) as u16;
    bytes[16..18].copy_from_slice(&total.to_be_bytes());
    mend_ipv4(&mut bytes);
    bytes
}

/// Puts the right sum into an untagged frame's IPv4 header.
fn mend_ipv4(bytes: &mut [u8]) {
    let end = 14 + usize::from(bytes[14] & 15) * 4;
    bytes[24..26].fill(0);
    let sum = !checksum::Sum::default().bytes(&bytes[14..end]).fold();
    bytes[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// An untagged IPv6 frame with these extension headers: kind, and all of the header behind its first octet.
fn with_extensions(chain: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = plain(V6);
    let mut headers = Vec::new();
    for (place, (_, rest)) in chain.iter().enumerate() {
        headers.push(chain.get(place + 1).map_or(17, |(kind, _)| *kind));
        headers.extend_from_slice(rest);
    }
    bytes[20] = chain[0].0;
    bytes.splice(54..54, headers);
    let len = (bytes.len() - 54) as u16;
    bytes[18..20].copy_from_slice(&len.to_be_bytes());
    bytes
}

const PADDING: &[u8] = &[0, 1, 4, 0, 0, 0, 0];

const NO_SEGMENTS: &[u8] = &[0, 4, 0, 0, 0, 0, 0];

const ATOMIC: &[u8] = &[0, 0, 0, 1, 2, 3, 4];

const AH: &[u8] = &[
    4, 0, 0, 0, 0, 1, 7, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,
];

/// Every kind of frame that is taken, with the place of its IP header and of its payload.
fn kinds() -> Vec<(&'static str, Vec<u8>, u32, u32)> {
    let one = VlanTags::single(VlanTag::customer(0x2fff));
    let two = VlanTags::double(VlanTag::service(0x0064), VlanTag::customer(0x2007));
    let old = VlanTags::double(
        VlanTag {
            protocol: 0x9100,
            tci: 5,
        },
        VlanTag::customer(6),
    );
    let mut padded = plain(V4);
    padded.resize(padded.len() + 9, 0);
    let mut surplus = plain(V6);
    surplus.extend_from_slice(&[7; 5]);
    surplus[19] += 5;
    vec![
        ("IPv4", plain(V4), 14, 42),
        ("IPv4, one tag", framed(V4, one), 18, 46),
        ("IPv4, two tags", framed(V4, two), 22, 50),
        ("IPv4, 0x9100", framed(V4, old), 22, 50),
        (
            "IPv4, four octets of options",
            with_options(&[1, 1, 1, 0]),
            14,
            46,
        ),
        (
            "IPv4, forty octets of options",
            with_options(&[1; 40]),
            14,
            82,
        ),
        ("IPv4, padded", padded, 14, 42),
        ("IPv6", plain(V6), 14, 62),
        ("IPv6, one tag", framed(V6, one), 18, 66),
        ("IPv6, two tags", framed(V6, two), 22, 70),
        ("IPv6, surplus behind UDP", surplus, 14, 62),
        ("IPv6, hop-by-hop", with_extensions(&[(0, PADDING)]), 14, 70),
        (
            "IPv6, destination options",
            with_extensions(&[(60, PADDING)]),
            14,
            70,
        ),
        (
            "IPv6, routing, none left",
            with_extensions(&[(43, NO_SEGMENTS)]),
            14,
            70,
        ),
        (
            "IPv6, atomic fragment",
            with_extensions(&[(44, ATOMIC)]),
            14,
            70,
        ),
        ("IPv6, AH", with_extensions(&[(51, AH)]), 14, 86),
        (
            "IPv6, every kind",
            with_extensions(&[
                (0, PADDING),
                (60, PADDING),
                (43, NO_SEGMENTS),
                (44, ATOMIC),
                (51, AH),
                (60, PADDING),
            ]),
            14,
            62 + 5 * 8 + 24,
        ),
        (
            "IPv6, the longest chain",
            with_extensions(&[(60, PADDING); MAX_EXTENSIONS]),
            14,
            126,
        ),
    ]
}

/// Whether all that `frame` says of places lies inside `len` octets.
fn lies_inside(frame: &Frame, len: usize) -> bool {
    let (l3, payload) = (u64::from(frame.l3_offset), u64::from(frame.payload_offset));
    let header = match frame.addresses {
        Addresses::V4 { .. } => 20,
        Addresses::V6 { .. } => 40,
    };
    l3 + header + 8 <= payload && payload + u64::from(frame.payload_len) <= len as u64
}

/// [`parse`] or [`parse_ip`].
type Entry = fn(&[u8], &Policy) -> Result<Frame, Reject>;

/// SplitMix64: small, seeded, and the same everywhere.
struct Random(u64);

impl Random {
    /// Takes the seed from `LOCKGATE_SEED` if it is set, and prints it; the test runner shows it when a test fails.
    fn new() -> Self {
        let seed = std::env::var("LOCKGATE_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(20_240_229);
        println!("seed {seed}; set LOCKGATE_SEED to change it");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    fn address(&mut self, six: bool) -> SocketAddr {
        let port = self.next() as u16;
        let wide = u128::from(self.next()) << 64 | u128::from(self.next());
        if six {
            (Ipv6Addr::from(wide), port).into()
        } else {
            (Ipv4Addr::from(wide as u32), port).into()
        }
    }

    /// Some builder, and the entry that takes what it writes.
    fn builder(&mut self) -> (Builder, Entry) {
        let six = self.below(2) == 1;
        let builder = Builder::udp(self.address(six), self.address(six)).unwrap();
        let tag = VlanTag::customer(self.next() as u16);
        let vlan = match self.below(4) {
            0 => return (builder, parse_ip),
            1 => VlanTags::NONE,
            2 => VlanTags::single(tag),
            _ => VlanTags::double(tag, tag),
        };
        (
            builder.ethernet(MacAddress::ZERO, MacAddress::BROADCAST, vlan),
            parse,
        )
    }
}
