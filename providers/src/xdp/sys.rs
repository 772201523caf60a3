//! The system calls of the xdp provider: bpf(2), and the structures that XDP sockets take and give.
//!
//! Promises: each structure is declared in full, as linux/if_xdp.h and linux/bpf.h have it; every call is a thin function over one
//! system call. Does not do: explaining errors.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use lockgate::Errno;

use super::assembler::Instruction;
use crate::kernel::custody::View;
use crate::kernel::sys::Plain;

/// `struct xdp_umem_reg`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Memory {
    pub(super) address: u64,
    pub(super) len: u64,
    pub(super) chunk_bytes: u32,
    pub(super) headroom: u32,
    pub(super) flags: u32,
    pub(super) metadata_len: u32,
}

/// `struct xdp_ring_offset`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct RingOffsets {
    pub(super) producer: u64,
    pub(super) consumer: u64,
    pub(super) entries: u64,
    pub(super) flags: u64,
}

/// `struct xdp_mmap_offsets`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Offsets {
    pub(super) receive: RingOffsets,
    pub(super) transmit: RingOffsets,
    pub(super) fill: RingOffsets,
    pub(super) completion: RingOffsets,
}

/// `struct xdp_statistics`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Counters {
    pub(super) dropped: u64,
    pub(super) invalid_receive: u64,
    pub(super) invalid_transmit: u64,
    pub(super) ring_full: u64,
    pub(super) fill_empty: u64,
    pub(super) transmit_empty: u64,
}

/// `struct xdp_options`, which is one word of flags.
pub(super) const OPTION_ZERO_COPY: i32 = 1;

// SAFETY:
// - two long words and four words: no padding and every bit pattern is a value. The address is a number to Rust; that it leads to
//   memory that stays is what the caller's custody is for.
unsafe impl Plain for Memory {}
// SAFETY:
// - long words only: no padding, no pointer, every bit pattern is a value.
unsafe impl Plain for Offsets {}
// SAFETY:
// - long words only: no padding, no pointer, every bit pattern is a value.
unsafe impl Plain for Counters {}

const _: () = assert!(size_of::<Memory>() == 32);
const _: () = assert!(size_of::<Offsets>() == 128);
const _: () = assert!(size_of::<Counters>() == 48);

/// Binds an XDP socket to a queue. `shared` is the socket whose memory it uses.
pub(super) fn bind(
    fd: BorrowedFd<'_>,
    interface: u32,
    queue: u32,
    flags: u16,
    shared: Option<BorrowedFd<'_>>,
) -> Result<(), Errno> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared.map_or(0, |fd| fd.as_raw_fd().unsigned_abs()),
    };
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - pointer and length describe `address`, which lives through the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            std::ptr::from_ref(&address).cast(),
            size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::last())
    }
}

