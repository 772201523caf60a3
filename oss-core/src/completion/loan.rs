//! What a device was given for one request, and the debt that comes of it.
//!
//! Promises: a loan keeps its owner from being released; it is given back only when the debt is settled. Does not do: checking
//! the range; whoever grants the loan knows the region and does.

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::custody::{Generation, Held};
use crate::sync::Arc;

/// What the device does with the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The device reads from memory.
    Read,
    /// The device reads from memory and writes to it.
    ReadWrite,
    /// The device writes to memory.
    Write,
}

/// The DMA access to one range for one request.
#[derive(Debug)]
pub struct Loan {
    owner: Arc<Held>,
    generation: Generation,
    range: Range<u64>,
    direction: Direction,
}

impl Loan {
    /// Lends a range of bytes of an owner, counted from its start, in one generation of it.
    #[must_use]
    pub fn new(
        owner: Arc<Held>,
        generation: Generation,
        range: Range<u64>,
        direction: Direction,
    ) -> Self {
        Self {
            owner,
            generation,
            range,
            direction,
        }
    }

    /// Gives the loan back. If nobody else holds the owner, it is returned, to be dropped where a user's drop may run.
    pub(super) fn give_back(self) -> Option<Held> {
        Arc::into_inner(self.owner)
    }

    /// Who lent it.
    #[must_use]
    pub fn owner(&self) -> &Arc<Held> {
        &self.owner
    }

    /// In which generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Which bytes, counted from the start of the owner.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// What the device may do with them.
    #[must_use]
    pub fn direction(&self) -> Direction {
        self.direction
    }
}

impl fmt::Display for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Read => "read",
            Direction::ReadWrite => "read and write",
            Direction::Write => "write",
        };
        write!(
            f,
            "{direction} of bytes {}..{} of {}, generation {}",
            self.range.start,
            self.range.end,
            self.owner.identity(),
            self.generation
        )
    }
}

/// What a request puts at stake: the loans, and a value that is published only if the request succeeds.
pub struct Debt<T> {
    pub(super) loans: Vec<Loan>,
    pub(super) payload: T,
}

impl<T: Send + 'static> Debt<T> {
    /// A debt that publishes this value on success.
    #[must_use]
    pub fn new(payload: T) -> Self {
        Self {
            loans: Vec::new(),
            payload,
        }
    }

    /// Adds a loan.
    #[must_use]
    pub fn lend(mut self, loan: Loan) -> Self {
        self.loans.push(loan);
        self
    }

    /// Takes it apart, after it came back with a refusal.
    #[must_use]
    pub fn into_parts(self) -> (T, Vec<Loan>) {
        (self.payload, self.loans)
    }
}

impl<T> fmt::Debug for Debt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debt")
            .field("loans", &self.loans)
            .finish_non_exhaustive()
    }
}
