//! The written form of a plan: TOML or JSON in, all faults of the text out.
//!
//! Promises: unknown fields are errors; validation reports every fault at once, each with field, value and what is allowed;
//! what [`Plan::to_json`](super::Plan::to_json) writes is read back as the same plan. Does not do: reading files.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::decision::{FenceFault, Release, SubmitFault, Truncate};
use super::rule::Rule;
use super::{Plan, Shared};
use crate::Errno;
use crate::clock::Clock;
use crate::sync::{Arc, lock};

impl Plan {
    /// Reads a plan from JSON text, on this clock.
    ///
    /// # Errors
    /// [`PlanError`] with everything that is wrong with the text.
    pub fn from_json(text: &str, clock: Arc<dyn Clock>) -> Result<Self, PlanError> {
        let spec: Spec =
            serde_json::from_str(text).map_err(|error| PlanError::syntax(&error.to_string()))?;
        spec.build(clock)
    }

    /// Reads a plan that is a part of a larger text, such as a table of provider options, on this clock.
    ///
    /// # Errors
    /// [`PlanError`] with everything that is wrong with this part.
    pub fn read<'de, D: serde::Deserializer<'de>>(
        from: D,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, PlanError> {
        let spec =
            Spec::deserialize(from).map_err(|error| PlanError::syntax(&error.to_string()))?;
        spec.build(clock)
    }

    /// Reads a plan from TOML text, on this clock.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use lockgate::{clock::ManualClock, fault::Plan};
    /// let text = r#"
    /// seed = 42
    ///
    /// [[rules]]
    /// site = "loopback.receive"
    /// chance = 0.01
    /// drop = true
    ///
    /// [[rules]]
    /// site = "qp.destroy"
    /// call = 3
    /// release = { errno = "EIO", class = "ambiguous" }
    ///
    /// [[rules]]
    /// site = "cpu.submit"
    /// from = 10
    /// times = 2
    /// submit = { not_submitted = 11 }
    /// "#;
    /// let plan = Plan::from_toml(text, Arc::new(ManualClock::new())).expect("a valid plan");
    /// assert_eq!(plan.to_string(), "fault plan with seed 42 and 3 rules");
    /// ```
    ///
    /// # Errors
    /// [`PlanError`] with everything that is wrong with the text.
    #[cfg(feature = "toml")]
    pub fn from_toml(text: &str, clock: Arc<dyn Clock>) -> Result<Self, PlanError> {
        let spec: Spec =
            toml::from_str(text).map_err(|error| PlanError::syntax(&error.to_string()))?;
        spec.build(clock)
    }

    /// The plan as JSON text, from which the same faults come again. Counters of calls are not part of it.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Shared { seed, state, .. } = &*self.shared;
        let rules = lock(state)
            .rules
            .iter()
            .map(|counted| RuleSpec::of(&counted.rule))
            .collect();
        #[expect(
            clippy::expect_used,
            reason = "a struct of numbers, strings and unit enums without maps always serialises"
        )]
        serde_json::to_string_pretty(&Spec { seed: *seed, rules }).expect("a plan serialises")
    }
}

/// The text of a plan is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanError {
    faults: Vec<PlanFault>,
}

impl PlanError {
    /// Every fault of the text, in its order.
    #[must_use]
    pub fn faults(&self) -> &[PlanFault] {
        &self.faults
    }

