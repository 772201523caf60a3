//! Packets as lines: JSON for programs, hexadecimal digits for people.
//!
//! Promises: one line of JSON for each packet, in the order of arrival, with the whole payload. Does not do: capture files.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;

use lockgate::receive::{Packet, Timestamp};
use lockgate::{Error, Result};
use serde::Serialize;

use crate::report::Failure;

/// Where the lines go.
pub(super) struct Dump {
    out: BufWriter<Box<dyn Write>>,
    /// The file, if it is one.
    path: Option<String>,
    number: u64,
}

/// One line.
#[derive(Debug, Serialize)]
struct Line {
    /// From 0.
    number: u64,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    vlan: Option<u16>,
    /// Which clock `timestamp` is of; none if nobody stamped it.
    clock: Option<&'static str>,
    /// Nanoseconds, or ticks of a free-running device.
    timestamp: Option<u64>,
    truncated: bool,
    length: usize,
    /// Hexadecimal digits.
    payload: String,
}

impl Dump {
    /// A file, or the standard output for `-`.
    pub(super) fn create(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let (out, path): (Box<dyn Write>, _) = if path == Path::new("-") {
            (Box::new(io::stdout()), None)
        } else {
            let file = File::create(path).map_err(|error| {
                Error::from_io("create dump file", error).with_object(name.clone())
            })?;
            (Box::new(file), Some(name))
        };
        Ok(Self {
            out: BufWriter::new(out),
            path,
            number: 0,
        })
    }

    /// Writes one.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) -> std::result::Result<(), Failure> {
        let (clock, timestamp) = stamp(packet.timestamp());
        let line = Line {
            number: self.number,
            source: packet.source(),
            destination: packet.destination(),
            vlan: packet.vlan(),
            clock,
            timestamp,
            truncated: packet.is_truncated(),
            length: packet.payload().len(),
            payload: digits(packet.payload()),
        };
        self.number += 1;
        serde_json::to_writer(&mut self.out, &line)
            .map_err(io::Error::from)
            .and_then(|()| self.out.write_all(b"\n"))
            .map_err(|error| self.lost(error))
    }

    /// Hands everything on.
    pub(super) fn flush(&mut self) -> std::result::Result<(), Failure> {
        self.out.flush().map_err(|error| self.lost(error))
    }

    /// A file that can't be written leaves the standard output to tell so; a pipe that nobody reads any more has no more to do.
    fn lost(&self, error: io::Error) -> Failure {
        match &self.path {
            Some(path) if error.kind() != io::ErrorKind::BrokenPipe => {
                let error = Error::from_io("write dump file", error);
                error.with_object(path.as_str()).into()
            }
            _ => error.into(),
        }
    }
}

fn stamp(timestamp: Timestamp) -> (Option<&'static str>, Option<u64>) {
    match timestamp {
        Timestamp::DeviceFreeRunning(stamp) => (Some("device-free-running"), Some(stamp.raw())),
        Timestamp::DeviceRealTime(stamp) => (Some("device-real-time"), Some(stamp.raw())),
        Timestamp::System(stamp) => (Some("system"), Some(stamp.raw())),
        Timestamp::Unknown { raw, .. } => (Some("unknown"), Some(raw)),
        _ => (None, None),
    }
}

fn digits(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string can't fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// A packet for people: a line with addresses, and its first bytes, 16 a line. At most 80 columns for IPv4.
pub(super) fn text(packet: &Packet<'_>, most: usize) -> String {
    let address = |address: Option<SocketAddr>| {
        address.map_or_else(|| "?".to_owned(), |address| address.to_string())
    };
    let payload = packet.payload();
    let mut text = format!(
        "{} > {} {} bytes",
        address(packet.source()),
        address(packet.destination()),
        payload.len()
    );
    if let Some(vlan) = packet.vlan() {
        let _ = write!(text, " vlan {vlan}");
    }
    if let (Some(clock), Some(timestamp)) = stamp(packet.timestamp()) {
        let _ = write!(text, " at {timestamp} ({clock})");
    }
    text.push('\n');
    let shown = &payload[..payload.len().min(most)];
    for (at, chunk) in shown.chunks(16).enumerate() {
        let _ = write!(text, "  {:04x} ", at * 16);
        for half in chunk.chunks(8) {
            text.push(' ');
            for byte in half {
                let _ = write!(text, "{byte:02x} ");
            }
        }
        // 7 columns of offset, 3 for each of 16 bytes, 1 before each half, 1 between.
        let column = text
            .rfind('\n')
            .map_or(text.len(), |start| text.len() - start - 1);
        text.push_str(&" ".repeat(58_usize.saturating_sub(column)));
        text.extend(chunk.iter().map(|byte| match byte {
            0x20..=0x7e => char::from(*byte),
            _ => '.',
        }));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockgate::receive::{Batch, Descriptor};

    fn with_packet(payload: &[u8], test: impl FnOnce(&Packet<'_>)) {
        let mut one = Descriptor::payload(0, 0, payload.len() as u32);
        one.set_source("10.0.0.1:9".parse::<SocketAddr>().unwrap().ip(), 9);
        one.set_destination("239.7.7.7".parse().unwrap(), 47000);
        let all = [one];
        let batch = Batch::new(payload, &all).unwrap();
        test(&batch.get(0).unwrap());
    }

    #[test]
    fn hexadecimal_lines_line_up_and_fit_80_columns() {
        let payload: Vec<u8> = (0..40).map(|at| at + 0x30).collect();
        with_packet(&payload, |packet| {
            assert_eq!(
                text(packet, 20),
                "10.0.0.1:9 > 239.7.7.7:47000 40 bytes\n  \
                 0000  30 31 32 33 34 35 36 37  38 39 3a 3b 3c 3d 3e 3f  0123456789:;<=>?\n  \
                 0010  40 41 42 43                                       @ABC\n"
            );
            assert!(text(packet, 99).lines().all(|line| line.len() <= 80));
        });
    }

    #[test]
    fn a_line_has_the_whole_payload() {
        with_packet(&[0, 1, 0xff], |packet| {
            let path = std::env::temp_dir().join(format!("probe-dump-{}", std::process::id()));
            let mut dump = Dump::create(&path).unwrap();
            dump.packet(packet).unwrap();
            dump.packet(packet).unwrap();
            dump.flush().unwrap();
            let text = std::fs::read_to_string(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            let lines: Vec<serde_json::Value> = text
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect();
            assert_eq!(lines.len(), 2);
            assert_eq!(lines[1]["number"], 1);
            assert_eq!(lines[0]["payload"], "0001ff");
            assert_eq!(lines[0]["source"], "10.0.0.1:9");
            assert_eq!(lines[0]["destination"], "239.7.7.7:47000");
            assert_eq!(lines[0]["clock"], serde_json::Value::Null);
        });
    }
}
