//! The places of the ledger: slots by number, the lists of each lane, and who is next in a sweep.
//!
//! A slot is a place and a turn. A place is used again, with the next turn; after the last turn it is never used again. So a
//! slot is found without hashing or search, and no number ever means two debts. The slots of a lane hang in two lists
//! through the places themselves: *open* ones have a fence to ask, *stuck* ones wait for a drain.
//!
//! Promises: every operation costs the same however many slots there are; the round of a sweep meets each slot at most once
//! and goes on where the last one stopped. Does not do: calling anything of a provider or dropping anything of a user; what it removes
//! it returns.

use std::collections::VecDeque;

use super::lane::{LaneCell, Watch};
use super::record::Record;
use super::slot::SlotId;
use crate::sync::{Arc, MutexGuard, lock};

/// Places come in chunks, so that growing never moves the old ones.
const CHUNK: usize = 256;
/// No place.
const NONE: u32 = u32::MAX;

pub(super) struct Table {
    chunks: Vec<Box<[Place]>>,
    /// Places handed out so far; the next new one has this number.
    used: u32,
    free: Vec<u32>,
    occupied: usize,
    /// Slots whose fence was reported, in the order of the reports.
    reported: VecDeque<SlotId>,
    /// Lanes whose slots a sweep has to ask.
    ring: VecDeque<Arc<LaneCell>>,
    /// Lanes that a sweep has to harvest.
    harvest: VecDeque<Arc<LaneCell>>,
    /// Lanes that went from ring or harvest; perhaps the last reference, so the caller drops them outside the lock.
    spent: Vec<Arc<LaneCell>>,
    sweeps: u64,
    pub(super) abandoned: bool,
    last_turn: u32,
}

struct Place {
    turn: u32,
    record: Option<Arc<Record>>,
    previous: u32,
    next: u32,
    list: Which,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Neither,
    Open,
    Stuck,
}

/// The two lists of one lane.
#[derive(Default)]
pub(super) struct Lists {
    open: List,
    stuck: List,
    in_ring: bool,
    in_harvest: bool,
    /// A drain has proven everything quiet: both lists are worth asking.
    drained: bool,
    /// The sweep that met this lane last, and how many of its slots that sweep may still meet.
    sweep: u64,
    left: usize,
}

impl Lists {
    pub(super) fn unsettled(&self) -> usize {
        self.open.len + self.stuck.len
    }

    fn worth_asking(&self, watch: Watch) -> usize {
        match (self.drained, watch) {
            (true, _) => self.unsettled(),
            (false, Watch::Query) => self.open.len,
            (false, Watch::Harvest | Watch::Report) => 0,
        }
    }
}

struct List {
    head: u32,
    tail: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
            len: 0,
        }
    }
}

/// What a number means.
pub(super) enum Lookup {
    Found(Arc<Record>),
    /// It was a debt once, and its result has been taken.
    Gone,
    /// It never was a debt.
    Unknown,
}

