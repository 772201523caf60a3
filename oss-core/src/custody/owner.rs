//! The one value that owns a native object.
//!
//! Promises: the native release call is made at most once, only when nobody holds the object, and only by an explicit close, by
//! the drop of a quiet owner, or by an explicit call on the quarantine. Whatever is not released keeps its handle, its dependants
//! and its charge together. Does not do: closing dependants, or waiting for holders.

use std::borrow::Cow;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::budget::{Charge, Raise};
use super::domain::Core;
use super::held::Held;
use super::identity::{Evidence, Identity};
use super::native::{Native, Receipt, Release};
use super::quarantine::{EntryId, Keep};
use super::report::{Attempt, Class, Failure, HeldReport, Report};
use super::serials::Serial;
use super::stamp::Stamp;
use crate::sync::Arc;

/// Owns one native object, what it depends on, and what it is charged.
///
/// Closing is explicit. Dropping without closing makes the one native release call if nobody holds the object; a failure, or a
/// holder, moves everything to the quarantine of the domain instead.
#[must_use = "dropping an owner releases the native object at once"]
pub struct Owner<N: Native> {
    /// `Some` until the owner is closed or dropped.
    kept: Option<Box<Kept<N>>>,
    core: Arc<Core>,
}

/// What stays together until a receipt. The order of the fields is the order in which they go: first the provider's handle, then
/// what it needed, then the bytes, so that bytes never come back before the memory that they stand for.
struct Kept<N> {
    native: N,
    deps: Vec<Arc<Held>>,
    charge: Charge,
    /// The clones of this are the holders.
    me: Arc<Held>,
    object: Serial,
    attempts: Vec<Attempt>,
}

impl<N: Native> Owner<N> {
    pub(super) fn new(
        core: Arc<Core>,
        object: Serial,
        native: N,
        deps: Vec<Arc<Held>>,
        charge: Charge,
    ) -> Self {
        let identity = native.identity();
        core.quarantine.count_owner();
        Self {
            kept: Some(Box::new(Kept {
                native,
                deps,
                charge,
                me: Held::owner(identity, object),
                object,
                attempts: Vec::new(),
            })),
            core,
        }
    }

    /// Keeps this owner from being released as long as the returned value or a clone of it exists.
    ///
    /// A queue pair holds its protection domain so, and a loan holds the region.
    #[must_use]
    pub fn hold(&self) -> Arc<Held> {
        Arc::clone(&self.kept().me)
    }

    /// Adds something that must stay alive while this owner is unresolved.
    pub fn depend_on(&mut self, held: Arc<Held>) {
        self.kept_mut().deps.push(held);
    }

    /// The provider's handle.
    #[must_use]
    pub fn native(&self) -> &N {
        &self.kept().native
    }

    /// The provider's handle, to be changed.
    #[must_use]
    pub fn native_mut(&mut self) -> &mut N {
        &mut self.kept_mut().native
    }

    /// The identity that the object had when it was taken into custody.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.kept().me.identity()
    }

    /// The serial of this owner in its domain.
    #[must_use]
    pub fn object(&self) -> Serial {
        self.kept().object
    }

    /// The bytes that it is charged.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.kept().charge.bytes()
    }

    /// Raises the charge to what the backend says it really pinned.
    pub fn raise_charge(&mut self, pinned: u64) -> Raise {
        self.kept_mut().charge.raise_to(pinned)
    }

    /// How many values from [`hold`](Owner::hold) exist. Exact only while no other thread makes or drops one.
    #[must_use]
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.kept().me) - 1
    }

    /// Makes the one native release call.
    ///
    /// # Errors
    /// [`Unreleased`] with everything inside: no call was made because somebody holds the object, or the call failed.
    pub fn close(mut self) -> Result<Receipt, Unreleased<N>> {
        let kept = self.take();
        release(kept, &self.core)
    }

    /// Begins the one native release for callers that await it instead of blocking in [`Native::release`].
    ///
    /// # Errors
    /// [`Unreleased`] with everything inside, because somebody holds the object; nothing has begun then.
    pub fn begin_close(mut self) -> Result<Releasing<N>, Unreleased<N>> {
        let mut kept = self.take();
        let core = Arc::clone(&self.core);
        if kept.is_held() {
            return Err(Unreleased {
                kept: Some(kept),
                core,
            });
        }
        Ok(Releasing {
            kept: Some(kept),
            core,
        })
    }

    fn kept(&self) -> &Kept<N> {
        #[expect(
            clippy::expect_used,
            reason = "only methods that consume the owner, and `drop`, take what is inside"
        )]
        self.kept
            .as_ref()
            .expect("an owner that lives is not taken")
    }

    fn kept_mut(&mut self) -> &mut Kept<N> {
        #[expect(
            clippy::expect_used,
            reason = "only methods that consume the owner, and `drop`, take what is inside"
        )]
        self.kept
            .as_mut()
            .expect("an owner that lives is not taken")
    }

    fn take(&mut self) -> Box<Kept<N>> {
        #[expect(
            clippy::expect_used,
            reason = "only methods that consume the owner, and `drop`, take what is inside"
        )]
        self.kept.take().expect("an owner that lives is not taken")
    }
}

