//! The unsafe side of the tests: posting over regions that a test keeps, native dependants beside the owners, a filter on one
//! descriptor in one thread.
//!
//! Promises: what a function makes behind the owners' backs, it hands to the test that must undo it. Does not do: undoing it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lockgate_accel::ibverbs::QueuePair;
use lockgate_verbs_shim::{
    ChannelHandle, ContextHandle, CqHandle, CqOptions, Errno, MwHandle, Partial, PdHandle,
    QpAttributes, QpHandle, QpState, QpType, RecvRequest, SendRequest, WindowType, qp_fields,
};

use super::{End, options};

pub(crate) fn post_send(end: &End, requests: &[SendRequest<'_>]) -> Result<(), Partial> {
    post_send_on(&end.qp, requests)
}

pub(crate) fn post_send_on(qp: &QueuePair, requests: &[SendRequest<'_>]) -> Result<(), Partial> {
    // SAFETY:
    // - The tests keep the regions, windows and address handles of their requests until they complete or the queue pair is gone.
    unsafe { qp.post_send(requests) }
}

pub(crate) fn post_receive(
    qp: &QueuePair,
    requests: &mut [RecvRequest<'_>],
) -> Result<(), Partial> {
    // SAFETY:
    // - The tests keep the regions of their requests until they complete or the queue pair is gone.
    unsafe { qp.post_receive(requests) }
}

/// A queue on the lane's channel, of which the lane knows nothing.
pub(crate) fn extra_queue(context: ContextHandle, channel: ChannelHandle) -> CqHandle {
    let wanted = CqOptions {
        entries: 4,
        channel: Some(channel),
        ..CqOptions::default()
    };
    // SAFETY:
    // - The test keeps context and channel until it has destroyed this.
    unsafe { CqHandle::create(context, &wanted) }.unwrap()
}

pub(crate) fn destroy_queue(queue: CqHandle) {
    // SAFETY:
    // - The test made it and uses it no more.
    unsafe { queue.destroy() }.unwrap();
}

/// A window of the protection domain, of which its owner knows nothing.
pub(crate) fn extra_window(pd: PdHandle) -> MwHandle {
    // SAFETY:
    // - The test keeps the domain until it has deallocated this.
    unsafe { MwHandle::allocate(pd, WindowType::Two) }.unwrap()
}

pub(crate) fn deallocate_window(window: MwHandle) {
    // SAFETY:
    // - The test made it and uses it no more.
    unsafe { window.deallocate() }.unwrap();
}

/// A queue pair in state RESET on the lane's queue, of which the lane knows nothing.
pub(crate) fn extra_queue_pair(pd: PdHandle, queue: CqHandle) -> QpHandle {
    let wanted = options(QpType::ReliableConnection);
    // SAFETY:
    // - The test keeps domain and queue until it has destroyed this.
    unsafe { QpHandle::create(pd, queue, queue, &wanted) }
        .unwrap()
        .0
}

pub(crate) fn destroy_queue_pair(qp: QpHandle) {
    // SAFETY:
    // - The test made it and uses it no more.
    unsafe { qp.destroy() }.unwrap();
}

/// The state of a queue pair, asked by the calling thread.
pub(crate) fn state_of(qp: QpHandle) -> Result<QpState, Errno> {
    // SAFETY:
    // - The driver frees nothing before the kernel has said yes, and it has not.
    unsafe { qp.query(qp_fields::STATE) }.map(|attributes| attributes.qp_state.into())
}

/// Moves a queue pair to the state in which everything posted is flushed.
pub(crate) fn to_error(qp: QpHandle) -> Result<(), Errno> {
    let attributes = QpAttributes {
        qp_state: QpState::Error.raw(),
        ..QpAttributes::new()
    };
    // SAFETY:
    // - The driver frees nothing before the kernel has said yes, and it has not.
    unsafe { qp.modify(&attributes, qp_fields::STATE) }
}

/// Takes completions of a queue that is known to be live.
pub(crate) fn poll(queue: CqHandle, into: &mut [lockgate_verbs_shim::Completion]) -> usize {
    // SAFETY:
    // - The queue's owner is in custody and not released.
    unsafe { queue.poll(into) }.unwrap()
}

/// The context whose close call is answered with [`CLOSE_ANSWER`] instead of being made; 0 for none.
static REFUSED: AtomicU64 = AtomicU64::new(0);
/// How often it was answered so.
static CLOSES: AtomicU32 = AtomicU32::new(0);
/// `EIO`. No driver of rdma-core gives a number here, so it must come from beside them.
const CLOSE_ANSWER: c_int = libc::EIO;

/// From here on the library's close call for this context fails without doing anything.
pub(crate) fn refuse_close(context: ContextHandle) {
    REFUSED.store(context.address(), Ordering::SeqCst);
}

/// How often a close call was refused so.
pub(crate) fn refused_closes() -> u32 {
    CLOSES.load(Ordering::SeqCst)
}

/// Stands in front of the library's function of this name in the whole test program, and passes on to it.
///
/// # Safety
/// As for the library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut c_void) -> c_int {
    if REFUSED.load(Ordering::SeqCst) == context.expose_provenance() as u64 {
        CLOSES.fetch_add(1, Ordering::SeqCst);
        return CLOSE_ANSWER;
    }
    // SAFETY:
    // - The name is a valid text.
    let next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"ibv_close_device".as_ptr()) };
    assert!(!next.is_null(), "the library is loaded");
    // SAFETY:
    // - The library declares it so (`verbs.h`).
    let next: unsafe extern "C" fn(*mut c_void) -> c_int = unsafe { std::mem::transmute(next) };
    // SAFETY:
    // - The caller promises what the library asks for.
    unsafe { next(context) }
}

