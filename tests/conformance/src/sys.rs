//! The one system call that the standard library doesn't have and the kit needs: poll(2).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Whether the descriptor becomes readable within `timeout`, which is rounded down to milliseconds.
pub(crate) fn readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut entry = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    loop {
        // SAFETY:
        // - the pointer is to one valid `pollfd` that nothing else uses during the call, and the count is 1;
        // - the descriptor is open for the whole call, because it is borrowed.
        let ready = unsafe { libc::poll(&raw mut entry, 1, timeout) };
        match ready {
            -1 => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            0 => return Ok(false),
            _ => return Ok(entry.revents & libc::POLLIN != 0),
        }
    }
}
