//! Owners and the quarantine: what the rules expect, and the real domain asked the same.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockgate::custody::{Class, EntryId, RetryError};

use super::device::{Object, ObjectLog};
use super::known::{KnownOwner, Phase, Place, Real};
use super::steps::Fate;
use super::{World, happened};

impl World {
    pub(super) fn own(&mut self, parent: u8, bytes: u64, fate: [Fate; 2]) {
        let admission = self.domain.admit();
        assert_eq!(admission.is_err(), self.gate_closed);
        let Ok(admission) = admission else {
            return;
        };
        let mut deps = Vec::new();
        let mut parent_at = None;
        if parent.is_multiple_of(2)
            && let Some(at) = self.pick(parent / 2, |owner| matches!(owner.real, Real::Owner(_)))
            && let Real::Owner(owner) = &self.owners[at].real
        {
            deps.push(owner.hold());
            parent_at = Some(at);
        }
        let charge = self.domain.budget().reserve(bytes).expect("fits").commit();
        let log = Arc::new(ObjectLog::default());
        let native = Object {
            fate,
            log: Arc::clone(&log),
        };
        let owner = admission.own(native, deps, charge);
        self.owners.push(KnownOwner {
            parent: parent_at,
            bytes,
            fate,
            calls: 0,
            tried: None,
            place: Place::User,
            id: EntryId::Object(owner.object()),
            log,
            real: Real::Owner(owner),
        });
    }

