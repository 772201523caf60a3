//! Generated frames of every kind a receiver may meet, good and bad, from a seed.
//!
//! Promises: the same seed gives the same frames; octets and sums are put together here and not by the code under test.
//! Does not do: saying what a parser should make of a frame. An independent program is asked for that.

/// SplitMix64: small, seeded, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins at `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, not including, `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// True once in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// So many random octets.
    pub fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.bits() as u8).collect()
    }
}

/// One frame as it was captured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The octets captured.
    pub bytes: Vec<u8>,
    /// How many there were on the wire: more than were captured when the capture cut them off.
    pub wire_len: usize,
}

/// So many frames of mixed kinds.
pub fn corpus(random: &mut Random, count: usize) -> Vec<Sample> {
    (0..count).map(|_| sample(random)).collect()
}

fn sample(random: &mut Random) -> Sample {
    let (ether_type, mut packet) = match random.below(20) {
        0 => (0x0806, random.octets(28)),
        1..=9 => (0x0800, ipv4(random)),
        _ => (0x86dd, ipv6(random)),
    };
    // A packet of the version that the EtherType does not announce.
    let ether_type: u16 = if ether_type != 0x0806 && random.once_in(60) {
        ether_type ^ (0x0800 ^ 0x86dd)
    } else {
        ether_type
    };
    let mut bytes = vec![0x01, 0x00, 0x5e, 0x01, 0x02, 0x03, 2, 0, 0, 0, 0, 1];
    let tags: &[u16] = match random.below(12) {
        0..=5 => &[],
        6..=7 => &[0x8100],
        8 => &[0x88a8, 0x8100],
        9 => &[0x9100, 0x8100],
        10 => &[0x8100, 0x8100],
        _ if random.once_in(3) => &[0x88a8, 0x8100, 0x8100],
        _ => &[0x88a8],
    };
    for protocol in tags {
        bytes.extend(protocol.to_be_bytes());
        bytes.extend((random.bits() as u16).to_be_bytes());
    }
    bytes.extend(ether_type.to_be_bytes());
    bytes.append(&mut packet);
    if random.once_in(8) {
        // Padding, as on a short frame.
        bytes.resize(bytes.len() + 1 + random.below(20), 0);
    }
    let whole = bytes.len();
    let wire_len = match random.below(6) {
        0 => {
            bytes.truncate(random.below(whole));
            whole
        }
        1 if random.once_in(2) => {
            bytes.truncate(random.below(whole));
            bytes.len()
        }
        _ => whole,
    };
    Sample { bytes, wire_len }
}

fn ipv4(random: &mut Random) -> Vec<u8> {
    let addresses = random.octets(8);
    let options = if random.once_in(4) {
        4 * random.below(11)
    } else {
        0
    };
    let mut body = transport(random, &addresses);
    if random.once_in(12) {
        // Surplus that IP carries and UDP does not count.
        let more = random.below(9);
        body.extend(random.octets(more));
    }
    let header_len = 20 + options;
    let mut total = header_len + body.len();
    if random.once_in(15) {
        // A total length that lies, up or down.
        total = random.below(2 * total);
    }
    let words = if random.once_in(50) {
        random.below(5)
    } else {
        header_len / 4
    };
    let fragment: u16 = match random.below(8) {
        0 => 0x2000 | (random.below(2) as u16 * 185),
        1 => random.bits() as u16,
        2 | 3 => 0x4000,
        _ => 0,
    };
    let protocol = if random.once_in(12) {
        [1, 6, 51, 132][random.below(4)]
    } else {
        17
    };
    let mut head = vec![0x40 | words as u8, 0];
    head.extend((total as u16).to_be_bytes());
    head.extend((random.bits() as u16).to_be_bytes());
    head.extend(fragment.to_be_bytes());
    head.extend([64, protocol, 0, 0]);
    head.extend(&addresses);
    // No-operation options, ended.
    head.resize(head.len() + options, 1);
    if options > 0 {
        head[header_len - 1] = 0;
    }
    let sum = !sum(&head);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    if random.once_in(10) {
        let at = 10 + random.below(2);
        head[at] ^= 1 << random.below(8);
    }
    head.append(&mut body);
    head
}

