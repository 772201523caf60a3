//! The open crates alone: copied out of the workspace under a generated manifest, they build and pass their tests.
//!
//! What a path, a feature or a file of the rest of the checkout lends them is missing in the copy, and shows.
//! Promises: the copy lies outside the checkout and holds the open crates, the manifest made from the workspace's own,
//! its lock file, its lint settings and nothing else; it is removed at the end. The target folder is shared, at a path
//! that is the same for each run of one checkout, so that dependencies are not built twice.
//! Does not do: allow for two such runs of one checkout at a time; the second is refused while the first lives.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::context::{Context, make_folder};
use crate::error::{Error, Result};
use crate::steps::{Invocation, Step};

const OPEN_CRATES: &[&str] = &["oss-core", "providers", "tests/conformance"];
/// Files of the root that belong to every crate.
const COMPANIONS: &[&str] = &[
    "Cargo.lock",
    "clippy.toml",
    "rustfmt.toml",
    "LICENSE-APACHE",
    "LICENSE-MIT",
];
const OWNER: &str = "owner";

/// The copy: nothing is there until its first step runs, and it is removed when this value is dropped.
pub(crate) struct Copy {
    folder: PathBuf,
    workspace: PathBuf,
    /// Whether the folder is this process's to remove.
    claimed: Cell<bool>,
}

impl Copy {
    pub(crate) fn of(context: &Context) -> Self {
        let mut hasher = DefaultHasher::new();
        context.root.hash(&mut hasher);
        let folder = std::env::temp_dir().join(format!("lockgate-alone-{:016x}", hasher.finish()));
        Self {
            workspace: folder.join("open"),
            folder,
            claimed: Cell::new(false),
        }
    }

    /// The steps that make, build and test the copy, and see that its lock file was only shortened.
    pub(crate) fn steps<'a>(&'a self, context: &'a Context) -> Vec<Step<'a>> {
        let step = |name| format!("the open crates alone: {name}");
        vec![
            Step::check("alone", step("copy"), move |_| {
                self.fill(context).map(|()| Vec::new())
            }),
            Step::command(
                "alone",
                step("build"),
                self.cargo(context, &["build", "--workspace"]),
            ),
            Step::tests(
                "alone",
                step("tests"),
                self.cargo(context, &["test", "--workspace", "--no-fail-fast"]),
            ),
            Step::check("alone", step("same dependencies"), move |_| {
                let lock = "Cargo.lock";
                new_packages(
                    &read(&context.root.join(lock))?,
                    &read(&self.workspace.join(lock))?,
                )
            }),
        ]
    }

    fn fill(&self, context: &Context) -> Result<()> {
        claim(&self.folder)?;
        self.claimed.set(true);
        make_folder(&self.workspace)?;
        let manifest = read(&context.root.join("Cargo.toml"))?;
        write(
            &self.workspace.join("Cargo.toml"),
            &open_manifest(&manifest)?,
        )?;
        for file in COMPANIONS {
            write(&self.workspace.join(file), &read(&context.root.join(file))?)?;
        }
        OPEN_CRATES
            .iter()
            .try_for_each(|part| copy_folder(&context.root.join(part), &self.workspace.join(part)))
    }

    fn cargo(&self, context: &Context, arguments: &[&str]) -> Invocation {
        context
            .cargo(arguments)
            .in_folder(&self.workspace)
            .with("CARGO_TARGET_DIR", context.target.to_string_lossy())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        if !self.claimed.get() {
            return;
        }
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("xtask: could not remove {}: {error}", self.folder.display());
        }
    }
}

/// Takes the folder for this process; one that a dead process left is cleared away.
fn claim(folder: &Path) -> Result<()> {
    let taken = std::fs::create_dir(folder);
    if taken
        .as_ref()
        .is_err_and(|error| error.kind() == std::io::ErrorKind::AlreadyExists)
    {
        let owner = std::fs::read_to_string(folder.join(OWNER)).unwrap_or_default();
        if !owner.is_empty() && Path::new("/proc").join(owner.trim()).exists() {
            let text = format!(
                "process {} is at it in {}; wait for it",
                owner.trim(),
                folder.display()
            );
            return Err(Error::new("copy the open crates", text));
        }
        std::fs::remove_dir_all(folder)
            .map_err(|error| Error::new(format!("clear {}", folder.display()), error))?;
        make_folder(folder)?;
    } else {
        taken.map_err(|error| Error::new(format!("make {}", folder.display()), error))?;
    }
    write(&folder.join(OWNER), &std::process::id().to_string())
}

/// The root manifest for the open crates: theirs as members, without the paths to anything else.
fn open_manifest(manifest: &str) -> Result<String> {
    let unreadable = |what: &str| {
        Error::new(
            "make the manifest of the open crates",
            format!("Cargo.toml has no {what}"),
        )
    };
    let mut root: Table = manifest
        .parse()
        .map_err(|error| Error::new("read Cargo.toml", error))?;
    let workspace = root
        .get_mut("workspace")
        .and_then(Value::as_table_mut)
        .ok_or_else(|| unreadable("[workspace]"))?;
    let members = OPEN_CRATES
        .iter()
        .map(|member| Value::from(*member))
        .collect();
    workspace.insert("members".to_owned(), Value::Array(members));
    workspace.remove("default-members");
    workspace.remove("exclude");
    let shared = workspace
        .get_mut("dependencies")
        .and_then(Value::as_table_mut)
        .ok_or_else(|| unreadable("[workspace.dependencies]"))?;
    shared.retain(|_, dependency| {
        dependency
            .get("path")
            .and_then(Value::as_str)
            .is_none_or(|path| OPEN_CRATES.contains(&path))
    });
    toml::to_string(&root)
        .map_err(|error| Error::new("write the manifest of the open crates", error))
}

