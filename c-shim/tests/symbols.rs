//! The archive of the shim defines the symbols of `symbols.txt`, visible, and no others that another object could see.
//!
//! Holds in both builds: a stub that forgets a call is found here, and so is a helper that isn't static.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol, SymbolFlags};

const LIST: &str = include_str!("../symbols.txt");

/// Each global symbol that the archive defines, and whether another library could see it.
fn defined() -> BTreeMap<String, bool> {
    let path = Path::new(env!("OUT_DIR")).join("liblockgate_verbs_shim.a");
    let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let archive = ArchiveFile::parse(&*bytes).unwrap();
    let mut found = BTreeMap::new();
    for member in archive.members() {
        let file = object::File::parse(member.unwrap().data(&*bytes).unwrap()).unwrap();
        for symbol in file
            .symbols()
            .filter(|symbol| symbol.is_definition() && symbol.is_global())
        {
            let SymbolFlags::Elf { st_other, .. } = symbol.flags() else {
                panic!("an ELF archive");
            };
            let visible = st_other.visibility() == object::elf::STV_DEFAULT;
            let earlier = found.insert(symbol.name().unwrap().to_owned(), visible);
            assert_eq!(earlier, None, "{} is defined twice", symbol.name().unwrap());
        }
    }
    found
}

#[test]
fn the_archive_defines_exactly_the_listed_symbols() {
    let found = defined();
    let listed: Vec<&str> = LIST.lines().collect();
    assert!(listed.is_sorted(), "symbols.txt is not sorted");
    let found: Vec<&str> = found.keys().map(String::as_str).collect();
    assert_eq!(found, listed);
}

#[test]
fn the_listed_symbols_are_visible() {
    let hidden: Vec<String> = defined()
        .into_iter()
        .filter(|(_, visible)| !visible)
        .map(|(name, _)| name)
        .collect();
    assert_eq!(hidden, Vec::<String>::new());
}
