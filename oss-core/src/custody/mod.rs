//! Custody: who owns a native object, what it needs to stay alive, and what happens when it cannot be let go.

mod budget;
mod gate;
mod serials;

pub use budget::{Budget, BudgetExceeded, Charge, Raise, Reservation};
pub use gate::{Closed, Gate, Quiet, Ticket};
pub use serials::{Exhausted, Generation, Serial, Serials};
