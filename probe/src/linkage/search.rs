//! Where the loader looks for a library, and what it would find.
//!
//! Promises: the order is that of ld.so(8): `DT_RPATH` of the asking file where it has no `DT_RUNPATH`, `LD_LIBRARY_PATH`,
//! `DT_RUNPATH`, the cache, the default folders; files of another architecture are passed over, as the loader does, and told.
//! Does not do: `LD_PRELOAD`, folders for one kind of processor, and C libraries other than GNU's.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::cache::Cache;
use super::image::{Architecture, Image};

/// The loader's view of this host.
pub(crate) struct Loader {
    library_path: Vec<PathBuf>,
    cache: Result<Cache, String>,
    images: HashMap<PathBuf, Result<Image, String>>,
    outlines: HashMap<PathBuf, Result<Image, String>>,
}

/// Why a file was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum How {
    /// `/etc/ld.so.cache`.
    Cache,
    /// One of the folders that are always searched.
    DefaultFolder,
    /// `LD_LIBRARY_PATH`.
    LibraryPath,
    /// The name was a path.
    Path,
    /// `DT_RPATH` of the asking file.
    Rpath,
    /// `DT_RUNPATH` of the asking file.
    Runpath,
}

impl How {
    /// As text has it.
    pub(crate) const fn text(&self) -> &'static str {
        match self {
            Self::Cache => "/etc/ld.so.cache",
            Self::DefaultFolder => "a default folder",
            Self::LibraryPath => "LD_LIBRARY_PATH",
            Self::Path => "its path",
            Self::Rpath => "RPATH",
            Self::Runpath => "RUNPATH",
        }
    }
}

/// A file that the loader would take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    /// The path by which it was found.
    pub(crate) path: PathBuf,
    /// The file behind all links.
    pub(crate) file: PathBuf,
    /// Why.
    pub(crate) how: How,
}

/// A file that the loader would pass over, or stop at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Passed {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Why.
    pub(crate) reason: String,
    /// Whether it is of another architecture.
    pub(crate) other_architecture: bool,
}

/// What came of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Search {
    /// What the loader would take.
    pub(crate) found: Option<Found>,
    /// What it would pass over before.
    pub(crate) passed: Vec<Passed>,
}

impl Loader {
    /// The loader as a program started from here would have it.
    pub(crate) fn of_this_host() -> Self {
        let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        Self {
            library_path: folders(&path),
            cache: Cache::read(),
            images: HashMap::new(),
            outlines: HashMap::new(),
        }
    }

    /// What a file says of itself; each is read once.
    pub(crate) fn image(&mut self, path: &Path) -> &Result<Image, String> {
        if !self.images.contains_key(path) {
            self.images.insert(path.to_owned(), Image::read(path));
        }
        &self.images[path]
    }

    /// The same without the traces of libibverbs; each is read once.
    pub(crate) fn outline(&mut self, path: &Path) -> &Result<Image, String> {
        if !self.outlines.contains_key(path) {
            self.outlines.insert(path.to_owned(), Image::outline(path));
        }
        &self.outlines[path]
    }

    /// Looks for a library by name, asked for by a file of this architecture with these run paths.
    pub(crate) fn find(&mut self, name: &str, asker: &Path, by: &Image) -> Search {
        let mut search = Search::default();
        for (how, path) in self.candidates(name, asker, by) {
            if self.take(path, how, by.architecture, &mut search) {
                break;
            }
        }
        search
    }

    fn candidates(&self, name: &str, asker: &Path, by: &Image) -> Vec<(How, PathBuf)> {
        if name.contains('/') {
            return vec![(How::Path, PathBuf::from(name))];
        }
        let origin = asker.canonicalize().unwrap_or_else(|_| asker.to_owned());
        let origin = origin.parent().unwrap_or(Path::new("/")).to_owned();
        let expand = |paths: &[String], how: How| {
            let expanded = paths.iter().map(|path| {
                let origin = origin.to_string_lossy();
                let path = path
                    .replace("${ORIGIN}", &origin)
                    .replace("$ORIGIN", &origin);
                (how.clone(), PathBuf::from(path).join(name))
            });
            expanded.collect::<Vec<_>>()
        };
        let mut all = Vec::new();
        if by.runpath.is_empty() {
            all.extend(expand(&by.rpath, How::Rpath));
        }
        let paths = self.library_path.iter();
        all.extend(paths.map(|folder| (How::LibraryPath, folder.join(name))));
        all.extend(expand(&by.runpath, How::Runpath));
        if let Ok(cache) = &self.cache {
            all.extend(cache.find(name).map(|file| (How::Cache, file.clone())));
        }
        let defaults = default_folders(by.architecture);
        all.extend(
            defaults
                .into_iter()
                .map(|folder| (How::DefaultFolder, Path::new(&folder).join(name))),
        );
        all
    }

