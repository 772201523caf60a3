//! `probe verify-linkage` on binaries that are linked in every right and wrong way.
//!
//! The binaries are compiled here. Needs root, `unshare`, a C compiler and libibverbs with its headers and static library; skipped
//! with a reason without.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a helper that fails fails its test"
)]

mod check_support;

use std::path::Path;
use std::process::Command;

use check_support::{Report, Stage, compile, for_machine, plain, real, vendored};

fn verify(file: &Path) -> Report {
    let output = plain().arg("verify-linkage").arg(file).output();
    Report::of(output.expect("the probe runs"))
}

#[test]
fn a_binary_with_the_shared_library_is_ok_and_readelf_agrees() {
    let Some(real) = real() else { return };
    let stage = Stage::new();
    let app = stage.path("app");
    compile("app.c", &app, &["-libverbs"]);
    let report = verify(&app);
    report.fails(0, &[]);
    report.tells("linkage-ok", &real.library.display().to_string());
    let document = report.document();
    let needs = document["image"]["needs"].to_string();
    assert!(needs.contains("IBVERBS_1.1"), "{needs}");
    // An independent reader sees the same.
    let readelf = Command::new("readelf")
        .args(["-dV"])
        .arg(&app)
        .output()
        .unwrap();
    let readelf = String::from_utf8(readelf.stdout).unwrap();
    for name in document["image"]["needed"].as_array().unwrap() {
        let line = format!("Shared library: [{}]", name.as_str().unwrap());
        assert!(readelf.contains(&line), "{line}");
    }
    let count = readelf.matches("(NEEDED)").count();
    assert_eq!(document["image"]["needed"].as_array().unwrap().len(), count);
    for need in document["image"]["needs"].as_array().unwrap() {
        for version in need["versions"].as_array().unwrap() {
            let line = format!("Name: {}", version.as_str().unwrap());
            assert!(readelf.contains(&line), "{line}");
        }
    }
}

#[test]
fn the_loader_takes_the_files_that_the_search_says() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let app = stage.path("app");
    compile("app.c", &app, &["-libverbs"]);
    let document = verify(&app).document();
    let ldd = Command::new("ldd").arg(&app).output().unwrap();
    let ldd = String::from_utf8(ldd.stdout).unwrap();
    let libraries = document["closure"]["libraries"].as_array().unwrap();
    for library in libraries {
        let name = library["name"].as_str().unwrap();
        let path = library["search"]["found"]["path"].as_str().unwrap();
        let line = ldd.lines().find(|line| line.trim_start().starts_with(name));
        // The dynamic linker itself is told by its path.
        let Some(line) = line else { continue };
        let told = line
            .split("=> ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .unwrap();
        let same = |path: &str| std::fs::canonicalize(path).unwrap();
        assert_eq!(same(path), same(told), "{name}");
    }
    assert!(
        libraries.len() >= 3,
        "libibverbs brings its own needs: {libraries:?}"
    );
}

#[test]
fn a_static_copy_is_found_with_and_without_symbols() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let app = stage.path("static");
    compile(
        "app.c",
        &app,
        &[
            "-Wl,-Bstatic",
            "-libverbs",
            "-Wl,-Bdynamic",
            "-lnl-route-3",
            "-lnl-3",
        ],
    );
    verify(&app).fails(5, &[&format!("{}: library-static", app.display())]);
    assert!(Command::new("strip").arg(&app).status().unwrap().success());
    verify(&app).fails(5, &[&format!("{}: library-static", app.display())]);
}

#[test]
fn two_copies_in_a_closure_are_found() {
    let Some(real) = real() else { return };
    let stage = Stage::new();
    let copy = stage.path("libvendored.so1");
    vendored(&real.library, &copy);
    let app = stage.path("two");
    let run_path = format!("-Wl,-rpath,{}", stage.path("").display());
    let copy_text = copy.display().to_string();
    compile(
        "app.c",
        &app,
        &["-libverbs", "-Wl,--no-as-needed", &copy_text, &run_path],
    );
    let report = verify(&app);
    report.fails(5, &[&format!("{}: library-two-copies", app.display())]);
    report.tells("library-two-copies", &copy_text);
    report.tells("library-two-copies", &real.library.display().to_string());
}

