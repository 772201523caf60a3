//! The cache of ldconfig, `/etc/ld.so.cache`: which file the loader knows under which name.
//!
//! Promises: a cache that contradicts itself is an error with a reason, never a panic. Does not do: the old format of before glibc
//! 2.2 alone, and entries for one kind of processor only, which no verbs library has.
//!
//! Layout: glibc's `sysdeps/generic/dl-cache.h`.

use std::fs;
use std::path::PathBuf;

const FILE: &str = "/etc/ld.so.cache";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// What the cache has: name and file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cache {
    entries: Vec<(String, PathBuf)>,
}

impl Cache {
    /// Reads the host's.
    pub(crate) fn read() -> Result<Self, String> {
        let data = fs::read(FILE).map_err(|error| format!("{FILE}: {error}"))?;
        Self::parse(&data).ok_or_else(|| format!("{FILE}: not a cache of the format 1.1"))
    }

    fn parse(data: &[u8]) -> Option<Self> {
        // An old cache may stand in front; texts are counted from the header of the new one.
        let at = data
            .windows(MAGIC.len())
            .step_by(4)
            .position(|window| window == MAGIC)?;
        let data = data.get(at * 4..)?;
        let count = number(data, MAGIC.len())? as usize;
        let mut entries = Vec::new();
        for index in 0..count {
            let start = index.checked_mul(ENTRY)?.checked_add(HEADER)?;
            let entry = data.get(start..start.checked_add(ENTRY)?)?;
            let only_some_processors = entry.get(16..24)? != [0; 8];
            if only_some_processors {
                continue;
            }
            let name = string(data, number(entry, 4)?)?;
            let file = string(data, number(entry, 8)?)?;
            entries.push((name, PathBuf::from(file)));
        }
        Some(Self { entries })
    }

    /// The files under a name; of several architectures if the host has them.
    pub(crate) fn find<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a PathBuf> {
        let entries = self.entries.iter();
        entries
            .filter(move |(known, _)| known == name)
            .map(|(_, file)| file)
    }
}

fn number(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn string(data: &[u8], at: u32) -> Option<String> {
    let rest = data.get(at as usize..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_of_this_host_knows_the_c_library() {
        let cache = Cache::read().unwrap();
        let files: Vec<_> = cache.find("libc.so.6").collect();
        assert!(!files.is_empty());
        assert!(files.iter().all(|file| file.ends_with("libc.so.6")));
        assert_eq!(cache.find("libno-such.so.1").count(), 0);
    }

    #[test]
    fn a_cache_cut_or_damaged_anywhere_is_refused_or_smaller_and_never_a_panic() {
        let whole = fs::read(FILE).unwrap();
        let at = whole
            .windows(MAGIC.len())
            .position(|window| window == MAGIC);
        let at = at.unwrap();
        // Behind the entries come their names, and behind those what this does not read.
        let entries = at + HEADER + number(&whole, at + MAGIC.len()).unwrap() as usize * ENTRY;
        for cut in (0..200).chain((200..entries).step_by(97)) {
            assert!(Cache::parse(&whole[..cut]).is_none(), "cut at {cut}");
        }
        let mut damaged = whole;
        for at in MAGIC.len()..200 {
            let kept = damaged[at];
            damaged[at] = 0xff;
            let _ = Cache::parse(&damaged);
            damaged[at] = kept;
        }
    }
}
