//! `cargo xtask planted [--quick] [--only NAME]...`: plants known faults one by one and holds the named test to turning red.
//!
//! Each `tests/planted/NAME.patch` has a head, a line `---`, and a patch:
//!
//! ```text
//! fault: What is wrong with the patched code, as a sentence.
//! test: PACKAGE TARGET NAME    (TARGET is `lib` or the name of a test target)
//! loom: yes                    (optional: a model, built with `--cfg loom`)
//! quick: yes                   (optional: part of every run of ci)
//! set: VARIABLE=VALUE          (optional: for the test)
//! ```
//!
//! Promises: the checkout is not touched, a copy beneath the target folder is; every named test passes without the fault; a fault
//! counts as caught only if the patch applies, the code compiles, and the named test itself fails. A patch that has gone stale
//! is a failure. Does not do: judge whether the faults are the right ones.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::Verdict;
use crate::context::Context;
use crate::error::{Error, Result};

const FOLDER: &str = "tests/planted";
/// A named test that runs longer hangs.
const LIMIT: Duration = Duration::from_secs(180);

pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<Verdict> {
    let chosen = choose(read_all(&context.root)?, arguments)?;
    let bench = Workbench::prepare(context)?;
    println!("faults to plant: {}", chosen.len());
    let mut failed = 0;
    let tests: BTreeSet<&Test> = chosen.iter().map(|planted| &planted.test).collect();
    for test in tests {
        let seen = bench.try_test(test)?;
        if seen != Seen::Passes {
            println!("{}: {seen:?} without any fault", test.name);
            failed += 1;
        }
    }
    for planted in &chosen {
        let seen = bench.with_fault(planted, || bench.try_test(&planted.test))?;
        let verdict = if seen == Seen::Fails {
            "caught"
        } else {
            "NOT CAUGHT"
        };
        println!(
            "{verdict}: {}: {} [{} {} {}: {seen:?}]",
            planted.name,
            planted.fault,
            planted.test.package,
            planted.test.target,
            planted.test.name
        );
        failed += usize::from(seen != Seen::Fails);
    }
    println!("planted: {} faults, {failed} problems", chosen.len());
    Ok(if failed == 0 {
        Verdict::Passed
    } else {
        Verdict::Failed
    })
}

/// One fault and the test that must find it.
#[derive(Debug)]
struct Planted {
    name: String,
    fault: String,
    test: Test,
    quick: bool,
    patch: String,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    package: String,
    target: String,
    name: String,
    loom: bool,
    set: Option<(String, String)>,
}

/// What became of a named test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    DoesNotApply,
    DoesNotCompile,
    Fails,
    Hangs,
    IsMissing,
    Passes,
}

fn read_all(root: &Path) -> Result<Vec<Planted>> {
    let folder = root.join(FOLDER);
    let entries =
        fs::read_dir(&folder).map_err(|error| Error::new(format!("read {FOLDER}"), error))?;
    let mut all = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|error| Error::new(format!("read {FOLDER}"), error))?
            .path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some(stem), true) = (stem, path.extension().is_some_and(|end| end == "patch")) {
            let text = fs::read_to_string(&path)
                .map_err(|error| Error::new(format!("read {}", path.display()), error))?;
            all.push(parse(stem, &text)?);
        }
    }
    all.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(all)
}

fn parse(name: &str, text: &str) -> Result<Planted> {
    let wrong = |what: &str| Error::new(format!("read {FOLDER}/{name}.patch"), what);
    let (head, patch) = text
        .split_once("\n---\n")
        .ok_or_else(|| wrong("no line `---` ends the head"))?;
    let mut fields = BTreeMap::new();
    for line in head.lines() {
        let (key, value) = line
            .split_once(": ")
            .ok_or_else(|| wrong(&format!("the head line {line:?} is no `KEY: VALUE`")))?;
        if !["fault", "loom", "quick", "set", "test"].contains(&key) {
            return Err(wrong(&format!("the head has no key `{key}`")));
        }
        if fields.insert(key, value).is_some() {
            return Err(wrong(&format!("the head has `{key}` twice")));
        }
    }
    let fault = fields
        .get("fault")
        .ok_or_else(|| wrong("the head has no `fault`"))?;
    let test = fields
        .get("test")
        .ok_or_else(|| wrong("the head names no `test`"))?;
    let [package, target, test_name] = test.split(' ').collect::<Vec<_>>()[..] else {
        return Err(wrong("`test` is PACKAGE TARGET NAME"));
    };
    let flag = |key: &str| match fields.get(key) {
        None => Ok(false),
        Some(&"yes") => Ok(true),
        Some(value) => Err(wrong(&format!(
            "`{key}` is `yes` or not there, not {value:?}"
        ))),
    };
    let set = fields.get("set").map(|set| {
        set.split_once('=')
            .map(|(variable, value)| (variable.to_owned(), value.to_owned()))
            .ok_or_else(|| wrong("`set` is VARIABLE=VALUE"))
    });
    Ok(Planted {
        name: name.to_owned(),
        fault: (*fault).to_owned(),
        test: Test {
            package: package.to_owned(),
            target: target.to_owned(),
            name: test_name.to_owned(),
            loom: flag("loom")?,
            set: set.transpose()?,
        },
        quick: flag("quick")?,
        patch: patch.to_owned(),
    })
}

