//! The filter that the kernel runs over every frame of the interface, made from what a configuration names.
//!
//! Promises: what the configuration names passes, with as many bytes as are asked for, and so does what must be counted as lost:
//! fragments to a wanted address, and headers that contradict themselves. Whatever passes too much is refused after the ring.
//! Addresses are searched for by halving, so that many groups cost little. Does not do: checksums.
//!
//! The language is classic BPF (Documentation/networking/filter.rst). Jumps only lead forward, and a conditional one reaches 255
//! instructions; a longer one is made of a conditional one over an unconditional one.

use std::net::{IpAddr, Ipv6Addr};

use socket2::SockFilter;

use crate::raw::selection::{Selection, Target};

/// The kernel takes no longer program (`BPF_MAXINSNS`).
const PROGRAM_MAX: usize = libc::BPF_MAXINSNS as usize;
/// Where the ancillary data begin (`SKF_AD_OFF`), and which of them are used: linux/filter.h.
const ANCILLARY: u32 = (-0x1000_i32) as u32;
const PACKET_TYPE: u32 = ANCILLARY + 4;
const VLAN_TAG: u32 = ANCILLARY + 44;
const VLAN_TAG_PRESENT: u32 = ANCILLARY + 48;
/// The last packet type of frames for this host: host 0, broadcast 1, multicast 2; then other host 3; outgoing is 4.
const FOR_US: u32 = 2;
const FOR_OTHERS: u32 = 3;
const TYPE_IPV4: u32 = 0x0800;
const TYPE_IPV6: u32 = 0x86dd;
const TAGS: [u32; 3] = [0x8100, 0x88a8, 0x9100];
const UDP: u32 = 17;
/// The IPv6 extension headers that the parser walks: hop-by-hop, routing, fragment, authentication, destination options.
const EXTENSIONS: [u32; 5] = [0, 43, 44, 51, 60];
/// Cells of the machine's memory: where IP begins, and the port.
const BEGIN: u32 = 0;
const PORT: u32 = 1;
/// No port is that large: the packet has none, or it can't be found here.
const ANY_PORT: u32 = 1 << 16;
/// As many neighbours are compared one by one; more are halved.
const NEIGHBOURS: usize = 4;

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_HALF_INDEXED: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_IND) as u16;
const LOAD_WORD_INDEXED: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_IND) as u16;
const LOAD_BYTE_INDEXED: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_IND) as u16;
const LOAD_VALUE: u16 = (libc::BPF_LD | libc::BPF_IMM) as u16;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_MEM) as u16;
const LOAD_INDEX: u16 = (libc::BPF_LDX | libc::BPF_MEM) as u16;
const INDEX: u16 = (libc::BPF_LDX | libc::BPF_IMM) as u16;
const STORE: u16 = libc::BPF_ST as u16;
const STORE_INDEX: u16 = libc::BPF_STX as u16;
const TO_INDEX: u16 = (libc::BPF_MISC | libc::BPF_TAX) as u16;
const ADD_INDEX: u16 = (libc::BPF_ALU | libc::BPF_ADD | libc::BPF_X) as u16;
const SHIFT_LEFT: u16 = (libc::BPF_ALU | libc::BPF_LSH | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const GREATER: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
const NOT_BELOW: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;

/// A program, and whether it is as exact as it could be.
#[derive(Debug)]
pub(super) struct Filter {
    pub(super) program: Vec<SockFilter>,
    /// What it looks at, for the settings.
    pub(super) depth: &'static str,
}

/// Makes the filter. Frames pass with at most `bytes` bytes. With `others`, frames to other hosts pass too, as far as they are
/// named.
pub(super) fn make(selection: &Selection, bytes: u32, others: bool) -> Filter {
    let make = |depth| Writer::program(selection, bytes, others, depth);
    for (depth, name) in [
        (Depth::Sources, "addresses, ports and sources"),
        (Depth::Addresses, "addresses"),
    ] {
        let program = make(depth);
        if program.len() <= PROGRAM_MAX {
            return Filter {
                program,
                depth: name,
            };
        }
    }
    Filter {
        program: make(Depth::Protocol),
        depth: "protocol",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Depth {
    Protocol,
    Addresses,
    Sources,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Label(usize);

#[derive(Clone, Copy, Debug)]
enum Item {
    Plain(u16, u32),
    /// Goes there in any case.
    Go(Label),
    /// Goes there if the comparison holds.
    When(u16, u32, Label),
    /// Goes there if it doesn't.
    Unless(u16, u32, Label),
    Place(Label),
}

/// What is decided for addresses, each once.
#[derive(Default)]
struct Leaves<'a>(Vec<(&'a [Target], Label)>);

impl<'a> Leaves<'a> {
    /// Where it is decided for an address with these ports and sources.
    fn of(&mut self, writer: &mut Writer<'_>, targets: &'a [Target]) -> Label {
        if writer.depth != Depth::Sources {
            return writer.accept;
        }
        if let Some((_, label)) = self
            .0
            .iter()
            .find(|(one, _)| Target::decide_alike(one, targets))
        {
            return *label;
        }
        let label = writer.label();
        self.0.push((targets, label));
        label
    }
}

struct Writer<'a> {
    items: Vec<Item>,
    labels: usize,
    accept: Label,
    drop: Label,
    selection: &'a Selection,
    depth: Depth,
}

impl<'a> Writer<'a> {
    fn program(
        selection: &'a Selection,
        bytes: u32,
        others: bool,
        depth: Depth,
    ) -> Vec<SockFilter> {
        let mut this = Self {
            items: Vec::new(),
            labels: 2,
            accept: Label(0),
            drop: Label(1),
            selection,
            depth,
        };
        this.frame(others);
        this.place(this.accept);
        this.plain(RETURN, bytes);
        this.place(this.drop);
        this.plain(RETURN, 0);
        assemble(&this.items, this.labels)
    }

    fn frame(&mut self, others: bool) {
        self.plain(LOAD_WORD, PACKET_TYPE);
        let last = if others { FOR_OTHERS } else { FOR_US };
        self.when(GREATER, last, self.drop);
        if let Some(vlan) = self.selection.vlan() {
            // The kernel takes the outer tag out of the frame before it asks the filter.
            self.plain(LOAD_WORD, VLAN_TAG_PRESENT);
            self.when(EQUAL, 0, self.drop);
            self.plain(LOAD_WORD, VLAN_TAG);
            self.plain(AND, 0x0fff);
            self.unless(EQUAL, vlan.into(), self.drop);
        }
        // From here on the index register has where IP begins: behind the link header, or behind one more tag.
        let (tagged, v4, v6) = (self.label(), self.label(), self.label());
        self.plain(INDEX, 14);
        self.plain(LOAD_HALF, 12);
        self.when(EQUAL, TYPE_IPV4, v4);
        self.when(EQUAL, TYPE_IPV6, v6);
        for tag in TAGS {
            self.when(EQUAL, tag, tagged);
        }
        self.go(self.drop);
        self.place(tagged);
        self.plain(INDEX, 18);
        self.plain(LOAD_HALF, 16);
        self.when(EQUAL, TYPE_IPV4, v4);
        self.when(EQUAL, TYPE_IPV6, v6);
        self.go(self.drop);
        self.place(v4);
        self.ipv4();
        self.place(v6);
        self.ipv6();
    }

    fn ipv4(&mut self) {
        let mut keys: Vec<(u32, Label)> = Vec::new();
        let mut leaves = Leaves::default();
        for targets in self.selection.by_address() {
            if let Some(IpAddr::V4(address)) = targets.first().map(|one| one.address) {
                keys.push((address.to_bits(), leaves.of(self, targets)));
            }
        }
        self.plain(LOAD_BYTE_INDEXED, 9);
        self.unless(EQUAL, UDP, self.drop);
        if keys.is_empty() || self.depth == Depth::Protocol {
            self.go(if keys.is_empty() {
                self.drop
            } else {
                self.accept
            });
            return;
        }
        self.plain(LOAD_HALF_INDEXED, 6);
        let (no_port, ready) = (self.label(), self.label());
        self.when(ANY_BIT, 0x3fff, no_port);
        self.plain(LOAD_BYTE_INDEXED, 0);
        self.plain(AND, 0x0f);
        self.unless(NOT_BELOW, 5, no_port);
        // The port lies behind the header, whose length is in words.
        self.plain(STORE_INDEX, BEGIN);
        self.plain(SHIFT_LEFT, 2);
        self.plain(ADD_INDEX, 0);
        self.plain(TO_INDEX, 0);
        self.plain(LOAD_HALF_INDEXED, 2);
        self.plain(STORE, PORT);
        self.plain(LOAD_INDEX, BEGIN);
        self.go(ready);
        self.place(no_port);
        self.plain(LOAD_VALUE, ANY_PORT);
        self.plain(STORE, PORT);
        self.place(ready);
        self.plain(LOAD_WORD_INDEXED, 16);
        self.search(&keys);
        self.leaves(leaves, &mut |this, source, found| {
            if let IpAddr::V4(source) = source {
                this.plain(LOAD_WORD_INDEXED, 12);
                this.when(EQUAL, source.to_bits(), found);
            }
        });
    }

    fn ipv6(&mut self) {
        let mut keys: Vec<(u32, Label)> = Vec::new();
        let mut heads: Vec<Vec<(Ipv6Addr, Label)>> = Vec::new();
        let mut leaves = Leaves::default();
        for targets in self.selection.by_address() {
            let Some(IpAddr::V6(address)) = targets.first().map(|one| one.address) else {
                continue;
            };
            let (last, leaf) = (words(address)[3], leaves.of(self, targets));
            match keys.iter().position(|(key, _)| *key == last) {
                Some(at) => heads[at].push((address, leaf)),
                None => {
                    keys.push((last, self.label()));
                    heads.push(vec![(address, leaf)]);
                }
            }
        }
        self.plain(LOAD_BYTE_INDEXED, 6);
        let (direct, walked, ready) = (self.label(), self.label(), self.label());
        self.when(EQUAL, UDP, direct);
        for extension in EXTENSIONS {
            self.when(EQUAL, extension, walked);
        }
        self.go(self.drop);
        self.place(direct);
        if keys.is_empty() || self.depth == Depth::Protocol {
            self.place(walked);
            self.place(ready);
            self.go(if keys.is_empty() {
                self.drop
            } else {
                self.accept
            });
            return;
        }
        self.plain(LOAD_HALF_INDEXED, 40 + 2);
        self.plain(STORE, PORT);
        self.go(ready);
        // What may lead to UDP is walked after the ring: here it has any port.
        self.place(walked);
        self.plain(LOAD_VALUE, ANY_PORT);
        self.plain(STORE, PORT);
        self.place(ready);
        self.plain(LOAD_WORD_INDEXED, 24 + 12);
        let mut sorted = keys.clone();
        sorted.sort_unstable_by_key(|(key, _)| *key);
        self.search(&sorted);
        for ((_, place), all) in keys.into_iter().zip(heads) {
            self.place(place);
            for (address, leaf) in all {
                let other = self.label();
                for (at, word) in (0..).zip(&words(address)[..3]) {
                    self.plain(LOAD_WORD_INDEXED, 24 + 4 * at);
                    self.unless(EQUAL, *word, other);
                }
                self.go(leaf);
                self.place(other);
            }
            self.go(self.drop);
        }
        self.leaves(leaves, &mut |this, source, found| {
            if let IpAddr::V6(source) = source {
                let other = this.label();
                for (at, word) in (0..).zip(words(source)) {
                    this.plain(LOAD_WORD_INDEXED, 8 + 4 * at);
                    this.unless(EQUAL, word, other);
                }
                this.go(found);
                this.place(other);
            }
        });
    }

    /// What is decided for an address: its ports, and their sources. Addresses that decide alike share it.
    fn leaves(&mut self, leaves: Leaves<'_>, source: &mut dyn FnMut(&mut Self, IpAddr, Label)) {
        for (targets, place) in leaves.0 {
            self.place(place);
            self.plain(LOAD, PORT);
            self.when(EQUAL, ANY_PORT, self.accept);
            for target in targets {
                if target.sources.is_empty() {
                    self.when(EQUAL, target.port.into(), self.accept);
                    continue;
                }
                let other = self.label();
                self.unless(EQUAL, target.port.into(), other);
                for one in &target.sources {
                    source(self, *one, self.accept);
                }
                self.go(self.drop);
                self.place(other);
            }
            self.go(self.drop);
        }
    }

    /// Finds the accumulator among the keys, which are in order, and goes where its key says.
    fn search(&mut self, keys: &[(u32, Label)]) {
        if keys.len() > NEIGHBOURS {
            let (low, high) = keys.split_at(keys.len() / 2);
            let upper = self.label();
            self.when(NOT_BELOW, high[0].0, upper);
            self.search(low);
            self.place(upper);
            self.search(high);
            return;
        }
        for (key, place) in keys {
            self.when(EQUAL, *key, *place);
        }
        self.go(self.drop);
    }

    fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    fn place(&mut self, label: Label) {
        self.items.push(Item::Place(label));
    }

    fn plain(&mut self, code: u16, value: u32) {
        self.items.push(Item::Plain(code, value));
    }

    fn go(&mut self, to: Label) {
        self.items.push(Item::Go(to));
    }

    fn when(&mut self, code: u16, value: u32, to: Label) {
        self.items.push(Item::When(code, value, to));
    }

    fn unless(&mut self, code: u16, value: u32, to: Label) {
        self.items.push(Item::Unless(code, value, to));
    }
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let bits = address.to_bits();
    [96, 64, 32, 0].map(|shift| (bits >> shift) as u32)
}

/// Lays the items out, makes the jumps that don't reach long, and writes the instructions.
fn assemble(items: &[Item], labels: usize) -> Vec<SockFilter> {
    let mut long = vec![false; items.len()];
    // Each round makes at least one jump long, or is the last one.
    loop {
        let (starts, places) = lay_out(items, labels, &long);
        let mut grown = false;
        for ((item, start), long) in items.iter().zip(&starts).zip(&mut long) {
            if let Item::When(.., to) | Item::Unless(.., to) = item
                && !*long
                && places[to.0] - (start + 1) > 255
            {
                (*long, grown) = (true, true);
            }
        }
        if !grown {
            return write(items, &long, &starts, &places);
        }
    }
}

/// Where each item begins, and where each label is.
fn lay_out(items: &[Item], labels: usize, long: &[bool]) -> (Vec<usize>, Vec<usize>) {
    let (mut at, mut starts, mut places) = (0, Vec::with_capacity(items.len()), vec![0; labels]);
    for (item, long) in items.iter().zip(long) {
        starts.push(at);
        match item {
            Item::Place(label) => places[label.0] = at,
            Item::When(..) | Item::Unless(..) if *long => at += 2,
            _ => at += 1,
        }
    }
    (starts, places)
}

fn write(items: &[Item], long: &[bool], starts: &[usize], places: &[usize]) -> Vec<SockFilter> {
    let mut program = Vec::new();
    for ((item, long), start) in items.iter().zip(long).zip(starts) {
        // Labels lie ahead, by the order in which they are placed.
        let ahead = |label: &Label, from: usize| (places[label.0] - from) as u32;
        let mut jump = |code, yes, no, value| program.push(SockFilter::new(code, yes, no, value));
        match item {
            Item::Place(_) => {}
            Item::Plain(code, value) => jump(*code, 0, 0, *value),
            Item::Go(to) => jump(JUMP, 0, 0, ahead(to, start + 1)),
            Item::When(code, value, to) if *long => {
                jump(*code, 0, 1, *value);
                jump(JUMP, 0, 0, ahead(to, start + 2));
            }
            Item::Unless(code, value, to) if *long => {
                jump(*code, 1, 0, *value);
                jump(JUMP, 0, 0, ahead(to, start + 2));
            }
            // What is not long reaches with eight bits.
            Item::When(code, value, to) => jump(*code, ahead(to, start + 1) as u8, 0, *value),
            Item::Unless(code, value, to) => jump(*code, 0, ahead(to, start + 1) as u8, *value),
        }
    }
    program
}

#[cfg(test)]
#[path = "filter_tests.rs"]
mod tests;
