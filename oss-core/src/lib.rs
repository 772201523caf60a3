//! Lockgate's open core: explicit providers and custody for fast I/O.

pub mod clock;
pub mod completion;
pub mod custody;
pub mod errno;
pub mod error;
pub mod fault;
#[cfg(feature = "receive")]
pub mod receive;
pub mod registry;
mod sync;

pub use errno::Errno;
pub use error::{Error, ErrorKind, Result};
