//! The program that the kernel runs over every frame of the interface, made from what a configuration names.
//!
//! Promises: it redirects exactly the whole UDP packets to the configured addresses and ports, from the configured sources and in the
//! configured VLAN, to the socket of the queue that they came in through; everything else passes on to the kernel untouched. Of
//! what passes on, fragments to a configured address are counted. Does not do: checksums; those are judged after the ring.
//!
//! It is written instruction by instruction: [the decision](../../../docs/decisions/xdp-by-hand.md) says why. Registers: 6 the
//! context, 7 where IP begins, 8 the end of the frame, 5 the destination port, the others as they come.

use std::net::{IpAddr, Ipv6Addr};

use super::assembler::{Assembler, Instruction, Label, Register, Test, Width};
use crate::raw::selection::{Selection, Target};

const CONTEXT: Register = 6;
const IP: Register = 7;
const END: Register = 8;
const PORT: Register = 5;
/// Fields of `struct xdp_md`.
const CONTEXT_DATA: i16 = 0;
const CONTEXT_DATA_END: i16 = 4;
const CONTEXT_QUEUE: i16 = 16;
const XDP_PASS: i32 = 2;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;
/// No port is that large: the packet is a fragment.
const FRAGMENT: u32 = 1 << 16;
/// As many IPv6 extension headers are walked as the parser walks.
const EXTENSIONS: usize = lockgate::receive::frame::MAX_EXTENSIONS;
/// As many neighbours are compared one by one; more are halved.
const NEIGHBOURS: usize = 4;

/// The descriptors of the maps that a program uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Maps {
    /// Sockets by queue.
    pub(super) sockets: i32,
    /// One counter, of fragments.
    pub(super) counter: i32,
}

/// Makes the program; nothing if the configuration names more than jumps can reach over.
pub(super) fn make(selection: &Selection, maps: Maps) -> Option<Vec<Instruction>> {
    make_with(selection, maps, XDP_PASS)
}

/// The same, with the answer for a queue without a socket.
fn make_with(selection: &Selection, maps: Maps, without: i32) -> Option<Vec<Instruction>> {
    let mut asm = Assembler::default();
    let (pass, take, count) = (asm.label(), asm.label(), asm.label());
    let mut writer = Writer {
        asm,
        pass,
        take,
        count,
        selection,
    };
    writer.frame();
    let mut asm = writer.asm;
    asm.place(take);
    asm.load_map(1, maps.sockets);
    asm.load(2, Width::Word, CONTEXT, CONTEXT_QUEUE);
    // What is returned where the queue has no socket.
    asm.set(3, without);
    asm.call(REDIRECT_MAP);
    asm.exit();
    asm.place(count);
    asm.load_map_value(1, maps.counter);
    asm.set(2, 1);
    asm.add_atomically(1, 2);
    asm.place(pass);
    asm.set(0, XDP_PASS);
    asm.exit();
    asm.finish()
}

struct Writer<'a> {
    asm: Assembler,
    pass: Label,
    take: Label,
    count: Label,
    selection: &'a Selection,
}

/// A value as a load from the frame has it.
fn half(value: u16) -> u32 {
    u16::from_ne_bytes(value.to_be_bytes()).into()
}

fn word(bytes: [u8; 4]) -> u32 {
    u32::from_ne_bytes(bytes)
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(address.octets().chunks_exact(4)) {
        *word = bytes.first_chunk().copied().map_or(0, u32::from_ne_bytes);
    }
    words
}

impl<'a> Writer<'a> {
    fn frame(&mut self) {
        let (v4, v6, pass) = (self.asm.label(), self.asm.label(), self.pass);
        self.asm.copy(CONTEXT, 1);
        self.asm.load(IP, Width::Word, CONTEXT, CONTEXT_DATA);
        self.asm.load(END, Width::Word, CONTEXT, CONTEXT_DATA_END);
        self.step(14);
        self.asm.load(4, Width::Half, IP, -2);
        // Up to two tags, of which the outer one says the VLAN.
        let (first, second, kind) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.tags(first);
        self.asm.go(if self.selection.vlan().is_some() {
            pass
        } else {
            kind
        });
        self.asm.place(first);
        self.step(4);
        if let Some(vlan) = self.selection.vlan() {
            self.asm.load(4, Width::Half, IP, -4);
            self.asm.and(4, half(0x0fff) as i32);
            self.asm.when(4, Test::NotEqual, half(vlan), pass);
        }
        self.asm.load(4, Width::Half, IP, -2);
        self.tags(second);
        self.asm.go(kind);
        self.asm.place(second);
        self.step(4);
        self.asm.load(4, Width::Half, IP, -2);
        self.asm.place(kind);
        self.asm.when(4, Test::Equal, half(0x0800), v4);
        self.asm.when(4, Test::Equal, half(0x86dd), v6);
        self.asm.go(pass);
        self.asm.place(v4);
        self.ipv4();
        self.asm.place(v6);
        self.ipv6();
    }

