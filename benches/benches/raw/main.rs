//! What `packet` and `xdp` cost per packet, against the loop that a careful user would write in C over the same mechanism, and
//! against libpcap, alternating in one run.
//!
//! Promises: each round sends the same frames over a pair of virtual Ethernet interfaces, stops sending, and takes the processor
//! time that each side needs to take them all; who goes first changes from round to round. Runs itself in a network namespace of
//! its own. Prints medians, quartiles and ratios. `--check` makes a missed target an error. Does not do: the kernel's part, which was
//! paid when the rings were filled, or anything about a real interface. A word such as `v3` measures only what has it in its name.

mod ffi;

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use ffi::{Measures, Mechanism, Plain};
use lockgate::receive::frame::{Builder, VlanTags};
use lockgate::receive::mac::{self, MacAddress};
use lockgate::receive::{Receiver, ReceiverConfig};
use lockgate::registry::Registry;
use lockgate_benches::{Spread, processor_time};
use socket2::{Domain, Socket, Type};

/// How many packets wait when a clock starts.
const QUEUED: u64 = 1024;
const RING: u32 = 2048;
/// The payloads, in bytes.
const SIZES: [usize; 3] = [64, 256, 1472];
const ROUNDS: usize = 300;
/// Not measured: caches and the processor's clock settle.
const WARM_UP: usize = 20;
/// Ours per packet, divided by the C loop's: at most this.
const TARGET: f64 = 1.05;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 7, 7, 7);
const PORT: u16 = 47_000;
const INSIDE: &str = "LOCKGATE_BENCH_INSIDE";
/// More than a block's time; the packets of the last block come after it.
const SETTLED: Duration = Duration::from_millis(3);

/// What a side has received. `struct c_totals` of the C loops.
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
    let check = arguments.iter().any(|argument| argument == "--check");
    let result = if std::env::var_os(INSIDE).is_some() {
        let only = arguments.iter().find(|argument| !argument.starts_with('-'));
        measure_all(only.map_or("", String::as_str))
    } else {
        run_inside(&arguments)
    };
    match result {
        Ok(met) if met || !check => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("raw: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_inside(arguments: &[String]) -> Result<bool, String> {
    let program = std::env::current_exe().map_err(text)?;
    let status = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(arguments)
        .env(INSIDE, "1")
        .status()
        .map_err(|error| format!("run unshare: {error}"))?;
    Ok(status.success())
}

/// A pair of interfaces: where frames are sent, and where they come out.
struct Pair {
    sender: Socket,
    near: (String, u32),
}

impl Pair {
    fn new(number: usize) -> Result<Self, String> {
        let (near, far) = (format!("n{number}"), format!("f{number}"));
        ip(&format!("link add {near} type veth peer name {far}"))?;
        for name in [&near, &far] {
            ip(&format!("link set {name} up"))?;
        }
        ip(&format!("address add 10.{number}.0.1/24 dev {near}"))?;
        let sender = Socket::new(Domain::PACKET, Type::RAW, None).map_err(text)?;
        sender
            .bind(&ffi::link_address(index(&far)?))
            .map_err(text)?;
        let index = index(&near)?;
        Ok(Self {
            sender,
            near: (near, index),
        })
    }

    fn send(&self, frame: &[u8]) -> Result<(), String> {
        for _ in 0..QUEUED {
            self.sender.send(frame).map_err(text)?;
        }
        Ok(())
    }

    fn open(
        &self,
        provider: &str,
        options: &[(&str, &str)],
        block: Option<u32>,
    ) -> Result<Receiver, String> {
        let mut registry = Registry::new();
        for factory in [
            lockgate_providers::packet::factory(),
            lockgate_providers::xdp::factory(),
        ] {
            registry.register(factory).map_err(text)?;
        }
        let group = SocketAddr::from((GROUP, PORT)).into();
        let mut config = ReceiverConfig::multicast(&self.near.0, [group]);
        (config.ring, config.buffer_bytes) = (RING, 1792);
        for (name, value) in options {
            config.options.set(name, *value);
        }
        if let Some(block) = block {
            config.options.set("block-bytes", block);
        }
        registry.open_receiver(provider, &config).map_err(text)
    }

    fn plain(&self, mechanism: Mechanism, measures: Measures) -> Result<Plain, String> {
        Plain::open(
            mechanism,
            GROUP,
            PORT,
            (&self.near.0, self.near.1),
            measures,
        )
    }
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(words.split(' '))
        .output()
        .map_err(text)?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "ip {words}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}

fn index(name: &str) -> Result<u32, String> {
    let output = Command::new("ip")
        .args(["-o", "link", "show", name])
        .output()
        .map_err(text)?;
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = shown.split(':').next().unwrap_or_default();
    number
        .trim()
        .parse()
        .map_err(|_| format!("no index of {name}: {shown}"))
}

/// Takes `want` packets, or what is there: what an application does with batches, and what the C loops do by hand.
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
            let one = packet.descriptor();
            let [a, b, c, d, ..] = one.source;
            let address = u32::from_ne_bytes([a, b, c, d]);
            totals.packets += 1;
            totals.bytes += payload.len() as u64;
            totals.digest = totals.digest.wrapping_add(
                u64::from_ne_bytes(first) ^ u64::from(address) ^ u64::from(one.source_port),
            );
        }
    }
    Ok(totals)
}

