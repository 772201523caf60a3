//! `probe latency`: how long numbered packets are on their way, on one clock.
//!
//! Either it sends to itself from a second thread, or it listens to a `probe send` that runs already. Promises: it says which clock took
//! the time of arrival; the time is told from the sending call and from the schedule, so that a sender that was held up can't
//! hide it; nothing is opened that was not named. Does not do: comparing the clocks of two hosts. It trusts them.

mod measure;
mod svg;

use std::fs::{self, File};
use std::io::{self, BufWriter, IoSlice};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use lockgate::receive::{
    ConfigFaults, Losses, Receiver, ReceiverConfig, ReceiverSpec, TimestampMode,
};
use lockgate::{Error, ErrorKind};
use lockgate_providers::loopback::{Datagram, Sender};
use serde::Serialize;

use super::send::{Ended, exit, plan, print_sent, print_stream, tell};
use super::spec::{name_the_flag, spec};
use crate::cli::{LatencyArgs, TargetArgs};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::outlet::{Attempt, Outlet, Refusal, UdpOutlet};
use crate::output::{Look, Screen, grouped};
use crate::progress::Progress;
use crate::providers::Providers;
use crate::report::{self, ErrorReport, Failure};
use crate::spread::Spread;
use crate::transmit::{self, Flow, Plan, Sent, nanoseconds};
use measure::{Counts, Log, Measure};

/// How long one wait lasts at most, so that a signal is noticed.
const SLICE: Duration = Duration::from_millis(20);
/// How long nothing may arrive after the last packet was sent.
const QUIET: Duration = Duration::from_millis(300);
/// How long a run lasts if nobody says.
const TIME: Duration = Duration::from_secs(10);
/// What the bucket holds if nobody says: a sender that was held up sends what it owes, and the delay shows.
const BURST: u32 = 4_096;

#[derive(Debug, Serialize)]
struct Body {
    spec: ReceiverSpec,
    mode: &'static str,
    ended: Ended,
    nanoseconds: u64,
    sent: Option<Sent>,
    counts: Counts,
    losses: Losses,
    /// From the sending call to the arrival.
    latency: Option<Spread>,
    /// From when the schedule wanted it sent.
    from_schedule: Option<Spread>,
    error: Option<ErrorReport>,
}

/// What came of it.
struct Outcome {
    measure: Measure,
    sent: Option<Sent>,
    ended: Ended,
    error: Option<Error>,
    nanoseconds: u64,
}

/// Measures.
pub(crate) fn run(args: &LatencyArgs, screen: &mut Screen, json: bool) -> Result<Exit, Failure> {
    let spec = spec(&args.receive)?;
    if spec.receive.timestamps == TimestampMode::Hardware {
        return Err(other_clock().into());
    }
    let providers = Providers::register()?;
    let interrupt = Interrupt::install()?;
    let opened = providers.registry.open_receiver_spec(&spec);
    let mut receiver = opened.map_err(name_the_flag)?;
    let mut pace = args.pace.clone();
    pace.burst = Some(pace.burst.unwrap_or(BURST));
    let time = match (args.count, args.time) {
        (None, None) => Some(TIME),
        (_, time) => time,
    };
    let plan = plan(&pace, args.count, time);
    let mut outlet = match args.listen {
        true => None,
        false => Some(outlet(&spec, &providers)?),
    };
    if !json {
        print_opening(screen, args, &spec, &receiver)?;
        if outlet.is_some() {
            print_stream(screen, &pace, plan.stream)?;
        }
        screen.flush()?;
    }

    let mut run = Run {
        receiver: &mut receiver,
        plan,
        interrupt: &interrupt,
        progress: Progress::start(!json, args.count),
    };
    let outcome = with_log(args.hdr.as_deref(), |log| run.measure(outlet.as_mut(), log));
    run.progress.end();
    let outcome = outcome?;
    let losses = receiver.statistics().losses;
    receiver.close()?;
    if let Some(path) = &args.svg {
        write_svg(path, &spec, &outcome.measure)?;
    }

    let bounded = args.count.is_some() || args.time.is_some();
    let exit = match exit(outcome.ended, bounded, outcome.error.as_ref()) {
        Exit::Ok if outcome.measure.from_sent.is_empty() => Exit::NoPackets,
        Exit::Ok if outcome.measure.counts.damaged > 0 => Exit::Verification,
        exit => exit,
    };
    let measure = &outcome.measure;
    if json {
        let body = Body {
            spec,
            mode: if args.listen { "listen" } else { "self" },
            ended: outcome.ended,
            nanoseconds: outcome.nanoseconds,
            sent: outcome.sent,
            counts: measure.counts.clone(),
            losses,
            latency: Spread::of(&measure.from_sent),
            from_schedule: Spread::of(&measure.from_due),
            error: outcome.error.as_ref().map(ErrorReport::from),
        };
        report::document(screen, "latency", exit, body)?;
    } else {
        print_summary(screen, args, &outcome, &losses)?;
        screen.flush()?;
    }
    tell(outcome.error.as_ref(), screen)?;
    Ok(exit)
}

