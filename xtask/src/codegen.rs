//! `cargo xtask codegen [--check]`: the files of this tree that programs write.
//!
//! Promises: with `--check` nothing is written, and a file that is not what its source gives fails and names this command.
//! Does not do: the writing; each file has a program that makes it.

use crate::Verdict;
use crate::context::Context;
use crate::error::{Error, Result};

/// The packages whose programs each write one file and know `--check`.
const GENERATORS: &[&str] = &["lockgate-verbs-binding"];

pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<Verdict> {
    if !matches!(arguments, []) && arguments != ["--check"] {
        return Err(Error::usage("usage: cargo xtask codegen [--check]"));
    }
    let mut verdict = Verdict::Passed;
    for package in GENERATORS {
        let mut command = std::process::Command::new("cargo");
        command
            .args(["run", "--quiet", "--package", package, "--"])
            .args(arguments)
            .current_dir(&context.root);
        let status = command
            .status()
            .map_err(|error| Error::new(format!("run {package}"), error))?;
        if !status.success() {
            verdict = Verdict::Failed;
        }
    }
    Ok(verdict)
}
