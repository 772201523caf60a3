//! The gate: who may still enter, and when the last one has left.
//!
//! Admission takes its ticket first and reads the gate second, so that a shutdown cannot miss a late entrant. Tickets and
//! the closed mark share one word: the addition that takes the ticket returns the mark as it stood in the single order of all
//! changes of that word. Two separate words would need a full fence between the two steps on both sides to promise the same.
//!
//! Promises: after [`Gate::close`] returned, no [`Gate::enter`] that begins later is granted; when a wait for quiet is over, every
//! ticket that was ever granted is gone. Does not do: opening again. A closed gate stays closed.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::sync::{Arc, AtomicU64, Condvar, Mutex, Ordering, lock, wait};

/// The lowest bit of the word: the gate is closed.
const CLOSED: u64 = 1;
/// One ticket: the other 63 bits count them.
const TICKET: u64 = 2;

/// A gate that counts who is inside. Cheap to clone; clones are the same gate.
#[derive(Clone)]
pub struct Gate {
    shared: Arc<Shared>,
}

struct Shared {
    word: AtomicU64,
    waiting: Mutex<Vec<Waker>>,
    quiet: Condvar,
}

impl Gate {
    /// An open gate with nobody inside.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                word: AtomicU64::new(0),
                waiting: Mutex::new(Vec::new()),
                quiet: Condvar::new(),
            }),
        }
    }

    /// Takes a ticket, then looks whether the gate is still open.
    ///
    /// # Errors
    /// [`Closed`] if it is not; the ticket is gone again then.
    pub fn enter(&self) -> Result<Ticket, Closed> {
        // A closed gate is refused without a ticket, so that late callers do not disturb those who wait for quiet.
        if self.is_closed() {
            return Err(Closed);
        }
        let before = self.shared.word.fetch_add(TICKET, Ordering::SeqCst);
        let ticket = Ticket {
            shared: Arc::clone(&self.shared),
        };
        if before & CLOSED == 0 {
            Ok(ticket)
        } else {
            Err(Closed)
        }
    }

    /// Closes the gate. Says whether this call did it.
    pub fn close(&self) -> bool {
        let before = self.shared.word.fetch_or(CLOSED, Ordering::SeqCst);
        if before == 0 {
            self.shared.tell_waiters();
        }
        before & CLOSED == 0
    }

    /// Whether the gate is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.word.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// How many tickets are out.
    #[must_use]
    pub fn inside(&self) -> u64 {
        self.shared.word.load(Ordering::SeqCst) / TICKET
    }

    /// Whether the gate is closed and everybody has left.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.shared.is_quiet()
    }

    /// Blocks until the gate is closed and everybody has left, or until `limit` has passed. Says whether it is quiet.
    #[must_use]
    pub fn wait_quiet(&self, limit: Option<Duration>) -> bool {
        let end = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut waiting = lock(&self.shared.waiting);
        loop {
            if self.is_quiet() {
                return true;
            }
            let left = match end {
                None => None,
                Some(end) => match end.checked_duration_since(Instant::now()) {
                    None | Some(Duration::ZERO) => return false,
                    left => left,
                },
            };
            waiting = wait(&self.shared.quiet, waiting, left);
        }
    }

    /// A future that is ready once the gate is closed and everybody has left, on any executor.
    pub fn quiet(&self) -> Quiet<'_> {
        Quiet { gate: self }
    }
}

impl Shared {
    fn is_quiet(&self) -> bool {
        self.word.load(Ordering::SeqCst) == CLOSED
    }

    fn tell_waiters(&self) {
        // The lock is what makes a wake-up impossible to lose: a waiter looks at the word under it and then waits.
        let wakers = std::mem::take(&mut *lock(&self.waiting));
        self.quiet.notify_all();
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate")
            .field("closed", &self.is_closed())
            .field("inside", &self.inside())
            .finish()
    }
}

/// The right to be inside. Dropping it is leaving.
#[must_use = "dropping a ticket is leaving"]
pub struct Ticket {
    shared: Arc<Shared>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let before = self.shared.word.fetch_sub(TICKET, Ordering::SeqCst);
        if before == CLOSED | TICKET {
            self.shared.tell_waiters();
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticket")
    }
}

/// The future of [`Gate::quiet`].
#[derive(Debug)]
#[must_use = "a future does nothing until it is polled"]
pub struct Quiet<'a> {
    gate: &'a Gate,
}

impl Future for Quiet<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = lock(&self.gate.shared.waiting);
        if self.gate.is_quiet() {
            return Poll::Ready(());
        }
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

/// The gate is closed: nothing new is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the gate is closed, nothing new is admitted")
    }
}

impl std::error::Error for Closed {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_admits_nothing_and_says_who_closed_it() {
        let gate = Gate::new();
        let ticket = gate.enter().expect("open");
        assert_eq!(gate.inside(), 1);
        assert!(gate.close());
        assert!(!gate.close());
        assert_eq!(gate.enter().expect_err("closed"), Closed);
        assert_eq!(gate.inside(), 1, "a refused entrant leaves no ticket");
        assert!(!gate.wait_quiet(Some(Duration::ZERO)));
        drop(ticket);
        assert!(gate.wait_quiet(None));
    }

    #[test]
    fn an_empty_open_gate_is_not_quiet() {
        let gate = Gate::new();
        drop(gate.enter());
        assert!(!gate.is_quiet());
        gate.close();
        assert!(gate.is_quiet());
    }

    #[test]
    fn blocking_and_polled_waits_end_with_the_last_ticket() {
        struct Count(std::sync::atomic::AtomicUsize);
        impl std::task::Wake for Count {
            fn wake(self: std::sync::Arc<Self>) {
                self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        let gate = Gate::new();
        let tickets = [gate.enter().expect("open"), gate.enter().expect("open")];
        gate.close();
        let count = Arc::new(Count(0.into()));
        let waker = Waker::from(Arc::clone(&count));
        let mut context = Context::from_waker(&waker);
        let mut quiet = gate.quiet();
        for _ in 0..3 {
            assert_eq!(Pin::new(&mut quiet).poll(&mut context), Poll::Pending);
        }
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| gate.wait_quiet(None));
            for ticket in tickets {
                assert_eq!(count.0.load(std::sync::atomic::Ordering::SeqCst), 0);
                drop(ticket);
            }
            assert!(waiter.join().expect("no panic"));
        });
        assert_eq!(count.0.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut quiet).poll(&mut context), Poll::Ready(()));
    }
}