    /// Goes on by so many bytes, which must be there.
    fn step(&mut self, bytes: i32) {
        self.asm.add(IP, bytes);
        self.asm.when_above(IP, END, self.pass);
    }

    fn tags(&mut self, to: Label) {
        for tag in [0x8100, 0x88a8, 0x9100] {
            self.asm.when(4, Test::Equal, half(tag), to);
        }
    }

    /// Passes on what doesn't have so many bytes behind a register. Uses register 1.
    fn need(&mut self, from: Register, bytes: i32) {
        self.asm.copy(1, from);
        self.asm.add(1, bytes);
        self.asm.when_above(1, END, self.pass);
    }

    fn ipv4(&mut self) {
        let pass = self.pass;
        let mut keys: Vec<(u32, Label)> = Vec::new();
        let mut leaves = Leaves::default();
        for targets in self.selection.by_address() {
            if let Some(IpAddr::V4(address)) = targets.first().map(|one| one.address) {
                keys.push((word(address.octets()), leaves.of(&mut self.asm, targets)));
            }
        }
        if keys.is_empty() {
            self.asm.go(pass);
            return;
        }
        self.need(IP, 20);
        self.asm.load(2, Width::Byte, IP, 0);
        self.asm.copy(1, 2);
        self.asm.and(1, 0xf0);
        self.asm.when(1, Test::NotEqual, 0x40, pass);
        // The length of the header, in words; as a sender that lies about it does no harm, it needs no upper bound.
        self.asm.and(2, 0x0f);
        let long_enough = self.asm.label();
        self.asm.when(2, Test::NotBelow, 5, long_enough);
        self.asm.go(pass);
        self.asm.place(long_enough);
        self.asm.load(1, Width::Byte, IP, 9);
        self.asm.when(1, Test::NotEqual, 17, pass);
        let (fragment, ready) = (self.asm.label(), self.asm.label());
        self.asm.load(1, Width::Half, IP, 6);
        self.asm.and(1, half(0x3fff) as i32);
        self.asm.when(1, Test::NotEqual, 0, fragment);
        self.asm.shift_left(2, 2);
        self.asm.copy(3, IP);
        self.asm.add_register(3, 2);
        self.need(3, 8);
        self.asm.load(PORT, Width::Half, 3, 2);
        self.asm.go(ready);
        self.asm.place(fragment);
        self.asm.set(PORT, FRAGMENT as i32);
        self.asm.place(ready);
        self.asm.load(4, Width::Word, IP, 16);
        keys.sort_unstable_by_key(|(key, _)| *key);
        self.search(&keys);
        self.leaves(leaves, &mut |this, source, found| {
            if let IpAddr::V4(source) = source {
                this.asm.load(1, Width::Word, IP, 12);
                this.asm.when(1, Test::Equal, word(source.octets()), found);
            }
        });
    }

    fn ipv6(&mut self) {
        let pass = self.pass;
        let mut keys: Vec<(u32, Label)> = Vec::new();
        let mut heads: Vec<Vec<(Ipv6Addr, Label)>> = Vec::new();
        let mut leaves = Leaves::default();
        for targets in self.selection.by_address() {
            let Some(IpAddr::V6(address)) = targets.first().map(|one| one.address) else {
                continue;
            };
            let (last, leaf) = (words(address)[3], leaves.of(&mut self.asm, targets));
            match keys.iter().position(|(key, _)| *key == last) {
                Some(at) => heads[at].push((address, leaf)),
                None => {
                    keys.push((last, self.asm.label()));
                    heads.push(vec![(address, leaf)]);
                }
            }
        }
        if keys.is_empty() {
            self.asm.go(pass);
            return;
        }
        self.need(IP, 40);
        self.asm.load(1, Width::Byte, IP, 0);
        self.asm.and(1, 0xf0);
        self.asm.when(1, Test::NotEqual, 0x60, pass);
        let ready = self.asm.label();
        self.walk(ready);
        self.asm.place(ready);
        self.asm.load(4, Width::Word, IP, 24 + 12);
        let mut sorted = keys.clone();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        self.search(&sorted);
        for ((_, place), all) in keys.into_iter().zip(heads) {
            self.asm.place(place);
            for (address, leaf) in all {
                let other = self.asm.label();
                for (at, word) in (0..).zip(&words(address)[..3]) {
                    self.asm.load(1, Width::Word, IP, 24 + 4 * at);
                    self.asm.when(1, Test::NotEqual, *word, other);
                }
                self.asm.go(leaf);
                self.asm.place(other);
            }
            self.asm.go(pass);
        }
        self.leaves(leaves, &mut |this, source, found| {
            if let IpAddr::V6(source) = source {
                let other = this.asm.label();
                for (at, word) in (0..).zip(words(source)) {
                    this.asm.load(1, Width::Word, IP, 8 + 4 * at);
                    this.asm.when(1, Test::NotEqual, word, other);
                }
                this.asm.go(found);
                this.asm.place(other);
            }
        });
    }

