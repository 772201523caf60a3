//! The cache outside the tree, its locks, and the folder of one run.
//!
//! Promises: what a run uses isn't removed under it; two runs that need the same thing build it once; a folder appears
//! under its final name only when it is complete; what a killed run left behind is swept by the next one. Does not do:
//! knowing what the folders hold.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};

use super::Failure;

/// Entries of the cache that nobody has used for this long are removed when a new one is built.
const KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Names the cache folder; the default is `lockgate/vm` below `XDG_CACHE_HOME` or `~/.cache`.
const VARIABLE: &str = "LOCKGATE_VM_CACHE";

/// The cache folder.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    root: PathBuf,
}

/// A complete entry of the cache, held by a shared lock for as long as this value lives.
#[derive(Debug)]
pub(super) struct Entry {
    path: PathBuf,
    _lock: File,
}

/// The folder of one run; removed on drop.
#[derive(Debug)]
pub(super) struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl Cache {
    /// Finds the cache folder and makes it.
    pub(super) fn open() -> Result<Self, Failure> {
        let base = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let root = if let Some(path) = base(VARIABLE) {
            PathBuf::from(path)
        } else if let Some(path) = base("XDG_CACHE_HOME") {
            PathBuf::from(path).join("lockgate/vm")
        } else if let Some(home) = base("HOME") {
            PathBuf::from(home).join(".cache/lockgate/vm")
        } else {
            return Err(Failure::new("cache", "no folder for it")
                .remedy(format!("set {VARIABLE} to a folder outside the tree")));
        };
        Self::at(&root)
    }

    fn at(root: &Path) -> Result<Self, Failure> {
        fs::create_dir_all(root.join("runs"))
            .map_err(|error| Failure::io("cache", "make", root, &error))?;
        let root = root
            .canonicalize()
            .map_err(|error| Failure::io("cache", "resolve", root, &error))?;
        Ok(Self { root })
    }

    /// Gives the entry `kind-key`, built by `build` into an empty folder if it isn't there.
    ///
    /// Only one process builds at a time. `build` may open other entries, but must not build them: the lock is one for
    /// the whole cache.
    pub(super) fn entry(
        &self,
        kind: &str,
        key: u64,
        build: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<Entry, Failure> {
        let path = self.root.join(format!("{kind}-{key:016x}"));
        if let Some(entry) = self.hold(&path)? {
            return Ok(entry);
        }
        let _building = self.lock("lock")?;
        if let Some(entry) = self.hold(&path)? {
            return Ok(entry);
        }
        self.sweep_entries(kind);
        // Named for the process, so that what a killed build left is never taken for ours.
        let draft = self.root.join(format!("draft-{}", process::id()));
        remove(&draft)?;
        fs::create_dir(&draft).map_err(|error| Failure::io("cache", "make", &draft, &error))?;
        let built = build(&draft).and_then(|()| {
            touch(&draft.join("used"))?;
            fs::rename(&draft, &path)
                .map_err(|error| Failure::io("cache", "put in place", &path, &error))
        });
        if let Err(failure) = built {
            remove(&draft)?;
            return Err(failure);
        }
        self.hold(&path)?.ok_or_else(|| {
            Failure::new(
                "cache",
                format!("{} vanished as it was built", path.display()),
            )
        })
    }

    /// Removes the entry `kind-key`, so that the next use builds it anew. Entries in use are left.
    pub(super) fn forget(&self, kind: &str, key: u64) -> Result<(), Failure> {
        let _building = self.lock("lock")?;
        remove_unused(&self.root.join(format!("{kind}-{key:016x}")));
        Ok(())
    }

    /// Makes the folder of a run and sweeps those of dead ones.
    pub(super) fn run_folder(&self) -> Result<RunFolder, Failure> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let runs = self.root.join("runs");
        let _sweeping = self.lock("runs/lock")?;
        for folder in folders(&runs) {
            remove_unused(&folder);
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = runs.join(format!("{}.{number}", process::id()));
        fs::create_dir(&path).map_err(|error| Failure::io("run folder", "make", &path, &error))?;
        let lock = touch(&path.join("used"))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| Failure::io("run folder", "lock", &path, &error.into()))?;
        Ok(RunFolder { path, _lock: lock })
    }

    /// A shared lock on a complete entry, or `None` where there is none.
    fn hold(&self, path: &Path) -> Result<Option<Entry>, Failure> {
        let used = path.join("used");
        let lock = match OpenOptions::new().write(true).open(&used) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::io("cache", "open", &used, &error)),
        };
        flock(&lock, FlockOperation::LockShared)
            .map_err(|error| Failure::io("cache", "lock", &used, &error.into()))?;
        // The sweep may have removed the folder between the open and the lock.
        if !used.exists() {
            return Ok(None);
        }
        // Only the sweep reads this time: a file system that refuses it costs a rebuild after a week.
        let _ = lock.set_modified(SystemTime::now());
        Ok(Some(Entry {
            path: path.to_owned(),
            _lock: lock,
        }))
    }

    fn lock(&self, name: &str) -> Result<File, Failure> {
        let path = self.root.join(name);
        let file = touch(&path)?;
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| Failure::io("cache", "lock", &path, &error.into()))?;
        Ok(file)
    }

    /// Removes old entries of a kind, and drafts, which under the lock can only be those of dead builds.
    fn sweep_entries(&self, kind: &str) {
        for folder in folders(&self.root) {
            let name = folder
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let idle = fs::metadata(folder.join("used"))
                .and_then(|used| used.modified())
                .ok()
                .and_then(|time| time.elapsed().ok());
            if name.starts_with("draft-") {
                let _ = fs::remove_dir_all(&folder);
            } else if name.starts_with(kind) && idle.is_some_and(|idle| idle > KEEP) {
                remove_unused(&folder);
            }
        }
    }
}

