//! Awaited receivers over real sockets: every future is dropped at every place, and nothing may be lost by it.

use std::future::{Future, poll_fn};
use std::net::UdpSocket;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use futures_core::Stream;
use futures_core::stream::FusedStream;
use lockgate::receive::State;
use lockgate::{Errno, ErrorKind};

use super::{AsyncReceiver, Packets};
use crate::testing::{Script, SocketReceiver, numbers, open};

fn run<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap()
        .block_on(task)
}

/// A watched receiver on a socket with batches of at most four, and a socket that sends to it.
fn pair() -> (AsyncReceiver, Sender) {
    let (receiver, socket) = SocketReceiver::pair(4);
    let receiver = AsyncReceiver::new(open(receiver)).unwrap();
    (receiver, Sender { socket, next: 0 })
}

/// Sends numbered packets. On lo they are in the receiver's socket when the send returns.
struct Sender {
    socket: UdpSocket,
    next: u32,
}

impl Sender {
    fn send(&mut self, count: u32) {
        for _ in 0..count {
            self.socket.send(&self.next.to_be_bytes()).unwrap();
            self.next += 1;
        }
    }
}

/// Polls a future once, with the task's own waker.
async fn once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// Lets the runtime look at its descriptors.
async fn turn() {
    // A yield alone may come back before the driver was asked; a handful of them asks it each time the queue is empty.
    for _ in 0..4 {
        tokio::task::yield_now().await;
    }
}

async fn next(receiver: &mut AsyncReceiver) -> Vec<u32> {
    receiver.next_batch(numbers).await.unwrap()
}

/// Takes batches until `count` packets are there.
async fn take(receiver: &mut AsyncReceiver, count: usize) -> Vec<u32> {
    let mut all = Vec::new();
    while all.len() < count {
        all.extend(next(receiver).await);
    }
    all
}

async fn next_packet(packets: &mut Packets) -> Option<lockgate::Result<u32>> {
    let packet = poll_fn(|context| Pin::new(&mut *packets).poll_next(context)).await?;
    Some(packet.map(|packet| u32::from_be_bytes(packet.payload().try_into().unwrap())))
}

#[test]
fn batches_come_in_order_and_none_is_empty() {
    run(async {
        let (mut receiver, mut sender) = pair();
        sender.send(10);
        assert_eq!(next(&mut receiver).await, [0, 1, 2, 3]);
        assert_eq!(next(&mut receiver).await, [4, 5, 6, 7]);
        assert_eq!(next(&mut receiver).await, [8, 9]);
        let mut waiting = pin!(receiver.next_batch(numbers));
        assert!(once(waiting.as_mut()).await.is_pending());
        sender.send(1);
        assert_eq!(waiting.await.unwrap(), [10]);
    });
}

/// Every place at which a `next_batch` can be when it is dropped.
#[test]
fn a_next_batch_dropped_at_any_place_loses_nothing() {
    run(async {
        for place in 0..5 {
            let (mut receiver, mut sender) = pair();
            sender.send(1);
            assert_eq!(next(&mut receiver).await, [0]);
            {
                let mut dropped = pin!(receiver.next_batch(|_| panic!("place {place}: taken")));
                match place {
                    // Never polled.
                    0 => {}
                    // Waiting, nothing there.
                    1 => assert!(once(dropped.as_mut()).await.is_pending()),
                    // Waiting, something there, not told yet.
                    2 => {
                        assert!(once(dropped.as_mut()).await.is_pending());
                        sender.send(2);
                    }
                    // Waiting, something there, told, not polled again.
                    3 => {
                        assert!(once(dropped.as_mut()).await.is_pending());
                        sender.send(2);
                        turn().await;
                    }
                    // Never polled, something there.
                    _ => {
                        sender.send(2);
                        turn().await;
                    }
                }
            }
            sender.send(1);
            let sent = sender.next;
            let rest = take(&mut receiver, sent as usize - 1).await;
            assert_eq!(rest, (1..sent).collect::<Vec<_>>(), "place {place}");
        }
    });
}

#[test]
fn a_readable_dropped_at_any_place_takes_and_loses_nothing() {
    run(async {
        let (mut receiver, mut sender) = pair();
        {
            let mut waiting = pin!(receiver.readable());
            // The first readiness may be there from the registration.
            let _ = once(waiting.as_mut()).await;
        }
        sender.send(1);
        receiver.readable().await.unwrap();
        receiver.readable().await.unwrap();
        assert_eq!(next(&mut receiver).await, [0]);
    });
}

