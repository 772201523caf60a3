//! What an ELF file says of itself: architecture, needs, run paths, symbol versions, and its traces of libibverbs.
//!
//! Promises: nothing of the file is executed or mapped for execution; a file that contradicts itself is an error with a reason, never
//! a panic; both classes and both byte orders are read. Does not do: looking at any other file.

use std::fs;
use std::path::Path;

use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionTable, Sym};
use serde::Serialize;

/// The file that verbs programs load; its number never changed.
pub(crate) const VERBS: &str = "libibverbs.so.1";
/// The name that only the development package has.
pub(crate) const VERBS_UNVERSIONED: &str = "libibverbs.so";
/// A larger file is not looked at: no library or program comes near.
const LARGEST: u64 = 4 << 30;
/// Entries that only libibverbs itself defines, and every copy of it has.
const OWN: [&str; 2] = ["ibv_get_device_list", "ibv_open_device"];
/// A text of libibverbs that survives stripping. Backwards, so that this program, which looks for it, does not have it.
const OWN_TEXT_BACKWARDS: &[u8] =
    b"rof dnuof revird cificeps-ecived ecapsresu on :gninraW :sbrevbibil";

/// What one ELF file says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Image {
    /// Class and machine, such as `64-bit x86_64`.
    pub(crate) architecture: Architecture,
    /// The program that loads it, for executables that have one.
    pub(crate) interpreter: Option<String>,
    /// The name that others need it by.
    pub(crate) soname: Option<String>,
    /// The libraries it needs, in order.
    pub(crate) needed: Vec<String>,
    /// `DT_RPATH`, split, as written.
    pub(crate) rpath: Vec<String>,
    /// `DT_RUNPATH`, split, as written.
    pub(crate) runpath: Vec<String>,
    /// The symbol versions it defines, without the one that names the file.
    pub(crate) defines: Vec<String>,
    /// The symbol versions it needs, by the library that is to define them.
    pub(crate) needs: Vec<Need>,
    /// What it has of libibverbs.
    pub(crate) verbs: Traces,
}

/// Symbol versions needed of one library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Need {
    /// The name of the library.
    pub(crate) library: String,
    /// The versions.
    pub(crate) versions: Vec<String>,
}

/// Class, byte order and machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Architecture {
    /// 32 or 64.
    pub(crate) bits: u8,
    /// Whether the least significant byte comes first.
    pub(crate) little_endian: bool,
    /// `e_machine`.
    pub(crate) machine: u16,
}

/// What a file has of libibverbs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Traces {
    /// It has a copy of the library: entries of its own, or its texts.
    pub(crate) copy: bool,
    /// Verbs that it uses and does not define.
    pub(crate) uses: Vec<String>,
    /// It has the text `libibverbs.so.1`, whole.
    pub(crate) names_it: bool,
    /// It has the text `libibverbs.so`, whole.
    pub(crate) names_unversioned: bool,
    /// The pattern of the paths of drivers, such as `/usr/lib/x/libibverbs/lib%s-rdmav34.so`.
    pub(crate) driver_pattern: Option<String>,
    /// The folder of the files that name the drivers.
    pub(crate) config_folder: Option<String>,
}

impl Architecture {
    /// Class and machine in words.
    pub(crate) fn text(self) -> String {
        let machine = match elf::Machine(self.machine) {
            elf::EM_386 => "i386".to_owned(),
            elf::EM_AARCH64 => "aarch64".to_owned(),
            elf::EM_ARM => "arm".to_owned(),
            elf::EM_LOONGARCH => "loongarch".to_owned(),
            elf::EM_PPC64 => "ppc64".to_owned(),
            elf::EM_RISCV => "riscv".to_owned(),
            elf::EM_S390 => "s390".to_owned(),
            elf::EM_X86_64 => "x86_64".to_owned(),
            elf::Machine(other) => format!("machine {other}"),
        };
        format!("{}-bit {machine}", self.bits)
    }
}

