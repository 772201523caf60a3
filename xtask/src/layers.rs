//! Layers point one way: which package of the workspace may depend on which, and what the core may never depend on.
//!
//! Promises: every edge between members, of any kind, stands in [`LAYERS`] or is a fault, and so is a member that has no
//! row; no native accelerator library is anywhere beneath the core, nor named in its code or its strings.
//! Does not do: look into what a package uses of another.

use std::path::Path;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::lexer::{Kind, only};
use crate::metadata::{Metadata, Package};

/// A package and the members that it may depend on.
struct Layer {
    package: &'static str,
    may_use: &'static [&'static str],
    /// In its tests only, beside the above.
    may_use_in_tests: &'static [&'static str],
}

const CORE: &str = "lockgate";

/// From the bottom up. The core's own tests may not use the conformance kit: that would be a circle.
const LAYERS: &[Layer] = &[
    Layer {
        package: CORE,
        may_use: &[],
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-verbs-shim",
        may_use: &[],
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-verbs-binding",
        may_use: &[],
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-conformance",
        may_use: &[CORE],
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-providers",
        may_use: &[CORE],
        may_use_in_tests: &["lockgate-conformance"],
    },
    Layer {
        package: "lockgate-accel",
        may_use: &[CORE, "lockgate-verbs-shim"],
        may_use_in_tests: &["lockgate-conformance", "lockgate-providers"],
    },
    Layer {
        package: "lockgate-probe-loader",
        may_use: &[],
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-probe",
        may_use: PROBE,
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-tests",
        may_use: PROBE,
        may_use_in_tests: &[],
    },
    Layer {
        package: "lockgate-benches",
        may_use: ABOVE_PROVIDERS,
        may_use_in_tests: &[],
    },
    Layer {
        package: "xtask",
        may_use: ABOVE_PROVIDERS,
        may_use_in_tests: &[],
    },
];

const ABOVE_PROVIDERS: &[&str] = &[
    CORE,
    "lockgate-conformance",
    "lockgate-providers",
    "lockgate-accel",
];

/// The probe and the tests, which look at what the probe runs.
const PROBE: &[&str] = &[
    CORE,
    "lockgate-conformance",
    "lockgate-providers",
    "lockgate-accel",
    "lockgate-probe-loader",
];

/// Words for native accelerator libraries: in a crate's name or its `links` key, and in the core's code.
const NATIVE: &[&str] = &[
    "cuda",
    "fabric",
    "hip",
    "ibverbs",
    "libucp",
    "mlx4",
    "mlx5",
    "nvml",
    "rdma",
    "rdmacm",
    "ucp",
    "ucs",
    "uct",
    "ucx",
    "xdp",
    "ze_loader",
];

/// Names by which the core would probe for such a library.
const LIBRARY_FILES: &[&str] = &[
    "libamdhip64",
    "libcuda",
    "libfabric",
    "libibverbs",
    "libmlx4",
    "libmlx5",
    "libnvidia-ml",
    "librdmacm",
    "libucp",
    "libxdp",
    "libze_loader",
];

/// Checks the workspace; the faults are lines of text.
pub(crate) fn check(context: &Context) -> Result<Vec<String>> {
    let members = Metadata::of_members(context)?;
    let mut faults = edges(&members.members());
    let tree = Metadata::of_tree(context, "x86_64-unknown-linux-gnu")?;
    let core = tree
        .packages
        .iter()
        .find(|package| package.name == CORE)
        .ok_or_else(|| Error::new("check the layers", format!("there is no package {CORE}")))?;
    faults.extend(native_beneath_core(&tree.closure(core)?));
    faults.extend(native_in_sources(
        &core.folder().join("src"),
        core.folder(),
    )?);
    Ok(faults)
}

