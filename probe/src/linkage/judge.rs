//! What is to be said about the linkage of a binary, from what was read.
//!
//! Promises: judges only what it is given. Does not do: reading files.

use std::path::Path;

use super::closure::{Closure, Library, is_the_library};
use super::image::{Image, VERBS, VERBS_UNVERSIONED};
use super::of_file;
use super::search::Passed;
use crate::verdict::{Code, Level, Verdict};

/// Causes before effects.
pub(super) fn verdicts(file: &Path, image: &Image, closure: &Closure) -> Vec<Verdict> {
    let mut all = Vec::new();
    all.extend(closure.missing().map(|library| missing(file, library)));
    all.extend(versions(file, closure));
    let copies = &closure.verbs_copies;
    let inside = image.verbs.copy && !is_the_library(image);
    if copies.len() > 1 {
        let names = copies.iter().map(|copy| copy.display().to_string());
        all.push(
            of_file(
                file,
                Code::LibraryTwoCopies,
                Level::Failure,
                format!(
                    "{} copies of libibverbs come into the process",
                    copies.len()
                ),
            )
            .saw_all(names)
            .remedy("link one shared libibverbs.so.1, and nothing that has a copy within"),
        );
    } else if inside {
        all.push(
            of_file(
                file,
                Code::LibraryStatic,
                Level::Failure,
                "a copy of libibverbs is linked into the file; it finds no drivers",
            )
            .saw(format!(
                "NEEDED has no {VERBS}, and the file has the library's own entries or texts"
            ))
            .remedy("link the shared library: -libverbs, without -static"),
        );
    }
    let needs = image.needed.iter().any(|name| name == VERBS);
    if needs {
        let sound = all.iter().all(|verdict| verdict.level != Level::Failure);
        if let Some(found) = closure
            .library(VERBS)
            .and_then(|one| one.search.found.as_ref())
            && sound
        {
            all.push(
                of_file(
                    file,
                    Code::LinkageOk,
                    Level::Ok,
                    format!("linked with {VERBS}, and all that it needs is there"),
                )
                .saw(format!("{} by {}", found.file.display(), found.how.text())),
            );
        }
    } else if !image.verbs.uses.is_empty() {
        let through = closure.library(VERBS).is_some();
        all.push(not_needed(file, image, through));
    } else if !inside && !is_the_library(image) {
        all.push(without(file, image, closure));
    }
    all
}

fn missing(file: &Path, library: &Library) -> Verdict {
    let passed = library.search.passed.iter();
    let other = passed.clone().any(|one| one.other_architecture);
    let verbs = library.name == VERBS;
    let (code, cause) = match (other, verbs) {
        (true, _) => (
            Code::LibraryWrongArch,
            format!("{} is there for another architecture only", library.name),
        ),
        (false, true) => (Code::LibraryMissing, format!("the loader finds no {VERBS}")),
        (false, false) => (
            Code::LinkageMissing,
            format!("the loader does not find {}", library.name),
        ),
    };
    of_file(file, code, Level::Failure, cause)
        .saw(format!("needed by {}", library.needed_by.display()))
        .saw_all(passed.map(Passed::text))
        .remedy(if verbs {
            "install the library: Debian and Ubuntu libibverbs1, Fedora and RHEL libibverbs"
                .to_owned()
        } else {
            format!(
                "install the package that has {}, or name its folder in the run path",
                library.name
            )
        })
}

impl Passed {
    /// As evidence has it.
    pub(crate) fn text(&self) -> String {
        format!("passed over {}: {}", self.path.display(), self.reason)
    }
}

fn versions(file: &Path, closure: &Closure) -> Vec<Verdict> {
    let missing = closure.missing_versions.iter();
    missing
        .map(|missing| {
            of_file(
                file,
                Code::LinkageVersions,
                Level::Failure,
                format!("{} lacks {}", missing.library, missing.versions.join(", ")),
            )
            .saw(format!("needed by {}", missing.needed_by.display()))
            .saw(format!("found {}", missing.file.display()))
            .remedy("install the version that it was built with, or build it on this host")
        })
        .collect()
}

fn not_needed(file: &Path, image: &Image, through: bool) -> Verdict {
    let some: Vec<&str> = image
        .verbs
        .uses
        .iter()
        .take(3)
        .map(String::as_str)
        .collect();
    let more = image.verbs.uses.len().saturating_sub(some.len());
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let (level, cause) = if through {
        (
            Level::Warning,
            format!("uses verbs and has {VERBS} only through another library"),
        )
    } else {
        (
            Level::Failure,
            format!("uses verbs and does not need {VERBS}"),
        )
    };
    of_file(file, Code::LinkageNotNeeded, level, cause)
        .saw(format!("undefined: {}{more}", some.join(", ")))
        .remedy("put -libverbs behind the objects and wrappers that use it on the linker's command line")
}

fn without(file: &Path, image: &Image, closure: &Closure) -> Verdict {
    if closure.library(VERBS).is_some() {
        return of_file(
            file,
            Code::LinkageOk,
            Level::Ok,
            format!("another library brings {VERBS}"),
        );
    }
    if image.verbs.names_it {
        return of_file(
            file,
            Code::LinkageDlopen,
            Level::Note,
            format!("loads {VERBS} while it runs, if at all"),
        )
        .saw(format!("the text {VERBS}, and no such NEEDED"));
    }
    if image.verbs.names_unversioned {
        return of_file(
            file,
            Code::LinkageUnversioned,
            Level::Failure,
            format!("loads {VERBS_UNVERSIONED}, which only the development package has"),
        )
        .saw(format!("the text {VERBS_UNVERSIONED}, and not {VERBS}"))
        .remedy(format!("load {VERBS}"));
    }
    of_file(
        file,
        Code::LinkageNone,
        Level::Note,
        "has nothing to do with libibverbs",
    )
}
