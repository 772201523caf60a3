//! One seeded plan of faults that decorators of all kinds consult.
//!
//! A [`Plan`] is a seed, a clock and a list of [`Rule`]s. Code that can be made to fail names the place, its *site*
//! (`qp.destroy`, `memory.map`, `loopback.receive`, `cpu.submit`), and consults the plan once per call. The [`Decision`] that
//! comes back says everything that shall go wrong with that call; what a site cannot do it ignores.
//!
//! Promises: a decision depends on the seed, the name of the site, the number of the call at that site and the rule, and on
//! nothing else; threads that use different sites cannot disturb each other's decisions. The n-th call is counted from 1.
//! Does not do: sleeping, or carrying out a fault. The decorator does, against [`Plan::clock`].
//!
//! ```
//! use lockgate::Errno;
//! use lockgate::fault::{Class, Plan, Rule};
//!
//! let plan = Plan::seeded(7)
//!     .with(Rule::at("qp.destroy").call(2).release(Errno::IO, Class::Ambiguous))
//!     .with(Rule::at("loopback.receive").chance(0.25).drop_it());
//! let destroy = plan.site("qp.destroy");
//! assert!(destroy.next().release.is_none());
//! let fault = destroy.next().release.expect("the second call fails");
//! assert_eq!((fault.errno, fault.class), (Errno::IO, Class::Ambiguous));
//! assert!(destroy.next().release.is_none());
//! assert_eq!(plan.to_string(), "fault plan with seed 7 and 2 rules");
//! ```

mod decision;
mod rule;
mod spec;
#[cfg(all(test, not(loom)))]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use crate::clock::{Clock, SystemClock};
use crate::sync::{Arc, Mutex, lock};

pub use decision::{Class, Decision, FenceFault, Release, SubmitFault, Truncate};
pub use rule::Rule;
pub use spec::{PlanError, PlanFault};

/// The plan: cheap to clone; clones share the rules and the counters of calls.
#[derive(Clone)]
pub struct Plan {
    shared: Arc<Shared>,
}

struct Shared {
    seed: u64,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Counted>,
    calls: BTreeMap<String, u64>,
}

struct Counted {
    rule: Rule,
    fired: u64,
}

impl Plan {
    /// A plan without rules, on the system's clock: it disturbs nothing and counts the calls.
    #[must_use]
    pub fn quiet() -> Self {
        Self::seeded(0)
    }

    /// A plan without rules, with this seed, on the system's clock.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self::on_clock(seed, Arc::new(SystemClock::new()))
    }

    /// A plan without rules on a clock of the caller's.
    #[must_use]
    pub fn on_clock(seed: u64, clock: Arc<dyn Clock>) -> Self {
        Self {
            shared: Arc::new(Shared {
                seed,
                clock,
                state: Mutex::new(State::default()),
            }),
        }
    }

    /// Adds a rule and gives the plan back, for plans built in one expression.
    #[must_use]
    pub fn with(self, rule: Rule) -> Self {
        self.add(rule);
        self
    }

    /// Adds a rule to a plan in use. Its calls are counted from the start of the plan, as for every rule; see
    /// [`Rule::from`] and [`Plan::calls`] for "from now on".
    pub fn add(&self, rule: Rule) {
        lock(&self.shared.state)
            .rules
            .push(Counted { rule, fired: 0 });
    }

    /// Takes away every rule for exactly this site pattern and says how many there were. Counters of calls stay.
    pub fn clear(&self, site: &str) -> usize {
        let mut state = lock(&self.shared.state);
        let before = state.rules.len();
        state.rules.retain(|counted| counted.rule.site != site);
        before - state.rules.len()
    }

    /// A named place that consults this plan. Two values for one name share the counter.
    #[must_use]
    pub fn site(&self, name: impl Into<String>) -> Site {
        Site {
            plan: self.clone(),
            name: name.into(),
        }
    }

    /// Consults the plan for the next call at a site; the same as [`Site::next`].
    #[must_use]
    pub fn consult(&self, site: &str) -> Decision {
        let mut state = lock(&self.shared.state);
        let state = &mut *state;
        let call = match state.calls.get_mut(site) {
            Some(calls) => {
                *calls += 1;
                *calls
            }
            None => {
                state.calls.insert(site.to_owned(), 1);
                1
            }
        };
        let base = mix(self.shared.seed ^ hash(site)).wrapping_add(call);
        let mut decision = Decision::undisturbed(call, mix(base));
        for (at, counted) in state.rules.iter_mut().enumerate() {
            let draw = mix(base ^ mix(at as u64 + 1));
            if counted.rule.applies(site, call, draw) {
                counted.fired += 1;
                decision.take(&counted.rule);
            }
        }
        decision
    }

    /// How often a site has consulted the plan.
    #[must_use]
    pub fn calls(&self, site: &str) -> u64 {
        lock(&self.shared.state)
            .calls
            .get(site)
            .copied()
            .unwrap_or(0)
    }

    /// Every site that has consulted the plan, with its number of calls, in the order of names.
    #[must_use]
    pub fn sites(&self) -> Vec<(String, u64)> {
        lock(&self.shared.state)
            .calls
            .iter()
            .map(|(name, calls)| (name.clone(), *calls))
            .collect()
    }

    /// The rules that have never fired. A test that expects its faults asserts that this is empty: a misspelt site would
    /// otherwise look like a passed test.
    #[must_use]
    pub fn unfired(&self) -> Vec<Rule> {
        lock(&self.shared.state)
            .rules
            .iter()
            .filter(|counted| counted.fired == 0)
            .map(|counted| counted.rule.clone())
            .collect()
    }

    /// The seed, for the line that a failing test prints.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// The clock against which a decorator carries out delays.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }
}

impl Default for Plan {
    fn default() -> Self {
        Self::quiet()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = lock(&self.shared.state).rules.len();
        let noun = if rules == 1 { "rule" } else { "rules" };
        write!(
            f,
            "fault plan with seed {} and {rules} {noun}",
            self.shared.seed
        )
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.shared.state);
        let rules: Vec<&Rule> = state.rules.iter().map(|counted| &counted.rule).collect();
        f.debug_struct("Plan")
            .field("seed", &self.shared.seed)
            .field("rules", &rules)
            .field("calls", &state.calls)
            .finish()
    }
}

/// One named place that consults a plan.
#[derive(Clone, Debug)]
pub struct Site {
    plan: Plan,
    name: String,
}

impl Site {
    /// Counts one call here and says what shall go wrong with it.
    #[must_use]
    pub fn next(&self) -> Decision {
        self.plan.consult(&self.name)
    }

    /// The name that rules use.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The plan behind it.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// SplitMix64's finaliser (Steele, Lea, Flood 2014): a bijection whose output bits each depend on every input bit.
pub(crate) fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// FNV-1a over the name: fixed for ever, unlike the standard library's hasher, so that a seed means the same next year.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