fn ipv6(random: &mut Random) -> Vec<u8> {
    let mut addresses = random.octets(32);
    // Neither address multicast nor unspecified at its beginning, except the destination at times.
    addresses[0] = 0x20;
    addresses[16] = if random.once_in(2) { 0xff } else { 0x20 };
    let udp = transport(random, &addresses);
    let mut chain: Vec<(u8, Vec<u8>)> = Vec::new();
    if random.once_in(2) {
        if random.once_in(3) {
            chain.push((0, vec![0, 1, 4, 0, 0, 0, 0]));
        }
        for _ in 0..random.below(4) {
            let left = u8::from(random.once_in(4));
            chain.push(match random.below(5) {
                0 => (43, {
                    // Type 4, a segment routing header of one segment.
                    let mut header = vec![2, 4, left, 0, 0, 0, 0];
                    header.extend(&addresses[16..]);
                    header
                }),
                1 => (44, {
                    let field: u16 = match random.below(4) {
                        0 => 0,
                        1 => 1,
                        2 => random.bits() as u16 & 0xfff8,
                        _ => random.bits() as u16,
                    };
                    let mut header = vec![0];
                    header.extend(field.to_be_bytes());
                    header.extend(random.octets(4));
                    header
                }),
                2 => (51, {
                    let mut header = vec![4, 0, 0];
                    header.extend(random.octets(20));
                    header
                }),
                _ => (60, {
                    // Padding of 6 or 14 octets.
                    let long = random.below(2) as u8;
                    let mut header = vec![long, 1, 4 + 8 * long];
                    header.resize(7 + 8 * usize::from(long), 0);
                    header
                }),
            });
        }
    }
    let last = if random.once_in(12) {
        [6, 58, 59, 50][random.below(4)]
    } else {
        17
    };
    let mut body = Vec::new();
    for place in 0..chain.len() {
        body.push(chain.get(place + 1).map_or(last, |(kind, _)| *kind));
        body.extend(&chain[place].1);
    }
    body.extend(udp);
    let mut len = body.len();
    if random.once_in(15) {
        len = random.below(2 * len);
    }
    let mut head = vec![0x60, 0, 0, 0];
    head.extend((len as u16).to_be_bytes());
    head.extend([chain.first().map_or(last, |(kind, _)| *kind), 64]);
    head.extend(addresses);
    head.append(&mut body);
    head
}

/// A UDP datagram, its sum over `addresses` right, wrong, zero, or the pseudo-header's alone.
fn transport(random: &mut Random, addresses: &[u8]) -> Vec<u8> {
    let len = if random.once_in(10) {
        0
    } else {
        random.below(80)
    };
    let payload = random.octets(len);
    let mut length = 8 + len as u16;
    if random.once_in(15) {
        length = random.below(2 * usize::from(length)) as u16;
    }
    let mut udp = Vec::new();
    // Ports that no dissector claims.
    udp.extend((50_100 + random.below(100) as u16).to_be_bytes());
    udp.extend((50_300 + random.below(100) as u16).to_be_bytes());
    udp.extend(length.to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(payload);
    let mut pseudo = addresses.to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend(length.to_be_bytes());
    let partial = sum(&pseudo);
    pseudo.extend(&udp[..udp.len().min(usize::from(length))]);
    let right = match !sum(&pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    let field = match random.below(10) {
        0 => 0,
        1 => right ^ (1 << random.below(16)),
        2 => partial,
        _ => right,
    };
    udp[6..8].copy_from_slice(&field.to_be_bytes());
    udp
}

/// The Internet checksum's sum, the plain way (RFC 1071).
fn sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u64;
    for pair in bytes.chunks(2) {
        sum += u64::from(pair[0]) << 8 | u64::from(*pair.get(1).unwrap_or(&0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
