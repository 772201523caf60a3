//! Instructions in user space per datagram, by callgrind.
//!
//! Promises: the same datagrams and the same loops as the timed rounds; start-up cancels out in the difference of two runs. The
//! kernel's part, which is most of what a datagram costs, is not in them. Does not do: running without `valgrind`; it says so.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::process::Command;

use lockgate::receive::Receiver;

use crate::{Field, Totals, buffer_bytes, drain, ffi, open, text};

/// Rounds of the two runs.
const FEW: u64 = 4;
const MANY: u64 = 12;
/// Datagrams a round; the smallest default receive buffer holds them.
const COUNT: u64 = 64;

/// Prints the table.
pub(crate) fn measure() -> Result<(), String> {
    println!("Instructions in user space per datagram, by callgrind:");
    println!();
    println!("| path | bytes | instructions |");
    println!("| --- | ---: | ---: |");
    for (case, name) in [
        ("plain", "C loop"),
        ("ours", "ours"),
        ("plain-stamps", "C loop, software stamps"),
        ("ours-stamps", "ours, software stamps"),
    ] {
        for size in ["64", "1472"] {
            println!(
                "| {name} | {size} | {:.1} |",
                per_datagram(case, size, COUNT)?
            );
        }
    }
    for (case, name) in [("flow", "off"), ("flow-gro", "on")] {
        let count = per_datagram(case, "1200", Flow::COUNT)?;
        println!("| ours, flow in segments, gro {name} | 1200 | {count:.1} |");
    }
    Ok(())
}

/// What the program under callgrind does: rounds of one case. Sending is left out of the count by the toggle on the two functions that
/// drain.
pub(crate) fn run(case: &str, size: &str, rounds: &str) -> Result<(), String> {
    let size: usize = size.parse().map_err(text)?;
    let rounds: u64 = rounds.parse().map_err(text)?;
    let payload = vec![7; size];
    let field = Field::new()?;
    let (kind, stamps) = match case.strip_suffix("-stamps") {
        Some(kind) => (kind, true),
        None => (case, false),
    };
    let took = match kind {
        "ours" => {
            let mut receiver = open(field.ours, stamps, false, buffer_bytes())?;
            repeat(rounds, |totals| {
                field.send(&payload, COUNT, field.ours)?;
                totals.packets += drain(&mut receiver, COUNT)?.packets;
                Ok(COUNT)
            })?
        }
        "plain" => {
            let interface = std::fs::read_to_string("/sys/class/net/lo/ifindex").map_err(text)?;
            let interface = interface.trim().parse().map_err(text)?;
            let (group, port) = (*field.plain.ip(), field.plain.port());
            let mut receiver = ffi::Plain::open(group, port, interface, buffer_bytes(), stamps)?;
            repeat(rounds, |totals| {
                field.send(&payload, COUNT, field.plain)?;
                totals.packets += receiver.drain(COUNT)?.packets;
                Ok(COUNT)
            })?
        }
        "flow" | "flow-gro" => {
            let mut flow = Flow::open(kind == "flow-gro")?;
            repeat(rounds, |totals| {
                let count = flow.send()?;
                totals.packets += drain(&mut flow.receiver, count)?.packets;
                Ok(count)
            })?
        }
        other => return Err(format!("no case {other}")),
    };
    println!("{took}");
    Ok(())
}

/// Rounds that must each receive what they sent.
fn repeat(
    rounds: u64,
    mut round: impl FnMut(&mut Totals) -> Result<u64, String>,
) -> Result<u64, String> {
    let mut totals = Totals::default();
    let mut sent = 0;
    for _ in 0..rounds {
        sent += round(&mut totals)?;
    }
    if totals.packets == sent {
        Ok(sent)
    } else {
        Err(format!("received {} of {sent}", totals.packets))
    }
}

fn per_datagram(case: &str, size: &str, count: u64) -> Result<f64, String> {
    let (few, many) = (
        instructions(case, size, FEW)?,
        instructions(case, size, MANY)?,
    );
    Ok((many - few) as f64 / ((MANY - FEW) * count) as f64)
}

fn instructions(case: &str, size: &str, rounds: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(text)?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        // Only what happens below these two counts.
        .args([
            "--toggle-collect=*receive::drain*",
            "--toggle-collect=c_receiver_drain",
        ])
        .arg(program)
        .args(["run", case, size, &rounds.to_string()])
        .output()
        .map_err(|error| format!("valgrind can't be run ({error}); apt-get install valgrind"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{case} under valgrind: {report}"));
    }
    report
        .lines()
        .find_map(|line| line.split_once("Collected : "))
        .and_then(|(_, count)| count.trim().parse().ok())
        .ok_or_else(|| format!("no count in what valgrind says: {report}"))
}

/// A unicast flow that its sender hands to the kernel in large pieces.
pub(crate) struct Flow {
    sender: UdpSocket,
    pub(crate) receiver: Receiver,
}

impl Flow {
    const SIZE: usize = 1200;
    const SEGMENTS: usize = 40;
    const PIECES: u64 = 8;
    /// Datagrams that one [`send`](Self::send) queues.
    pub(crate) const COUNT: u64 = Self::PIECES * Self::SEGMENTS as u64;

    pub(crate) fn open(gro: bool) -> Result<Self, String> {
        let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
            .and_then(|socket| socket.local_addr())
            .map_err(text)?
            .port();
        let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let receiver = open(to, false, gro, buffer_bytes())?;
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(text)?;
        ffi::segment(&sender, Self::SIZE).map_err(text)?;
        sender.connect(to).map_err(text)?;
        Ok(Self { sender, receiver })
    }

    pub(crate) fn send(&self) -> Result<u64, String> {
        let piece = [7; Self::SIZE * Self::SEGMENTS];
        for _ in 0..Self::PIECES {
            self.sender.send(&piece).map_err(text)?;
        }
        Ok(Self::COUNT)
    }
}
