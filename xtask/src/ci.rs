//! `cargo xtask ci [--list] [GROUP...]`: everything that must be green before a change is merged.
//!
//! Promises: a step that fails does not keep the others from running; the closing line `N passed, N failed, N skipped`
//! stands alone and last, where a step that is no test counts as one failure if it fails; the exit is 0 only if every
//! step passed. Does not do: benchmarks, whose figures on a shared machine decide nothing.

use std::io;

use crate::alone::Copy;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::skips::Required;
use crate::steps::{self, Runner, Step};
use crate::{Verdict, deny, features, layers, packages, test, tidy};

/// The groups in the order in which they run: what is quick comes first.
const GROUPS: &[&str] = &[
    "fmt", "tidy", "layers", "deny", "clippy", "docs", "planted", "alone", "test",
];

pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<Verdict> {
    let (list, groups): (Vec<&str>, Vec<&str>) = arguments
        .iter()
        .map(String::as_str)
        .partition(|word| *word == "--list");
    if let Some(unknown) = groups.iter().find(|group| !GROUPS.contains(group)) {
        let text = format!(
            "there is no group `{unknown}`; usage: cargo xtask ci [--list] [GROUP...], with {}",
            GROUPS.join(", ")
        );
        return Err(Error::usage(text));
    }
    let wanted = |group: &str| groups.is_empty() || groups.contains(&group);
    let copy = Copy::of(context);
    let mut steps = checks(context)?;
    steps.extend(copy.steps(context));
    steps.extend(test::steps(context)?);
    steps.retain(|step| wanted(step.group));
    if !list.is_empty() {
        for step in &steps {
            println!("{:<7} {}", step.group, step.name);
        }
        return Ok(Verdict::Passed);
    }
    let mut runner = Runner::new(io::stdout(), Required::of_this_run(), &context.scratch()?);
    // Everything that compiles the workspace needs the headers among them.
    if ["clippy", "docs", "alone", "test"].into_iter().any(wanted) {
        packages::provide(context, &mut runner, true)?;
    }
    for step in steps {
        runner.run(step)?;
    }
    Ok(
        if steps::finish(&mut runner, &context.scratch()?.join("ci"))? {
            Verdict::Passed
        } else {
            Verdict::Failed
        },
    )
}

/// The steps that are no tests.
fn checks(context: &Context) -> Result<Vec<Step<'_>>> {
    let mut steps = vec![
        Step::command("fmt", "format", context.cargo(["fmt", "--all", "--check"])),
        Step::check("tidy", "tidy", |out| tidy::check(context, out)),
        Step::check("layers", "layers", |_| layers::check(context)),
        Step::check("deny", "licences, bans, sources", |_| deny::check(context)),
    ];
    for member in Metadata::of_members(context)?.members() {
        for set in features::sets(member) {
            let fixed = [
                "clippy",
                "--locked",
                "--all-targets",
                "--package",
                &member.name,
            ]
            .map(str::to_owned);
            let strict = ["--", "-D", "warnings"].map(str::to_owned);
            let invocation = context.cargo(fixed.into_iter().chain(set.arguments).chain(strict));
            steps.push(Step::command(
                "clippy",
                format!("clippy: {}, {}", member.name, set.name),
                invocation,
            ));
        }
    }
    let docs = context.cargo([
        "doc",
        "--workspace",
        "--no-deps",
        "--locked",
        "--all-features",
    ]);
    steps.push(Step::command(
        "docs",
        "documentation",
        docs.with("RUSTDOCFLAGS", "-D warnings"),
    ));
    let planted = [
        "run",
        "--locked",
        "--quiet",
        "--package",
        "xtask",
        "--",
        "planted",
        "--quick",
    ];
    steps.push(Step::command(
        "planted",
        "planted faults, the quick ones",
        context.cargo(planted),
    ));
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_of_a_group_and_every_group_has_a_step() {
        let context = Context::of_this_checkout().unwrap();
        let copy = Copy::of(&context);
        let mut steps = checks(&context).unwrap();
        steps.extend(copy.steps(&context));
        steps.extend(test::steps(&context).unwrap());
        for step in &steps {
            assert!(GROUPS.contains(&step.group), "{}", step.name);
        }
        for group in GROUPS {
            assert!(steps.iter().any(|step| step.group == *group), "{group}");
        }
    }

    #[test]
    fn every_member_is_linted_by_itself() {
        let context = Context::of_this_checkout().unwrap();
        let steps = checks(&context).unwrap();
        for member in Metadata::of_members(&context).unwrap().members() {
            let start = format!("clippy: {}, ", member.name);
            assert!(
                steps.iter().any(|step| step.name.starts_with(&start)),
                "{}",
                member.name
            );
        }
    }

    #[test]
    fn an_unknown_group_is_a_usage_error() {
        let error = run(&Context::of_this_checkout().unwrap(), &["lint".to_owned()]).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("clippy"),
            "{error}"
        );
    }
}
