//! Programs that some tests need, and what happens where one is missing.
//!
//! Promises: a test that lacks its equipment never passes in silence. It prints a line `SKIP <group>: <reason>` that the
//! test runner's capture does not swallow, appends it to the file that `LOCKGATE_SKIP_LOG` names, if any, and where
//! `LOCKGATE_REQUIRE` names the group, or says `all`, it fails.
//! Does not do: installing anything.

use std::ffi::OsStr;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Names the groups whose absence is a failure: a list with commas, or `all`.
pub const REQUIRE: &str = "LOCKGATE_REQUIRE";

/// Names the file that collects the lines of all tests of a run.
pub const LOG: &str = "LOCKGATE_SKIP_LOG";

/// Why a group of tests does not run here. The line was printed already; the test returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// What [`REQUIRE`] calls it.
    pub group: String,
    /// What is missing, and what to do about it.
    pub reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIP {}: {}", self.group, self.reason)
    }
}

/// Finds a program on `PATH`. The group has the program's name.
///
/// # Errors
/// A [`Skip`], printed, when it is not there.
///
/// # Panics
/// When it is not there and [`REQUIRE`] asks for it.
pub fn require_tool(tool: &str) -> Result<PathBuf, Skip> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find(tool, &path).ok_or_else(|| {
        skip(
            tool,
            &format!("{tool} is not on PATH; on Debian or Ubuntu: apt-get install {tool}"),
        )
    })
}

/// Says that a group can't run here: prints the line and gives it back.
///
/// # Panics
/// When [`REQUIRE`] asks for the group, or the file that [`LOG`] names can't be written.
pub fn skip(group: &str, reason: &str) -> Skip {
    let skip = Skip {
        group: group.to_owned(),
        reason: reason.to_owned(),
    };
    let required = std::env::var(REQUIRE).unwrap_or_default();
    assert!(
        !is_required(&required, group),
        "{group} is required by {REQUIRE}={required}, and {reason}"
    );
    // The runner captures what the print macros write; this goes past it. A closed stderr is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{skip}");
    if let Some(log) = std::env::var_os(LOG)
        && let Err(error) = append(Path::new(&log), &skip)
    {
        panic!("{LOG}={}: {error}", Path::new(&log).display());
    }
    skip
}

/// Adds one line in one write, so that tests side by side do not mix theirs.
fn append(log: &Path, skip: &Skip) -> std::io::Result<()> {
    let mut file = OpenOptions::new().append(true).create(true).open(log)?;
    file.write_all(format!("{skip}\n").as_bytes())
}

fn is_required(list: &str, group: &str) -> bool {
    list.split(',')
        .map(str::trim)
        .any(|name| name == group || name == "all")
}

fn find(tool: &str, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(tool))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_and_only_that() {
        assert!(
            find("sh", OsStr::new("/nowhere:/bin:/usr/bin")).is_some_and(|sh| sh.ends_with("sh"))
        );
        assert_eq!(find("sh", OsStr::new("/nowhere")), None);
        assert_eq!(
            find("passwd", OsStr::new("/etc")),
            None,
            "a file that is no program"
        );
        assert_eq!(find("bin", OsStr::new("/usr")), None, "a folder");
    }

    #[test]
    fn a_list_names_groups_or_all() {
        assert!(is_required("tshark", "tshark"));
        assert!(is_required("netns, tshark", "tshark"));
        assert!(is_required("all", "tshark"));
        assert!(!is_required("", "tshark"));
        assert!(!is_required("tsharks,shark", "tshark"));
    }

    #[test]
    fn the_line_names_group_and_reason() {
        let skip = Skip {
            group: "tshark".into(),
            reason: "not here".into(),
        };
        assert_eq!(skip.to_string(), "SKIP tshark: not here");

        let log = std::env::temp_dir().join(format!("lockgate-skips-{}", std::process::id()));
        append(&log, &skip).unwrap();
        append(&log, &skip).unwrap();
        let text = std::fs::read_to_string(&log).unwrap();
        std::fs::remove_file(&log).unwrap();
        assert_eq!(text, "SKIP tshark: not here\nSKIP tshark: not here\n");
    }
}
