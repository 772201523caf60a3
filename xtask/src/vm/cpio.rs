//! Writes the `newc` cpio archive that the kernel takes as its initial root file system.
//!
//! Promises: the same entries give the same bytes, whatever the host's files, users and clock are. Does not do: reading
//! archives, devices, links.

/// An archive under construction.
#[derive(Debug, Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;

impl Archive {
    /// Adds a directory. Parents come first; the caller orders them.
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a regular file that everybody may read and execute.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, EXECUTABLE, content);
    }

    /// Ends the archive and gives its bytes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        // The kernel wants whole blocks only from concatenated archives, but every cpio program writes them.
        self.pad(512);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // Magic, inode, mode, uid, gid, links, mtime, size, device and special device numbers, name's length, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            links,
            0,
            u32::try_from(content.len()).unwrap_or(u32::MAX),
            0,
            0,
            0,
            0,
            u32::try_from(path.len() + 1).unwrap_or(u32::MAX),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad(4);
        self.bytes.extend_from_slice(content);
        self.pad(4);
    }

    fn pad(&mut self, to: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(to), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    /// One entry as a reader sees it: path, mode, content.
    fn parse(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701", "magic at {at}");
            let field = |n: usize| {
                let from = at + 6 + 8 * n;
                let text = std::str::from_utf8(&bytes[from..from + 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let name_length = field(11) as usize;
            let name = &bytes[at + 110..at + 110 + name_length - 1];
            let content = (at + 110 + name_length).next_multiple_of(4);
            let end = content + field(6) as usize;
            if name == b"TRAILER!!!" {
                assert!(bytes[end..].iter().all(|byte| *byte == 0));
                return entries;
            }
            entries.push((
                String::from_utf8(name.to_vec()).unwrap(),
                field(1),
                bytes[content..end].to_vec(),
            ));
            at = end.next_multiple_of(4);
        }
    }

    #[test]
    fn entries_come_back_as_they_were_given() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("bin/three", b"abc");
        archive.file("bin/four", b"abcd");
        archive.file("bin/none", b"");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 512, 0);
        assert_eq!(
            parse(&bytes),
            [
                ("bin".into(), 0o040_755, vec![]),
                ("bin/three".into(), 0o100_755, b"abc".to_vec()),
                ("bin/four".into(), 0o100_755, b"abcd".to_vec()),
                ("bin/none".into(), 0o100_755, vec![]),
            ]
        );
    }
}
