//! `probe` tells an operator in one command what this host can receive, receives it, and sends it.
//!
//! Promises: opens nothing that was not named, except the self-test's own providers on the loopback interface; changes nothing on
//! the host; every way to end has its own exit code. Does not do: anything that needs a privilege, unless it was asked for.

#![forbid(unsafe_code)]

mod check;
mod cli;
mod command;
mod exit;
mod host;
mod interrupt;
mod linkage;
mod outlet;
mod output;
mod pace;
mod progress;
mod providers;
mod report;
mod selftest;
mod spread;
mod stream;
mod transmit;
mod verdict;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::exit::Exit;
use crate::output::Screen;
use crate::report::Failure;

fn main() -> ExitCode {
    let colour = cli::colour_before_parsing(std::env::args_os());
    let matches = Cli::command().color(colour).try_get_matches();
    match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(&cli).into(),
        Err(error) => end(&error),
    }
}

/// Prints the help, the version, or what is wrong with the command line.
fn end(error: &clap::Error) -> ExitCode {
    match (error.print(), error.use_stderr()) {
        // What was asked for is the text, and it was not told.
        (Err(lost), false) => {
            let failure = Failure::from(lost);
            report::tell_lost(&failure, cli::Colour::Auto);
            failure.exit().into()
        }
        (_, false) => Exit::Ok.into(),
        (_, true) => Exit::Usage.into(),
    }
}

fn run(cli: &Cli) -> Exit {
    let name = cli.command.as_ref().map_or("report", Command::name);
    let mut screen = Screen::stdout(cli.output.color);
    let json = cli.output.json;
    let outcome = match &cli.command {
        None => command::report::run(&mut screen, json),
        Some(Command::Check(args)) => check::run(args, &mut screen, json),
        Some(Command::Loader) => check::child::serve().map_err(Failure::from),
        Some(Command::Latency(args)) => command::latency::run(args, &mut screen, json),
        Some(Command::Providers(args)) => command::providers::run(args, &mut screen, json),
        Some(Command::Recv(args)) => command::recv::run(args, &mut screen, cli.output),
        Some(Command::Replay(args)) => command::replay::run(args, &mut screen, json),
        Some(Command::Send(args)) => command::send::run(args, &mut screen, json),
        Some(Command::VerifyLinkage(args)) => linkage::run(args, &mut screen, json),
    };
    let failure =
        match outcome.and_then(|exit| screen.flush().map(|()| exit).map_err(Failure::from)) {
            Ok(exit) => return exit,
            Err(failure) => failure,
        };
    match report::tell(&failure, name, &mut screen, json, cli.output.color) {
        Ok(()) => failure.exit(),
        Err(error) => {
            let lost = Failure::from(error);
            report::tell_lost(&lost, cli.output.color);
            lost.exit()
        }
    }
}
