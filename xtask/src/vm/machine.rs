//! One QEMU process and the ports through which it is spoken to.
//!
//! Promises: the emulator ends when this value is dropped, and the kernel ends it when this process is killed; only the
//! child that was started is ever ended, through its own handle; output is passed on as it comes, to the last byte. Does
//! not do: deciding what the guest runs.
//!
//! The control port speaks lines. The guest says `ready`, then takes `now SECONDS`, `job PATH`, `out PATH` and `go`;
//! at the end it says `done STATUS OUT ERR` with the bytes it has written to the two output ports, or `failed TEXT`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::Failure;

/// A socket's path must fit `sun_path`, which has 108 bytes with the zero.
const LONGEST_SOCKET_PATH: usize = 107;

/// What the guest is made of. Two machines of equal hardware can hand a snapshot to each other.
#[derive(Debug)]
pub(super) struct Hardware {
    pub(super) qemu: PathBuf,
    pub(super) kernel: PathBuf,
    pub(super) root: PathBuf,
    pub(super) processors: u32,
    pub(super) memory_mib: u32,
    /// The rate of the time-stamp counter. Without it on the command line the kernel measures it against a timer that
    /// the emulator serves late now and then, and hangs: 8 of 23 boots did.
    pub(super) tsc_khz: u64,
    /// Whether the guest's clocks count instructions, one a nanosecond, in place of time.
    pub(super) counting: bool,
}

/// How a machine starts.
#[derive(Debug, Clone, Copy)]
pub(super) enum Start<'a> {
    /// From the kernel's first instruction.
    Boot,
    /// From a saved state.
    Resume(&'a Path),
}

/// Where a machine's output goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
    /// To this process's standard output and error.
    Inherit,
    /// Nowhere.
    Discard,
}

/// Why a machine's run ended without a status.
#[derive(Debug)]
pub(super) enum Ended {
    /// The deadline passed; the guest may still have been at work.
    TimedOut,
    /// The guest or the emulator is gone: a panic, a reset, an emulator that refuses its options.
    Died,
    /// The guest says why it can't run the job.
    Refused(String),
}

enum Event {
    Line(String),
    ControlClosed,
    Passed(Stream, u64),
    Gone,
}

#[derive(Clone, Copy)]
enum Stream {
    Out,
    Err,
}

/// A running machine.
#[derive(Debug)]
pub(super) struct Machine {
    child: Child,
    folder: PathBuf,
    control: Receiver<UnixStream>,
    events: Receiver<Event>,
    threads: Vec<JoinHandle<()>>,
    passed: [u64; 2],
}

const PORTS: [&str; 3] = ["control", "out", "err"];

