//! The binary as a user runs it: exit codes, refusals, documents, colours, and readers that go away.
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

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::Stdio;

use lockgate_providers::loopback::stream;
use support::{command, ended, probe};

/// A receiver that makes its own packets, so that a run needs no network.
const GENERATED: &str = r#"recv --provider loopback --group 239.7.7.7:47000 --option generate={"count":100,"size":64,"seed":5}"#;
/// A receiver that nothing is sent to.
const SILENT: &str = "recv --provider loopback --group 239.7.7.7:47000";

/// The words of a text, however it was wrapped.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A file of a name of its own, gone with the value.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("probe-cli-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What a refusal says of the provider that only some builds carry.
const IBVERBS: &str = if cfg!(feature = "ibverbs") {
    "ibverbs registered"
} else {
    "ibverbs known but not built in"
};

#[test]
fn without_a_provider_nothing_is_opened_and_every_candidate_is_listed() {
    let run = probe("recv --group 239.7.7.7:47000 --interface lo");
    assert_eq!(run.code, 3, "{}", run.stderr);
    assert_eq!(run.stdout, "");
    for part in [
        "refused, no provider was named",
        IBVERBS,
        "loopback registered",
        "packet registered",
        "udp registered",
        "xdp registered",
        if cfg!(feature = "ibverbs") {
            "remedy name one of these: ibverbs, loopback, packet, udp, xdp (--provider NAME)"
        } else {
            "remedy name one of these: loopback, packet, udp, xdp (--provider NAME)"
        },
    ] {
        assert!(
            words(&run.stderr).contains(part),
            "{part:?} is not in {}",
            run.stderr
        );
    }
    let document = probe("recv --group 239.7.7.7:47000 --json").document("refused");
    assert_eq!(document["error"]["refusal"]["cause"]["cause"], "implicit");
    let candidates = document["error"]["refusal"]["candidates"]
        .as_array()
        .unwrap();
    let names: Vec<_> = candidates.iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["ibverbs", "loopback", "packet", "udp", "xdp"]);
}

#[test]
fn a_misspelt_provider_is_refused_with_what_was_meant() {
    let run = probe("recv --provider upd --group 239.7.7.7:47000");
    assert_eq!(run.code, 3);
    assert!(run.stderr.contains("did you mean udp?"), "{}", run.stderr);
}

#[cfg(feature = "ibverbs")]
#[test]
fn the_native_provider_is_dispatched_to_and_names_the_step_that_fails() {
    let run =
        probe("recv --provider ibverbs --interface lo --group 239.7.7.7:47000 --wait busy-poll");
    assert_ne!(run.code, 0);
    let text = words(&run.stderr);
    // The loopback interface is beneath no RDMA device, so an open ends here at the latest.
    assert!(
        text.contains("list devices") || text.contains("select device"),
        "{text}"
    );
    assert!(text.contains("remedy"), "{text}");
}

#[cfg(not(feature = "ibverbs"))]
#[test]
fn a_provider_that_is_not_built_in_is_refused_with_what_turns_it_on() {
    let run = probe("recv --provider ibverbs --group 239.7.7.7:47000");
    assert_eq!(run.code, 3);
    let text = words(&run.stderr);
    assert!(
        text.ends_with("remedy rebuild with feature ibverbs of package lockgate-accel"),
        "{text}"
    );
}

#[test]
fn wrong_values_are_usage_errors_and_all_are_told_at_once() {
    let run = probe("recv --provider udp --interface lo --group 10.1.1.1:0 --vlan 5000 --batch 0");
    assert_eq!(run.code, 2, "{}", run.stderr);
    for field in ["groups[0].address", "groups[0].port", "vlan", "batch"] {
        assert!(
            run.stderr.contains(field),
            "{field} is not in {}",
            run.stderr
        );
    }
    let run = probe("recv --provider loopback --group 239.7.7.7:47000 --option nonsense=1 --json");
    let document = run.document("usage");
    assert_eq!(document["error"]["faults"][0]["field"], "options.nonsense");
}

#[test]
fn a_command_line_that_can_not_be_read_is_a_usage_error() {
    for (arguments, part) in [
        ("recv --group 239.7.7.7", "allowed: 239.7.7.7:47000"),
        (
            "recv --group 239.7.7.7:5@x",
            "source \"x\" is not an address",
        ),
        ("recv --for 10", "allowed: 500ms, 10s, 2m, 1h"),
        ("recv --count 0", "0"),
        ("recv --option x", "allowed: NAME=VALUE"),
        ("recv --hex 5 --json", "cannot be used with"),
        ("recv --wait sometimes", "busy-poll"),
        ("nonsense", "nonsense"),
        ("--nonsense", "--nonsense"),
    ] {
        let run = probe(arguments);
        assert_eq!(run.code, 2, "{arguments}: {}", run.stderr);
        assert!(run.stderr.contains(part), "{arguments}: {}", run.stderr);
        assert_eq!(run.stdout, "", "{arguments}");
    }
}

