//! The command line.
//!
//! Promises: what a flag means is told by its help; a wrong value is refused with the value and what is allowed. Does not do:
//! judging values that the library judges, such as whether a group is a multicast address: there every fault is told at once.

use std::ffi::OsString;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};

use crate::exit;

/// Tells what this host can receive, and receives it.
///
/// Without a command: reports on the host, then sends a numbered stream to itself over the loopback interface with `udp`, and
/// within the process with `loopback`, and verifies every byte. Needs no privilege and takes less than 15 seconds.
#[derive(Debug, Parser)]
#[command(name = "probe", version, after_help = exit::help(), max_term_width = 80)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// How the output looks.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON document in place of text.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// When to colour; auto colours on a terminal unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "WHEN"
    )]
    pub(crate) color: Colour,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List every provider: registered, known but not built in, rejected.
    Providers(ProvidersArgs),
}

impl Command {
    /// The word for it in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Providers(_) => "providers",
        }
    }
}

/// Arguments of `providers`.
#[derive(Debug, Args)]
pub(crate) struct ProvidersArgs {
    /// Look at the host for each registered provider; without it nothing is opened or probed.
    #[arg(long)]
    pub(crate) inspect: bool,
}

/// `--color` has to be known before parsing, because a wrong command line is already told in colour.
pub(crate) fn colour_before_parsing(args: impl Iterator<Item = OsString>) -> ColorChoice {
    let mut after_flag = false;
    for arg in args {
        let Some(arg) = arg.to_str() else { continue };
        let value = match arg.strip_prefix("--color=") {
            Some(value) => value,
            None if after_flag => arg,
            None => {
                after_flag = arg == "--color";
                continue;
            }
        };
        return match value {
            "always" => ColorChoice::Always,
            "never" => ColorChoice::Never,
            _ => ColorChoice::Auto,
        };
    }
    ColorChoice::Auto
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn colour_is_found_before_parsing_in_both_forms() {
        let find = |args: &[&str]| colour_before_parsing(args.iter().map(OsString::from));
        assert_eq!(
            find(&["probe", "--color", "never", "x"]),
            ColorChoice::Never
        );
        assert_eq!(find(&["probe", "--color=always"]), ColorChoice::Always);
        assert_eq!(find(&["probe"]), ColorChoice::Auto);
    }
}
