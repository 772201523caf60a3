//! What this test's own binary is linked to: the library where the build has it, nothing of it in a stub.
//!
//! The binary calls a verb, so it is linked as any user's is; run in debug and in release, since the linker drops a
//! library that nobody in front of it has asked for, and asks only for what is not dropped itself.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::fs;

use lockgate_verbs_shim::{DeviceList, LinkMode, link_mode};
use object::elf::FileHeader64;
use object::read::elf::{Dyn, FileHeader, SectionHeader};
use object::{Endianness, elf};

const SONAME: &str = "libibverbs.so.1";

/// The newest symbol version that a library must have to be loaded: rdma-core 30.
const NEWEST: u32 = 9;

struct Links {
    needed: Vec<String>,
    /// Versions asked of [`SONAME`].
    versions: Vec<String>,
}

fn own() -> Links {
    // The verb: its answer is another test's matter.
    drop(DeviceList::read());
    let bytes = fs::read("/proc/self/exe").unwrap();
    let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, &*bytes).unwrap();
    let (entries, strings) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
    let strings = sections.strings(endian, &*bytes, strings).unwrap();
    let text = |offset: u32| String::from_utf8(strings.get(offset).unwrap().to_vec()).unwrap();
    let needed = entries
        .iter()
        .filter(|entry| entry.tag(endian) == elf::DT_NEEDED)
        .map(|entry| text(entry.val32(endian).unwrap()))
        .collect();
    let mut versions = Vec::new();
    for section in sections.iter() {
        let Some((mut needs, link)) = section.gnu_verneed(endian, &*bytes).unwrap() else {
            continue;
        };
        let strings = sections.strings(endian, &*bytes, link).unwrap();
        let text = |offset: u32| String::from_utf8(strings.get(offset).unwrap().to_vec()).unwrap();
        while let Some((need, mut names)) = needs.next().unwrap() {
            while let Some(name) = names.next().unwrap() {
                if text(need.vn_file.get(endian)) == SONAME {
                    versions.push(text(name.vna_name.get(endian)));
                }
            }
        }
    }
    Links { needed, versions }
}

#[test]
fn the_library_is_needed_exactly_where_it_is_built_in() {
    let needed = own().needed.iter().any(|name| name == SONAME);
    match link_mode() {
        LinkMode::Library => assert!(needed, "{:?}", own().needed),
        LinkMode::Stub => assert!(!needed, "{:?}", own().needed),
    }
}

#[test]
fn an_older_library_than_the_headers_is_enough() {
    let versions = own().versions;
    assert_eq!(versions.is_empty(), link_mode() == LinkMode::Stub);
    for version in &versions {
        // A private version would tie the binary to one release of the library.
        let minor = version
            .strip_prefix("IBVERBS_1.")
            .and_then(|minor| minor.parse::<u32>().ok());
        assert!(minor.is_some_and(|minor| minor <= NEWEST), "{versions:?}");
    }
}
