//! The five native teardown failures on Soft-RoCE, each produced natively: what stays owned, what is released, and what may
//! follow.
//!
//! A queue pair's destroy call fails with `EIO` in one thread, by a filter on the device's descriptor; channel, completion queue and
//! protection domain are busy with a dependant of which their owner knows nothing; the device's close is answered by this program,
//! since no driver of rdma-core gives a number there. Selected by the feature `__rxe`, in the guest of `cargo xtask vm`.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[path = "../rxe_support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockgate::Errno;
use lockgate::completion::{
    Cause, Debt, Direction, Fence, Handle, Lane, Loan, Observation, SlotId, Submission,
};
use lockgate::custody::{Alive, Class, Domain, EntryId, Identity, Receipt, RetryError};
use lockgate_accel::ibverbs::{DISASSOCIATE, is_proof};
use lockgate_verbs_shim::{Completion, CqHandle, QpHandle, QpState, RecvRequest};
use support::{End, pair, sys};

/// What the requests on one queue pair have come to. It looks at completions only, as a provider's lane does.
struct Requests {
    /// Nothing once the queue pair is gone: then nothing that has not completed ever will.
    qp: Mutex<Option<QpHandle>>,
    queue: CqHandle,
    posted: u64,
}

impl Lane for Requests {
    fn identity(&self) -> Identity {
        Identity::new("requests").with("queue", self.queue.address())
    }

    /// The peer sends nothing, so that nothing completes before a drain.
    fn query(&self, _: SlotId) -> Fence {
        match *self.qp.lock().unwrap() {
            Some(_) => Fence::Pending,
            None => Fence::Indeterminate,
        }
    }

    /// No completion is on its way, so a wait can only end without knowing.
    fn wait(&self, _: SlotId, _: Option<Duration>) -> Fence {
        Fence::Indeterminate
    }

    /// Flushes what was posted and counts it.
    fn drain(&self) -> Result<Receipt, Cause> {
        let Some(qp) = *self.qp.lock().unwrap() else {
            return Err(Cause::step(
                "the queue pair went before its completions came",
            ));
        };
        let errno = |errno: lockgate_verbs_shim::Errno| Errno::from_raw(errno.raw());
        sys::to_error(qp).map_err(|error| Cause::errno("ibv_modify_qp", errno(error)))?;
        let limit = Instant::now() + Duration::from_secs(60);
        let mut flushed = 0;
        while flushed < self.posted {
            if Instant::now() > limit {
                return Err(Cause::step("not everything was flushed within a minute"));
            }
            let mut one = [Completion::default()];
            flushed += sys::poll(self.queue, &mut one) as u64;
            thread::yield_now();
        }
        Ok(Receipt::of(self.identity()))
    }
}

/// A connected end with one receive posted over its region, which nobody answers.
struct Scene {
    end: End,
    request: Handle<()>,
    lane: Arc<Requests>,
    domain: Arc<Domain>,
    _peer: End,
}

impl Scene {
    fn new() -> Self {
        let (end, peer) = pair(4096);
        let domain = end.domain.clone();
        let lane = Arc::new(Requests {
            qp: Mutex::new(Some(end.qp.bare())),
            queue: end.lane.bare_queue(0).unwrap(),
            posted: 1,
        });
        let ledger = domain.ledger();
        let handle = ledger.attach(lane.clone());
        let generation = domain.serials().take().unwrap().into();
        let loan = Loan::new(end.mr.hold(), generation, 0..4096, Direction::Write);
        let piece = end.piece(0, 4096);
        let request = ledger
            .submit(&handle, Debt::new(()).lend(loan), |slot| {
                let request = RecvRequest::new(slot.number(), &piece);
                match sys::post_receive(&end.qp, &mut [request]) {
                    Ok(()) => Submission::Submitted,
                    Err(partial) => {
                        let errno = Errno::from_raw(partial.errno.raw());
                        Submission::NotSubmitted(Cause::errno("ibv_post_recv", errno))
                    }
                }
            })
            .unwrap();
        Self {
            end,
            request,
            lane,
            domain,
            _peer: peer,
        }
    }

