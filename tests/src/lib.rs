//! What the cross-crate tests share: equipment that may be missing, and generated input.

pub mod bpf;
pub mod frames;
pub mod netns;
pub mod probe;
pub mod programs;
pub mod tools;
pub mod turned;

/// The examples of the front page are compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct FrontPage;

/// The examples of `docs/CUSTODY.md`, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../docs/CUSTODY.md")]
struct CustodyPage;
