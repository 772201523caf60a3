//! `probe replay`: sends the UDP payloads of a capture again, at their own pace or another.
//!
//! Promises: the payload stays byte for byte; addresses and sums are those of the new way, made by the kernel, so that no privilege is
//! needed; what can't be sent is counted by its reason; a capture that is broken is sent up to the break, and the error has
//! the offset. Does not do: joining fragments, other protocols than UDP, keeping the old source address.

use std::fmt;
use std::fs::File;
use std::io::{self, IoSlice, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use lockgate::receive::frame::Reject;
use lockgate::{Error, ErrorKind};
use lockgate_providers::capture::{
    CaptureError, CaptureFault, Datagram, Format, Pace, ReaddressError, Reader, RecordedPacket,
    Schedule,
};
use serde::Serialize;

use super::send::{Ended, exit, print_gaps, print_target, tell};
use crate::cli::{ReplayArgs, Speed};
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::outlet::{BATCH, Outlet, Refusal, UdpOutlet};
use crate::output::{Look, Screen, grouped};
use crate::pace;
use crate::progress::Progress;
use crate::report::{self, ErrorReport, Failure};
use crate::spread::Spread;
use crate::transmit::{Times, nanoseconds};

/// Nothing taken for so long, only refused for want of a buffer, is an error.
const STUCK: Duration = Duration::from_secs(10);
/// Payloads that are due at the same time are sent together, up to so many bytes.
const TOGETHER: usize = 1 << 20;

/// What became of the packets of the capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    /// Packets read.
    read: u64,
    /// Payloads that the system took.
    sent: u64,
    /// Their bytes.
    bytes: u64,
    /// Not sent, because `--only` names other destinations.
    other_destination: u64,
    /// Not sent, because the capture has not all of it.
    cut: u64,
    /// Not sent, because it is a fragment.
    fragments: u64,
    /// Not sent, because it is no whole UDP packet.
    not_udp: u64,
    /// Not sent, because what stands in front of IP is not known.
    unknown_link: u64,
    /// Packets that were captured before the one ahead of them; sent together with that one.
    backwards: u64,
    /// Packets without a time; sent together with the one ahead of them.
    untimed: u64,
    /// Sending calls that took at least one.
    calls: u64,
    /// Refused because a queue was full, and sent again (ENOBUFS).
    no_buffer: u64,
    /// How often the other host said that nobody listens on the port.
    port_closed: u64,
}

#[derive(Debug, Serialize)]
struct Body {
    capture: String,
    form: String,
    to: SocketAddr,
    source: SocketAddr,
    interface: Option<String>,
    ended: Ended,
    nanoseconds: u64,
    counts: Counts,
    gaps: Option<Spread>,
    late: Option<Spread>,
    error: Option<ErrorReport>,
}

/// Why it ended before its end.
enum Broken {
    /// The capture.
    Capture(CaptureError),
    /// The sending.
    Sending(Error),
}

impl From<CaptureError> for Broken {
    fn from(error: CaptureError) -> Self {
        Self::Capture(error)
    }
}