/// Why there is no new slot.
pub(super) enum Full {
    Abandoned,
    Exhausted,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            chunks: Vec::new(),
            used: 0,
            free: Vec::new(),
            occupied: 0,
            reported: VecDeque::new(),
            ring: VecDeque::new(),
            harvest: VecDeque::new(),
            spent: Vec::new(),
            sweeps: 0,
            abandoned: false,
            last_turn: u32::MAX,
        }
    }

    pub(super) fn occupied(&self) -> usize {
        self.occupied
    }

    fn place(&self, at: u32) -> Option<&Place> {
        let at = at as usize;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    fn place_mut(&mut self, at: u32) -> Option<&mut Place> {
        let at = at as usize;
        self.chunks.get_mut(at / CHUNK)?.get_mut(at % CHUNK)
    }

    /// Takes a place, makes its record and lists it as open in its lane.
    pub(super) fn insert(
        &mut self,
        cell: &Arc<LaneCell>,
        make: impl FnOnce(SlotId) -> Arc<Record>,
    ) -> Result<Arc<Record>, Full> {
        if self.abandoned {
            return Err(Full::Abandoned);
        }
        let at = match self.free.pop() {
            Some(at) => at,
            None => self.grow().ok_or(Full::Exhausted)?,
        };
        let place = self.place_mut(at).ok_or(Full::Exhausted)?;
        place.turn += 1;
        let slot = SlotId::new(at, place.turn);
        let record = make(slot);
        place.record = Some(Arc::clone(&record));
        self.occupied += 1;
        let mut lists = lock(&cell.lists);
        self.link(at, &mut lists, Which::Open);
        self.call_up(cell, &mut lists);
        Ok(record)
    }

    fn grow(&mut self) -> Option<u32> {
        let at = self.used;
        if at == NONE {
            return None;
        }
        if at as usize == self.chunks.len() * CHUNK {
            self.chunks.push(
                (0..CHUNK)
                    .map(|_| Place {
                        turn: 0,
                        record: None,
                        previous: NONE,
                        next: NONE,
                        list: Which::Neither,
                    })
                    .collect(),
            );
        }
        self.used += 1;
        Some(at)
    }

    pub(super) fn get(&self, slot: SlotId) -> Lookup {
        let Some(place) = self.place(slot.place()) else {
            return Lookup::Unknown;
        };
        match &place.record {
            Some(record) if place.turn == slot.turn() => Lookup::Found(Arc::clone(record)),
            _ if (1..=place.turn).contains(&slot.turn()) => Lookup::Gone,
            _ => Lookup::Unknown,
        }
    }

    /// The place of a slot that is still occupied by it.
    fn occupied_by(&self, slot: SlotId) -> Option<u32> {
        let place = self.place(slot.place())?;
        (place.turn == slot.turn() && place.record.is_some()).then_some(slot.place())
    }

    /// Gives the place back. The record is returned, to be dropped outside the lock.
    pub(super) fn remove(&mut self, slot: SlotId) -> Option<Arc<Record>> {
        self.unlink(slot);
        let last_turn = self.last_turn;
        let place = self.place_mut(slot.place())?;
        if place.turn != slot.turn() {
            return None;
        }
        let record = place.record.take()?;
        let reusable = place.turn < last_turn;
        self.occupied -= 1;
        if reusable {
            self.free.push(slot.place());
        }
        Some(record)
    }

    /// The debt is settled: no sweep meets it any more.
    pub(super) fn unlink(&mut self, slot: SlotId) {
        if let Some(at) = self.occupied_by(slot)
            && let Some(record) = self.record(at)
        {
            let mut lists = lock(&record.lane.lists);
            self.take_out(at, &mut lists);
        }
    }

    /// The debt waits for a drain; a sweep tells of it once.
    pub(super) fn stick(&mut self, slot: SlotId) {
        if let Some(at) = self.occupied_by(slot)
            && let Some(record) = self.record(at)
        {
            let mut lists = lock(&record.lane.lists);
            if self
                .place(at)
                .is_some_and(|place| place.list == Which::Open)
            {
                self.take_out(at, &mut lists);
                self.link(at, &mut lists, Which::Stuck);
                self.reported.push_back(slot);
            }
            self.call_up(&record.lane, &mut lists);
        }
    }

    /// A drain has proven the lane quiet: sweeps meet all of its slots.
    pub(super) fn drained(&mut self, cell: &Arc<LaneCell>) {
        let mut lists = lock(&cell.lists);
        lists.drained = true;
        self.call_up(cell, &mut lists);
    }

    pub(super) fn report(&mut self, slot: SlotId) {
        self.reported.push_back(slot);
    }

    /// Every record, for the end of the ledger's user side.
    pub(super) fn all(&self) -> Vec<Arc<Record>> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.iter())
            .filter_map(|place| place.record.clone())
            .collect()
    }

    /// Takes every record out at the very end, so that the caller can leak it.
    pub(super) fn take_all(&mut self) -> Vec<Arc<Record>> {
        self.ring.clear();
        self.harvest.clear();
        self.chunks
            .iter_mut()
            .flat_map(|chunk| chunk.iter_mut())
            .filter_map(|place| place.record.take())
            .collect()
    }

    /// The lanes to harvest in this sweep, at most `most`, in a fair round.
    pub(super) fn next_to_harvest(&mut self, most: usize) -> Vec<Arc<LaneCell>> {
        let mut cells = Vec::new();
        for _ in 0..self.harvest.len().min(most) {
            let Some(cell) = self.harvest.pop_front() else {
                break;
            };
            let mut lists = lock(&cell.lists);
            if lists.open.len > 0 {
                drop(lists);
                self.harvest.push_back(Arc::clone(&cell));
                cells.push(cell);
            } else {
                lists.in_harvest = false;
                drop(lists);
                self.spent.push(cell);
            }
        }
        cells
    }

    /// The records to observe in this sweep, at most `most`: those that were reported, and the next ones of the round.
    /// Where there are both, each gets half; an odd one goes to each in turn.
    pub(super) fn gather(&mut self, most: usize, into: &mut Vec<Arc<Record>>) {
        self.sweeps += 1;
        let share = if self.ring.is_empty() {
            most
        } else {
            most / 2 + (most % 2) * usize::from(self.sweeps.is_multiple_of(2))
        };
        self.gather_reported(share, into);
        self.gather_round(most, into);
        self.gather_reported(most, into);
    }

    /// What the caller has to drop once it has let go of the lock.
    #[must_use = "a lane must not be dropped under the lock of the table"]
    pub(super) fn spent(&mut self) -> Vec<Arc<LaneCell>> {
        std::mem::take(&mut self.spent)
    }

    fn gather_reported(&mut self, until: usize, into: &mut Vec<Arc<Record>>) {
        while into.len() < until {
            let Some(slot) = self.reported.pop_front() else {
                return;
            };
            if let Lookup::Found(record) = self.get(slot) {
                into.push(record);
            }
        }
    }

    fn gather_round(&mut self, until: usize, into: &mut Vec<Arc<Record>>) {
        let mut met = Vec::new();
        while into.len() < until {
            let Some(cell) = self.ring.pop_front() else {
                break;
            };
            let mut lists = lock(&cell.lists);
            let worth = lists.worth_asking(cell.watch);
            if lists.sweep != self.sweeps {
                lists.sweep = self.sweeps;
                lists.left = worth;
            }
            if worth == 0 {
                lists.in_ring = false;
                drop(lists);
                self.spent.push(cell);
                continue;
            }
            if lists.left == 0 {
                drop(lists);
                met.push(cell);
                continue;
            }
            lists.left -= 1;
            let which = if lists.drained && lists.stuck.len > 0 {
                Which::Stuck
            } else {
                Which::Open
            };
            let head = match which {
                Which::Stuck => lists.stuck.head,
                Which::Open | Which::Neither => lists.open.head,
            };
            self.take_out(head, &mut lists);
            self.link(head, &mut lists, which);
            drop(lists);
            into.extend(self.record(head));
            self.ring.push_back(cell);
        }
        self.ring.extend(met);
    }

    fn record(&self, at: u32) -> Option<Arc<Record>> {
        self.place(at)?.record.clone()
    }

    /// Puts the lane where sweeps look, if it has anything for them.
    fn call_up(&mut self, cell: &Arc<LaneCell>, lists: &mut MutexGuard<'_, Lists>) {
        if !lists.in_ring && lists.worth_asking(cell.watch) > 0 {
            lists.in_ring = true;
            self.ring.push_back(Arc::clone(cell));
        }
        if !lists.in_harvest && cell.watch == Watch::Harvest && lists.open.len > 0 {
            lists.in_harvest = true;
            self.harvest.push_back(Arc::clone(cell));
        }
    }

    fn link(&mut self, at: u32, lists: &mut Lists, which: Which) {
        let list = match which {
            Which::Open => &mut lists.open,
            Which::Stuck => &mut lists.stuck,
            Which::Neither => return,
        };
        let tail = list.tail;
        list.tail = at;
        list.len += 1;
        if tail == NONE {
            list.head = at;
        } else if let Some(before) = self.place_mut(tail) {
            before.next = at;
        }
        if let Some(place) = self.place_mut(at) {
            place.previous = tail;
            place.next = NONE;
            place.list = which;
        }
    }

    fn take_out(&mut self, at: u32, lists: &mut Lists) {
        let Some(place) = self.place_mut(at) else {
            return;
        };
        let (previous, next, which) = (place.previous, place.next, place.list);
        place.previous = NONE;
        place.next = NONE;
        place.list = Which::Neither;
        let list = match which {
            Which::Open => &mut lists.open,
            Which::Stuck => &mut lists.stuck,
            Which::Neither => return,
        };
        list.len -= 1;
        match self.place_mut(previous) {
            Some(before) => before.next = next,
            None => list.head = next,
        }
        let list = match which {
            Which::Stuck => &mut lists.stuck,
            Which::Open | Which::Neither => &mut lists.open,
        };
        match self.place_mut(next) {
            Some(after) => after.previous = previous,
            None => list.tail = previous,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;
    use crate::completion::{Cause, Fence, Lane};
    use crate::custody::{Identity, Receipt};

    struct Silent;

    impl Lane for Silent {
        fn identity(&self) -> Identity {
            Identity::new("lane")
        }
        fn query(&self, _: SlotId) -> Fence {
            Fence::Pending
        }
        fn wait(&self, _: SlotId, _: Option<Duration>) -> Fence {
            Fence::Pending
        }
        fn drain(&self) -> Result<Receipt, Cause> {
            Ok(Receipt::of(self.identity()))
        }
    }

    fn insert(table: &mut Table, cell: &Arc<LaneCell>) -> Option<SlotId> {
        table
            .insert(cell, |slot| {
                Record::new(slot, Arc::clone(cell), Vec::new(), None)
            })
            .ok()
            .map(|record| record.slot)
    }

    #[test]
    fn a_place_comes_again_with_another_number_and_after_its_last_turn_never() {
        let mut table = Table {
            last_turn: 3,
            ..Table::new()
        };
        let cell = LaneCell::new(Arc::new(Silent));
        let mut seen = HashSet::new();
        for _ in 0..10 {
            let slot = insert(&mut table, &cell).expect("there is room");
            assert!(seen.insert(slot.number()), "{slot} was given out before");
            assert!(matches!(table.get(slot), Lookup::Found(_)));
            assert!(table.remove(slot).is_some());
            assert!(table.remove(slot).is_none());
            assert!(matches!(table.get(slot), Lookup::Gone));
        }
        let places: HashSet<u32> = seen
            .iter()
            .map(|n| SlotId::from_number(*n).place())
            .collect();
        assert_eq!(
            places.len(),
            4,
            "three turns of three places and one of a fourth"
        );
    }

    #[test]
    fn a_number_that_never_was_a_slot_is_told_from_one_that_is_gone() {
        let mut table = Table::new();
        let cell = LaneCell::new(Arc::new(Silent));
        let slot = insert(&mut table, &cell).expect("there is room");
        for unknown in [
            SlotId::new(slot.place(), 0),
            SlotId::new(slot.place(), slot.turn() + 1),
            SlotId::new(slot.place() + 1, 1),
            SlotId::new(slot.place() + 1, 0),
            SlotId::from_number(u64::MAX),
        ] {
            assert!(matches!(table.get(unknown), Lookup::Unknown), "{unknown}");
            assert!(table.remove(unknown).is_none());
        }
    }

    /// The lists against a plain model: rounds meet every open slot of every lane equally often, whatever is added,
    /// removed or stuck in between.
    #[test]
    fn rounds_are_fair_whatever_changes_in_between() {
        let mut table = Table::new();
        let cells: Vec<_> = (0..3).map(|_| LaneCell::new(Arc::new(Silent))).collect();
        let mut open = Vec::new();
        let mut draw = 1_u64;
        for step in 0..2_000 {
            draw = crate::fault::mix(draw);
            match draw % 4 {
                0 | 1 => {
                    let cell = &cells[(draw >> 8) as usize % cells.len()];
                    open.push(insert(&mut table, cell).expect("there is room"));
                }
                2 if !open.is_empty() => {
                    let slot = open.swap_remove((draw >> 8) as usize % open.len());
                    assert!(table.remove(slot).is_some());
                }
                _ if !open.is_empty() => {
                    let slot = open.swap_remove((draw >> 8) as usize % open.len());
                    table.stick(slot);
                    let mut told = Vec::new();
                    table.gather_reported(1, &mut told);
                    assert_eq!(told.len(), 1);
                    assert_eq!(told[0].slot, slot);
                }
                _ => {}
            }
            if step % 50 == 0 {
                let mut met: Vec<SlotId> = Vec::new();
                while met.len() < open.len() {
                    let mut into = Vec::new();
                    table.gather(64, &mut into);
                    let distinct: HashSet<_> = into.iter().map(|record| record.slot).collect();
                    assert_eq!(distinct.len(), into.len(), "one sweep met a slot twice");
                    assert_eq!(into.len(), open.len().min(64));
                    met.extend(into.iter().map(|record| record.slot));
                }
                let distinct: HashSet<_> = met.iter().copied().collect();
                assert!(distinct.iter().all(|slot| open.contains(slot)));
                if open.len() <= 64 {
                    assert_eq!(distinct.len(), open.len());
                }
            }
        }
        let lens: usize = cells.iter().map(|cell| lock(&cell.lists).open.len).sum();
        assert_eq!(lens, open.len());
    }
}
