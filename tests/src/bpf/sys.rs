//! Asks the kernel for an object by its number.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use super::Kind;

/// Opens the object and closes it again.
pub(super) fn exists(kind: Kind, number: u32) -> io::Result<bool> {
    // `BPF_PROG_GET_FD_BY_ID`, `BPF_MAP_GET_FD_BY_ID` and `BPF_LINK_GET_FD_BY_ID` of linux/bpf.h.
    let command = match kind {
        Kind::Program => 13,
        Kind::Map => 14,
        Kind::Link => 30,
    };
    // The number, and two words that stay zero.
    let mut attributes = [number, 0, 0];
    // SAFETY:
    // - pointer and length describe `attributes`, which lives through the call and holds no address.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_mut_ptr(),
            size_of_val(&attributes),
        )
    };
    let Ok(fd) = i32::try_from(fd) else {
        return Err(io::Error::other("no descriptor"));
    };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(false),
            _ => Err(error),
        };
    }
    // SAFETY:
    // - the descriptor was just opened, and nobody else has it.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(true)
}
