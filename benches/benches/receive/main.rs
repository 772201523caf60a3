//! What `udp` costs per datagram, against the loop that a careful user would write in C, alternating in one run.
//!
//! Promises: each round queues the same number of datagrams for either side on the loopback interface, stops sending, and takes
//! the processor time that each needs to take them all; who goes first changes from round to round. Processor time leaves out what
//! other programs on the machine take. Prints medians, quartiles and ratios.
//! `--instructions` counts the instructions in user space instead, under callgrind, as the difference between a run with many rounds
//! and one with few. `--check` makes a missed target an error. Does not do: rates, latencies, or anything about a
//! real interface.

mod ffi;
mod instructions;

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::process::ExitCode;
use std::time::Duration;

use lockgate::receive::{Group, Receiver, ReceiverConfig, TimestampMode};
use lockgate::registry::Registry;
use lockgate_benches::{Spread, processor_time};

/// How many datagrams wait at a side when its clock starts; fewer if the system grants too small a buffer.
const QUEUED: u64 = 256;
/// What the kernel charges for a datagram of up to 1,472 bytes on the loopback interface, rounded up.
const CHARGED: u32 = 4096;
/// The payloads, in bytes.
const SIZES: [usize; 3] = [64, 256, 1472];
const ROUNDS: usize = 2000;
/// Not measured: caches and the processor's clock settle.
const WARM_UP: usize = 50;
/// Ours per datagram, divided by the C loop's: at most this.
const TARGET: f64 = 1.03;
/// What coalescing must save, at least: cost per datagram without it, divided by that with it.
const COALESCED_TARGET: f64 = 3.0;