impl Image {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        Self::parse(&bytes(path)?)
    }

    /// Reads a file without looking for traces of libibverbs, which is what takes time in a large one.
    pub(crate) fn outline(path: &Path) -> Result<Self, String> {
        Self::parse_to(&bytes(path)?, false)
    }

    /// Reads the contents of a file.
    pub(crate) fn parse(data: &[u8]) -> Result<Self, String> {
        Self::parse_to(data, true)
    }

    fn parse_to(data: &[u8], traces: bool) -> Result<Self, String> {
        match data.get(..5) {
            Some([0x7f, b'E', b'L', b'F', 1]) => {
                Self::of::<elf::FileHeader32<Endianness>>(data, 32, traces)
            }
            Some([0x7f, b'E', b'L', b'F', 2]) => {
                Self::of::<elf::FileHeader64<Endianness>>(data, 64, traces)
            }
            Some([0x7f, b'E', b'L', b'F', _]) => Err("an ELF file of an unknown class".to_owned()),
            Some([b'#', b'!', ..]) => Err("a script, not an ELF file".to_owned()),
            _ => Err("not an ELF file".to_owned()),
        }
    }

    fn of<Elf: FileHeader<Endian = Endianness>>(
        data: &[u8],
        bits: u8,
        traces: bool,
    ) -> Result<Self, String> {
        let broken = |error: object::Error| format!("a broken ELF file: {error}");
        let header = Elf::parse(data).map_err(broken)?;
        let endian = header.endian().map_err(broken)?;
        let architecture = Architecture {
            bits,
            little_endian: endian == Endianness::Little,
            machine: header.e_machine(endian).0,
        };
        let sections = header.sections(endian, data).map_err(broken)?;
        if sections.is_empty() {
            return Err("an ELF file without section headers, which can't be read here".to_owned());
        }
        let mut interpreter = None;
        for segment in header.program_headers(endian, data).map_err(broken)? {
            if let Some(name) = segment.interpreter(endian, data).map_err(broken)? {
                interpreter = Some(text(name));
            }
        }
        let mut image = Self {
            architecture,
            interpreter,
            soname: None,
            needed: Vec::new(),
            rpath: Vec::new(),
            runpath: Vec::new(),
            defines: Vec::new(),
            needs: Vec::new(),
            verbs: Traces::default(),
        };
        image.dynamic(&sections, endian, data).map_err(broken)?;
        image.versions(&sections, endian, data).map_err(broken)?;
        if traces {
            image.symbols(&sections, endian, data).map_err(broken)?;
            image.texts(data);
        }
        Ok(image)
    }

    fn dynamic<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        sections: &SectionTable<'_, Elf>,
        endian: Endianness,
        data: &[u8],
    ) -> Result<(), object::Error> {
        let table = sections.dynamic_table(endian, data)?;
        for entry in &table {
            let name = || table.string(entry).map(text);
            match entry.tag {
                elf::DT_NEEDED => self.needed.push(name()?),
                elf::DT_SONAME => self.soname = Some(name()?),
                elf::DT_RPATH => self.rpath.extend(split(&name()?)),
                elf::DT_RUNPATH => self.runpath.extend(split(&name()?)),
                _ => {}
            }
        }
        Ok(())
    }

    fn versions<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        sections: &SectionTable<'_, Elf>,
        endian: Endianness,
        data: &[u8],
    ) -> Result<(), object::Error> {
        if let Some((mut definitions, link)) = sections.gnu_verdef(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((definition, mut names)) = definitions.next()? {
                // The base definition only repeats the name of the file.
                let base = definition.vd_flags.get(endian).0 & elf::VER_FLG_BASE.0 != 0;
                if let Some(name) = names.next()?.filter(|_| !base) {
                    self.defines.push(text(name.name(endian, strings)?));
                }
            }
        }
        if let Some((mut needs, link)) = sections.gnu_verneed(endian, data)? {
            let strings = sections.strings(endian, data, link)?;
            while let Some((need, mut entries)) = needs.next()? {
                let mut versions = Vec::new();
                while let Some(entry) = entries.next()? {
                    // The loader only complains about a weak one.
                    if entry.vna_flags.get(endian).0 & elf::VER_FLG_WEAK.0 == 0 {
                        versions.push(text(entry.name(endian, strings)?));
                    }
                }
                self.needs.push(Need {
                    library: text(need.file(endian, strings)?),
                    versions,
                });
            }
        }
        Ok(())
    }

    fn symbols<Elf: FileHeader<Endian = Endianness>>(
        &mut self,
        sections: &SectionTable<'_, Elf>,
        endian: Endianness,
        data: &[u8],
    ) -> Result<(), object::Error> {
        let mut own = [false; OWN.len()];
        for kind in [elf::SHT_DYNSYM, elf::SHT_SYMTAB] {
            let table = sections.symbols(endian, data, kind)?;
            for symbol in table.iter() {
                let name = symbol.name(endian, table.strings())?;
                if symbol.is_undefined(endian) {
                    if kind == elf::SHT_DYNSYM && name.starts_with(b"ibv_") {
                        self.verbs.uses.push(text(name));
                    }
                } else if let Some(at) = OWN.iter().position(|own| own.as_bytes() == name) {
                    own[at] = true;
                }
            }
        }
        self.verbs.uses.sort_unstable();
        self.verbs.uses.dedup();
        self.verbs.copy = own == [true; OWN.len()];
        Ok(())
    }

    fn texts(&mut self, data: &[u8]) {
        let own: Vec<u8> = OWN_TEXT_BACKWARDS.iter().rev().copied().collect();
        self.verbs.copy |= contains(data, &own) || self.soname.as_deref() == Some(VERBS);
        self.verbs.names_it = has_text(data, VERBS);
        self.verbs.names_unversioned = has_text(data, VERBS_UNVERSIONED);
        if self.verbs.copy {
            self.verbs.driver_pattern = texts_with(data, "lib%s-rdmav")
                .filter(|found| found.starts_with('/'))
                .min_by_key(String::len);
            self.verbs.config_folder = texts_with(data, "libibverbs.d")
                .find(|found| found.starts_with('/') && found.ends_with("libibverbs.d"));
        }
    }

    /// The highest version of the public interface of libibverbs that it defines.
    pub(crate) fn highest_verbs(&self) -> Option<&str> {
        let number = |name: &str| name.strip_prefix("IBVERBS_1.")?.parse::<u32>().ok();
        self.defines
            .iter()
            .filter_map(|name| Some((number(name)?, name.as_str())))
            .max()
            .map(|(_, name)| name)
    }

    /// The number of the private ABI that it defines, as libibverbs does.
    pub(crate) fn private_abi(&self) -> Option<u32> {
        self.defines.iter().find_map(|name| private(name))
    }

    /// The number of the private ABI that it needs, as drivers do.
    pub(crate) fn needed_abi(&self) -> Option<u32> {
        let mut versions = self.needs.iter().flat_map(|need| &need.versions);
        versions.find_map(|name| private(name))
    }
}

