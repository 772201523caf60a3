//! Decorator `record`: a pcapng file of what a receiver delivered.
//!
//! Promises: every packet is delivered, whatever happens to the file. Of the delivered packets each is either in the file or
//! counted in [`Monitor::unrecorded`]; nothing is left out in silence. Times have nanoseconds. The data path makes no
//! allocation: blocks are laid out in one buffer of fixed size, which is written when it is full, when the flush interval
//! is over, before a long wait, and at the close; only whole blocks are handed over, so that a program that is killed leaves
//! a file that reads up to the last block that was written.
//! Does not do: a thread of its own. A write that blocks, to a stalled disk or a full pipe, holds the poll up while the provider's
//! ring fills; what is lost by that, the provider counts at its place. No `fsync`.
//!
//! # What a packet becomes
//!
//! | the packet has | link type | written |
//! | --- | --- | --- |
//! | its frame | Ethernet | the frame; a VLAN tag that the device took out is put back in |
//! | its IP packet | raw IP | the IP packet |
//! | its payload only, from a socket | raw IP | IP and UDP headers made from its addresses, time to live 64, right sums |
//!
//! Each combination of link type, origin of the time and interface is an interface of the file, whose description says what it is.
//! A time of the system or of a device's real-time clock is taken as it is. Where there is none, or only a free-running
//! counter, the time of the poll stands in. Addresses that are not known are written as `0.0.0.0`.
//!
//! # When writing fails
//!
//! The first failure, a full disk as well as an I/O error, stops the recording for good: nothing is tried again. The file is cut
//! back to its last whole block, [`Event::RecordingStopped`] is raised, [`Monitor::failure`] and the setting `record` say why,
//! one line is logged, and every later packet is counted as unrecorded. The close of the receiver is not affected: its
//! failure would mean that something is not quiet. A program that must have the whole file asks [`Monitor::outcome`] after
//! the close.
//!
//! ```no_run
//! # fn example(receiver: lockgate::receive::Receiver) -> lockgate::Result<()> {
//! use lockgate_providers::record::Record;
//! let record = Record::create("feed.pcapng")?;
//! let monitor = record.monitor();
//! let mut receiver = receiver.decorate(|inner| record.wrap(inner));
//! // …
//! receiver.close()?;
//! println!("{} packets in the file", monitor.outcome()?.recorded);
//! # Ok(())
//! # }
//! ```

mod block;
mod log;
mod monitor;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lockgate::clock::{Clock, SystemClock};
use lockgate::receive::{Batch, Event, PacketReceiver, Readiness, Setting, Statistics};
use lockgate::{Errno, Error, Result};

use log::Log;
pub use monitor::{Monitor, Outcome};

/// The size of the buffer: the largest packet that a receiver may deliver, 1 MiB, fits with its block around it.
const BUFFER: usize = 2 << 20;
/// The flush interval unless another one is set.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a recording is written to.
///
/// `write` is called with whole blocks; it need not buffer.
pub trait Sink: Write + Send {
    /// Cuts what was written back to its first `len` octets, where that is possible.
    ///
    /// # Errors
    /// If it isn't; the recording then ends in a torn block, which readers report and stop at.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

impl Sink for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)?;
        self.seek(SeekFrom::Start(len)).map(drop)
    }
}

/// Describes the decorator, with its file already open.
pub struct Record {
    log: Log,
    interval: Duration,
    clock: Arc<dyn Clock>,
}

