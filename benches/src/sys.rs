//! The clock of a thread's processor time.
//!
//! Promises: what other threads and tenants do is not in it. Does not do: time of day.
#![allow(unsafe_code)]

use std::time::Duration;

/// The processor time that the calling thread has used so far, in user space and in the kernel.
#[must_use]
pub fn processor_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY:
    // - `time` lives through the call, which writes it and can't fail for this clock, which every Linux has.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
