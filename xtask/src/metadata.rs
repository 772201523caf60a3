//! What `cargo metadata` says of the workspace and its dependencies, as far as the checks need it.
//!
//! Promises: unknown fields are ignored, missing ones are errors. Does not do: interpret anything.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::context::Context;
use crate::error::{Error, Result};

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
    pub(crate) resolve: Option<Resolve>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// An SPDX expression.
    pub(crate) license: Option<String>,
    /// Where a registry or git package comes from; `None` is a path.
    pub(crate) source: Option<String>,
    /// The native library that the package says it links.
    pub(crate) links: Option<String>,
    pub(crate) manifest_path: String,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    pub(crate) targets: Vec<Target>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` is a normal dependency; else `dev` or `build`.
    pub(crate) kind: Option<String>,
    /// The version that is asked for; `*` is any.
    pub(crate) req: String,
    /// The folder of a dependency inside the workspace.
    pub(crate) path: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Resolve {
    pub(crate) nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) dependencies: Vec<String>,
}

impl Metadata {
    /// The workspace's own packages, without resolving dependencies; needs no network and no registry.
    pub(crate) fn of_members(context: &Context) -> Result<Self> {
        Self::read(
            &context
                .cargo(["metadata", "--format-version=1", "--no-deps", "--locked"])
                .output()?,
        )
    }

    /// The whole tree for one platform with every feature on, the dependencies under `cfg(loom)` included.
    pub(crate) fn of_tree(context: &Context, platform: &str) -> Result<Self> {
        let arguments = [
            "metadata",
            "--format-version=1",
            "--locked",
            "--all-features",
            "--filter-platform",
            platform,
        ];
        Self::read(
            &context
                .cargo(arguments)
                .with("RUSTFLAGS", "--cfg loom")
                .output()?,
        )
    }

    fn read(json: &[u8]) -> Result<Self> {
        serde_json::from_slice(json)
            .map_err(|error| Error::new("read the output of cargo metadata", error))
    }

    /// The members in the order of their names.
    pub(crate) fn members(&self) -> Vec<&Package> {
        let mut members: Vec<_> = self
            .packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
            .collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members
    }

    /// Every package that `package` depends on in any way, itself included.
    pub(crate) fn closure(&self, package: &Package) -> Result<Vec<&Package>> {
        let nodes = &self
            .resolve
            .as_ref()
            .ok_or_else(|| Error::new("read the dependency tree", "it is not resolved"))?
            .nodes;
        let edges: BTreeMap<&str, &[String]> = nodes
            .iter()
            .map(|node| (node.id.as_str(), node.dependencies.as_slice()))
            .collect();
        let mut seen = BTreeSet::new();
        let mut left = vec![package.id.as_str()];
        while let Some(id) = left.pop() {
            if seen.insert(id) {
                left.extend(
                    edges
                        .get(id)
                        .copied()
                        .unwrap_or_default()
                        .iter()
                        .map(String::as_str),
                );
            }
        }
        Ok(self
            .packages
            .iter()
            .filter(|package| seen.contains(package.id.as_str()))
            .collect())
    }

    /// Whether a package of the resolved tree really has a crate of this name beneath it: an optional dependency that nothing
    /// turns on is declared, and not there.
    pub(crate) fn uses(&self, package: &Package, name: &str) -> bool {
        let nodes = self.resolve.iter().flat_map(|resolve| &resolve.nodes);
        let edges: BTreeSet<&str> = nodes
            .filter(|node| node.id == package.id)
            .flat_map(|node| &node.dependencies)
            .map(String::as_str)
            .collect();
        let mut used = self
            .packages
            .iter()
            .filter(|one| edges.contains(one.id.as_str()));
        used.any(|one| one.name == name)
    }

    /// The packages of the resolved tree.
    pub(crate) fn resolved(&self) -> Vec<&Package> {
        let ids: BTreeSet<&str> = self
            .resolve
            .iter()
            .flat_map(|resolve| &resolve.nodes)
            .map(|node| node.id.as_str())
            .collect();
        self.packages
            .iter()
            .filter(|package| ids.contains(package.id.as_str()))
            .collect()
    }
}

impl Package {
    pub(crate) fn folder(&self) -> &Path {
        Path::new(&self.manifest_path)
            .parent()
            .unwrap_or(Path::new(""))
    }

    #[cfg(test)]
    pub(crate) fn sample(name: &str, version: &str) -> Self {
        Self {
            id: format!("{name}@{version}"),
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some("MIT".to_owned()),
            source: None,
            links: None,
            manifest_path: format!("/x/{name}/Cargo.toml"),
            dependencies: Vec::new(),
            features: BTreeMap::new(),
            targets: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_that_nothing_turns_on_is_declared_and_not_used() {
        let (user, used, declared) = (
            Package::sample("a", "1.0.0"),
            Package::sample("b", "1.0.0"),
            Package::sample("c", "1.0.0"),
        );
        let node = Node {
            id: user.id.clone(),
            dependencies: vec![used.id.clone()],
        };
        let metadata = Metadata {
            packages: vec![user.clone(), used, declared],
            workspace_members: Vec::new(),
            resolve: Some(Resolve { nodes: vec![node] }),
        };
        assert!(metadata.uses(&user, "b"));
        assert!(!metadata.uses(&user, "c"));
    }
}
