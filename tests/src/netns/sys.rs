//! The system calls by which one thread enters a namespace or drops its privileges.
//!
//! Promises: only the calling thread is changed. Does not do: undoing it; the thread ends.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// `nobody` on Debian and most others; any number without privileges will do.
const NOBODY: libc::uid_t = 65_534;

/// Moves the calling thread into the network namespace that the file stands for.
pub(super) fn enter_network(namespace: &File) -> io::Result<()> {
    // SAFETY:
    // - the descriptor is open: it is borrowed; the call changes the calling thread only, whose owner asks for it.
    let result = unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Makes the calling thread one of `nobody`, which takes every capability from it.
///
/// The C library's `setresuid` would change all threads; the system call changes one.
pub(super) fn drop_privilege() -> io::Result<()> {
    // SAFETY:
    // - no memory is passed; the call changes the credentials of the calling thread only, whose owner asks for it.
    let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
