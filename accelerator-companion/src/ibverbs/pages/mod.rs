//! Whole pages of anonymous memory: what is registered, and the mark that a fork wipes.
//!
//! Promises: page-aligned, zeroed, given back once. Does not do: huge pages, or memory of the caller's.

mod sys;

pub(crate) use sys::ForkMark;
pub use sys::Pages;