fn private(version: &str) -> Option<u32> {
    version.strip_prefix("IBVERBS_PRIVATE_")?.parse().ok()
}

/// The contents of a regular file.
fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let data = fs::metadata(path).map_err(|error| error.to_string())?;
    // Opening a pipe would wait for somebody to write.
    if !data.is_file() {
        return Err("not a regular file".to_owned());
    }
    if data.len() > LARGEST {
        return Err(format!("larger than {LARGEST} bytes"));
    }
    fs::read(path).map_err(|error| error.to_string())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn split(paths: &str) -> impl Iterator<Item = String> {
    paths
        .split(':')
        .filter(|one| !one.is_empty())
        .map(str::to_owned)
}

fn contains(data: &[u8], part: &[u8]) -> bool {
    positions(data, part).next().is_some()
}

/// Where `part` begins.
fn positions<'a>(data: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    memchr::memmem::find_iter(data, part)
}

/// Whether a text stands whole in the data. C ends it with a zero and begins it behind one; Rust keeps texts side by side, so
/// there only what would continue the name counts.
fn has_text(data: &[u8], whole: &str) -> bool {
    positions(data, whole.as_bytes()).any(|at| {
        let behind = data.get(at + whole.len()).copied().unwrap_or(0);
        let before = at.checked_sub(1).and_then(|at| data.get(at)).copied();
        behind != b'.' && !before.is_some_and(|byte| byte == b'/' || byte.is_ascii_alphanumeric())
    })
}

