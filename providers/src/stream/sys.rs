//! The registration of a descriptor with tokio, whose safe form is deprecated because it could not know who owns the descriptor.
//!
//! Promises: what is registered is owned by the registration. Does not do: anything else.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Watches a descriptor for becoming readable, in the runtime of this thread.
pub(super) fn watch(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY:
    // - an `OwnedFd` is open until it is dropped, and the `AsyncFd` owns it: it stays open and the same for its whole life;
    // - `OwnedFd::as_raw_fd` always answers the same number, and nothing here takes the descriptor out by `get_mut`.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    watched.map_err(|error| error.into_parts().1)
}