fn release<N: Native>(mut kept: Box<Kept<N>>, core: &Arc<Core>) -> Result<Receipt, Unreleased<N>> {
    let outcome = if kept.is_held() {
        None
    } else {
        kept.attempt(&|| core.stamp()).ok()
    };
    finish(kept, core, outcome)
}

fn finish<N: Native>(
    kept: Box<Kept<N>>,
    core: &Arc<Core>,
    receipt: Option<Receipt>,
) -> Result<Receipt, Unreleased<N>> {
    match receipt {
        Some(receipt) => {
            // The count goes last, so that whoever finds no owner finds the charges back, too.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(kept)));
            core.quarantine.uncount_owner();
            match dropped {
                Ok(()) => Ok(receipt),
                Err(panic) => resume_unwind(panic),
            }
        }
        None => Err(Unreleased {
            kept: Some(kept),
            core: Arc::clone(core),
        }),
    }
}

impl<N: Native> Drop for Owner<N> {
    fn drop(&mut self) {
        let Some(kept) = self.kept.take() else {
            return;
        };
        tracing::debug!(object = %kept.me.identity(), "owner dropped without close");
        // The value that comes back after a failure moves itself to the quarantine when it is dropped.
        let released = catch_unwind(AssertUnwindSafe(|| drop(release(kept, &self.core))));
        if released.is_err() {
            tracing::error!("the handle of a released object panicked when it was dropped");
        }
    }
}

impl<N: Native> fmt::Debug for Owner<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({}, object {})", self.identity(), self.object())
    }
}

impl<N: Native> Kept<N> {
    /// Whether somebody else holds the object. Unlike a count, this also sees everything that the last holder did before
    /// it let go.
    fn is_held(&mut self) -> bool {
        Arc::get_mut(&mut self.me).is_none()
    }

    fn class(&self) -> Class {
        self.attempts
            .last()
            .map_or(Class::NeverAttempted, |last| last.failure.class)
    }

    /// The native call. Whoever calls this has made sure that the class allows it and that nobody holds the object.
    fn attempt(&mut self, stamp: &dyn Fn() -> Stamp) -> Result<Receipt, Failure> {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.native.release()))
            .map_err(|panic| panic_text(&*panic));
        self.note(outcome, stamp)
    }

    /// What the native call did, or what is known instead of it.
    fn note(
        &mut self,
        outcome: Result<Release, String>,
        stamp: &dyn Fn() -> Stamp,
    ) -> Result<Receipt, Failure> {
        let (errno, class, detail) = match outcome {
            Ok(Release::Released(receipt)) => {
                return Ok(receipt.stamped(Some(self.object), self.charge.bytes(), stamp()));
            }
            Ok(Release::NothingDone(errno)) => (Some(errno), Class::Retryable, None),
            Ok(Release::Ambiguous(errno)) => (Some(errno), Class::Terminal, None),
            Err(words) => (None, Class::Terminal, Some(words)),
        };
        let failure = Failure {
            call: Cow::Borrowed(self.native.release_call()),
            errno,
            class,
            detail,
        };
        self.attempts.push(Attempt {
            failure: failure.clone(),
            by: stamp(),
        });
        Err(failure)
    }

    fn report(&self, since: &Stamp) -> Report {
        let class = self.class();
        let holders = Arc::strong_count(&self.me) - 1;
        Report {
            entry: EntryId::Object(self.object),
            identity: self.me.identity().clone(),
            class,
            waits_for: Cow::Borrowed(match (class, holders) {
                (Class::NeverAttempted, 0) => "maintenance",
                (Class::NeverAttempted, _) => "its holders, then maintenance",
                _ => "",
            }),
            attempts: self.attempts.clone(),
            since: since.clone(),
            bytes: self.charge.bytes(),
            held: self.deps.iter().map(|held| held_report(held)).collect(),
            holders,
            evidence: catch_unwind(AssertUnwindSafe(|| self.native.evidence())).unwrap_or_else(
                |panic| {
                    let text = panic_text(&*panic);
                    Evidence::new(super::Alive::Unknown, format!("the query panicked: {text}"))
                },
            ),
            in_progress: false,
        }
    }
}

pub(crate) fn held_report(held: &Held) -> HeldReport {
    HeldReport {
        identity: held.identity().clone(),
        object: held.object(),
        bytes: held.bytes(),
    }
}

/// The words of a panic, where it has any.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", words.unwrap_or("without words"))
}

impl<N: Native> Keep for Kept<N> {
    fn class(&self) -> Class {
        self.class()
    }

    fn failure(&self) -> Option<Failure> {
        self.attempts.last().map(|last| last.failure.clone())
    }

    fn holders(&mut self) -> usize {
        // At least one if it is held: the count alone may already miss a holder whose work is not yet visible here.
        if self.is_held() {
            (Arc::strong_count(&self.me) - 1).max(1)
        } else {
            0
        }
    }

    fn attempt(&mut self, stamp: &dyn Fn() -> Stamp) -> Result<Receipt, Failure> {
        self.attempt(stamp)
    }

