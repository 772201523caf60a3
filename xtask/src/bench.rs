//! `cargo xtask bench [NAME [ARGUMENTS]]`: runs one driver of the package `lockgate-benches`, or lists them.
//!
//! A driver is a bench target of that package; a new one needs no change here. Promises: the driver gets the arguments
//! as they are, and its exit code decides. Does not do: compare with earlier runs; a driver compares within one run.

use std::io;

use crate::Verdict;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::metadata::Metadata;
use crate::skips::Required;
use crate::steps::{Runner, Step};

const PACKAGE: &str = "lockgate-benches";

pub(crate) fn run(context: &Context, arguments: &[String]) -> Result<Verdict> {
    let metadata = Metadata::of_members(context)?;
    let drivers = drivers(&metadata);
    let Some((name, rest)) = arguments.split_first() else {
        println!("{}", list(&drivers));
        return Ok(Verdict::Passed);
    };
    if !drivers.contains(&name.as_str()) {
        return Err(Error::usage(format!(
            "there is no benchmark `{name}`; {}",
            list(&drivers)
        )));
    }
    let fixed = [
        "bench",
        "--locked",
        "--package",
        PACKAGE,
        "--bench",
        name,
        "--",
    ];
    let invocation = context.cargo(fixed.into_iter().chain(rest.iter().map(String::as_str)));
    let mut runner = Runner::new(io::stdout(), Required::default(), &context.scratch()?);
    let record = runner.run(Step::command("bench", format!("bench {name}"), invocation))?;
    Ok(if record.passed() {
        Verdict::Passed
    } else {
        Verdict::Failed
    })
}

fn drivers(metadata: &Metadata) -> Vec<&str> {
    let members = metadata
        .members()
        .into_iter()
        .filter(|member| member.name == PACKAGE);
    let targets = members
        .flat_map(|member| &member.targets)
        .filter(|target| target.kind.iter().any(|kind| kind == "bench"));
    targets.map(|target| target.name.as_str()).collect()
}

fn list(drivers: &[&str]) -> String {
    if drivers.is_empty() {
        format!("{PACKAGE} has no benchmarks")
    } else {
        format!("benchmarks: {}", drivers.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::{Package, Target};

    #[test]
    fn drivers_are_the_bench_targets_of_their_package() {
        let target = |name: &str, kind: &str| Target {
            name: name.to_owned(),
            kind: vec![kind.to_owned()],
        };
        let mut benches = Package::sample(PACKAGE, "0.1.0");
        benches.targets = vec![
            target("lockgate_benches", "lib"),
            target("receive", "bench"),
        ];
        let mut other = Package::sample("lockgate", "0.1.0");
        other.targets = vec![target("other", "bench")];
        let metadata = Metadata {
            workspace_members: vec![benches.id.clone(), other.id.clone()],
            packages: vec![benches, other],
            resolve: None,
        };
        assert_eq!(drivers(&metadata), ["receive"]);
    }

    #[test]
    fn an_unknown_benchmark_is_a_usage_error() {
        let error = run(
            &Context::of_this_checkout().unwrap(),
            &["no-such".to_owned()],
        )
        .unwrap_err();
        assert!(error.is_usage(), "{error}");
    }
}
