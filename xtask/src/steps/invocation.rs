//! Command lines: how they are put together, shown and run.
//!
//! Promises: what [`stream`] keeps is byte for byte what the command wrote, standard output and error merged in the order
//! in which they were written; a process that the command leaves behind with the output still open does not hang it.
//! Does not do: end anything. A command that hangs, hangs its caller.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::record::Exit;
use crate::error::{Error, Result};

/// A command line with its folder and its changes to the environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    pub(crate) program: String,
    pub(crate) arguments: Vec<String>,
    /// `None` takes the variable away.
    pub(crate) environment: BTreeMap<String, Option<String>>,
    pub(crate) folder: Option<PathBuf>,
}

impl Invocation {
    pub(crate) fn new<S: AsRef<str>>(
        program: &str,
        arguments: impl IntoIterator<Item = S>,
    ) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments
                .into_iter()
                .map(|argument| argument.as_ref().to_owned())
                .collect(),
            environment: BTreeMap::new(),
            folder: None,
        }
    }

    pub(crate) fn in_folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_path_buf());
        self
    }

    pub(crate) fn with(mut self, variable: &str, value: impl Into<String>) -> Self {
        self.environment
            .insert(variable.to_owned(), Some(value.into()));
        self
    }

    pub(crate) fn without(mut self, variable: &str) -> Self {
        self.environment.insert(variable.to_owned(), None);
        self
    }

    /// Runs the command with its output kept apart, for what the runner itself wants to know.
    pub(crate) fn output(&self) -> Result<Vec<u8>> {
        let output = self
            .prepared()
            .stdin(Stdio::null())
            .output()
            .map_err(|error| Error::new(format!("run `{self}`"), error))?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        Err(Error::new(
            format!("`{self}`"),
            format!(
                "{}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            ),
        ))
    }

    pub(super) fn prepared(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        for (variable, value) in &self.environment {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        command
    }
}

/// The line as a person would type it, with the variables that are set and without those that are taken away.
impl fmt::Display for Invocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (variable, value) in &self.environment {
            if let Some(value) = value {
                write!(f, "{variable}={} ", quoted(value))?;
            }
        }
        let program = Path::new(&self.program)
            .file_name()
            .map_or(self.program.as_str().into(), |name| name.to_string_lossy());
        f.write_str(&quoted(&program))?;
        self.arguments
            .iter()
            .try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// How a streamed command ended.
pub(super) enum Streamed {
    Ended { exit: Exit, left_behind: bool },
    NotStarted(io::Error),
}

enum News {
    Bytes(Vec<u8>),
    Exited(io::Result<ExitStatus>),
    OutputClosed(io::Result<()>),
}

/// Runs `command` with standard output and error on one pipe, so that their order is kept.
pub(super) fn stream(
    command: &mut Command,
    sink: &mut impl Write,
    kept: &mut Vec<u8>,
    grace: Duration,
) -> io::Result<Streamed> {
    let (mut reader, writer) = io::pipe()?;
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer);
    let started = command.spawn();
    // The command value holds this side's copies of the pipe's end; while they are open there is no end of output.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Ok(Streamed::NotStarted(error)),
    };
    let (sender, news) = mpsc::channel();
    let reading = sender.clone();
    // Neither thread is joined: the reader of a process left behind may block for as long as that lives. A message that
    // finds no receiver any more is of no use to anyone.
    std::thread::spawn(move || {
        let mut chunk = [0; 8192];
        loop {
            let news = match reader.read(&mut chunk) {
                Ok(0) => News::OutputClosed(Ok(())),
                Ok(count) => News::Bytes(chunk[..count].to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => News::OutputClosed(Err(error)),
            };
            let last = matches!(news, News::OutputClosed(_));
            if reading.send(news).is_err() || last {
                return;
            }
        }
    });
    std::thread::spawn(move || {
        let _ = sender.send(News::Exited(child.wait()));
    });

    let (mut exit, mut closed) = (None, false);
    let mut deadline: Option<Instant> = None;
    loop {
        if let (Some(exit), true) = (&exit, closed) {
            return Ok(Streamed::Ended {
                exit: Exit::clone(exit),
                left_behind: false,
            });
        }
        let next = match deadline {
            None => news.recv().map_err(|_| RecvTimeoutError::Disconnected),
            // Asked before the queue, or a process left behind that never stops writing would hold the run for ever.
            Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                Some(left) => news.recv_timeout(left),
                None => Err(RecvTimeoutError::Timeout),
            },
        };
        match next {
            Ok(News::Bytes(bytes)) => {
                sink.write_all(&bytes)?;
                sink.flush()?;
                kept.extend_from_slice(&bytes);
            }
            Ok(News::OutputClosed(how)) => {
                how?;
                closed = true;
            }
            Ok(News::Exited(status)) => {
                exit = Some(Exit::from(status?));
                deadline = Some(Instant::now() + grace);
            }
            Err(_) => {
                let exit = exit.ok_or_else(|| io::Error::other("the command's exit was lost"))?;
                return Ok(Streamed::Ended {
                    exit,
                    left_behind: true,
                });
            }
        }
    }
}