/// The texts, from zero to zero, in which `part` stands.
fn texts_with<'a>(data: &'a [u8], part: &'a str) -> impl Iterator<Item = String> + 'a {
    positions(data, part.as_bytes()).filter_map(move |at| {
        let start = data[..at].iter().rposition(|byte| *byte == 0)? + 1;
        let length = data[at..].iter().position(|byte| *byte == 0)?;
        let whole = data.get(start..at + length)?;
        let printable = whole.iter().all(|byte| (0x20..0x7f).contains(byte));
        (whole.len() < 4096 && printable).then(|| text(whole))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_read_and_is_no_copy_of_the_library() {
        let image = Image::read(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(image.architecture.bits, 8 * size_of::<usize>() as u8);
        assert!(image.interpreter.is_some());
        assert!(
            image.needed.iter().any(|name| name == "libc.so.6"),
            "{:?}",
            image.needed
        );
        let libc = image.needs.iter().find(|need| need.library == "libc.so.6");
        assert!(libc.is_some_and(|need| need.versions.iter().any(|one| one.starts_with("GLIBC_"))));
        assert!(!image.verbs.copy && image.verbs.uses.is_empty());
    }

    #[test]
    fn a_file_cut_or_damaged_anywhere_is_an_error_or_an_image_and_never_a_panic() {
        let whole = fs::read("/proc/self/exe").unwrap();
        for cut in (0..2048).chain([4096, whole.len() / 2, whole.len() - 1]) {
            let _ = Image::parse(&whole[..cut]).map(|image| image.architecture.text());
        }
        let mut head = whole[..whole.len().min(1 << 20)].to_vec();
        for at in 0..64 {
            let kept = head[at];
            for value in [0, 1, 0x7f, 0xff] {
                head[at] = value;
                let _ = Image::parse(&head).map(|image| image.highest_verbs().map(str::to_owned));
            }
            head[at] = kept;
        }
    }

    #[test]
    fn what_is_no_elf_file_says_so() {
        assert_eq!(Image::parse(b""), Err("not an ELF file".to_owned()));
        assert_eq!(
            Image::parse(b"#!/bin/sh\n"),
            Err("a script, not an ELF file".to_owned())
        );
        let reason = Image::read(Path::new("/dev/null")).unwrap_err();
        assert_eq!(reason, "not a regular file");
    }

    #[test]
    fn names_are_found_whole_only() {
        assert!(has_text(b"x\0libibverbs.so.1\0y", VERBS));
        assert!(has_text(b"textslibibverbs.so.1more".split_at(5).1, VERBS));
        assert!(!has_text(b"\0libibverbs.so.1\0", VERBS_UNVERSIONED));
        assert!(!has_text(b"\0/usr/lib/libibverbs.so\0", VERBS_UNVERSIONED));
        assert!(has_text(b"\0libibverbs.so\0", VERBS_UNVERSIONED));
        let found: Vec<_> = texts_with(b"\0/a/lib%s-x\0\x01lib%s-y\0", "lib%s").collect();
        assert_eq!(found, ["/a/lib%s-x"]);
    }
}
