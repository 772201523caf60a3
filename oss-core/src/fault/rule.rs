//! One rule of a plan: where, on which calls, and what goes wrong.
//!
//! Promises: a rule is a plain value; whether it fires depends on the call's number and the draw alone.
//! Does not do: checking that a site of that name exists; see [`Plan::unfired`](super::Plan::unfired).

use std::time::Duration;

use super::decision::{Class, FenceFault, Release, SubmitFault, Truncate};
use crate::Errno;

/// One rule. It starts as "on every call at this site" and is narrowed by [`call`](Rule::call), [`from`](Rule::from),
/// [`times`](Rule::times), [`every`](Rule::every) and [`chance`](Rule::chance), which all have to agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    pub(super) site: String,
    pub(super) from: u64,
    pub(super) times: Option<u64>,
    pub(super) every: u64,
    pub(super) chance: f64,
    pub(super) delay: Option<Duration>,
    pub(super) drain: Option<Errno>,
    pub(super) drop: bool,
    pub(super) duplicate: u32,
    pub(super) error: Option<Errno>,
    pub(super) extra: u64,
    pub(super) fence: Option<FenceFault>,
    pub(super) panic: bool,
    pub(super) partial: Option<u32>,
    pub(super) release: Option<Release>,
    pub(super) reorder: u32,
    pub(super) stop: Option<u64>,
    pub(super) submit: Option<SubmitFault>,
    pub(super) truncate: Option<Truncate>,
}

impl Rule {
    /// A rule for the site of this name. A name that ends in `*` stands for every site that begins with what is before it.
    #[must_use]
    pub fn at(site: impl Into<String>) -> Self {
        Self {
            site: site.into(),
            from: 1,
            times: None,
            every: 1,
            chance: 1.0,
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
        }
    }

    /// The site, or the beginning of its name and `*`.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Only on the n-th call, from 1.
    #[must_use]
    pub fn call(self, number: u64) -> Self {
        self.from(number).times(1)
    }

    /// On the n-th call and after it.
    #[must_use]
    pub fn from(mut self, number: u64) -> Self {
        self.from = number;
        self
    }

    /// On this many calls in a row, beginning with the first one allowed by [`from`](Rule::from).
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// On every n-th call, counted from the first one allowed. 0 is the same as 1.
    #[must_use]
    pub fn every(mut self, every: u64) -> Self {
        self.every = every.max(1);
        self
    }

    /// With this probability, decided by the seed. Values outside 0 to 1 are never and always.
    #[must_use]
    pub fn chance(mut self, chance: f64) -> Self {
        self.chance = chance;
        self
    }

    /// The answer, packet or completion comes later.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// The drain fails.
    #[must_use]
    pub fn drain(mut self, errno: Errno) -> Self {
        self.drain = Some(errno);
        self
    }

    /// The packet or completion never comes.
    #[must_use]
    pub fn drop_it(mut self) -> Self {
        self.drop = true;
        self
    }

    /// The packet or completion comes `copies` additional times.
    #[must_use]
    pub fn duplicate(mut self, copies: u32) -> Self {
        self.duplicate = copies;
        self
    }

    /// The call fails and does nothing.
    #[must_use]
    pub fn error(mut self, errno: Errno) -> Self {
        self.error = Some(errno);
        self
    }

    /// More bytes are pinned than were asked for.
    #[must_use]
    pub fn extra(mut self, bytes: u64) -> Self {
        self.extra = bytes;
        self
    }

    /// The fence answers this.
    #[must_use]
    pub fn fence(mut self, fence: FenceFault) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The call panics.
    #[must_use]
    pub fn panic(mut self) -> Self {
        self.panic = true;
        self
    }

    /// At most this many requests of a batch are accepted.
    #[must_use]
    pub fn partial(mut self, most: u32) -> Self {
        self.partial = Some(most);
        self
    }

    /// The native release call fails.
    #[must_use]
    pub fn release(mut self, errno: Errno, class: Class) -> Self {
        self.release = Some(Release { errno, class });
        self
    }

    /// The packet is delivered after this many later ones.
    #[must_use]
    pub fn reorder(mut self, behind: u32) -> Self {
        self.reorder = behind;
        self
    }

    /// The copy stops after this many bytes.
    #[must_use]
    pub fn stop(mut self, bytes: u64) -> Self {
        self.stop = Some(bytes);
        self
    }

    /// The submission ends so.
    #[must_use]
    pub fn submit(mut self, submit: SubmitFault) -> Self {
        self.submit = Some(submit);
        self
    }

    /// The packet is cut.
    #[must_use]
    pub fn truncate(mut self, truncate: Truncate) -> Self {
        self.truncate = Some(truncate);
        self
    }

    pub(super) fn applies(&self, site: &str, call: u64, draw: u64) -> bool {
        let named = match self.site.strip_suffix('*') {
            Some(beginning) => site.starts_with(beginning),
            None => self.site == site,
        };
        let Some(past) = call.checked_sub(self.from) else {
            return false;
        };
        named
            && self.times.is_none_or(|times| past < times)
            && past.is_multiple_of(self.every)
            && unit(draw) < self.chance
    }

    pub(super) fn has_effect(&self) -> bool {
        let bare = Self {
            from: self.from,
            times: self.times,
            every: self.every,
            chance: self.chance,
            ..Self::at(self.site.clone())
        };
        *self != bare
    }
}

/// The draw as a number in [0, 1) with the 53 bits that a double can hold.
fn unit(draw: u64) -> f64 {
    let top = (draw >> 11) as f64;
    top / (1u64 << 53) as f64
}
