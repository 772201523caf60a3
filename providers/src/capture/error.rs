//! What is wrong with a capture, and where.

use std::fmt;
use std::io;

use lockgate::{Error, ErrorKind};

/// A capture can't be read on.
#[derive(Debug, thiserror::Error)]
#[error("capture: offset {offset}: {fault}")]
pub struct CaptureError {
    /// Where the block, packet or header begins that can't be read, in octets from the start of the file.
    pub offset: u64,
    /// What is wrong with it.
    pub fault: CaptureFault,
}

/// What is wrong with a capture.
#[derive(Debug)]
#[non_exhaustive]
pub enum CaptureFault {
    /// The file ends inside of something.
    Cut {
        /// What was being read.
        what: &'static str,
        /// How many octets it has at least.
        needed: u64,
        /// How many of them are there.
        have: u64,
    },
    /// Reading failed.
    Io(io::Error),
    /// A field says what it can't.
    Malformed {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
        /// What is allowed.
        allowed: String,
    },
    /// It begins like no capture.
    NotACapture {
        /// The first four octets.
        magic: [u8; 4],
    },
    /// It is legal and not read here.
    Unsupported {
        /// What it is.
        what: String,
        /// What to do about it.
        remedy: &'static str,
    },
}

impl fmt::Display for CaptureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { what, needed, have } => {
                write!(
                    f,
                    "the file ends after {have} of at least {needed} octets of a {what}"
                )
            }
            Self::Io(error) => write!(f, "reading failed: {error}"),
            Self::Malformed {
                field,
                value,
                allowed,
            } => write!(f, "{field}: value {value}; allowed: {allowed}"),
            Self::NotACapture { magic } => write!(
                f,
                "not a pcap or pcapng file: it begins with {:02x} {:02x} {:02x} {:02x}",
                magic[0], magic[1], magic[2], magic[3]
            ),
            Self::Unsupported { what, remedy } => {
                write!(f, "{what} is not supported; remedy: {remedy}")
            }
        }
    }
}

impl From<CaptureError> for Error {
    /// Reading keeps the system's number; a broken file is [`ErrorKind::Syntax`].
    fn from(error: CaptureError) -> Self {
        const OPERATION: &str = "read capture";
        match error.fault {
            CaptureFault::Io(source) => {
                Self::from_io(OPERATION, source).with_detail(format!("offset {}", error.offset))
            }
            _ => Self::new(ErrorKind::Syntax, OPERATION).with_detail(error.to_string()),
        }
    }
}
