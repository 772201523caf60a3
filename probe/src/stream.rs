//! The numbered stream: packets that say which stream they belong to, which number they have and when they were sent, and
//! whose every other byte follows from that.
//!
//! Promises: [`parse()`] accepts exactly what [`write()`] makes; one changed bit anywhere is found. [`Tracker`] counts what is
//! missing, doubled and out of order in constant memory. Does not do: sending, receiving, clocks.
//!
//! The format, version 1; numbers are big-endian:
//!
//! | offset | bytes | is |
//! | --- | --- | --- |
//! | 0 | 4 | `LGNS` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | clock of the two times: 0 none, 1 real time since 1970, 2 monotonic since the sender's boot or start |
//! | 6 | 2 | flags: bit 0 set in the last packet of a stream; the others are 0 |
//! | 8 | 8 | stream: a number that the sender picks at random |
//! | 16 | 8 | sequence, from 0 |
//! | 24 | 8 | due: when the sender's schedule wanted it sent, in nanoseconds |
//! | 32 | 8 | sent: when it was handed to the system, in nanoseconds |
//! | 40 | 4 | length of the whole payload |
//! | 44 | 4 | check of the 44 bytes before it |
//! | 48 | … | pattern, 8 bytes at a time, the last ones cut |
//!
//! With `f` the finalizer of SplitMix64 and `g` 0x9e3779b97f4a7c15, in wrapping 64-bit arithmetic:
//! - check: `s` starts as `g`; for each 4 bytes as a number `w`, `s = f((s + g) ^ w)`; the upper half of the last `s`;
//! - pattern: `s` starts as `f(stream) ^ f(!sequence)`; for each 8 bytes, `s = s + g`, and the bytes are `f(s)`.
//!
//! `due` and `sent` differ so that a late sender can't hide the delay that it caused itself.

use std::fmt;

/// The length of the header, and the shortest payload.
pub(crate) const HEADER: usize = 48;
/// The longest UDP payload that IPv4 can carry.
pub(crate) const LONGEST: usize = 65_507;

const MAGIC: [u8; 4] = *b"LGNS";
const VERSION: u8 = 1;
const FLAG_LAST: u16 = 1;

/// Which clock the times of a packet are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// No times.
    None,
    /// Since 1970, UTC.
    RealTime,
    /// Since the boot of the sender's host, or the start of the process; only good on the same host.
    Monotonic,
}

impl Clock {
    const fn number(self) -> u8 {
        match self {
            Self::None => 0,
            Self::RealTime => 1,
            Self::Monotonic => 2,
        }
    }

    const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::RealTime),
            2 => Some(Self::Monotonic),
            _ => None,
        }
    }
}

/// What the header of a packet says, besides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// The stream that it belongs to.
    pub(crate) stream: u64,
    /// Its number in it.
    pub(crate) sequence: u64,
    /// The clock of the two times.
    pub(crate) clock: Clock,
    /// When it should have been sent.
    pub(crate) due: u64,
    /// When it was sent.
    pub(crate) sent: u64,
    /// Whether it is the last one.
    pub(crate) last: bool,
}

/// Why a payload is not a packet of a numbered stream as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bad {
    /// It does not start like one. It may well be somebody else's packet.
    Foreign,
    /// The header does not fit its check.
    Header,
    /// It is longer or shorter than it was written.
    Length {
        /// What the header says.
        written: u32,
        /// What arrived.
        arrived: usize,
    },
    /// A byte behind the header differs.
    Pattern {
        /// The first one that differs.
        offset: usize,
    },
    /// A version, clock or flag that this build does not know.
    Version {
        /// The version.
        version: u8,
    },
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a packet of a numbered stream"),
            Self::Header => f.write_str("the header does not fit its check"),
            Self::Length { written, arrived } => {
                write!(f, "written with {written} bytes, arrived with {arrived}")
            }
            Self::Pattern { offset } => write!(f, "the byte at offset {offset} differs"),
            Self::Version { version } => write!(f, "version {version} is not known"),
        }
    }
}

/// Writes a packet that fills `payload`.
///
/// # Panics
/// If `payload` is shorter than [`HEADER`] or longer than [`LONGEST`]; whoever takes the size from a user checks it there.
pub(crate) fn write(payload: &mut [u8], header: &Header) {
    assert!(
        (HEADER..=LONGEST).contains(&payload.len()),
        "a numbered packet of {} bytes",
        payload.len()
    );
    let (head, rest) = payload.split_at_mut(HEADER);
    let flags = if header.last { FLAG_LAST } else { 0 };
    let length = (HEADER + rest.len()) as u32; // at most LONGEST
    head[0..4].copy_from_slice(&MAGIC);
    head[4] = VERSION;
    head[5] = header.clock.number();
    head[6..8].copy_from_slice(&flags.to_be_bytes());
    head[8..16].copy_from_slice(&header.stream.to_be_bytes());
    head[16..24].copy_from_slice(&header.sequence.to_be_bytes());
    head[24..32].copy_from_slice(&header.due.to_be_bytes());
    head[32..40].copy_from_slice(&header.sent.to_be_bytes());
    head[40..44].copy_from_slice(&length.to_be_bytes());
    let check = mix(&head[..44]);
    head[44..48].copy_from_slice(&check.to_be_bytes());
    let mut pattern = Pattern::new(header.stream, header.sequence);
    for chunk in rest.chunks_mut(8) {
        chunk.copy_from_slice(&pattern.next_bytes()[..chunk.len()]);
    }
}

