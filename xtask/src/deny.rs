//! Licences, banned crates, duplicate versions and sources of the dependency tree, held to `deny.toml`.
//!
//! `deny.toml` has the form of cargo-deny's own file, so that whoever has that tool can run it as well; the decision
//! `docs/decisions/dependency-checks.md` says why this check exists beside it. Promises: the lists are exact in both
//! directions, so an entry that nothing in the tree needs is a fault too; a key that this check does not know is an
//! error, because a rule that is passed over protects nobody.
//! Does not do: advisories, for which a database would have to be fetched.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::metadata::{Metadata, Package};
use crate::spdx::Expression;

const FILE: &str = "deny.toml";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    graph: Graph,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    /// The platforms whose trees are checked.
    targets: Vec<String>,
    #[serde(rename = "all-features")]
    all_features: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bans {
    #[serde(rename = "multiple-versions")]
    multiple_versions: Level,
    wildcards: Level,
    deny: Vec<Ban>,
    /// Crates that may be there in several versions.
    skip: Vec<Named>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ban {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
    /// The packages that may depend on it all the same.
    #[serde(default)]
    wrappers: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    #[serde(rename = "crate")]
    name: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sources {
    #[serde(rename = "unknown-registry")]
    unknown_registry: Level,
    #[serde(rename = "unknown-git")]
    unknown_git: Level,
    #[serde(rename = "allow-registry")]
    allow_registry: Vec<String>,
}

/// The only level there is: a rule that only warns is not one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Level {
    Deny,
}

/// Checks the tree of this checkout; the faults are lines of text.
pub(crate) fn check(context: &Context) -> Result<Vec<String>> {
    let path = context.root.join(FILE);
    let text = std::fs::read_to_string(&path)
        .map_err(|error| Error::new(format!("read {}", path.display()), error))?;
    let rules: Rules =
        toml::from_str(&text).map_err(|error| Error::new(format!("read {FILE}"), error))?;
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    for target in &rules.graph.targets {
        let metadata = Metadata::of_tree(context, target)?;
        for package in metadata.resolved() {
            let mut kept = package.clone();
            // Of other crates only what is there counts; of our own, all that is declared.
            if package.source.is_some() {
                kept.dependencies
                    .retain(|dependency| metadata.uses(package, &dependency.name));
            }
            // A tree for another target may have more beneath it.
            match packages.entry(package.id.clone()) {
                Entry::Vacant(place) => drop(place.insert(kept)),
                Entry::Occupied(mut place) => {
                    place.get_mut().dependencies.extend(kept.dependencies)
                }
            }
        }
    }
    Ok(faults(&rules, &packages.values().collect::<Vec<_>>()))
}

fn faults(rules: &Rules, packages: &[&Package]) -> Vec<String> {
    let Rules {
        graph,
        licenses: rules_on_licences,
        bans: rules_on_crates,
        sources: rules_on_sources,
    } = rules;
    // Both have one value only; they are named so that the file states them.
    let (Level::Deny, Level::Deny) = (
        &rules_on_sources.unknown_registry,
        &rules_on_sources.unknown_git,
    );
    let (Level::Deny, Level::Deny) = (
        &rules_on_crates.multiple_versions,
        &rules_on_crates.wildcards,
    );
    let mut faults = Vec::new();
    if !graph.all_features {
        faults.push(format!(
            "{FILE}: all-features must be true, the whole tree is checked"
        ));
    }
    if packages.is_empty() {
        faults.push(format!("{FILE}: no package is checked, name a target"));
    }
    licences(&rules_on_licences.allow, packages, &mut faults);
    bans(rules_on_crates, packages, &mut faults);
    sources(&rules_on_sources.allow_registry, packages, &mut faults);
    faults
}

fn licences(allow: &[String], packages: &[&Package], faults: &mut Vec<String>) {
    let allowed: BTreeSet<&str> = allow.iter().map(String::as_str).collect();
    let mut named: BTreeSet<String> = BTreeSet::new();
    for package in packages {
        let label = label(package);
        match package.license.as_deref().map(Expression::parse) {
            None => faults.push(format!("{label} states no licence")),
            Some(Err(fault)) => faults.push(format!("{label}: {fault}")),
            Some(Ok(expression)) => {
                if !expression.is_allowed(&allowed) {
                    let licence = package.license.as_deref().unwrap_or("");
                    faults.push(format!(
                        "{label} is under `{licence}`, which {FILE} does not allow"
                    ));
                }
                named.extend(expression.names().into_iter().map(str::to_owned));
            }
        }
    }
    let unused = allowed.iter().filter(|licence| !named.contains(**licence));
    faults.extend(
        unused.map(|licence| {
            format!("{FILE} allows `{licence}`, which nothing in the tree is under")
        }),
    );
}

fn bans(rules: &Bans, packages: &[&Package], faults: &mut Vec<String>) {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        versions
            .entry(&package.name)
            .or_default()
            .insert(&package.version);
        for dependency in &package.dependencies {
            if package.source.is_none() && dependency.req == "*" && dependency.path.is_none() {
                faults.push(format!(
                    "{} takes any version of {}",
                    package.name, dependency.name
                ));
            }
        }
    }
    let bans = rules.deny.iter().map(|ban| (&ban.name, &ban.reason));
    let skips = rules.skip.iter().map(|skip| (&skip.name, &skip.reason));
    for (name, _) in bans
        .chain(skips)
        .filter(|(_, reason)| reason.trim().is_empty())
    {
        faults.push(format!("{FILE}: `{name}` has no reason"));
    }
    for ban in rules
        .deny
        .iter()
        .filter(|ban| versions.contains_key(ban.name.as_str()))
    {
        banned(ban, packages, faults);
    }
    let skipped = |name: &str| rules.skip.iter().any(|skip| skip.name == name);
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        if !skipped(name) {
            let list = versions.iter().copied().collect::<Vec<_>>().join(" and ");
            faults.push(format!("{name} is in the tree as {list}"));
        }
    }
    for skip in &rules.skip {
        if versions
            .get(skip.name.as_str())
            .is_none_or(|versions| versions.len() < 2)
        {
            faults.push(format!(
                "{FILE} skips {}, of which the tree does not have two versions",
                skip.name
            ));
        }
    }
}

