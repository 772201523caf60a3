//! `cargo xtask vm -- CMD`: runs a command on a machine with RDMA devices, whatever the host has.
//!
//! The machine is Debian's kernel 6.1 in QEMU, emulated, with two Soft-RoCE devices joined by a veth pair. The command
//! sees the host's own file system below an overlay, so a test binary runs where it lies and nothing that it writes is
//! kept, and its status is this command's.
//!
//! Promises: kernel and tools come from Debian's packages and are kept outside the tree; runs may overlap; each ends its
//! own emulator and no other. Does not do: other machines than x86-64, hosts without `apt`, hardware acceleration.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

mod cache;
mod cpio;
mod image;
mod job;
mod machine;
mod packages;
mod snapshot;
mod suite;

use crate::Verdict;
use crate::context::Context;
use crate::error::{Error, Result};

use cache::Cache;
use image::Image;
use machine::{Ended, Hardware, Machine, Output, Start};
use snapshot::Snapshot;

const USAGE: &str = "\
usage: cargo xtask vm [OPTIONS] [--] CMD [ARG...]
       cargo xtask vm [OPTIONS] --suite [-- TEST-ARG...]

Runs CMD in a virtual machine with two Soft-RoCE devices, rxe0 (10.77.0.1, veth0) and
rxe1 (10.77.0.2, veth1), in the host's file system under a throw-away overlay.

  --suite          build the test suites that need RDMA devices and run them in one boot
  --out DIR        what CMD writes below DIR is kept
  --env NAME       pass this variable on, besides RUST*, CARGO*, LOCKGATE_*, RDMAV_*, IBV_*, UCX_*
  --timeout SECS   limit of CMD (default 120); booting has one of its own
  --memory MIB     the guest's memory (default 1024)
  --cpus N         the guest's processors (default 2)
  --cold           boot, rather than resume the cached snapshot
  --count          boot one processor whose clocks count instructions, one a nanosecond, the kernel's too
  --console        show the guest's kernel messages at the end
  --refresh        first make the image anew from the newest packages

status: CMD's own; 124 time-out; 125 the machine could not be set up; 126, 127 as the shell; 70 the guest died
cache:  $LOCKGATE_VM_CACHE, or lockgate/vm below $XDG_CACHE_HOME or ~/.cache
as a test runner: CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER='cargo xtask vm --' cargo test ...";

/// A boot takes 4 s, and ten times as long on a busy host; now and then one hangs in the emulator.
const BOOT_LIMIT: Duration = Duration::from_secs(90);
const BOOTS: u32 = 3;
/// The rate of a processor whose clock counts instructions: one a nanosecond.
const COUNTING_KHZ: u64 = 1_000_000;

const TIMED_OUT: u8 = 124;
const NOT_SET_UP: u8 = 125;
const DIED: u8 = 70;

/// Why the harness, not the command, failed.
#[derive(Debug)]
struct Failure {
    step: &'static str,
    cause: String,
    remedy: Option<String>,
}

impl Failure {
    fn new(step: &'static str, cause: impl Into<String>) -> Self {
        Self {
            step,
            cause: cause.into(),
            remedy: None,
        }
    }

    fn io(step: &'static str, verb: &str, path: &Path, error: &io::Error) -> Self {
        Self::new(step, format!("{verb} {}: {error}", path.display()))
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.cause)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

/// Runs the command line; what the guest's command ends with is what this process ends with.
///
/// A machine that can't be set up is no error of the caller's kind but the status 125, as the shell's own users expect
/// of a command that runs another one.
pub(crate) fn run(_: &Context, arguments: &[String]) -> Result<Verdict> {
    if matches!(arguments, [only] if only == "--help" || only == "-h") {
        println!("{USAGE}");
        return Ok(Verdict::Passed);
    }
    let options = Options::parse(arguments)
        .map_err(|error| Error::usage(format!("vm: {error}\n\n{USAGE}")))?;
    let status = options.run().unwrap_or_else(|failure| {
        eprintln!("vm: {failure}");
        NOT_SET_UP
    });
    Ok(Verdict::Status(status))
}

/// Why no machine can be had on this host, if none can; what may still fail is not asked.
pub(crate) fn impossible() -> Option<String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Some("the guest needs an x86-64 Linux host".to_owned());
    }
    packages::impossible()
}