    /// Whether the loader would stop here.
    fn take(&mut self, path: PathBuf, how: How, wanted: Architecture, search: &mut Search) -> bool {
        if !path.exists() {
            return false;
        }
        let (reason, other) = match self.outline(&path) {
            Ok(image) if image.architecture == wanted => {
                let file = path.canonicalize().unwrap_or_else(|_| path.clone());
                search.found = Some(Found { path, file, how });
                return true;
            }
            Ok(image) => {
                let is = image.architecture.text();
                (format!("{is}, wanted {}", wanted.text()), true)
            }
            Err(reason) => (reason.clone(), false),
        };
        if !search.passed.iter().any(|passed| passed.path == path) {
            search.passed.push(Passed {
                path,
                reason,
                other_architecture: other,
            });
        }
        // The loader stops at a file that is none of its kind, with an error.
        !other
    }
}

/// The folders of a list such as `LD_LIBRARY_PATH`; an empty part is the working folder.
fn folders(list: &OsStr) -> Vec<PathBuf> {
    if list.is_empty() {
        return Vec::new();
    }
    std::env::split_paths(list)
        .map(|folder| {
            if folder.as_os_str().is_empty() {
                PathBuf::from(".")
            } else {
                folder
            }
        })
        .collect()
}

fn default_folders(architecture: Architecture) -> Vec<String> {
    let triple = match (architecture.machine, architecture.bits) {
        (62, 64) => Some("x86_64-linux-gnu"),
        (183, 64) => Some("aarch64-linux-gnu"),
        (3, 32) => Some("i386-linux-gnu"),
        (21, 64) => Some("powerpc64le-linux-gnu"),
        (243, 64) => Some("riscv64-linux-gnu"),
        (22, 64) => Some("s390x-linux-gnu"),
        _ => None,
    };
    let mut folders = Vec::new();
    if let Some(triple) = triple {
        folders.extend([format!("/lib/{triple}"), format!("/usr/lib/{triple}")]);
    }
    if architecture.bits == 64 {
        folders.extend(["/lib64".to_owned(), "/usr/lib64".to_owned()]);
    }
    folders.extend(["/lib".to_owned(), "/usr/lib".to_owned()]);
    folders
}

/// Device and inode: what makes two paths the same file.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    let data = path.metadata().ok()?;
    Some((data.dev(), data.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_found_as_the_kernel_mapped_it() {
        let exe = Path::new("/proc/self/exe");
        let image = Image::read(exe).unwrap();
        let found = Loader::of_this_host()
            .find("libc.so.6", exe, &image)
            .found
            .unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let file = found.file.to_str().unwrap();
        assert!(maps.contains(file), "{file} is not in {maps}");
    }

    #[test]
    fn the_order_is_rpath_library_path_runpath_defaults() {
        let mut image = Image::read(Path::new("/proc/self/exe")).unwrap();
        let loader = Loader {
            library_path: folders(OsStr::new("/env:")),
            cache: Err("none".to_owned()),
            images: HashMap::new(),
            outlines: HashMap::new(),
        };
        image.rpath = vec!["/r".to_owned()];
        let asker = Path::new("/opt/bin/tool");
        let paths = |image: &Image| -> Vec<String> {
            let all = loader.candidates("x.so", asker, image).into_iter();
            all.map(|(_, path)| path.display().to_string()).collect()
        };
        assert_eq!(paths(&image)[..3], ["/r/x.so", "/env/x.so", "./x.so"]);
        image.runpath = vec!["$ORIGIN/../lib".to_owned()];
        assert_eq!(
            paths(&image)[..3],
            ["/env/x.so", "./x.so", "/opt/bin/../lib/x.so"],
            "RUNPATH hides RPATH and comes behind the environment"
        );
    }
}