fn choose(all: Vec<Planted>, arguments: &[String]) -> Result<Vec<Planted>> {
    let mut only = BTreeSet::new();
    let mut quick = false;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match (word.as_str(), words.as_slice().first()) {
            ("--quick", _) => quick = true,
            ("--only", Some(name)) => {
                if !all.iter().any(|planted| planted.name == **name) {
                    let names: Vec<&str> = all.iter().map(|planted| &*planted.name).collect();
                    let text =
                        format!("no fault is named {name:?}; there are {}", names.join(", "));
                    return Err(Error::usage(text));
                }
                only.insert(name.clone());
                words.next();
            }
            _ => {
                let text = "usage: cargo xtask planted [--quick] [--only NAME]...";
                return Err(Error::usage(format!("cannot read {word:?}; {text}")));
            }
        }
    }
    let chosen: Vec<Planted> = all
        .into_iter()
        .filter(|planted| only.is_empty() || only.contains(&planted.name))
        .filter(|planted| !quick || planted.quick)
        .collect();
    if chosen.is_empty() {
        return Err(Error::usage("no fault is chosen"));
    }
    Ok(chosen)
}

/// The copy in which faults are planted.
struct Workbench<'a> {
    context: &'a Context,
    tree: PathBuf,
}

impl<'a> Workbench<'a> {
    /// Copies what git knows or would know. Files that are already the same keep their times, so that little is rebuilt.
    fn prepare(context: &'a Context) -> Result<Self> {
        let tree = context.target.join("planted/tree");
        let listed = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(&context.root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| Error::new("list the files of the checkout", error))?;
        if !listed.status.success() {
            return Err(Error::new("list the files of the checkout", listed.status));
        }
        let text = String::from_utf8_lossy(&listed.stdout);
        let names: BTreeSet<PathBuf> = text
            .split('\0')
            .filter(|name| !name.is_empty())
            .map(PathBuf::from)
            .collect();
        for name in &names {
            let (from, to) = (context.root.join(name), tree.join(name));
            // A file that was deleted but not yet committed is listed, too.
            let Ok(content) = fs::read(&from) else {
                continue;
            };
            if fs::read(&to).is_ok_and(|old| old == content) {
                continue;
            }
            let folder = to.parent().unwrap_or(&tree);
            crate::context::make_folder(folder)?;
            fs::write(&to, content)
                .map_err(|error| Error::new(format!("write {}", to.display()), error))?;
        }
        remove_others(&tree, &tree, &names, &context.root)?;
        Ok(Self { context, tree })
    }

    fn with_fault(&self, planted: &Planted, work: impl FnOnce() -> Result<Seen>) -> Result<Seen> {
        if !self.apply(&planted.patch, &[])? {
            return Ok(Seen::DoesNotApply);
        }
        let seen = work();
        if !self.apply(&planted.patch, &["--reverse"])? {
            return Err(Error::new(
                format!("take the fault {} out again", planted.name),
                "git could not apply the patch in reverse",
            ));
        }
        seen
    }

    fn apply(&self, patch: &str, how: &[&str]) -> Result<bool> {
        let file = self.context.target.join("planted/patch");
        fs::write(&file, patch).map_err(|error| Error::new("write a patch", error))?;
        let status = Command::new("git")
            .arg("apply")
            .args(how)
            .arg(&file)
            .current_dir(&self.tree)
            // Inside a checkout, git would look for the files of that checkout.
            .env(
                "GIT_CEILING_DIRECTORIES",
                self.tree.parent().unwrap_or(&self.tree),
            )
            .status()
            .map_err(|error| Error::new("run git apply", error))?;
        Ok(status.success())
    }

    /// Builds the named test and runs it alone.
    fn try_test(&self, test: &Test) -> Result<Seen> {
        let Some(binary) = self.build(test)? else {
            return Ok(Seen::DoesNotCompile);
        };
        let log = self.context.target.join("planted/log");
        let file = fs::File::create(&log).map_err(|error| Error::new("write a log", error))?;
        let copy = file
            .try_clone()
            .map_err(|error| Error::new("write a log", error))?;
        let mut command = Command::new(binary);
        command
            .args(["--exact", &test.name])
            .current_dir(&self.tree)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(copy);
        if let Some((variable, value)) = &test.set {
            command.env(variable, value);
        }
        let mut child = command
            .spawn()
            .map_err(|error| Error::new(format!("start the test {}", test.name), error))?;
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() > LIMIT => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(Seen::Hangs);
                }
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(Error::new("wait for a test", error)),
            }
        };
        let text = fs::read(&log).map_err(|error| Error::new("read a log", error))?;
        Ok(judge(
            &test.name,
            &String::from_utf8_lossy(&text),
            status.success(),
        ))
    }

    /// The test binary, or `None` if the code does not compile.
    fn build(&self, test: &Test) -> Result<Option<PathBuf>> {
        let folder = if test.loom {
            "planted/loom"
        } else {
            "planted/build"
        };
        let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
        command
            .args([
                "test",
                "--locked",
                "--no-run",
                "--quiet",
                "--message-format",
                "json",
            ])
            .args(["--package", &test.package])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", self.context.target.join(folder))
            .env_remove("CARGO_MANIFEST_DIR");
        if test.target == "lib" {
            command.arg("--lib");
        } else {
            command.args(["--test", &test.target]);
        }
        if test.loom {
            command.env("RUSTFLAGS", "--cfg loom");
        }
        let output = command
            .output()
            .map_err(|error| Error::new("run cargo", error))?;
        if !output.status.success() {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let binary = text.lines().filter_map(executable).next_back();
        binary.map(Some).ok_or_else(|| {
            let step = format!("build the tests {} of {}", test.target, test.package);
            Error::new(step, "cargo named no binary")
        })
    }
}

