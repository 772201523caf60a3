//! The test suites that need what the guest has and a host may lack, RDMA devices or VLAN interfaces: built on the host, run one
//! after another in one boot of the guest.
//!
//! Promises: each test binary of the list runs, also after another one failed; the end says which failed. Does not do:
//! suites that run anywhere, which `cargo test` runs.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Failure;

/// Test targets that need the guest.
struct Suite {
    package: &'static str,
    /// The features that select them, if `cargo test` on a host must not.
    features: &'static str,
    targets: &'static [&'static str],
    /// Only tests whose names have this in them; all if it is empty.
    only: &'static str,
}

const SUITES: &[Suite] = &[
    Suite {
        package: "lockgate-verbs-shim",
        features: "__rxe",
        targets: &["rxe", "rxe_port"],
        only: "",
    },
    Suite {
        package: "lockgate-accel",
        features: "__rxe",
        targets: &["rxe_owners", "rxe_teardown", "rxe_owner_port"],
        only: "",
    },
    // On a host whose kernel has no 8021q these skip.
    Suite {
        package: "lockgate-tests",
        features: "",
        targets: &["udp_netns", "recv_pcap"],
        only: "vlan",
    },
];

/// Runs every binary that stands in its positional parameters up to `--`, with the words after it as arguments.
///
/// Headings are Cargo's, so that whoever reads the output of `cargo test` reads this.
const SCRIPT: &str = r#"
failed=
while [ "$1" != -- ]; do
    name=$1 folder=$2 binary=$3 only=$4
    shift 4
    binaries="$binaries$name
$folder
$binary
$only
"
done
shift
while IFS= read -r name && IFS= read -r folder && IFS= read -r binary && IFS= read -r only; do
    printf '     Running %s (%s)\n' "$name" "$binary"
    (cd "$folder" && exec "$binary" ${only:+"$only"} "$@" </dev/null) || failed="$failed $name"
done <<LIST
$binaries
LIST
[ -z "$failed" ] || { printf 'failed:%s\n' "$failed" >&2; exit 1; }
"#;

/// One test binary.
struct Binary {
    name: String,
    folder: PathBuf,
    path: PathBuf,
    only: &'static str,
}

/// Builds the suites and gives the command that runs them all in the guest, each with `arguments`.
pub(super) fn command(arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    // The guest has no Cargo: tests that run `probe` find it built.
    cargo(&["build", "--quiet", "-p", "lockgate-probe"])?;
    let mut words: Vec<OsString> = ["/usr/bin/env", "LOCKGATE_PROBE_BUILT=1"]
        .into_iter()
        .chain(["/bin/sh", "-c", SCRIPT, "suite"])
        .map(Into::into)
        .collect();
    for suite in SUITES {
        for binary in build(suite)? {
            words.push(binary.name.into());
            words.push(binary.folder.into());
            words.push(binary.path.into());
            words.push(binary.only.into());
        }
    }
    words.push("--".into());
    words.extend_from_slice(arguments);
    Ok(words)
}

fn build(suite: &Suite) -> Result<Vec<Binary>, Failure> {
    let mut arguments = vec![
        "test",
        "--no-run",
        "--quiet",
        "--message-format=json-render-diagnostics",
        "-p",
        suite.package,
    ];
    if !suite.features.is_empty() {
        arguments.extend(["--features", suite.features]);
    }
    for target in suite.targets {
        arguments.extend(["--test", target]);
    }
    let output = cargo(&arguments)?;
    let mut binaries: Vec<Binary> = output
        .split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .filter_map(|message| binary(suite, &message))
        .collect();
    // Cargo names them as it finishes them.
    binaries.sort_by_key(|binary| {
        let name = binary.name.rsplit('/').next();
        suite
            .targets
            .iter()
            .position(|target| Some(*target) == name)
    });
    if binaries.len() == suite.targets.len() {
        return Ok(binaries);
    }
    Err(Failure::new(
        "suite",
        format!(
            "cargo built {} of the {} tests of {}",
            binaries.len(),
            suite.targets.len(),
            suite.package
        ),
    ))
}

/// Runs Cargo and gives what it printed; what it complains of goes to the terminal.
fn cargo(arguments: &[&str]) -> Result<Vec<u8>, Failure> {
    let program = std::env::var_os("CARGO");
    let output = Command::new(program.as_deref().unwrap_or(OsStr::new("cargo")))
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Failure::new("suite", format!("cargo doesn't run: {error}")))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let words = arguments.join(" ");
    Err(Failure::new("suite", format!("cargo {words} failed")))
}

/// Reads one of Cargo's messages: the artifact of a listed test target, or something else.
fn binary(suite: &Suite, message: &Value) -> Option<Binary> {
    let target = &message["target"];
    let name = target["name"].as_str()?;
    let is_test = target["kind"].as_array()?.iter().any(|kind| kind == "test");
    if !is_test || !suite.targets.contains(&name) {
        return None;
    }
    Some(Binary {
        name: format!("{}, tests/{name}", suite.package),
        folder: PathBuf::from(message["manifest_path"].as_str()?)
            .parent()?
            .to_owned(),
        path: message["executable"].as_str()?.into(),
        only: suite.only,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_artifact_of_a_listed_test_is_a_binary() {
        let suite = Suite {
            package: "p",
            features: "f",
            targets: &["t"],
            only: "",
        };
        let message = |kind: &str, name: &str, executable: Value| {
            json!({
                "reason": "compiler-artifact",
                "manifest_path": "/w/p/Cargo.toml",
                "target": {"kind": [kind], "name": name},
                "executable": executable,
            })
        };
        let found = binary(&suite, &message("test", "t", json!("/w/target/t-1"))).unwrap();
        assert_eq!(found.name, "p, tests/t");
        assert_eq!(found.folder, PathBuf::from("/w/p"));
        assert_eq!(found.path, PathBuf::from("/w/target/t-1"));
        for other in [
            message("lib", "t", json!("/x")),
            message("test", "u", json!("/x")),
            message("test", "t", Value::Null),
            json!({"reason": "build-finished", "success": true}),
        ] {
            assert!(binary(&suite, &other).is_none(), "{other}");
        }
    }

    #[test]
    fn the_script_runs_all_and_names_those_that_failed() {
        let run = |words: &[&str]| {
            Command::new("/bin/sh")
                .args(["-c", SCRIPT, "suite"])
                .args(words)
                .output()
                .unwrap()
        };
        let output = run(&[
            "a",
            "/",
            "/bin/false",
            "",
            "b c",
            "/usr",
            "/bin/pwd",
            "",
            "d",
            "/",
            "/bin/echo",
            "name",
            "--",
            "-P",
            "x",
        ]);
        assert_eq!(output.status.code(), Some(1));
        let out = String::from_utf8(output.stdout).unwrap();
        let expected = [
            "     Running a (/bin/false)",
            "     Running b c (/bin/pwd)",
            "/usr",
            "     Running d (/bin/echo)",
            "name -P x",
        ];
        assert_eq!(out.lines().collect::<Vec<_>>(), expected);
        let err = String::from_utf8(output.stderr).unwrap();
        assert!(err.ends_with("failed: a\n"), "{err}");

        assert_eq!(
            run(&["a", "/", "/bin/true", "", "--"]).status.code(),
            Some(0)
        );
    }
}
