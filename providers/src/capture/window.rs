//! The part of a file that is being looked at, with the offset at which it begins.
//!
//! Promises: it holds no more than it was asked for plus one reading; the offset is exact.

use std::io::{self, Read};

/// How much is read at once.
const READ: usize = 64 << 10;

pub(super) struct Window<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    offset: u64,
}

impl<R: Read> Window<R> {
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
        }
    }

    /// Where the window begins in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// What is there, beginning at the offset.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads until `len` octets are there or the file ends, and says how many of the `len` are there.
    pub(super) fn fill(&mut self, len: usize) -> io::Result<usize> {
        while self.end - self.start < len {
            if self.buffer.len() - self.start < len || self.end == self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
                // Grows with what the file really has, not with what a length in it claims.
                let needed = len.min(self.end * 2).max(READ);
                if self.buffer.len() < needed {
                    self.buffer.resize(needed, 0);
                }
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok((self.end - self.start).min(len))
    }

    /// Moves on by `len` octets, which are there.
    pub(super) fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.start);
        self.start += len;
        self.offset += len as u64;
    }
}
