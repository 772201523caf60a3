//! The linkage of a binary as text.
//!
//! Promises: fits the width of the screen. Does not do: judging.

use std::io;

use super::{Linkage, VERBS};
use crate::output::Screen;
use crate::verdict;

pub(super) fn print(screen: &mut Screen, linkage: &Linkage) -> io::Result<()> {
    let image = &linkage.image;
    screen.heading(&format!("Linkage of {}", linkage.file.display()))?;
    screen.field("is", image.architecture.text())?;
    if let Some(interpreter) = &image.interpreter {
        screen.field("loaded by", interpreter)?;
    }
    screen.field("NEEDED", list(&image.needed))?;
    if !image.rpath.is_empty() {
        screen.field("RPATH", image.rpath.join(":"))?;
    }
    screen.field("RUNPATH", list(&image.runpath))?;
    for library in &linkage.closure.libraries {
        if library.name == VERBS
            && let Some(found) = &library.search.found
        {
            let text = format!("{} by {}", found.file.display(), found.how.text());
            screen.field("libibverbs", text)?;
        }
    }
    let needs = image.needs.iter().find(|need| need.library == VERBS);
    if let Some(needs) = needs {
        screen.field("versions", list(&needs.versions))?;
    }
    screen.gap()?;
    screen.heading("Verdicts")?;
    verdict::print(screen, &linkage.verdicts)
}

fn list(all: &[String]) -> String {
    if all.is_empty() {
        "none".to_owned()
    } else {
        all.join(", ")
    }
}
