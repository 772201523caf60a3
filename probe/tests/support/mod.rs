//! What the tests of the binary share: running it, and reading what it says.

pub(crate) mod schema;

use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A run that has ended.
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary with arguments parted by spaces, away from whatever colours the test's own environment asks for.
pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_probe"));
    command.args(arguments.split_whitespace());
    command.env_remove("NO_COLOR").stdin(Stdio::null());
    command
}

/// Runs it to its end.
pub(crate) fn probe(arguments: &str) -> Run {
    ended(command(arguments).output().expect("the binary runs"))
}

/// What came of a command.
pub(crate) fn ended(output: Output) -> Run {
    let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
    let run = Run {
        code: output.status.code().expect("it was not killed by a signal"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    };
    assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
    run
}

impl Run {
    /// The document on the standard output, which must keep to the schema and have this exit.
    pub(crate) fn document(&self, exit: &str) -> Value {
        let document: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr));
        schema::assert_valid(&document);
        assert_eq!(document["exit"]["name"], exit, "{document:#}");
        assert_eq!(document["exit"]["code"], self.code, "{document:#}");
        document
    }
}