    /// Says that the queue pair is about to go, with the request open.
    fn forget_queue_pair(&self) {
        *self.lane.qp.lock().unwrap() = None;
    }

    /// Flushes the request, so that nothing is owed.
    fn drain(&self) {
        assert_eq!(
            self.request.wait(Some(Duration::ZERO)),
            Ok(Observation::Indeterminate)
        );
        assert_eq!(self.request.recover(), Ok(Observation::Ready));
    }
}

/// What the quarantine keeps, by kind.
fn kept(domain: &Domain) -> Vec<String> {
    let mut kinds: Vec<_> = domain
        .quarantine()
        .list()
        .iter()
        .map(|report| report.identity.kind().to_owned())
        .collect();
    kinds.sort();
    kinds
}

#[track_caller]
fn released(receipt: &Receipt, kind: &str) {
    assert_eq!(receipt.identity().kind(), kind);
    assert!(is_proof(receipt), "{receipt}");
}

/// How many native calls were made for an entry.
fn attempts(domain: &Domain, entry: EntryId) -> usize {
    domain.quarantine().report(entry).unwrap().attempts.len()
}

fn in_another_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    thread::spawn(call).join().unwrap()
}

#[test]
fn a_queue_pair_that_may_be_gone_keeps_everything_beneath_it() {
    let Scene {
        end,
        request,
        lane: _lane,
        domain,
        _peer,
    } = Scene::new();
    let (bare, charged) = (end.qp.bare(), domain.live().bytes);
    let descriptor = end.context.info().unwrap().cmd_fd;
    let End {
        qp,
        mr,
        lane,
        pd,
        context,
        ..
    } = end;

    // In the one thread that the filter binds: the drain fails, and so does the destroy call.
    let (request, unreleased) = in_another_thread(move || {
        sys::fail_calls_on(descriptor);
        assert_eq!(
            request.wait(Some(Duration::ZERO)),
            Ok(Observation::Indeterminate)
        );
        assert_eq!(request.recover(), Ok(Observation::Quarantined));
        (request, qp.close().unwrap_err())
    });
    let failure = unreleased.failure().unwrap().clone();
    assert_eq!(
        (&*failure.call, failure.errno),
        ("ibv_destroy_qp", Some(Errno::IO))
    );
    assert_eq!(failure.class, Class::Terminal);

    // Another thread's native query proves the queue pair.
    assert_eq!(sys::state_of(bare), Ok(QpState::ReadyToSend));
    // Closing again makes no call: here it would succeed, and the query would not.
    let unreleased = unreleased.close().unwrap_err();
    assert_eq!(unreleased.failure(), Some(&failure));
    let entry = unreleased.quarantine();
    assert!(mr.close().unwrap_err().failure().is_none());
    let left = lane.close().unwrap_err();
    assert!(left.receipts.is_empty());
    assert!(
        left.queues[0].failure().is_none() && left.channel.as_ref().unwrap().failure().is_none()
    );
    drop(left);
    assert!(pd.close().unwrap_err().failure().is_none());
    assert!(context.close().unwrap_err().failure().is_none());

    assert_eq!(
        kept(&domain),
        [
            "CQ",
            "MR",
            "PD",
            "QP",
            "completion channel",
            "device",
            "requests"
        ]
    );
    assert_eq!(domain.live().bytes, charged);
    let report = domain.quarantine().report(entry).unwrap();
    assert_eq!(report.evidence.alive, Alive::Yes, "{report}");
    assert!(report.identity.number("qpn").is_some());
    let refused = domain.quarantine().retry(entry);
    assert_eq!(refused, Err(RetryError::Terminal(failure)));
    assert_eq!(domain.quarantine().maintain(16).attempted(), 0);
    assert_eq!(attempts(&domain, entry), 1);
    assert_eq!(
        in_another_thread(move || sys::state_of(bare)),
        Ok(QpState::ReadyToSend)
    );

    // The debt is another matter: a drain that works gives it back, with the region and its pages, and nothing else.
    assert_eq!(request.recover(), Ok(Observation::Ready));
    let done = domain.quarantine().maintain(16);
    assert_eq!(done.receipts.len(), 1);
    released(&done.receipts[0], "MR");
    assert_eq!(
        kept(&domain),
        ["CQ", "PD", "QP", "completion channel", "device"]
    );
}

