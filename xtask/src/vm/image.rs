//! The guest's image: an uncompressed kernel and a root file system with the tools, the modules and the first process.
//!
//! Promises: made from Debian's packages alone, so that two hosts get the same guest; everything the guest needs before
//! it sees the host's file system is inside. Does not do: the tools of a test, which the job takes from the host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::cache::{self, Cache, Entry};
use super::cpio::Archive;
use super::{Failure, packages};

/// The modules that the guest loads, besides those they depend on.
const MODULES: [&str; 11] = [
    "virtio_mmio",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "veth",
    // VLAN interfaces, which not every host's kernel has.
    "8021q",
    // rxe computes its checksums through this one and doesn't name it as a dependency.
    "crc32_generic",
    "ib_uverbs",
    "rdma_rxe",
    "rdma_ucm",
];

/// Packages of the guest's tools: the shell, `ip` and `rdma`, and the libraries that those two need.
const TOOLS: [&str; 10] = [
    "busybox-static",
    "iproute2",
    "libbpf1",
    "libbsd0",
    "libc6",
    "libcap2",
    "libelf1",
    "libmd0",
    "libmnl0",
    "zlib1g",
];

const INIT: &str = include_str!("guest/init.sh");
const RDMA: &str = include_str!("guest/rdma.sh");

/// Raised when the way the image is made changes without a change of what is listed above.
const FORMAT: &[u8] = b"image 1";

/// A complete image in the cache.
#[derive(Debug)]
pub(super) struct Image {
    entry: Entry,
    key: u64,
}

impl Image {
    /// Gives the cached image, made on first use.
    pub(super) fn get(cache: &Cache) -> Result<Self, Failure> {
        let lists = [MODULES.join(" "), TOOLS.join(" ")];
        let key = cache::key([
            FORMAT,
            INIT.as_bytes(),
            RDMA.as_bytes(),
            lists[0].as_bytes(),
            lists[1].as_bytes(),
        ]);
        let entry = cache.entry("image", key, |folder| {
            eprintln!("vm: making the guest's image from Debian's packages");
            build(folder)
        })?;
        Ok(Self { entry, key })
    }

    /// Removes the cached image, so that the next [`Image::get`] takes the newest packages.
    pub(super) fn forget(self, cache: &Cache) -> Result<(), Failure> {
        let key = self.key;
        drop(self);
        cache.forget("image", key)
    }

    /// The kernel, as an ELF file.
    pub(super) fn kernel(&self) -> PathBuf {
        self.entry.file("vmlinux")
    }

    /// The root file system, as a cpio archive.
    pub(super) fn root(&self) -> PathBuf {
        self.entry.file("root.cpio")
    }

    /// What the image is made of, for the key of what is made with it.
    pub(super) fn key(&self) -> u64 {
        self.key
    }
}

fn build(folder: &Path) -> Result<(), Failure> {
    let work = folder.join("unpacked");
    let (kernel_files, tool_files) = (work.join("kernel"), work.join("tools"));
    for path in [&kernel_files, &tool_files] {
        fs::create_dir_all(path).map_err(|error| Failure::io("image", "make", path, &error))?;
    }
    let package = packages::kernel()?;
    let version = package.trim_start_matches("linux-image-").to_owned();
    packages::unpack(&[&package], &kernel_files)?;
    packages::unpack(&TOOLS, &tool_files)?;

    let boot = kernel_files.join(format!("boot/vmlinuz-{version}"));
    extract_kernel(&boot, folder)?;
    let modules = Modules::read(&kernel_files.join(format!("lib/modules/{version}")))?;

    let mut archive = Archive::default();
    for path in [
        "bin", "dev", "etc", "host", "lib", "lib64", "modules", "proc", "root", "run", "sbin",
        "sys", "tmp",
    ] {
        archive.directory(path);
    }
    archive.file("init", INIT.as_bytes());
    archive.file("rdma.sh", RDMA.as_bytes());
    let mut order = String::new();
    for (name, content) in modules.in_order(&MODULES)? {
        archive.file(&format!("modules/{name}"), &content);
        order += &format!("{name}\n");
    }
    archive.file("modules/order", order.as_bytes());
    add_tools(&mut archive, &tool_files)?;

    let root = folder.join("root.cpio");
    fs::write(&root, archive.finish())
        .map_err(|error| Failure::io("image", "write", &root, &error))?;
    fs::write(folder.join("kernel-version"), &version)
        .map_err(|error| Failure::io("image", "write", folder, &error))?;
    fs::remove_dir_all(&work).map_err(|error| Failure::io("image", "remove", &work, &error))
}

