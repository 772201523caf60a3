//! Everything that a binary brings into its process: the libraries it needs, and those that they need.
//!
//! Promises: breadth first and each name once, as the loader does it; every version that is needed is compared with what the file
//! found defines. Does not do: what a program loads while it runs.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::image::{Image, VERBS};
use super::search::{Loader, Search, identity};

/// A library of the closure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Library {
    /// The name it is needed by.
    pub(crate) name: String,
    /// The file that asked first.
    pub(crate) needed_by: PathBuf,
    /// Where it was looked for and found.
    pub(crate) search: Search,
}

/// A version that is needed and not there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct MissingVersion {
    /// Who needs it.
    pub(crate) needed_by: PathBuf,
    /// Of which library.
    pub(crate) library: String,
    /// The file that the loader would take for it.
    pub(crate) file: PathBuf,
    /// The versions.
    pub(crate) versions: Vec<String>,
}

/// What a binary brings into its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Closure {
    /// The libraries, in the loader's order.
    pub(crate) libraries: Vec<Library>,
    /// Versions that are needed and not there.
    pub(crate) missing_versions: Vec<MissingVersion>,
    /// The files that have a copy of libibverbs, the binary itself among them.
    pub(crate) verbs_copies: Vec<PathBuf>,
}

impl Closure {
    /// Follows the needs of a binary, and looks for copies of libibverbs in each file.
    pub(crate) fn of(path: &Path, image: &Image, loader: &mut Loader) -> Self {
        let (mut closure, members) = Self::follow(path, image, loader);
        for (path, outline) in &members {
            let image = if path == members[0].0.as_path() {
                Some(image)
            } else {
                loader.image(path).as_ref().ok()
            };
            closure.copies(path, image.unwrap_or(outline));
        }
        closure
    }

    /// Follows the needs of a binary, and no more.
    pub(crate) fn of_needs(path: &Path, image: &Image, loader: &mut Loader) -> Self {
        Self::follow(path, image, loader).0
    }

    fn follow(path: &Path, image: &Image, loader: &mut Loader) -> (Self, Vec<(PathBuf, Image)>) {
        let mut closure = Self::default();
        let mut members = vec![(path.to_owned(), image.clone())];
        let mut queue: VecDeque<usize> = VecDeque::from([0]);
        while let Some(at) = queue.pop_front() {
            let (asker, by) = members[at].clone();
            for name in &by.needed {
                if closure.libraries.iter().any(|known| known.name == *name) {
                    continue;
                }
                let search = loader.find(name, &asker, &by);
                if let Some(found) = &search.found
                    && let Ok(image) = loader.outline(&found.path)
                {
                    members.push((found.path.clone(), image.clone()));
                    queue.push_back(members.len() - 1);
                }
                closure.libraries.push(Library {
                    name: name.clone(),
                    needed_by: asker.clone(),
                    search,
                });
            }
        }
        for (path, image) in &members {
            closure.compare(path, image, &members);
        }
        (closure, members)
    }

    /// The library of that name.
    pub(crate) fn library(&self, name: &str) -> Option<&Library> {
        self.libraries.iter().find(|library| library.name == name)
    }

    /// Libraries that are needed and were not found.
    pub(crate) fn missing(&self) -> impl Iterator<Item = &Library> {
        let libraries = self.libraries.iter();
        libraries.filter(|library| library.search.found.is_none())
    }

    fn compare(&mut self, path: &Path, image: &Image, members: &[(PathBuf, Image)]) {
        for need in &image.needs {
            let file = self
                .library(&need.library)
                .and_then(|library| library.search.found.as_ref());
            let Some(file) = file.map(|found| found.path.clone()) else {
                continue; // told as missing, or not among the needed ones at all
            };
            let Some((_, defining)) = members.iter().find(|(path, _)| *path == file) else {
                continue;
            };
            // A library without any versions is taken as it is, with a warning of the loader.
            if defining.defines.is_empty() {
                continue;
            }
            let missing = need
                .versions
                .iter()
                .filter(|one| !defining.defines.contains(one));
            let versions: Vec<String> = missing.cloned().collect();
            if !versions.is_empty() {
                self.missing_versions.push(MissingVersion {
                    needed_by: path.to_owned(),
                    library: need.library.clone(),
                    file,
                    versions,
                });
            }
        }
    }

    fn copies(&mut self, path: &Path, image: &Image) {
        let known = |copy: &PathBuf| identity(copy).is_some() && identity(copy) == identity(path);
        if image.verbs.copy && !self.verbs_copies.iter().any(known) {
            let file = path.canonicalize();
            self.verbs_copies
                .push(file.unwrap_or_else(|_| path.to_owned()));
        }
    }
}

/// Whether a file is libibverbs itself, rather than something that has a copy of it within.
pub(crate) fn is_the_library(image: &Image) -> bool {
    image.soname.as_deref() == Some(VERBS)
}
