//! The arguments of the commands that send: `send`, `replay`, `latency`.
//!
//! Does not do: judging whether an address can be sent to. The kernel says that, and the error names its remedy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::ReceiveArgs;
use super::values::{self, Rate, Speed, duration};
use crate::stream;

/// Where packets are sent.
#[derive(Clone, Debug, Args)]
pub(crate) struct TargetArgs {
    /// The group or address to send to.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) to: SocketAddr,
    /// The network interface to send through; needed for groups.
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Option<String>,
    /// The address, and the port where one is given, to send from.
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = values::source)]
    pub(crate) source: Option<SocketAddr>,
    /// Time to live, or hop limit; without it the kernel's: 1 for groups.
    #[arg(long, value_name = "HOPS", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ttl: Option<u8>,
}

/// What a numbered stream looks like.
#[derive(Clone, Debug, Args)]
pub(crate) struct PaceArgs {
    /// Packets a second such as 4000 or 20k, bits of payload such as 8Mbit, or max.
    #[arg(long, value_name = "RATE", default_value = "1000")]
    pub(crate) rate: Rate,
    /// The bytes of each payload.
    #[arg(long, value_name = "BYTES", default_value_t = 256,
        value_parser = clap::value_parser!(u32).range(stream::HEADER as i64..=stream::LONGEST as i64))]
    pub(crate) size: u32,
    /// How many packets the token bucket holds: so many may leave at once after a delay. Without it 16; latency takes 4096, so that no
    /// packet is left out.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) burst: Option<u32>,
}

/// Arguments of `send`.
#[derive(Debug, Args)]
pub(crate) struct SendArgs {
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// End after this many packets.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this time: 500ms, 10s, 2m, 1h.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
}

/// Arguments of `replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The capture: pcap or pcapng, of either byte order; - is the standard input.
    #[arg(value_name = "CAPTURE")]
    pub(crate) capture: PathBuf,
    #[command(flatten)]
    pub(crate) target: TargetArgs,
    /// original, a factor such as 2 or 0.5, or max.
    #[arg(long, value_name = "SPEED", default_value = "original")]
    pub(crate) speed: Speed,
    /// Only what was captured on its way to this address and port. May be repeated.
    #[arg(long = "only", value_name = "ADDRESS:PORT")]
    pub(crate) only: Vec<SocketAddr>,
    /// End after this many packets.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
}

/// Arguments of `latency`.
#[derive(Debug, Args)]
pub(crate) struct LatencyArgs {
    #[command(flatten)]
    pub(crate) receive: ReceiveArgs,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// Send nothing: measure the stream of a probe send that runs on this host, or on one whose clock agrees.
    #[arg(long, conflicts_with_all = ["rate", "size", "burst"])]
    pub(crate) listen: bool,
    /// End after this many packets.
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// End after this time: 500ms, 10s, 2m, 1h. Without --count and this, after 10s.
    #[arg(long = "for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
    /// Write the histogram of each second as an HDR log.
    #[arg(long, value_name = "FILE")]
    pub(crate) hdr: Option<PathBuf>,
    /// Draw the percentiles.
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
}
