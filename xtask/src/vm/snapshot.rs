//! A saved state of the machine at the point where it waits for a job.
//!
//! Promises: a state is kept only after a trial run has resumed from it; it is used only with the hardware, image and
//! emulator that made it. Does not do: saving a machine that has seen a job, since its shares can't be saved.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cache::{self, Cache, Entry};
use super::machine::{Ended, Hardware, Machine, Output, Start};
use super::{Failure, Image};

/// Time for saving, which boots, and for the trial run, each.
const LIMIT: Duration = super::BOOT_LIMIT;

/// A state that doesn't resume is thrown away and made again this often.
const ATTEMPTS: u32 = 3;

/// A complete saved state in the cache.
#[derive(Debug)]
pub(super) struct Snapshot {
    entry: Entry,
}

impl Snapshot {
    /// Gives the cached state, made on first use.
    pub(super) fn get(
        cache: &Cache,
        image: &Image,
        hardware: &Hardware,
        folder: &Path,
    ) -> Result<Self, Failure> {
        let key = key(image, hardware)?;
        let entry = cache.entry("snapshot", key, |draft| {
            eprintln!("vm: saving a snapshot of the booted guest");
            let mut last = None;
            for attempt in 1..=ATTEMPTS {
                let scratch = folder.join(format!("snapshot-{attempt}"));
                fs::create_dir(&scratch)
                    .map_err(|error| Failure::io("snapshot", "make", &scratch, &error))?;
                let state = draft.join("state");
                match save(hardware, &scratch, &state)
                    .and_then(|()| try_out(hardware, &scratch, &state))
                {
                    Ok(()) => return Ok(()),
                    Err(failure) => {
                        eprintln!("vm: attempt {attempt}: {failure}");
                        last = Some(failure);
                    }
                }
            }
            Err(last.unwrap_or_else(|| Failure::new("snapshot", "no attempt was made")))
        })?;
        Ok(Self { entry })
    }

    /// The file that a machine resumes from.
    pub(super) fn state(&self) -> PathBuf {
        self.entry.file("state")
    }
}

fn key(image: &Image, hardware: &Hardware) -> Result<u64, Failure> {
    // The emulator's own version is told by its file: running it to ask would cost a tenth of a resumed run.
    let qemu = fs::metadata(&hardware.qemu)
        .map_err(|error| Failure::io("snapshot", "look at", &hardware.qemu, &error))?;
    let modified = qemu
        .modified()
        .ok()
        .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
        .map_or(0, |time| time.as_secs());
    let numbers = [
        image.key(),
        u64::from(hardware.processors),
        u64::from(hardware.memory_mib),
        // A measured rate scatters by a few kHz between boots of the host; the guest doesn't mind.
        hardware.tsc_khz / 1000,
        qemu.len(),
        modified,
    ];
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    Ok(cache::key([
        // The machine's make is part of what a state fits to.
        include_bytes!("machine.rs").as_slice(),
        &bytes,
    ]))
}

/// Boots a machine to the point where it waits for a job and writes its state to `state`.
fn save(hardware: &Hardware, folder: &Path, state: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + LIMIT;
    let folder = &folder.join("save");
    let share = &folder.join("share");
    fs::create_dir_all(share).map_err(|error| Failure::io("snapshot", "make", share, &error))?;
    let socket = folder.join("monitor");
    let listener = UnixListener::bind(&socket)
        .map_err(|error| Failure::io("snapshot", "bind", &socket, &error))?;
    let mut machine = Machine::start(
        hardware,
        folder,
        share,
        Start::Boot,
        Output::Discard,
        &["-qmp", "unix:monitor"],
    )?;
    machine
        .wait_ready(deadline)
        .map_err(|ended| describe("boot", &ended, LIMIT, &machine))?;
    // The emulator connects before it runs the guest, so this doesn't wait once the guest has spoken.
    let (stream, _) = listener
        .accept()
        .map_err(|error| Failure::io("snapshot", "accept at", &socket, &error))?;
    let mut monitor = Monitor::greet(stream)?;
    // The guest runs on until the emulator stops it to save the last pages: one that was stopped before would stay
    // stopped after the resume too.
    monitor.ask(
        "migrate-set-parameters",
        &json!({"max-bandwidth": 1_u64 << 40}),
    )?;
    monitor.ask(
        "migrate-set-capabilities",
        &json!({"capabilities": [{"capability": "events", "state": true}]}),
    )?;
    // Into the emulator's own folder, so that no path goes through a shell.
    monitor.ask("migrate", &json!({"uri": "exec:cat > state"}))?;
    monitor.wait_migrated()?;
    drop(machine);
    fs::rename(folder.join("state"), state)
        .map_err(|error| Failure::io("snapshot", "put in place", state, &error))
}