/// Reads a packet and verifies every byte of it.
pub(crate) fn parse(payload: &[u8]) -> Result<Header, Bad> {
    if payload.len() < HEADER || payload[..4] != MAGIC {
        return Err(Bad::Foreign);
    }
    let (head, rest) = payload.split_at(HEADER);
    if head[4] != VERSION {
        return Err(Bad::Version { version: head[4] });
    }
    if mix(&head[..44]) != be32(&head[44..]) {
        return Err(Bad::Header);
    }
    let flags = u16::from_be_bytes([head[6], head[7]]);
    let clock = Clock::from_number(head[5]).filter(|_| flags & !FLAG_LAST == 0);
    let Some(clock) = clock else {
        return Err(Bad::Version { version: head[4] });
    };
    let header = Header {
        stream: be64(&head[8..]),
        sequence: be64(&head[16..]),
        clock,
        due: be64(&head[24..]),
        sent: be64(&head[32..]),
        last: flags & FLAG_LAST != 0,
    };
    let written = be32(&head[40..]);
    if written as usize != payload.len() {
        return Err(Bad::Length {
            written,
            arrived: payload.len(),
        });
    }
    let mut pattern = Pattern::new(header.stream, header.sequence);
    for (at, chunk) in rest.chunks(8).enumerate() {
        let wanted = pattern.next_bytes();
        if *chunk != wanted[..chunk.len()] {
            let within = chunk
                .iter()
                .zip(wanted)
                .take_while(|(is, want)| *is == want);
            let offset = HEADER + at * 8 + within.count();
            return Err(Bad::Pattern { offset });
        }
    }
    Ok(header)
}

/// The generator of the bytes behind the header.
struct Pattern(u64);

impl Pattern {
    fn new(stream: u64, sequence: u64) -> Self {
        Self(split_mix(stream) ^ split_mix(!sequence))
    }

    fn next_bytes(&mut self) -> [u8; 8] {
        self.0 = self.0.wrapping_add(GOLDEN);
        split_mix(self.0).to_be_bytes()
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014).
const fn split_mix(state: u64) -> u64 {
    let mut z = state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A 32-bit mix of some bytes. Finds accidents, not forgers.
fn mix(bytes: &[u8]) -> u32 {
    let mut state = GOLDEN;
    for chunk in bytes.chunks(4) {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        state = split_mix(state.wrapping_add(GOLDEN) ^ u64::from(u32::from_be_bytes(word)));
    }
    (state >> 32) as u32 // the upper half, on purpose
}

fn be32(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn be64(bytes: &[u8]) -> u64 {
    u64::from(be32(bytes)) << 32 | u64::from(be32(&bytes[4..]))
}

/// How many numbers back a packet can still be told apart from its double.
const WINDOW: u64 = 1 << 16;

/// Follows the numbers of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Tracker {
    /// One more than the highest number seen.
    next: u64,
    /// A bit for each of the last `WINDOW` numbers.
    seen: Vec<u64>,
    unique: u64,
    duplicates: u64,
    reordered: u64,
    too_late: u64,
}

impl Tracker {
    /// Nothing seen yet; the first number is 0.
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            seen: vec![0; (WINDOW / 64) as usize], // 1,024
            unique: 0,
            duplicates: 0,
            reordered: 0,
            too_late: 0,
        }
    }

    /// Takes a number.
    pub(crate) fn record(&mut self, sequence: u64) {
        if sequence >= self.next {
            self.advance(sequence);
            self.unique += 1;
            return;
        }
        if self.next - sequence > WINDOW {
            self.too_late += 1;
            return;
        }
        let (word, bit) = Self::place(sequence);
        if self.seen[word] & bit != 0 {
            self.duplicates += 1;
        } else {
            self.seen[word] |= bit;
            self.unique += 1;
            self.reordered += 1;
        }
    }

    /// One more than the highest number seen.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// How many different numbers were seen.
    pub(crate) const fn unique(&self) -> u64 {
        self.unique
    }

    /// How many came again.
    pub(crate) const fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// How many came after a higher number.
    pub(crate) const fn reordered(&self) -> u64 {
        self.reordered
    }

    /// How many came so late that nobody can tell whether they are doubles.
    pub(crate) const fn too_late(&self) -> u64 {
        self.too_late
    }

    fn advance(&mut self, sequence: u64) {
        let steps = sequence - self.next;
        if steps >= WINDOW {
            self.seen.fill(0);
        } else {
            for skipped in self.next..sequence {
                let (word, bit) = Self::place(skipped);
                self.seen[word] &= !bit;
            }
        }
        let (word, bit) = Self::place(sequence);
        self.seen[word] |= bit;
        self.next = sequence.saturating_add(1);
    }

    const fn place(sequence: u64) -> (usize, u64) {
        let at = sequence % WINDOW;
        ((at / 64) as usize, 1 << (at % 64))
    }
}

#[cfg(test)]
mod tests;
