//! The place that keeps what could not be let go, with evidence.
//!
//! Promises: an entry keeps its handle, its dependants and its charge until a receipt, or for ever; it can be listed, as text and
//! as JSON, at any time, also while an attempt on it hangs; a terminal entry is never tried again; when its domain has gone, its
//! entries are leaked on purpose, and said so once. Does not do: anything by itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Serialize, Serializer};

use super::held::Held;
use super::native::Receipt;
use super::owner::panic_text;
use super::report::{Class, Failure, Report};
use super::serials::Serial;
use super::stamp::Stamp;
use crate::clock::Clock;
use crate::completion::SlotId;
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, lock};

/// The address of an entry: the object that could not be released, or the debt that could not be settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryId {
    /// An owner, by its serial.
    Object(Serial),
    /// A debt of the ledger, by its slot.
    Slot(SlotId),
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(f, "object {object}"),
            Self::Slot(slot) => write!(f, "slot {slot}"),
        }
    }
}

impl Serialize for EntryId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What the quarantine keeps: an unreleased owner or an unsettled debt.
pub(crate) trait Keep: Send {
    fn class(&self) -> Class;
    fn failure(&self) -> Option<Failure>;
    /// How many others hold it; not 0 if anybody does.
    fn holders(&mut self) -> usize;
    /// The native call. Only called if the class allows it and nobody holds the object.
    fn attempt(&mut self, stamp: &dyn Fn() -> Stamp) -> Result<Receipt, Failure>;
    fn report(&self, since: &Stamp) -> Report;
    fn deps(&self) -> Vec<Arc<Held>>;
    fn bytes(&self) -> u64;
    fn counts_as_owner(&self) -> bool;
}

/// The quarantine of one domain.
pub struct Quarantine {
    domain: Arc<str>,
    clock: Arc<dyn Clock>,
    /// Owners without a receipt, here and in the hands of users.
    owners: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: BTreeMap<EntryId, Arc<Entry>>,
    /// Those of the entries for which no call was made yet.
    fresh: BTreeSet<EntryId>,
    /// Where the next maintenance goes on.
    cursor: Option<EntryId>,
    orphaned: bool,
}

struct Entry {
    since: Stamp,
    inside: Mutex<Inside>,
}