/// A wake-up for a packet that the receiver then does not deliver.
#[cfg(feature = "fault")]
#[test]
fn an_early_wake_up_waits_on_and_may_be_dropped() {
    use lockgate::fault::{Plan, Rule};

    run(async {
        let plan = Plan::seeded(1).with(Rule::at("a.receive").times(2).drop_it());
        let (receiver, socket) = SocketReceiver::pair(4);
        let receiver = crate::fault::Fault::new("a", &plan).wrap(receiver);
        let mut receiver = AsyncReceiver::new(open(receiver)).unwrap();
        let mut sender = Sender { socket, next: 0 };
        sender.send(1);
        {
            let mut dropped = pin!(receiver.next_batch(numbers));
            for _ in 0..3 {
                assert!(once(dropped.as_mut()).await.is_pending());
                turn().await;
            }
        }
        assert_eq!(plan.calls("a.receive"), 1, "it was woken up and has polled");
        sender.send(1);
        {
            let mut waiting = pin!(receiver.next_batch(numbers));
            for _ in 0..3 {
                assert!(once(waiting.as_mut()).await.is_pending());
                turn().await;
            }
            sender.send(1);
            assert_eq!(waiting.await.unwrap(), [2]);
        }
    });
}

#[cfg(feature = "fault")]
#[test]
fn a_held_packet_wakes_the_task_by_itself() {
    use lockgate::fault::{Plan, Rule};

    run(async {
        let plan = Plan::seeded(1)
            .with(
                Rule::at("a.receive")
                    .call(1)
                    .delay(Duration::from_millis(10)),
            )
            .with(Rule::at("a.receive").call(2).duplicate(9));
        let (receiver, socket) = SocketReceiver::pair(4);
        let receiver = crate::fault::Fault::new("a", &plan).batch(4).wrap(receiver);
        let mut receiver = AsyncReceiver::new(open(receiver)).unwrap();
        let mut sender = Sender { socket, next: 0 };
        sender.send(1);
        assert_eq!(next(&mut receiver).await, [0]);
        sender.send(1);
        assert_eq!(take(&mut receiver, 10).await, [1; 10]);
    });
}

/// Sends, polls, drops and turns in a random order; at the end every packet has come once and in order.
#[test]
fn nothing_is_lost_whatever_is_dropped_when() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = seed;
    let mut below = |bound: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    run(async {
        for round in 0..50 {
            let (mut receiver, mut sender) = pair();
            let mut all = Vec::new();
            for _ in 0..100 {
                let mut future = pin!(receiver.next_batch(numbers));
                for _ in 0..below(4) {
                    match below(3) {
                        0 => sender.send(below(7) as u32),
                        1 => turn().await,
                        _ => {
                            if let Poll::Ready(batch) = once(future.as_mut()).await {
                                all.extend(batch.unwrap());
                                break;
                            }
                        }
                    }
                }
            }
            let left = sender.next as usize - all.len();
            all.extend(take(&mut receiver, left).await);
            let expected: Vec<u32> = (0..sender.next).collect();
            assert_eq!(all, expected, "seed {seed} round {round}");
        }
    });
}

#[test]
fn no_wake_up_is_lost_between_two_threads() {
    const COUNT: u32 = 20_000;
    run(async {
        let (mut receiver, mut sender) = pair();
        let (credit, granted) = std::sync::mpsc::channel();
        let sending = std::thread::spawn(move || {
            // Never more in flight than the smallest socket buffer holds.
            while let Ok(count) = granted.recv() {
                sender.send(count);
            }
        });
        let mut expected = 0;
        while expected < COUNT {
            // Odd sizes, so that batches end everywhere.
            credit.send(1 + expected % 7).unwrap();
            let end = expected + 1 + expected % 7;
            while expected < end {
                for number in next(&mut receiver).await {
                    assert_eq!(number, expected);
                    expected += 1;
                }
            }
        }
        drop(credit);
        sending.join().unwrap();
    });
}

#[test]
fn the_stream_gives_every_packet_and_keeps_what_it_took_ahead() {
    run(async {
        let (receiver, mut sender) = pair();
        let mut packets = receiver.packets();
        sender.send(6);
        assert_eq!(next_packet(&mut packets).await.unwrap().unwrap(), 0);
        assert_eq!(packets.size_hint(), (3, None));
        {
            // A `next` that waits is dropped; the stream has nothing ahead and takes nothing.
            for number in 1..6 {
                assert_eq!(next_packet(&mut packets).await.unwrap().unwrap(), number);
            }
            let mut dropped = pin!(next_packet(&mut packets));
            assert!(once(dropped.as_mut()).await.is_pending());
            sender.send(5);
        }
        assert_eq!(next_packet(&mut packets).await.unwrap().unwrap(), 6);
        let (mut receiver, ahead) = packets.into_parts();
        let ahead: Vec<u8> = ahead.iter().map(|packet| packet.payload()[3]).collect();
        assert_eq!(ahead, [7, 8, 9]);
        assert_eq!(next(&mut receiver).await, [10]);
    });
}