#[test]
fn a_busy_channel_keeps_the_device_and_what_is_owed() {
    let scene = Scene::new();
    scene.forget_queue_pair();
    let Scene {
        end,
        request,
        domain,
        ..
    } = scene;
    let (context, channel) = (end.context.bare(), end.lane.bare_channel().unwrap());
    let blocker = sys::extra_queue(context, channel);
    let End {
        qp,
        mr,
        lane,
        pd,
        context: device,
        ..
    } = end;
    released(&qp.close().unwrap(), "QP");
    assert_eq!(
        request.wait(Some(Duration::ZERO)),
        Ok(Observation::Indeterminate)
    );
    assert_eq!(request.recover(), Ok(Observation::Quarantined));

    let mut left = lane.close().unwrap_err();
    released(&left.receipts[0], "CQ");
    assert!(left.queues.is_empty());
    let unreleased = left.channel.take().unwrap();
    let failure = unreleased.failure().unwrap().clone();
    assert_eq!(
        (&*failure.call, failure.errno, failure.class),
        (
            "ibv_destroy_comp_channel",
            Some(Errno::BUSY),
            Class::Retryable
        )
    );
    let unreleased = unreleased.close().unwrap_err();
    assert_eq!(unreleased.failure(), Some(&failure));
    assert_eq!(unreleased.report().evidence.alive, Alive::Yes);
    let entry = unreleased.quarantine();
    drop((mr, pd, device));
    assert_eq!(
        kept(&domain),
        ["MR", "PD", "completion channel", "device", "requests"]
    );
    // Another thread's native call proves the channel.
    in_another_thread(move || sys::destroy_queue(sys::extra_queue(context, channel)));
    assert_eq!(attempts(&domain, entry), 1);

    // Still busy, then not any more.
    let again = domain.quarantine().retry(entry).unwrap_err();
    assert_eq!(again, RetryError::Failed(failure));
    sys::destroy_queue(blocker);
    released(
        &domain.quarantine().retry(entry).unwrap(),
        "completion channel",
    );
    assert_eq!(kept(&domain), ["MR", "PD", "device", "requests"]);
}

#[test]
fn a_busy_completion_queue_keeps_channel_domain_and_what_is_owed() {
    let scene = Scene::new();
    scene.forget_queue_pair();
    let Scene {
        end,
        request,
        domain,
        ..
    } = scene;
    let (pd, queue) = (end.pd.bare(), end.lane.bare_queue(0).unwrap());
    let blocker = sys::extra_queue_pair(pd, queue);
    let End {
        qp,
        mr,
        lane,
        pd: parent,
        context,
        ..
    } = end;
    let payload = qp.close().unwrap();
    released(&payload, "QP");
    assert_eq!(
        request.wait(Some(Duration::ZERO)),
        Ok(Observation::Indeterminate)
    );
    assert_eq!(request.recover(), Ok(Observation::Quarantined));

    let mut left = lane.close().unwrap_err();
    assert!(left.receipts.is_empty());
    let unreleased = left.queues.remove(0).close().unwrap_err();
    let failure = unreleased.failure().unwrap().clone();
    assert_eq!(
        (&*failure.call, failure.errno, failure.class),
        ("ibv_destroy_cq", Some(Errno::BUSY), Class::Retryable)
    );
    let entry = unreleased.quarantine();
    drop((left, mr, parent, context));
    assert_eq!(
        kept(&domain),
        ["CQ", "MR", "PD", "completion channel", "device", "requests"]
    );
    // Another thread's native call proves the queue.
    in_another_thread(move || sys::destroy_queue_pair(sys::extra_queue_pair(pd, queue)));
    assert_eq!(attempts(&domain, entry), 1);

    sys::destroy_queue_pair(blocker);
    released(&domain.quarantine().retry(entry).unwrap(), "CQ");
    let done = domain.quarantine().maintain(16);
    assert_eq!(done.receipts.len(), 1);
    released(&done.receipts[0], "completion channel");
    assert_eq!(kept(&domain), ["MR", "PD", "device", "requests"]);
}

