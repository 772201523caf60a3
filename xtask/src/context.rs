//! Where the runner works: the checkout, its target folder, and the cargo that started it.
//!
//! Promises: the paths are those of the checkout that `cargo xtask` was called in, also where several checkouts share
//! one target folder. Does not do: change the process's own working directory or environment.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::steps::Invocation;

/// The fixed surroundings of one call of the runner.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    cargo: String,
}

impl Context {
    /// Takes the checkout from the variables that `cargo run` sets, and only without them from the build.
    pub(crate) fn of_this_checkout() -> Result<Self> {
        let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest
            .parent()
            .filter(|root| root.join("Cargo.toml").is_file())
            .ok_or_else(|| {
                Error::new(
                    "find the checkout",
                    format!("{} has no workspace above it", manifest.display()),
                )
            })?
            .to_path_buf();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        Ok(Self {
            root,
            target,
            cargo,
        })
    }

    /// A cargo command in the root of the checkout, free of what `cargo run` set for this very process.
    pub(crate) fn cargo<S: AsRef<str>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Invocation {
        let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let mut invocation = Invocation::new(&self.cargo, arguments).in_folder(&self.root);
        for name in inherited.filter(|name| is_of_one_package(name)) {
            invocation = invocation.without(&name);
        }
        invocation
    }

    /// The runner's own scratch folder beneath the target folder, made if it is not there.
    pub(crate) fn scratch(&self) -> Result<PathBuf> {
        let folder = self.target.join("xtask");
        make_folder(&folder)?;
        Ok(folder)
    }
}

/// Makes `folder` and those above it.
pub(crate) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::new(format!("make {}", folder.display()), error))
}

/// Variables that describe the package being run; a build script that reads one would rebuild its crate.
fn is_of_one_package(name: &str) -> bool {
    [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_",
    ]
    .iter()
    .any(|prefix| name.starts_with(prefix))
        || name == "CARGO_PRIMARY_PACKAGE"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_found() {
        let context = Context::of_this_checkout().unwrap();
        assert!(context.root.join("xtask/src/context.rs").is_file());
    }

    #[test]
    fn variables_of_one_package_do_not_reach_another() {
        assert!(is_of_one_package("CARGO_PKG_NAME"));
        assert!(is_of_one_package("CARGO_MANIFEST_DIR"));
        assert!(!is_of_one_package("CARGO_HOME"));
        assert!(!is_of_one_package("CARGO_TARGET_DIR"));
    }
}