#[test]
fn verbs_that_nothing_needed_has_are_a_failure_as_with_as_needed_in_the_wrong_order() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let wrapper = stage.path("libwrapper.so");
    compile(
        "app.c",
        &wrapper,
        &["-shared", "-fPIC", "-Wl,--as-needed", "-Wl,-z,undefs"],
    );
    let report = verify(&wrapper);
    report.fails(5, &[&format!("{}: linkage-not-needed", wrapper.display())]);
    report.tells("linkage-not-needed", "ibv_get_device_list");
}

#[test]
fn names_for_loading_at_run_time_are_told_apart() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let app = stage.path("numbered");
    compile("opens.c", &app, &["-DNAME=\"libibverbs.so.1\""]);
    let report = verify(&app);
    report.fails(0, &[]);
    assert_eq!(
        report.verdicts("note"),
        [format!("{}: linkage-dlopen", app.display())]
    );
    let app = stage.path("unnumbered");
    compile("opens.c", &app, &["-DNAME=\"libibverbs.so\""]);
    verify(&app).fails(5, &[&format!("{}: linkage-unversioned", app.display())]);
    let app = stage.path("nothing");
    compile("opens.c", &app, &["-DNAME=\"libother.so.1\""]);
    let report = verify(&app);
    report.fails(0, &[]);
    assert_eq!(
        report.verdicts("note"),
        [format!("{}: linkage-none", app.display())]
    );
}

#[test]
fn a_version_that_the_library_lacks_and_a_library_that_is_gone_are_told() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let script = stage.path("versions");
    std::fs::write(&script, "IBVERBS_1.99 { global: ibv_future_call; };").unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    let stub = |soname: &str, name: &str, more: &str| {
        let soname = format!("-Wl,-soname,{soname}");
        let path = stage.library("stub.c", name, &["-DREGISTER=unused", &soname, more]);
        path.display().to_string()
    };
    let newer = stub("libibverbs.so.1", "newer.so", &script);
    let options = [
        "-DFUTURE",
        "-DREGISTER=unused_",
        "-DPREFIX=\"x\"",
        "-Wl,-z,undefs",
        &newer,
    ];
    let user = stage.library("provider.c", "user.so", &options);
    let report = verify(&user);
    report.fails(5, &[&format!("{}: linkage-versions", user.display())]);
    report.tells("linkage-versions", "IBVERBS_1.99");
    let gone = stub("libgone.so.1", "libgone.so", "-Wl,-z,now");
    let app = stage.path("app");
    compile("app.c", &app, &["-libverbs", "-Wl,--no-as-needed", &gone]);
    let report = verify(&app);
    report.fails(5, &[&format!("{}: linkage-missing", app.display())]);
    report.tells("linkage-missing", "libgone.so.1");
}

#[test]
fn a_library_of_another_architecture_is_told_by_the_binary_too() {
    let Some(real) = real() else { return };
    let mut stage = Stage::new();
    let app = stage.path("app");
    compile("app.c", &app, &["-libverbs"]);
    let foreign = stage.path("foreign.so");
    for_machine(
        &real.library,
        &foreign,
        if cfg!(target_arch = "aarch64") {
            62
        } else {
            183
        },
    );
    stage.replace(&real.library, &foreign);
    let report = stage.run(&format!("verify-linkage --json {}", app.display()));
    report.fails(5, &[&format!("{}: library-wrong-arch", app.display())]);
}

#[test]
fn the_default_build_of_the_probe_does_not_need_the_library() {
    let Some(_) = real() else { return };
    let report = Report::of(plain().arg("verify-linkage").output().unwrap());
    report.fails(0, &[]);
    let needed = report.document()["image"]["needed"].to_string();
    assert!(!needed.contains("verbs"), "{needed}");
}

#[test]
fn what_is_no_binary_is_a_wrong_use_with_a_reason() {
    let Some(_) = real() else { return };
    let stage = Stage::new();
    let script = stage.path("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    for (file, reason) in [
        (script.as_path(), "a script, not an ELF file"),
        (Path::new("/dev/null"), "not a regular file"),
        (Path::new("/no/such/file"), "No such file"),
    ] {
        let report = verify(file);
        assert_eq!(report.code, 2, "{}", report.stdout);
        let error = report.document()["error"].clone();
        let detail = error["detail"].as_str().unwrap();
        assert!(detail.contains(reason), "{detail}");
    }
}