/// What a side has received. `struct c_totals` of the C loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Totals {
    packets: u64,
    bytes: u64,
    truncated: u64,
    drops: u64,
    digest: u64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // Cargo adds `--bench` of its own.
    let arguments: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .filter(|argument| *argument != "--bench")
        .collect();
    let result = match arguments[..] {
        [] | ["--check"] => drain_costs(ROUNDS),
        // Few are enough where clocks count instructions; see docs/PERFORMANCE.md.
        ["--rounds", rounds] | ["--check", "--rounds", rounds] => {
            rounds.parse().map_err(text).and_then(drain_costs)
        }
        ["--instructions"] => instructions::measure().map(|()| true),
        ["run", case, size, rounds] => instructions::run(case, size, rounds).map(|()| true),
        _ => {
            eprintln!("usage: receive [--check] [--rounds ROUNDS] | --instructions");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(met) if met || !arguments.contains(&"--check") => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("receive: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The sender of both sides, and where each of them receives.
struct Field {
    sender: UdpSocket,
    ours: SocketAddrV4,
    plain: SocketAddrV4,
}

impl Field {
    fn new() -> Result<Self, String> {
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        socket2::SockRef::from(&sender)
            .set_multicast_if_v4(&Ipv4Addr::LOCALHOST)
            .map_err(text)?;
        let [_, _, high, low] = std::process::id().to_be_bytes();
        // A port that was free a moment ago.
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .map_err(text)?
            .port();
        let group = |last| SocketAddrV4::new(Ipv4Addr::new(239, high, low, last), port);
        Ok(Self {
            sender,
            ours: group(1),
            plain: group(2),
        })
    }

    /// Queues `count` datagrams.
    fn send(&self, payload: &[u8], count: u64, to: SocketAddrV4) -> Result<(), String> {
        for _ in 0..count {
            self.sender
                .send_to(payload, SocketAddr::V4(to))
                .map_err(text)?;
        }
        Ok(())
    }
}

/// Opens `udp` for one address: through the registry, as everybody does.
fn open(to: SocketAddrV4, stamps: bool, gro: bool, buffer_bytes: u32) -> Result<Receiver, String> {
    let mut registry = Registry::new();
    registry
        .register(lockgate_providers::udp::factory())
        .map_err(text)?;
    let mut config = if to.ip().is_multicast() {
        ReceiverConfig::multicast("lo", [Group::from(SocketAddr::V4(to))])
    } else {
        ReceiverConfig::unicast(to.into())
    };
    if stamps {
        config.timestamps = TimestampMode::Software;
    }
    config.options.set("gro", gro);
    config.options.set("receive-buffer", buffer_bytes);
    config.options.set("force-receive-buffer", true);
    registry.open_receiver("udp", &config).or_else(|_| {
        config.options.set("force-receive-buffer", false);
        registry.open_receiver("udp", &config).map_err(text)
    })
}

/// Takes `want` datagrams, or what is queued: what an application does with batches, and what the C loop does by hand.
#[inline(never)]
fn drain(receiver: &mut Receiver, want: u64) -> Result<Totals, String> {
    let mut totals = Totals::default();
    while totals.packets < want {
        let batch = receiver.poll().map_err(text)?;
        if batch.is_empty() {
            break;
        }
        for packet in batch {
            let payload = packet.payload();
            let first = payload.first_chunk().copied().unwrap_or_default();
            let source = packet.descriptor();
            let address = u32::from_ne_bytes([
                source.source[0],
                source.source[1],
                source.source[2],
                source.source[3],
            ]);
            totals.packets += 1;
            totals.bytes += payload.len() as u64;
            totals.digest = totals.digest.wrapping_add(
                u64::from_ne_bytes(first)
                    ^ source.timestamp
                    ^ u64::from(address)
                    ^ u64::from(source.source_port),
            );
        }
    }
    Ok(totals)
}

/// The receive buffer that holds what a round queues, in the unit of `SO_RCVBUF`, which the kernel doubles.
fn buffer_bytes() -> u32 {
    QUEUED as u32 * CHARGED / 2
}

/// How many datagrams of a size either side can hold.
fn depth(
    field: &Field,
    ours: &mut Receiver,
    plain: &mut ffi::Plain,
    size: usize,
) -> Result<u64, String> {
    let payload = vec![0; size];
    field.send(&payload, QUEUED, field.ours)?;
    field.send(&payload, QUEUED, field.plain)?;
    let held = drain(ours, u64::MAX)?
        .packets
        .min(plain.drain(u64::MAX)?.packets);
    // The first counters of drops come only with the next datagrams; take them out of what is measured.
    Ok(if held < QUEUED { held * 9 / 10 } else { held })
}

fn drain_costs(rounds: usize) -> Result<bool, String> {
    println!(
        "Drain cost per datagram: ours, the loop in C, and ours divided by C's. Nanoseconds of processor time; median and quartiles of the rounds."
    );
    println!();
    println!("| stamps | bytes | queued | ours | C | ratio of medians | median ratio of rounds |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut met = true;
    for stamps in [false, true] {
        for size in SIZES {
            let cell = measure(size, stamps, rounds)?;
            // Of the rounds, because what disturbs one side of a round mostly disturbs the other as well.
            met &= cell.paired.median <= TARGET;
            let name = if stamps { "software" } else { "none" };
            println!(
                "| {name} | {size} | {} | {} | {} | {:.3} | {} |",
                cell.queued, cell.ours, cell.plain, cell.ratio, cell.paired
            );
        }
    }
    println!();
    println!(
        "{rounds} rounds each. Target: a median ratio of rounds of at most {TARGET}: {}.",
        verdict(met)
    );
    Ok(met & coalesced(rounds)?)
}

struct Cell {
    queued: u64,
    ours: Spread,
    plain: Spread,
    ratio: f64,
    paired: Spread,
}

/// One row: both sides in turn, each going first in every other round.
fn measure(size: usize, stamps: bool, rounds: usize) -> Result<Cell, String> {
    let field = Field::new()?;
    let mut ours = open(field.ours, stamps, false, buffer_bytes())?;
    let interface = std::fs::read_to_string("/sys/class/net/lo/ifindex").map_err(text)?;
    let interface = interface.trim().parse().map_err(text)?;
    let mut plain = ffi::Plain::open(
        *field.plain.ip(),
        field.plain.port(),
        interface,
        buffer_bytes(),
        stamps,
    )?;
    let queued = depth(&field, &mut ours, &mut plain, size)?;
    let payload: Vec<u8> = (0..size).map(|at| at as u8).collect();
    let (mut ours_ns, mut plain_ns, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..WARM_UP + rounds {
        let mut took = [Duration::ZERO; 2];
        for side in [round % 2, 1 - round % 2] {
            let to = if side == 0 { field.ours } else { field.plain };
            field.send(&payload, queued, to)?;
            let began = processor_time();
            let totals = if side == 0 {
                drain(&mut ours, queued)?
            } else {
                plain.drain(queued)?
            };
            took[side] = processor_time() - began;
            let totals = black_box(totals);
            if (totals.packets, totals.bytes) != (queued, queued * size as u64) {
                return Err(format!("side {side} received {totals:?} of {queued}"));
            }
        }
        if round < WARM_UP {
            continue;
        }
        let [ours, plain] = took.map(|time| time.as_nanos() as f64 / queued as f64);
        ours_ns.push(ours);
        plain_ns.push(plain);
        ratios.push(ours / plain);
    }
    let (ours, plain) = (Spread::of(ours_ns), Spread::of(plain_ns));
    Ok(Cell {
        queued,
        ratio: ours.median / plain.median,
        ours,
        plain,
        paired: Spread::of(ratios),
    })
}

/// What coalescing saves on a unicast flow that the sender segments: the same datagrams, drained with and without it.
fn coalesced(rounds: usize) -> Result<bool, String> {
    println!();
    println!(
        "The same for a unicast flow of datagrams of 1,200 bytes that the sender hands over 40 at a time, without and with `gro`:"
    );
    println!();
    println!("| gro | ours |");
    println!("| --- | ---: |");
    let mut flows = [
        instructions::Flow::open(false)?,
        instructions::Flow::open(true)?,
    ];
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..WARM_UP + rounds {
        for (flow, times) in flows.iter_mut().zip(&mut times) {
            let count = flow.send()?;
            let began = processor_time();
            let totals = drain(&mut flow.receiver, count)?;
            let took = processor_time() - began;
            if black_box(totals).packets != count {
                return Err(format!("received {totals:?} of {count}"));
            }
            if round >= WARM_UP {
                times.push(took.as_nanos() as f64 / count as f64);
            }
        }
    }
    let [off, on] = times.map(Spread::of);
    let factor = off.median / on.median;
    println!("| off | {off} |");
    println!("| on | {on} |");
    let met = factor >= COALESCED_TARGET;
    println!();
    println!(
        "A factor of {factor:.1}; target: at least {COALESCED_TARGET}: {}.",
        verdict(met)
    );
    Ok(met)
}

fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "MISSED" }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