/// An entry that is no longer listed.
pub(crate) struct Withdrawn(#[expect(dead_code, reason = "kept to be dropped")] Arc<Entry>);

struct Inside {
    /// `None` while an attempt runs, so that a hanging native call blocks nobody who only wants to read, and after a receipt.
    kept: Option<Box<dyn Keep>>,
    /// How it was before the attempt that runs.
    last: Option<Report>,
}

impl Quarantine {
    pub(crate) fn new(domain: Arc<str>, clock: Arc<dyn Clock>) -> Self {
        Self {
            domain,
            clock,
            owners: AtomicU64::new(0),
            state: Mutex::new(State::default()),
        }
    }

    /// Every entry with what is known about it, ordered by address. Runs the native query of each.
    #[must_use]
    pub fn list(&self) -> Vec<Report> {
        self.entries()
            .iter()
            .filter_map(|(_, entry)| entry.report())
            .collect()
    }

    /// What is known about one entry, with its native query.
    #[must_use]
    pub fn report(&self, id: EntryId) -> Option<Report> {
        self.entry(id)?.report()
    }

    /// The listing as text for people. The first line is a summary.
    #[must_use]
    pub fn text(&self) -> String {
        let reports = self.list();
        let noun = if reports.len() == 1 {
            "entry"
        } else {
            "entries"
        };
        let mut text = format!(
            "quarantine of domain {:?}: {} {noun}, {} bytes",
            self.domain,
            reports.len(),
            self.bytes()
        );
        for report in reports {
            text.push('\n');
            text.push_str(&report.to_string());
        }
        text
    }

    /// The listing as JSON: `domain`, `count`, `bytes`, `entries`.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        let entries = self.list();
        serde_json::json!({
            "domain": &*self.domain,
            "count": entries.len(),
            "bytes": self.bytes(),
            "entries": entries,
        })
    }

    /// How many entries there are.
    #[must_use]
    pub fn count(&self) -> usize {
        lock(&self.state).entries.len()
    }

    /// The bytes that the entries keep: their charges, and the values that they hold, each value once however many hold it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let mut seen = BTreeSet::new();
        let mut bytes: u64 = 0;
        for (_, entry) in self.entries() {
            let inside = lock(&entry.inside);
            match (&inside.kept, &inside.last) {
                (Some(kept), _) => {
                    bytes = bytes.saturating_add(kept.bytes());
                    for held in kept.deps() {
                        if seen.insert(Arc::as_ptr(&held).cast::<()>() as usize) {
                            bytes = bytes.saturating_add(held.bytes());
                        }
                    }
                }
                (None, Some(last)) => bytes = bytes.saturating_add(last.bytes),
                (None, None) => {}
            }
        }
        bytes
    }

    /// Whether nothing is kept.
    ///
    /// # Errors
    /// [`NotEmpty`] with the whole listing as its text.
    pub fn ensure_empty(&self) -> Result<(), NotEmpty> {
        match self.count() {
            0 => Ok(()),
            count => Err(NotEmpty {
                count,
                listing: self.text(),
            }),
        }
    }

    /// Panics with the whole listing unless nothing is kept; for the end of a test.
    #[track_caller]
    pub fn assert_empty(&self) {
        if let Err(not_empty) = self.ensure_empty() {
            panic!("{not_empty}");
        }
    }

    /// Makes one native call for an entry whose class allows it: another one for a retryable entry, the first one for an
    /// entry for which none was made yet. May block as long as that call does.
    ///
    /// # Errors
    /// [`RetryError`]: refused without a native call, or the call failed again.
    pub fn retry(&self, id: EntryId) -> Result<Receipt, RetryError> {
        let entry = self.entry(id).ok_or(RetryError::Unknown(id))?;
        let kept = entry.take_for_attempt()?;
        self.attempt(id, &entry, kept).map_err(RetryError::Failed)
    }

    /// Makes at most `most` native calls, for entries for which none was made yet and which nobody holds any more. What that frees
    /// is tried in the same call as far as `most` allows. Each call goes on where the last one stopped. May block as long as
    /// the native calls do.
    pub fn maintain(&self, most: usize) -> Maintenance {
        let mut done = Maintenance::default();
        let mut idle = 0;
        while done.attempted() < most {
            let Some((id, entry, fresh)) = self.next_fresh() else {
                break;
            };
            match entry.take_fresh() {
                Fresh::Taken(kept) => {
                    idle = 0;
                    match self.attempt(id, &entry, kept) {
                        Ok(receipt) => done.receipts.push(receipt),
                        Err(_) => done.failed.push(id),
                    }
                }
                Fresh::Tried => {
                    lock(&self.state).fresh.remove(&id);
                }
                Fresh::Busy => {
                    // A full round of such entries ends the work.
                    idle += 1;
                    if idle >= fresh {
                        break;
                    }
                }
            }
        }
        done.left = lock(&self.state).fresh.len();
        done
    }

    fn attempt(
        &self,
        id: EntryId,
        entry: &Entry,
        mut kept: Box<dyn Keep>,
    ) -> Result<Receipt, Failure> {
        let stamp = || Stamp::now(&*self.clock);
        match kept.attempt(&stamp) {
            Ok(receipt) => {
                // The entry goes last, so that whoever finds the quarantine empty finds the charges back, too.
                let owner = kept.counts_as_owner();
                if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(kept))) {
                    let text = panic_text(&*panic);
                    tracing::error!(entry = %id, "the handle of a released object {text}");
                }
                if owner {
                    self.uncount_owner();
                }
                lock(&entry.inside).last = None;
                drop(self.remove(id));
                Ok(receipt)
            }
            Err(failure) => {
                // One lock after the other, never both: a reader may hold the entry's while its native query hangs.
                lock(&self.state).fresh.remove(&id);
                let mut inside = lock(&entry.inside);
                inside.kept = Some(kept);
                inside.last = None;
                Err(failure)
            }
        }
    }

    /// The next entry for which no call was made, in a fair round, and how many of them there are.
    fn next_fresh(&self) -> Option<(EntryId, Arc<Entry>, usize)> {
        let mut state = lock(&self.state);
        let after = state.cursor;
        let next = after
            .and_then(|after| {
                let later = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
                state.fresh.range(later).next().copied()
            })
            .or_else(|| state.fresh.first().copied())?;
        state.cursor = Some(next);
        let entry = Arc::clone(state.entries.get(&next)?);
        Some((next, entry, state.fresh.len()))
    }

    /// Takes an owner in and says so.
    pub(crate) fn take_in(&self, id: EntryId, kept: Box<dyn Keep>, since: Stamp) {
        let (class, failure) = (kept.class(), kept.failure());
        self.insert(id, kept, class, since);
        self.announce(id, class, failure.as_ref());
    }

    /// Takes an entry in without a word and without asking it anything, so that the caller may hold a lock of its own.
    pub(crate) fn insert(&self, id: EntryId, kept: Box<dyn Keep>, class: Class, since: Stamp) {
        let inside = Mutex::new(Inside {
            kept: Some(kept),
            last: None,
        });
        let mut state = lock(&self.state);
        if class == Class::NeverAttempted {
            state.fresh.insert(id);
        }
        state.entries.insert(id, Arc::new(Entry { since, inside }));
    }

    pub(crate) fn announce(&self, id: EntryId, class: Class, failure: Option<&Failure>) {
        let why = failure.map_or_else(|| class.to_string(), ToString::to_string);
        let domain = &*self.domain;
        if lock(&self.state).orphaned {
            tracing::error!(domain, entry = %id, why, "leaked on purpose, its domain is gone");
        } else {
            tracing::warn!(domain, entry = %id, why, "moved to quarantine");
        }
    }

    /// A call was made elsewhere for an entry for which none had been made.
    pub(crate) fn tried(&self, id: EntryId) {
        lock(&self.state).fresh.remove(&id);
    }

    /// Takes an entry out that was resolved elsewhere, such as a debt that its ledger settled. Asks it nothing, so that the caller
    /// may hold a lock of its own; what comes back is dropped after that lock.
    pub(crate) fn withdraw(&self, id: EntryId) -> Option<Withdrawn> {
        self.remove(id).map(Withdrawn)
    }

    fn remove(&self, id: EntryId) -> Option<Arc<Entry>> {
        let mut state = lock(&self.state);
        state.fresh.remove(&id);
        state.entries.remove(&id)
    }

    /// Nobody can read this quarantine any more. Says once what is leaked, if anything is.
    pub(crate) fn orphan(&self) {
        let first = !mem::replace(&mut lock(&self.state).orphaned, true);
        let count = self.count();
        if first && count > 0 {
            tracing::error!(
                domain = &*self.domain,
                count,
                bytes = self.bytes(),
                "domain dropped, its quarantine is leaked on purpose"
            );
        }
    }

    pub(crate) fn count_owner(&self) {
        self.owners.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn uncount_owner(&self) {
        self.owners.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn owners(&self) -> u64 {
        self.owners.load(Ordering::Acquire)
    }

    fn entry(&self, id: EntryId) -> Option<Arc<Entry>> {
        lock(&self.state).entries.get(&id).map(Arc::clone)
    }

    fn entries(&self) -> Vec<(EntryId, Arc<Entry>)> {
        lock(&self.state)
            .entries
            .iter()
            .map(|(id, entry)| (*id, Arc::clone(entry)))
            .collect()
    }
}

impl Entry {
    fn report(&self) -> Option<Report> {
        let inside = lock(&self.inside);
        match (&inside.kept, &inside.last) {
            (Some(kept), _) => Some(kept.report(&self.since)),
            (None, last) => last.clone(),
        }
    }

    fn take_for_attempt(&self) -> Result<Box<dyn Keep>, RetryError> {
        let mut inside = lock(&self.inside);
        let kept = inside.kept.as_mut().ok_or(RetryError::Running)?;
        if let Some(failure) = kept.failure()
            && kept.class() == Class::Terminal
        {
            return Err(RetryError::Terminal(failure));
        }
        match kept.holders() {
            0 => {}
            holders => return Err(RetryError::Held { holders }),
        }
        inside.last = Some(Report {
            in_progress: true,
            ..kept.report(&self.since)
        });
        inside.kept.take().ok_or(RetryError::Running)
    }

    fn take_fresh(&self) -> Fresh {
        let class = lock(&self.inside).kept.as_ref().map(|kept| kept.class());
        match class {
            Some(Class::Retryable | Class::Terminal) => Fresh::Tried,
            Some(Class::NeverAttempted) => {
                self.take_for_attempt().map_or(Fresh::Busy, Fresh::Taken)
            }
            None => Fresh::Busy,
        }
    }
}

/// What maintenance meets.
enum Fresh {
    /// Held by somebody, or being tried by another thread.
    Busy,
    /// To be tried now.
    Taken(Box<dyn Keep>),
    /// A call was made elsewhere meanwhile.
    Tried,
}

impl Drop for Quarantine {
    /// What could not be proven quiet is never freed, not even when nobody can reach it any more.
    fn drop(&mut self) {
        for entry in mem::take(&mut lock(&self.state).entries).into_values() {
            mem::forget(lock(&entry.inside).kept.take());
        }
    }
}

impl fmt::Debug for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quarantine")
            .field("domain", &self.domain)
            .field("count", &self.count())
            .finish()
    }
}

