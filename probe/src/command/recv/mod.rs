//! `probe recv`: receives with a provider that the command line or the file names.
//!
//! Promises: without a name nothing is opened; ends at the count, at the time or at a signal, always with a summary; if nothing has
//! come, says what the host shows about the reason; what the library tells of links and interfaces is told at once. Does not do: picking a provider, an interface or a group.

mod dump;
mod hints;
mod limit;
mod live;
mod streams;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use lockgate::receive::{Batch, ConfigFaults, Receiver, ReceiverSpec, Setting, Statistics};
use lockgate::{Error, ErrorKind};
use lockgate_providers::record::{Monitor, Record};
use serde::Serialize;

use crate::cli::{OutputArgs, RecvArgs};
use crate::exit::Exit;
use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::output::{Look, Screen, grouped};
use crate::progress::Progress;
use crate::providers::Providers;
use crate::report::{self, ErrorReport, Failure};

use super::spec::{name_the_flag, spec};
use dump::Dump;
use hints::Hint;
use live::{Happened, Live};
use streams::Streams;

/// How long one wait lasts at most, so that a signal is noticed.
const SLICE: Duration = Duration::from_millis(50);

/// What ended the receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ended {
    /// `--count` packets have come.
    Count,
    /// A signal.
    Signal,
    /// `--for` is over.
    Time,
}

#[derive(Debug, Serialize)]
struct Body {
    spec: ReceiverSpec,
    settings: Vec<Setting>,
    ended: Ended,
    nanoseconds: u64,
    /// What was taken; the provider's own count below has the whole last batch.
    packets: u64,
    /// Their payload.
    bytes: u64,
    statistics: Statistics,
    events: Vec<Happened>,
    hints: Vec<Hint>,
    numbered: streams::Report,
    recording: Option<Recording>,
}

/// What became of `--pcap`.
#[derive(Debug, Serialize)]
struct Recording {
    file: String,
    packets: u64,
    bytes: u64,
    /// Why packets are missing in it.
    error: Option<ErrorReport>,
}

/// Receives.
pub(crate) fn run(
    args: &RecvArgs,
    screen: &mut Screen,
    output: OutputArgs,
) -> Result<Exit, Failure> {
    let json = output.json;
    let to_stdout = args.dump.as_deref() == Some(Path::new("-"));
    if to_stdout && json {
        let mut faults = ConfigFaults::new();
        let problem = "is where the document of --json goes";
        faults.push("--dump", "-", problem, "a file, or --dump - without --json");
        return Err(Error::new(ErrorKind::Invalid(faults), "read command line").into());
    }
    let mut aside = to_stdout.then(|| Screen::stderr(output.color));
    // What is printed for people goes aside where the standard output carries packets.
    let screen = aside.as_mut().unwrap_or(screen);

    let spec = spec(&args.receive)?;
    let providers = Providers::register()?;
    let interrupt = Interrupt::install()?;
    let before = Host::read();
    let opened = providers.registry.open_receiver_spec(&spec);
    let mut receiver = opened.map_err(name_the_flag)?;
    if let Some(count) = args.count {
        receiver = receiver.decorate(|inner| limit::wrap(inner, count));
    }
    let mut monitor = None;
    if let Some(path) = &args.pcap {
        let record = Record::replace(path)?;
        monitor = Some(record.monitor());
        receiver = receiver.decorate(|inner| record.wrap(inner));
    }
    let settings = receiver.settings();
    let mut dump = args.dump.as_deref().map(Dump::create).transpose()?;
    if !json {
        print_opening(screen, args, &spec, &settings)?;
    }

    let started = Instant::now();
    // Lines of packets tell more than a line of progress.
    let progress = Progress::start(!json && args.hex.is_none(), args.count);
    let mut session = Session {
        receiver: &mut receiver,
        screen: &mut *screen,
        dump: dump.as_mut(),
        hex: args.hex,
        live: Live::start(started, json, args.stats_interval, progress),
        count: args.count,
        taken: Taken::default(),
    };
    let deadline = args.time.and_then(|time| started.checked_add(time));
    let ended = session.receive(deadline, &interrupt);
    session.live.end();
    let ended = ended?;
    let taken = session.taken;
    let nanoseconds = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    if let Some(dump) = &mut dump {
        dump.flush()?;
    }

    let statistics = receiver.statistics();
    let hints = match taken.packets {
        // Looked at while the receiver is open: a close gives the groups back.
        0 => hints::of(&spec, &before, &Host::read(), &statistics),
        _ => Vec::new(),
    };
    receiver.close()?;
    let incomplete = monitor.as_ref().and_then(|one| one.outcome().err());
    let exit = match (exit(ended, args, taken.packets), &incomplete) {
        (Exit::Ok, Some(error)) => Exit::of(error),
        (exit, _) => exit,
    };
    let recording = args
        .pcap
        .as_deref()
        .zip(monitor)
        .map(|(path, monitor)| recording(path, &monitor, incomplete.as_ref()));
    let numbered = taken.streams.report();
    if json {
        let body = Body {
            spec,
            settings,
            ended,
            nanoseconds,
            packets: taken.packets,
            bytes: taken.bytes,
            statistics,
            events: taken.events,
            hints,
            numbered,
            recording,
        };
        report::document(screen, "recv", exit, body)?;
    } else {
        print_summary(screen, ended, nanoseconds, &taken, &statistics)?;
        if !taken.streams.is_empty() {
            streams::print(screen, &numbered)?;
        }
        print_recording(screen, recording.as_ref(), incomplete.as_ref())?;
        print_hints(screen, &hints)?;
        screen.flush()?;
    }
    Ok(exit)
}