/// Opens an XDP socket.
pub(super) fn open_socket() -> Result<OwnedFd, Errno> {
    // SAFETY:
    // - no precondition.
    let fd = unsafe {
        libc::socket(
            libc::AF_XDP,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    own(fd.into())
}

/// Lets the kernel look at the fill ring: a receive call that takes nothing.
pub(super) fn wake(fd: BorrowedFd<'_>) {
    // SAFETY:
    // - the descriptor is open: it is borrowed;
    // - no memory is passed: the length is 0.
    let _nothing =
        unsafe { libc::recv(fd.as_raw_fd(), std::ptr::null_mut(), 0, libc::MSG_DONTWAIT) };
}

const BPF_MAP_CREATE: i32 = 0;
const BPF_MAP_LOOKUP_ELEM: i32 = 1;
const BPF_MAP_UPDATE_ELEM: i32 = 2;
const BPF_PROG_LOAD: i32 = 5;
const BPF_LINK_CREATE: i32 = 28;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;

/// `union bpf_attr` as far as it is used: the kernel takes shorter ones and fills up with zeroes.
trait Attributes {}

#[repr(C)]
struct MapAttributes {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct ElementAttributes {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgramAttributes {
    kind: u32,
    len: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_len: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

impl Attributes for MapAttributes {}
impl Attributes for ElementAttributes {}
impl Attributes for ProgramAttributes {}
impl Attributes for LinkAttributes {}

const _: () = assert!(size_of::<MapAttributes>() == 44);
const _: () = assert!(size_of::<ElementAttributes>() == 32);
const _: () = assert!(size_of::<ProgramAttributes>() == 72);
const _: () = assert!(size_of::<LinkAttributes>() == 16);

/// The call itself. Whatever the attributes point to must live through it; the functions below see to that.
fn bpf(command: i32, attributes: &mut impl Attributes) -> Result<i64, Errno> {
    let len = size_of_val(attributes);
    // SAFETY:
    // - pointer and length describe `attributes`, which the kernel reads and may write within its length;
    // - the addresses in it are of values that the callers, all in this file, borrow through the call, with the lengths that the
    //   command takes.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), len) };
    if result < 0 {
        Err(Errno::last())
    } else {
        Ok(result)
    }
}

fn own(fd: i64) -> Result<OwnedFd, Errno> {
    let fd = i32::try_from(fd).unwrap_or(-1);
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY:
    // - the descriptor was just opened by the caller's system call, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn name(text: &str) -> [u8; 16] {
    let mut name = [0; 16];
    // The last byte stays zero.
    for (to, from) in name.iter_mut().take(15).zip(text.bytes()) {
        *to = from;
    }
    name
}

/// The kinds of map that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    /// `BPF_MAP_TYPE_ARRAY` of long words.
    Counters,
    /// `BPF_MAP_TYPE_XSKMAP`.
    Sockets,
}

/// Makes a map. Its descriptor is closed on exec.
pub(super) fn create_map(kind: MapKind, text: &str, entries: u32) -> Result<OwnedFd, Errno> {
    let (kind, value_bytes) = match kind {
        MapKind::Counters => (2, 8),
        MapKind::Sockets => (17, 4),
    };
    let mut attributes = MapAttributes {
        kind,
        key_bytes: 4,
        value_bytes,
        entries,
        flags: 0,
        inner: 0,
        node: 0,
        name: name(text),
    };
    own(bpf(BPF_MAP_CREATE, &mut attributes)?)
}

/// Puts a socket into a map under the number of its queue.
pub(super) fn put_socket(
    map: BorrowedFd<'_>,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), Errno> {
    let value = socket.as_raw_fd();
    let mut attributes = ElementAttributes {
        map: map.as_raw_fd().unsigned_abs(),
        padding: 0,
        key: std::ptr::from_ref(&queue).addr() as u64,
        value: std::ptr::from_ref(&value).addr() as u64,
        flags: 0,
    };
    bpf(BPF_MAP_UPDATE_ELEM, &mut attributes).map(drop)
}

/// Reads the first counter of a map of them.
pub(super) fn counter(map: BorrowedFd<'_>) -> Result<u64, Errno> {
    let key = 0_u32;
    let mut value = 0_u64;
    let mut attributes = ElementAttributes {
        map: map.as_raw_fd().unsigned_abs(),
        padding: 0,
        key: std::ptr::from_ref(&key).addr() as u64,
        // Exposed, because the kernel writes there.
        value: std::ptr::from_mut(&mut value).expose_provenance() as u64,
        flags: 0,
    };
    bpf(BPF_MAP_LOOKUP_ELEM, &mut attributes)?;
    Ok(value)
}

/// Loads a program. With `log`, the verifier's words are written there.
pub(super) fn load(
    program: &[Instruction],
    text: &str,
    log: Option<&mut [u8]>,
) -> Result<OwnedFd, Errno> {
    let license = c"Dual MIT/GPL";
    let (log_len, log) = match log {
        Some(log) => (
            log.len() as u32,
            log.as_mut_ptr().expose_provenance() as u64,
        ),
        None => (0, 0),
    };
    let mut attributes = ProgramAttributes {
        kind: BPF_PROG_TYPE_XDP,
        len: program.len() as u32,
        instructions: program.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: u32::from(log_len > 0),
        log_len,
        log,
        kernel_version: 0,
        flags: 0,
        name: name(text),
        interface: 0,
        attach_type: BPF_XDP,
    };
    own(bpf(BPF_PROG_LOAD, &mut attributes)?)
}

/// Attaches a program to an interface for as long as the link's descriptor is open. Linux 5.9.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    interface: u32,
    flags: u32,
) -> Result<OwnedFd, Errno> {
    let mut attributes = LinkAttributes {
        program: program.as_raw_fd().unsigned_abs(),
        interface,
        attach_type: BPF_XDP,
        flags,
    };
    own(bpf(BPF_LINK_CREATE, &mut attributes)?)
}

/// `union bpf_attr` of a test run.
#[cfg(test)]
#[repr(C)]
struct RunAttributes {
    program: u32,
    answer: u32,
    len: u32,
    len_out: u32,
    data: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
}

#[cfg(test)]
impl Attributes for RunAttributes {}

/// Runs a program over a frame, and gives its answer.
#[cfg(test)]
pub(super) fn run(program: BorrowedFd<'_>, frame: &[u8]) -> Result<u32, Errno> {
    const BPF_PROG_TEST_RUN: i32 = 10;
    let mut attributes = RunAttributes {
        program: program.as_raw_fd().unsigned_abs(),
        answer: 0,
        len: frame.len() as u32,
        len_out: 0,
        data: frame.as_ptr().expose_provenance() as u64,
        data_out: 0,
        repeat: 1,
        duration: 0,
    };
    bpf(BPF_PROG_TEST_RUN, &mut attributes)?;
    Ok(attributes.answer)
}

/// The bytes of a frame.
#[inline]
pub(super) fn frame(view: View<'_>, at: usize, len: usize) -> Option<&[u8]> {
    // SAFETY:
    // - the caller, `Queue::take`, has found the frame's chunk among those that the kernel had, in a descriptor that the kernel
    //   published, and marks it as ours; it goes back only in `give_back`, which takes the queue exclusively;
    // - the result is used within that one call.
    unsafe { view.bytes(at, len) }
}

/// The frames' memory as that of a batch.
#[inline]
pub(super) fn slab(view: View<'_>) -> lockgate::receive::Slab<'_> {
    // SAFETY:
    // - descriptors of a batch name only frames that are marked as ours; they go back by the next `give_back`, for which the receiver
    //   must be borrowed exclusively, and so after the batch is gone.
    unsafe { view.slab() }
}