#[derive(Debug, PartialEq, Eq)]
struct Options {
    command: Vec<OsString>,
    suite: bool,
    out: Option<PathBuf>,
    variables: Vec<String>,
    timeout: Duration,
    memory_mib: u32,
    processors: u32,
    cold: bool,
    counting: bool,
    console: bool,
    refresh: bool,
}

impl Options {
    fn parse(args: &[String]) -> std::result::Result<Self, String> {
        let mut options = Self {
            command: Vec::new(),
            suite: false,
            out: None,
            variables: Vec::new(),
            timeout: Duration::from_secs(120),
            memory_mib: 1024,
            processors: 2,
            cold: false,
            counting: false,
            console: false,
            refresh: false,
        };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            let mut value = || rest.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--suite" => options.suite = true,
                "--out" => options.out = Some(value()?.into()),
                "--env" => options.variables.push(value()?.clone()),
                "--timeout" => {
                    options.timeout =
                        Duration::from_secs(number(arg, value()?, 1..=86_400)?.into());
                }
                "--memory" => options.memory_mib = number(arg, value()?, 256..=65_536)?,
                "--cpus" => options.processors = number(arg, value()?, 1..=8)?,
                "--cold" => options.cold = true,
                "--count" => options.counting = true,
                "--console" => options.console = true,
                "--refresh" => options.refresh = true,
                "--" => break,
                unknown if unknown.starts_with('-') => {
                    return Err(format!("there is no option {unknown}"));
                }
                command => {
                    options.command.push(command.into());
                    break;
                }
            }
        }
        options.command.extend(rest.map(Into::into));
        if options.command.is_empty() && !options.suite {
            return Err("no command is given".to_owned());
        }
        Ok(options)
    }

    fn run(&self) -> std::result::Result<u8, Failure> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(Failure::new("host", "the guest needs an x86-64 Linux host"));
        }
        let command = if self.suite {
            suite::command(&self.command)?
        } else {
            self.command.clone()
        };
        let cache = Cache::open()?;
        let folder = cache.run_folder()?;
        let mut image = Image::get(&cache)?;
        if self.refresh {
            image.forget(&cache)?;
            image = Image::get(&cache)?;
        }
        let hardware = Hardware {
            qemu: packages::qemu()?,
            kernel: image.kernel(),
            root: image.root(),
            processors: if self.counting { 1 } else { self.processors },
            memory_mib: self.memory_mib,
            tsc_khz: if self.counting {
                COUNTING_KHZ
            } else {
                tsc_khz(&cache)?
            },
            counting: self.counting,
        };
        let snapshot = if self.cold || self.counting {
            None
        } else {
            Some(Snapshot::get(&cache, &image, &hardware, folder.path())?)
        };
        let state = snapshot.as_ref().map(Snapshot::state);
        let start = state.as_deref().map_or(Start::Boot, Start::Resume);

        let here = std::env::current_dir()
            .map_err(|error| Failure::new("job", format!("working folder: {error}")))?;
        let script = job::script(&command, &here, std::env::vars_os(), &self.variables);
        let job = folder.path().join("job");
        fs::write(&job, script).map_err(|error| Failure::io("job", "write", &job, &error))?;
        let out = match &self.out {
            Some(path) => {
                fs::create_dir_all(path)
                    .map_err(|error| Failure::io("job", "make", path, &error))?;
                let path = path
                    .canonicalize()
                    .map_err(|error| Failure::io("job", "resolve", path, &error))?;
                Some(path)
            }
            None => None,
        };
        // The device is always there, since a snapshot fits equal hardware only.
        let unused = folder.path().join("unused");
        fs::create_dir(&unused).map_err(|error| Failure::io("job", "make", &unused, &error))?;
        let share = out.as_deref().unwrap_or(&unused);

        let mut machine = start_machine(&hardware, folder.path(), share, start)?;
        let deadline = Instant::now() + self.timeout;
        let ended = machine.run(&job, out.as_deref(), deadline);
        if self.console {
            eprintln!("{}", machine.last_words());
        }
        match ended {
            Ok(status) => Ok(status),
            Err(Ended::TimedOut) => {
                eprintln!(
                    "vm: no end within {} s\n{}",
                    self.timeout.as_secs(),
                    machine.last_words()
                );
                Ok(TIMED_OUT)
            }
            Err(Ended::Died) => {
                eprintln!("vm: the guest died\n{}", machine.last_words());
                Ok(DIED)
            }
            Err(Ended::Refused(text)) => Err(Failure::new("guest", text)),
        }
    }
}

