//! `probe recv`: receives with a provider that the command line or the file names.
//!
//! Promises: without a name nothing is opened; ends at the count, at the time or at a signal, always with a summary; if nothing has
//! come, says what the host shows about the reason. Does not do: picking a provider, an interface or a group.

mod dump;
mod hints;

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use lockgate::receive::{Batch, ConfigFaults, Event, Receiver, ReceiverSpec, Setting, Statistics};
use lockgate::registry::RefusalCause;
use lockgate::{Error, ErrorKind};
use serde::Serialize;

use crate::cli::{OutputArgs, RecvArgs};
use crate::exit::Exit;
use crate::host::Host;
use crate::interrupt::Interrupt;
use crate::output::{Look, Screen, grouped};
use crate::providers::Providers;
use crate::report::{self, Failure};

use dump::Dump;
use hints::Hint;

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
    events: Vec<Event>,
    hints: Vec<Hint>,
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

    let spec = spec(args)?;
    let providers = Providers::register()?;
    let interrupt = Interrupt::install()?;
    let before = Host::read();
    let opened = providers.registry.open_receiver_spec(&spec);
    let mut receiver = opened.map_err(name_the_flag)?;
    let settings = receiver.settings();
    let mut dump = args.dump.as_deref().map(Dump::create).transpose()?;
    if !json {
        print_opening(screen, args, &spec, &settings)?;
    }

    let started = Instant::now();
    let mut session = Session {
        receiver: &mut receiver,
        screen: &mut *screen,
        dump: dump.as_mut(),
        hex: args.hex,
        quiet: json,
        count: args.count,
        taken: Taken::default(),
    };
    let deadline = args.time.and_then(|time| started.checked_add(time));
    let ended = session.receive(deadline, &interrupt)?;
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
    let exit = exit(ended, args, taken.packets);
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
        };
        report::document(screen, "recv", exit, body)?;
    } else {
        print_summary(screen, ended, nanoseconds, &taken, &statistics)?;
        print_hints(screen, &hints)?;
        screen.flush()?;
    }
    Ok(exit)
}

/// The configuration: the file's, and over it what the command line says.
fn spec(args: &RecvArgs) -> Result<ReceiverSpec, Error> {
    let mut spec = match &args.config {
        Some(path) => read_spec(path)?,
        None => ReceiverSpec::default(),
    };
    let receive = &mut spec.receive;
    if args.provider.is_some() {
        spec.provider.clone_from(&args.provider);
    }
    if !args.groups.is_empty() {
        receive.groups.clone_from(&args.groups);
    }
    if args.unicast.is_some() {
        receive.unicast = args.unicast;
    }
    if args.interface.is_some() {
        receive.interface.clone_from(&args.interface);
    }
    if args.device.is_some() {
        receive.device.clone_from(&args.device);
    }
    receive.vlan = args.vlan.or(receive.vlan);
    receive.ring = args.ring.unwrap_or(receive.ring);
    receive.batch = args.batch.unwrap_or(receive.batch);
    receive.buffer_bytes = args.buffer_bytes.unwrap_or(receive.buffer_bytes);
    receive.mtu = args.mtu.unwrap_or(receive.mtu);
    receive.wait = args.wait.map_or(receive.wait, Into::into);
    receive.timestamps = args.timestamps.map_or(receive.timestamps, Into::into);
    for (name, value) in &args.options {
        receive.options.set(name, value.clone());
    }
    Ok(spec)
}

fn read_spec(path: &Path) -> Result<ReceiverSpec, Error> {
    let text = fs::read_to_string(path).map_err(|error| {
        Error::new(ErrorKind::Syntax, "read configuration")
            .with_object(path.display().to_string())
            .with_detail(error.to_string())
            .with_source(error)
    })?;
    let json = path
        .extension()
        .is_some_and(|extension| extension == "json");
    let read = if json {
        ReceiverSpec::from_json
    } else {
        ReceiverSpec::from_toml
    };
    read(&text).map_err(|error| error.with_object(path.display().to_string()))
}

/// On a command line, the missing name is a missing flag.
fn name_the_flag(error: Error) -> Error {
    match error.refusal() {
        Some(refusal) if refusal.cause == RefusalCause::Implicit => {
            let remedy = format!("{} (--provider NAME)", refusal.remedy);
            error.with_remedy(remedy)
        }
        _ => error,
    }
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
    quiet: bool,
    /// How many packets are wanted.
    count: Option<u64>,
    taken: Taken,
}

/// What has come.
#[derive(Debug, Default)]
struct Taken {
    packets: u64,
    bytes: u64,
    events: Vec<Event>,
}

impl Session<'_> {
    fn receive(
        &mut self,
        deadline: Option<Instant>,
        interrupt: &Interrupt,
    ) -> Result<Ended, Failure> {
        loop {
            let left = self.count.map(|count| count - self.taken.packets);
            if left == Some(0) {
                return Ok(Ended::Count);
            }
            if interrupt.asked() {
                return Ok(Ended::Signal);
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Ended::Time);
            }
            while let Some(event) = self.receiver.take_event() {
                if !self.quiet {
                    let text = event_text(&event);
                    self.screen.field_as(Look::Warning, "event", text)?;
                    self.screen.flush()?;
                }
                self.taken.events.push(event);
            }
            let batch = self.receiver.poll()?;
            if batch.is_empty() {
                // Whoever follows the output sees every packet that has come.
                if let Some(dump) = self.dump.as_deref_mut() {
                    dump.flush()?;
                }
                let until = deadline.map_or(SLICE, |deadline| deadline - now);
                // Ready or not, the next poll tells.
                let _ = self.receiver.wait(Some(until.min(SLICE)))?;
                continue;
            }
            let most = left.and_then(|left| usize::try_from(left).ok());
            let batch = batch.truncate(most.unwrap_or(usize::MAX));
            self.taken.packets += batch.len() as u64;
            self.taken.bytes += batch
                .iter()
                .map(|packet| packet.payload().len() as u64)
                .sum::<u64>();
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
) -> io::Result<()> {
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

fn event_text(event: &Event) -> String {
    match event {
        Event::LinkDown { interface } => format!("{interface}: link down"),
        Event::LinkUp { interface } => format!("{interface}: link up"),
        Event::InterfaceRemoved { interface } => format!("{interface}: interface removed"),
        Event::Rejoined { group, interface } => format!("{interface}: joined {group} again"),
        Event::DeviceFatal { device } => format!("{device}: the device failed"),
        Event::Other { text } => text.clone(),
        other => format!("{other:?}"),
    }
}
