//! What the guest runs: a shell script that lays the caller's folder and environment and becomes the command.
//!
//! Promises: arguments, paths and values arrive byte for byte. Does not do: carrying the whole environment over; the
//! list below says what is.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Variables that go along: those that steer the loader, Cargo, the tests and the verbs libraries.
const VARIABLES: [&str; 4] = ["HOME", "LANG", "LD_LIBRARY_PATH", "PATH"];
const PREFIXES: [&str; 7] = [
    "CARGO",
    "IBV_",
    "LOCKGATE_",
    "PROPTEST_",
    "RDMAV_",
    "RUST",
    "UCX_",
];

/// The two RDMA devices of the guest, for tests that must be told which to use.
const DEVICES: (&str, &str) = ("LOCKGATE_RXE", "rxe0,rxe1");

/// The script for `command`, run in `folder` with the variables that are to go along, and those `named`.
pub(super) fn script(
    command: &[OsString],
    folder: &Path,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    named: &[String],
) -> Vec<u8> {
    let mut script = b"cd ".to_vec();
    quote(folder.as_os_str(), &mut script);
    script.extend_from_slice(b" || exit 125\n");
    let devices = (OsString::from(DEVICES.0), OsString::from(DEVICES.1));
    for (name, value) in environment
        .into_iter()
        .filter(|(name, _)| goes_along(name, named))
        .chain([devices])
    {
        script.extend_from_slice(b"export ");
        script.extend_from_slice(name.as_bytes());
        script.push(b'=');
        quote(&value, &mut script);
        script.push(b'\n');
    }
    script.extend_from_slice(b"exec");
    for word in command {
        script.push(b' ');
        quote(word, &mut script);
    }
    script.push(b'\n');
    script
}

fn goes_along(name: &OsStr, named: &[String]) -> bool {
    let Some(name) = name.to_str() else {
        return false;
    };
    // A name that the shell can't assign, such as a function that bash exported, would end the script.
    let assignable = name
        .bytes()
        .all(|byte| byte == b'_' || byte.is_ascii_alphanumeric());
    assignable
        && (VARIABLES.contains(&name)
            || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
            || named.iter().any(|other| other == name))
}

/// Writes a word so that the shell reads it back as it is.
fn quote(word: &OsStr, script: &mut Vec<u8>) {
    script.push(b'\'');
    for byte in word.as_bytes() {
        if *byte == b'\'' {
            script.extend_from_slice(b"'\\''");
        } else {
            script.push(*byte);
        }
    }
    script.push(b'\'');
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Runs the script with the host's shell and gives what it printed.
    fn run(command: &[&str], environment: &[(&str, &str)], named: &[&str]) -> String {
        let command: Vec<OsString> = command.iter().map(Into::into).collect();
        let environment = environment.iter().map(|(n, v)| (n.into(), v.into()));
        let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
        let script = script(&command, Path::new("/"), environment, &named);
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn words_arrive_byte_for_byte() {
        let words = [
            "it's",
            "a b",
            "$HOME",
            "`id`",
            "\\n",
            "",
            "\"",
            "line\nbreak",
            "*",
        ];
        let mut command = vec!["printf", "<%s>"];
        command.extend(words);
        let expected: String = words.iter().map(|word| format!("<{word}>")).collect();
        assert_eq!(run(&command, &[], &[]), expected);
    }

    #[test]
    fn only_the_listed_variables_go_along() {
        let environment = [
            ("RUST_BACKTRACE", "1"),
            ("IBV_SHOW", "it's"),
            ("SECRET", "x"),
            ("MINE", "y"),
            ("RUST_BAD%%", "()"),
        ];
        let text = run(&["env"], &environment, &["MINE"]);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.retain(|line| {
            !["PWD=", "OLDPWD=", "_=", "PATH=", "SHLVL="]
                .iter()
                .any(|p| line.starts_with(p))
        });
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "IBV_SHOW=it's",
                "LOCKGATE_RXE=rxe0,rxe1",
                "MINE=y",
                "RUST_BACKTRACE=1"
            ]
        );
    }
}