    fn report(&self, since: &Stamp) -> Report {
        self.report(since)
    }

    fn deps(&self) -> Vec<Arc<Held>> {
        self.deps.clone()
    }

    fn bytes(&self) -> u64 {
        self.charge.bytes()
    }

    fn counts_as_owner(&self) -> bool {
        true
    }
}

/// An object that was not released, with everything inside.
///
/// Closing again answers the same failure without a native call. Dropping it moves it to the quarantine.
#[must_use = "dropping this moves the object to the quarantine of its domain"]
pub struct Unreleased<N: Native> {
    /// `Some` until it is closed, handed over or dropped.
    kept: Option<Box<Kept<N>>>,
    core: Arc<Core>,
}

impl<N: Native> Unreleased<N> {
    /// What may be done with it.
    #[must_use]
    pub fn class(&self) -> Class {
        self.kept().class()
    }

    /// The failed call; `None` if none was made because somebody holds the object.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.kept().attempts.last().map(|last| &last.failure)
    }

    /// Everything that is known about it, with a live native query.
    #[must_use]
    pub fn report(&self) -> Report {
        self.kept().report(&self.core.stamp())
    }

    /// The provider's handle.
    #[must_use]
    pub fn native(&self) -> &N {
        &self.kept().native
    }

    /// Closes once more. After a failed call this answers the same failure without another one. If no call was made so far
    /// and nobody holds the object any more, this makes the one call.
    ///
    /// # Errors
    /// Itself, with the same failure or with that of the one call.
    pub fn close(mut self) -> Result<Receipt, Self> {
        if self.class() != Class::NeverAttempted {
            return Err(self);
        }
        match self.kept.take() {
            Some(kept) => release(kept, &self.core),
            None => Err(self),
        }
    }

    /// Hands it to the quarantine of its domain and says under which address it is listed there.
    pub fn quarantine(mut self) -> EntryId {
        let object = self.kept().object;
        self.hand_over();
        EntryId::Object(object)
    }

    fn hand_over(&mut self) {
        if let Some(kept) = self.kept.take() {
            let entry = EntryId::Object(kept.object);
            self.core.quarantine.take_in(entry, kept, self.core.stamp());
        }
    }

    fn kept(&self) -> &Kept<N> {
        #[expect(
            clippy::expect_used,
            reason = "only methods that consume the value and `drop` take what is inside"
        )]
        self.kept.as_ref().expect("a value that lives is not taken")
    }
}

impl<N: Native> Drop for Unreleased<N> {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl<N: Native> fmt::Display for Unreleased<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = self.kept();
        write!(f, "{} was not released: ", kept.me.identity())?;
        match self.failure() {
            Some(failure) => failure.fmt(f),
            None => write!(f, "held by {} others", Arc::strong_count(&kept.me) - 1),
        }
    }
}

impl<N: Native> fmt::Debug for Unreleased<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unreleased({self})")
    }
}

impl<N: Native> std::error::Error for Unreleased<N> {}

/// An object whose one native release has begun and is awaited.
///
/// Dropping this before [`finish`](Releasing::finish), such as with a cancelled future, leaves the outcome unknown: the object
/// moves to the quarantine and is never released again.
#[must_use = "dropping this leaves the outcome of the release unknown for ever"]
pub struct Releasing<N: Native> {
    /// `Some` until it is finished or dropped.
    kept: Option<Box<Kept<N>>>,
    core: Arc<Core>,
}

impl<N: Native> Releasing<N> {
    /// The provider's handle, to make the call and to await it.
    #[must_use]
    pub fn native_mut(&mut self) -> &mut N {
        #[expect(
            clippy::expect_used,
            reason = "only `finish`, which consumes the value, and `drop` take what is inside"
        )]
        &mut self
            .kept
            .as_mut()
            .expect("a value that lives is not taken")
            .native
    }

    /// The release has ended so.
    ///
    /// # Errors
    /// [`Unreleased`] with everything inside, if it failed.
    pub fn finish(mut self, outcome: Release) -> Result<Receipt, Unreleased<N>> {
        #[expect(
            clippy::expect_used,
            reason = "only this, which consumes the value, and `drop` take what is inside"
        )]
        let mut kept = self.kept.take().expect("a value that lives is not taken");
        let receipt = kept.note(Ok(outcome), &|| self.core.stamp()).ok();
        finish(kept, &self.core, receipt)
    }
}

impl<N: Native> Drop for Releasing<N> {
    fn drop(&mut self) {
        if let Some(mut kept) = self.kept.take() {
            let words = "begun, and given up before its outcome was known".to_owned();
            // The failure is noted inside; what is wanted here is that it is.
            let _ = kept.note(Err(words), &|| self.core.stamp());
            drop(Unreleased {
                kept: Some(kept),
                core: Arc::clone(&self.core),
            });
        }
    }
}

impl<N: Native> fmt::Debug for Releasing<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let identity = self.kept.as_ref().map(|kept| kept.me.identity());
        f.debug_struct("Releasing")
            .field("identity", &identity)
            .finish()
    }
}
