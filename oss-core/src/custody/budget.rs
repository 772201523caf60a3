//! The budget of a domain: how many bytes may be pinned, who took what, and that exactly that comes back.
//!
//! Promises: claims never add up to more than the limit, from any number of threads; a [`Reservation`] or [`Charge`] gives back
//! on drop exactly what it holds; the only way beyond the limit is [`Charge::raise_to`], for bytes that a backend has already
//! pinned, and it says so. Does not do: waiting for bytes to come back, or rounding to pages: whoever claims rounds first.

use std::fmt;

use crate::sync::{Arc, AtomicU64, Ordering};

/// The bytes that one domain may pin. Cheap to clone; clones are the same budget.
#[derive(Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

struct Shared {
    limit: u64,
    charged: AtomicU64,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            shared: Arc::new(Shared {
                limit,
                charged: AtomicU64::new(0),
            }),
        }
    }

    /// Claims bytes before the work that will pin them. Zero bytes are always granted.
    ///
    /// # Errors
    /// [`BudgetExceeded`] with all three numbers; nothing is taken then.
    pub fn reserve(&self, bytes: u64) -> Result<Reservation, BudgetExceeded> {
        let mut charged = self.shared.charged.load(Ordering::Acquire);
        loop {
            let after = charged
                .checked_add(bytes)
                .filter(|after| bytes == 0 || *after <= self.shared.limit)
                .ok_or(BudgetExceeded {
                    requested: bytes,
                    charged,
                    limit: self.shared.limit,
                })?;
            match self.shared.charged.compare_exchange(
                charged,
                after,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => {
                    return Ok(Reservation {
                        charge: Charge {
                            shared: Some(Arc::clone(&self.shared)),
                            bytes,
                        },
                    });
                }
                Err(seen) => charged = seen,
            }
        }
    }

    /// The bytes that are taken now, reservations included.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.shared.charged.load(Ordering::Acquire)
    }

    /// The most that may be taken.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.shared.limit
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget")
            .field("charged", &self.charged())
            .field("limit", &self.limit())
            .finish()
    }
}

/// A claim before the bytes are really pinned. Dropping it gives them back.
#[derive(Debug)]
#[must_use = "dropping a reservation gives the bytes back at once"]
pub struct Reservation {
    charge: Charge,
}

impl Reservation {
    /// The bytes that are claimed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.charge.bytes
    }

    /// The bytes are pinned as claimed.
    pub fn commit(self) -> Charge {
        self.charge
    }

    /// The bytes are pinned, and the backend says how many they really are. The claim is only ever raised.
    pub fn commit_pinned(mut self, pinned: u64) -> (Charge, Raise) {
        let raise = self.charge.raise_to(pinned);
        (self.charge, raise)
    }
}

/// Bytes taken from a budget. Moved, never copied; dropping it gives back exactly what it holds.
#[must_use = "dropping a charge gives the bytes back at once"]
pub struct Charge {
    /// `None` for a charge of nothing that belongs to no budget.
    shared: Option<Arc<Shared>>,
    bytes: u64,
}

impl Charge {
    /// A charge of nothing, for owners that pin nothing.
    pub const fn none() -> Self {
        Self {
            shared: None,
            bytes: 0,
        }
    }

    /// The bytes that it holds.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Raises the charge to what the backend really pinned, beyond the limit if it must be: the pages are pinned already.
    /// A smaller number changes nothing.
    ///
    /// A charge of [`none`](Charge::none) belongs to no budget and stays empty; raising it is answered with
    /// [`Raise::NoBudget`].
    pub fn raise_to(&mut self, pinned: u64) -> Raise {
        let more = pinned.saturating_sub(self.bytes);
        if more == 0 {
            return Raise::Unchanged;
        }
        let Some(shared) = &self.shared else {
            return Raise::NoBudget;
        };
        // No sum of pinned bytes comes near 2^64: each stands for memory that exists.
        let charged = shared.charged.fetch_add(more, Ordering::AcqRel) + more;
        self.bytes = pinned;
        let over = charged.saturating_sub(shared.limit);
        if over == 0 {
            Raise::Within
        } else {
            tracing::warn!(
                pinned,
                charged,
                limit = shared.limit,
                "backend pinned more than was claimed, budget exceeded"
            );
            Raise::Beyond { over }
        }
    }

