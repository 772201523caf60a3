//! What the cross-crate tests share: equipment that may be missing, and generated input.

pub mod frames;
pub mod netns;
pub mod probe;
pub mod tools;