/// An endless run that a signal ends has ended as it was meant to.
fn exit(ended: Ended, args: &RecvArgs, packets: u64) -> Exit {
    let bounded = args.count.is_some() || args.time.is_some();
    let short = args.count.is_some_and(|count| packets < count);
    match ended {
        Ended::Signal if bounded => Exit::Interrupted,
        _ if packets == 0 || short => Exit::NoPackets,
        _ => Exit::Ok,
    }
}

/// The receiving itself.
struct Session<'a> {
    receiver: &'a mut Receiver,
    screen: &'a mut Screen,
    dump: Option<&'a mut Dump>,
    hex: Option<usize>,
    live: Live,
    /// How many packets are wanted.
    count: Option<u64>,
    taken: Taken,
}

/// What has come.
#[derive(Debug, Default)]
struct Taken {
    packets: u64,
    bytes: u64,
    events: Vec<Happened>,
    streams: Streams,
}

impl Session<'_> {
    fn receive(
        &mut self,
        deadline: Option<Instant>,
        interrupt: &Interrupt,
    ) -> Result<Ended, Failure> {
        loop {
            if self.count == Some(self.taken.packets) {
                return Ok(Ended::Count);
            }
            if interrupt.asked() {
                return Ok(Ended::Signal);
            }
            let now = Instant::now();
            while let Some(event) = self.receiver.take_event() {
                let happened = self.live.event(self.screen, event)?;
                self.taken.events.push(happened);
            }
            self.live
                .tick(now, self.screen, &self.taken, self.receiver)?;
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Ended::Time);
            }
            let batch = self.receiver.poll()?;
            if batch.is_empty() {
                // Whoever follows the output sees every packet that has come.
                if let Some(dump) = self.dump.as_deref_mut() {
                    dump.flush()?;
                }
                let until = deadline.map_or(SLICE, |deadline| deadline - now);
                let until = until.min(self.live.left(now).unwrap_or(SLICE));
                // Ready or not, the next poll tells.
                let _ = self.receiver.wait(Some(until.min(SLICE)))?;
                continue;
            }
            self.taken.packets += batch.len() as u64;
            self.taken.bytes += batch
                .iter()
                .map(|packet| packet.payload().len() as u64)
                .sum::<u64>();
            for packet in batch {
                self.taken.streams.packet(&packet);
            }
            show(self.screen, self.hex, self.dump.as_deref_mut(), batch)?;
        }
    }
}

/// Prints and writes the packets of a batch, where that was asked for.
fn show(
    screen: &mut Screen,
    hex: Option<usize>,
    dump: Option<&mut Dump>,
    batch: Batch<'_>,
) -> Result<(), Failure> {
    if let Some(dump) = dump {
        for packet in batch {
            dump.packet(&packet)?;
        }
    }
    if let Some(most) = hex {
        for packet in batch {
            screen.raw(&dump::text(&packet, most))?;
        }
    }
    Ok(())
}

