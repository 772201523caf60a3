//! Reads captures of other programs, plans when to send them again, and changes their addresses.
//!
//! Promises: pcap (micro- and nanoseconds) and pcapng (any unit of time), both byte orders; a file that is broken or cut
//! anywhere gives every packet before the break and then a [`CaptureError`] with the offset at which the broken part
//! begins. Memory is bounded by [`MAX_BLOCK`], whatever the file says. Nothing panics on any input.
//! Does not do: decompression, sending, sleeping, joining fragments.
//!
//! ```no_run
//! use lockgate_providers::capture::Reader;
//! let mut reader = Reader::open("feed.pcapng")?;
//! while let Some(packet) = reader.next_packet()? {
//!     println!("{:?} {} {} octets", packet.nanos, packet.link, packet.bytes.len());
//! }
//! # Ok::<(), lockgate_providers::capture::CaptureError>(())
//! ```

mod error;
mod link;
mod pace;
mod readdress;
mod reader;
#[cfg(test)]
mod tests;
mod window;

pub use error::{CaptureError, CaptureFault};
pub use link::LinkType;
pub use pace::{Pace, PaceError, Schedule};
pub use readdress::{Datagram, Readdress, ReaddressError};
pub use reader::{Format, OwnedPacket, Packets, Reader, RecordedPacket};

/// The longest block or packet that is read, in octets: 16 MiB, the limit of Wireshark too.
pub const MAX_BLOCK: u32 = 16 << 20;
