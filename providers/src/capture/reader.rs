//! The reader: frames of blocks here, their insides by `pcap-parser`.
//!
//! Promises: every length is checked before it is used, so that each error has the offset of what is broken. Times are computed from the
//! raw fields, exactly, down to the nanosecond; what is finer is cut off. Does not do: keeping the whole file in memory.
//!
//! Sources: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html> and
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>.

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use pcap_parser::pcapng::{Block, InterfaceDescriptionBlock, OptionCode};
use pcap_parser::{
    parse_block_be, parse_block_le, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header,
};

use super::MAX_BLOCK;
use super::error::{CaptureError, CaptureFault};
use super::link::LinkType;
use super::window::Window;

const NANOS: u128 = 1_000_000_000;
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
/// Type, length and the length again.
const BLOCK_FRAME: u32 = 12;

/// The form of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// The classic form.
    Pcap {
        /// Nanoseconds instead of microseconds.
        nanoseconds: bool,
        /// The numbers in its headers are big-endian.
        big_endian: bool,
    },
    /// The block form. Byte order and unit of time may change within the file.
    PcapNg,
}

/// One packet of a capture, borrowed from the reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedPacket<'a> {
    /// When it was captured, in nanoseconds since 1970; nothing where the file has no time (simple packet blocks).
    pub nanos: Option<u64>,
    /// What the bytes begin with.
    pub link: LinkType,
    /// What was captured.
    pub bytes: &'a [u8],
    /// How long it was on the wire, in octets.
    pub wire_len: u32,
    /// The number of its interface within the section; 0 for pcap.
    pub interface: u32,
    /// Where its block begins in the file.
    pub offset: u64,
}

impl RecordedPacket<'_> {
    /// Whether the end is missing.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        (self.bytes.len() as u64) < self.wire_len as u64
    }
}

/// One packet of a capture with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnedPacket {
    /// As [`RecordedPacket::nanos`].
    pub nanos: Option<u64>,
    /// As [`RecordedPacket::link`].
    pub link: LinkType,
    /// As [`RecordedPacket::bytes`].
    pub bytes: Vec<u8>,
    /// As [`RecordedPacket::wire_len`].
    pub wire_len: u32,
    /// As [`RecordedPacket::interface`].
    pub interface: u32,
    /// As [`RecordedPacket::offset`].
    pub offset: u64,
}

impl OwnedPacket {
    /// The same, borrowed.
    #[must_use]
    pub fn view(&self) -> RecordedPacket<'_> {
        RecordedPacket {
            nanos: self.nanos,
            link: self.link,
            bytes: &self.bytes,
            wire_len: self.wire_len,
            interface: self.interface,
            offset: self.offset,
        }
    }
}

/// Reads a capture packet by packet.
pub struct Reader<R> {
    window: Window<R>,
    state: State,
    /// What the last call returned, to be moved over by the next one.
    returned: usize,
    format: Format,
    skipped: u64,
}

enum State {
    Pcap {
        big_endian: bool,
        nanos_per_unit: u32,
        link: LinkType,
    },
    PcapNg {
        big_endian: bool,
        interfaces: Vec<Interface>,
    },
    /// It ended, or it is broken and was said to be.
    Over,
}

struct Interface {
    link: LinkType,
    snap_len: u32,
    units_per_second: u128,
    offset_seconds: i64,
}

/// A packet as places in the window.
struct Found {
    nanos: Option<u64>,
    link: LinkType,
    range: Range<usize>,
    wire_len: u32,
    interface: u32,
}