    fn syntax(text: &str) -> Self {
        Self {
            faults: vec![PlanFault {
                field: "text".to_owned(),
                value: text.trim().to_owned(),
                allowed: "a plan in the documented form".to_owned(),
            }],
        }
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fault plan is not valid")?;
        for fault in &self.faults {
            write!(
                f,
                "; {} is {}, allowed is {}",
                fault.field, fault.value, fault.allowed
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for PlanError {}

/// One fault of the text of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanFault {
    /// Where, such as `rules[2].chance`.
    pub field: String,
    /// The value that stands there.
    pub value: String,
    /// What may stand there.
    pub allowed: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    seed: u64,
    #[serde(default)]
    rules: Vec<RuleSpec>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleSpec {
    site: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    call: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    times: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    chance: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delay_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "some_errno")]
    drain: Option<Errno>,
    #[serde(default, skip_serializing_if = "is_default")]
    drop: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    duplicate: u32,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "some_errno")]
    error: Option<Errno>,
    #[serde(default, skip_serializing_if = "is_default")]
    extra: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fence: Option<FenceFault>,
    #[serde(default, skip_serializing_if = "is_default")]
    panic: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partial: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    release: Option<Release>,
    #[serde(default, skip_serializing_if = "is_default")]
    reorder: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    submit: Option<SubmitFault>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    truncate: Option<Truncate>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Spec {
    fn build(self, clock: Arc<dyn Clock>) -> Result<Plan, PlanError> {
        let mut faults = Vec::new();
        let plan = Plan::on_clock(self.seed, clock);
        for (at, spec) in self.rules.into_iter().enumerate() {
            plan.add(spec.check(at, &mut faults));
        }
        if faults.is_empty() {
            Ok(plan)
        } else {
            Err(PlanError { faults })
        }
    }
}

impl RuleSpec {
    fn of(rule: &Rule) -> Self {
        Self {
            site: rule.site.clone(),
            call: None,
            from: (rule.from != 1).then_some(rule.from),
            times: rule.times,
            every: (rule.every != 1).then_some(rule.every),
            chance: (rule.chance < 1.0).then_some(rule.chance.max(0.0)),
            delay_ns: rule
                .delay
                .map(|delay| u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
            drain: rule.drain,
            drop: rule.drop,
            duplicate: rule.duplicate,
            error: rule.error,
            extra: rule.extra,
            fence: rule.fence,
            panic: rule.panic,
            partial: rule.partial,
            release: rule.release,
            reorder: rule.reorder,
            stop: rule.stop,
            submit: rule.submit,
            truncate: rule.truncate,
        }
    }

    fn check(self, at: usize, faults: &mut Vec<PlanFault>) -> Rule {
        let mut fault = |name: &str, value: String, allowed: &str| {
            faults.push(PlanFault {
                field: format!("rules[{at}].{name}"),
                value,
                allowed: allowed.to_owned(),
            });
        };
        let star = self.site.find('*');
        if self.site.is_empty() || star.is_some_and(|place| place + 1 != self.site.len()) {
            fault(
                "site",
                format!("{:?}", self.site),
                "the name of a site, or the beginning of one and `*`",
            );
        }
        for (name, number) in [
            ("call", self.call),
            ("from", self.from),
            ("times", self.times),
            ("every", self.every),
        ] {
            if number == Some(0) {
                fault(name, "0".to_owned(), "1 or more, since calls count from 1");
            }
        }
        if self.call.is_some() && (self.from.is_some() || self.times.is_some()) {
            fault(
                "call",
                "beside `from` or `times`".to_owned(),
                "either `call`, or `from` and `times`",
            );
        }
        if let Some(chance) = self.chance
            && !(0.0..=1.0).contains(&chance)
        {
            fault("chance", chance.to_string(), "0 to 1");
        }
        let rule = Rule {
            from: self.call.or(self.from).unwrap_or(1),
            times: self.call.map(|_| 1).or(self.times),
            every: self.every.unwrap_or(1).max(1),
            chance: self.chance.unwrap_or(1.0),
            delay: self.delay_ns.map(Duration::from_nanos),
            drain: self.drain,
            drop: self.drop,
            duplicate: self.duplicate,
            error: self.error,
            extra: self.extra,
            fence: self.fence,
            panic: self.panic,
            partial: self.partial,
            release: self.release,
            reorder: self.reorder,
            stop: self.stop,
            submit: self.submit,
            truncate: self.truncate,
            ..Rule::at(self.site)
        };
        if !rule.has_effect() {
            fault(
                "site",
                format!("{:?} without an effect", rule.site),
                "at least one effect, such as `drop = true`",
            );
        }
        rule
    }
}

/// An error number in text: its name or the number itself.
pub(super) mod errno {
    use super::{Deserialize, Errno, Serialize};
    use serde::{Deserializer, Serializer, de::Error};

    #[derive(Deserialize, Serialize)]
    #[serde(untagged)]
    pub(in crate::fault) enum Written {
        Number(i32),
        Name(String),
    }

    impl Written {
        pub(in crate::fault) fn parse<E: Error>(self) -> Result<Errno, E> {
            match self {
                Self::Number(number) if number > 0 => Ok(Errno::from_raw(number)),
                Self::Number(number) => Err(E::custom(format!(
                    "an error number is 1 or more, not {number}"
                ))),
                // Linux numbers its errors without large gaps and below 4096.
                Self::Name(name) => (1..4096)
                    .map(Errno::from_raw)
                    .find(|errno| errno.name() == Some(name.as_str()))
                    .ok_or_else(|| E::custom(format!("no error number is named {name:?}"))),
            }
        }

        pub(in crate::fault) fn of(errno: Errno) -> Self {
            match errno.name() {
                Some(name) => Self::Name(name.to_owned()),
                None => Self::Number(errno.raw()),
            }
        }
    }

    pub(in crate::fault) fn serialize<S: Serializer>(
        errno: &Errno,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        Written::of(*errno).serialize(to)
    }

    pub(in crate::fault) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Errno, D::Error> {
        Written::deserialize(from)?.parse()
    }
}

mod some_errno {
    use super::errno::Written;
    use super::{Deserialize, Errno, Serialize};
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        errno: &Option<Errno>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        errno.map(Written::of).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Errno>, D::Error> {
        Option::<Written>::deserialize(from)?
            .map(Written::parse)
            .transpose()
    }
}
