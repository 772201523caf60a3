//! Rules on Cargo manifests: each member says why it exists, and what is stated once is stated once.

use toml::{Table, Value};

use super::Finding;
use super::tree::{Tree, name};

const ROOT: &str = "Cargo.toml";
const KINDS: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];
/// Workspaces of their own, which can't inherit.
const OTHER_WORKSPACES: &[&str] = &["fuzz/Cargo.toml"];

/// Each entry of `workspace.members` has a comment above it, and each member takes the workspace's lints.
pub(super) fn members(tree: &Tree) -> Vec<Finding> {
    let Some(root) = tree.text(ROOT) else {
        return vec![Finding::new(ROOT, 0, "is missing")];
    };
    let lines: Vec<&str> = root.lines().map(str::trim).collect();
    let Some(start) = lines
        .iter()
        .position(|line| line.starts_with("members = ["))
    else {
        return vec![Finding::new(ROOT, 0, "has no list of members")];
    };
    let mut found = Vec::new();
    if lines[start] != "members = [" {
        found.push(Finding::new(
            ROOT,
            start + 1,
            "list one member a line, each with a comment above it",
        ));
    }
    let entries = lines
        .iter()
        .enumerate()
        .skip(start + 1)
        .take_while(|(_, line)| **line != "]");
    for (index, line) in entries.filter(|(_, line)| line.starts_with('"')) {
        if !lines[index - 1].starts_with("# ") {
            found.push(Finding::new(
                ROOT,
                index + 1,
                format!("say in a comment above {line} why it exists"),
            ));
        }
    }
    each_member(tree, &mut found, |path, manifest, found| {
        let inherits = manifest
            .get("lints")
            .and_then(|lints| lints.get("workspace"))
            == Some(&Value::Boolean(true));
        if !inherits {
            found.push(Finding::new(
                path,
                0,
                "take the lints of the workspace: `[lints] workspace = true`",
            ));
        }
    });
    found
}

/// Members take every dependency from `workspace.dependencies`, where its version stands.
pub(super) fn dependencies(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    each_member(tree, &mut found, |path, manifest, found| {
        let platforms = manifest.get("target").and_then(Value::as_table);
        let tables = std::iter::once(manifest).chain(
            platforms
                .into_iter()
                .flat_map(|all| all.values().filter_map(Value::as_table)),
        );
        for table in tables {
            for dependencies in KINDS.iter().filter_map(|kind| table.get(*kind)?.as_table()) {
                for (dependency, value) in dependencies {
                    if value.get("workspace") != Some(&Value::Boolean(true)) {
                        found.push(Finding::new(
                            path,
                            0,
                            format!(
                                "declare `{dependency}` in the workspace and take it from there"
                            ),
                        ));
                    }
                }
            }
        }
    });
    found
}

/// The minimum Rust version stands in the root manifest; everything else takes it from there or agrees with it.
pub(super) fn rust_version(tree: &Tree) -> Vec<Finding> {
    let root: Option<Table> = tree.text(ROOT).and_then(|text| text.parse().ok());
    let stated = root.as_ref().and_then(|root| {
        root.get("workspace")?
            .get("package")?
            .get("rust-version")?
            .as_str()
    });
    let Some(stated) = stated else {
        return vec![Finding::new(
            ROOT,
            0,
            "state `rust-version` in `workspace.package`",
        )];
    };
    let mut found = Vec::new();
    for (path, text) in tree
        .with_extension(&["toml"])
        .filter(|(path, _)| *path != ROOT)
    {
        let again = |line: &str| {
            ["msrv", "rust-version"].iter().any(|key| {
                line.strip_prefix(key)
                    .is_some_and(|rest| rest.trim_start().starts_with('='))
            })
        };
        let lines = text.lines().enumerate().filter(|(_, line)| again(line));
        found.extend(lines.map(|(index, _)| {
            Finding::new(path, index + 1, "states the minimum Rust version again")
        }));
    }
    each_member(tree, &mut found, |path, manifest, found| {
        let inherits = manifest
            .get("package")
            .and_then(|package| package.get("rust-version")?.get("workspace"));
        if inherits != Some(&Value::Boolean(true)) {
            found.push(Finding::new(
                path,
                0,
                "take the minimum Rust version of the workspace: `rust-version.workspace = true`",
            ));
        }
    });
    for (path, text) in tree
        .with_extension(&["md"])
        .filter(|(path, _)| name(path) != "CHANGELOG.md")
    {
        for (index, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains("MSRV") || line.contains("Rust 1."))
        {
            if let Some(other) = versions(line).find(|version| *version != stated) {
                found.push(Finding::new(
                    path,
                    index + 1,
                    format!("says Rust {other}, the workspace says {stated}"),
                ));
            }
        }
    }
    found
}

/// The words of a line that look like `1.88`.
fn versions(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_digit() && c != '.')
        .map(|word| word.trim_matches('.'))
        .filter(|word| word.starts_with("1.") && word[2..].len() >= 2)
}