/// What one round of maintenance did.
#[derive(Debug, Default)]
#[must_use = "a failed attempt should be seen by somebody"]
pub struct Maintenance {
    /// The receipts of what was released or settled.
    pub receipts: Vec<Receipt>,
    /// The entries whose attempt failed; they are retryable or terminal from now on.
    pub failed: Vec<EntryId>,
    /// How many entries are left for which no call was made.
    pub left: usize,
}

impl Maintenance {
    /// How many native calls were made.
    #[must_use]
    pub fn attempted(&self) -> usize {
        self.receipts.len() + self.failed.len()
    }
}

/// Why a retry did not give a receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryError {
    /// The call was made and failed; its class says what may follow.
    Failed(Failure),
    /// Refused without a native call: others still hold the object.
    Held {
        /// How many.
        holders: usize,
    },
    /// Refused without a native call: another attempt runs at this moment.
    Running,
    /// Refused without a native call, for ever: this failure may have done anything.
    Terminal(Failure),
    /// There is no such entry.
    Unknown(EntryId),
}

impl fmt::Display for RetryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(failure) => write!(f, "retried and failed: {failure}"),
            Self::Held { holders } => write!(f, "not retried: still held by {holders} others"),
            Self::Running => f.write_str("not retried: another attempt is running"),
            Self::Terminal(failure) => write!(
                f,
                "not retried: nobody knows what the failed call did: {failure}"
            ),
            Self::Unknown(id) => write!(f, "not retried: no {id} in this quarantine"),
        }
    }
}

impl std::error::Error for RetryError {}

/// The quarantine keeps something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotEmpty {
    count: usize,
    listing: String,
}

impl NotEmpty {
    /// How many entries there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }
}

impl fmt::Display for NotEmpty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.listing)
    }
}

impl std::error::Error for NotEmpty {}