fn other_clock() -> Error {
    let mut faults = ConfigFaults::new();
    let problem = "is another clock than the one that the sender reads";
    faults.push("timestamps", "\"hardware\"", problem, "none, software");
    Error::new(ErrorKind::Invalid(faults), "read command line")
}

/// The way to the receiver.
fn outlet(spec: &ReceiverSpec, providers: &Providers) -> Result<Box<dyn Outlet>, Error> {
    let target = target(&spec.receive)?;
    if spec.provider.as_deref() == Some("loopback") {
        return Ok(Box::new(Inside {
            sender: providers.network.sender(),
            to: target.to,
        }));
    }
    Ok(Box::new(UdpOutlet::open(&target)?))
}

/// Where the receiver expects its packets.
fn target(receive: &ReceiverConfig) -> Result<TargetArgs, Error> {
    let (to, source) = match (&receive.groups[..], receive.unicast) {
        ([group], None) => (group.socket_address(), group.sources.first()),
        ([], Some(unicast)) => (unicast, None),
        (groups, _) => {
            let mut faults = ConfigFaults::new();
            let value = format!("{} groups", groups.len());
            let problem = "is more than one stream goes to";
            faults.push("--group", value, problem, "one group, or --listen");
            return Err(Error::new(ErrorKind::Invalid(faults), "read command line"));
        }
    };
    Ok(TargetArgs {
        to,
        // A host is found by the routing table; a group needs the interface that it is received on.
        interface: receive.interface.clone().filter(|_| to.ip().is_multicast()),
        source: source.map(|address| (*address, 0).into()),
        ttl: None,
    })
}

/// Sends within the process.
struct Inside {
    sender: Sender,
    to: SocketAddr,
}

impl Outlet for Inside {
    fn send(&mut self, datagrams: &[IoSlice<'_>]) -> Attempt {
        const SOURCE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 47_001);
        for (accepted, payload) in datagrams.iter().enumerate() {
            let sent = self.sender.send(&Datagram {
                source: SOURCE,
                destination: self.to,
                payload,
                vlan: None,
            });
            if let Err(error) = sent {
                return Attempt {
                    accepted,
                    refusal: Some(Refusal::Stop(error)),
                };
            }
        }
        Attempt {
            accepted: datagrams.len(),
            refusal: None,
        }
    }
}

struct Run<'a> {
    receiver: &'a mut Receiver,
    plan: Plan,
    interrupt: &'a Interrupt,
    progress: Progress,
}