impl Record {
    /// Creates a new file and writes the beginning of a capture to it.
    ///
    /// # Errors
    /// If the file exists, can't be created or can't be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::open(
            path.as_ref(),
            OpenOptions::new().write(true).create_new(true),
        )
    }

    /// The same, but an existing file is emptied first.
    ///
    /// # Errors
    /// If the file can't be created or written.
    pub fn replace(path: impl AsRef<Path>) -> Result<Self> {
        let mut options = OpenOptions::new();
        Self::open(
            path.as_ref(),
            options.write(true).create(true).truncate(true),
        )
    }

    /// Records to a sink of the caller's, which texts call `target`.
    ///
    /// # Errors
    /// If the beginning of a capture can't be written to it.
    pub fn to(target: impl Into<String>, sink: Box<dyn Sink>) -> Result<Self> {
        let target = target.into();
        let log = Log::start(target.clone(), sink, BUFFER)
            .map_err(|error| Error::from_io("start recording", error).with_object(target))?;
        Ok(Self {
            log,
            interval: INTERVAL,
            clock: Arc::new(SystemClock::new()),
        })
    }

    fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let file = options.open(path).map_err(|error| {
            let exists = error.kind() == io::ErrorKind::AlreadyExists;
            let error =
                Error::from_io("create recording", error).with_object(path.display().to_string());
            if exists {
                error.with_remedy("name another file, or ask for this one to be replaced")
            } else {
                error
            }
        })?;
        Self::to(path.display().to_string(), Box::new(file))
    }

    /// With another time after which the buffer is written although it is not full; zero writes after every poll.
    #[must_use]
    pub fn flush_interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// On another clock; it gives the flush interval and the time of packets that have none.
    #[must_use]
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// What the recording has written so far, readable from any thread, also after the receiver is gone.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.log.monitor()
    }

    /// Puts it around a receiver.
    #[must_use]
    pub fn wrap(self, inner: Box<dyn PacketReceiver>) -> Box<dyn PacketReceiver> {
        Box::new(Recorded {
            inner,
            flushed: self.clock.now(),
            log: self.log,
            interval: self.interval,
            clock: self.clock,
            awaited: Cell::new(false),
        })
    }
}

struct Recorded {
    inner: Box<dyn PacketReceiver>,
    log: Log,
    interval: Duration,
    clock: Arc<dyn Clock>,
    /// When the buffer was last written.
    flushed: Duration,
    /// Somebody waits on the descriptor, and may go to sleep after an empty poll.
    awaited: Cell<bool>,
}

impl Recorded {
    fn flush(&mut self) {
        self.flushed = self.clock.now();
        self.log.flush();
    }
}

impl PacketReceiver for Recorded {
    fn poll(&mut self) -> Result<Batch<'_>> {
        // Before the poll, whose batch borrows the receiver: what the last one delivered is old enough, or is not yet.
        if self.log.is_pending() {
            let now = self.clock.now();
            if now.saturating_sub(self.flushed) >= self.interval {
                self.flushed = now;
                self.log.flush();
            }
        }
        let batch = self.inner.poll()?;
        if batch.is_empty() {
            if self.awaited.get() {
                self.log.flush();
            }
        } else {
            self.log.batch(&batch, &*self.clock);
            if self.interval.is_zero() {
                self.log.flush();
            }
        }
        Ok(batch)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        if self.log.is_pending() {
            let due = (self.flushed + self.interval).saturating_sub(self.clock.now());
            if timeout.is_none_or(|timeout| timeout >= due) {
                self.flush();
            }
        }
        self.inner.wait(timeout)
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.awaited.set(true);
        self.inner.readiness_fd()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn take_event(&mut self) -> Option<Event> {
        self.log.take_event().or_else(|| self.inner.take_event())
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.inner.settings();
        settings.push(self.log.setting());
        settings.push(Setting {
            name: "record.flush-interval",
            asked: format!("{:?}", self.interval),
            granted: format!("{:?}", self.interval),
            warning: None,
        });
        settings
    }

    fn close(&mut self) -> Result<()> {
        // The receiver first: a slow disk must not keep its groups joined.
        let result = self.inner.close();
        self.log.end();
        result
    }
}

impl Drop for Recorded {
    /// Writes what is left, as [`std::io::BufWriter`] does; a failure is in the monitor.
    fn drop(&mut self) {
        self.log.end();
    }
}

/// The system's number of a failed write, where there is one.
fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io(error)
}
