//! `cargo xtask test`: provides the packages that the tests use, runs every test, and lists every skip with its reason.
//!
//! Promises: the closing line `N passed, N failed, N skipped` stands alone and last; the exit is 0 only if nothing
//! failed. With `CI=true` a skip of a group that is required there is a failure.
//! Does not do: select tests. For one test, `cargo test -p CRATE NAME` is the way.

use std::io;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::skips::{Required, Skip};
use crate::steps::{self, Runner, Step};
use crate::{Verdict, packages, vm};

/// A run of `cargo test` beside that of the whole workspace.
struct Extra {
    package: &'static str,
    name: &'static str,
    arguments: &'static [&'static str],
    environment: &'static [(&'static str, &'static str)],
}

/// Feature sets and configurations whose tests differ from those of the workspace run, in which features are unified.
const EXTRAS: &[Extra] = &[
    Extra {
        package: "lockgate",
        name: "tests: lockgate, no features",
        arguments: &["--no-default-features", "--lib", "--tests"],
        // The run of the whole workspace makes all random schedules.
        environment: &[("LOCKGATE_SCHEDULES", "5000")],
    },
    Extra {
        package: "lockgate",
        name: "tests: lockgate, models under loom",
        arguments: &["--test", "loom"],
        // A folder of its own: other flags would rebuild everything in the shared one.
        environment: &[
            ("CARGO_TARGET_DIR", "target/loom"),
            ("RUSTFLAGS", "--cfg loom"),
        ],
    },
    Extra {
        package: "lockgate-accel",
        name: "tests: lockgate-accel, ibverbs",
        arguments: &["--features", "ibverbs"],
        environment: &[],
    },
    Extra {
        package: "lockgate-accel",
        name: "tests: lockgate-accel, ibverbs as a link stub",
        arguments: &["--features", "ibverbs"],
        environment: &[("LOCKGATE_VERBS_LINK_STUB", "1")],
    },
    Extra {
        package: "lockgate-verbs-shim",
        name: "tests: lockgate-verbs-shim, link stub",
        arguments: &["--tests"],
        environment: &[("LOCKGATE_VERBS_LINK_STUB", "1")],
    },
    // What the linker drops differs with the level of optimisation.
    Extra {
        package: "lockgate-verbs-shim",
        name: "tests: lockgate-verbs-shim, linked in release",
        arguments: &["--release", "--test", "link"],
        environment: &[],
    },
];

pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<Verdict> {
    let install = match arguments
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        [] => true,
        ["--no-install"] => false,
        _ => return Err(Error::usage("usage: cargo xtask test [--no-install]")),
    };
    let mut runner = Runner::new(io::stdout(), Required::of_this_run(), &context.scratch()?);
    packages::provide(context, &mut runner, install)?;
    for step in steps(context)? {
        runner.run(step)?;
    }
    Ok(
        if steps::finish(&mut runner, &context.scratch()?.join("test"))? {
            Verdict::Passed
        } else {
            Verdict::Failed
        },
    )
}

/// The test steps, for this command and for `ci`.
pub(crate) fn steps(context: &Context) -> Result<Vec<Step<'static>>> {
    let members = Metadata::of_members(context)?;
    let mut steps = vec![Step::tests(
        "test",
        "tests: workspace",
        context.cargo(["test", "--workspace", "--locked", "--no-fail-fast"]),
    )];
    for extra in EXTRAS {
        if !members
            .members()
            .iter()
            .any(|member| member.name == extra.package)
        {
            return Err(Error::new(
                extra.name,
                format!("there is no package {} in this workspace", extra.package),
            ));
        }
        let fixed = [
            "test",
            "--locked",
            "--no-fail-fast",
            "--package",
            extra.package,
        ];
        let mut invocation = context.cargo(fixed.iter().chain(extra.arguments));
        for (variable, value) in extra.environment {
            invocation = invocation.with(variable, *value);
        }
        steps.push(Step::tests("test", extra.name, invocation));
    }
    steps.push(in_the_guest(context));
    Ok(steps)
}

/// The tests that need RDMA devices, or the skip of them all.
fn in_the_guest(context: &Context) -> Step<'static> {
    const NAME: &str = "tests: with RDMA devices, in the guest";
    let Some(reason) = vm::impossible() else {
        let words = "run --quiet --locked --package xtask -- vm --timeout 900 --suite".split(' ');
        return Step::tests("test", NAME, context.cargo(words));
    };
    Step::check("test", NAME, move |out| {
        let skip = Skip {
            group: "vm".to_owned(),
            reason,
        };
        writeln!(out, "{skip}").map_err(|error| Error::new(NAME, error))?;
        let required = Required::of_this_run().forbids(&skip);
        Ok(required
            .then(|| format!("{skip}, but it is required"))
            .into_iter()
            .collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extra_run_is_of_a_member_and_has_its_own_name() {
        let steps = steps(&Context::of_this_checkout().unwrap()).unwrap();
        assert_eq!(steps.len(), EXTRAS.len() + 2);
        let mut names: Vec<_> = steps.iter().map(|step| step.name.clone()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), steps.len());
    }

    #[test]
    fn an_unknown_argument_is_a_usage_error() {
        let context = Context::of_this_checkout().unwrap();
        assert!(
            run(&context, &["--quick".to_owned()])
                .unwrap_err()
                .is_usage()
        );
    }
}
