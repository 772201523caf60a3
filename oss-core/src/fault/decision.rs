//! What a plan answers for one call.
//!
//! Promises: a decision is a plain value without allocation; where several rules fire on one call, the first one in the
//! plan that says something about a field decides that field. Does not do: carrying the fault out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::rule::Rule;
use super::spec;
use crate::Errno;
use crate::completion::{Cause, Fence, Submission};

/// Everything that shall go wrong with one call. A site reads the fields that it can carry out.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Decision {
    /// The number of this call at its site, from 1.
    pub call: u64,
    /// The answer, the packet or the completion comes this much later on the plan's clock.
    pub delay: Option<Duration>,
    /// The drain fails with this number and proves nothing.
    pub drain: Option<Errno>,
    /// The packet or the completion never comes.
    pub drop: bool,
    /// The packet or the completion comes this many additional times.
    pub duplicate: u32,
    /// The call fails with this number and does nothing: a refused map or unmap, an error of a poll.
    pub error: Option<Errno>,
    /// This many bytes are pinned beyond what was asked for.
    pub extra: u64,
    /// The fence answers this instead of the truth.
    pub fence: Option<FenceFault>,
    /// The call panics; at the site of a worker, the worker dies.
    pub panic: bool,
    /// At most this many requests of a batch are accepted.
    pub partial: Option<u32>,
    /// The native release call fails so.
    pub release: Option<Release>,
    /// The packet is delivered after this many later ones.
    pub reorder: u32,
    /// The copy stops after this many bytes.
    pub stop: Option<u64>,
    /// The submission ends so instead of the truth.
    pub submit: Option<SubmitFault>,
    /// The packet is cut.
    pub truncate: Option<Truncate>,
    draw: u64,
}

impl Decision {
    pub(super) fn undisturbed(call: u64, draw: u64) -> Self {
        Self {
            call,
            delay: None,
            drain: None,
            drop: false,
            duplicate: 0,
            error: None,
            extra: 0,
            fence: None,
            panic: false,
            partial: None,
            release: None,
            reorder: 0,
            stop: None,
            submit: None,
            truncate: None,
            draw,
        }
    }

    pub(super) fn take(&mut self, rule: &Rule) {
        self.delay = self.delay.or(rule.delay);
        self.drain = self.drain.or(rule.drain);
        self.drop |= rule.drop;
        self.duplicate = first(self.duplicate, rule.duplicate);
        self.error = self.error.or(rule.error);
        self.extra = first(self.extra, rule.extra);
        self.fence = self.fence.or(rule.fence);
        self.panic |= rule.panic;
        self.partial = self.partial.or(rule.partial);
        self.release = self.release.or(rule.release);
        self.reorder = first(self.reorder, rule.reorder);
        self.stop = self.stop.or(rule.stop);
        self.submit = self.submit.or(rule.submit);
        self.truncate = self.truncate.or(rule.truncate);
    }

    /// Whether nothing goes wrong with this call.
    #[must_use]
    pub fn is_undisturbed(&self) -> bool {
        *self == Self::undisturbed(self.call, self.draw)
    }

    /// A number below `bound` that belongs to this call; 0 for a bound of 0.
    ///
    /// It is the same in every run with the same seed; the bias of at most `bound` in 2^64 does not matter for faults.
    #[must_use]
    pub fn draw_below(&self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.draw % bound }
    }

    /// The length to which a packet of `len` bytes is cut; `len` itself where it is left whole.
    #[must_use]
    pub fn truncated(&self, len: usize) -> usize {
        match self.truncate {
            None => len,
            Some(Truncate::Anywhere) => {
                // The draw is below the length, which is a usize, so it fits one.
                usize::try_from(self.draw_below(len as u64)).unwrap_or(len)
            }
            Some(Truncate::To(to)) => len.min(to as usize),
        }
    }

    /// How many requests of a batch of `len` are accepted.
    #[must_use]
    pub fn accepted(&self, len: usize) -> usize {
        self.partial.map_or(len, |most| len.min(most as usize))
    }
}

fn first<T: PartialEq + Default>(held: T, offered: T) -> T {
    if held == T::default() { offered } else { held }
}

/// A failed native release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Release {
    /// The number that the call returns; a name or a number in text.
    #[serde(with = "spec::errno")]
    pub errno: Errno,
    /// What the number proves.
    pub class: Class,
}

/// What a failed release proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Nobody knows what the call did.
    Ambiguous,
    /// The call certainly did nothing.
    NothingDone,
}

/// How a submission ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum SubmitFault {
    /// Certainly not submitted, with this number.
    NotSubmitted(#[serde(with = "spec::errno")] Errno),
    /// Possibly submitted, with this number.
    PossiblySubmitted(#[serde(with = "spec::errno")] Errno),
}

impl SubmitFault {
    /// The outcome that the decorated call returns.
    #[must_use]
    pub fn outcome(self) -> Submission {
        match self {
            Self::NotSubmitted(errno) => {
                Submission::NotSubmitted(Cause::errno("fault plan: submit", errno))
            }
            Self::PossiblySubmitted(errno) => {
                Submission::PossiblySubmitted(Cause::errno("fault plan: submit", errno))
            }
        }
    }
}

/// What a fence answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FenceFault {
    /// Failed, with nothing still running, with this number.
    FailedQuiescent(#[serde(with = "spec::errno")] Errno),
    /// The device cannot say.
    Indeterminate,
    /// Not finished.
    Pending,
}

impl FenceFault {
    /// The observation that the decorated call returns.
    #[must_use]
    pub fn outcome(self) -> Fence {
        match self {
            Self::FailedQuiescent(errno) => {
                Fence::FailedQuiescent(Cause::errno("fault plan: fence", errno))
            }
            Self::Indeterminate => Fence::Indeterminate,
            Self::Pending => Fence::Pending,
        }
    }
}

/// Where a packet is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Truncate {
    /// At a place that the seed decides, below the length.
    Anywhere,
    /// To this many bytes.
    To(u32),
}
