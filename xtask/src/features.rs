//! The feature sets in which each crate is linted: none, the default, each feature alone, each pair, and all.
//!
//! Promises: each crate is looked at by itself, so that a feature which another crate turns on hides no fault; two sets
//! that turn on the same features are one. Features whose names start with `__` are for tests and only come with `all`.
//! Pairs are left out where a crate has more than [`PAIRS_UP_TO`] features.
//! Does not do: run tests in these sets; `test` has a table of those runs.

use std::collections::BTreeSet;

use crate::metadata::Package;

/// Six features have fifteen pairs; beyond that, pairs cost more than they find.
const PAIRS_UP_TO: usize = 6;

/// One set of features of one package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeatureSet {
    /// Such as `default` or `receive + toml`.
    pub(crate) name: String,
    /// For cargo's command line.
    pub(crate) arguments: Vec<String>,
}

/// The distinct sets of `package`, the default set first.
pub(crate) fn sets(package: &Package) -> Vec<FeatureSet> {
    let all: Vec<&str> = package
        .features
        .keys()
        .map(String::as_str)
        .filter(|name| *name != "default")
        .collect();
    let single: Vec<&str> = all
        .iter()
        .copied()
        .filter(|name| !name.starts_with("__"))
        .collect();
    let mut wanted: Vec<(String, Vec<&str>)> = Vec::new();
    if package.features.contains_key("default") {
        wanted.push(("default".to_owned(), vec!["default"]));
    }
    wanted.push(("no features".to_owned(), Vec::new()));
    wanted.extend(single.iter().map(|name| ((*name).to_owned(), vec![*name])));
    if single.len() <= PAIRS_UP_TO {
        for (index, first) in single.iter().enumerate() {
            wanted.extend(
                single[index + 1..]
                    .iter()
                    .map(|second| (format!("{first} + {second}"), vec![*first, *second])),
            );
        }
    }
    wanted.push(("all features".to_owned(), all));

    let mut seen = BTreeSet::new();
    wanted
        .into_iter()
        .filter(|(_, features)| seen.insert(enabled(package, features)))
        .map(|(name, features)| FeatureSet {
            arguments: arguments(&features),
            name,
        })
        .collect()
}

fn arguments(features: &[&str]) -> Vec<String> {
    match features {
        ["default"] => Vec::new(),
        [] => vec!["--no-default-features".to_owned()],
        some => vec![
            "--no-default-features".to_owned(),
            "--features".to_owned(),
            some.join(","),
        ],
    }
}

/// Everything that `features` turn on, `default` itself left out: it is a name, not a behaviour.
fn enabled<'a>(package: &'a Package, features: &[&'a str]) -> BTreeSet<&'a str> {
    let mut on = BTreeSet::new();
    let mut left = features.to_vec();
    while let Some(feature) = left.pop() {
        if on.insert(feature) {
            left.extend(
                package
                    .features
                    .get(feature)
                    .into_iter()
                    .flatten()
                    .map(String::as_str),
            );
        }
    }
    on.remove("default");
    on
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(features: &[(&str, &[&str])]) -> Package {
        let mut package = Package::sample("a", "0.1.0");
        for (name, on) in features {
            package.features.insert(
                (*name).to_owned(),
                on.iter().map(|on| (*on).to_owned()).collect(),
            );
        }
        package
    }

    fn names(package: &Package) -> Vec<String> {
        sets(package).into_iter().map(|set| set.name).collect()
    }

    #[test]
    fn a_package_without_features_has_one_set() {
        let sets = sets(&package(&[]));
        assert_eq!(
            sets,
            [FeatureSet {
                name: "no features".to_owned(),
                arguments: vec!["--no-default-features".to_owned()]
            }]
        );
    }

    #[test]
    fn each_alone_each_pair_and_all() {
        let package = package(&[
            ("default", &["x"]),
            ("x", &[]),
            ("y", &["dep:y"]),
            ("z", &[]),
        ]);
        assert_eq!(
            names(&package),
            [
                "default",
                "no features",
                "y",
                "z",
                "x + y",
                "x + z",
                "y + z",
                "all features"
            ]
        );
        let last = sets(&package).pop().unwrap();
        assert_eq!(
            last.arguments,
            ["--no-default-features", "--features", "x,y,z"]
        );
    }

    #[test]
    fn sets_that_turn_on_the_same_are_one() {
        let package = package(&[("default", &["x", "y"]), ("x", &["y"]), ("y", &[])]);
        assert_eq!(names(&package), ["default", "no features", "y"]);
    }

    #[test]
    fn features_for_tests_only_come_with_all() {
        assert_eq!(
            names(&package(&[("__t", &[]), ("x", &[])])),
            ["no features", "x", "all features"]
        );
    }

    #[test]
    fn a_package_with_many_features_has_no_pairs() {
        let package = package(&[
            ("a", &[]),
            ("b", &[]),
            ("c", &[]),
            ("d", &[]),
            ("e", &[]),
            ("f", &[]),
            ("g", &[]),
        ]);
        assert_eq!(names(&package).len(), 1 + 7 + 1);
    }
}
