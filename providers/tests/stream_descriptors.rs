//! Awaited receivers leak no descriptor, however they end. The one test of this binary: descriptors are counted for the whole process.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a test panics where it fails; the lint's exception does not reach helpers in integration tests"
)]

#[path = "../src/testing.rs"]
mod testing;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use futures_core::Stream;
use lockgate_providers::stream::AsyncReceiver;
use testing::{Script, SocketReceiver, open};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn no_descriptor_is_left_after_any_end() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    runtime.block_on(async {
        let before = descriptors();
        for round in 0..1_000 {
            let (receiver, sender) = SocketReceiver::pair(4);
            let mut receiver = AsyncReceiver::new(open(receiver)).unwrap();
            {
                // Waits, and is dropped there.
                let mut waiting = pin!(receiver.next_batch(|batch| batch.len()));
                let pending = poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
                assert!(pending.is_pending());
            }
            sender.send(b"one").unwrap();
            match round % 5 {
                0 => drop(receiver),
                1 => receiver.close().unwrap(),
                2 => drop(receiver.into_inner()),
                3 => {
                    let mut packets = receiver.packets();
                    let next = poll_fn(|context| Pin::new(&mut packets).poll_next(context)).await;
                    assert_eq!(next.unwrap().unwrap().payload(), b"one");
                }
                _ => assert!(AsyncReceiver::new(Script::new().open()).is_err()),
            }
        }
        assert_eq!(descriptors(), before);
    });
}
