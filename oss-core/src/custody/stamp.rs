//! Who did something, and when.
//!
//! Promises: the thread's name and the number by which the kernel knows it, the domain's clock and the time of day. The thread's
//! part is read once per thread, so that a stamp costs no system call beyond the clocks. Does not do: following a thread
//! that renames itself, or a fork: the numbers are those of the first stamp.

use std::cell::OnceCell;
use std::fmt;
use std::time::{Duration, SystemTime};

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::clock::Clock;
use crate::sync::Arc;

/// Who did something, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamp {
    thread: ThreadLabel,
    at: Duration,
    wall: SystemTime,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ThreadLabel {
    name: Option<Arc<str>>,
    id: u64,
}

impl Stamp {
    /// The calling thread, now.
    #[must_use]
    pub fn now(clock: &dyn Clock) -> Self {
        Self {
            thread: ThreadLabel::current(),
            at: clock.now(),
            wall: clock.wall(),
        }
    }

    /// The name of the thread, where it has one.
    #[must_use]
    pub fn thread_name(&self) -> Option<&str> {
        self.thread.name.as_deref()
    }

    /// The number by which the kernel knows the thread (`gettid`); 0 where `/proc` does not tell.
    #[must_use]
    pub fn thread_id(&self) -> u64 {
        self.thread.id
    }

    /// When, on the domain's clock.
    #[must_use]
    pub fn at(&self) -> Duration {
        self.at
    }

    /// When, by the time of day.
    #[must_use]
    pub fn wall(&self) -> SystemTime {
        self.wall
    }
}

impl ThreadLabel {
    fn current() -> Self {
        thread_local! {
            static LABEL: OnceCell<ThreadLabel> = const { OnceCell::new() };
        }
        LABEL
            .try_with(|label| label.get_or_init(Self::read).clone())
            .unwrap_or_else(|_| Self::read())
    }

    fn read() -> Self {
        // `/proc/thread-self` points to `PID/task/TID`.
        let id = std::fs::read_link("/proc/thread-self")
            .ok()
            .and_then(|path| path.file_name()?.to_str()?.parse().ok())
            .unwrap_or(0);
        Self {
            name: std::thread::current().name().map(Arc::from),
            id,
        }
    }
}

fn seconds_since_epoch(wall: SystemTime) -> Duration {
    wall.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {:?} (tid {}) at {:?}, unix time {:.3}",
            self.thread_name().unwrap_or("unnamed"),
            self.thread.id,
            self.at,
            seconds_since_epoch(self.wall).as_secs_f64()
        )
    }
}

impl Serialize for Stamp {
    /// `thread`, `tid`, `at_ns` on the domain's clock and `unix_ns` by the time of day.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let nanos = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let mut fields = serializer.serialize_struct("Stamp", 4)?;
        fields.serialize_field("thread", &self.thread_name())?;
        fields.serialize_field("tid", &self.thread.id)?;
        fields.serialize_field("at_ns", &nanos(self.at))?;
        fields.serialize_field("unix_ns", &nanos(seconds_since_epoch(self.wall)))?;
        fields.end()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_stamp_tells_thread_and_time() {
        let clock = ManualClock::new();
        clock.advance(Duration::from_millis(1500));
        let here = Stamp::now(&clock);
        let there = std::thread::Builder::new()
            .name("teardown".to_owned())
            .spawn(move || Stamp::now(&clock))
            .expect("a thread")
            .join()
            .expect("no panic");
        assert_eq!(there.thread_name(), Some("teardown"));
        assert_ne!(there.thread_id(), here.thread_id());
        assert_ne!(here.thread_id(), 0);
        let text = there.to_string();
        assert!(text.starts_with("thread \"teardown\" (tid "), "{text}");
        assert!(text.ends_with("at 1.5s, unix time 1.500"), "{text}");
        let json = serde_json::to_value(&there).expect("serialises");
        assert_eq!(json["at_ns"], 1_500_000_000_u64);
        assert_eq!(json["tid"], there.thread_id());
    }
}
