//! What the probe's child process does: load a verbs library, ask it for its devices, try them, and tell each step.
//!
//! # Purpose
//! A library or a provider that crashes or hangs while it is loaded must be a finding, not the end of the probe. So the probe
//! never loads one: it starts itself again with a [`Request`] on the standard input, and reads one [`Event`] per line from the
//! standard output. The last [`Event::Began`] tells where a child ended that did not get to [`Event::Done`].
//!
//! # Threads
//! One: the native libraries are called from the thread that calls [`serve`].
//!
//! # Cleanup
//! Nothing that was loaded is ever unloaded: the process ends instead. What a trial creates it destroys, and each outcome is told.
//!
//! # Errors
//! All are events. [`serve`] fails only where a request can't be read or an event can't be written.
//!
//! # Platform notes
//! Linux. The layouts of `infiniband/verbs.h` that are read here are part of its ABI since 1.1; a test compares them with the header.

mod ffi;
mod protocol;
mod sys;
mod trial;

use std::io::{self, BufRead, Write};

pub use ffi::LAYOUT;
pub use protocol::{Device, Event, MARK, Outcome, Request, Step};

use crate::sys::Verbs;

/// Reads one request from `input`, does it, and writes its events to `output`.
///
/// Loads native code into this process. Call it in a process made for that, never in one that has to survive it.
///
/// # Errors
/// A request that can't be read, or an output that can't be written.
pub fn serve(input: &mut dyn BufRead, output: &mut dyn Write) -> io::Result<()> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    prepare_to_end()?;
    let mut teller = Teller { output };
    let Some(verbs) = load(request.library(), &mut teller)? else {
        return teller.tell(&Event::Done);
    };
    match &request {
        Request::Enumerate { .. } => enumerate(&verbs, &mut teller)?,
        Request::Load { file, .. } => {
            load(file, &mut teller)?;
        }
        Request::Try { devices, .. } => trial::run(&verbs, devices, &mut teller)?,
    }
    teller.tell(&Event::Done)
}

/// A crash here is expected: it must leave no core file, and a parent that ends must take this process with it.
fn prepare_to_end() -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, Signal, setrlimit};
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    setrlimit(Resource::Core, none)?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// Writes events, each at once: what comes after may not return.
struct Teller<'a> {
    output: &'a mut dyn Write,
}

impl Teller<'_> {
    fn tell(&mut self, event: &Event) -> io::Result<()> {
        let text = serde_json::to_string(event)?;
        writeln!(self.output, "{MARK}{text}")?;
        self.output.flush()
    }

    fn began(&mut self, step: Step) -> io::Result<()> {
        self.tell(&Event::Began { step })
    }
}

fn load(file: &str, teller: &mut Teller<'_>) -> io::Result<Option<Verbs>> {
    teller.began(Step::Load {
        file: file.to_owned(),
    })?;
    let loaded = Verbs::load(file);
    teller.tell(&match &loaded {
        Ok(_) => Event::Loaded {
            file: file.to_owned(),
        },
        Err(message) => Event::NotLoaded {
            file: file.to_owned(),
            message: message.clone(),
        },
    })?;
    Ok(loaded.ok())
}

fn enumerate(verbs: &Verbs, teller: &mut Teller<'_>) -> io::Result<()> {
    teller.tell(&Event::Fork {
        state: verbs.fork_state(),
    })?;
    teller.began(Step::Enumerate)?;
    let devices = match verbs.devices() {
        Ok(list) => Ok(list.describe()),
        Err(errno) => Err(errno),
    };
    teller.tell(&match devices {
        Ok(devices) => Event::Enumerated { devices },
        Err(errno) => Event::NotEnumerated { errno },
    })?;
    // Every provider that the enumeration wanted is mapped by now.
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    teller.tell(&Event::Mapped { maps })
}
