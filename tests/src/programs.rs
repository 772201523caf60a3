//! Programs that run beside a test, and the folder that their files go to.
//!
//! Promises: what a test started does not outlive it, and its files don't either. Does not do: waiting by time. A program tells
//! by a line that it is ready.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of a name of its own, gone with the value.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes one.
    ///
    /// # Panics
    /// If it can't be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-{name}-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// A path in it.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Which output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The standard error; the other one goes to a file or nowhere.
    Stderr,
    /// The standard output.
    Stdout,
}

/// A program that runs until it is told to end; killed if the test panics.
pub struct Running {
    child: Child,
    output: Box<dyn BufRead>,
    log: String,
}

impl Running {
    /// Starts it and reads its output up to a line that has `ready`.
    ///
    /// # Panics
    /// If it can't be started, or ends before that.
    #[must_use]
    pub fn start(command: &mut Command, ready: &str, follow: Follow) -> Self {
        command.stdin(Stdio::null());
        match follow {
            Follow::Stderr => command.stderr(Stdio::piped()),
            Follow::Stdout => command.stdout(Stdio::piped()),
        };
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output: Box<dyn BufRead> = match follow {
            Follow::Stderr => Box::new(BufReader::new(child.stderr.take().unwrap())),
            Follow::Stdout => Box::new(BufReader::new(child.stdout.take().unwrap())),
        };
        let mut this = Self {
            child,
            output,
            log: String::new(),
        };
        this.read_until(ready);
        this
    }

    /// Reads on up to a line that has `text`, beyond what was read before, and gives that line.
    ///
    /// # Panics
    /// If the program ends before that.
    pub fn read_until(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert_ne!(read, 0, "no {text:?} in {}", self.log);
            self.log.push_str(&line);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends it a signal, such as `-INT`. The child is `ip netns exec`, which becomes the program itself.
    ///
    /// # Panics
    /// If it can't be sent.
    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success(), "{}", self.log);
    }

    /// Reads on until it ends by itself.
    ///
    /// # Panics
    /// If its output can't be read.
    pub fn read_to_end(&mut self) {
        self.output.read_to_string(&mut self.log).unwrap();
        let _ = self.child.wait();
    }

    /// Ends it as Ctrl-C does, and gives its exit code and everything that it printed.
    ///
    /// # Panics
    /// If its output can't be read.
    #[must_use]
    pub fn interrupt(mut self) -> (Option<i32>, String) {
        self.signal("-INT");
        self.output.read_to_string(&mut self.log).unwrap();
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After it has ended, both calls fail without harm. A stopped process dies of this, too.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
