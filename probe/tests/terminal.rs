//! The binary on a real terminal: a pseudo-terminal of a given width, with and without colour.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a helper that fails fails its test"
)]

#[allow(
    dead_code,
    reason = "each test program uses its part of what they share"
)]
mod support;

use std::fs::File;
use std::io::Read;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use support::command;

/// What the binary writes to a terminal of this many columns.
fn on_terminal(columns: u16, arguments: &str, environment: &[(&str, &str)]) -> String {
    let near = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&near).unwrap();
    unlockpt(&near).unwrap();
    let path = ptsname(&near, Vec::new()).unwrap();
    let path = path.into_string().unwrap();
    let far = File::options().read(true).write(true).open(path).unwrap();
    let size = Winsize {
        ws_row: 50,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&far, size).unwrap();
    let mut command = command(arguments);
    command
        .env("TERM", "xterm")
        .envs(environment.iter().copied());
    let mut child = command
        .stdout(far.try_clone().unwrap())
        .stderr(far)
        .spawn()
        .unwrap();
    // The command holds the far side open too; without it the reading ends with the child, by EIO.
    drop(command);
    let mut bytes = Vec::new();
    let mut near = File::from(near);
    let mut buffer = [0; 4096];
    while let Ok(length @ 1..) = near.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..length]);
    }
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap().replace("\r\n", "\n")
}

/// A text without what colours it.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\x1b') {
        plain.push_str(before);
        rest = after.split_once('m').expect("a sequence that colours").1;
    }
    plain + rest
}

#[test]
fn a_terminal_is_coloured_unless_somebody_says_no() {
    let coloured = on_terminal(80, "providers", &[]);
    assert!(coloured.contains("\x1b[1mProviders\x1b[0m"), "{coloured:?}");
    for (arguments, environment) in [
        ("providers", ("NO_COLOR", "1")),
        ("providers", ("TERM", "dumb")),
        ("providers --color never", ("X", "")),
        ("--color never --help", ("X", "")),
        ("recv --color never", ("X", "")),
    ] {
        let text = on_terminal(80, arguments, &[environment]);
        assert!(
            !text.is_empty() && !text.contains('\x1b'),
            "{arguments} {environment:?}: {text:?}"
        );
    }
    // An empty NO_COLOR is as good as none (no-color.org).
    assert!(on_terminal(80, "providers", &[("NO_COLOR", "")]).contains('\x1b'));
    let always = on_terminal(80, "providers --color always", &[("NO_COLOR", "1")]);
    assert!(always.contains('\x1b'));
}

#[test]
fn text_uses_the_width_and_never_more() {
    let widest = |columns| {
        let text = plain(&on_terminal(columns, "providers --inspect", &[]));
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    for columns in [60, 80, 100] {
        assert!(widest(columns) <= usize::from(columns), "{columns} columns");
    }
    // A wide terminal is used, but not in lines that nobody can read.
    assert!((81..=120).contains(&widest(200)), "{}", widest(200));
}

#[test]
fn a_terminal_shows_progress_while_it_runs_and_a_pipe_does_not() {
    const GENERATED: &str = r#"recv --provider loopback --group 239.7.7.7:47000 --option generate={"count":100,"size":64} --for 600ms"#;
    for columns in [80, 200] {
        let text = on_terminal(columns, GENERATED, &[]);
        let before = text.split("Summary").next().unwrap();
        assert!(before.contains("100 packets in 0."), "{text:?}");
        // It is wiped away before the summary.
        assert!(before.contains("\x1b[2K"), "{text:?}");
    }
    for quiet in [
        on_terminal(80, &format!("{GENERATED} --json"), &[]),
        on_terminal(80, GENERATED, &[("TERM", "dumb")]),
    ] {
        assert!(!quiet.contains("packets in 0.1 s"), "{quiet:?}");
        assert!(!quiet.contains('\x1b'), "{quiet:?}");
    }
}