#[test]
fn an_unknown_interface_is_no_hardware_and_says_so() {
    let arguments = "recv --provider udp --group 239.7.7.7:47000 --interface nosuch0";
    let run = probe(arguments);
    assert_eq!(run.code, 4, "{}", run.stderr);
    assert!(run.stderr.contains("nosuch0"), "{}", run.stderr);
    assert!(run.stderr.contains("remedy"), "{}", run.stderr);
    let document = probe(&format!("{arguments} --json")).document("no-hardware");
    assert_eq!(document["error"]["kind"], "device");
    assert_eq!(document["error"]["provider"], "udp");
}

#[test]
fn what_a_provider_does_not_claim_is_a_capability() {
    let arguments = "recv --provider udp --interface lo --group 239.7.7.7:47000 --vlan 5";
    let run = probe(arguments);
    assert_eq!(run.code, 9, "{}", run.stderr);
    assert!(run.stderr.contains("vlan-filter"), "{}", run.stderr);
    probe(&format!("{arguments} --json")).document("capability");
}

#[test]
fn a_count_ends_the_run_and_only_what_was_counted_is_shown() {
    let run = probe(&format!("{GENERATED} --count 70 --json"));
    let document = run.document("ok");
    assert_eq!(document["packets"], 70);
    assert_eq!(document["bytes"], 70 * 64);
    assert_eq!(document["ended"], "count");
    assert_eq!(document["spec"]["provider"], "loopback");

    let run = probe(&format!("{GENERATED} --count 70"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        words(&run.stdout).contains(" packets 70 in "),
        "{}",
        run.stdout
    );
    assert!(
        words(&run.stdout).contains(" ended by --count"),
        "{}",
        run.stdout
    );
}

#[test]
fn fewer_packets_than_asked_for_and_none_at_all_are_no_packets() {
    let run = probe(&format!("{GENERATED} --count 101 --for 200ms --json"));
    let document = run.document("no-packets");
    assert_eq!(document["packets"], 100);
    assert_eq!(document["ended"], "time");
    assert_eq!(document["hints"].as_array().unwrap().len(), 0);

    let run = probe(&format!("{SILENT} --for 100ms"));
    assert_eq!(run.code, 10, "{}", run.stderr);
    assert!(
        run.stdout
            .contains("receives only what is sent within this process"),
        "{}",
        run.stdout
    );
    let document = probe(&format!("{SILENT} --for 100ms --json")).document("no-packets");
    assert_eq!(document["hints"].as_array().unwrap().len(), 1);
}

#[test]
fn a_silent_group_on_the_loopback_interface_gets_hints_of_what_the_host_shows() {
    // A group that no other run has.
    let [.., third, fourth] = std::process::id().to_be_bytes();
    let group = format!("239.254.{third}.{fourth}");
    let run = probe(&format!(
        "recv --provider udp --interface lo --group {group}:47000 --for 200ms"
    ));
    assert_eq!(run.code, 10, "{}", run.stderr);
    let text = words(&run.stdout);
    assert!(
        text.contains(&format!("the kernel has {group} joined on lo")),
        "{}",
        run.stdout
    );
    assert!(text.contains("tcpdump -ni lo udp") || text.contains("lo received no packet"));
}

#[test]
fn a_dump_has_every_packet_with_every_byte() {
    let file = Temporary::new("dump", "");
    let run = probe(&format!("{GENERATED} --count 100 --dump {}", file.path()));
    assert_eq!(run.code, 0, "{}", run.stderr);
    check_dump(&fs::read_to_string(&file.0).unwrap());

    let run = probe(&format!("{GENERATED} --count 100 --dump -"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    check_dump(&run.stdout);
    assert!(run.stderr.contains("Summary"), "{}", run.stderr);
}

fn check_dump(text: &str) {
    assert_eq!(text.lines().count(), 100);
    for (number, line) in text.lines().enumerate() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let digits = line["payload"].as_str().unwrap();
        let payload: Vec<u8> = (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
            .collect();
        assert_eq!(stream::verify(5, &payload), Some(number as u64), "{line}");
        assert_eq!(line["number"], number);
        assert_eq!(line["length"], 64);
        assert_eq!(line["destination"], "239.7.7.7:47000");
    }
}

#[test]
fn a_dump_and_a_document_do_not_share_the_standard_output() {
    let run = probe(&format!("{GENERATED} --dump - --json"));
    let document = run.document("usage");
    assert_eq!(document["error"]["faults"][0]["field"], "--dump");
}

#[test]
fn a_dump_that_can_not_be_created_is_an_error_with_its_path() {
    let run = probe(&format!("{GENERATED} --dump /no-such-folder/dump"));
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("/no-such-folder/dump"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("ENOENT"), "{}", run.stderr);
}

#[test]
fn hexadecimal_digits_are_printed_for_people() {
    let run = probe(&format!("{GENERATED} --count 2 --hex 16"));
    let lines: Vec<_> = run
        .stdout
        .lines()
        .filter(|line| line.contains("0000  "))
        .collect();
    assert_eq!(lines.len(), 2, "{}", run.stdout);
    assert!(
        lines[1].starts_with("  0000  00 00 00 00 00 00 00 01  "),
        "{}",
        lines[1]
    );
}

#[test]
fn a_file_gives_provider_and_configuration_and_the_command_line_goes_before_it() {
    let toml = Temporary::new(
        "spec.toml",
        "provider = \"loopback\"\n[receive]\ngroups = [\"239.7.7.7:47000\"]\nbatch = 8\n\
         options = { generate = { count = 10, size = 64 } }\n",
    );
    let document =
        probe(&format!("recv --config {} --count 10 --json", toml.path())).document("ok");
    assert_eq!(document["spec"]["receive"]["batch"], 8);
    assert_eq!(document["statistics"]["batches"], 2);

    let run = probe(&format!(
        "recv --config {} --batch 5 --count 10 --json",
        toml.path()
    ));
    assert_eq!(run.document("ok")["spec"]["receive"]["batch"], 5);

    let json = Temporary::new(
        "spec.json",
        r#"{ "receive": { "groups": ["239.7.7.7:47000"] } }"#,
    );
    probe(&format!("recv --config {} --json", json.path())).document("refused");

    let unknown = Temporary::new(
        "unknown.toml",
        "provider = \"udp\"\n[receive]\ngroup = []\n",
    );
    let run = probe(&format!("recv --config {}", unknown.path()));
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(
        run.stderr.contains("unknown field `group`"),
        "{}",
        run.stderr
    );

    let run = probe("recv --config /no-such-file.toml");
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("/no-such-file.toml"), "{}", run.stderr);
}

#[test]
fn a_signal_ends_a_run_with_a_summary() {
    for (arguments, code) in [
        (SILENT.to_owned(), 10),
        (GENERATED.to_owned(), 0),
        (format!("{SILENT} --for 1h"), 130),
    ] {
        let mut child = command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut text = String::new();
        // From this line on the handlers are set and the receiver is open.
        while !text.contains("until  ") {
            assert_ne!(lines.read_line(&mut text).unwrap(), 0, "{text}");
        }
        if code == 0 {
            wait_until_read(child.id());
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        lines.read_to_string(&mut text).unwrap();
        let run = ended(child.wait_with_output().unwrap());
        assert_eq!(run.code, code, "{arguments}: {text}{}", run.stderr);
        assert!(
            text.contains("Summary") && text.contains("a signal"),
            "{text}"
        );
    }
}

/// Waits until a process has slept: a receiver does so once it has taken everything that was there.
fn wait_until_read(pid: u32) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let switches = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .unwrap();
        line.trim().parse::<u64>().unwrap()
    };
    let first = switches();
    while switches() < first + 3 {
        assert!(std::time::Instant::now() < deadline, "it never waits");
        std::thread::yield_now();
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_run_without_a_panic() {
    for arguments in [
        "",
        "providers",
        "providers --json",
        &format!("{GENERATED} --dump -"),
    ] {
        // Gone before the first byte is written, so that no buffer hides it.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = ended(command(arguments).stdout(writer).output().unwrap());
        assert_eq!(run.code, 141, "{arguments}: {}", run.stderr);
        assert!(!run.stderr.contains("Broken pipe"), "{}", run.stderr);
    }
}

#[test]
fn providers_are_listed_with_their_reasons() {
    let document = probe("providers --json").document("ok");
    let list = document["providers"].as_array().unwrap();
    let status = |name: &str| {
        let one = list.iter().find(|one| one["name"] == name).unwrap();
        assert!(one["inspection"].is_null());
        one["status"]["status"].as_str().unwrap()
    };
    let carried = if cfg!(feature = "ibverbs") {
        "registered"
    } else {
        "known"
    };
    assert_eq!(status("ibverbs"), carried);
    assert_eq!(status("loopback"), "registered");
    assert_eq!(status("udp"), "registered");

    let document = probe("providers --json --inspect").document("ok");
    for one in document["providers"].as_array().unwrap() {
        let registered = one["status"]["status"] == "registered";
        assert_eq!(one["inspection"].is_object(), registered, "{one}");
    }
    let run = probe("providers --inspect");
    assert!(run.stdout.contains("inspected"), "{}", run.stdout);
}

#[test]
fn every_text_fits_80_columns_and_has_no_colour_in_a_pipe() {
    for arguments in [
        "--help",
        "recv --help",
        "providers --help",
        "providers --inspect",
        "recv",
        "recv --provider upd",
        "recv --provider udp --group 10.1.1.1:0 --vlan 5000 --ring 0",
        "recv --provider udp --group 239.7.7.7:47000 --interface nosuch0",
        &format!("{GENERATED} --count 3 --hex 64"),
        &format!("{SILENT} --for 50ms"),
    ] {
        let run = probe(arguments);
        for line in run.stdout.lines().chain(run.stderr.lines()) {
            assert!(line.chars().count() <= 80, "{arguments}: {line:?}");
            assert!(!line.contains('\x1b'), "{arguments}: {line:?}");
        }
    }
}

#[test]
fn colour_follows_the_flag() {
    assert!(
        probe("providers --color always")
            .stdout
            .contains("\x1b[1mProviders\x1b[0m")
    );
    assert!(probe("recv --color always").stderr.contains("\x1b[1;31m"));
    assert!(!probe("providers --color never").stdout.contains('\x1b'));
    let json = probe("providers --color always --json");
    assert!(!json.stdout.contains('\x1b'));
}

#[test]
fn help_and_version_are_answers_and_the_help_has_the_codes() {
    let run = probe("--help");
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("130  interrupted"), "{}", run.stdout);
    let run = probe("--version");
    assert_eq!(run.code, 0);
    assert_eq!(
        run.stdout.trim(),
        concat!("probe ", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn a_recording_has_what_was_counted_and_no_more() {
    let file = Temporary::new("recording", "");
    let run = probe(&format!(
        "{GENERATED} --count 70 --pcap {} --json",
        file.path()
    ));
    let recording = run.document("ok")["recording"].clone();
    assert_eq!(recording["packets"], 70);
    assert!(recording["error"].is_null());
    let length = fs::metadata(&file.0).unwrap().len();
    assert_eq!(recording["bytes"], length);
    let reader = lockgate_providers::capture::Reader::open(&file.0).unwrap();
    let packets: Vec<_> = reader.packets().map(Result::unwrap).collect();
    assert_eq!(packets.len(), 70);
    for (number, packet) in packets.iter().enumerate() {
        assert_eq!(stream::verify(5, &packet.bytes[28..]), Some(number as u64));
    }
}

#[test]
fn a_recording_that_can_not_be_written_is_told_and_the_packets_come_all_the_same() {
    let run = probe(&format!("{GENERATED} --count 100 --pcap /dev/full --json"));
    assert_ne!(run.code, 0);
    let text = &run.stdout;
    assert!(text.contains("ENOSPC"), "{text}{}", run.stderr);
    let run = probe(&format!("{GENERATED} --count 1 --pcap /no-such-folder/x"));
    assert_eq!(run.code, 1);
    assert!(run.stderr.contains("/no-such-folder/x"), "{}", run.stderr);
}

#[test]
fn figures_are_told_every_so_often_as_text_and_as_lines_of_json() {
    let arguments = format!("{GENERATED} --for 350ms --stats-interval 100ms");
    let run = probe(&arguments);
    let told = run
        .stdout
        .lines()
        .filter(|line| line.contains(" Mbit/s, 0 lost"));
    assert!((1..=3).contains(&told.count()), "{}", run.stdout);

    let run = probe(&format!("{arguments} --json"));
    assert_eq!(run.document("ok")["packets"], 100);
    let mut packets = 0;
    for line in run.stderr.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        packets += line["interval"]["packets"].as_u64().unwrap();
    }
    assert_eq!(packets, 100, "{}", run.stderr);
}

/// A command with a stream that takes nothing.
fn full() -> Stdio {
    let file = fs::OpenOptions::new().write(true).open("/dev/full");
    file.unwrap().into()
}

#[test]
fn an_output_that_is_full_is_a_failure_and_nobody_went_away() {
    for arguments in [
        "providers",
        "providers --json",
        "recv --json",
        "recv --provider nope --json",
        "--help",
        "--version",
        "recv --help",
    ] {
        let run = ended(command(arguments).stdout(full()).output().unwrap());
        assert_eq!(run.code, 1, "{arguments}: {}", run.stderr);
        assert!(
            run.stderr.contains("probe: write output: No space left"),
            "{arguments}: {}",
            run.stderr
        );
    }
    let arguments = format!("{GENERATED} --count 10 --dump -");
    let run = ended(command(&arguments).stderr(full()).output().unwrap());
    assert_eq!(run.code, 1);
}

#[test]
fn a_failure_keeps_its_code_where_its_text_can_not_be_told() {
    for (arguments, code) in [
        ("recv", 3),
        ("recv --json", 3),
        ("recv --provider udp --group 10.0.0.1:5", 2),
        ("recv --nonsense", 2),
        (
            "recv --provider udp --group 239.7.7.7:47000 --interface none-0",
            4,
        ),
    ] {
        let run = ended(command(arguments).stderr(full()).output().unwrap());
        assert_eq!(run.code, code, "{arguments}");
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = ended(command(arguments).stderr(writer).output().unwrap());
        assert_eq!(run.code, code, "{arguments}");
    }
}

#[test]
fn a_dump_that_can_not_be_written_is_told_with_its_file() {
    for (file, step, name) in [
        ("/dev/full", "write dump file", "ENOSPC"),
        ("/", "create dump file", "EISDIR"),
        ("/no-such-folder/file", "create dump file", "ENOENT"),
    ] {
        let run = probe(&format!("{GENERATED} --for 20s --json --dump {file}"));
        let document = run.document("failed");
        assert_eq!(document["error"]["operation"], step, "{document:#}");
        assert_eq!(document["error"]["object"], file);
        assert_eq!(document["error"]["errno"]["name"], name);
        assert!(run.stderr.contains(file), "{}", run.stderr);
    }
}

#[test]
fn a_configuration_without_an_end_is_refused() {
    let most = 1 << 20;
    let head = "provider = \"loopback\"\n[receive]\ngroups = [\"239.7.7.7:47000\"]\n#";
    let text = |length: usize| format!("{head}{}", "x".repeat(length - head.len()));
    let fits = Temporary::new("fits.toml", &text(most));
    let run = probe(&format!("recv --for 1ms --json --config {}", fits.path()));
    run.document("no-packets");
    let long = Temporary::new("long.toml", &text(most + 1));
    for file in ["/dev/zero", long.path()] {
        let document = probe(&format!("recv --json --config {file}")).document("usage");
        let detail = document["error"]["detail"].as_str().unwrap();
        assert_eq!(detail, "longer than the 1048576 bytes that are allowed");
        assert_eq!(document["error"]["object"], file);
    }
}

#[test]
fn an_option_given_twice_is_refused() {
    let run = probe(&format!(
        "{SILENT} --option a=1 --option b=2 --option a=3 --json"
    ));
    let document = run.document("usage");
    let faults = document["error"]["faults"].as_array().unwrap();
    assert_eq!(faults.len(), 1, "{document:#}");
    assert_eq!(faults[0]["field"], "options.a");
    assert_eq!(faults[0]["problem"], "stands there twice");
}

#[test]
fn nothing_that_a_file_says_acts_on_the_terminal() {
    for (name, text) in [
        (
            "field.toml",
            "provider = \"udp\"\n[receive]\n\"\\u001b[31mfield\\u0007\" = 1\n",
        ),
        (
            "option.toml",
            "provider = \"udp\"\n[receive]\noptions = { \"\\u001b[2J\\u009b\\u202e\" = 1 }\n",
        ),
        (
            "provider.json",
            r#"{"provider": "\u001b[2J\u0000", "receive": {}}"#,
        ),
        ("\x1b[31mname.toml", ""),
    ] {
        let file = Temporary::new(name, text);
        let output = command("recv --config").arg(file.path()).output().unwrap();
        let run = ended(output);
        assert!(matches!(run.code, 2 | 3), "{name}: {}", run.stderr);
        let acts = |one: char| (one.is_control() && one != '\n') || one == '\u{202e}';
        assert!(!run.stderr.contains(acts), "{name:?}: {:?}", run.stderr);
        assert!(run.stderr.contains("\\u{1b}["), "{name:?}: {}", run.stderr);
    }
}