/// Adds `busybox`, `ip`, `rdma` and each versioned library of the packages.
fn add_tools(archive: &mut Archive, unpacked: &Path) -> Result<(), Failure> {
    let find = |folders: &[&str], name: &str| {
        folders
            .iter()
            .map(|folder| unpacked.join(folder).join(name))
            .find(|path| path.is_file())
            .ok_or_else(|| Failure::new("image", format!("no {name} in the packages of the tools")))
    };
    let programs = ["bin", "sbin", "usr/bin", "usr/sbin"];
    let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
    for (name, place) in [
        ("busybox", "bin/busybox"),
        ("ip", "sbin/ip"),
        ("rdma", "sbin/rdma"),
    ] {
        archive.file(place, &read(&find(&programs, name)?)?);
    }
    let loader = "ld-linux-x86-64.so.2";
    archive.file(
        &format!("lib64/{loader}"),
        &read(&find(&libraries, loader)?)?,
    );
    archive.directory("lib/x86_64-linux-gnu");
    // By soname: links are followed, so that the archive holds each library once under the name it is asked by.
    let mut wanted: BTreeMap<String, PathBuf> = BTreeMap::new();
    for folder in libraries {
        let items = fs::read_dir(unpacked.join(folder))
            .into_iter()
            .flatten()
            .flatten();
        for path in items.map(|item| item.path()) {
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let soname = name
                .split_once(".so.")
                .is_some_and(|(_, version)| !version.contains('.'));
            if soname && name != loader && path.is_file() {
                wanted.insert(name, path);
            }
        }
    }
    for (name, path) in wanted {
        archive.file(&format!("lib/x86_64-linux-gnu/{name}"), &read(&path)?);
    }
    Ok(())
}

/// The modules of one kernel by name, with `-` written as `_`.
struct Modules {
    files: BTreeMap<String, PathBuf>,
    builtin: Vec<String>,
}

impl Modules {
    fn read(folder: &Path) -> Result<Self, Failure> {
        let mut files = BTreeMap::new();
        let mut open = vec![folder.to_owned()];
        while let Some(next) = open.pop() {
            let items = fs::read_dir(&next)
                .map_err(|error| Failure::io("modules", "list", &next, &error))?;
            for path in items.flatten().map(|item| item.path()) {
                if path.is_dir() {
                    open.push(path);
                } else if let Some(name) = module_name(&path) {
                    files.insert(name, path);
                }
            }
        }
        let builtin = String::from_utf8_lossy(&read(&folder.join("modules.builtin"))?)
            .lines()
            .filter_map(|line| module_name(Path::new(line)))
            .collect();
        Ok(Self { files, builtin })
    }

    /// The contents of the named modules and of all that they depend on, each after what it needs.
    fn in_order(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>, Failure> {
        let mut order = Vec::new();
        for name in names {
            self.add(name, &mut order)?;
        }
        Ok(order)
    }

    fn add(&self, name: &str, order: &mut Vec<(String, Vec<u8>)>) -> Result<(), Failure> {
        let name = name.replace('-', "_");
        let file = format!("{name}.ko");
        if order.iter().any(|(done, _)| *done == file) || self.builtin.contains(&name) {
            return Ok(());
        }
        let Some(path) = self.files.get(&name) else {
            return Err(Failure::new("modules", format!("the kernel has no {name}")));
        };
        let content = match path.extension() {
            Some(ext) if ext == "xz" => decompress("xz", path)?,
            _ => read(path)?,
        };
        for dependency in dependencies(&content) {
            self.add(&dependency, order)?;
        }
        order.push((file, content));
        Ok(())
    }
}

/// `veth` of `…/veth.ko` and `…/veth.ko.xz`; `None` of anything else.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy().into_owned();
    let stem = name
        .strip_suffix(".ko")
        .or_else(|| name.strip_suffix(".ko.xz"))?;
    Some(stem.replace('-', "_"))
}