/// The attributes of a device that the test knows to be open.
pub(crate) fn device_answers(context: ContextHandle) -> bool {
    // SAFETY:
    // - The close call was answered without being made.
    unsafe { context.attributes() }.is_ok()
}

/// From here on this thread, and no other, is answered `EIO` where it writes to or controls the descriptor.
pub(crate) fn fail_calls_on(descriptor: i32) {
    const WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The offsets are those of `struct seccomp_data`: the number of the call, and the low half of its first argument.
    let number = |call: libc::c_long| u32::try_from(call).unwrap();
    let mut program = [
        step(WORD, 0, 0, 0),
        step(EQUAL, 1, 0, number(libc::SYS_ioctl)),
        step(EQUAL, 0, 3, number(libc::SYS_write)),
        step(WORD, 0, 0, 16),
        step(EQUAL, 0, 1, descriptor.unsigned_abs()),
        step(
            RETURN,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | libc::EIO.unsigned_abs(),
        ),
        step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog {
        len: u16::try_from(program.len()).unwrap(),
        filter: program.as_mut_ptr(),
    };
    // SAFETY:
    // - Takes numbers only; it binds this thread and its children.
    let bound = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
    // SAFETY:
    // - `filter` names a valid program, which the kernel copies; without a flag it is this thread's alone.
    let filtered = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const filter,
        )
    };
    assert_eq!(filtered, 0, "{}", std::io::Error::last_os_error());
}

/// Runs `check` in a child of this process and says whether it returned true.
pub(crate) fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY:
    // - The child runs the check and ends without exit handlers; the test process has no other thread that holds a lock which
    //   the check takes, but for the harness's, which waits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let passed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or(false);
        // SAFETY:
        // - Ends the child at once.
        unsafe { libc::_exit(i32::from(!passed)) };
    }
    let mut status = -1;
    // SAFETY:
    // - `child` is ours, `status` a valid output.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    waited == child && status == 0
}

/// Makes this thread's user a plain one with a small limit on locked memory; both end with the thread's process.
pub(crate) fn become_plain_user(limit: u64) {
    let memlock = libc::rlimit {
        rlim_cur: limit,
        rlim_max: limit,
    };
    // SAFETY:
    // - `memlock` is a valid input.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const memlock) };
    assert_eq!(limited, 0, "{}", std::io::Error::last_os_error());
    // SAFETY:
    // - Takes a number; drops the capabilities of the process.
    let changed = unsafe { libc::setuid(65_534) };
    assert_eq!(changed, 0, "{}", std::io::Error::last_os_error());
}