/// The checked-in cargo configuration holds aliases only: a copy without it builds the same.
pub(super) fn cargo_configuration(tree: &Tree) -> Vec<Finding> {
    let path = ".cargo/config.toml";
    let Some(text) = tree.text(path) else {
        return Vec::new();
    };
    match text.parse::<Table>() {
        Err(error) => vec![Finding::new(path, 0, error.to_string())],
        Ok(table) => table
            .keys()
            .filter(|key| *key != "alias")
            .map(|key| Finding::new(path, 0, format!("`{key}`: only aliases may stand here")))
            .collect(),
    }
}

/// Calls `check` with every manifest of a member; one that is not TOML is a finding.
fn each_member(
    tree: &Tree,
    found: &mut Vec<Finding>,
    check: impl Fn(&str, &Table, &mut Vec<Finding>),
) {
    let manifests = tree
        .texts()
        .filter(|(path, _)| name(path) == ROOT && *path != ROOT);
    for (path, text) in manifests.filter(|(path, _)| !OTHER_WORKSPACES.contains(path)) {
        match text.parse::<Table>() {
            Ok(manifest) => check(path, &manifest, found),
            Err(error) => found.push(Finding::new(path, 0, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD_ROOT: &str = "[workspace]\nmembers = [\n    # A.\n    \"a\",\n]\n[workspace.package]\nrust-version = \"1.88\"\n";
    const GOOD: &str = "[package]\nname = \"a\"\nrust-version.workspace = true\n[dependencies]\nx.workspace = true\n[lints]\nworkspace = true\n";

    fn texts(found: &[Finding]) -> Vec<&str> {
        found.iter().map(|finding| finding.text.as_str()).collect()
    }

    #[test]
    fn good_manifests_pass() {
        let tree = Tree::of(&[
            (ROOT, GOOD_ROOT),
            ("a/Cargo.toml", GOOD),
            ("docs/x.md", "MSRV 1.88, Rust 1.88.\n"),
        ]);
        for rule in [members, dependencies, rust_version, cargo_configuration] {
            assert_eq!(rule(&tree), []);
        }
    }

    #[test]
    fn a_member_without_a_comment_is_found() {
        let root = GOOD_ROOT.replace("    \"a\",\n", "    \"a\",\n    \"b\",\n");
        assert_eq!(
            texts(&members(&Tree::of(&[(ROOT, &root)]))),
            ["say in a comment above \"b\", why it exists"]
        );
        let root = "[workspace]\nmembers = [\"a\"]\n";
        assert_eq!(members(&Tree::of(&[(ROOT, root)])).len(), 1);
    }

    #[test]
    fn a_member_with_lints_of_its_own_is_found() {
        let manifest = GOOD.replace(
            "[lints]\nworkspace = true",
            "[lints.rust]\nunsafe_code = \"allow\"",
        );
        assert_eq!(
            members(&Tree::of(&[(ROOT, GOOD_ROOT), ("a/Cargo.toml", &manifest)])).len(),
            1
        );
        assert_eq!(
            members(&Tree::of(&[(ROOT, GOOD_ROOT), ("a/Cargo.toml", "[")])).len(),
            1
        );
    }

    #[test]
    fn a_dependency_declared_in_a_member_is_found_wherever_it_stands() {
        for table in [
            "dependencies",
            "dev-dependencies",
            "build-dependencies",
            "target.'cfg(loom)'.dependencies",
        ] {
            let manifest = format!("[package]\nname = \"a\"\n[{table}]\ny = \"1\"\n");
            let found = dependencies(&Tree::of(&[("a/Cargo.toml", &manifest)]));
            assert_eq!(
                texts(&found),
                ["declare `y` in the workspace and take it from there"],
                "{table}"
            );
        }
    }

    #[test]
    fn a_second_statement_of_the_rust_version_is_found() {
        let own = GOOD.replace("rust-version.workspace = true", "rust-version = \"1.80\"");
        let tree = Tree::of(&[
            (ROOT, GOOD_ROOT),
            ("clippy.toml", "msrv = \"1.88.0\"\n"),
            ("a/Cargo.toml", &own),
            ("README.md", "Needs Rust 1.85 or later.\n"),
            ("CHANGELOG.md", "MSRV was 1.80.\n"),
        ]);
        let paths: Vec<_> = rust_version(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(
            paths,
            ["a/Cargo.toml", "clippy.toml", "a/Cargo.toml", "README.md"]
        );
        assert_eq!(rust_version(&Tree::of(&[(ROOT, "[workspace]\n")])).len(), 1);
    }

    #[test]
    fn configuration_that_is_not_an_alias_is_found() {
        let tree = Tree::of(&[(
            ".cargo/config.toml",
            "[alias]\nx = \"y\"\n[env]\nA = \"b\"\n",
        )]);
        assert_eq!(
            texts(&cargo_configuration(&tree)),
            ["`env`: only aliases may stand here"]
        );
    }
}
