//! The layouts by which the probe's child reads structs of libibverbs, against the header that a C compiler sees.
//!
//! Needs a C compiler and the headers of libibverbs; skipped with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

use std::path::Path;
use std::process::Command;

use lockgate_probe_loader::LAYOUT;
use lockgate_tests::tools;

#[test]
fn sizes_and_places_are_those_of_the_header() {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        tools::skip(
            "verbs",
            "no infiniband/verbs.h; on Debian or Ubuntu: apt-get install libibverbs-dev",
        );
        return;
    }
    let mut source = "#include <stddef.h>\n#include <infiniband/verbs.h>\n".to_owned();
    for (expression, expected) in LAYOUT {
        source.push_str(&format!(
            "_Static_assert(({expression}) == {expected}, \"{expression}\");\n"
        ));
    }
    let name = format!("lockgate-layout-{}.c", std::process::id());
    let file = std::env::temp_dir().join(name);
    std::fs::write(&file, source).unwrap();
    let done = Command::new("cc").arg("-fsyntax-only").arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let done = done.expect("cc runs: the package gcc");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(LAYOUT.len() > 20);
}
