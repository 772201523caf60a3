//! The process in which libraries are loaded: starting it, reading what it tells, ending it.
//!
//! Promises: this process loads nothing; the child is this binary again, does not outlive this process, and is waited for; how it ended
//! is kept together with the last step that it began. One that sleeps at the limit is ended there; one that computes or waits for a
//! disk may only be slow, as on a busy or an emulated machine, and has [`PATIENCE`] times as long. Does not do: judging.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use lockgate_probe_loader::{Event, MARK, Request, Step};
use serde::Serialize;

use crate::exit::Exit;

/// What a native library says on the standard error is kept up to this many lines.
const MOST_LINES: usize = 200;
/// How long to wait for what a process that has ended left in its pipes.
const GRACE: Duration = Duration::from_millis(200);
/// How many times the limit a child may take that is busy.
const PATIENCE: u32 = 10;
/// Between two looks at a child that sleeps: one that was caught between two steps has gone on by then.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// No line of it is kept longer than this. A list of what is mapped is far below.
const LONGEST_LINE: u64 = 4 << 20;

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "how", rename_all = "kebab-case")]
pub(crate) enum End {
    /// By a signal that it got itself.
    Crashed {
        /// The number.
        signal: i32,
        /// The name, such as `SIGSEGV`.
        name: String,
    },
    /// It did what it was asked.
    Done,
    /// It ended early, by itself.
    Exited {
        /// The status.
        status: i32,
    },
    /// It did not come back, and was ended.
    Hung {
        /// How long it had been given.
        after_ms: u64,
    },
    /// It could not be started.
    NotStarted {
        /// Why.
        reason: String,
    },
}

/// What a child told, and how it ended.
#[derive(Debug)]
pub(crate) struct Account {
    /// Its events, in order.
    pub(crate) events: Vec<Event>,
    /// What was written to the standard error.
    pub(crate) messages: Vec<String>,
    /// How it ended.
    pub(crate) end: End,
}

impl Account {
    /// What it had begun and not told the end of.
    pub(crate) fn open_step(&self) -> Option<&Step> {
        match self.events.last() {
            Some(Event::Began { step }) => Some(step),
            _ => None,
        }
    }

    fn not_started(error: &io::Error) -> Self {
        Self {
            events: Vec::new(),
            messages: Vec::new(),
            end: End::NotStarted {
                reason: error.to_string(),
            },
        }
    }
}

/// The child's side.
pub(crate) fn serve() -> io::Result<Exit> {
    lockgate_probe_loader::serve(&mut io::stdin().lock(), &mut io::stdout().lock())?;
    Ok(Exit::Ok)
}

enum Line {
    Event(Event),
    Message(String),
}

/// Starts a child, hands it a request, and reads until it is done, ends or has reached the limit.
pub(crate) fn ask(request: &Request, limit: Duration) -> Account {
    match start(request) {
        Ok((child, lines)) => follow(child, &lines, limit),
        Err(error) => Account::not_started(&error),
    }
}

fn start(request: &Request) -> io::Result<(std::process::Child, mpsc::Receiver<Line>)> {
    let mut child = Command::new("/proc/self/exe")
        .arg("__loader")
        // Makes the library say which device it has no driver for.
        .env("IBV_SHOW_WARNINGS", "1")
        // What the C library says is kept as evidence, in one language.
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let (sender, lines) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        read(stdout, sender.clone());
    }
    if let Some(stderr) = child.stderr.take() {
        read(stderr, sender);
    }
    if let Some(mut stdin) = child.stdin.take() {
        let text = serde_json::to_string(request)?;
        // A child that ended already tells more by how it ended.
        let _ = writeln!(stdin, "{text}");
    }
    Ok((child, lines))
}

/// Reads lines on a thread of its own. It ends with the pipe, or when nobody listens any more.
fn read(pipe: impl Read + Send + 'static, to: Sender<Line>) {
    thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        loop {
            let mut line = Vec::new();
            match pipe
                .by_ref()
                .take(LONGEST_LINE)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let text = String::from_utf8_lossy(&line);
            let line = match text.strip_prefix(MARK).map(serde_json::from_str) {
                Some(Ok(event)) => Line::Event(event),
                _ => Line::Message(text.trim_end().to_owned()),
            };
            if to.send(line).is_err() {
                return;
            }
        }
    });
}

