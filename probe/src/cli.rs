//! The command line.
//!
//! Promises: what a flag means is told by its help; a wrong value is refused with the value and what is allowed. Does not do:
//! judging values that the library judges, such as whether a group is a multicast address: there every fault is told at once.

mod send;
mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use lockgate::receive::{Group, TimestampMode, WaitMode};

use crate::exit;
use crate::verdict::Code;

pub(crate) use send::{LatencyArgs, PaceArgs, ReplayArgs, SendArgs, TargetArgs};
pub(crate) use values::{Rate, Speed};
use values::{duration, group, option};

/// Tells what this host can receive, receives it, and sends it.
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
    /// Say why RDMA works here, or why it does not: library, drivers, devices, nodes, limits.
    Check(CheckArgs),
    /// What `check` starts itself with: loads a library and tells each step.
    #[command(name = "__loader", hide = true)]
    Loader,
    /// Measure one-way times of a numbered stream on one clock.
    Latency(Box<LatencyArgs>),
    /// List every provider: registered, known but not built in, rejected.
    Providers(ProvidersArgs),
    /// Receive packets with a provider that you name.
    Recv(Box<RecvArgs>),
    /// Send the UDP payloads of a capture again.
    Replay(ReplayArgs),
    /// Send a numbered, time-stamped stream at a steady rate.
    Send(SendArgs),
    /// Say how a binary gets at libibverbs, and whether that holds on this host.
    VerifyLinkage(VerifyLinkageArgs),
}

impl Command {
    /// The word for it in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Check(_) => "check",
            Self::Loader => "__loader",
            Self::Latency(_) => "latency",
            Self::Providers(_) => "providers",
            Self::Recv(_) => "recv",
            Self::Replay(_) => "replay",
            Self::Send(_) => "send",
            Self::VerifyLinkage(_) => "verify-linkage",
        }
    }
}

/// Arguments of `check`. Without any, no device is opened and nothing is changed.
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Look at this device only. May be repeated.
    #[arg(long = "device", value_name = "NAME")]
    pub(crate) devices: Vec<String>,
    /// Open the devices, or those named, and try queue pair, flow, registration and dmabuf on each.
    #[arg(long = "try")]
    pub(crate) trial: bool,
    /// Write a support bundle, with names of hosts and users, addresses, MACs and GUIDs masked.
    #[arg(long, value_name = "FILE.tar")]
    pub(crate) bundle: Option<PathBuf>,
    /// Mask nothing in the bundle.
    #[arg(long, requires = "bundle")]
    pub(crate) unmasked: bool,
    /// How long the library may take to load and to enumerate its devices.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "800ms")]
    pub(crate) limit: Duration,
    /// Say what a code means, and do nothing else.
    #[arg(long, value_name = "CODE", hide_possible_values = true)]
    pub(crate) explain: Option<Code>,
}

/// Arguments of `verify-linkage`.
#[derive(Debug, Args)]
pub(crate) struct VerifyLinkageArgs {
    /// An executable or a shared library; this program itself if none is named.
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Say what a code means, and do nothing else.
    #[arg(long, value_name = "CODE", hide_possible_values = true)]
    pub(crate) explain: Option<Code>,
}

/// Arguments of `providers`.
#[derive(Debug, Args)]
pub(crate) struct ProvidersArgs {
    /// Look at the host for each registered provider; without it nothing is opened or probed.
    #[arg(long)]
    pub(crate) inspect: bool,
}

/// What to receive, and with which provider. What is given here goes before what the file says.
#[derive(Debug, Args)]
pub(crate) struct ReceiveArgs {
    /// The provider. Without one nothing is opened, and every candidate is listed.
    #[arg(long, value_name = "NAME")]
    pub(crate) provider: Option<String>,
    /// A multicast group; with sources, only from those. May be repeated.
    #[arg(long = "group", value_name = "GROUP:PORT[@SOURCE,...]", value_parser = group)]
    pub(crate) groups: Vec<Group>,
    /// A unicast address to receive on, in place of groups.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) unicast: Option<SocketAddr>,
    /// The network interface.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// The device, for providers that open devices.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Only this VLAN.
    #[arg(long, value_name = "ID")]
    pub(crate) vlan: Option<u16>,
    /// How many packets the provider can hold.
    #[arg(long, value_name = "PACKETS")]
    pub(crate) ring: Option<u32>,
    /// How many packets one poll returns at most.
    #[arg(long, value_name = "PACKETS")]
    pub(crate) batch: Option<u32>,
    /// How many bytes one packet's buffer has.
    #[arg(long, value_name = "BYTES")]
    pub(crate) buffer_bytes: Option<u32>,
    /// The largest IP packet to expect.
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
    /// Sleep until an event, or spin.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) wait: Option<Wait>,
    /// Who stamps packets.
    #[arg(long, value_enum, value_name = "WHO")]
    pub(crate) timestamps: Option<Timestamps>,
    /// A setting of this provider. VALUE is JSON, or else a text. May be repeated.
    #[arg(long = "option", value_name = "NAME=VALUE", value_parser = option)]
    pub(crate) options: Vec<(String, serde_json::Value)>,
    /// Read provider and configuration from a file, TOML or, if it ends in .json, JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Arguments of `recv`.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
    #[command(flatten)]
    pub(crate) receive: ReceiveArgs,
    /// End after this many packets.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this time: 500ms, 10s, 2m, 1h.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Print each packet with its first BYTES in hexadecimal digits.
    #[arg(long, value_name = "BYTES", conflicts_with = "json")]
    pub(crate) hex: Option<usize>,
    /// Write each packet as one line of JSON; - is the standard output, and the text then goes to the standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) dump: Option<PathBuf>,
    /// Write a pcapng file of what is received; a file that is there already is replaced.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    /// Say every so often what has come meanwhile: 500ms, 10s. With --json as lines of JSON on the standard error.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) stats_interval: Option<Duration>,
}

/// How a wait waits: it spins, or sleeps until something arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wait {
    BusyPoll,
    Event,
}

impl From<Wait> for WaitMode {
    fn from(wait: Wait) -> Self {
        match wait {
            Wait::BusyPoll => Self::BusyPoll,
            Wait::Event => Self::Event,
        }
    }
}

/// Who stamps packets: the device, nobody, or the kernel or the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Timestamps {
    Hardware,
    None,
    Software,
}

impl From<Timestamps> for TimestampMode {
    fn from(timestamps: Timestamps) -> Self {
        match timestamps {
            Timestamps::Hardware => Self::Hardware,
            Timestamps::None => Self::None,
            Timestamps::Software => Self::Software,
        }
    }
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