    pub(super) fn pick(&self, at: u8, fits: impl Fn(&KnownOwner) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.owners.len())
            .filter(|at| fits(&self.owners[*at]))
            .collect();
        (!all.is_empty()).then(|| all[usize::from(at) % all.len()])
    }

    /// Who keeps this owner from being released.
    pub(super) fn holders(&self, at: usize) -> usize {
        let children = self
            .owners
            .iter()
            .filter(|owner| owner.parent == Some(at) && owner.place != Place::Released);
        let loans = self
            .debts
            .iter()
            .filter(|debt| {
                matches!(
                    debt.phase,
                    Phase::InFlight | Phase::Unknown | Phase::Quarantined
                )
            })
            .flat_map(|debt| &debt.loans)
            .filter(|loan| **loan == at);
        children.count() + loans.count()
    }

    /// The one native call, as the oracle expects it. Says whether the object is released.
    pub(super) fn expect_call(&mut self, at: usize) -> bool {
        let owner = &mut self.owners[at];
        let fate = owner
            .fate
            .get(owner.calls as usize)
            .copied()
            .unwrap_or(Fate::Works);
        owner.calls += 1;
        owner.tried = match fate {
            Fate::Works => {
                owner.place = Place::Released;
                happened("released");
                return true;
            }
            Fate::NothingDone => {
                happened("retryable failure");
                Some(Class::Retryable)
            }
            Fate::Ambiguous | Fate::Panics => {
                happened("terminal failure");
                Some(Class::Terminal)
            }
        };
        false
    }

    pub(super) fn close(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Owner(_))) else {
            return;
        };
        let Real::Owner(owner) = std::mem::replace(&mut self.owners[at].real, Real::Gone) else {
            return;
        };
        let held = self.holders(at) > 0;
        let released = !held && self.expect_call(at);
        match owner.close() {
            Ok(receipt) => {
                assert!(released, "a receipt without a release");
                assert_eq!(receipt.bytes(), self.owners[at].bytes);
            }
            Err(unreleased) => {
                assert!(!released, "released, but the object came back");
                if held {
                    happened("close refused, held");
                }
                let known = &mut self.owners[at];
                assert_eq!(
                    unreleased.class(),
                    known.tried.unwrap_or(Class::NeverAttempted)
                );
                known.place = Place::Unreleased;
                known.real = Real::Unreleased(unreleased);
            }
        }
    }

    pub(super) fn drop_owner(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Owner(_))) else {
            return;
        };
        if self.holders(at) > 0 || !self.expect_call(at) {
            self.owners[at].place = Place::Quarantine;
            happened("drop to quarantine");
        }
        self.owners[at].real = Real::Gone;
    }

    pub(super) fn close_again(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Unreleased(_))) else {
            return;
        };
        let Real::Unreleased(unreleased) = std::mem::replace(&mut self.owners[at].real, Real::Gone)
        else {
            return;
        };
        let may = self.owners[at].tried.is_none() && self.holders(at) == 0;
        let released = may && self.expect_call(at);
        match unreleased.close() {
            Ok(_) => assert!(released, "a receipt without a release"),
            Err(unreleased) => {
                assert!(!released, "released, but the object came back");
                self.owners[at].real = Real::Unreleased(unreleased);
            }
        }
    }

    pub(super) fn hand_over(&mut self, at: u8) {
        let Some(at) = self.pick(at, |owner| matches!(owner.real, Real::Unreleased(_))) else {
            return;
        };
        let known = &mut self.owners[at];
        if let Real::Unreleased(unreleased) = std::mem::replace(&mut known.real, Real::Gone) {
            assert_eq!(unreleased.quarantine(), known.id);
            known.place = Place::Quarantine;
        }
    }

    pub(super) fn retry(&mut self, at: u8) {
        let entries: Vec<EntryId> = self
            .domain
            .quarantine()
            .list()
            .iter()
            .map(|report| report.entry)
            .collect();
        if entries.is_empty() {
            return;
        }
        self.retry_entry(entries[usize::from(at) % entries.len()]);
    }

    pub(super) fn retry_entry(&mut self, id: EntryId) {
        let answer = self.domain.quarantine().retry(id);
        if let Some(at) = self.owners.iter().position(|owner| owner.id == id) {
            if self.owners[at].tried == Some(Class::Terminal) {
                happened("retry refused, terminal");
                assert!(matches!(answer, Err(RetryError::Terminal(_))), "{answer:?}");
            } else if self.holders(at) > 0 {
                happened("retry refused, held");
                let holders = self.holders(at);
                assert_eq!(answer, Err(RetryError::Held { holders }));
            } else if self.expect_call(at) {
                happened("retried");
                assert!(answer.is_ok(), "{answer:?}");
            } else {
                assert!(matches!(answer, Err(RetryError::Failed(_))), "{answer:?}");
            }
            return;
        }
        let at = self.debt_of_entry(id);
        assert_eq!(answer.is_ok(), self.expect_maintenance(at), "{answer:?}");
    }

    pub(super) fn debt_of_entry(&self, id: EntryId) -> usize {
        self.debts
            .iter()
            .position(|debt| EntryId::Slot(debt.slot) == id)
            .expect("an entry is an owner or a debt")
    }

    /// What an attempt of the quarantine does to a debt. Says whether the entry is gone after it.
    pub(super) fn expect_maintenance(&mut self, at: usize) -> bool {
        if !matches!(self.debts[at].phase, Phase::Ready(_) | Phase::Taken) {
            self.expect_observation(at, false);
        }
        if !matches!(self.debts[at].phase, Phase::Ready(_) | Phase::Taken) && !self.expect_drain(at)
        {
            return false;
        }
        self.debts[at].listed = false;
        if self.abandoned && self.debts[at].phase != Phase::Taken {
            self.debts[at].orphaned = true;
            if self.debts[at].handle.is_none() {
                self.debts[at].phase = Phase::Taken;
            }
        }
        true
    }

    pub(super) fn maintain(&mut self, most: usize) {
        let fresh = |world: &Self| -> Vec<EntryId> {
            let owners = world
                .owners
                .iter()
                .filter(|owner| owner.place == Place::Quarantine && owner.tried.is_none())
                .map(|owner| owner.id);
            let debts = world
                .debts
                .iter()
                .filter(|debt| debt.listed && !debt.drain_failed)
                .map(|debt| EntryId::Slot(debt.slot));
            owners.chain(debts).collect()
        };
        let before = fresh(self);
        let listed = |world: &Self| -> BTreeSet<EntryId> {
            world
                .domain
                .quarantine()
                .list()
                .iter()
                .map(|report| report.entry)
                .collect()
        };
        let listed_before = listed(self);
        let done = self.domain.quarantine().maintain(most);
        let listed_after = listed(self);
        let mut gone: Vec<EntryId> = listed_before.difference(&listed_after).copied().collect();
        assert!(done.attempted() <= most, "more calls than allowed");
        assert_eq!(gone.len(), done.receipts.len(), "each receipt is one entry");
        gone.extend(&done.failed);
        // In whichever order they were tried, each must have been allowed: nobody held it at that moment.
        while !gone.is_empty() {
            // The first drains of a lane are those that fail.
            let failed_debt =
                |id: &EntryId| matches!(id, EntryId::Slot(_)) && done.failed.contains(id);
            let next = gone.iter().position(failed_debt);
            let next = next.or_else(|| {
                gone.iter().position(|id| {
                    assert!(before.contains(id), "{id} was tried before or is no entry");
                    match self.owners.iter().position(|owner| owner.id == *id) {
                        Some(at) => self.holders(at) == 0,
                        None => true,
                    }
                })
            });
            let id = gone.swap_remove(next.expect("something was released while it was held"));
            let worked = match self.owners.iter().position(|owner| owner.id == id) {
                Some(at) => self.expect_call(at),
                None => {
                    let at = self.debt_of_entry(id);
                    self.expect_maintenance(at)
                }
            };
            assert_eq!(worked, !done.failed.contains(&id), "{id}");
            happened("maintained");
        }
        let left = fresh(self);
        assert_eq!(done.left, left.len());
        if done.attempted() < most {
            let free = left.iter().find(|id| {
                let owner = self.owners.iter().position(|owner| owner.id == **id);
                owner.is_none_or(|at| self.holders(at) == 0)
            });
            assert_eq!(free, None, "left although nobody holds it");
        }
    }
}
