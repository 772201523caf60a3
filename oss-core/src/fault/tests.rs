//! Tests of the plan: counting, determinism, the written form and its faults.

use std::time::Duration;

use super::*;
use crate::Errno;
use crate::clock::ManualClock;

fn manual() -> Arc<dyn Clock> {
    Arc::new(ManualClock::new())
}

/// The calls among the first `calls` on which anything goes wrong.
fn disturbed(plan: &Plan, site: &str, calls: u64) -> Vec<u64> {
    (0..calls)
        .map(|_| plan.consult(site))
        .filter(|decision| !decision.is_undisturbed())
        .map(|decision| decision.call)
        .collect()
}

#[test]
fn rules_fire_on_the_calls_that_they_name() {
    let cases = [
        (Rule::at("a").call(3), vec![3]),
        (Rule::at("a").from(8), vec![8, 9, 10]),
        (Rule::at("a").from(2).times(3), vec![2, 3, 4]),
        (Rule::at("a").from(2).every(4), vec![2, 6, 10]),
        (Rule::at("a").chance(0.0), vec![]),
        (Rule::at("*").times(1), vec![1]),
        (Rule::at("b*"), vec![]),
    ];
    for (rule, calls) in cases {
        let plan = Plan::seeded(1).with(rule.clone().drop_it());
        assert_eq!(disturbed(&plan, "a", 10), calls, "{rule:?}");
    }
}

#[test]
fn decisions_depend_on_seed_site_and_call_alone() {
    let rule = || Rule::at("*").chance(0.3).drop_it();
    let alone = Plan::seeded(9).with(rule());
    let expected = disturbed(&alone, "left", 1000);
    let mixed = Plan::seeded(9).with(rule());
    let mut left = Vec::new();
    for _ in 0..1000 {
        let _ = mixed.consult("right");
        let decision = mixed.consult("left");
        if decision.drop {
            left.push(decision.call);
        }
        let _ = mixed.consult("right");
    }
    assert_eq!(left, expected, "calls at another site must not matter");
    assert!((200..400).contains(&expected.len()), "{}", expected.len());
    let other = Plan::seeded(10).with(rule());
    assert_ne!(disturbed(&other, "left", 1000), expected);
    assert_ne!(disturbed(&alone, "elsewhere", 1000), expected);
}

#[test]
fn the_first_rule_that_speaks_of_a_field_decides_it() {
    let plan = Plan::seeded(1)
        .with(Rule::at("a").call(1).release(Errno::IO, Class::Ambiguous))
        .with(
            Rule::at("a")
                .release(Errno::BUSY, Class::NothingDone)
                .delay(Duration::from_micros(5)),
        );
    let first = plan.consult("a");
    assert_eq!(
        first.release,
        Some(Release {
            errno: Errno::IO,
            class: Class::Ambiguous
        })
    );
    assert_eq!(first.delay, Some(Duration::from_micros(5)));
    assert_eq!(
        plan.consult("a").release.map(|r| r.errno),
        Some(Errno::BUSY)
    );
}

#[test]
fn rules_can_be_added_and_cleared_in_use_and_unfired_ones_are_told() {
    let plan = Plan::seeded(1).with(Rule::at("misspelt").drop_it());
    assert!(plan.consult("a").is_undisturbed());
    plan.add(Rule::at("a").from(plan.calls("a") + 1).error(Errno::NOMEM));
    assert_eq!(plan.consult("a").error, Some(Errno::NOMEM));
    assert_eq!(plan.clear("a"), 1);
    assert!(plan.consult("a").is_undisturbed());
    assert_eq!(plan.sites(), [("a".to_owned(), 3)]);
    let unfired: Vec<_> = plan.unfired().iter().map(|r| r.site().to_owned()).collect();
    assert_eq!(unfired, ["misspelt"]);
}

