//! A decorator that delivers so many packets and no more, so that a recording around it ends where the counting ends.
//!
//! Promises: batches are cut, not dropped; after the last packet every poll is empty. Does not do: changing what the provider counts.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use lockgate::Result;
use lockgate::receive::{Batch, Event, PacketReceiver, Readiness, Setting, Statistics};

/// Puts it around a receiver.
pub(super) fn wrap(inner: Box<dyn PacketReceiver>, packets: u64) -> Box<dyn PacketReceiver> {
    Box::new(Limited {
        inner,
        left: packets,
    })
}

struct Limited {
    inner: Box<dyn PacketReceiver>,
    left: u64,
}

impl PacketReceiver for Limited {
    fn poll(&mut self) -> Result<Batch<'_>> {
        if self.left == 0 {
            return Ok(Batch::EMPTY);
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let batch = self.inner.poll()?.truncate(most);
        self.left -= batch.len() as u64;
        Ok(batch)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Result<Readiness> {
        self.inner.wait(timeout)
    }

    fn readiness_fd(&self) -> Option<BorrowedFd<'_>> {
        self.inner.readiness_fd()
    }

    fn statistics(&mut self) -> Statistics {
        self.inner.statistics()
    }

    fn take_event(&mut self) -> Option<Event> {
        self.inner.take_event()
    }

    fn settings(&self) -> Vec<Setting> {
        self.inner.settings()
    }

    fn close(&mut self) -> Result<()> {
        self.inner.close()
    }
}