/// Resumes from `state` and lets the guest run a job that ends with a status of its own.
fn try_out(hardware: &Hardware, folder: &Path, state: &Path) -> Result<(), Failure> {
    const STATUS: u8 = 42;
    let deadline = Instant::now() + LIMIT;
    let folder = &folder.join("trial");
    let share = &folder.join("share");
    fs::create_dir_all(share).map_err(|error| Failure::io("snapshot", "make", share, &error))?;
    let job = folder.join("job");
    fs::write(&job, format!("exit {STATUS}\n"))
        .map_err(|error| Failure::io("snapshot", "write", &job, &error))?;
    let mut machine = Machine::start(
        hardware,
        folder,
        share,
        Start::Resume(state),
        Output::Discard,
        &[],
    )?;
    match machine.run(&job, None, deadline) {
        Ok(STATUS) => Ok(()),
        Ok(status) => Err(Failure::new(
            "trial of the snapshot",
            format!("the job ended with {status} and not with {STATUS}"),
        )),
        Err(ended) => Err(describe("trial of the snapshot", &ended, LIMIT, &machine)),
    }
}

pub(super) fn describe(
    step: &'static str,
    ended: &Ended,
    limit: Duration,
    machine: &Machine,
) -> Failure {
    let cause = match ended {
        Ended::TimedOut => format!("no end within {} s", limit.as_secs()),
        Ended::Died => "the guest died".to_owned(),
        Ended::Refused(text) => format!("the guest says: {text}"),
    };
    Failure::new(step, format!("{cause}\n{}", machine.last_words()))
}

/// The emulator's monitor, which speaks one JSON value a line.
struct Monitor {
    read: BufReader<UnixStream>,
    write: UnixStream,
}

impl Monitor {
    fn greet(stream: UnixStream) -> Result<Self, Failure> {
        let io = |error: std::io::Error| Failure::new("monitor", error.to_string());
        stream.set_read_timeout(Some(LIMIT)).map_err(io)?;
        let write = stream.try_clone().map_err(io)?;
        let mut monitor = Self {
            read: BufReader::new(stream),
            write,
        };
        monitor.next()?; // Its version.
        monitor.ask("qmp_capabilities", &json!({}))?;
        Ok(monitor)
    }

    fn next(&mut self) -> Result<Value, Failure> {
        let mut line = String::new();
        let got = self
            .read
            .read_line(&mut line)
            .map_err(|error| Failure::new("monitor", error.to_string()))?;
        if got == 0 {
            return Err(Failure::new("monitor", "the emulator closed it"));
        }
        serde_json::from_str(&line)
            .map_err(|error| Failure::new("monitor", format!("{error} in {line}")))
    }

    /// Runs a command and waits for its answer; events in between are skipped.
    fn ask(&mut self, command: &str, arguments: &Value) -> Result<(), Failure> {
        let line = json!({"execute": command, "arguments": arguments}).to_string();
        writeln!(self.write, "{line}")
            .map_err(|error| Failure::new("monitor", error.to_string()))?;
        loop {
            let answer = self.next()?;
            if let Some(error) = answer.get("error") {
                return Err(Failure::new("monitor", format!("{command}: {error}")));
            }
            if answer.get("return").is_some() {
                return Ok(());
            }
        }
    }

    fn wait_migrated(&mut self) -> Result<(), Failure> {
        loop {
            let event = self.next()?;
            if event["event"] != "MIGRATION" {
                continue;
            }
            match event["data"]["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    return Err(Failure::new("monitor", format!("saving: {event}")));
                }
                _ => {}
            }
        }
    }
}
