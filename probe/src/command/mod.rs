//! The commands: each takes its arguments, says what it found on the screen, and answers with the exit code.

pub(crate) mod latency;
pub(crate) mod providers;
pub(crate) mod recv;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod send;
mod spec;