/// A banned crate may be in the tree only beneath its wrappers, and every wrapper has to be one.
fn banned(ban: &Ban, packages: &[&Package], faults: &mut Vec<String>) {
    let users: BTreeSet<&str> = packages
        .iter()
        .filter(|package| {
            // What another crate's own tests use is not in this tree.
            let ours = package.source.is_none();
            package.dependencies.iter().any(|dependency| {
                dependency.name == ban.name && (ours || dependency.kind.as_deref() != Some("dev"))
            })
        })
        .map(|package| package.name.as_str())
        .collect();
    if ban.wrappers.is_empty() {
        faults.push(format!("{} is banned: {}", ban.name, ban.reason));
    } else {
        for user in &users {
            if !ban.wrappers.iter().any(|wrapper| wrapper == user) {
                faults.push(format!(
                    "{} is banned beneath {user}: {}",
                    ban.name, ban.reason
                ));
            }
        }
    }
    for wrapper in &ban.wrappers {
        if !users.contains(wrapper.as_str()) {
            faults.push(format!(
                "{FILE} lets {wrapper} depend on {}, and it does not",
                ban.name
            ));
        }
    }
}

fn sources(allow: &[String], packages: &[&Package], faults: &mut Vec<String>) {
    for package in packages {
        let Some(source) = &package.source else {
            continue;
        };
        let registry = source
            .strip_prefix("registry+")
            .or_else(|| source.strip_prefix("sparse+"));
        if !registry.is_some_and(|registry| allow.iter().any(|allowed| allowed == registry)) {
            faults.push(format!(
                "{} comes from {source}, which {FILE} does not allow",
                label(package)
            ));
        }
    }
}