fn follow(
    mut child: std::process::Child,
    lines: &mpsc::Receiver<Line>,
    limit: Duration,
) -> Account {
    let start = Instant::now();
    let mut deadline = start + limit;
    let mut account = Account {
        events: Vec::new(),
        messages: Vec::new(),
        end: End::Done,
    };
    let mut hung = false;
    let mut asleep = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(Line::Event(Event::Done)) => {
                account.events.push(Event::Done);
                break;
            }
            Ok(Line::Event(event)) => account.events.push(event),
            Ok(Line::Message(text)) => keep(&mut account.messages, text),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let state = State::of(child.id());
                if start.elapsed() >= limit * PATIENCE || state.is_some() && state == asleep {
                    hung = true;
                    break;
                }
                asleep = state.filter(State::sleeps);
                let next = if asleep.is_some() { SECOND_LOOK } else { limit };
                deadline = Instant::now() + next;
            }
        }
    }
    let done = account.events.last() == Some(&Event::Done);
    if done || hung {
        // What is registered to run at the end of a process is not wanted. One that ended in the meantime is no fault.
        let _ = child.kill();
    }
    let status = child.wait();
    // With the process gone its end of the pipes is closed, unless it left somebody behind: hence the limit.
    let deadline = Instant::now() + GRACE;
    while let Ok(line) = lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        match line {
            Line::Event(event) if !done => account.events.push(event),
            Line::Event(_) => {}
            Line::Message(text) => keep(&mut account.messages, text),
        }
    }
    account.end = match status {
        _ if done => End::Done,
        _ if hung => End::Hung {
            after_ms: u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX),
        },
        Ok(status) => ended(status),
        Err(error) => End::NotStarted {
            reason: error.to_string(),
        },
    };
    account
}

/// What the scheduler says of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    letter: char,
    /// Time computed so far, in user space and in the kernel, in ticks.
    ticks: [u64; 2],
}

impl State {
    /// None once it has ended.
    fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// See proc_pid_stat(5). The name of the program, in parentheses, may itself have some.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at)?.parse().ok();
        Some(Self {
            letter: fields.first()?.chars().next()?,
            ticks: [ticks(11)?, ticks(12)?],
        })
    }

    /// Waits for something that is neither a processor nor a disk; or was stopped.
    const fn sleeps(&self) -> bool {
        matches!(self.letter, 'S' | 'T' | 't' | 'Z')
    }
}

fn keep(messages: &mut Vec<String>, text: String) {
    if messages.len() < MOST_LINES && !text.is_empty() {
        messages.push(text);
    }
}

fn ended(status: ExitStatus) -> End {
    match status.signal() {
        Some(signal) => End::Crashed {
            signal,
            name: signal_name(signal),
        },
        None => End::Exited {
            status: status.code().unwrap_or(-1),
        },
    }
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        15 => "SIGTERM",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    name.to_owned()
}

impl End {
    /// As evidence has it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Crashed { signal, name } => format!("ended by {name} ({signal})"),
            Self::Done => "did all that was asked".to_owned(),
            Self::Exited { status } => format!("ended early with status {status}"),
            Self::Hung { after_ms } => format!("was still not done after {after_ms} ms"),
            Self::NotStarted { reason } => format!("could not be started: {reason}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_process_is_read_behind_its_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 12 34 0 0 20 0 1 0 5 6 7";
        let state = State::parse(stat).unwrap();
        assert!(state.sleeps());
        assert_eq!(state.ticks, [12, 34]);
        assert!(!State::parse(&stat.replace(") S", ") D")).unwrap().sleeps());
        assert_eq!(State::parse("7 (a"), None);
        let own = State::of(std::process::id()).unwrap();
        assert!(own.ticks[0] < 1 << 40);
        assert_eq!(State::of(u32::MAX), None);
    }
}
