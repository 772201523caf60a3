//! The support bundle: what a maintainer needs to see, in one tar file, with what is private masked.
//!
//! Promises: every text goes through one [`Mask`] before it is written, unless it was asked not to; the file is new, never one that is
//! written over; only what stands in [`FILES`] and the findings goes in, so that it can be read through before it is sent. Does not
//! do: compression.

use std::cell::RefCell;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use lockgate::{Errno, Error, ErrorKind};

use super::devices::Sysfs;
use super::mask::Mask;
use super::{Document, SCHEMA, text};
use crate::exit::Exit;
use crate::output::Screen;
use crate::report::{self, Failure};

/// Files that go in as they are, masked.
const FILES: &[&str] = &[
    "/etc/os-release",
    "/proc/modules",
    "/proc/self/cgroup",
    "/proc/self/limits",
    "/proc/self/status",
    "/proc/version",
];
/// The largest text that goes in.
const LARGEST: usize = 1 << 20;

const README: &str = "\
report.json    what `probe check --json` prints; the schema is lockgate.probe.check/1
report.txt     what `probe check` prints
config/        the files that name the drivers of libibverbs
sysfs.txt      the attributes of the RDMA devices
host/          files of this host: release, modules, limits, status, cgroup

Masked unless --unmasked was given: names of host and users, IP addresses, MAC addresses, GUIDs, GIDs,
long identifiers. The same value has the same mask throughout. Read it through before you send it.
";

/// Writes a bundle to a new file.
pub(super) fn write(
    path: &Path,
    document: &Document<'_>,
    exit: Exit,
    masked: bool,
) -> Result<(), Failure> {
    let mut bundle = Bundle {
        mask: masked.then(Mask::of_this_host),
        tar: Vec::new(),
    };
    bundle.add("README.txt", README);
    let json = report::document_text(SCHEMA, "check", exit, document)?;
    bundle.add("report.json", &json);
    bundle.add("report.txt", &report_text(document)?);
    let findings = document.findings;
    bundle.add("sysfs.txt", &sysfs(&findings.sysfs));
    for file in files(&findings.providers.folder) {
        let name = format!("config/{}", file.rsplit('/').next().unwrap_or_default());
        bundle.copy(&name, &file);
    }
    for file in FILES {
        bundle.copy(&format!("host{}", file.replace("/self", "")), file);
    }
    bundle.finish(path).map_err(|error| refused(path, &error))
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let remedy = if error.kind() == io::ErrorKind::AlreadyExists {
        "name a file that is not there yet; nothing is written over"
    } else {
        "name a file in a folder that this user may write to"
    };
    let mut told = Error::new(ErrorKind::System, "write the bundle")
        .with_object(path.display().to_string())
        .with_remedy(remedy);
    told = match Errno::from_io(error) {
        Some(errno) => told.with_errno(errno),
        None => told.with_detail(error.to_string()),
    };
    Failure::Library(told)
}

struct Bundle {
    mask: Option<Mask>,
    tar: Vec<u8>,
}

impl Bundle {
    fn copy(&mut self, name: &str, file: &str) {
        let text = match fs::read(file) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("{file}: {error}\n"),
        };
        self.add(name, &text);
    }

    fn add(&mut self, name: &str, text: &str) {
        let text = match &mut self.mask {
            Some(mask) => mask.text(text),
            None => text.to_owned(),
        };
        let mut end = text.len().min(LARGEST);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        entry(&mut self.tar, name, &text.as_bytes()[..end]);
    }

    fn finish(mut self, path: &Path) -> io::Result<()> {
        // Two blocks of zeros are the end.
        self.tar.resize(self.tar.len() + 2 * BLOCK, 0);
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(&self.tar)?;
        file.sync_all()
    }
}

const BLOCK: usize = 512;

/// One regular file in the format of POSIX.1-1988, `ustar`. No owner, no time: they are nobody's business.
fn entry(tar: &mut Vec<u8>, name: &str, data: &[u8]) {
    let mut header = [0_u8; BLOCK];
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    let name = &name.as_bytes()[..name.len().min(99)];
    put(0, name);
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{:011o}\0", data.len()).as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    tar.extend(header);
    tar.extend(data);
    tar.resize(tar.len().next_multiple_of(BLOCK), 0);
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<String> = entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .map(|path| path.display().to_string())
        .collect();
    files.sort();
    files
}

/// The attributes of the devices, a line each. `node_desc` has the name of the host and is left out.
fn sysfs(sysfs: &Sysfs) -> String {
    let mut lines = String::new();
    for device in &sysfs.devices {
        let folder = sysfs.root.join("class/infiniband").join(&device.name);
        attributes(&folder, 4, &mut lines);
    }
    if lines.is_empty() {
        lines.push_str("no devices\n");
    }
    lines
}

fn attributes(folder: &Path, depth: usize, lines: &mut String) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Ok(data) = path.symlink_metadata() else {
            continue;
        };
        let name = path.file_name().unwrap_or_default();
        if data.is_dir() && depth > 0 {
            attributes(&path, depth - 1, lines);
        } else if data.is_file() && name != "node_desc" && name != "uevent" {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| error.to_string());
            lines.push_str(&format!("{} {}\n", path.display(), text.trim()));
        }
    }
}

/// The report as text.
fn report_text(document: &Document<'_>) -> io::Result<String> {
    let memory = Memory::default();
    let mut screen = Screen::plain(memory.clone());
    text::print(&mut screen, document)?;
    let bytes = memory.0.take();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A text in memory that the screen writes to and the bundle reads.
#[derive(Clone, Default)]
struct Memory(Rc<RefCell<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_whole_blocks_with_the_sum_of_its_header() {
        let mut tar = Vec::new();
        entry(&mut tar, "a/b.txt", b"hello");
        assert_eq!(tar.len(), 2 * BLOCK);
        assert_eq!(&tar[BLOCK..BLOCK + 5], b"hello");
        let told = std::str::from_utf8(&tar[148..154]).unwrap();
        let told = u32::from_str_radix(told, 8).unwrap();
        tar[148..156].copy_from_slice(b"        ");
        let sum: u32 = tar[..BLOCK].iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(told, sum);
    }
}
