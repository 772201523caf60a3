//! What is told while packets come: events at once, figures every so often, and a line of progress on a terminal.
//!
//! Promises: with `--json` the standard output stays one document, and what is told meanwhile goes to the standard error as lines of JSON, if
//! `--stats-interval` asks for it; events stand in the document in any case. Does not do: the summary.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use lockgate::receive::{Event, Losses, Receiver};
use serde::Serialize;

use super::Taken;
use crate::output::{Look, Screen, grouped};
use crate::progress::Progress;
use crate::transmit::nanoseconds;

/// An event, and when it was taken.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Happened {
    /// Since the start.
    at_nanoseconds: u64,
    #[serde(flatten)]
    event: Event,
}

/// What came during one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Interval {
    /// Its end, since the start.
    at_nanoseconds: u64,
    /// Its length.
    nanoseconds: u64,
    packets: u64,
    bytes: u64,
    /// Lost at all places that can be counted.
    lost: u64,
    /// Numbers of numbered streams that are missing, in all, as of now.
    missing: u64,
}

/// A line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
enum Line<'a> {
    Event(&'a Happened),
    Interval(&'a Interval),
}

/// Tells it.
pub(super) struct Live {
    started: Instant,
    json: bool,
    every: Option<Duration>,
    next: Option<Instant>,
    begun: Instant,
    packets: u64,
    bytes: u64,
    lost: u64,
    progress: Progress,
}

impl Live {
    /// From now on.
    pub(super) fn start(
        started: Instant,
        json: bool,
        every: Option<Duration>,
        progress: Progress,
    ) -> Self {
        Self {
            started,
            json,
            every,
            next: every.and_then(|every| started.checked_add(every)),
            begun: started,
            packets: 0,
            bytes: 0,
            lost: 0,
            progress,
        }
    }

    /// Tells an event.
    pub(super) fn event(&self, screen: &mut Screen, event: Event) -> io::Result<Happened> {
        let happened = Happened {
            at_nanoseconds: nanoseconds(self.started.elapsed()),
            event,
        };
        if self.json {
            if self.every.is_some() {
                line(&Line::Event(&happened))?;
            }
            return Ok(happened);
        }
        let seconds = happened.at_nanoseconds as f64 / 1e9;
        let text = format!("{} at {seconds:.3} s", event_text(&happened.event));
        self.progress.aside(|| {
            screen.field_as(Look::Warning, "event", text)?;
            screen.flush()
        })?;
        Ok(happened)
    }

    /// Tells how it goes, if it is time for that.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        screen: &mut Screen,
        taken: &Taken,
        receiver: &mut Receiver,
    ) -> io::Result<()> {
        let missing = || taken.streams.missing();
        self.progress.tell(now, taken.packets, || {
            let seconds = now.duration_since(self.started).as_secs_f64();
            let mut text = format!("{} packets in {seconds:.1} s", grouped(taken.packets));
            let lost = lost(&receiver.statistics().losses);
            for (count, what) in [(lost, "lost"), (missing(), "missing")] {
                if count > 0 {
                    text.push_str(&format!(", {} {what}", grouped(count)));
                }
            }
            text
        });
        let (Some(next), Some(every)) = (self.next, self.every) else {
            return Ok(());
        };
        if now < next {
            return Ok(());
        }
        // A run that was held up tells one long interval, not several empty ones.
        self.next = now.checked_add(every);
        let lost = lost(&receiver.statistics().losses);
        let interval = Interval {
            at_nanoseconds: nanoseconds(now.duration_since(self.started)),
            nanoseconds: nanoseconds(now.duration_since(self.begun)),
            packets: taken.packets - self.packets,
            bytes: taken.bytes - self.bytes,
            lost: lost.saturating_sub(self.lost),
            missing: missing(),
        };
        (self.begun, self.packets, self.bytes, self.lost) = (now, taken.packets, taken.bytes, lost);
        if self.json {
            return line(&Line::Interval(&interval));
        }
        self.progress.aside(|| {
            let at = format!("{:.1} s", interval.at_nanoseconds as f64 / 1e9);
            screen.field(&at, interval_text(&interval))?;
            screen.flush()
        })
    }

    /// Takes the progress away before the summary.
    pub(super) fn end(&mut self) {
        self.progress.end();
    }

    /// How long until something has to be told.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.next.map(|next| next.saturating_duration_since(now))
    }
}

fn line(line: &Line<'_>) -> io::Result<()> {
    let mut text = serde_json::to_vec(line).map_err(io::Error::from)?;
    text.push(b'\n');
    io::stderr().write_all(&text)
}

fn lost(losses: &Losses) -> u64 {
    losses.total()
}

fn interval_text(interval: &Interval) -> String {
    let seconds = interval.nanoseconds as f64 / 1e9;
    let per_second = |count: u64| count as f64 / seconds.max(1e-9);
    format!(
        "{} packets/s, {:.3} Mbit/s, {} lost, {} missing",
        grouped(per_second(interval.packets).round() as u64), // a rate fits
        per_second(interval.bytes) * 8.0 / 1e6,
        grouped(interval.lost),
        grouped(interval.missing)
    )
}

fn event_text(event: &Event) -> String {
    match event {
        Event::LinkDown { interface } => format!("{interface}: link down"),
        Event::LinkUp { interface } => format!("{interface}: link up"),
        Event::InterfaceRemoved { interface } => format!("{interface}: interface removed"),
        Event::Rejoined { group, interface } => format!("{interface}: joined {group} again"),
        Event::DeviceFatal { device } => format!("{device}: the device failed"),
        Event::RecordingStopped {
            target, problem, ..
        } => format!("{target}: the recording stopped: {problem}"),
        Event::Other { text } => text.clone(),
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_has_words_of_its_own() {
        let removed = Event::InterfaceRemoved {
            interface: "eth0".to_owned(),
        };
        assert_eq!(event_text(&removed), "eth0: interface removed");
        let stopped = Event::RecordingStopped {
            target: "x".to_owned(),
            errno: None,
            problem: "full".to_owned(),
        };
        assert_eq!(event_text(&stopped), "x: the recording stopped: full");
    }

    #[test]
    fn a_line_of_json_says_what_it_is() {
        let happened = Happened {
            at_nanoseconds: 5,
            event: Event::LinkDown {
                interface: "eth0".to_owned(),
            },
        };
        assert_eq!(
            serde_json::to_string(&Line::Event(&happened)).unwrap(),
            r#"{"event":{"at_nanoseconds":5,"event":"link-down","interface":"eth0"}}"#
        );
    }

    #[test]
    fn the_text_of_an_interval_has_rates() {
        let interval = Interval {
            at_nanoseconds: 0,
            nanoseconds: 2_000_000_000,
            packets: 1_000,
            bytes: 250_000,
            lost: 1,
            missing: 2,
        };
        assert_eq!(
            interval_text(&interval),
            "500 packets/s, 1.000 Mbit/s, 1 lost, 2 missing"
        );
    }
}