#[test]
fn owned_packets_know_what_the_batch_knew_and_use_their_buffers_again() {
    run(async {
        let (receiver, mut sender) = pair();
        let mut packets = receiver.packets();
        let mut place = None;
        for _ in 0..3 {
            sender.send(1);
            let packet = poll_fn(|context| Pin::new(&mut packets).poll_next(context)).await;
            let packet = packet.unwrap().unwrap();
            assert_eq!(packet.view().source(), sender.socket.local_addr().ok());
            let here = packet.payload().as_ptr();
            assert_eq!(
                *place.get_or_insert(here),
                here,
                "the one buffer of the pool"
            );
        }
    });
}

#[test]
fn a_failed_poll_is_told_and_ends_the_stream() {
    struct Failing;
    impl lockgate::receive::PacketReceiver for Failing {
        fn poll(&mut self) -> lockgate::Result<lockgate::receive::Batch<'_>> {
            Err(lockgate::Error::from_errno("poll", Errno::IO))
        }
        fn wait(&mut self, _: Option<Duration>) -> lockgate::Result<lockgate::receive::Readiness> {
            unreachable!("nobody waits in a thread here")
        }
        fn readiness_fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
            // Always readable: its other end is closed.
            static END: std::sync::OnceLock<std::os::unix::net::UnixStream> =
                std::sync::OnceLock::new();
            let end = END.get_or_init(|| std::os::unix::net::UnixStream::pair().unwrap().0);
            Some(std::os::fd::AsFd::as_fd(end))
        }
        fn statistics(&mut self) -> lockgate::receive::Statistics {
            lockgate::receive::Statistics::default()
        }
        fn close(&mut self) -> lockgate::Result<()> {
            Ok(())
        }
    }
    run(async {
        let mut receiver = AsyncReceiver::new(open(Box::new(Failing))).unwrap();
        let error = receiver.next_batch(numbers).await.unwrap_err();
        assert_eq!(error.errno(), Some(Errno::IO));
        let mut packets = receiver.packets();
        assert!(!packets.is_terminated());
        assert!(next_packet(&mut packets).await.unwrap().is_err());
        assert!(packets.is_terminated());
        assert!(next_packet(&mut packets).await.is_none());
    });
}

#[test]
fn a_receiver_without_descriptor_is_refused_and_given_back() {
    run(async {
        let script = Script::new();
        let refused = AsyncReceiver::new(script.open()).unwrap_err();
        assert_eq!(*refused.error.kind(), ErrorKind::Capability);
        let text = refused.to_string();
        assert!(
            text.starts_with("scripted: await receiver readiness-fd:"),
            "{text}"
        );
        assert!(
            text.contains("remedy: open a provider that claims it"),
            "{text}"
        );
        let mut receiver = refused.receiver;
        script.numbers([1]);
        assert_eq!(numbers(receiver.poll().unwrap()), [1]);
    });
}

#[test]
fn outside_of_a_runtime_it_is_refused() {
    let (receiver, _sender) = SocketReceiver::pair(4);
    let refused = AsyncReceiver::new(open(receiver)).unwrap_err();
    assert_eq!(*refused.error.kind(), ErrorKind::Library);
    assert_eq!(refused.receiver.state(), State::Open);
}

#[test]
fn a_close_ends_the_watch_and_is_idempotent() {
    run(async {
        let (mut receiver, sender) = pair();
        receiver.close().unwrap();
        receiver.close().unwrap();
        assert_eq!(receiver.state(), State::Closed);
        // The duplicate is gone too: nobody listens on the port any more.
        sender.socket.send(b"lost").unwrap();
        let refused = sender.socket.send(b"refused").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let error = receiver.next_batch(numbers).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Closed);
        assert_eq!(
            *receiver.readable().await.unwrap_err().kind(),
            ErrorKind::Closed
        );
        let refused = AsyncReceiver::new(receiver.into_inner()).unwrap_err();
        assert_eq!(*refused.error.kind(), ErrorKind::Closed);
    });
}

#[test]
fn a_receiver_given_back_is_open_and_can_be_watched_again() {
    run(async {
        let (mut receiver, mut sender) = pair();
        sender.send(1);
        assert_eq!(next(&mut receiver).await, [0]);
        let mut receiver = receiver.into_inner();
        sender.send(2);
        assert_eq!(numbers(receiver.poll().unwrap()), [1, 2]);
        let mut receiver = AsyncReceiver::new(receiver).unwrap();
        sender.send(1);
        assert_eq!(next(&mut receiver).await, [3]);
    });
}

#[test]
fn a_runtime_that_has_shut_down_is_told() {
    let mut receiver = run(async { pair().0 });
    let error = run(async move { receiver.next_batch(numbers).await.unwrap_err() });
    assert_eq!(*error.kind(), ErrorKind::Closed);
    assert!(error.to_string().contains("has shut down"), "{error}");
}

/// Both futures can be spawned onto a runtime of several threads.
#[test]
fn futures_and_streams_are_send() {
    fn is_send<T: Send>(_: &T) {}
    run(async {
        let (mut receiver, _sender) = pair();
        is_send(&receiver.next_batch(numbers));
        is_send(&receiver.readable());
        is_send(&receiver.packets());
    });
}
