//! `probe send`: a numbered, time-stamped stream at a steady rate.
//!
//! Promises: needs no privilege; what was sent is what the kernel took, and the gaps are those that there were, not those that were
//! asked for; a group is never sent to through an interface that nobody named. Does not do: knowing what arrives.
//! `probe recv` on the other side counts that.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use lockgate::Error;
use serde::Serialize;

use crate::cli::{PaceArgs, Rate, SendArgs, TargetArgs};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::outlet::UdpOutlet;
use crate::output::{Look, Screen, grouped};
use crate::progress::Progress;
use crate::report::{self, ErrorReport, Failure};
use crate::selftest::random;
use crate::spread::Spread;
use crate::transmit::{self, Flow, Plan, Sent};

/// What the bucket holds if nobody says.
const BURST: u32 = 16;

/// What ended the sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Ended {
    /// The `--count` packets were sent.
    Count,
    /// The capture is over.
    End,
    /// Nothing more could be sent, or read.
    Error,
    /// A signal.
    Signal,
    /// The time is over.
    Time,
}

impl Ended {
    /// What it is called in texts.
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Count => "--count",
            Self::End => "the end of the capture",
            Self::Error => "an error",
            Self::Signal => "a signal",
            Self::Time => "--for",
        }
    }
}

#[derive(Debug, Serialize)]
struct Body {
    to: SocketAddr,
    source: SocketAddr,
    interface: Option<String>,
    stream: String,
    payload_bytes: u32,
    packets_per_second: u64,
    ended: Ended,
    sent: Sent,
    error: Option<ErrorReport>,
}

/// Sends.
pub(crate) fn run(args: &SendArgs, screen: &mut Screen, json: bool) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install()?;
    let mut outlet = UdpOutlet::open(&args.target)?;
    let source = outlet.source()?;
    let plan = plan(&args.pace, args.count, args.time);
    if !json {
        screen.heading(&format!("Sending to {}", args.target.to))?;
        print_target(screen, &args.target, source)?;
        print_stream(screen, &args.pace, plan.stream)?;
        screen.field("until", until(args))?;
        screen.flush()?;
    }
    let mut progress = Progress::start(!json, args.count);
    let (sent, error) = transmit::run(&mut outlet, &plan, |sent| {
        progress.tell(Instant::now(), sent.packets, || {
            format!("{} packets", grouped(sent.packets))
        });
        if interrupt.asked() {
            Flow::Stop
        } else {
            Flow::On
        }
    });
    progress.end();

    let counted = args.count.is_some_and(|count| sent.packets >= count);
    let ended = match &error {
        Some(_) => Ended::Error,
        None if counted => Ended::Count,
        None if interrupt.asked() => Ended::Signal,
        None => Ended::Time,
    };
    let bounded = args.count.is_some() || args.time.is_some();
    let exit = exit(ended, bounded, error.as_ref());
    if json {
        let body = Body {
            to: args.target.to,
            source,
            interface: args.target.interface.clone(),
            stream: format!("{:016x}", plan.stream),
            payload_bytes: args.pace.size,
            packets_per_second: sent.rate().round() as u64, // a rate fits
            ended,
            sent,
            error: error.as_ref().map(ErrorReport::from),
        };
        report::document(screen, "send", exit, body)?;
    } else {
        screen.gap()?;
        screen.heading("Summary")?;
        print_sent(screen, &sent)?;
        screen.field("ended by", ended.text())?;
        screen.flush()?;
    }
    tell(error.as_ref(), screen)?;
    Ok(exit)
}

/// The stream that the arguments describe, with a number of its own.
pub(super) fn plan(pace: &PaceArgs, count: Option<u64>, time: Option<std::time::Duration>) -> Plan {
    Plan {
        stream: random(),
        rate: pace.rate,
        size: pace.size as usize,
        burst: pace.burst.unwrap_or(BURST).into(),
        count,
        time,
    }
}

/// The code of a run that sent.
pub(super) fn exit(ended: Ended, bounded: bool, error: Option<&Error>) -> Exit {
    match (ended, error) {
        (_, Some(error)) => Exit::of(error),
        (Ended::Signal, None) if bounded => Exit::Interrupted,
        _ => Exit::Ok,
    }
}

