//! Compiles the shim against the system's libibverbs, or as a link stub.
//!
//! Promises: which of the two is the builder's explicit choice; a library that isn't found is an error that says what to
//! do, never a quiet stub. The library stands behind the shim's archive on the linker's line, since `--as-needed` drops
//! what nobody has asked for yet. Does not do: using the network, or headers of another version than the library's.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

/// `1` builds without the library; unset or `0` with it.
const STUB: &str = "LOCKGATE_VERBS_LINK_STUB";
/// The folder of `infiniband/verbs.h`, instead of what `pkg-config` says.
const INCLUDE: &str = "LOCKGATE_VERBS_INCLUDE_DIR";
/// The folder of `libibverbs.so`, instead of what `pkg-config` says.
const LIBRARY: &str = "LOCKGATE_VERBS_LIB_DIR";

/// The first release whose headers have every name that the shim uses (rdma-core 35). The library that is loaded later
/// may be older: what it must have is `IBVERBS_1.9` of rdma-core 30, as a test of the built binary shows.
const OLDEST: &str = "1.13.35";

const SOURCES: [&str; 11] = [
    "ah", "async", "channel", "cq", "device", "flow", "mcast", "mr", "mw", "pd", "qp",
];

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            // Cargo shows what a failed build script prints as an error line.
            println!("cargo::error={text}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    for variable in [STUB, INCLUDE, LIBRARY] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=include");
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::rustc-check-cfg=cfg(lockgate_verbs_stub)");

    let stub = match env::var(STUB).as_deref() {
        Err(_) | Ok("" | "0") => false,
        Ok("1") => true,
        Ok(other) => return Err(format!("{STUB} is {other:?}; 0 and 1 are allowed")),
    };
    let mut shim = cc::Build::new();
    shim.include("include")
        .std("gnu11")
        .warnings(true)
        .extra_warnings(true)
        .warnings_into_errors(true)
        .flag("-fvisibility=hidden");
    if stub {
        shim.file("csrc/stub.c").compile("lockgate_verbs_shim");
        println!("cargo::rustc-cfg=lockgate_verbs_stub");
        println!("cargo::metadata=mode=stub");
        return Ok(());
    }
    let library = find_library()?;
    for folder in &library.include {
        // As system headers: their warnings are not ours to fail on.
        shim.flag("-isystem").flag(folder);
    }
    for source in SOURCES {
        shim.file(format!("csrc/{source}.c"));
    }
    shim.compile("lockgate_verbs_shim");
    for folder in &library.search {
        println!("cargo::rustc-link-search=native={}", folder.display());
    }
    println!("cargo::rustc-link-lib=dylib=ibverbs");
    println!("cargo::metadata=mode=library");
    Ok(())
}

struct Library {
    include: Vec<PathBuf>,
    search: Vec<PathBuf>,
}

fn find_library() -> Result<Library, String> {
    let folder = |variable: &str| env::var_os(variable).map(PathBuf::from);
    match (folder(INCLUDE), folder(LIBRARY)) {
        (Some(include), Some(library)) => Ok(Library {
            include: vec![include],
            search: vec![library],
        }),
        // Headers of one version beside a library of another are the start of hard faults.
        (Some(_), None) | (None, Some(_)) => Err(format!("{INCLUDE} and {LIBRARY} go together: set both or none")),
        (None, None) => pkg_config::Config::new()
            .atleast_version(OLDEST)
            .cargo_metadata(false)
            .probe("libibverbs")
            .map(|found| Library {
                include: found.include_paths,
                search: found.link_paths,
            })
            .map_err(|error| {
                let error = error.to_string();
                let first = error.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason");
                format!(
                    "libibverbs {OLDEST} or newer with its headers isn't found ({first}); install libibverbs-dev or \
                     rdma-core-devel, or set {INCLUDE} and {LIBRARY}, or set {STUB}=1 to build everything without it"
                )
            }),
    }
}
