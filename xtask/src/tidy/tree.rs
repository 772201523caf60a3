//! The files that tidy looks at, read once.
//!
//! Promises: every file that git tracks or would track, also before it is committed; without git, every file outside
//! `target` folders and `.git`. Files that are not UTF-8 are there, without text. Does not do: follow links.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::steps::Invocation;

/// Paths from the root of the checkout, with `/`, and the text of each file.
pub(super) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    pub(super) fn of_checkout(root: &Path) -> Result<Self> {
        let paths = match tracked(root) {
            Some(paths) => paths,
            None => {
                let mut paths = Vec::new();
                walk(root, "", &mut paths)?;
                paths
            }
        };
        let mut files = BTreeMap::new();
        for path in paths {
            let full = root.join(&path);
            // A file that was removed but is still in git's index has nothing to check.
            let Ok(kind) = full.symlink_metadata() else {
                continue;
            };
            if kind.is_file() {
                let bytes = std::fs::read(&full)
                    .map_err(|error| Error::new(format!("read {path}"), error))?;
                files.insert(path, String::from_utf8(bytes).ok());
            }
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        Self {
            files: files
                .iter()
                .map(|&(path, text)| (path.to_owned(), Some(text.to_owned())))
                .collect(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// The text of one file.
    pub(super) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path)?.as_deref()
    }

    /// Whether there is such a file, or a folder with files in it.
    pub(super) fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().any(|file| file.starts_with(&folder))
    }

    /// All files that are text.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// All text files whose name ends with one of `extensions`, given without the dot.
    pub(super) fn with_extension(&self, extensions: &[&str]) -> impl Iterator<Item = (&str, &str)> {
        self.texts()
            .filter(move |(path, _)| extensions.contains(&extension(path)))
    }
}

pub(super) fn extension(path: &str) -> &str {
    name(path)
        .rsplit_once('.')
        .map_or("", |(_, extension)| extension)
}

pub(super) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Recorded input and output of tests: kept byte for byte, whatever it looks like.
pub(super) fn is_recorded(path: &str) -> bool {
    path.split('/')
        .any(|part| matches!(part, "corpus" | "fixtures" | "golden"))
        || matches!(
            extension(path),
            "lock" | "pcap" | "pcapng" | "proptest-regressions" | "stderr"
        )
}

fn tracked(root: &Path) -> Option<Vec<String>> {
    // `.git` is a folder in a clone and a file in a further work tree.
    root.join(".git").exists().then_some(())?;
    let arguments = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let listed = Invocation::new("git", arguments)
        .in_folder(root)
        .output()
        .ok()?;
    let listed = String::from_utf8(listed).ok()?;
    Some(
        listed
            .split('\0')
            .filter(|path| !path.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

fn walk(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<()> {
    let failed = |error| Error::new(format!("list {}", folder.display()), error);
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let kind = entry.file_type().map_err(failed)?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = if prefix.is_empty() {
            name.clone()
        } else {
            format!("{prefix}/{name}")
        };
        if kind.is_dir() && !matches!(name.as_str(), ".git" | "target") {
            walk(&entry.path(), &path, paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;

    #[test]
    fn git_and_the_walk_see_the_same_sources() {
        let root = Context::of_this_checkout().unwrap().root;
        let mut walked = Vec::new();
        walk(&root, "", &mut walked).unwrap();
        let tree = Tree::of_checkout(&root).unwrap();
        for (path, _) in tree.with_extension(&["rs", "toml", "md"]) {
            assert!(walked.iter().any(|other| other == path), "{path}");
        }
        assert!(tree.has("xtask/src/tidy/tree.rs"));
        assert!(!tree.texts().any(|(path, _)| path.starts_with("target/")));
    }

    #[test]
    fn folders_are_there_when_files_are_in_them() {
        let tree = Tree::of(&[("a/b/c.md", "")]);
        assert!(tree.has("a/b") && tree.has("a/") && tree.has("a/b/c.md") && tree.has(""));
        assert!(!tree.has("a/b/c") && !tree.has("b"));
    }

    #[test]
    fn recorded_files_are_told_by_folder_or_extension() {
        assert!(
            is_recorded("tests/fixtures/a.txt")
                && is_recorded("x/ui/a.stderr")
                && is_recorded("Cargo.lock")
        );
        assert!(!is_recorded("tests/src/fixtures.rs"));
    }
}
