//! What this process holds, as `/proc` tells it: descriptors, threads, mappings.
//!
//! Promises: counts, nothing else. Linux only, as the providers are.

use std::fs;

/// What a leak would make grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
    /// Mappings of files: libraries, device pages, shared memory. Anonymous ones are the allocator's affair.
    pub(crate) file_mappings: usize,
}

/// The name and the count of each kind of holding.
pub(crate) type Named = [(&'static str, usize); 3];

impl Holdings {
    pub(crate) fn now() -> std::io::Result<Self> {
        let maps = fs::read_to_string("/proc/self/maps")?;
        Ok(Self {
            // The directory's own descriptor is in the list; it is every time.
            descriptors: fs::read_dir("/proc/self/fd")?.count(),
            threads: fs::read_dir("/proc/self/task")?.count(),
            file_mappings: maps.lines().filter(|line| line.contains('/')).count(),
        })
    }

    pub(crate) fn named(&self) -> Named {
        [
            ("descriptors", self.descriptors),
            ("threads", self.threads),
            ("file mappings", self.file_mappings),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_and_a_thread_are_seen() {
        let before = Holdings::now().unwrap();
        let files: Vec<_> = (0..100)
            .map(|_| fs::File::open("/proc/self/maps").unwrap())
            .collect();
        let during = Holdings::now().unwrap();
        assert!(during.descriptors >= before.descriptors + 90);
        assert!(during.threads >= 1 && during.file_mappings >= 1);
        drop(files);
    }
}