/// Sends a capture again.
pub(crate) fn run(args: &ReplayArgs, screen: &mut Screen, json: bool) -> Result<Exit, Failure> {
    let interrupt = Interrupt::install()?;
    let schedule = Schedule::new(match args.speed {
        Speed::Factor(factor) => Pace::Factor(factor),
        Speed::Max => Pace::FlatOut,
        Speed::Original => Pace::Original,
    })
    // The command line allows no other factors.
    .map_err(|error| Error::new(ErrorKind::Bug, "plan replay").with_source(error))?;
    let name = args.capture.display().to_string();
    let input: Box<dyn Read> = if args.capture == Path::new("-") {
        Box::new(io::stdin())
    } else {
        Box::new(
            File::open(&args.capture)
                .map_err(|error| Error::from_io("open capture", error).with_object(&name))?,
        )
    };
    let mut outlet = UdpOutlet::open(&args.target)?;
    let source = outlet.source()?;
    let mut replay = Replay {
        args,
        outlet: &mut outlet,
        schedule,
        waiting: Waiting::default(),
        counts: Counts::default(),
        times: Times::new()?,
        origin: Instant::now(),
        progress: Progress::start(!json, None),
    };
    let (form, outcome) = match Reader::new(input) {
        Ok(mut reader) => {
            let form = form(reader.format());
            if !json {
                screen.heading(&format!("Replaying {name} to {}", args.target.to))?;
                screen.field("form", form)?;
                print_target(screen, &args.target, source)?;
                screen.field("speed", Words(args.speed))?;
                screen.flush()?;
            }
            replay.origin = Instant::now();
            (form, replay.run(&mut reader, &interrupt))
        }
        Err(error) => ("unknown", Err(error.into())),
    };
    replay.progress.end();
    let elapsed = nanoseconds(replay.origin.elapsed());
    let mut counts = replay.counts;
    counts.backwards = replay.schedule.backwards();
    counts.untimed = replay.schedule.untimed();

    let (ended, error, exit) = match outcome {
        Ok(ended) => {
            let exit = match exit(ended, true, None) {
                Exit::Ok if counts.sent == 0 => Exit::NoPackets,
                exit => exit,
            };
            (ended, None, exit)
        }
        Err(Broken::Sending(error)) => {
            let exit = Exit::of(&error);
            (Ended::Error, Some(error), exit)
        }
        Err(Broken::Capture(error)) => {
            let (error, exit) = broken(error, &name);
            (Ended::Error, Some(error), exit)
        }
    };
    let (gaps, late) = (replay.times.gaps(), replay.times.late());
    if json {
        let body = Body {
            capture: name,
            form: form.to_owned(),
            to: args.target.to,
            source,
            interface: args.target.interface.clone(),
            ended,
            nanoseconds: elapsed,
            counts,
            gaps,
            late,
            error: error.as_ref().map(ErrorReport::from),
        };
        report::document(screen, "replay", exit, body)?;
    } else {
        screen.gap()?;
        screen.heading("Summary")?;
        print_counts(screen, &counts, elapsed)?;
        print_gaps(screen, counts.calls, counts.sent, gaps, late)?;
        screen.field("ended by", ended.text())?;
        screen.flush()?;
    }
    tell(error.as_ref(), screen)?;
    Ok(exit)
}

/// A capture that can't be read on, as an error, and the code for it: a broken file has its own, a failed reading that of its number.
fn broken(error: CaptureError, name: &str) -> (Error, Exit) {
    let remedy = match &error.fault {
        CaptureFault::Cut { .. } => {
            Some("what stands before the offset was sent; the rest is missing in the file")
        }
        CaptureFault::Malformed { .. } => Some(
            "what stands before the offset was sent; tshark -r shows what it makes of the rest",
        ),
        CaptureFault::NotACapture { .. } => {
            Some("name a pcap or pcapng file; `file NAME` tells what it is")
        }
        _ => None,
    };
    let reading = matches!(error.fault, CaptureFault::Io(_));
    let error = Error::from(error).with_object(name);
    let error = match remedy {
        Some(remedy) => error.with_remedy(remedy),
        None => error,
    };
    let exit = if reading {
        Exit::of(&error)
    } else {
        Exit::Capture
    };
    (error, exit)
}

/// Payloads that are due at the same time and go in one call.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    due: u64,
}

struct Replay<'a> {
    args: &'a ReplayArgs,
    outlet: &'a mut dyn Outlet,
    schedule: Schedule,
    waiting: Waiting,
    counts: Counts,
    times: Times,
    origin: Instant,
    progress: Progress,
}

