//! The one place from which this crate takes its locks and atomics, so that loom can stand in for them.
//!
//! Promises: under `--cfg loom` every lock, condition variable and atomic named here is loom's, otherwise the standard
//! library's; [`lock`] never fails. Does not do: reference counts. `Arc` is the standard one in both builds, because loom's
//! cannot hold a trait object; what the models explore is the order of lock and atomic operations.

#[cfg(loom)]
pub(crate) use loom::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
pub(crate) use std::sync::{
    Condvar, Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

pub(crate) use std::sync::{Arc, Weak};
use std::time::Duration;

/// Takes a lock and ignores poison.
///
/// Poison would only say that some thread panicked while it held the lock. No code of a provider or of a user runs under a
/// lock whose data it could leave half changed, so the data is whole, and custody has to go on working after a panic.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Waits on a condition variable for at most `limit`, or without one; spurious wake-ups are possible.
///
/// loom has no time: under it a limited wait is an unlimited one.
pub(crate) fn wait<'a, T>(
    condvar: &Condvar,
    guard: MutexGuard<'a, T>,
    limit: Option<Duration>,
) -> MutexGuard<'a, T> {
    #[cfg(not(loom))]
    if let Some(limit) = limit {
        return match condvar.wait_timeout(guard, limit) {
            Ok((guard, _)) => guard,
            Err(poisoned) => poisoned.into_inner().0,
        };
    }
    #[cfg(loom)]
    let _ = limit;
    match condvar.wait(guard) {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}