fn edges(members: &[&Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for member in members {
        let Some(layer) = LAYERS.iter().find(|layer| layer.package == member.name) else {
            faults.push(format!(
                "{} has no layer; give it a row in xtask/src/layers.rs",
                member.name
            ));
            continue;
        };
        for dependency in &member.dependencies {
            let inside = members.iter().any(|other| other.name == dependency.name);
            let allowed = layer.may_use.contains(&dependency.name.as_str())
                || dependency.kind.as_deref() == Some("dev")
                    && layer.may_use_in_tests.contains(&dependency.name.as_str());
            if inside && !allowed {
                let kind = dependency.kind.as_deref().unwrap_or("normal");
                faults.push(format!(
                    "{} must not depend on {} ({kind})",
                    member.name, dependency.name
                ));
            }
        }
    }
    faults
}

fn native_beneath_core(closure: &[&Package]) -> Vec<String> {
    let mut faults = Vec::new();
    for package in closure {
        let links = package.links.as_deref().unwrap_or("");
        if [package.name.as_str(), links].into_iter().any(names_native) {
            faults.push(format!(
                "{CORE} depends on {} {}, a native accelerator library",
                package.name, package.version
            ));
        }
    }
    faults
}

/// Whether one of the parts of a name is a native library's, with or without `lib` before or `sys` behind it.
fn names_native(name: &str) -> bool {
    name.split(['-', '_'])
        .any(|part| NATIVE.contains(&part.trim_start_matches("lib")) || NATIVE.contains(&part))
}

/// Looks through the code and strings of the core; what comments say of a library is no use of it.
fn native_in_sources(folder: &Path, above: &Path) -> Result<Vec<String>> {
    let failed = |error| Error::new(format!("read {}", folder.display()), error);
    let mut faults = Vec::new();
    let mut entries: Vec<_> = std::fs::read_dir(folder)
        .map_err(failed)?
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    entries.sort_by_key(std::fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            faults.extend(native_in_sources(&path, above)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = std::fs::read_to_string(&path).map_err(failed)?;
            let shown = path.strip_prefix(above).unwrap_or(&path).display();
            faults.extend(
                native_in(&source)
                    .into_iter()
                    .map(|(line, file)| format!("{CORE}: {shown}:{line} names {file}")),
            );
        }
    }
    Ok(faults)
}

fn native_in(source: &str) -> Vec<(usize, &'static str)> {
    let text = only(source, &[Kind::Code, Kind::Literal]);
    let lines = text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            Some((
                index + 1,
                *LIBRARY_FILES.iter().find(|file| line.contains(**file))?,
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Dependency;

    fn member(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let mut package = Package::sample(name, "0.1.0");
        for &(name, kind) in dependencies {
            let kind = kind.map(str::to_owned);
            package.dependencies.push(Dependency {
                name: name.to_owned(),
                kind,
                req: "^0.1".to_owned(),
                path: None,
            });
        }
        package
    }

    #[track_caller]
    fn check_edges(package: Package, expected: &[&str]) {
        let others: Vec<Package> = LAYERS
            .iter()
            .filter(|layer| layer.package != package.name)
            .map(|layer| member(layer.package, &[]))
            .collect();
        let members: Vec<&Package> = others.iter().chain([&package]).collect();
        assert_eq!(edges(&members), expected);
    }

    #[test]
    fn edges_that_point_down_pass() {
        check_edges(
            member(
                "lockgate-probe",
                &[("lockgate", None), ("lockgate-accel", None), ("clap", None)],
            ),
            &[],
        );
        check_edges(
            member(
                "lockgate-providers",
                &[("lockgate", None), ("lockgate-conformance", Some("dev"))],
            ),
            &[],
        );
    }

    #[test]
    fn edges_that_point_up_or_sideways_are_found_in_every_kind() {
        for (kind, word) in [
            (None, "normal"),
            (Some("dev"), "dev"),
            (Some("build"), "build"),
        ] {
            let expected = format!("lockgate must not depend on lockgate-providers ({word})");
            check_edges(
                member("lockgate", &[("lockgate-providers", kind)]),
                &[&expected],
            );
        }
        let expected = "lockgate-providers must not depend on lockgate-conformance (normal)";
        check_edges(
            member("lockgate-providers", &[("lockgate-conformance", None)]),
            &[expected],
        );
        check_edges(
            member("lockgate-conformance", &[("lockgate-providers", None)]),
            &["lockgate-conformance must not depend on lockgate-providers (normal)"],
        );
    }

    #[test]
    fn a_member_without_a_layer_is_found() {
        check_edges(
            member("lockgate-new", &[]),
            &["lockgate-new has no layer; give it a row in xtask/src/layers.rs"],
        );
    }

    #[test]
    fn rows_only_name_rows_below_them() {
        for (index, layer) in LAYERS.iter().enumerate() {
            for used in layer.may_use.iter().chain(layer.may_use_in_tests) {
                assert!(
                    LAYERS[..index].iter().any(|below| below.package == *used),
                    "{} uses {used}",
                    layer.package
                );
            }
        }
    }

    #[test]
    fn native_libraries_beneath_the_core_are_found_by_name_and_by_what_they_link() {
        for name in ["ibverbs-sys", "rdma-sys", "libucx", "cuda", "mlx5_sys"] {
            assert_eq!(
                native_beneath_core(&[&Package::sample(name, "1.0.0")]).len(),
                1,
                "{name}"
            );
        }
        let linking = Package {
            links: Some("ibverbs".to_owned()),
            ..Package::sample("harmless", "1.0.0")
        };
        assert_eq!(
            native_beneath_core(&[&linking]),
            ["lockgate depends on harmless 1.0.0, a native accelerator library"]
        );
        for name in ["serde", "libc", "lockgate", "tracing-core", "structural"] {
            assert_eq!(
                native_beneath_core(&[&Package::sample(name, "1.0.0")]),
                Vec::<String>::new(),
                "{name}"
            );
        }
    }

    #[test]
    fn native_libraries_in_code_and_strings_are_found_and_in_comments_are_not() {
        let source = "//! libibverbs\nlet x = \"libibverbs.so.1\";\n// libcuda\nlibucp();\n";
        assert_eq!(native_in(source), [(2, "libibverbs"), (4, "libucp")]);
    }

    #[test]
    fn the_layers_of_this_workspace_hold() {
        let faults = check(&Context::of_this_checkout().unwrap()).unwrap();
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }
}