impl Entry {
    /// The path of a file in the entry.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl RunFolder {
    /// Where the folder lies.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // What can't be removed now is swept by the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A 64-bit FNV-1a hash over parts, each closed by its length: a name for cache entries, not a protection.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for part in parts {
        let length = (part.len() as u64).to_le_bytes();
        for byte in part.iter().chain(&length) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

fn folders(root: &Path) -> Vec<PathBuf> {
    fs::read_dir(root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|item| item.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Removes a folder unless somebody holds its `used` file.
fn remove_unused(folder: &Path) {
    let Ok(lock) = OpenOptions::new().write(true).open(folder.join("used")) else {
        // Without the file nobody can hold it: it is the rest of an interrupted removal.
        let _ = fs::remove_dir_all(folder);
        return;
    };
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
        let _ = fs::remove_dir_all(folder);
    }
}

fn remove(folder: &Path) -> Result<(), Failure> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::io("cache", "remove", folder, &error))
        }
        _ => Ok(()),
    }
}

fn touch(path: &Path) -> Result<File, Failure> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|error| Failure::io("cache", "open", path, &error))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn cache() -> (Cache, impl Drop) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        struct Remove(PathBuf);
        impl Drop for Remove {
            fn drop(&mut self) {
                fs::remove_dir_all(&self.0).unwrap();
            }
        }
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root =
            std::env::temp_dir().join(format!("lockgate-cache-test.{}.{number}", process::id()));
        (Cache::at(&root).unwrap(), Remove(root))
    }

    fn write(text: &'static str) -> impl FnOnce(&Path) -> Result<(), Failure> {
        move |folder| {
            fs::write(folder.join("content"), text).unwrap();
            Ok(())
        }
    }

    #[test]
    fn an_entry_is_built_once_and_a_failed_build_leaves_nothing() {
        let (cache, _remove) = cache();
        let failed = cache.entry("a", 1, |_| Err(Failure::new("build", "on purpose")));
        assert!(failed.unwrap_err().to_string().contains("on purpose"));
        assert_eq!(folders(&cache.root), [cache.root.join("runs")]);

        let entry = cache.entry("a", 1, write("first")).unwrap();
        assert_eq!(fs::read_to_string(entry.file("content")).unwrap(), "first");
        let again = cache
            .entry("a", 1, |_| panic!("it is there already"))
            .unwrap();
        assert_eq!(again.file("content"), entry.file("content"));
    }

    #[test]
    fn many_builders_of_one_entry_build_it_once() {
        let (cache, _remove) = cache();
        let built = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    cache
                        .entry("a", 1, |folder| {
                            built.fetch_add(1, Ordering::Relaxed);
                            write("x")(folder)
                        })
                        .unwrap()
                });
            }
        });
        assert_eq!(built.into_inner(), 1);
    }

    #[test]
    fn an_entry_in_use_is_not_forgotten_and_an_unused_one_is() {
        let (cache, _remove) = cache();
        let entry = cache.entry("a", 1, write("x")).unwrap();
        cache.forget("a", 1).unwrap();
        assert!(entry.file("content").exists());
        let content = entry.file("content");
        drop(entry);
        cache.forget("a", 1).unwrap();
        assert!(!content.exists());
    }

    #[test]
    fn the_sweep_takes_old_entries_of_its_kind_only() {
        let (cache, _remove) = cache();
        let old = SystemTime::now() - 2 * KEEP;
        for (kind, key, age) in [("a", 1, true), ("a", 2, false), ("b", 1, true)] {
            let entry = cache.entry(kind, key, write("x")).unwrap();
            if age {
                let used = File::options()
                    .write(true)
                    .open(entry.file("used"))
                    .unwrap();
                used.set_modified(old).unwrap();
            }
        }
        cache.entry("a", 3, write("x")).unwrap();
        let left = |kind: &str, key: u64| cache.root.join(format!("{kind}-{key:016x}")).exists();
        assert!(!left("a", 1));
        assert!(left("a", 2) && left("a", 3) && left("b", 1));
    }

    #[test]
    fn the_folder_of_a_dead_run_is_swept_and_that_of_a_live_one_is_not() {
        let (cache, _remove) = cache();
        let live = cache.run_folder().unwrap();
        let dead = cache.root.join("runs/1.0");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join("used"), "").unwrap();
        let next = cache.run_folder().unwrap();
        assert!(!dead.exists());
        assert!(live.path().exists() && next.path().exists());
        let path = live.path().to_owned();
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn keys_tell_the_borders_of_parts() {
        let of = |parts: &[&str]| key(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["ab"]), of(&["ab", ""]));
        assert_eq!(of(&["ab", "c"]), of(&["ab", "c"]));
    }
}