fn label(package: &Package) -> String {
    format!("{} {}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    const RULES: &str = r#"
        [graph]
        targets = ["x86_64-unknown-linux-gnu"]
        all-features = true
        [licenses]
        allow = ["MIT"]
        [bans]
        multiple-versions = "deny"
        wildcards = "deny"
        deny = [{ crate = "openssl", reason = "not needed" }]
        skip = []
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
        allow-registry = ["https://example.invalid/index"]
    "#;

    #[track_caller]
    fn check(rules: &str, packages: &[Package], expected: &[&str]) {
        let rules = toml::from_str(rules).unwrap();
        assert_eq!(
            faults(&rules, &packages.iter().collect::<Vec<_>>()),
            expected
        );
    }

    fn sample(name: &str) -> Package {
        Package::sample(name, "1.0.0")
    }

    #[test]
    fn a_good_tree_passes() {
        check(RULES, &[sample("a"), sample("b")], &[]);
    }

    #[test]
    fn licences_that_are_not_allowed_missing_or_not_readable_are_found() {
        let under = |licence: Option<&str>| Package {
            license: licence.map(str::to_owned),
            ..sample("b")
        };
        let a = sample("a");
        check(
            RULES,
            &[a.clone(), under(Some("GPL-3.0"))],
            &["b 1.0.0 is under `GPL-3.0`, which deny.toml does not allow"],
        );
        check(
            RULES,
            &[a.clone(), under(None)],
            &["b 1.0.0 states no licence"],
        );
        check(
            RULES,
            &[a, under(Some("MIT OR"))],
            &["b 1.0.0: a licence is missing at the end"],
        );
    }

    #[test]
    fn a_licence_that_nothing_needs_is_found() {
        let rules = RULES.replace(r#"["MIT"]"#, r#"["MIT", "ISC"]"#);
        check(
            &rules,
            &[sample("a")],
            &["deny.toml allows `ISC`, which nothing in the tree is under"],
        );
    }

    #[test]
    fn a_banned_crate_is_found() {
        check(
            RULES,
            &[sample("openssl")],
            &["openssl is banned: not needed"],
        );
    }

    #[test]
    fn a_banned_crate_is_allowed_beneath_its_wrappers_only() {
        let rules = RULES.replace(
            "reason = \"not needed\"",
            "reason = \"not needed\", wrappers = [\"a\"]",
        );
        let user = |name: &str| Package {
            dependencies: vec![Dependency {
                name: "openssl".to_owned(),
                kind: None,
                req: "1".to_owned(),
                path: None,
            }],
            ..sample(name)
        };
        check(&rules, &[user("a"), sample("openssl")], &[]);
        check(
            &rules,
            &[user("a"), user("b"), sample("openssl")],
            &["openssl is banned beneath b: not needed"],
        );
        check(
            &rules,
            &[sample("a"), sample("openssl")],
            &["deny.toml lets a depend on openssl, and it does not"],
        );
    }

    #[test]
    fn two_versions_of_a_crate_are_found_unless_they_are_skipped() {
        let tree = [sample("a"), Package::sample("a", "2.0.0")];
        check(RULES, &tree, &["a is in the tree as 1.0.0 and 2.0.0"]);
        let rules = RULES.replace(
            "skip = []",
            r#"skip = [{ crate = "a", reason = "b wants the old one" }]"#,
        );
        check(&rules, &tree, &[]);
        check(
            &rules,
            &tree[..1],
            &["deny.toml skips a, of which the tree does not have two versions"],
        );
        let rules = rules.replace("b wants the old one", " ");
        check(&rules, &tree, &["deny.toml: `a` has no reason"]);
    }

    #[test]
    fn other_sources_are_found() {
        let from = |source: &str| Package {
            source: Some(source.to_owned()),
            ..sample("a")
        };
        check(
            RULES,
            &[from("registry+https://example.invalid/index")],
            &[],
        );
        for source in [
            "git+https://example.invalid/a",
            "registry+https://other.invalid/index",
        ] {
            let expected = format!("a 1.0.0 comes from {source}, which deny.toml does not allow");
            check(RULES, &[from(source)], &[&expected]);
        }
    }

    #[test]
    fn a_requirement_of_any_version_is_found() {
        let dependency = Dependency {
            name: "b".to_owned(),
            kind: None,
            req: "*".to_owned(),
            path: None,
        };
        let mut package = sample("a");
        package.dependencies = vec![dependency.clone()];
        check(RULES, &[package.clone()], &["a takes any version of b"]);
        package.dependencies = vec![Dependency {
            path: Some("/x/b".to_owned()),
            ..dependency
        }];
        check(RULES, &[package], &[]);
    }

    #[test]
    fn an_empty_tree_and_a_part_of_the_tree_do_not_pass() {
        let rules = RULES.replace("allow = [\"MIT\"]", "allow = []");
        check(
            &rules,
            &[],
            &["deny.toml: no package is checked, name a target"],
        );
        let rules = RULES.replace("all-features = true", "all-features = false");
        check(
            &rules,
            &[sample("a")],
            &["deny.toml: all-features must be true, the whole tree is checked"],
        );
    }

    #[test]
    fn rules_that_are_not_known_or_only_warn_are_refused() {
        for rules in [
            format!("{RULES}\nprivate = true"),
            RULES.replace(
                "multiple-versions = \"deny\"",
                "multiple-versions = \"warn\"",
            ),
        ] {
            assert!(toml::from_str::<Rules>(&rules).is_err());
        }
    }

    #[test]
    fn the_tree_of_this_checkout_passes() {
        let faults = super::check(&Context::of_this_checkout().unwrap()).unwrap();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
