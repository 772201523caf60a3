//! The metrics: name, shape, unit, meaning. `docs/METRICS.md` has the same table.

use metrics::Unit;

/// One metric that the decorator keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The name in the recorder.
    pub name: &'static str,
    /// Counter, gauge or histogram.
    pub shape: Shape,
    /// What one is.
    pub unit: Unit,
    /// The labels beside `receiver`.
    pub labels: &'static [&'static str],
    /// What it says.
    pub meaning: &'static str,
}

/// What a metric does over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// It only grows.
    Counter,
    /// It is what it is now.
    Gauge,
    /// It gathers values.
    Histogram,
}

/// Every metric of the decorator.
pub const METRICS: &[Metric] = &[
    BATCH_PACKETS,
    BATCHES,
    BYTES,
    EMPTY_POLLS,
    EVENTS,
    LOST,
    OPEN,
    PACKETS,
    POLL_ERRORS,
    WAITS,
];

pub(super) const BATCH_PACKETS: Metric = Metric {
    name: "lockgate_receiver_batch_packets",
    shape: Shape::Histogram,
    unit: Unit::Count,
    labels: &[],
    meaning: "Packets in a batch that was not empty",
};
pub(super) const BATCHES: Metric = Metric {
    name: "lockgate_receiver_batches_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &[],
    meaning: "Polls that delivered at least one packet",
};
pub(super) const BYTES: Metric = Metric {
    name: "lockgate_receiver_payload_bytes_total",
    shape: Shape::Counter,
    unit: Unit::Bytes,
    labels: &[],
    meaning: "UDP payload delivered",
};
pub(super) const EMPTY_POLLS: Metric = Metric {
    name: "lockgate_receiver_empty_polls_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &[],
    meaning: "Polls that found nothing yet",
};
pub(super) const EVENTS: Metric = Metric {
    name: "lockgate_receiver_events_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &["event"],
    meaning: "Events besides packets, when they are taken",
};
pub(super) const LOST: Metric = Metric {
    name: "lockgate_receiver_lost_packets_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &["place"],
    meaning: "Packets lost, or for `filtered` not meant for it, by place; as of the last reading",
};
pub(super) const OPEN: Metric = Metric {
    name: "lockgate_receiver_open",
    shape: Shape::Gauge,
    unit: Unit::Count,
    labels: &[],
    meaning: "1 while it is open, 0 once it was closed or dropped",
};
pub(super) const PACKETS: Metric = Metric {
    name: "lockgate_receiver_packets_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &[],
    meaning: "Packets delivered",
};
pub(super) const POLL_ERRORS: Metric = Metric {
    name: "lockgate_receiver_poll_errors_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &[],
    meaning: "Polls that failed",
};
pub(super) const WAITS: Metric = Metric {
    name: "lockgate_receiver_waits_total",
    shape: Shape::Counter,
    unit: Unit::Count,
    labels: &["outcome"],
    meaning: "Waits, by outcome: `ready`, `timed-out`, `error`",
};

/// Tells the recorder what each is.
pub(super) fn describe() {
    for metric in METRICS {
        match metric.shape {
            Shape::Counter => {
                metrics::describe_counter!(metric.name, metric.unit, metric.meaning);
            }
            Shape::Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.meaning),
            Shape::Histogram => {
                metrics::describe_histogram!(metric.name, metric.unit, metric.meaning);
            }
        }
    }
}