    /// Walks the IPv6 headers to UDP, or to a fragment. Register 3 is where the next header begins, 2 is its kind.
    fn walk(&mut self, ready: Label) {
        let pass = self.pass;
        let (udp, fragment) = (self.asm.label(), self.asm.label());
        self.asm.load(2, Width::Byte, IP, 6);
        self.asm.copy(3, IP);
        self.asm.add(3, 40);
        for _ in 0..EXTENSIONS {
            let (options, authentication, part, next) = (
                self.asm.label(),
                self.asm.label(),
                self.asm.label(),
                self.asm.label(),
            );
            self.asm.when(2, Test::Equal, 17, udp);
            // The verifier follows the last one first. What it finds there, with the longest header, covers the others.
            self.asm.when(2, Test::Equal, 51, authentication);
            self.asm.when(2, Test::Equal, 44, part);
            for kind in [0, 43, 60] {
                self.asm.when(2, Test::Equal, kind, options);
            }
            self.asm.go(pass);
            // Lengths are in eight octets beyond the first eight, and for authentication in four beyond the first eight.
            for (label, extra, bits) in [(options, 1, 3), (authentication, 2, 2)] {
                self.asm.place(label);
                self.need(3, 8);
                self.asm.load(2, Width::Byte, 3, 0);
                self.asm.load(4, Width::Byte, 3, 1);
                self.asm.add(4, extra);
                self.asm.shift_left(4, bits);
                self.asm.go(next);
            }
            self.asm.place(part);
            self.need(3, 8);
            self.asm.load(1, Width::Half, 3, 2);
            self.asm.and(1, half(0xfff9) as i32);
            self.asm.when(1, Test::NotEqual, 0, fragment);
            // An atomic fragment is a whole packet.
            self.asm.load(2, Width::Byte, 3, 0);
            self.asm.set(4, 8);
            self.asm.place(next);
            self.asm.add_register(3, 4);
        }
        self.asm.when(2, Test::NotEqual, 17, pass);
        self.asm.place(udp);
        self.need(3, 8);
        self.asm.load(PORT, Width::Half, 3, 2);
        self.asm.go(ready);
        self.asm.place(fragment);
        self.asm.set(PORT, FRAGMENT as i32);
    }

    /// Finds register 4 among the keys, which are in order, and goes where its key says.
    fn search(&mut self, keys: &[(u32, Label)]) {
        if keys.len() > NEIGHBOURS {
            let (low, high) = keys.split_at(keys.len() / 2);
            let upper = self.asm.label();
            self.asm.when(4, Test::NotBelow, high[0].0, upper);
            self.search(low);
            self.asm.place(upper);
            self.search(high);
            return;
        }
        for (key, place) in keys {
            self.asm.when(4, Test::Equal, *key, *place);
        }
        self.asm.go(self.pass);
    }

    /// What is decided for an address: its ports, and their sources. Addresses that decide alike share it.
    fn leaves(&mut self, leaves: Leaves<'_>, source: &mut dyn FnMut(&mut Self, IpAddr, Label)) {
        let (pass, take, count) = (self.pass, self.take, self.count);
        for (targets, place) in leaves.0 {
            self.asm.place(place);
            self.asm.when(PORT, Test::Equal, FRAGMENT, count);
            for target in targets {
                if target.sources.is_empty() {
                    self.asm.when(PORT, Test::Equal, half(target.port), take);
                    continue;
                }
                let other = self.asm.label();
                self.asm
                    .when(PORT, Test::NotEqual, half(target.port), other);
                for one in &target.sources {
                    source(self, *one, take);
                }
                self.asm.go(pass);
                self.asm.place(other);
            }
            self.asm.go(pass);
        }
    }
}

/// What is decided for addresses, each once.
#[derive(Default)]
struct Leaves<'a>(Vec<(&'a [Target], Label)>);

impl<'a> Leaves<'a> {
    /// Where it is decided for an address with these ports and sources.
    fn of(&mut self, asm: &mut Assembler, targets: &'a [Target]) -> Label {
        if let Some((_, label)) = self
            .0
            .iter()
            .find(|(one, _)| Target::decide_alike(one, targets))
        {
            return *label;
        }
        let label = asm.label();
        self.0.push((targets, label));
        label
    }
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
