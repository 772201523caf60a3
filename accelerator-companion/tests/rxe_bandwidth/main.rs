//! The bandwidth of READ and WRITE through the owners, beside `ib_read_bw` and `ib_write_bw` in the same guest, in alternation.
//!
//! Not one of the suites of `cargo xtask vm --suite`: a clock on a shared machine is no gate. It fails all the same if the owners
//! stay below what is promised, and prints every run. In the repository's root:
//!
//! ```sh
//! cargo test --release -p lockgate-accel --features __rxe --test rxe_bandwidth --no-run
//! cargo xtask vm -- target/release/deps/rxe_bandwidth-HASH --nocapture
//! ```

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[path = "../rxe_support/mod.rs"]
mod support;

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Instant;

use lockgate_verbs_shim::{Completion, SendRequest, requests, send_flags};
use support::{End, devices, pair, sys};

/// What is promised, as a part of the other program's figure.
const PROMISED: f64 = 0.95;
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
const BYTES: usize = 32 << 20;
const ROUNDS: usize = 5;
/// Requests under way, ours and theirs.
const DEPTH: usize = 16;

/// MiB in a second, as the other program counts.
fn ours(a: &End, b: &End, opcode: u32, size: usize) -> f64 {
    let count = BYTES / size;
    let remote = *b.mr.info();
    let piece = a.piece(0, size);
    let request =
        SendRequest::new(opcode, 0, send_flags::SIGNALED, &piece).remote(remote.addr, remote.rkey);
    let mut completions = [Completion::default(); DEPTH];
    let (mut posted, mut done) = (0, 0);
    let start = Instant::now();
    while done < count {
        while posted < count && posted - done < DEPTH {
            sys::post_send(a, &[request]).unwrap();
            posted += 1;
        }
        let got = a.lane.poll(0, &mut completions).unwrap();
        for completion in &completions[..got] {
            assert!(completion.is_success(), "{completion:?}");
        }
        done += got;
    }
    (count * size) as f64 / f64::from(1 << 20) / start.elapsed().as_secs_f64()
}

fn theirs(program: &str, gids: [u8; 2], size: usize) -> f64 {
    // The port is free now, and nothing else takes one in the guest.
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let common = |at: usize| {
        let mut command = Command::new(program);
        command
            .args(["-F", "-d", &devices()[at], "-x", &gids[at].to_string()])
            .args(["-p", &port, "-s", &size.to_string()])
            .args(["-n", &(BYTES / size).max(5).to_string()])
            .args(["-t", &DEPTH.to_string(), "-Q", "1", "-m", "4096"]);
        command
    };
    let mut server = common(1)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // The server does not say when it listens; a client that comes too early ends at once and comes again.
    let mut text = String::new();
    for _ in 0..1000 {
        let output = common(0).arg("127.0.0.1").output().unwrap();
        text = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() {
            break;
        }
        assert!(server.try_wait().unwrap().is_none(), "{program}: {text}");
    }
    let _ = server.wait();
    let figures = text
        .lines()
        .find_map(|line| {
            let words: Vec<f64> = line
                .split_whitespace()
                .filter_map(|w| w.parse().ok())
                .collect();
            (words.len() >= 5 && words[0] == size as f64).then_some(words)
        })
        .unwrap_or_else(|| panic!("{program} told no figures: {text}"));
    // Bytes, iterations, peak, average, messages.
    figures[3]
}

fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
fn owners_are_as_fast_as_perftest() {
    let (a, b) = pair(1 << 20);
    let gids = [a.endpoint().gid_index, b.endpoint().gid_index];
    let mut below = Vec::new();
    for (name, program, opcode) in [
        ("WRITE", "ib_write_bw", requests::WRITE),
        ("READ", "ib_read_bw", requests::READ),
    ] {
        for size in SIZES {
            let (mut mine, mut others) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                mine.push(ours(&a, &b, opcode, size));
                others.push(theirs(program, gids, size));
            }
            println!("{name} {size}: owners {mine:.1?}, {program} {others:.1?} MiB/s");
            // Each round by itself, since the machine's other tenants come and go.
            let rounds = mine.iter().zip(&others);
            let mut ratios: Vec<_> = rounds.map(|(ours, theirs)| ours / theirs).collect();
            let ratio = median(&mut ratios);
            println!("{name} {size}: median of the ratios {ratio:.3}, {ratios:.2?}");
            if ratio < PROMISED {
                below.push(format!("{name} {size}: {ratio:.3}"));
            }
        }
    }
    assert!(below.is_empty(), "below {PROMISED}: {below:?}");
}