    /// Moves `bytes` of this charge into one of their own; `None`, with nothing moved, if it holds fewer.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Option<Self> {
        self.bytes = self.bytes.checked_sub(bytes)?;
        Some(Self {
            shared: self.shared.clone(),
            bytes,
        })
    }

    /// Takes another charge of the same budget into this one.
    ///
    /// # Errors
    /// Gives the other back unchanged if it belongs to another budget.
    pub fn merge(&mut self, mut other: Self) -> Result<(), Self> {
        match (&self.shared, &other.shared) {
            (_, None) => Ok(()),
            (None, Some(_)) => {
                std::mem::swap(self, &mut other);
                Ok(())
            }
            (Some(mine), Some(theirs)) if Arc::ptr_eq(mine, theirs) => {
                self.bytes += std::mem::take(&mut other.bytes);
                Ok(())
            }
            _ => Err(other),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared
            && self.bytes > 0
        {
            shared.charged.fetch_sub(self.bytes, Ordering::AcqRel);
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Charge({} bytes)", self.bytes)
    }
}

/// What raising a charge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a raise beyond the limit should be seen by somebody"]
pub enum Raise {
    /// Raised, and the budget is now exceeded by this many bytes.
    Beyond {
        /// Bytes beyond the limit, over all charges.
        over: u64,
    },
    /// The charge belongs to no budget; nothing was raised.
    NoBudget,
    /// The backend pinned no more than was claimed.
    Unchanged,
    /// Raised, still within the limit.
    Within,
}

/// A claim that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExceeded {
    /// The bytes asked for.
    pub requested: u64,
    /// The bytes that were taken at that moment.
    pub charged: u64,
    /// The most that may be taken.
    pub limit: u64,
}

impl fmt::Display for BudgetExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "budget exceeded: {} bytes requested, {} of {} charged",
            self.requested, self.charged, self.limit
        )
    }
}

impl std::error::Error for BudgetExceeded {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_refused_claim_takes_nothing_and_tells_all_three_numbers() {
        let budget = Budget::new(100);
        let held = budget.reserve(60).expect("fits").commit();
        for bytes in [41, u64::MAX] {
            let error = budget.reserve(bytes).expect_err("does not fit");
            assert_eq!(
                (error.requested, error.charged, error.limit),
                (bytes, 60, 100)
            );
        }
        assert_eq!(budget.charged(), 60);
        assert_eq!(budget.reserve(40).expect("exactly fits").bytes(), 40);
        drop(held);
        assert_eq!(budget.charged(), 0);
    }

    #[test]
    fn raising_only_raises_and_the_raised_number_comes_back() {
        let budget = Budget::new(100);
        let (mut charge, raise) = budget.reserve(50).expect("fits").commit_pinned(40);
        assert_eq!((charge.bytes(), raise), (50, Raise::Unchanged));
        assert_eq!(charge.raise_to(80), Raise::Within);
        assert_eq!(charge.raise_to(130), Raise::Beyond { over: 30 });
        assert_eq!(budget.charged(), 130);
        assert!(budget.reserve(1).is_err());
        assert_eq!(
            budget
                .reserve(0)
                .expect("nothing is always granted")
                .bytes(),
            0
        );
        drop(charge);
        assert_eq!(budget.charged(), 0);
        assert_eq!(Charge::none().raise_to(5), Raise::NoBudget);
    }

    #[test]
    fn splitting_and_merging_keep_the_sum() {
        let (budget, other) = (Budget::new(100), Budget::new(100));
        let mut whole = budget.reserve(70).expect("fits").commit();
        let part = whole.split(30).expect("holds as much");
        assert!(whole.split(41).is_none());
        assert_eq!(
            (whole.bytes(), part.bytes(), budget.charged()),
            (40, 30, 70)
        );
        let foreign = other.reserve(5).expect("fits").commit();
        let foreign = whole.merge(foreign).expect_err("another budget");
        whole.merge(part).expect("the same budget");
        whole.merge(Charge::none()).expect("nothing fits anywhere");
        let mut none = Charge::none();
        none.merge(whole).expect("nothing becomes the other");
        assert_eq!((none.bytes(), budget.charged()), (70, 70));
        drop((none, foreign));
        assert_eq!((budget.charged(), other.charged()), (0, 0));
    }

    #[test]
    fn concurrent_claims_never_overshoot() {
        let budget = Budget::new(8);
        let granted: Vec<Reservation> = std::thread::scope(|scope| {
            let claim_all = || {
                (0..8)
                    .filter_map(|_| budget.reserve(1).ok())
                    .collect::<Vec<_>>()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim_all)).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        assert_eq!((granted.len(), budget.charged()), (8, 8));
    }
}