/// Tells an error that ended a run which has a summary all the same.
pub(super) fn tell(error: Option<&Error>, screen: &mut Screen) -> io::Result<()> {
    match error {
        Some(error) => report::print_error(&mut screen.aside(), "probe: ", error),
        None => Ok(()),
    }
}

/// From where and through what.
pub(super) fn print_target(
    screen: &mut Screen,
    target: &TargetArgs,
    source: SocketAddr,
) -> io::Result<()> {
    screen.field("from", source)?;
    if let Some(interface) = &target.interface {
        screen.field("interface", interface)?;
    }
    if let Some(ttl) = target.ttl {
        screen.field("ttl", ttl)?;
    }
    Ok(())
}

/// What the stream looks like.
pub(super) fn print_stream(screen: &mut Screen, pace: &PaceArgs, stream: u64) -> io::Result<()> {
    let rate = match pace.rate {
        Rate::Bits(bits) => format!("{:.3} Mbit/s of payload", bits as f64 / 1e6),
        Rate::Packets(packets) => format!("{} packets/s", grouped(packets)),
        Rate::Unlimited => "as fast as it goes".to_owned(),
    };
    let text = format!(
        "{stream:016x}, {} bytes a packet",
        grouped(pace.size.into())
    );
    screen.field("stream", text)?;
    let burst = grouped(pace.burst.unwrap_or(BURST).into());
    screen.field("rate", format!("{rate}, bursts of at most {burst}"))
}

/// What was sent, and how well the pace was kept.
pub(super) fn print_sent(screen: &mut Screen, sent: &Sent) -> io::Result<()> {
    let seconds = sent.nanoseconds as f64 / 1e9;
    let text = format!(
        "{} in {seconds:.3} s, {} packets/s",
        grouped(sent.packets),
        grouped(sent.rate().round() as u64), // a rate fits
    );
    screen.field("sent", text)?;
    let bits = sent.bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6;
    screen.field(
        "payload",
        format!("{} bytes, {bits:.3} Mbit/s", grouped(sent.bytes)),
    )?;
    print_gaps(screen, sent.calls, sent.packets, sent.gaps, sent.late)?;
    if sent.missed_tokens > 0 {
        let text = format!(
            "{} packets behind the rate: the sender was late by more than --burst makes up for",
            grouped(sent.missed_tokens)
        );
        screen.field_as(Look::Warning, "missed", text)?;
    }
    if sent.no_buffer > 0 {
        let text = format!(
            "{} times the queue of the interface was full (ENOBUFS); each of these was sent again",
            grouped(sent.no_buffer)
        );
        screen.field_as(Look::Warning, "refused", text)?;
    }
    if sent.port_closed > 0 {
        let text = format!(
            "{} times the other host said that nobody listens on the port (ECONNREFUSED)",
            grouped(sent.port_closed)
        );
        screen.field_as(Look::Warning, "port closed", text)?;
    }
    Ok(())
}

/// The real gaps between sending calls.
pub(super) fn print_gaps(
    screen: &mut Screen,
    calls: u64,
    packets: u64,
    gaps: Option<Spread>,
    late: Option<Spread>,
) -> io::Result<()> {
    if let Some(gaps) = gaps {
        screen.field("gaps", gaps.text())?;
        if calls < packets {
            let text = format!(
                "between {} calls; the packets of one call leave without a gap of ours",
                grouped(calls)
            );
            screen.field_as(Look::Dim, "", text)?;
        }
    }
    if let Some(late) = late {
        screen.field("late", late.text())?;
    }
    Ok(())
}

fn until(args: &SendArgs) -> String {
    match (args.count, args.time) {
        (Some(count), Some(time)) => format!("{} packets, at most {time:?}", grouped(count)),
        (Some(count), None) => format!("{} packets, or Ctrl-C", grouped(count)),
        (None, Some(time)) => format!("{time:?}, or Ctrl-C"),
        (None, None) => "Ctrl-C".to_owned(),
    }
}
