//! The numbered streams among what is received: which numbers are missing, doubled or out of order.
//!
//! Promises: streams are told apart by their own number; a receiver that joins in the middle misses nothing from before; memory is bounded,
//! however many streams and gaps there are, and what is not listed is counted. Does not do: knowing what the sender
//! sent after the last packet that came, unless that one says that it is the last.

use std::io;
use std::net::SocketAddr;

use lockgate::receive::Packet;
use serde::Serialize;

use crate::output::{Look, Screen, grouped};
use crate::stream::{self, Bad, Header, Tracker};

/// So many streams are followed.
const STREAMS: usize = 64;
/// So many gaps of each stream are listed.
const GAPS: usize = 16;

/// Follows every numbered stream.
#[derive(Debug, Default)]
pub(super) struct Streams {
    all: Vec<Stream>,
    /// The one that the last packet was of.
    latest: usize,
    damaged: u64,
    first_damaged: Option<String>,
    unfollowed: u64,
}

#[derive(Debug)]
struct Stream {
    id: u64,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    tracker: Tracker,
    packets: u64,
    /// The lowest number, as far as the window goes back.
    first: u64,
    gaps: u64,
    longest: u64,
    listed: Vec<Gap>,
    ended: bool,
}

/// Numbers that had not come when a higher one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Gap {
    /// The first of them.
    from: u64,
    /// The last of them.
    to: u64,
}

/// What is known of all streams at the end.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    streams: Vec<StreamReport>,
    /// Packets of a numbered stream with a wrong byte.
    damaged: u64,
    first_damaged: Option<String>,
    /// Packets of streams beyond the number that is followed.
    unfollowed: u64,
}

#[derive(Debug, Serialize)]
struct StreamReport {
    stream: String,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
    packets: u64,
    /// The lowest number that came.
    first: u64,
    /// The highest.
    last: u64,
    /// Numbers in between that did not come.
    missing: u64,
    gaps: u64,
    longest_gap: u64,
    /// The first gaps.
    listed: Vec<Gap>,
    duplicates: u64,
    reordered: u64,
    too_late: u64,
    /// Whether the packet came that says that it is the last.
    ended: bool,
}

impl Streams {
    /// Takes a packet, if it is of a numbered stream.
    pub(super) fn packet(&mut self, packet: &Packet<'_>) {
        match stream::parse(packet.payload()) {
            Ok(header) => self.header(&header, packet.source(), packet.destination()),
            Err(Bad::Foreign) => {}
            Err(bad) => {
                self.damaged += 1;
                self.first_damaged.get_or_insert_with(|| bad.to_string());
            }
        }
    }

    fn header(
        &mut self,
        header: &Header,
        source: Option<SocketAddr>,
        destination: Option<SocketAddr>,
    ) {
        let is_it = |one: &Stream| one.id == header.stream;
        let at = match self.all.get(self.latest) {
            Some(latest) if is_it(latest) => Some(self.latest),
            _ => self.all.iter().position(is_it),
        };
        let at = match at {
            Some(at) => at,
            None if self.all.len() == STREAMS => {
                self.unfollowed += 1;
                return;
            }
            None => {
                self.all.push(Stream::new(header, source, destination));
                self.all.len() - 1
            }
        };
        self.latest = at;
        self.all[at].take(header);
    }

    /// How many numbers are missing in all streams, as of now.
    pub(super) fn missing(&self) -> u64 {
        self.all.iter().map(Stream::missing).sum()
    }

    /// Whether there are any.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.damaged == 0
    }

    /// What is known now.
    pub(super) fn report(&self) -> Report {
        Report {
            streams: self.all.iter().map(Stream::report).collect(),
            damaged: self.damaged,
            first_damaged: self.first_damaged.clone(),
            unfollowed: self.unfollowed,
        }
    }
}

impl Stream {
    fn new(header: &Header, source: Option<SocketAddr>, destination: Option<SocketAddr>) -> Self {
        Self {
            id: header.stream,
            source,
            destination,
            tracker: Tracker::new(),
            packets: 0,
            first: header.sequence,
            gaps: 0,
            longest: 0,
            listed: Vec::new(),
            ended: false,
        }
    }

    fn take(&mut self, header: &Header) {
        let sequence = header.sequence;
        let next = self.tracker.next();
        if self.packets > 0 && sequence > next {
            self.gaps += 1;
            self.longest = self.longest.max(sequence - next);
            if self.listed.len() < GAPS {
                self.listed.push(Gap {
                    from: next,
                    to: sequence - 1,
                });
            }
        }
        let too_late = self.tracker.too_late();
        self.tracker.record(sequence);
        if self.tracker.too_late() == too_late {
            self.first = self.first.min(sequence);
        }
        self.packets += 1;
        self.ended |= header.last;
    }

    fn missing(&self) -> u64 {
        let span = self.tracker.next() - self.first;
        span.saturating_sub(self.tracker.unique())
    }

