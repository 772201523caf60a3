//! Writes programs for the kernel's virtual machine, with labels for jumps.
//!
//! Promises: the instructions of Documentation/bpf/standardization/instruction-set.rst that the program of this provider uses, in the
//! byte order of the host. A jump that doesn't reach makes no program. Does not do: checking what a program does; the kernel's
//! verifier does.

/// A register. 0 is the result, 1 to 5 are arguments that a call destroys, 6 to 9 stay, 10 is the stack.
pub(super) type Register = u8;

/// How wide a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Byte,
    Half,
    Word,
}

/// A comparison. Of the lower 32 bits with a value, without a sign; or of two pointers into a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Equal,
    NotEqual,
    Above,
    NotBelow,
}

impl Test {
    fn code(self) -> u8 {
        match self {
            Self::Equal => 0x10,
            Self::Above => 0x20,
            Self::NotBelow => 0x30,
            Self::NotEqual => 0x50,
        }
    }
}

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Label(usize);

/// One instruction, as the kernel reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    pub(super) code: u8,
    pub(super) registers: u8,
    pub(super) offset: i16,
    pub(super) value: i32,
}

const fn registers(destination: Register, source: Register) -> u8 {
    if cfg!(target_endian = "little") {
        destination | source << 4
    } else {
        destination << 4 | source
    }
}

/// A program that is being written.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    program: Vec<Instruction>,
    /// Where each label is, once it is placed.
    places: Vec<Option<usize>>,
    /// Jumps, and where they lead.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    pub(super) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places a label here.
    pub(super) fn place(&mut self, label: Label) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(self.program.len());
        }
    }

    fn push(&mut self, code: u8, destination: Register, source: Register, offset: i16, value: i32) {
        self.program.push(Instruction {
            code,
            registers: registers(destination, source),
            offset,
            value,
        });
    }

    /// `to = value`.
    pub(super) fn set(&mut self, to: Register, value: i32) {
        self.push(0xb7, to, 0, 0, value);
    }

    /// `to = from`, pointers included.
    pub(super) fn copy(&mut self, to: Register, from: Register) {
        self.push(0xbf, to, from, 0, 0);
    }

    /// `to += value`, pointers included.
    pub(super) fn add(&mut self, to: Register, value: i32) {
        self.push(0x07, to, 0, 0, value);
    }

    /// `to += from`, pointers included.
    pub(super) fn add_register(&mut self, to: Register, from: Register) {
        self.push(0x0f, to, from, 0, 0);
    }

    /// `to &= value`.
    pub(super) fn and(&mut self, to: Register, value: i32) {
        self.push(0x57, to, 0, 0, value);
    }

    /// `to <<= bits`.
    pub(super) fn shift_left(&mut self, to: Register, bits: i32) {
        self.push(0x67, to, 0, 0, bits);
    }

    /// `to = *(from + offset)`, in the byte order of memory.
    pub(super) fn load(&mut self, to: Register, width: Width, from: Register, offset: i16) {
        let code = match width {
            Width::Word => 0x61,
            Width::Half => 0x69,
            Width::Byte => 0x71,
        };
        self.push(code, to, from, offset, 0);
    }

    /// `to =` a map, by its descriptor.
    pub(super) fn load_map(&mut self, to: Register, descriptor: i32) {
        // `BPF_PSEUDO_MAP_FD`.
        self.push(0x18, to, 1, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// `to =` the first value of an array map, by its descriptor. Linux 5.1.
    pub(super) fn load_map_value(&mut self, to: Register, descriptor: i32) {
        // `BPF_PSEUDO_MAP_VALUE`.
        self.push(0x18, to, 2, 0, descriptor);
        self.push(0, 0, 0, 0, 0);
    }

    /// `*to += from`, of 64 bits, as one.
    pub(super) fn add_atomically(&mut self, to: Register, from: Register) {
        self.push(0xdb, to, from, 0, 0);
    }

    /// Calls a function of the kernel's.
    pub(super) fn call(&mut self, function: i32) {
        self.push(0x85, 0, 0, 0, function);
    }

    /// Ends the program with what register 0 has.
    pub(super) fn exit(&mut self) {
        self.push(0x95, 0, 0, 0, 0);
    }

    pub(super) fn go(&mut self, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.push(0x05, 0, 0, 0, 0);
    }

    /// Jumps if the lower 32 bits compare so with a value. Linux 5.1.
    pub(super) fn when(&mut self, register: Register, test: Test, value: u32, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.push(test.code() | 0x06, register, 0, 0, value as i32);
    }

    /// Jumps if a pointer lies above another one.
    pub(super) fn when_above(&mut self, register: Register, other: Register, to: Label) {
        self.jumps.push((self.program.len(), to));
        self.push(Test::Above.code() | 0x05 | 0x08, register, other, 0, 0);
    }

    /// The program; nothing if a jump reaches too far or leads nowhere.
    pub(super) fn finish(mut self) -> Option<Vec<Instruction>> {
        for (at, label) in &self.jumps {
            let place = self.places.get(label.0).copied().flatten()?;
            let distance = i64::try_from(place).ok()? - i64::try_from(at + 1).ok()?;
            self.program.get_mut(*at)?.offset = i16::try_from(distance).ok()?;
        }
        Some(self.program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_labels_and_one_too_far_makes_no_program() {
        let mut short = Assembler::default();
        let end = short.label();
        short.when(1, Test::Equal, 7, end);
        short.set(0, 1);
        short.place(end);
        short.exit();
        let program = short.finish().unwrap();
        assert_eq!((program[0].offset, program[0].value), (1, 7));

        let mut long = Assembler::default();
        let end = long.label();
        long.go(end);
        for _ in 0..40_000 {
            long.set(0, 1);
        }
        long.place(end);
        assert_eq!(long.finish(), None);

        let mut nowhere = Assembler::default();
        let label = nowhere.label();
        nowhere.go(label);
        assert_eq!(nowhere.finish(), None);
    }
}