impl Machine {
    /// Starts the emulator in `folder`, which is this run's own. `extra` are further options of the emulator.
    pub(super) fn start(
        hardware: &Hardware,
        folder: &Path,
        share: &Path,
        start: Start<'_>,
        output: Output,
        extra: &[&str],
    ) -> Result<Self, Failure> {
        let (send, events) = channel();
        let (send_control, control) = channel();
        let mut threads = Vec::new();
        for port in PORTS {
            let path = folder.join(port);
            if path.as_os_str().len() > LONGEST_SOCKET_PATH {
                return Err(Failure::new(
                    "machine",
                    format!(
                        "the socket's path {} has more than {LONGEST_SOCKET_PATH} bytes",
                        path.display()
                    ),
                )
                .remedy("set LOCKGATE_VM_CACHE to a shorter path"));
            }
            let listener = UnixListener::bind(&path)
                .map_err(|error| Failure::io("machine", "bind", &path, &error))?;
            let send = send.clone();
            let send_control = send_control.clone();
            threads.push(thread::spawn(move || {
                let Ok((stream, _)) = listener.accept() else {
                    return;
                };
                match port {
                    "control" => read_control(stream, &send_control, &send),
                    "out" => pass_on(stream, Stream::Out, output, &send),
                    _ => pass_on(stream, Stream::Err, output, &send),
                }
            }));
        }
        let mut command = command(hardware, share, start, extra);
        let log = folder.join("qemu.log");
        let mut child = command
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::new("machine", format!("setpriv doesn't run: {error}")))?;
        if let Some(mut messages) = child.stderr.take() {
            // The pipe ends with the emulator, which makes it the sign of its end.
            threads.push(thread::spawn(move || {
                if let Ok(mut log) = File::create(log) {
                    let _ = io::copy(&mut messages, &mut log);
                }
                let _ = send.send(Event::Gone);
            }));
        }
        Ok(Self {
            child,
            folder: folder.to_owned(),
            control,
            events,
            threads,
            passed: [0; 2],
        })
    }

    /// Waits until the guest waits for a job.
    pub(super) fn wait_ready(&mut self, deadline: Instant) -> Result<(), Ended> {
        loop {
            if self.next_line(deadline)? == "ready" {
                return Ok(());
            }
        }
    }

    /// Gives the guest its job and waits for the status and the last byte of output.
    pub(super) fn run(
        &mut self,
        job: &Path,
        out: Option<&Path>,
        deadline: Instant,
    ) -> Result<u8, Ended> {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |time| time.as_secs());
        let mut words = format!("now {now}\njob {}\n", job.display());
        if let Some(out) = out {
            words += &format!("out {}\n", out.display());
        }
        words += "go\n";
        let left = deadline.saturating_duration_since(Instant::now());
        let mut control = self.control.recv_timeout(left).map_err(|_| Ended::Died)?;
        control
            .write_all(words.as_bytes())
            .map_err(|_| Ended::Died)?;
        let (status, expected) = loop {
            let line = self.next_line(deadline)?;
            if let Some(end) = parse_end(&line) {
                break end;
            }
            if line.starts_with("done") {
                return Err(Ended::Refused(format!("an end that can't be read: {line}")));
            }
        };
        while self.passed[0] < expected[0] || self.passed[1] < expected[1] {
            self.next_event(deadline)?;
        }
        Ok(status)
    }

    /// What the emulator and the guest's kernel said last, for a person who looks for the cause of [`Ended::Died`].
    pub(super) fn last_words(&self) -> String {
        let tail = |name: &str| {
            let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            let lines: Vec<&str> = text
                .lines()
                // The emulator warns of each feature of the host's processor that it can't emulate.
                .filter(|line| !line.contains("TCG doesn't support requested feature"))
                .collect();
            lines[lines.len().saturating_sub(30)..].join("\n")
        };
        format!(
            "emulator:\n{}\nconsole:\n{}",
            tail("qemu.log"),
            tail("console")
        )
    }

    fn next_line(&mut self, deadline: Instant) -> Result<String, Ended> {
        loop {
            if let Some(line) = self.next_event(deadline)? {
                return match line.strip_prefix("failed ") {
                    Some(text) => Err(Ended::Refused(text.to_owned())),
                    None => Ok(line),
                };
            }
        }
    }

    /// Takes one event in; gives the line if it was one.
    fn next_event(&mut self, deadline: Instant) -> Result<Option<String>, Ended> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(Event::Line(line)) => Ok(Some(line)),
            Ok(Event::Passed(stream, bytes)) => {
                self.passed[match stream {
                    Stream::Out => 0,
                    Stream::Err => 1,
                }] += bytes;
                Ok(None)
            }
            Ok(Event::ControlClosed | Event::Gone) | Err(RecvTimeoutError::Disconnected) => {
                Err(Ended::Died)
            }
            Err(RecvTimeoutError::Timeout) => Err(Ended::TimedOut),
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The guest's file systems are all throw-away, so nothing is lost. Both calls fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A thread that still waits for a connection gets one that is closed at once.
        for port in PORTS {
            let _ = UnixStream::connect(self.folder.join(port));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn command(hardware: &Hardware, share: &Path, start: Start<'_>, extra: &[&str]) -> Command {
    // The parent-death signal survives the exec: whoever kills this process ends the emulator as well.
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&hardware.qemu);
    command.args(["-M", "microvm"]);
    if hardware.counting {
        // The emulator counts each step of `rep movs`, which a processor retires as one instruction. Without these two features
        // the kernel copies by eight bytes a step rather than by one, which distorts the count an eighth as much.
        command.args(["-cpu", "max,erms=off,fsrm=off"]);
        // Without `sleep=off` an idle guest would wait for the clock of the host.
        command.args(["-accel", "tcg,thread=single"]);
        command.args(["-icount", "shift=0,sleep=off"]);
    } else {
        command.args(["-cpu", "max", "-accel", "tcg,thread=multi"]);
    }
    command.args(["-smp", &hardware.processors.to_string()]);
    command.args(["-m", &hardware.memory_mib.to_string()]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.arg("-kernel").arg(&hardware.kernel);
    command.arg("-initrd").arg(&hardware.root);
    command.args(["-append", &kernel_words(hardware.tsc_khz)]);
    command.args([
        "-chardev",
        "file,id=console,path=console",
        "-serial",
        "chardev:console",
    ]);
    command.args(["-device", "virtio-serial-device"]);
    for port in PORTS {
        // Relative paths: the emulator's working folder is the run's.
        command.args(["-chardev", &format!("socket,id={port},path={port}")]);
        command.args([
            "-device",
            &format!("virtserialport,chardev={port},name={port}"),
        ]);
    }
    for (tag, path, mode) in [("host", Path::new("/"), ",readonly=on"), ("out", share, "")] {
        let mut share = OsString::from(format!("local,id={tag},path="));
        // The emulator reads a comma as the end of the value unless it is doubled.
        share.push(path.to_string_lossy().replace(',', ",,"));
        share.push(format!(",security_model=none,multidevs=remap{mode}"));
        command.arg("-fsdev").arg(share);
        command.args([
            "-device",
            &format!("virtio-9p-device,fsdev={tag},mount_tag={tag}"),
        ]);
    }
    if let Start::Resume(state) = start {
        let state = state.to_string_lossy().replace('\'', "'\\''");
        command.args(["-incoming", &format!("exec:cat '{state}'")]);
    }
    command.args(extra);
    command
}

fn kernel_words(tsc_khz: u64) -> String {
    [
        "console=ttyS0 quiet",
        // Ends the machine at once where the guest can't go on, instead of waiting for the time-out.
        "panic=-1 oops=panic",
        &format!("tsc_early_khz={tsc_khz} tsc=reliable"),
        // Less work under emulation.
        "cryptomgr.notests=1 mitigations=off random.trust_cpu=on rcupdate.rcu_expedited=1",
    ]
    .join(" ")
}

fn read_control(stream: UnixStream, give: &Sender<UnixStream>, events: &Sender<Event>) {
    if let Ok(writer) = stream.try_clone() {
        let _ = give.send(writer);
    }
    for line in BufReader::new(stream).lines() {
        // The guest's terminal layer is not in between, so a line is what was written.
        let Ok(line) = line else { break };
        if events.send(Event::Line(line)).is_err() {
            return;
        }
    }
    let _ = events.send(Event::ControlClosed);
}

fn pass_on(mut stream: UnixStream, which: Stream, output: Output, events: &Sender<Event>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let got = match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(got) => got,
        };
        let bytes = &buffer[..got];
        if output == Output::Inherit {
            // A reader that has gone away is no reason to stop the guest: its status still counts.
            let _ = match which {
                Stream::Out => write_all(io::stdout().lock(), bytes),
                Stream::Err => write_all(io::stderr().lock(), bytes),
            };
        }
        if events.send(Event::Passed(which, got as u64)).is_err() {
            return;
        }
    }
}

fn write_all(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}

/// Reads `done STATUS OUT ERR`.
fn parse_end(line: &str) -> Option<(u8, [u64; 2])> {
    let mut words = line.strip_prefix("done ")?.split(' ');
    let status = words.next()?.parse().ok()?;
    let out = words.next()?.parse().ok()?;
    let err = words.next()?.parse().ok()?;
    words.next().is_none().then_some((status, [out, err]))
}

#[cfg(test)]
mod tests {
    use super::parse_end;

    #[test]
    fn the_end_is_read_whole_or_not_at_all() {
        let check = |line: &str, end| assert_eq!(parse_end(line), end, "{line}");
        check("done 0 12 0", Some((0, [12, 0])));
        check("done 137 0 5", Some((137, [0, 5])));
        check("done 0 12", None);
        check("done 0 12 0 9", None);
        check("done 300 0 0", None);
        check("ready", None);
    }
}