/// Packages of the copy's lock file that are not in the checkout's.
fn new_packages(whole: &str, part: &str) -> Result<Vec<String>> {
    let (whole, part) = (locked(whole)?, locked(part)?);
    if part.is_empty() {
        return Ok(vec!["the lock file of the copy is empty".to_owned()]);
    }
    Ok(part
        .difference(&whole)
        .map(|package| format!("{package} is not what the checkout locks"))
        .collect())
}

fn locked(lock: &str) -> Result<BTreeSet<String>> {
    let lock: Table = lock
        .parse()
        .map_err(|error| Error::new("read a lock file", error))?;
    let packages = lock
        .get("package")
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let text = |package: &Value, key| {
        package
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Ok(packages
        .iter()
        .map(|package| format!("{} {}", text(package, "name"), text(package, "version")))
        .collect())
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| Error::new(format!("copy {}", from.display()), error);
    make_folder(to)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let target = to.join(entry.file_name());
        // A nested package, such as the fuzzer's workspace, is not part of the crate.
        if kind.is_dir()
            && !entry.path().join("Cargo.toml").exists()
            && entry.file_name() != "target"
        {
            copy_folder(&entry.path(), &target)?;
        } else if kind.is_file() {
            std::fs::copy(entry.path(), &target).map_err(failed)?;
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| Error::new(format!("read {}", path.display()), error))
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text)
        .map_err(|error| Error::new(format!("write {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_filled_and_removed_and_one_never_made_removes_nothing() {
        let context = Context::of_this_checkout().unwrap();
        let folder = std::env::temp_dir().join(format!("lockgate-copy-{}", std::process::id()));
        let copy = || Copy {
            workspace: folder.join("open"),
            folder: folder.clone(),
            claimed: Cell::new(false),
        };
        let filled = copy();
        filled.fill(&context).unwrap();
        for there in [
            "Cargo.toml",
            "Cargo.lock",
            "oss-core/src/lib.rs",
            "tests/conformance/Cargo.toml",
        ] {
            assert!(filled.workspace.join(there).is_file(), "{there}");
        }
        for absent in [
            "probe",
            "xtask",
            "tests/Cargo.toml",
            ".cargo",
            "accelerator-companion",
        ] {
            assert!(!filled.workspace.join(absent).exists(), "{absent}");
        }
        drop(copy());
        assert!(folder.is_dir());
        drop(filled);
        assert!(!folder.exists());
    }

    #[test]
    fn the_generated_manifest_names_the_open_crates_and_no_other_path() {
        let root = Context::of_this_checkout().unwrap().root;
        let manifest: Table = open_manifest(&read(&root.join("Cargo.toml")).unwrap())
            .unwrap()
            .parse()
            .unwrap();
        let workspace = manifest["workspace"].as_table().unwrap();
        assert_eq!(
            workspace["members"].as_array().unwrap().len(),
            OPEN_CRATES.len()
        );
        let shared = workspace["dependencies"].as_table().unwrap();
        assert!(shared.contains_key("lockgate") && !shared.contains_key("lockgate-accel"));
        assert!(workspace.contains_key("lints") && !workspace.contains_key("exclude"));
    }

    #[test]
    fn a_manifest_that_is_no_workspace_is_refused() {
        assert!(
            open_manifest("[package]\nname = \"a\"\n")
                .unwrap_err()
                .to_string()
                .contains("[workspace]")
        );
    }

    #[test]
    fn a_version_that_the_checkout_does_not_lock_is_found() {
        let lock = |packages: &[(&str, &str)]| {
            packages
                .iter()
                .map(|(name, version)| {
                    format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
                })
                .collect::<String>()
        };
        let whole = lock(&[("a", "1.0.0"), ("b", "1.0.0")]);
        assert_eq!(
            new_packages(&whole, &lock(&[("a", "1.0.0")])).unwrap(),
            Vec::<String>::new()
        );
        assert_eq!(
            new_packages(&whole, &lock(&[("a", "1.1.0")])).unwrap(),
            ["a 1.1.0 is not what the checkout locks"]
        );
        assert_eq!(new_packages(&whole, "").unwrap().len(), 1);
    }

    #[test]
    fn a_folder_is_taken_once_and_taken_over_from_the_dead() {
        let folder = std::env::temp_dir().join(format!("lockgate-claim-{}", std::process::id()));
        claim(&folder).unwrap();
        assert!(
            claim(&folder)
                .unwrap_err()
                .to_string()
                .contains("is at it in")
        );
        // No process can have this number: it is above the kernel's limit of 2^22.
        write(&folder.join(OWNER), "4194305").unwrap();
        claim(&folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
