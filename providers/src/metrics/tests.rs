//! What `metrics` counts, seen by a recorder that keeps the numbers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockgate::Errno;
use lockgate::clock::ManualClock;
use lockgate::receive::{Event, PacketReceiver};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};

use super::{METRICS, Metrics};
use crate::testing::{Script, polled};

/// Keeps every series as `name{label=value,…}` with its value.
#[derive(Clone, Default)]
struct Kept {
    series: Arc<Mutex<BTreeMap<String, Arc<Cell>>>>,
    described: Arc<Mutex<BTreeMap<String, Option<Unit>>>>,
}

#[derive(Default)]
struct Cell(AtomicU64, Mutex<Vec<f64>>);

impl CounterFn for Cell {
    fn increment(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
    fn absolute(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        unreachable!("the decorator sets gauges");
    }
    fn decrement(&self, _: f64) {
        unreachable!("the decorator sets gauges");
    }
    fn set(&self, value: f64) {
        self.0.store(value as u64, Ordering::Relaxed);
    }
}

impl HistogramFn for Cell {
    fn record(&self, value: f64) {
        self.1.lock().unwrap().push(value);
    }
}

impl Kept {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels: Vec<_> = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()))
            .collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::clone(self.series.lock().unwrap().entry(name).or_default())
    }

    /// The value of a series by the name without its common beginning; nothing if there is no such series.
    fn value(&self, name: &str) -> Option<u64> {
        let series = self.series.lock().unwrap();
        let cell = series.get(&format!("lockgate_receiver_{name}"))?;
        Some(cell.0.load(Ordering::Relaxed))
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, unit: Option<Unit>, _: SharedString) {
        self.described
            .lock()
            .unwrap()
            .insert(key.as_str().to_owned(), unit);
    }
    fn describe_gauge(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(key, unit, text);
    }
    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(key, unit, text);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.cell(key))
    }
}

fn with_metrics(check: impl FnOnce(&Script, &ManualClock, &Kept, Box<dyn PacketReceiver>)) {
    let (script, clock, kept) = (Script::new(), Arc::new(ManualClock::new()), Kept::default());
    metrics::with_local_recorder(&kept, || {
        let receiver = Metrics::new("a")
            .clock(clock.clone())
            .wrap(script.receiver());
        check(&script, &clock, &kept, receiver);
    });
}

#[test]
fn polls_and_waits_are_counted_by_outcome() {
    with_metrics(|script, _, kept, mut receiver| {
        script.numbers([1, 2, 3]);
        script.error(Errno::IO);
        assert!(receiver.wait(None).is_ok());
        assert_eq!(polled(&mut *receiver), [1, 2, 3]);
        assert!(receiver.poll().is_err());
        assert_eq!(polled(&mut *receiver), [0; 0]);
        assert!(receiver.wait(None).is_ok());
        for (name, value) in [
            ("packets_total{receiver=a}", 3),
            ("payload_bytes_total{receiver=a}", 12),
            ("batches_total{receiver=a}", 1),
            ("empty_polls_total{receiver=a}", 1),
            ("poll_errors_total{receiver=a}", 1),
            ("waits_total{receiver=a,outcome=ready}", 1),
            ("waits_total{receiver=a,outcome=timed-out}", 1),
            ("waits_total{receiver=a,outcome=error}", 0),
            ("open{receiver=a}", 1),
        ] {
            assert_eq!(kept.value(name), Some(value), "{name}");
        }
        let series = kept.series.lock().unwrap();
        let sizes = series["lockgate_receiver_batch_packets{receiver=a}"]
            .1
            .lock()
            .unwrap();
        assert_eq!(*sizes, [3.0]);
    });
}

#[test]
fn losses_are_read_once_an_interval_and_unknown_places_have_no_series() {
    const LOST: &str = "lost_packets_total{receiver=a,place=kernel-drop}";
    with_metrics(|script, clock, kept, mut receiver| {
        assert_eq!(kept.value(LOST), None, "not known yet");
        script.lose(4);
        polled(&mut *receiver);
        assert_eq!(kept.value(LOST), None, "within the interval");
        clock.advance(Duration::from_secs(1));
        polled(&mut *receiver);
        assert_eq!(kept.value(LOST), Some(4));
        script.lose(6);
        assert_eq!(receiver.statistics().losses.kernel_drop, Some(6));
        assert_eq!(kept.value(LOST), Some(6));
        script.lose(9);
        receiver.close().unwrap();
        assert_eq!(kept.value(LOST), Some(9), "the close reads them once more");
        assert_eq!(
            kept.value("lost_packets_total{receiver=a,place=ring-full}"),
            None
        );
    });
}

#[test]
fn events_are_counted_by_name_and_an_end_without_close_is_seen() {
    with_metrics(|script, _, kept, mut receiver| {
        script.event(Event::LinkDown {
            interface: "eth0".to_owned(),
        });
        assert!(receiver.take_event().is_some());
        assert!(receiver.take_event().is_none());
        assert_eq!(
            kept.value("events_total{receiver=a,event=link-down}"),
            Some(1)
        );
        drop(receiver);
        assert_eq!(kept.value("open{receiver=a}"), Some(0));
    });
}

#[test]
fn every_metric_is_described_with_its_unit() {
    with_metrics(|_, _, kept, _receiver| {
        let described = kept.described.lock().unwrap();
        for metric in METRICS {
            assert_eq!(
                described.get(metric.name),
                Some(&Some(metric.unit)),
                "{}",
                metric.name
            );
        }
        assert_eq!(described.len(), METRICS.len());
    });
}