    fn report(&self) -> StreamReport {
        StreamReport {
            stream: format!("{:016x}", self.id),
            source: self.source,
            destination: self.destination,
            packets: self.packets,
            first: self.first,
            last: self.tracker.next().saturating_sub(1),
            missing: self.missing(),
            gaps: self.gaps,
            longest_gap: self.longest,
            listed: self.listed.clone(),
            duplicates: self.tracker.duplicates(),
            reordered: self.tracker.reordered(),
            too_late: self.tracker.too_late(),
            ended: self.ended,
        }
    }
}

/// Prints what is known of the streams; nothing where there are none.
pub(super) fn print(screen: &mut Screen, report: &Report) -> io::Result<()> {
    let address = |address: Option<SocketAddr>| {
        address.map_or_else(|| "?".to_owned(), |address| address.to_string())
    };
    for stream in &report.streams {
        let (from, to) = (address(stream.source), address(stream.destination));
        screen.field("stream", format!("{} {from} > {to}", stream.stream))?;
        let mut numbers = format!("{} to {}", grouped(stream.first), grouped(stream.last));
        if !stream.ended {
            numbers.push_str("; the end was not seen");
        }
        screen.field("  numbers", numbers)?;
        screen.field_as(
            if stream.missing == 0 {
                Look::Plain
            } else {
                Look::Bad
            },
            "  missing",
            missing(stream),
        )?;
        if stream.duplicates + stream.reordered + stream.too_late > 0 {
            let text = format!(
                "{} doubled, {} out of order, {} too late to tell",
                grouped(stream.duplicates),
                grouped(stream.reordered),
                grouped(stream.too_late)
            );
            screen.field_as(Look::Warning, "  order", text)?;
        }
    }
    if let Some(first) = &report.first_damaged {
        let text = format!(
            "{} packets of numbered streams, the first: {first}",
            grouped(report.damaged)
        );
        screen.field_as(Look::Bad, "damaged", text)?;
    }
    if report.unfollowed > 0 {
        let text = format!(
            "{} packets of more than {STREAMS} streams",
            grouped(report.unfollowed)
        );
        screen.field_as(Look::Warning, "not followed", text)?;
    }
    Ok(())
}

fn missing(stream: &StreamReport) -> String {
    if stream.gaps == 0 {
        return "none".to_owned();
    }
    let list: Vec<_> = stream
        .listed
        .iter()
        .map(|gap| match gap.from == gap.to {
            true => gap.from.to_string(),
            false => format!("{} to {}", gap.from, gap.to),
        })
        .collect();
    let more = if stream.gaps > stream.listed.len() as u64 {
        ", …"
    } else {
        ""
    };
    format!(
        "{} in {} gaps, the longest {}: {}{more}",
        grouped(stream.missing),
        grouped(stream.gaps),
        grouped(stream.longest_gap),
        list.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Clock;

    fn header(stream: u64, sequence: u64) -> Header {
        Header {
            stream,
            sequence,
            clock: Clock::None,
            due: 0,
            sent: 0,
            last: sequence == 99,
        }
    }

    fn after(numbers: impl IntoIterator<Item = u64>) -> StreamReport {
        let mut streams = Streams::default();
        for number in numbers {
            streams.header(&header(1, number), None, None);
        }
        streams.report().streams.remove(0)
    }

    #[test]
    fn a_receiver_that_joins_late_misses_nothing_from_before() {
        let report = after(50..100);
        assert_eq!((report.first, report.last), (50, 99));
        assert_eq!((report.missing, report.gaps), (0, 0));
        assert!(report.ended);
        assert_eq!(missing(&report), "none");
    }

    #[test]
    fn gaps_are_listed_and_what_comes_late_is_not_missing() {
        let report = after([10, 11, 15, 16, 13, 20, 20]);
        assert_eq!(report.missing, 3 + 3 - 1);
        assert_eq!((report.gaps, report.longest_gap), (2, 3));
        assert_eq!((report.reordered, report.duplicates), (1, 1));
        assert_eq!(
            missing(&report),
            "5 in 2 gaps, the longest 3: 12 to 14, 17 to 19"
        );
        assert!(!report.ended);
    }

    #[test]
    fn a_number_from_before_the_first_moves_the_first() {
        let report = after([10, 8, 11]);
        assert_eq!((report.first, report.missing), (8, 1));
    }

    #[test]
    fn memory_is_bounded_and_the_rest_is_counted() {
        let mut streams = Streams::default();
        for number in 0..1_000 {
            streams.header(&header(number, 0), None, None);
        }
        assert_eq!(streams.report().streams.len(), STREAMS);
        assert_eq!(streams.report().unfollowed, 1_000 - STREAMS as u64);
        let report = after((0..100).map(|number| number * 2));
        assert_eq!((report.gaps, report.listed.len()), (99, GAPS));
        assert!(missing(&report).ends_with(", …"));
    }
}