/// The binary in a message of cargo.
fn executable(line: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    message["executable"].as_str().map(PathBuf::from)
}

fn judge(name: &str, log: &str, success: bool) -> Seen {
    let line = |end: &str| {
        log.lines().any(|line| {
            // A test that prints or panics may come between its name and its verdict.
            line == format!("test {name} ... {end}")
                || line == format!("test {name} - should panic ... {end}")
        })
    };
    let listed = log.contains(&format!("test {name} "));
    let failed = line("FAILED") || log.lines().any(|told| told == format!("    {name}"));
    match (success, listed, failed) {
        (_, false, _) => Seen::IsMissing,
        (true, true, false) => Seen::Passes,
        (false, true, true) => Seen::Fails,
        // It was begun and died, such as by an abort: not a red test but no green one either.
        _ => Seen::Hangs,
    }
}

/// Removes from the copy what the checkout no longer has.
fn remove_others(tree: &Path, folder: &Path, names: &BTreeSet<PathBuf>, root: &Path) -> Result<()> {
    let failed = |error| Error::new(format!("tidy {}", folder.display()), error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            remove_others(tree, &path, names, root)?;
            continue;
        }
        let name = path.strip_prefix(tree).unwrap_or(&path);
        if !names.contains(name) || !root.join(name).exists() {
            fs::remove_file(&path).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "fault: Bad.\ntest: lockgate ledger a_name\nset: A=1\nquick: yes\n---\ndiff\n";

    #[test]
    fn a_head_is_read_in_full() {
        let planted = parse("x", GOOD).unwrap();
        assert_eq!(planted.fault, "Bad.");
        assert_eq!(planted.test.target, "ledger");
        assert_eq!(planted.test.set, Some(("A".to_owned(), "1".to_owned())));
        assert!(planted.quick && !planted.test.loom);
        assert_eq!(planted.patch, "diff\n");
    }

    #[test]
    fn a_wrong_head_says_what_is_wrong() {
        for (old, new, told) in [
            ("\n---\n", "\n", "no line `---`"),
            ("fault: ", "flaw: ", "no key `flaw`"),
            (
                "test: lockgate ledger",
                "test: ledger",
                "PACKAGE TARGET NAME",
            ),
            ("quick: yes", "quick: no", "`quick` is `yes`"),
            ("set: A=1", "set: A", "VARIABLE=VALUE"),
            ("set: A=1", "quick: yes", "`quick` twice"),
            ("fault: Bad.\n", "", "no `fault`"),
            ("test: lockgate ledger a_name\n", "", "no `test`"),
        ] {
            let error = parse("x", &GOOD.replace(old, new)).unwrap_err().to_string();
            assert!(error.contains(told), "{error} should say {told}");
        }
    }

    #[test]
    fn only_the_named_test_decides() {
        let log = "running 1 test\ntest a::b ... FAILED\nfailures:\n    a::b\n";
        assert_eq!(judge("a::b", log, false), Seen::Fails);
        assert_eq!(judge("b", log, false), Seen::IsMissing);
        assert_eq!(judge("a::b", "test a::b ... ok\n", true), Seen::Passes);
        assert_eq!(judge("a::b", "running 0 tests\n", true), Seen::IsMissing);
        // Died in the middle.
        assert_eq!(judge("a::b", "test a::b ... ", false), Seen::Hangs);
    }

    #[test]
    fn every_planted_fault_is_readable_and_there_are_quick_ones() {
        let root = Context::of_this_checkout().unwrap().root;
        let all = read_all(&root).unwrap();
        assert!(all.len() >= 12, "{}", all.len());
        assert!(all.iter().any(|planted| planted.quick));
        let chosen = choose(all, &["--quick".to_owned()]).unwrap();
        assert!(
            chosen
                .iter()
                .all(|planted| planted.quick && !planted.test.loom)
        );
    }

    #[test]
    fn an_unknown_fault_is_a_usage_error_that_lists_the_faults() {
        let all = vec![parse("known", GOOD).unwrap()];
        let error = choose(all, &["--only".to_owned(), "other".to_owned()]).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("known"));
        assert!(
            choose(Vec::new(), &["--fast".to_owned()])
                .unwrap_err()
                .is_usage()
        );
        assert!(choose(Vec::new(), &[]).unwrap_err().is_usage());
    }
}
