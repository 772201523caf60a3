//! The command line.
//!
//! Promises: what a flag means is told by its help; a wrong value is refused with the value and what is allowed. Does not do:
//! judging values that the library judges, such as whether a group is a multicast address: there every fault is told at once.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ColorChoice, Parser, Subcommand, ValueEnum};
use lockgate::receive::{Group, TimestampMode, WaitMode};

use crate::exit;
use crate::verdict::Code;

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
    /// Say why RDMA works here, or why it does not: library, drivers, devices, nodes, limits.
    Check(CheckArgs),
    /// What `check` starts itself with: loads a library and tells each step.
    #[command(name = "__loader", hide = true)]
    Loader,
    /// List every provider: registered, known but not built in, rejected.
    Providers(ProvidersArgs),
    /// Receive packets with a provider that you name.
    Recv(Box<RecvArgs>),
    /// Say how a binary gets at libibverbs, and whether that holds on this host.
    VerifyLinkage(VerifyLinkageArgs),
}

impl Command {
    /// The word for it in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Check(_) => "check",
            Self::Loader => "__loader",
            Self::Providers(_) => "providers",
            Self::Recv(_) => "recv",
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

/// Arguments of `recv`. What is given here goes before what the file says.
#[derive(Debug, Args)]
pub(crate) struct RecvArgs {
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

fn group(text: &str) -> Result<Group, String> {
    let (address, sources) = match text.split_once('@') {
        Some((address, sources)) => (address, Some(sources)),
        None => (text, None),
    };
    let group: Group = address.parse().map_err(|_| {
        format!("{address:?} is not an address with a port; allowed: 239.7.7.7:47000 or [ff15::7]:47000, with sources: 232.1.1.1:5000@10.0.0.1,10.0.0.2")
    })?;
    let Some(sources) = sources else {
        return Ok(group);
    };
    let sources: Result<Vec<_>, _> = sources
        .split(',')
        .map(|source| {
            source
                .parse()
                .map_err(|_| format!("source {source:?} is not an address; allowed: 10.0.0.1"))
        })
        .collect();
    Ok(group.from_sources(sources?))
}

fn option(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| format!("{text:?} has no name and value; allowed: NAME=VALUE"))?;
    let value =
        serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

fn duration(text: &str) -> Result<Duration, String> {
    let refused = || format!("{text:?} is not a time; allowed: 500ms, 10s, 2m, 1h, above zero");
    let digits = text
        .find(|one: char| one.is_ascii_alphabetic())
        .ok_or_else(refused)?;
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(refused()),
    };
    let plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: f64 = number.parse().ok().filter(|_| plain).ok_or_else(refused)?;
    Duration::try_from_secs_f64(number * seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(refused)
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
    fn times_have_a_unit_and_are_above_zero() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for wrong in [
            "", "10", "s", "-1s", "1e9s", "0s", "1d", "1 s", "infs", "1.2.3s", "é",
        ] {
            let text = duration(wrong).unwrap_err();
            assert!(text.contains("allowed: 500ms"), "{wrong:?}: {text}");
        }
        let huge = format!("{}h", "9".repeat(300));
        assert!(duration(&huge).is_err());
    }

    #[test]
    fn groups_take_sources() {
        let plain = group("239.7.7.7:47000").unwrap();
        assert!(plain.sources.is_empty());
        let two = group("[ff3e::1]:5000@2001:db8::1,2001:db8::2").unwrap();
        assert_eq!(two.sources.len(), 2);
        assert_eq!(two.to_string(), "[ff3e::1]:5000");
        for wrong in [
            "239.7.7.7",
            "239.7.7.7:99999",
            ":5",
            "239.7.7.7:5@",
            "239.7.7.7:5@host",
        ] {
            assert!(group(wrong).unwrap_err().contains("allowed:"), "{wrong}");
        }
    }

    #[test]
    fn options_are_json_or_else_a_text() {
        assert_eq!(option("gro=true").unwrap().1, serde_json::json!(true));
        assert_eq!(option("rcvbuf=4096").unwrap().1, serde_json::json!(4096));
        assert_eq!(
            option("mode=fast=1").unwrap().1,
            serde_json::json!("fast=1")
        );
        assert!(option("=3").is_err());
        assert!(option("name").is_err());
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