impl Reader<File> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Reader::new`]; a file that can't be opened is [`CaptureFault::Io`] at offset 0.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CaptureError> {
        let file = File::open(path).map_err(|error| at(0, CaptureFault::Io(error)))?;
        Self::new(file)
    }
}

impl<R: Read> Reader<R> {
    /// Reads the head of a capture. It needs no buffered reader.
    ///
    /// # Errors
    /// [`CaptureError`] if it is no capture, or a form that is not read.
    pub fn new(reader: R) -> Result<Self, CaptureError> {
        let mut window = Window::new(reader);
        need(&mut window, 4, "file header")?;
        let magic = word(window.bytes(), 0);
        let unsupported = |what: &str, remedy| {
            let what = what.to_owned();
            Err(at(0, CaptureFault::Unsupported { what, remedy }))
        };
        let (format, state) = match magic.to_le() {
            SECTION => (
                Format::PcapNg,
                State::PcapNg {
                    // Read anew from every section header, the first one included.
                    big_endian: false,
                    interfaces: Vec::new(),
                },
            ),
            0xa1b2_c3d4 | 0xa1b2_3c4d | 0xd4c3_b2a1 | 0x4d3c_b2a1 => pcap(&mut window)?,
            0xa1b2_cd34 | 0x34cd_b2a1 => {
                return unsupported(
                    "the modified form of pcap",
                    "convert it with editcap -F pcapng",
                );
            }
            gzip if gzip & 0xffff == 0x8b1f => {
                return unsupported("a gzip-compressed capture", "gunzip it first");
            }
            0xfd2f_b528 => return unsupported("a zstd-compressed capture", "unzstd it first"),
            0x184d_2204 => return unsupported("an lz4-compressed capture", "unlz4 it first"),
            other => {
                let magic = other.to_le_bytes();
                return Err(at(0, CaptureFault::NotACapture { magic }));
            }
        };
        Ok(Self {
            window,
            state,
            returned: 0,
            format,
            skipped: 0,
        })
    }

    /// The form of the file.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// How many blocks were skipped because they hold no packets: statistics, names, comments, unknown ones.
    #[must_use]
    pub fn skipped_blocks(&self) -> u64 {
        self.skipped
    }

    /// How much of the file has been read, in octets: where the next block begins.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.window.offset() + self.returned as u64
    }

    /// The next packet; nothing at the end of the file, and after an error.
    ///
    /// # Errors
    /// [`CaptureError`] with the offset of the block that is broken. Every packet before it has been returned.
    pub fn next_packet(&mut self) -> Result<Option<RecordedPacket<'_>>, CaptureError> {
        let found = match self.find() {
            Ok(Some(found)) => found,
            Ok(None) => {
                self.state = State::Over;
                return Ok(None);
            }
            Err(error) => {
                self.state = State::Over;
                return Err(error);
            }
        };
        Ok(Some(RecordedPacket {
            nanos: found.nanos,
            link: found.link,
            bytes: &self.window.bytes()[found.range],
            wire_len: found.wire_len,
            interface: found.interface,
            offset: self.window.offset(),
        }))
    }

    /// The packets as an iterator that copies each.
    pub fn packets(self) -> Packets<R> {
        Packets { reader: self }
    }

    fn find(&mut self) -> Result<Option<Found>, CaptureError> {
        let window = &mut self.window;
        window.consume(std::mem::take(&mut self.returned));
        match &mut self.state {
            State::Over => Ok(None),
            State::Pcap {
                big_endian,
                nanos_per_unit,
                link,
            } => {
                let found = pcap_packet(window, *big_endian, *nanos_per_unit, *link)?;
                Ok(found.map(|(found, len)| {
                    self.returned = len;
                    found
                }))
            }
            State::PcapNg {
                big_endian,
                interfaces,
            } => loop {
                let Some(len) = block(window, big_endian)? else {
                    return Ok(None);
                };
                match decode(window, len, *big_endian, interfaces)? {
                    Decoded::Packet(found) => {
                        self.returned = len;
                        return Ok(Some(found));
                    }
                    Decoded::Known => {}
                    Decoded::Skipped => self.skipped += 1,
                }
                window.consume(len);
            },
        }
    }
}

/// Goes over the packets of a capture; see [`Reader::packets`]. Ends after the first error.
pub struct Packets<R> {
    reader: Reader<R>,
}

impl<R> Packets<R> {
    /// The reader, which goes on behind the last packet.
    pub fn into_reader(self) -> Reader<R> {
        self.reader
    }
}

impl<R: Read> Iterator for Packets<R> {
    type Item = Result<OwnedPacket, CaptureError>;

    fn next(&mut self) -> Option<Self::Item> {
        let packet = self.reader.next_packet().transpose()?;
        Some(packet.map(|packet| OwnedPacket {
            nanos: packet.nanos,
            link: packet.link,
            bytes: packet.bytes.to_vec(),
            wire_len: packet.wire_len,
            interface: packet.interface,
            offset: packet.offset,
        }))
    }
}

/// Reads pcap's head.
fn pcap<R: Read>(window: &mut Window<R>) -> Result<(Format, State), CaptureError> {
    const HEAD: usize = 24;
    need(window, HEAD, "pcap header")?;
    let (_, header) = parse_pcap_header(&window.bytes()[..HEAD])
        .map_err(|_| malformed(0, "magic number", word(window.bytes(), 0).into(), "pcap's"))?;
    if (header.version_major, header.version_minor) != (2, 4) {
        return Err(at(
            0,
            CaptureFault::Unsupported {
                what: format!("pcap {}.{}", header.version_major, header.version_minor),
                remedy: "convert it with editcap -F pcapng",
            },
        ));
    }
    let (nanoseconds, big_endian) = (header.is_nanosecond_precision(), header.is_bigendian());
    // The upper half holds the length of the frame check sequence and reserved bits.
    let link = LinkType::from_file(header.network.0 as u32 & 0xffff);
    window.consume(HEAD);
    Ok((
        Format::Pcap {
            nanoseconds,
            big_endian,
        },
        State::Pcap {
            big_endian,
            nanos_per_unit: if nanoseconds { 1 } else { 1_000 },
            link,
        },
    ))
}

/// The next packet of a pcap file, and how long it is with its head.
fn pcap_packet<R: Read>(
    window: &mut Window<R>,
    big_endian: bool,
    nanos_per_unit: u32,
    link: LinkType,
) -> Result<Option<(Found, usize)>, CaptureError> {
    const HEAD: usize = 16;
    let offset = window.offset();
    if have(window, HEAD)? == 0 {
        return Ok(None);
    }
    need(window, HEAD, "packet header")?;
    let captured = order(word(window.bytes(), 8), big_endian);
    if captured > MAX_BLOCK {
        let allowed = format!("0 to {MAX_BLOCK}");
        return Err(malformed(
            offset,
            "captured length",
            captured.into(),
            &allowed,
        ));
    }
    let len = HEAD + captured as usize;
    need(window, len, "packet")?;
    let parse = if big_endian {
        parse_pcap_frame_be
    } else {
        parse_pcap_frame
    };
    let (_, frame) = parse(&window.bytes()[..len]).map_err(|_| {
        malformed(
            offset,
            "captured length",
            captured.into(),
            "that of the packet",
        )
    })?;
    let fraction = u64::from(frame.ts_usec) * u64::from(nanos_per_unit);
    if u128::from(fraction) >= NANOS {
        let allowed = format!("below {}", NANOS / u128::from(nanos_per_unit));
        return Err(malformed(
            offset,
            "fraction of a second",
            frame.ts_usec.into(),
            &allowed,
        ));
    }
    let found = Found {
        // Below 2^32 seconds, so far from overflowing.
        nanos: Some(u64::from(frame.ts_sec) * 1_000_000_000 + fraction),
        link,
        range: HEAD..len,
        wire_len: frame.origlen,
        interface: 0,
    };
    Ok(Some((found, len)))
}

/// Gets a whole block into the window and gives its length; nothing at the end of the file. A section header sets the
/// byte order.
fn block<R: Read>(
    window: &mut Window<R>,
    big_endian: &mut bool,
) -> Result<Option<usize>, CaptureError> {
    let offset = window.offset();
    if have(window, BLOCK_FRAME as usize)? == 0 {
        return Ok(None);
    }
    need(window, BLOCK_FRAME as usize, "block")?;
    if word(window.bytes(), 0) == SECTION {
        *big_endian = match word(window.bytes(), 8) {
            0x1a2b_3c4d => false,
            0x4d3c_2b1a => true,
            other => {
                let allowed = "0x1a2b3c4d in either byte order, 439041101 or 1295788826";
                return Err(malformed(offset, "byte-order magic", other.into(), allowed));
            }
        };
    } else if offset == 0 {
        // Not reached: the magic number of the file is that of a section header.
        return Err(malformed(offset, "first block", 0, "a section header"));
    }
    let len = order(word(window.bytes(), 4), *big_endian);
    let kind = order(word(window.bytes(), 0), *big_endian);
    let least = match kind {
        SECTION => 28,
        INTERFACE => 20,
        SIMPLE_PACKET => 16,
        ENHANCED_PACKET => 32,
        _ => BLOCK_FRAME,
    };
    if !len.is_multiple_of(4) || len < least || len > MAX_BLOCK {
        let allowed = format!("a multiple of 4 from {least} to {MAX_BLOCK}");
        return Err(malformed(offset, "block length", len.into(), &allowed));
    }
    need(window, len as usize, "block")?;
    let again = order(word(window.bytes(), len as usize - 4), *big_endian);
    if again != len {
        let allowed = format!("{len}, as at its beginning");
        return Err(malformed(
            offset,
            "block length at the end",
            again.into(),
            &allowed,
        ));
    }
    Ok(Some(len as usize))
}

enum Decoded {
    Packet(Found),
    /// It was taken note of.
    Known,
    Skipped,
}

/// Looks into a block that is whole.
fn decode<R: Read>(
    window: &Window<R>,
    len: usize,
    big_endian: bool,
    interfaces: &mut Vec<Interface>,
) -> Result<Decoded, CaptureError> {
    let offset = window.offset();
    let bytes = &window.bytes()[..len];
    let kind = order(word(bytes, 0), big_endian);
    match kind {
        SECTION | INTERFACE | SIMPLE_PACKET | ENHANCED_PACKET => {}
        OBSOLETE_PACKET => {
            return Err(at(
                offset,
                CaptureFault::Unsupported {
                    what: "an obsolete packet block".to_owned(),
                    remedy: "convert it with editcap -F pcapng",
                },
            ));
        }
        _ => return Ok(Decoded::Skipped),
    }
    let parse = if big_endian {
        parse_block_be
    } else {
        parse_block_le
    };
    let contents = || {
        malformed(
            offset,
            "block contents",
            kind.into(),
            "what fits the block's length",
        )
    };
    let (_, block) = parse(bytes).map_err(|_| contents())?;
    match block {
        Block::SectionHeader(section) => {
            if section.major_version != 1 {
                return Err(at(
                    offset,
                    CaptureFault::Unsupported {
                        what: format!("pcapng {}.{}", section.major_version, section.minor_version),
                        remedy: "convert it with editcap -F pcapng",
                    },
                ));
            }
            interfaces.clear();
            Ok(Decoded::Known)
        }
        Block::InterfaceDescription(one) => {
            interfaces.push(interface(&one, offset, big_endian)?);
            Ok(Decoded::Known)
        }
        Block::EnhancedPacket(packet) => {
            let interface = interfaces
                .get(packet.if_id as usize)
                .ok_or_else(|| no_interface(offset, packet.if_id, interfaces.len()))?;
            let ticks = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
            let captured = packet.caplen as usize;
            if captured > packet.data.len() {
                return Err(contents());
            }
            Ok(Decoded::Packet(Found {
                nanos: Some(interface.nanos(ticks).ok_or_else(|| {
                    malformed(offset, "timestamp", ticks, "a time from 1970 to 2554")
                })?),
                link: interface.link,
                range: 28..28 + captured,
                wire_len: packet.origlen,
                interface: packet.if_id,
            }))
        }
        Block::SimplePacket(packet) => {
            let interface = interfaces
                .first()
                .ok_or_else(|| no_interface(offset, 0, 0))?;
            // It has no captured length of its own: the wire's, unless the interface cuts at fewer octets. Zero cuts nothing.
            let captured = match interface.snap_len {
                0 => packet.origlen,
                snap_len => packet.origlen.min(snap_len),
            };
            if captured as usize > packet.data.len() {
                let allowed = format!("at most {}, what the block holds", packet.data.len());
                return Err(malformed(
                    offset,
                    "packet length",
                    captured.into(),
                    &allowed,
                ));
            }
            Ok(Decoded::Packet(Found {
                nanos: None,
                link: interface.link,
                range: 12..12 + captured as usize,
                wire_len: packet.origlen,
                interface: 0,
            }))
        }
        _ => Err(contents()),
    }
}

/// Takes from an interface block what packets need, after checking that its options fill their area exactly: a broken one
/// could hide the unit of time.
fn interface(
    block: &InterfaceDescriptionBlock<'_>,
    offset: u64,
    big_endian: bool,
) -> Result<Interface, CaptureError> {
    let mut units_per_second = 1_000_000;
    let mut offset_seconds = 0;
    let mut used = 0;
    let mut ended = false;
    for option in &block.options {
        used += 4 + option.value.len();
        match option.code {
            OptionCode::EndOfOpt => {
                ended = true;
                break;
            }
            OptionCode::IfTsresol => {
                let [unit] = option_bytes(option.as_bytes(), offset, "if_tsresol length")?;
                let unit_of = |base: u128| base.checked_pow(u32::from(unit & 0x7f));
                units_per_second =
                    unit_of(if unit & 0x80 == 0 { 10 } else { 2 }).ok_or_else(|| {
                        malformed(
                            offset,
                            "if_tsresol",
                            unit.into(),
                            "10^0 to 10^38 or 2^0 to 2^127",
                        )
                    })?;
            }
            OptionCode::IfTsoffset => {
                let bytes = option_bytes(option.as_bytes(), offset, "if_tsoffset length")?;
                offset_seconds = if big_endian {
                    i64::from_be_bytes(bytes)
                } else {
                    i64::from_le_bytes(bytes)
                };
            }
            _ => {}
        }
    }
    let area = block.block_len1 as usize - 20;
    if !ended && used != area {
        let allowed = format!("{area}, what the interface block holds");
        return Err(malformed(
            offset,
            "length of the options",
            used as u64,
            &allowed,
        ));
    }
    Ok(Interface {
        link: LinkType::from_file(block.linktype.0 as u32),
        snap_len: block.snaplen,
        units_per_second,
        offset_seconds,
    })
}

impl Interface {
    /// Nanoseconds since 1970, if they lie in what 64 bits hold.
    fn nanos(&self, ticks: u64) -> Option<u64> {
        // Below 2^64 * 2^30, and below 2^63 * 2^30: no overflow in 128 bits.
        let since = u128::from(ticks) * NANOS / self.units_per_second;
        let offset = i128::from(self.offset_seconds) * NANOS as i128;
        u64::try_from(i128::try_from(since).ok()?.checked_add(offset)?).ok()
    }
}

fn option_bytes<const LEN: usize>(
    bytes: Option<&[u8]>,
    offset: u64,
    field: &'static str,
) -> Result<[u8; LEN], CaptureError> {
    let bytes = bytes.unwrap_or(&[]);
    bytes
        .try_into()
        .map_err(|_| malformed(offset, field, bytes.len() as u64, &LEN.to_string()))
}

/// How many of `len` octets are there.
fn have<R: Read>(window: &mut Window<R>, len: usize) -> Result<usize, CaptureError> {
    let offset = window.offset();
    window
        .fill(len)
        .map_err(|error| at(offset, CaptureFault::Io(error)))
}

/// Makes sure that `len` octets of `what` are there.
fn need<R: Read>(
    window: &mut Window<R>,
    len: usize,
    what: &'static str,
) -> Result<(), CaptureError> {
    let have = have(window, len)?;
    if have == len {
        return Ok(());
    }
    Err(at(
        window.offset(),
        CaptureFault::Cut {
            what,
            needed: len as u64,
            have: have as u64,
        },
    ))
}

fn at(offset: u64, fault: CaptureFault) -> CaptureError {
    CaptureError { offset, fault }
}

fn malformed(offset: u64, field: &'static str, value: u64, allowed: &str) -> CaptureError {
    let allowed = allowed.to_owned();
    at(
        offset,
        CaptureFault::Malformed {
            field,
            value,
            allowed,
        },
    )
}

fn no_interface(offset: u64, number: u32, known: usize) -> CaptureError {
    let allowed = format!("below {known}, the number of interfaces described before");
    malformed(offset, "interface", number.into(), &allowed)
}

/// Four octets as a little-endian number. They are there: the callers have filled the window.
fn word(bytes: &[u8], place: usize) -> u32 {
    u32::from_le_bytes([
        bytes[place],
        bytes[place + 1],
        bytes[place + 2],
        bytes[place + 3],
    ])
}

/// A number that was read as little-endian, in its own byte order.
fn order(little: u32, big_endian: bool) -> u32 {
    if big_endian {
        little.swap_bytes()
    } else {
        little
    }
}
