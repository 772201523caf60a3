//! The explicit value that owns a budget, a gate, serials, a ledger and a quarantine.
//!
//! Promises: nothing is shared between two domains; dropping the last user's reference closes the gate, blocks on nothing, and
//! says once what the quarantine still keeps. Does not do: being there by default. Whoever opens something names its domain.

use std::fmt;
use std::time::Duration;

use super::budget::{Budget, Charge};
use super::gate::{Closed, Gate, Ticket};
use super::held::Held;
use super::native::Native;
use super::owner::Owner;
use super::quarantine::Quarantine;
use super::serials::{Exhausted, Serial, Serials};
use super::stamp::Stamp;
use crate::clock::{Clock, SystemClock};
use crate::completion::{Ledger, LedgerState};
use crate::sync::{Arc, Weak};

/// A domain. Always behind an `Arc`, which is the user's side of it; owners do not keep it alive.
pub struct Domain {
    core: Arc<Core>,
}

/// What outlives the user's side as long as an owner or a debt needs it.
pub(crate) struct Core {
    /// Itself, for what it keeps and must not keep it alive.
    pub(crate) me: Weak<Core>,
    pub(crate) name: Arc<str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) budget: Budget,
    pub(crate) gate: Gate,
    pub(crate) serials: Serials,
    pub(crate) quarantine: Quarantine,
    pub(crate) ledger: LedgerState,
}

impl Core {
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp::now(&*self.clock)
    }
}

impl Domain {
    /// A domain that may pin this many bytes, on the system's clock. The name is for reports.
    #[must_use]
    pub fn new(name: &str, budget: u64) -> Arc<Self> {
        Self::on_clock(name, budget, Arc::new(SystemClock::new()))
    }

    /// A domain on a clock of the caller's.
    #[must_use]
    pub fn on_clock(name: &str, budget: u64, clock: Arc<dyn Clock>) -> Arc<Self> {
        let name: Arc<str> = Arc::from(name);
        Arc::new(Self {
            core: Arc::new_cyclic(|me| Core {
                me: Weak::clone(me),
                quarantine: Quarantine::new(Arc::clone(&name), Arc::clone(&clock)),
                name,
                clock,
                budget: Budget::new(budget),
                gate: Gate::new(),
                serials: Serials::new(),
                ledger: LedgerState::new(),
            }),
        })
    }

    /// The name that reports carry.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The clock that stamps are taken from.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.core.clock
    }

    /// The bytes that may be pinned.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.core.budget
    }

    /// The gate that every admission passes.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.core.gate
    }

    /// The serials of this domain.
    #[must_use]
    pub fn serials(&self) -> &Serials {
        &self.core.serials
    }

    /// What could not be let go.
    #[must_use]
    pub fn quarantine(&self) -> &Quarantine {
        &self.core.quarantine
    }

    /// The one owner of all debts of this domain.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        Ledger::of(&self.core)
    }

    /// Admits one new native object. The admission is taken before the native call that creates it, so that a shutdown waits for
    /// objects that are just being made, and is turned into the owner right after it.
    ///
    /// # Errors
    /// [`Refused`] if the gate is closed or the serials are used up; nothing has happened then.
    pub fn admit(&self) -> Result<Admission, Refused> {
        let ticket = self.core.gate.enter()?;
        let object = self.core.serials.take()?;
        Ok(Admission {
            core: Arc::clone(&self.core),
            object,
            _ticket: ticket,
        })
    }

    /// Closes the gate, waits at most `limit` until everybody who was admitted is through, and tells what is still alive. It
    /// closes no owner and settles no debt; whoever owns them does. May be called again.
    #[must_use = "what is still alive should be seen by somebody"]
    pub fn shutdown(&self, limit: Option<Duration>) -> Shutdown {
        self.core.gate.close();
        Shutdown {
            quiet: self.core.gate.wait_quiet(limit),
            live: self.live(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What is alive at this moment. At the end of a test all numbers are 0, or the quarantine lists the difference.
    #[must_use]
    pub fn live(&self) -> Live {
        Live {
            owners: self.core.quarantine.owners(),
            tickets: self.core.gate.inside(),
            bytes: self.core.budget.charged(),
            debts: self.core.ledger.retained() as u64,
            quarantined: self.core.quarantine.count() as u64,
        }
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.core.gate.close();
        let ledger = self.ledger();
        ledger.abandon();
        ledger.orphan_settled();
        self.core.quarantine.orphan();
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain")
            .field("name", &self.core.name)
            .field("budget", &self.core.budget)
            .field("gate", &self.core.gate)
            .field("live", &self.live())
            .finish()
    }
}

/// The right to take one new native object into custody.
#[derive(Debug)]
#[must_use = "an object that is created without using its admission has no owner"]
pub struct Admission {
    core: Arc<Core>,
    object: Serial,
    _ticket: Ticket,
}

impl Admission {
    /// The serial that the owner will have.
    #[must_use]
    pub fn object(&self) -> Serial {
        self.object
    }

    /// Takes the object into custody. This cannot fail, so that no created object is ever without an owner.
    pub fn own<N: Native>(self, native: N, deps: Vec<Arc<Held>>, charge: Charge) -> Owner<N> {
        Owner::new(self.core, self.object, native, deps, charge)
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Core({:?})", self.name)
    }
}

/// What is alive in a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Live {
    /// Native objects without a receipt, those in quarantine included.
    pub owners: u64,
    /// Admissions and other tickets of the gate.
    pub tickets: u64,
    /// Bytes that are charged or reserved.
    pub bytes: u64,
    /// Debts that are not settled, or whose result nobody has taken.
    pub debts: u64,
    /// Entries of the quarantine.
    pub quarantined: u64,
}

/// What a shutdown found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Everybody who was admitted is through; from now on nothing new appears in the domain.
    pub quiet: bool,
    /// What is still alive.
    pub live: Live,
}

/// Why a domain admits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Its gate is closed.
    Closed,
    /// Its serials are used up.
    Exhausted,
}

impl From<Closed> for Refused {
    fn from(_: Closed) -> Self {
        Self::Closed
    }
}

impl From<Exhausted> for Refused {
    fn from(_: Exhausted) -> Self {
        Self::Exhausted
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => Closed.fmt(f),
            Self::Exhausted => Exhausted.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}
