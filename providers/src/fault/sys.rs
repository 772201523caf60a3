//! A descriptor that is readable when another one is, and when a time has come: a timer and an epoll set over both.
//!
//! Promises: both descriptors are closed on execution and when the value goes. Does not do: reading; whether something is there,
//! the poll says.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

pub(super) struct Alarm {
    set: OwnedFd,
    timer: OwnedFd,
    /// Whether the timer runs or has run out.
    armed: bool,
}

impl Alarm {
    /// Watches `other` and a timer that stands still. `other` leaves the set by itself when it is closed.
    pub(super) fn beside(other: BorrowedFd<'_>) -> io::Result<Self> {
        // SAFETY:
        // - the call takes no pointer; the flag is one that it knows (epoll_create1(2)).
        let set = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let set = owned(set)?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY:
        // - the call takes no pointer; clock and flags are ones that it knows (timerfd_create(2)).
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        let timer = owned(timer)?;
        watch(&set, other)?;
        watch(&set, timer.as_fd())?;
        Ok(Self {
            set,
            timer,
            armed: false,
        })
    }

    /// Wakes after this time, or never by itself. A wake-up that has come stays until this is called again.
    pub(super) fn set(&mut self, after: Option<Duration>) -> io::Result<()> {
        if after.is_none() && !self.armed {
            return Ok(());
        }
        // Zero would stop the timer; what is due already wakes after a nanosecond.
        let after = after.map(|after| after.max(Duration::from_nanos(1)));
        let value = after.unwrap_or_default();
        let time = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: libc::timespec {
                // About 68 years where seconds have 32 bits; a held packet is not that patient.
                tv_sec: value.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                // Below 10^9, which every c_long holds.
                tv_nsec: value.subsec_nanos() as libc::c_long,
            },
        };
        // SAFETY:
        // - the descriptor is the timer's own and open;
        // - `time` is a valid itimerspec for the whole call; no old value is asked for (timerfd_settime(2)).
        let result =
            unsafe { libc::timerfd_settime(self.timer.as_raw_fd(), 0, &time, ptr::null_mut()) };
        check(result)?;
        self.armed = after.is_some();
        Ok(())
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

fn watch(set: &OwnedFd, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY:
    // - both descriptors are open for the whole call, by their borrows;
    // - `event` is a valid epoll_event, which the kernel only reads (epoll_ctl(2)).
    let result = unsafe {
        libc::epoll_ctl(
            set.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            fd.as_raw_fd(),
            &raw mut event,
        )
    };
    check(result)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn owned(fd: libc::c_int) -> io::Result<OwnedFd> {
    check(fd)?;
    // SAFETY:
    // - the call that made it succeeded, so it is an open descriptor;
    // - nobody else has seen the number, so this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Whether a descriptor is readable within `timeout`, in whole milliseconds.
    pub(in crate::fault) fn is_readable(fd: std::os::fd::RawFd, timeout: Duration) -> bool {
        let mut one = libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        };
        let timeout = timeout.as_millis() as libc::c_int;
        // SAFETY:
        // - `one` is a valid pollfd for the whole call, and the number says that there is one.
        let count = unsafe { libc::poll(&raw mut one, 1, timeout) };
        assert!(count >= 0, "{}", io::Error::last_os_error());
        count == 1
    }
}
