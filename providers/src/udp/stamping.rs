//! Waits until the kernel really stamps packets.
//!
//! The first socket of a host that asks for software stamps only makes the kernel *schedule* the change of its receive path
//! (`net_enable_timestamp` in net/core/dev.c puts it on a work queue). What arrives before that work has run has no
//! stamp, and there is nothing to wait on. So a datagram is sent to oneself until one comes back stamped.
//!
//! Promises: ends after [`PATIENCE`]; leaves nothing open. Does not do: anything about hardware stamps.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use lockgate::receive::Descriptor;

use super::ring::{Clock, Drops, Ring, Source};
use super::sys;

/// The work takes microseconds on an idle host; a second is beyond a busy one.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the work queue is left alone between two attempts.
const PAUSE: Duration = Duration::from_micros(50);

/// Whether stamps were seen to be on. They can't be if there is no loopback interface with IPv4 that is up.
pub(super) fn settle(flags: u32) -> bool {
    seen(flags).unwrap_or(false)
}

fn seen(flags: u32) -> Option<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    sys::set_option(
        &socket,
        libc::SOL_SOCKET,
        libc::SO_TIMESTAMPING,
        &(flags as i32),
    )
    .ok()?;
    // From itself only: a stranger's datagram would prove nothing.
    socket.connect(socket.local_addr().ok()?).ok()?;
    let mut ring = Ring::new(1, 1, false).ok()?;
    let mut source = Source {
        template: Descriptor::default(),
        only: None,
        clock: Some(Clock::System),
        drops: Drops::default(),
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        socket.send(&[0]).ok()?;
        ring.begin();
        // The loopback interface delivers before the send returns; if not, the next round finds it.
        if ring.receive(socket.as_fd(), 0, &mut source).is_ok()
            && ring.filled().1.iter().any(|one| one.clock != 0)
        {
            return Some(true);
        }
        std::thread::sleep(PAUSE);
    }
    Some(false)
}
