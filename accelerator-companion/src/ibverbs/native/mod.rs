//! The thin handles that custody owns, one for each kind of native object.
//!
//! Promises: a handle makes its release call once, and again only after a failure that proves that nothing was done; what a
//! failed call may have destroyed is not touched again; nothing is called in a child of the process that opened the device.
//! Does not do: keeping parents alive; the owners hold them.

mod sys;

use std::fmt;

use lockgate::custody::{Identity, Receipt, Release};
use lockgate::{Errno, Error, ErrorKind};
use lockgate_verbs_shim as shim;

pub(crate) use sys::acknowledge;
pub use sys::{Channel, Context, Cq, Flow, Mr, Multicast, Mw, Pd, Qp};

use super::pages::ForkMark;

/// The variable under which the library turns a failed destroy call of a lost device into success (`verbs_init` reads
/// whether it is set, whatever its value; libibverbs 44.0, `init.c`).
pub const DISASSOCIATE: &str = "RDMAV_ALLOW_DISASSOC_DESTROY";

/// Drivers whose destroy calls free nothing of theirs before the kernel has said yes (rdma-core 44, `destroy_qp` of each),
/// so that a handle can be used for a query after a failed call.
const KEEPERS: &[&str] = &["mlx4_core", "mlx5_core", "rdma_rxe"];

/// What all objects of an open device share.
#[derive(Debug)]
pub(crate) struct Facts {
    /// The kernel's name of the device.
    pub(crate) device: String,
    /// The driver's module, where sysfs tells it.
    pub(crate) driver: Option<String>,
    /// Who opened it.
    pub(crate) process: u32,
    /// Whether [`DISASSOCIATE`] was set when the device was opened.
    pub(crate) disassociates: bool,
    /// Wiped by a fork.
    pub(crate) mark: ForkMark,
}

impl Facts {
    fn keeps_failed(&self) -> bool {
        self.driver
            .as_deref()
            .is_some_and(|driver| KEEPERS.contains(&driver))
    }

    fn identity(&self, kind: &'static str, numbers: &[(&'static str, u64)]) -> Identity {
        numbers.iter().fold(
            Identity::new(kind).named(self.device.clone()),
            |identity, (what, number)| identity.with(what, *number),
        )
    }

    /// Refuses a call in a child of the process that opened the device.
    pub(crate) fn check_process(&self, step: &'static str) -> Result<(), Error> {
        if self.mark.is_home() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Closed, step)
            .with_object(self.device.clone())
            .with_detail(format!(
                "process {} opened the device, and this is its child {}: the device's memory is not the child's",
                self.process,
                std::process::id()
            ))
            .with_remedy("open the device in the child, or use it in the parent only"))
    }
}

/// Where a handle stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Released; no call is made with it any more.
    Gone,
    /// As it was made.
    Live,
    /// A release call failed and may have done anything.
    Unknown,
}

/// What a failed release call proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// `EBUSY` means that something depends on the object and that nothing was done.
    Busy,
    /// No number proves anything.
    Nothing,
}

/// Turns the answer of a release call into an outcome, and notes where the handle stands now.
fn settle(
    answer: Result<(), shim::Errno>,
    proof: Proof,
    standing: &mut Standing,
    receipt: impl FnOnce() -> Receipt,
) -> Release {
    match answer {
        Ok(()) => {
            *standing = Standing::Gone;
            Release::Released(receipt())
        }
        Err(errno) if errno == shim::Errno::BUSY && proof == Proof::Busy => {
            Release::NothingDone(core_errno(errno))
        }
        Err(errno) => {
            *standing = Standing::Unknown;
            Release::Ambiguous(core_errno(errno))
        }
    }
}

/// The receipt of a release call that returned 0, with what a reader must know to trust it.
fn receipt(facts: &Facts, identity: Identity, call: &str) -> Receipt {
    Receipt::of(identity).note(if facts.disassociates {
        format!(
            "{call} returned 0, and {DISASSOCIATE} is set: the library says so also of a lost device"
        )
    } else {
        format!("{call} returned 0, {DISASSOCIATE} is not set")
    })
}

/// Whether a receipt of this module proves a release: it does not where the library was told to hide failures.
#[must_use]
pub fn is_proof(receipt: &Receipt) -> bool {
    !receipt
        .notes()
        .iter()
        .any(|note| note.contains(DISASSOCIATE) && note.contains(" is set"))
}

/// The number as the core knows it.
pub(crate) fn core_errno(errno: shim::Errno) -> Errno {
    Errno::from_raw(errno.raw())
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "released",
            Self::Live => "live",
            Self::Unknown => "unknown since a failed call",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(disassociates: bool) -> Facts {
        Facts {
            device: "rxe0".to_owned(),
            driver: Some("rdma_rxe".to_owned()),
            process: std::process::id(),
            disassociates,
            mark: ForkMark::set().unwrap(),
        }
    }

    #[test]
    fn a_receipt_says_whether_the_library_may_hide_a_failure() {
        for (set, proves) in [(false, true), (true, false)] {
            let facts = facts(set);
            let identity = facts.identity("QP", &[("qpn", 17)]);
            let receipt = receipt(&facts, identity, "ibv_destroy_qp");
            assert_eq!(is_proof(&receipt), proves, "{receipt}");
            assert!(receipt.to_string().contains(DISASSOCIATE), "{receipt}");
            assert!(receipt.to_string().contains("QP rxe0 (qpn 17)"));
        }
    }

    #[test]
    fn the_process_that_opened_may_call() {
        assert!(facts(false).check_process("modify").is_ok());
    }
}