enum Side {
    Ours(Receiver),
    Plain(Plain),
}

impl Side {
    fn drain(&mut self, want: u64) -> Result<Totals, String> {
        match self {
            Self::Ours(receiver) => drain(receiver, want),
            Self::Plain(plain) => plain.drain(want),
        }
    }
}

fn measure_all(only: &str) -> Result<bool, String> {
    println!(
        "Drain cost per packet: ours, the loop in C, and libpcap where it is here. Nanoseconds of processor time; median and quartiles of {ROUNDS} rounds of {QUEUED} packets."
    );
    println!();
    println!("| mechanism | bytes | ours | C | libpcap | median ratio of rounds, ours to C |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let mut met = true;
    // A pair of its own for each cell: settings of an interface outlive what set them.
    let mut pairs = 0;
    let all = ["packet v2", "packet v3", "xdp generic", "xdp native"];
    for name in all.into_iter().filter(|name| name.contains(only)) {
        for size in SIZES {
            met &= cell(name, size, &mut pairs)?;
        }
    }
    println!();
    println!(
        "Target: a median ratio of at most {TARGET}: {}.",
        if met { "met" } else { "MISSED" }
    );
    Ok(met)
}

/// One row. Both sides in turn, each going first in every other round.
fn cell(name: &str, size: usize, pairs: &mut usize) -> Result<bool, String> {
    let mut pair = || {
        *pairs += 1;
        Pair::new(*pairs)
    };
    let measures = Measures {
        block_bytes: 1 << 18,
        blocks: 24,
        slot_bytes: 2048,
        native: name.ends_with("native"),
    };
    let mut feeds = vec![pair()?];
    let mut sides: Vec<Side> = Vec::new();
    let near = &feeds[0];
    match name {
        "packet v2" => {
            sides.push(Side::Ours(near.open(
                "packet",
                &[("version", "v2")],
                None,
            )?));
            sides.push(Side::Plain(near.plain(Mechanism::Tpacket2, measures)?));
        }
        "packet v3" => {
            sides.push(Side::Ours(near.open("packet", &[], Some(1 << 18))?));
            sides.push(Side::Plain(near.plain(Mechanism::Tpacket3, measures)?));
        }
        _ => {
            // An interface takes one program, so that each side has a pair, and both get the same frames.
            let mode = if measures.native { "native" } else { "generic" };
            sides.push(Side::Ours(near.open(
                "xdp",
                &[("mode", mode), ("copy", "copy")],
                None,
            )?));
            let other = pair()?;
            let frames = Measures {
                blocks: RING,
                ..measures
            };
            sides.push(Side::Plain(other.plain(Mechanism::Xsk, frames)?));
            feeds.push(other);
        }
    }
    if cfg!(with_pcap) {
        // Beside an XDP program it would see nothing.
        let other = pair()?;
        sides.push(Side::Plain(other.plain(Mechanism::Pcap, measures)?));
        feeds.push(other);
    }
    let payload: Vec<u8> = (0..size).map(|at| at as u8).collect();
    let destination = mac::multicast_v4(GROUP).unwrap_or(MacAddress::BROADCAST);
    let builder = Builder::udp(([10, 0, 0, 9], 40_000).into(), (GROUP, PORT).into())
        .map_err(text)?
        .ethernet(
            MacAddress::new([2, 0, 0, 0, 0, 9]),
            destination,
            VlanTags::NONE,
        );
    let mut frame = vec![0; builder.len(size)];
    builder.write(&payload, &mut frame).map_err(text)?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); sides.len()];
    let mut ratios = Vec::new();
    for round in 0..WARM_UP + ROUNDS {
        for feed in &feeds {
            feed.send(&frame)?;
        }
        let sent = Instant::now();
        while sent.elapsed() < SETTLED {
            std::hint::spin_loop();
        }
        let mut took = vec![0.0; sides.len()];
        let mut digests = vec![0; sides.len()];
        for step in 0..sides.len() {
            let at = (round + step) % sides.len();
            let began = processor_time();
            let totals = sides[at].drain(QUEUED)?;
            took[at] = (processor_time() - began).as_nanos() as f64 / QUEUED as f64;
            let totals = black_box(totals);
            if (totals.packets, totals.bytes) != (QUEUED, QUEUED * size as u64) {
                return Err(format!(
                    "{name}, side {at}, round {round}: {totals:?} of {QUEUED}"
                ));
            }
            digests[at] = totals.digest;
        }
        if digests.iter().any(|digest| *digest != digests[0]) {
            return Err(format!("{name}: the sides saw different packets"));
        }
        if round >= WARM_UP {
            ratios.push(took[0] / took[1]);
            for (times, took) in times.iter_mut().zip(took) {
                times.push(took);
            }
        }
    }
    let mut spreads = times.into_iter().map(Spread::of);
    let (ours, plain) = (spreads.next(), spreads.next());
    let pcap = spreads
        .next()
        .map_or_else(|| "not here".to_owned(), |one| format!("{one:.1}"));
    let ratio = Spread::of(ratios);
    if let (Some(ours), Some(plain)) = (ours, plain) {
        println!(
            "| {name} | {size} | {ours:.1} | {plain:.1} | {pcap} | {:.3} ({:.3} to {:.3}) |",
            ratio.median, ratio.low, ratio.high
        );
    }
    Ok(ratio.median <= TARGET)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