fn print_opening(
    screen: &mut Screen,
    args: &RecvArgs,
    spec: &ReceiverSpec,
    settings: &[Setting],
) -> io::Result<()> {
    let receive = &spec.receive;
    let provider = spec.provider.as_deref().unwrap_or_default();
    screen.heading(&format!("Receiving with {provider}"))?;
    for group in &receive.groups {
        let mut text = group.to_string();
        if !group.sources.is_empty() {
            let sources: Vec<_> = group.sources.iter().map(ToString::to_string).collect();
            text.push_str(&format!(" from {}", sources.join(", ")));
        }
        screen.field("group", text)?;
    }
    if let Some(unicast) = receive.unicast {
        screen.field("address", unicast)?;
    }
    if let Some(interface) = &receive.interface {
        screen.field("interface", interface)?;
    }
    for setting in settings {
        let text = format!("asked {}, granted {}", setting.asked, setting.granted);
        screen.field(setting.name, text)?;
        if let Some(warning) = &setting.warning {
            screen.field_as(Look::Warning, "  warning", warning)?;
        }
    }
    let until = match (args.count, args.time) {
        (Some(count), Some(time)) => format!("{} packets, at most {time:?}", grouped(count)),
        (Some(count), None) => format!("{} packets, or Ctrl-C", grouped(count)),
        (None, Some(time)) => format!("{time:?}, or Ctrl-C"),
        (None, None) => "Ctrl-C".to_owned(),
    };
    screen.field("until", until)?;
    screen.flush()
}

fn print_summary(
    screen: &mut Screen,
    ended: Ended,
    nanoseconds: u64,
    taken: &Taken,
    statistics: &Statistics,
) -> io::Result<()> {
    let seconds = nanoseconds as f64 / 1e9;
    let per_second = |count: u64| (count as f64 / seconds.max(1e-9)).round();
    screen.gap()?;
    screen.heading("Summary")?;
    screen.field(
        "packets",
        format!(
            "{} in {seconds:.3} s, {} packets/s",
            grouped(taken.packets),
            grouped(per_second(taken.packets) as u64), // a rate fits
        ),
    )?;
    screen.field(
        "payload",
        format!(
            "{} bytes, {:.3} Mbit/s",
            grouped(taken.bytes),
            per_second(taken.bytes) * 8.0 / 1e6,
        ),
    )?;
    screen.field("lost", report::losses(&statistics.losses))?;
    if let Some(uncounted) = report::uncounted(&statistics.losses) {
        screen.field_as(Look::Dim, "", uncounted)?;
    }
    screen.field(
        "ended by",
        match ended {
            Ended::Count => "--count",
            Ended::Signal => "a signal",
            Ended::Time => "--for",
        },
    )
}

/// What the file has, now that it is closed.
fn recording(path: &Path, monitor: &Monitor, incomplete: Option<&Error>) -> Recording {
    Recording {
        file: path.display().to_string(),
        packets: monitor.recorded(),
        bytes: monitor.bytes(),
        error: incomplete.map(ErrorReport::from),
    }
}

fn print_recording(
    screen: &mut Screen,
    recording: Option<&Recording>,
    incomplete: Option<&Error>,
) -> io::Result<()> {
    let Some(recording) = recording else {
        return Ok(());
    };
    let text = format!(
        "{} packets, {} bytes in {}",
        grouped(recording.packets),
        grouped(recording.bytes),
        recording.file
    );
    screen.field("recorded", text)?;
    match incomplete {
        Some(error) => screen.field_as(Look::Bad, "  not all", error),
        None => Ok(()),
    }
}

fn print_hints(screen: &mut Screen, hints: &[Hint]) -> io::Result<()> {
    if hints.is_empty() {
        return Ok(());
    }
    screen.field_as(Look::Bad, "no packets", "what the host shows:")?;
    for hint in hints {
        screen.hanging("  - ", 4, Look::Plain, &hint.evidence)?;
        if let Some(next) = &hint.next {
            screen.hanging("    try: ", 9, Look::Plain, next)?;
        }
    }
    Ok(())
}