impl Run<'_> {
    fn measure(
        &mut self,
        outlet: Option<&mut Box<dyn Outlet>>,
        log: &mut Log<'_>,
    ) -> Result<Outcome, Failure> {
        match outlet {
            Some(outlet) => self.own(&mut **outlet, log),
            None => self.listen(log),
        }
    }

    /// Sends from a second thread.
    fn own(&mut self, outlet: &mut dyn Outlet, log: &mut Log<'_>) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let mut measure = Measure::new(Some(self.plan.stream), started)?;
        let (stop, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let plan = self.plan;
        let (received, sent) = thread::scope(|scope| {
            let sender = thread::Builder::new()
                .name("stream-sender".to_owned())
                .spawn_scoped(scope, || {
                    let result = transmit::run(outlet, &plan, |_| {
                        if stop.load(Ordering::Relaxed) {
                            Flow::Stop
                        } else {
                            Flow::On
                        }
                    });
                    // What was sent before is seen by whoever sees this.
                    done.store(true, Ordering::Release);
                    result
                })
                .map_err(|error| Error::from_io("start thread", error))?;
            let received = self.receive(&mut measure, &done, &stop, log);
            stop.store(true, Ordering::Relaxed);
            let sent = sender.join().map_err(|_| {
                Error::new(ErrorKind::Bug, "send stream").with_detail("the sending thread panicked")
            })?;
            Ok::<_, Error>((received, sent))
        })?;
        received?;
        let (sent, error) = sent;
        measure.finish(Some(sent.packets));
        let counted = plan.count.is_some_and(|count| sent.packets >= count);
        Ok(Outcome {
            ended: match &error {
                Some(_) => Ended::Error,
                None if counted => Ended::Count,
                None if self.interrupt.asked() => Ended::Signal,
                None => Ended::Time,
            },
            measure,
            sent: Some(sent),
            error,
            nanoseconds: nanoseconds(started.elapsed()),
        })
    }

    /// Receives until the sender is done and everything has come, or nothing more comes.
    fn receive(
        &mut self,
        measure: &mut Measure,
        done: &AtomicBool,
        stop: &AtomicBool,
        log: &mut Log<'_>,
    ) -> Result<(), Failure> {
        let mut quiet = Instant::now();
        loop {
            if self.interrupt.asked() {
                stop.store(true, Ordering::Relaxed);
            }
            // Read before the poll: what had been sent by then can be in the batch.
            let done = done.load(Ordering::Acquire);
            if self.poll(measure, u64::MAX, log)? {
                quiet = Instant::now();
                continue;
            }
            // The last packet is the one with the highest number; before it all others have come, or been lost or overtaken.
            let all = measure.ended && measure.is_complete();
            if done && (all || quiet.elapsed() > QUIET) {
                return Ok(measure.log(log, true)?);
            }
            // Ready or not, the next poll tells.
            let _ = self.receiver.wait(Some(SLICE))?;
        }
    }

    /// Measures the stream of somebody else.
    fn listen(&mut self, log: &mut Log<'_>) -> Result<Outcome, Failure> {
        let started = Instant::now();
        let mut measure = Measure::new(None, started)?;
        let most = self.plan.count.unwrap_or(u64::MAX);
        let ended = loop {
            if measure.counts.packets >= most {
                break Ended::Count;
            }
            if self.interrupt.asked() {
                break Ended::Signal;
            }
            if self.plan.time.is_some_and(|time| started.elapsed() >= time) {
                break Ended::Time;
            }
            if self.poll(&mut measure, most, log)? {
                continue;
            }
            if measure.ended {
                break Ended::End;
            }
            let _ = self.receiver.wait(Some(SLICE))?;
        };
        measure.log(log, true)?;
        measure.finish(None);
        Ok(Outcome {
            measure,
            sent: None,
            ended,
            error: None,
            nanoseconds: nanoseconds(started.elapsed()),
        })
    }

    /// One poll. Says whether anything came.
    fn poll(
        &mut self,
        measure: &mut Measure,
        most: u64,
        log: &mut Log<'_>,
    ) -> Result<bool, Failure> {
        let batch = self.receiver.poll()?;
        let some = !batch.is_empty();
        if some {
            measure.batch(batch, most);
        }
        measure.log(log, false)?;
        let packets = measure.counts.packets;
        self.progress.tell(Instant::now(), packets, || {
            format!("{} packets", grouped(packets))
        });
        Ok(some)
    }
}