impl Replay<'_> {
    fn run<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        interrupt: &Interrupt,
    ) -> Result<Ended, Broken> {
        pace::sharpen_sleep();
        let outcome = self.packets(reader, interrupt);
        // What was read before a break is sent, too.
        if !matches!(outcome, Err(Broken::Sending(_)) | Ok(Ended::Signal))
            && !self.send(interrupt).map_err(Broken::Sending)?
        {
            return Ok(Ended::Signal);
        }
        outcome
    }

    fn packets<R: Read>(
        &mut self,
        reader: &mut Reader<R>,
        interrupt: &Interrupt,
    ) -> Result<Ended, Broken> {
        while let Some(packet) = reader.next_packet()? {
            if interrupt.asked() {
                return Ok(Ended::Signal);
            }
            self.counts.read += 1;
            let Some(payload) = self.payload(&packet) else {
                continue;
            };
            let due = nanoseconds(self.schedule.due(packet.nanos));
            if !self.waiting.fits(due, payload) && !self.send(interrupt).map_err(Broken::Sending)? {
                return Ok(Ended::Signal);
            }
            self.waiting.add(due, payload);
            let queued = self.counts.sent + self.waiting.ends.len() as u64;
            if self.args.count == Some(queued) {
                return Ok(Ended::Count);
            }
        }
        Ok(Ended::End)
    }

    /// What a packet carries, if it is to be sent; else its reason is counted.
    fn payload<'p>(&mut self, packet: &RecordedPacket<'p>) -> Option<&'p [u8]> {
        let counts = &mut self.counts;
        let found = match Datagram::find(packet.link, packet.bytes) {
            Ok(found) => found,
            Err(error) => {
                let count = match error {
                    _ if packet.is_cut() => &mut counts.cut,
                    ReaddressError::NotUdp(Reject::Fragment { .. }) => &mut counts.fragments,
                    ReaddressError::LinkType(_) => &mut counts.unknown_link,
                    _ => &mut counts.not_udp,
                };
                *count += 1;
                return None;
            }
        };
        let only = &self.args.only;
        if !only.is_empty() && !only.contains(&found.destination) {
            counts.other_destination += 1;
            return None;
        }
        Some(found.payload)
    }

    /// Sends what waits, at its time. Says whether to go on.
    fn send(&mut self, interrupt: &Interrupt) -> Result<bool, Error> {
        let timed = self.args.speed != Speed::Max;
        let waiting = std::mem::take(&mut self.waiting);
        let payloads = waiting.payloads();
        let mut left = &payloads[..];
        let mut refused_since: Option<Instant> = None;
        while !left.is_empty() {
            let (progress, sent) = (&mut self.progress, self.counts.sent);
            let on = pace::wait_until(self.origin, waiting.due, || {
                progress.tell(Instant::now(), sent, || {
                    format!("{} packets", grouped(sent))
                });
                interrupt.asked()
            });
            if !on {
                return Ok(false);
            }
            let now = nanoseconds(self.origin.elapsed());
            let attempt = self.outlet.send(left);
            if attempt.accepted > 0 {
                self.times.call(now, timed.then_some(waiting.due));
                self.counts.calls += 1;
                self.counts.sent += attempt.accepted as u64;
                let taken = left[..attempt.accepted].iter().map(|one| one.len() as u64);
                self.counts.bytes += taken.sum::<u64>();
                refused_since = None;
            }
            left = &left[attempt.accepted..];
            match attempt.refusal {
                None => {}
                Some(Refusal::Closed) => self.counts.port_closed += 1,
                Some(Refusal::NoBuffer) => {
                    self.counts.no_buffer += 1;
                    if refused_since.get_or_insert_with(Instant::now).elapsed() > STUCK {
                        return Err(crate::transmit::stuck());
                    }
                    std::thread::yield_now();
                }
                Some(Refusal::Stop(error)) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Waiting {
    fn fits(&self, due: u64, payload: &[u8]) -> bool {
        self.ends.is_empty()
            || (self.due == due
                && self.ends.len() < BATCH
                && self.bytes.len() + payload.len() <= TOGETHER)
    }

    fn add(&mut self, due: u64, payload: &[u8]) {
        self.due = due;
        self.bytes.extend_from_slice(payload);
        self.ends.push(self.bytes.len());
    }

    fn payloads(&self) -> Vec<IoSlice<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts
            .zip(&self.ends)
            .map(|(start, end)| IoSlice::new(&self.bytes[start..*end]))
            .collect()
    }
}

fn print_counts(screen: &mut Screen, counts: &Counts, elapsed: u64) -> io::Result<()> {
    let seconds = elapsed as f64 / 1e9;
    let rate = counts.sent as f64 / seconds.max(1e-9);
    let text = format!(
        "{} of {} packets in {seconds:.3} s, {} packets/s",
        grouped(counts.sent),
        grouped(counts.read),
        grouped(rate.round() as u64) // a rate fits
    );
    screen.field("sent", text)?;
    screen.field("payload", format!("{} bytes", grouped(counts.bytes)))?;
    for (count, why) in [
        (
            counts.other_destination,
            "to a destination that --only does not name",
        ),
        (counts.cut, "not whole in the capture"),
        (counts.fragments, "fragments"),
        (counts.not_udp, "no whole UDP packets"),
        (counts.unknown_link, "of a link type that is not read"),
    ] {
        if count > 0 {
            let text = format!("{} {why}", grouped(count));
            screen.field_as(Look::Warning, "not sent", text)?;
        }
    }
    for (count, what) in [
        (
            counts.backwards,
            "captured before the one ahead of them; sent with it",
        ),
        (
            counts.untimed,
            "without a time; sent with the one ahead of them",
        ),
        (
            counts.no_buffer,
            "refused by a full queue (ENOBUFS), and sent again",
        ),
        (
            counts.port_closed,
            "times nobody listened on the port (ECONNREFUSED)",
        ),
    ] {
        if count > 0 {
            screen.field("  of note", format!("{} {what}", grouped(count)))?;
        }
    }
    Ok(())
}

fn form(format: Format) -> &'static str {
    match format {
        Format::Pcap {
            nanoseconds,
            big_endian,
        } => match (nanoseconds, big_endian) {
            (false, false) => "pcap, microseconds, little-endian",
            (false, true) => "pcap, microseconds, big-endian",
            (true, false) => "pcap, nanoseconds, little-endian",
            (true, true) => "pcap, nanoseconds, big-endian",
        },
        Format::PcapNg => "pcapng",
        _ => "unknown",
    }
}

/// A speed in words.
struct Words(Speed);

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Speed::Factor(factor) => write!(f, "{factor} times the original"),
            Speed::Max => f.write_str("as fast as it goes"),
            Speed::Original => f.write_str("as it was captured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_wait_together_only_while_they_are_due_together() {
        let mut waiting = Waiting::default();
        assert!(waiting.fits(5, b"abc"));
        waiting.add(5, b"abc");
        assert!(waiting.fits(5, b""));
        assert!(!waiting.fits(6, b""));
        waiting.add(5, b"");
        waiting.add(5, b"de");
        let payloads: Vec<_> = waiting.payloads().iter().map(|one| one.to_vec()).collect();
        assert_eq!(payloads, [&b"abc"[..], b"", b"de"]);
        for _ in waiting.ends.len()..BATCH {
            waiting.add(5, b"x");
        }
        assert!(!waiting.fits(5, b"x"));
    }

    #[test]
    fn a_broken_file_has_a_code_of_its_own_and_a_failed_reading_that_of_its_number() {
        let cut = CaptureFault::Cut {
            what: "packet",
            needed: 16,
            have: 3,
        };
        let (error, exit) = broken(
            CaptureError {
                offset: 77,
                fault: cut,
            },
            "x.pcap",
        );
        assert_eq!(exit, Exit::Capture);
        assert!(error.to_string().contains("offset 77"), "{error}");
        let io = CaptureFault::Io(io::Error::from_raw_os_error(5));
        let (error, exit) = broken(
            CaptureError {
                offset: 8,
                fault: io,
            },
            "x.pcap",
        );
        assert_eq!(exit, Exit::Failed);
        assert!(error.to_string().contains("EIO"), "{error}");
    }
}
