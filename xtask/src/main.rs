//! The task runner: `cargo xtask COMMAND`.
//!
//! It is the one definition of how this workspace is built, checked and tested; whatever hosts a run only calls it.
//! Promises: a command that fails says what failed and exits with 1; a wrong command line exits with 2; nothing is
//! installed, written or started that the command does not name in its output.
//! Does not do: publishing, or anything that the network is needed for beyond crates and Debian packages.

#![forbid(unsafe_code)]

use std::process::ExitCode;

mod alone;
mod bench;
mod ci;
mod codegen;
mod context;
mod deny;
mod error;
mod features;
mod layers;
mod lexer;
mod metadata;
mod packages;
mod planted;
mod skips;
mod spdx;
mod steps;
mod test;
mod testlog;
mod tidy;
mod vm;

use context::Context;
use error::{Error, Result};

/// One subcommand. A new one is a module and a row in [`COMMANDS`].
struct Command {
    name: &'static str,
    arguments: &'static str,
    summary: &'static str,
    run: fn(&Context, &[String]) -> Result<Verdict>,
}

/// What a command found out, as opposed to an error that kept it from finding out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Failed,
    Passed,
    /// The command ran another one, whose status becomes this process's.
    Status(u8),
}

const COMMANDS: &[Command] = &[
    Command {
        name: "bench",
        arguments: "[NAME [ARGUMENTS]]",
        summary: "run one benchmark driver, or list them",
        run: bench::run,
    },
    Command {
        name: "ci",
        arguments: "[--list] [GROUP...]",
        summary: "everything that must be green, or only the named groups of steps",
        run: ci::run,
    },
    Command {
        name: "codegen",
        arguments: "[--check]",
        summary: "write the files that programs make, or say which are not current",
        run: codegen::run,
    },
    Command {
        name: "planted",
        arguments: "[--quick] [--only NAME]...",
        summary: "plant known faults, one by one, and see the named test turn red",
        run: planted::run,
    },
    Command {
        name: "test",
        arguments: "[--no-install]",
        summary: "install what the tests use, run every test, list every skip",
        run: test::run,
    },
    Command {
        name: "tidy",
        arguments: "",
        summary: "check the rules that no compiler checks",
        run: tidy::run,
    },
    Command {
        name: "vm",
        arguments: "[OPTIONS] -- CMD",
        summary: "run a command in a guest with two RDMA devices; --help tells more",
        run: vm::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(Verdict::Passed) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::FAILURE,
        Ok(Verdict::Status(status)) => ExitCode::from(status),
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::from(if error.is_usage() { 2 } else { 1 })
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<Verdict> {
    let Some((name, rest)) = arguments.split_first() else {
        return Err(Error::usage(format!("no command given\n\n{}", usage())));
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", usage());
        return Ok(Verdict::Passed);
    }
    let command = COMMANDS
        .iter()
        .find(|command| command.name == name)
        .ok_or_else(|| Error::usage(format!("there is no command `{name}`\n\n{}", usage())))?;
    (command.run)(&Context::of_this_checkout()?, rest)
}

fn usage() -> String {
    let mut text = String::from("usage: cargo xtask COMMAND\n");
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        text.push_str(&format!("\n  {:<28} {}", call.trim_end(), command.summary));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_a_usage_error_that_lists_the_commands() {
        let error = dispatch(&["tset".to_owned()]).unwrap_err();
        assert!(error.is_usage());
        for command in COMMANDS {
            assert!(error.to_string().contains(command.name), "{error}");
        }
    }

    #[test]
    fn no_command_is_a_usage_error() {
        assert!(dispatch(&[]).unwrap_err().is_usage());
    }

    #[test]
    fn commands_are_in_alphabetical_order_and_distinct() {
        let names: Vec<_> = COMMANDS.iter().map(|command| command.name).collect();
        assert!(names.windows(2).all(|pair| pair[0] < pair[1]), "{names:?}");
    }
}
