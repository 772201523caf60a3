//! Lockgate's open core: explicit providers and custody for fast I/O.

pub mod errno;
pub mod error;
#[cfg(feature = "receive")]
pub mod receive;
pub mod registry;

pub use errno::Errno;
pub use error::{Error, ErrorKind, Result};