/// What a module's `depends=` entry names. The entries of `.modinfo` are strings ended by zeros.
fn dependencies(module: &[u8]) -> Vec<String> {
    module
        .split(|byte| *byte == 0)
        .find_map(|text| text.strip_prefix(b"depends="))
        .map(|list| String::from_utf8_lossy(list).into_owned())
        .unwrap_or_default()
        .split(',')
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Takes the ELF file out of a `bzImage`, since the emulator's small machine boots it without a firmware's help.
///
/// The fields are those of the kernel's `Documentation/arch/x86/boot.rst`: `setup_sects` at 0x1f1, `payload_offset` at
/// 0x248 and `payload_length` at 0x24c. The last four bytes of the payload are its unpacked length.
fn extract_kernel(boot: &Path, folder: &Path) -> Result<(), Failure> {
    let bytes = read(boot)?;
    let payload = payload(&bytes)
        .ok_or_else(|| Failure::new("kernel", format!("{} is no bzImage", boot.display())))?;
    let program = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', ..] => "xz",
        [0x1f, 0x8b, ..] => "gzip",
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        _ => {
            return Err(Failure::new(
                "kernel",
                format!("{} has a payload of an unknown form", boot.display()),
            ));
        }
    };
    let packed = folder.join("payload");
    fs::write(&packed, payload).map_err(|error| Failure::io("kernel", "write", &packed, &error))?;
    let kernel = decompress(program, &packed)?;
    if !kernel.starts_with(b"\x7fELF") {
        return Err(Failure::new(
            "kernel",
            "the unpacked kernel is no ELF file".to_owned(),
        ));
    }
    let path = folder.join("vmlinux");
    fs::write(&path, kernel).map_err(|error| Failure::io("kernel", "write", &path, &error))?;
    fs::remove_file(&packed).map_err(|error| Failure::io("kernel", "remove", &packed, &error))
}

fn payload(bytes: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| -> Option<usize> {
        let field = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(field)).ok()
    };
    let sectors = match *bytes.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let from = (sectors + 1) * 512 + word(0x248)?;
    let length = word(0x24c)?.checked_sub(4)?;
    bytes.get(from..from.checked_add(length)?)
}

fn decompress(program: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    let input =
        fs::File::open(path).map_err(|error| Failure::io("kernel", "open", path, &error))?;
    let output = Command::new(program)
        .arg("-dc")
        .stdin(Stdio::from(input))
        .output()
        .map_err(|error| Failure::new("kernel", format!("{program} doesn't run: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::new(
        "kernel",
        format!("{program} of {}: {}", path.display(), said.trim()),
    ))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::io("image", "read", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_module_information() {
        let check = |module: &[u8], expected: &[&str]| assert_eq!(dependencies(module), expected);
        check(
            b"\0license=GPL\0depends=ib_core,udp_tunnel\0name=x\0",
            &["ib_core", "udp_tunnel"],
        );
        check(b"\0depends=\0name=x\0", &[]);
        check(b"\0xdepends=no\0depends=yes\0", &["yes"]);
        check(b"nothing", &[]);
    }

    #[test]
    fn names_of_modules() {
        let check = |path: &str, name: Option<&str>| {
            assert_eq!(module_name(path.as_ref()).as_deref(), name)
        };
        check("a/crc32-pclmul.ko", Some("crc32_pclmul"));
        check("a/veth.ko.xz", Some("veth"));
        check("a/modules.order", None);
    }

    #[test]
    fn the_payload_is_found_and_a_cut_image_is_refused() {
        let mut image = vec![0; 2 * 512 + 0x10];
        image[0x1f1] = 1;
        image[0x248] = 0x10;
        image[0x24c] = 7;
        image.extend_from_slice(b"abc\x03\0\0\0");
        assert_eq!(payload(&image), Some(b"abc".as_slice()));
        assert_eq!(payload(&image[..image.len() - 5]), None);
        assert_eq!(payload(&[]), None);
    }
}
