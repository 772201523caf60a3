//! Whether objects of the kernel's virtual machine are still there: links, maps and programs of a process, by their numbers.
//!
//! Promises: [`of_process`] reads what the process holds, [`exists`] asks the kernel. Does not do: loading anything.
#![allow(clippy::expect_used, reason = "a helper that fails fails its test")]

mod sys;

/// A sort of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What keeps a program attached.
    Link,
    /// A map.
    Map,
    /// A program.
    Program,
}

/// The objects that a process holds by descriptors.
///
/// # Panics
/// If the process can't be looked at.
#[must_use]
pub fn of_process(id: u32) -> Vec<(Kind, u32)> {
    let folder = std::fs::read_dir(format!("/proc/{id}/fdinfo")).expect("the process runs");
    let mut all = Vec::new();
    for entry in folder.flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        // A link's file also names its program.
        let number = |word: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(word)?.trim().parse().ok())
        };
        for (kind, word) in [
            (Kind::Link, "link_id:"),
            (Kind::Map, "map_id:"),
            (Kind::Program, "prog_id:"),
        ] {
            if let Some(number) = number(word) {
                all.push((kind, number));
            }
        }
    }
    all.sort_unstable_by_key(|(kind, number)| (*kind as u8, *number));
    all.dedup();
    all
}

/// Whether the kernel still has an object.
///
/// # Panics
/// If it can't be asked, which needs `CAP_SYS_ADMIN`.
#[must_use]
pub fn exists(kind: Kind, number: u32) -> bool {
    sys::exists(kind, number).expect("the right to ask for objects by number")
}