/// Starts a machine that takes a job. One that doesn't come up is started again: nothing of the caller's has run in it.
fn start_machine(
    hardware: &Hardware,
    folder: &Path,
    share: &Path,
    start: Start<'_>,
) -> std::result::Result<Machine, Failure> {
    let mut last = None;
    for attempt in 1..=BOOTS {
        let folder = folder.join(format!("boot-{attempt}"));
        fs::create_dir(&folder).map_err(|error| Failure::io("machine", "make", &folder, &error))?;
        let mut machine = Machine::start(hardware, &folder, share, start, Output::Inherit, &[])?;
        if matches!(start, Start::Resume(_)) {
            // Saved as it waits for a job; the trial run has shown that it takes one.
            return Ok(machine);
        }
        match machine.wait_ready(Instant::now() + BOOT_LIMIT) {
            Ok(()) => return Ok(machine),
            Err(Ended::Refused(text)) => return Err(Failure::new("guest", text)),
            Err(ended) => {
                let failure = snapshot::describe("boot", &ended, BOOT_LIMIT, &machine);
                eprintln!("vm: attempt {attempt}: {failure}");
                last = Some(failure);
            }
        }
    }
    Err(last.unwrap_or_else(|| Failure::new("boot", "no attempt was made")))
}

fn number(
    option: &str,
    text: &str,
    allowed: std::ops::RangeInclusive<u32>,
) -> std::result::Result<u32, String> {
    match text.parse() {
        Ok(value) if allowed.contains(&value) => Ok(value),
        _ => Err(format!(
            "{option} {text}: a number from {} to {} is wanted",
            allowed.start(),
            allowed.end()
        )),
    }
}

/// The rate of the host's time-stamp counter, which the emulator hands to the guest; measured once per boot of the host.
fn tsc_khz(cache: &Cache) -> std::result::Result<u64, Failure> {
    const SOURCE: &str = include_str!("guest/tsc.c");
    let boot = fs::read("/proc/sys/kernel/random/boot_id")
        .map_err(|error| Failure::new("time", format!("identity of the boot: {error}")))?;
    let key = cache::key([boot.as_slice(), SOURCE.as_bytes()]);
    let entry = cache.entry("tsc", key, |folder| {
        let source = folder.join("tsc.c");
        let program = folder.join("tsc");
        fs::write(&source, SOURCE)
            .map_err(|error| Failure::io("time", "write", &source, &error))?;
        let mut compile = Command::new("cc");
        compile.args(["-O2", "-o"]).arg(&program).arg(&source);
        packages::run(compile, "compilation of the time measurement")
            .map_err(|failure| failure.remedy("install a C compiler, which the shim needs too"))?;
        let khz = packages::run(Command::new(&program), "time measurement")?;
        let path = folder.join("khz");
        fs::write(&path, khz).map_err(|error| Failure::io("time", "write", &path, &error))
    })?;
    let path = entry.file("khz");
    let text =
        fs::read_to_string(&path).map_err(|error| Failure::io("time", "read", &path, &error))?;
    text.trim()
        .parse()
        .map_err(|_| Failure::new("time", format!("{} holds {text:?}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> std::result::Result<Options, String> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let options = parse("--timeout 5 --env A --env B prog --cold -- x").unwrap();
        assert_eq!(options.command, ["prog", "--cold", "--", "x"]);
        assert_eq!(options.timeout, Duration::from_secs(5));
        assert_eq!(options.variables, ["A", "B"]);
        assert!(!options.cold);
        assert!(!options.counting);

        assert!(parse("--count -- prog").unwrap().counting);
        let options = parse("--cold -- --help").unwrap();
        assert_eq!(options.command, ["--help"]);
        assert!(options.cold);
    }

    #[test]
    fn wrong_lines_say_what_is_wrong() {
        let check = |line: &str, says: &str| {
            let error = parse(line).unwrap_err();
            assert!(error.contains(says), "{line}: {error}");
        };
        check("--", "no command");
        check("--cold", "no command");
        check("--frob x", "no option --frob");
        check("--timeout", "--timeout needs a value");
        check("--timeout 0 true", "a number from 1 to 86400");
        check("--memory lots true", "a number from 256 to 65536");
        check("--cpus 99 true", "a number from 1 to 8");
    }

    #[test]
    fn a_suite_needs_no_command() {
        let options = parse("--suite -- --nocapture").unwrap();
        assert!(options.suite);
        assert_eq!(options.command, ["--nocapture"]);
    }
}