/// Runs `body` with the log of `path`, or with one that takes nothing.
fn with_log<T>(
    path: Option<&Path>,
    body: impl FnOnce(&mut Log<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let Some(path) = path else {
        return body(&mut |_, _, _| Ok(()));
    };
    let failed =
        |error| Error::from_io("write HDR log", error).with_object(path.display().to_string());
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    let mut serializer = V2DeflateSerializer::new();
    let value = {
        let mut writer = IntervalLogWriterBuilder::new()
            .add_comment("probe latency: nanoseconds from the sending call to the arrival")
            .with_start_time(SystemTime::now())
            // The column of the largest value in milliseconds, as other writers have it.
            .with_max_value_divisor(1e6)
            .begin_log_with(&mut file, &mut serializer)
            .map_err(failed)?;
        body(&mut |histogram: &Histogram<u64>, start, length| {
            writer
                .write_histogram(histogram, start, length, None)
                .map_err(|error| io::Error::other(error.to_string()))
        })?
    };
    io::Write::flush(&mut file).map_err(failed)?;
    Ok(value)
}

fn write_svg(path: &Path, spec: &ReceiverSpec, measure: &Measure) -> Result<(), Error> {
    let title = format!(
        "One-way latency with {}, {} packets",
        spec.provider.as_deref().unwrap_or_default(),
        grouped(measure.from_sent.len())
    );
    let curves = [
        svg::Curve {
            name: "from the sending call",
            colour: "#1f77b4",
            histogram: &measure.from_sent,
        },
        svg::Curve {
            name: "from the schedule",
            colour: "#d62728",
            histogram: &measure.from_due,
        },
    ];
    fs::write(path, svg::draw(&title, &curves)).map_err(|error| {
        Error::from_io("write plot", error).with_object(path.display().to_string())
    })
}

fn print_opening(
    screen: &mut Screen,
    args: &LatencyArgs,
    spec: &ReceiverSpec,
    receiver: &Receiver,
) -> io::Result<()> {
    let receive = &spec.receive;
    screen.heading(&format!("Latency with {}", receiver.provider()))?;
    for group in &receive.groups {
        screen.field("group", group)?;
    }
    if let Some(unicast) = receive.unicast {
        screen.field("address", unicast)?;
    }
    if let Some(interface) = &receive.interface {
        screen.field("interface", interface)?;
    }
    screen.field(
        "arrival",
        match receive.timestamps {
            TimestampMode::Software => "stamped by the kernel's software, before it is queued",
            _ => "the system's clock when the poll returns",
        },
    )?;
    if args.listen {
        screen.field("listening", "the first numbered stream that comes")?;
    }
    Ok(())
}

fn print_summary(
    screen: &mut Screen,
    args: &LatencyArgs,
    outcome: &Outcome,
    losses: &Losses,
) -> io::Result<()> {
    let counts = &outcome.measure.counts;
    screen.gap()?;
    screen.heading("Summary")?;
    if let Some(sent) = &outcome.sent {
        print_sent(screen, sent)?;
    }
    let text = format!(
        "{} packets, {} missing, {} doubled, {} out of order",
        grouped(counts.packets),
        grouped(counts.missing),
        grouped(counts.duplicates),
        grouped(counts.reordered)
    );
    screen.field("arrived", text)?;
    screen.field("lost", report::losses(losses))?;
    for (count, why) in [
        (
            counts.other_clock,
            "not measured: the sender's times are of another clock",
        ),
        (
            counts.before_sent,
            "not measured: they arrived before they were sent; the clocks disagree",
        ),
        (counts.damaged, "with a wrong byte"),
        (counts.foreign, "of somebody else"),
    ] {
        if count > 0 {
            let text = format!("{} packets {why}", grouped(count));
            screen.field_as(Look::Warning, "  of note", text)?;
        }
    }
    match (
        Spread::of(&outcome.measure.from_sent),
        Spread::of(&outcome.measure.from_due),
    ) {
        (Some(sent), Some(due)) => {
            screen.field("latency", sent.text())?;
            screen.field_as(Look::Dim, "", "from the sending call to the arrival")?;
            screen.field("", due.text())?;
            screen.field_as(Look::Dim, "", "from when the schedule wanted it sent")?;
            let text = format!(
                "{} by the kernel, {} when the poll returned",
                grouped(counts.stamped_by_kernel),
                grouped(counts.stamped_at_poll)
            );
            screen.field("stamped", text)?;
        }
        _ => screen.field_as(Look::Bad, "latency", "nothing was measured")?,
    }
    for (path, what) in [(&args.hdr, "HDR log"), (&args.svg, "plot")] {
        if let Some(path) = path {
            screen.field("written", format!("{what} {}", path.display()))?;
        }
    }
    let ended = match outcome.ended {
        Ended::End => "the last packet of the stream",
        ended => ended.text(),
    };
    screen.field("ended by", ended)
}
