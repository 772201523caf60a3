//! `probe verify-linkage`: how a binary gets at libibverbs, and whether that holds on this host.
//!
//! Promises: only files are read; nothing is loaded, executed or changed. Does not do: telling what a program loads while it runs,
//! beyond the names that it has among its texts.

mod cache;
mod closure;
mod image;
mod judge;
mod search;
mod text;

use std::path::{Path, PathBuf};

use lockgate::{Error, ErrorKind};
use serde::Serialize;

pub(crate) use closure::Closure;
pub(crate) use image::{Image, VERBS};
pub(crate) use search::{Found, Loader, Search, identity};

use crate::cli::VerifyLinkageArgs;
use crate::exit::Exit;
use crate::output::Screen;
use crate::report::{self, Failure};
use crate::verdict::{self, Code, Level, Subject, Verdict};

/// The schema of the documents, in `probe/schema/`.
pub(crate) const SCHEMA: &str = "lockgate.probe.verify-linkage/1";

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Linkage {
    /// The binary.
    pub(crate) file: PathBuf,
    /// What it says of itself.
    pub(crate) image: Image,
    /// What it brings into its process.
    pub(crate) closure: Closure,
    /// What is to be said about that.
    pub(crate) verdicts: Vec<Verdict>,
}

/// Runs the command.
pub(crate) fn run(
    args: &VerifyLinkageArgs,
    screen: &mut Screen,
    json: bool,
) -> Result<Exit, Failure> {
    if let Some(code) = args.explain {
        verdict::explain(screen, code)?;
        return Ok(Exit::Ok);
    }
    let file = match &args.file {
        Some(file) => file.clone(),
        None => std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/proc/self/exe")),
    };
    let linkage = look(&file)?;
    let exit = verdict::exit(&linkage.verdicts);
    if json {
        report::document_as(SCHEMA, screen, "verify-linkage", exit, &linkage)?;
    } else {
        text::print(screen, &linkage)?;
    }
    Ok(exit)
}

fn look(file: &Path) -> Result<Linkage, Failure> {
    let mut loader = Loader::of_this_host();
    let image = match loader.image(file) {
        Ok(image) => image.clone(),
        Err(reason) => {
            return Err(Failure::Library(
                Error::new(ErrorKind::Syntax, "read the binary")
                    .with_object(file.display().to_string())
                    .with_detail(reason.clone())
                    .with_remedy("name an ELF executable or shared library"),
            ));
        }
    };
    let closure = Closure::of(file, &image, &mut loader);
    let verdicts = judge::verdicts(file, &image, &closure);
    Ok(Linkage {
        file: file.to_owned(),
        image,
        closure,
        verdicts,
    })
}

/// A verdict about a file.
fn of_file(file: &Path, code: Code, level: Level, cause: impl Into<String>) -> Verdict {
    let subject = Subject::File(file.display().to_string());
    Verdict::new(code, level, subject, cause)
}