#[test]
fn a_busy_protection_domain_keeps_itself_and_the_device() {
    let scene = Scene::new();
    scene.drain();
    let Scene {
        end,
        request,
        domain,
        ..
    } = scene;
    assert!(request.take().unwrap().is_some());
    let bare = end.pd.bare();
    let blocker = sys::extra_window(bare);
    let End {
        qp,
        mr,
        lane,
        pd,
        context,
        ..
    } = end;
    released(&qp.close().unwrap(), "QP");
    released(&mr.close().unwrap(), "MR");
    assert_eq!(lane.close().unwrap().0.len(), 2);
    // Everything that was charged is back.
    assert_eq!(domain.live().bytes, 0);

    let unreleased = pd.close().unwrap_err().close().unwrap_err();
    let failure = unreleased.failure().unwrap().clone();
    assert_eq!(
        (&*failure.call, failure.errno, failure.class),
        ("ibv_dealloc_pd", Some(Errno::BUSY), Class::Retryable)
    );
    let entry = unreleased.quarantine();
    assert!(context.close().unwrap_err().failure().is_none());
    assert_eq!(kept(&domain), ["PD", "device"]);
    // Another thread's native call proves the domain.
    in_another_thread(move || sys::deallocate_window(sys::extra_window(bare)));
    assert_eq!(attempts(&domain, entry), 1);

    sys::deallocate_window(blocker);
    released(&domain.quarantine().retry(entry).unwrap(), "PD");
    let done = domain.quarantine().maintain(16);
    released(&done.receipts[0], "device");
    domain.quarantine().assert_empty();
    assert_eq!(domain.live().owners, 0);
}

#[test]
fn a_device_whose_close_fails_is_never_closed_again() {
    let Scene {
        end,
        domain,
        request,
        lane: _lane,
        _peer,
    } = {
        let scene = Scene::new();
        scene.drain();
        scene
    };
    assert!(request.take().unwrap().is_some());
    let bare = end.context.bare();
    let End {
        qp,
        mr,
        lane,
        pd,
        context,
        ..
    } = end;
    released(&qp.close().unwrap(), "QP");
    released(&mr.close().unwrap(), "MR");
    assert_eq!(lane.close().unwrap().0.len(), 2);
    released(&pd.close().unwrap(), "PD");

    sys::refuse_close(bare);
    let unreleased = context.close().unwrap_err();
    let failure = unreleased.failure().unwrap().clone();
    assert_eq!(
        (&*failure.call, failure.errno, failure.class),
        ("ibv_close_device", Some(Errno::IO), Class::Terminal)
    );
    let entry = unreleased.close().unwrap_err().quarantine();
    assert_eq!(kept(&domain), ["device"]);
    assert_eq!(
        domain.quarantine().retry(entry),
        Err(RetryError::Terminal(failure))
    );
    assert_eq!(domain.quarantine().maintain(16).attempted(), 0);
    assert_eq!(sys::refused_closes(), 1);
    assert!(in_another_thread(move || sys::device_answers(bare)));
}

/// With the variable set the library turns the failure into success: the receipt says that it proves nothing, and the kernel
/// shows what the library hid. Runs itself again, since the library reads the variable once.
#[test]
fn a_release_that_the_library_made_up_is_no_proof() {
    const NAME: &str = "a_release_that_the_library_made_up_is_no_proof";
    if std::env::var_os(DISASSOCIATE).is_none() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(DISASSOCIATE, "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let scene = Scene::new();
    scene.drain();
    let descriptor = scene.end.context.info().unwrap().cmd_fd;
    let End { qp, lane, .. } = scene.end;
    let receipt = in_another_thread(move || {
        sys::fail_calls_on(descriptor);
        qp.close().unwrap()
    });
    assert_eq!(receipt.identity().kind(), "QP");
    assert!(!is_proof(&receipt), "{receipt}");
    // The kernel still has the queue pair, so it keeps the queue.
    let left = lane.close().unwrap_err();
    let failure = left.queues[0].failure().unwrap();
    assert_eq!(failure.errno, Some(Errno::BUSY), "{left}");
}
