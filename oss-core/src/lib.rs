//! Lockgate's open core: explicit providers and custody for fast I/O.

pub mod errno;

pub use errno::Errno;