#[test]
fn cuts_and_batches_stay_within_what_is_there() {
    let plan = Plan::seeded(3)
        .with(Rule::at("cut").truncate(Truncate::Anywhere))
        .with(Rule::at("to").truncate(Truncate::To(20)).partial(2));
    for len in [1, 2, 64, 1500] {
        for _ in 0..50 {
            assert!(plan.consult("cut").truncated(len) < len);
        }
    }
    assert_eq!(plan.consult("cut").truncated(0), 0);
    let to = plan.consult("to");
    assert_eq!((to.truncated(10), to.truncated(30)), (10, 20));
    assert_eq!((to.accepted(1), to.accepted(9)), (1, 2));
}

#[test]
fn what_is_written_is_read_back_with_the_same_faults() {
    let plan = Plan::on_clock(77, manual())
        .with(Rule::at("a").chance(0.5).drop_it().duplicate(2).reorder(3))
        .with(
            Rule::at("b")
                .call(2)
                .submit(SubmitFault::PossiblySubmitted(Errno::IO)),
        )
        .with(
            Rule::at("c*")
                .every(2)
                .fence(FenceFault::FailedQuiescent(Errno::IO)),
        )
        .with(
            Rule::at("d")
                .fence(FenceFault::Indeterminate)
                .drain(Errno::IO)
                .panic(),
        )
        .with(
            Rule::at("e")
                .extra(4096)
                .stop(7)
                .partial(1)
                .truncate(Truncate::To(9)),
        )
        .with(
            Rule::at("f")
                .error(Errno::from_raw(4000))
                .truncate(Truncate::Anywhere),
        )
        .with(
            Rule::at("g")
                .delay(Duration::from_nanos(12))
                .release(Errno::BUSY, Class::NothingDone),
        );
    let text = plan.to_json();
    let again = Plan::from_json(&text, manual()).expect("what was written is valid");
    assert_eq!(again.to_json(), text);
    for site in ["a", "b", "c1", "d", "e", "f", "g"] {
        for _ in 0..20 {
            assert_eq!(plan.consult(site), again.consult(site), "at {site}");
        }
    }
}

#[test]
fn every_fault_of_a_text_is_told_at_once() {
    let text = r#"{"seed": 1, "rules": [
        {"site": "", "drop": true},
        {"site": "a*b", "call": 0, "chance": 1.5, "panic": true},
        {"site": "c", "call": 1, "from": 2, "every": 0, "drop": true},
        {"site": "d"}
    ]}"#;
    let error = Plan::from_json(text, manual()).expect_err("it has faults");
    let fields: Vec<_> = error.faults().iter().map(|f| f.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "rules[0].site",
            "rules[1].site",
            "rules[1].call",
            "rules[1].chance",
            "rules[2].every",
            "rules[2].call",
            "rules[3].site"
        ]
    );
    assert!(
        error
            .to_string()
            .contains("rules[1].chance is 1.5, allowed is 0 to 1")
    );
}

#[test]
fn unknown_fields_and_unknown_numbers_are_refused() {
    for (text, told) in [
        (r#"{"seed": 1, "rulez": []}"#, "rulez"),
        (
            r#"{"seed": 1, "rules": [{"site": "a", "dorp": true}]}"#,
            "dorp",
        ),
        (
            r#"{"seed": 1, "rules": [{"site": "a", "error": "EWRONG"}]}"#,
            "EWRONG",
        ),
        (
            r#"{"seed": 1, "rules": [{"site": "a", "error": 0}]}"#,
            "1 or more",
        ),
        (r#"{"rules": []}"#, "seed"),
    ] {
        let error = Plan::from_json(text, manual()).expect_err(text).to_string();
        assert!(error.contains(told), "{error} should name {told}");
    }
}

#[test]
fn the_seed_is_printed() {
    assert!(Plan::seeded(123).to_string().contains("123"));
    assert_eq!(
        Plan::seeded(5).with(Rule::at("a").drop_it()).to_string(),
        "fault plan with seed 5 and 1 rule"
    );
}
