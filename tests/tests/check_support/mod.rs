//! What the tests of `probe check` share: the binary, a mount namespace to run it in, made devices, and reading what it says.
//!
//! Promises: the binary is the default build; what a stage mounts or hides is seen by its own namespace only; files lie in a folder of
//! the stage's own that goes with it. Where namespaces can't be made or the verbs library is not installed, the skip is told. Does not
//! do: devices that can be opened; the nodes are those of `/dev/null`.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use lockgate_tests::tools;
use serde_json::Value;

#[path = "../../../probe/tests/support/schema.rs"]
pub(crate) mod schema;

const CHECK: &str = include_str!("../../../probe/schema/check-1.schema.json");
/// Has the form of failures of every command.
const ERRORS: &str = include_str!("../../../probe/schema/report-1.schema.json");
const LINKAGE: &str = include_str!("../../../probe/schema/verify-linkage-1.schema.json");

/// What the tests need of the host: where the real library and its drivers are.
pub(crate) struct Real {
    /// The file of the library.
    pub(crate) library: PathBuf,
    /// The number of its private ABI.
    pub(crate) abi: u64,
    /// The folder of its drivers.
    pub(crate) drivers: PathBuf,
    /// The folder of the files that name them.
    pub(crate) config: PathBuf,
}

/// The host, if namespaces can be made on it and the library with its drivers is installed. If not, the skip has been told.
pub(crate) fn real() -> Option<Real> {
    let made = Command::new("unshare").args(["--mount", "true"]).output();
    if !made.is_ok_and(|made| made.status.success()) {
        tools::skip("namespaces", "a mount namespace can't be made: run as root");
        return None;
    }
    let report = Report::of(plain().arg("check").output().expect("the probe runs"));
    let document = report.document();
    let text = |value: &Value| value.as_str().map(PathBuf::from);
    let file = &document["library"]["file"];
    let pattern = text(&file["driver_pattern"]);
    let real = (|| {
        Some(Real {
            library: text(&document["library"]["search"]["found"]["file"])?,
            abi: file["private_abi"].as_u64()?,
            drivers: pattern?.parent()?.to_owned(),
            config: text(&file["config_folder"])?,
        })
    })();
    let there = |file: &str| Path::new(file).exists();
    let runs = |tool: &str| Command::new(tool).arg("--version").output().is_ok();
    let complete = real.as_ref().is_some_and(|real| {
        let driver = format!("libmlx5-rdmav{}.so", real.abi);
        real.config.join("mlx5.driver").exists() && real.drivers.join(driver).exists()
    }) && runs("cc")
        && there("/usr/include/infiniband/verbs.h");
    if !complete {
        tools::skip(
            "verbs",
            "no libibverbs with headers and drivers, or no C compiler; on Debian or Ubuntu: apt-get install gcc libibverbs-dev ibverbs-providers",
        );
        return None;
    }
    real
}

/// The default build of the probe.
pub(crate) fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        let exe = std::env::current_exe().expect("this test has a path");
        let built = exe.ancestors().nth(2).expect("target/PROFILE/deps/TEST");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--quiet", "--package", "lockgate-probe"]);
        build
            .arg("--target-dir")
            .arg(built.parent().expect("target"));
        if built.ends_with("release") {
            build.arg("--release");
        }
        build.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let status = build.status().expect("cargo runs");
        assert!(status.success(), "the probe builds");
        // Other tests may build it with other features. The name is taken over at once, so that tests side by side see a whole file.
        let copy = built.join("probe-of-checks");
        let part = built.join(format!("probe-of-checks-{}", std::process::id()));
        fs::copy(built.join("probe"), &part).expect("the probe is copied");
        fs::rename(&part, &copy).expect("the copy gets its name");
        copy
    })
}

/// The binary in an environment of its own: cargo's names folders with libraries.
pub(crate) fn plain() -> Command {
    let mut command = Command::new(binary());
    command.env_clear().env("PATH", path()).stdin(Stdio::null());
    command.arg("--json");
    command
}

pub(crate) fn path() -> String {
    std::env::var("PATH").expect("PATH is set")
}

/// A folder of its own, gone with the value.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(what: &str) -> Self {
        use std::os::unix::fs::PermissionsExt;
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockgate-{what}-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder of its own");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A made device.
pub(crate) struct Fake<'a> {
    pub(crate) name: &'a str,
    /// The driver in the kernel; none for a device without hardware.
    pub(crate) kernel_driver: Option<&'a str>,
    /// `ACTIVE` or another state.
    pub(crate) state: &'a str,
    /// GID, type, and interface.
    pub(crate) gids: &'a [(&'a str, &'a str, &'a str)],
}

/// An mlx5 device as the kernel shows one.
pub(crate) const MLX5: Fake<'static> = Fake {
    name: "mlx5_0",
    kernel_driver: Some("mlx5_core"),
    state: "4: ACTIVE",
    gids: &[
        (
            "fe80:0000:0000:0000:ba59:9fff:fe01:0203",
            "IB/RoCE v1",
            "lo",
        ),
        ("fe80:0000:0000:0000:ba59:9fff:fe01:0203", "RoCE v2", "lo"),
        ("0000:0000:0000:0000:0000:ffff:0a4d:0001", "RoCE v2", "lo"),
    ],
};

/// Where the probe runs: a mount namespace in which files are added, replaced and hidden.
pub(crate) struct Stage {
    folder: Folder,
    script: String,
    env: Vec<(String, String)>,
    devices: u32,
    /// In front of the probe on the command line.
    pub(crate) wrapper: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let stage = Self {
            folder: Folder::new("stage"),
            script: String::new(),
            env: Vec::new(),
            devices: 0,
            wrapper: String::new(),
        };
        fs::create_dir(stage.path("sys")).expect("a folder");
        stage
    }

    /// A path in the stage's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn env(&mut self, name: &str, value: impl AsRef<Path>) -> &mut Self {
        let value = value.as_ref().display().to_string();
        self.env.push((name.to_owned(), value));
        self
    }

    /// A line of shell in front of the probe.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) -> &mut Self {
        let _ = writeln!(self.script, "{}", line.as_ref());
        self
    }

    /// Lets files in a folder be added and removed, in this namespace.
    pub(crate) fn overlay(&mut self, folder: &Path) -> &mut Self {
        let at = self.path(&format!("over-{}", self.script.len()));
        let (at, folder) = (at.display().to_string(), folder.display().to_string());
        self.line(format!(
            "mkdir -p {at}; mount -t tmpfs none {at}; mkdir {at}/up {at}/work; \
             mount -t overlay none -o lowerdir={folder},upperdir={at}/up,workdir={at}/work {folder}"
        ))
    }

    /// Puts another file in the place of one.
    pub(crate) fn replace(&mut self, real: &Path, with: &Path) -> &mut Self {
        self.line(format!(
            "mount --bind {} {}",
            with.display(),
            real.display()
        ))
    }

    /// A `/dev` of its own.
    pub(crate) fn dev(&mut self) -> &mut Self {
        let dev = self.path("dev").display().to_string();
        self.line(format!(
            "mkdir -p {dev}; mount -t tmpfs -o mode=0755 none {dev}; mkdir {dev}/infiniband; \
             mknod -m 666 {dev}/null c 1 3; mknod -m 666 {dev}/urandom c 1 9; mount --bind {dev} /dev"
        ))
    }

    /// A node with the numbers of `/dev/null`.
    pub(crate) fn node(&mut self, name: &str) -> &mut Self {
        self.line(format!("mknod -m 666 /dev/infiniband/{name} c 1 3"))
    }

    /// A device in a made sysfs, without its node.
    pub(crate) fn device(&mut self, fake: &Fake<'_>) -> &mut Self {
        let sys = self.path("sys");
        let number = self.devices;
        self.devices += 1;
        let put = |file: &str, text: &str| {
            let path = sys.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
            fs::write(path, format!("{text}\n")).expect("an attribute");
        };
        put("class/infiniband_verbs/abi_version", "6");
        let uverbs = format!("class/infiniband_verbs/uverbs{number}");
        put(&format!("{uverbs}/ibdev"), fake.name);
        put(&format!("{uverbs}/dev"), "1:3");
        put(&format!("{uverbs}/abi_version"), "1");
        let device = format!("class/infiniband/{}", fake.name);
        for (file, text) in [
            ("node_type", "1: CA"),
            ("fw_ver", "16.35.2000"),
            ("node_guid", &format!("0c42:a103:00ab:cd0{number}")),
            ("sys_image_guid", "0c42:a103:00ab:cd00"),
            ("board_id", "MT_0000000008"),
            ("node_desc", "secret-name mlx5_0"),
            ("ports/1/state", fake.state),
            ("ports/1/phys_state", "5: LinkUp"),
            ("ports/1/link_layer", "Ethernet"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)"),
        ] {
            put(&format!("{device}/{file}"), text);
        }
        for (index, (gid, kind, netdev)) in fake.gids.iter().enumerate() {
            put(&format!("{device}/ports/1/gids/{index}"), gid);
            put(&format!("{device}/ports/1/gid_attrs/types/{index}"), kind);
            put(&format!("{device}/ports/1/gid_attrs/ndevs/{index}"), netdev);
        }
        if let Some(driver) = fake.kernel_driver {
            let pci = format!("devices/0000:17:00.{number}");
            put(
                &format!("{pci}/modalias"),
                "pci:v000015B3d00001017sv000015B3sd00000007bc02sc00i00",
            );
            put(&format!("{pci}/numa_node"), "1");
            fs::create_dir_all(sys.join("drivers").join(driver)).expect("folders");
            let link = |to: String, at: String| symlink(to, sys.join(at)).expect("a link");
            link(format!("../../drivers/{driver}"), format!("{pci}/driver"));
            link(format!("../../../{pci}"), format!("{device}/device"));
        }
        self.env.retain(|(name, _)| name != "SYSFS_PATH");
        let sys = sys.clone();
        self.env("SYSFS_PATH", sys)
    }

    /// Device and node.
    pub(crate) fn mlx5(&mut self) -> &mut Self {
        self.device(&MLX5).dev().node("uverbs0")
    }

    /// Runs the probe with these arguments.
    pub(crate) fn run(&self, arguments: &str) -> Report {
        Report::of(self.command(arguments).output().expect("the stage runs"))
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut script = "set -eu\n".to_owned();
        // A plain user may not get at the folder of the build.
        let probe = self.path("probe").display().to_string();
        let _ = writeln!(
            script,
            "touch {probe}; mount --bind {} {probe}",
            binary().display()
        );
        script.push_str(&self.script);
        for (name, value) in &self.env {
            let _ = writeln!(script, "export {name}='{value}'");
        }
        let _ = writeln!(script, "exec {} {probe} {arguments}", self.wrapper);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        command.env_clear().env("PATH", path()).stdin(Stdio::null());
        command
    }

    /// Compiles a fixture into a shared library.
    pub(crate) fn library(&self, source: &str, name: &str, options: &[&str]) -> PathBuf {
        let output = self.path(name);
        let mut all = vec!["-shared", "-fPIC"];
        all.extend(options);
        compile(source, &output, &all);
        output
    }

    /// Compiles the driver fixture against the real library.
    pub(crate) fn driver(&self, real: &Real, prefix: &str, name: &str, more: &[&str]) -> PathBuf {
        let register = format!("-DREGISTER=verbs_register_driver_{}", real.abi);
        let prefix = format!("-DPREFIX=\"{prefix}\"");
        let library = real.library.display().to_string();
        let mut options = vec![register.as_str(), prefix.as_str()];
        options.extend(more);
        options.push(&library);
        self.library("provider.c", name, &options)
    }
}

/// Compiles a fixture.
pub(crate) fn compile(source: &str, output: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/check")
        .join(source);
    let done = Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(output)
        .arg(source)
        .args(options)
        .output()
        .expect("cc runs: the package gcc");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// What a run said.
pub(crate) struct Report {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Report {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("the output is UTF-8");
        let report = Self {
            code: output.status.code().expect("it was not killed by a signal"),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        };
        assert!(!report.stderr.contains("panicked"), "{}", report.stderr);
        report
    }

    /// The document, which must keep to its schema and have the exit that the process had.
    pub(crate) fn document(&self) -> Value {
        let document: Value = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout, self.stderr));
        let text = match document["schema"].as_str() {
            Some("lockgate.probe.check/1") => CHECK,
            Some("lockgate.probe.verify-linkage/1") => LINKAGE,
            _ => ERRORS,
        };
        let schema = serde_json::from_str(text).expect("the schema is JSON");
        let faults = schema::validate(&schema, &document);
        assert!(faults.is_empty(), "{}\n{document:#}", faults.join("\n"));
        assert_eq!(document["exit"]["code"], self.code, "{document:#}");
        document
    }

    /// Every verdict of a level, as `subject: code`.
    pub(crate) fn verdicts(&self, level: &str) -> Vec<String> {
        let document = self.document();
        let all = document["verdicts"].as_array().expect("a list").clone();
        all.iter()
            .filter(|verdict| verdict["level"] == level)
            .map(|verdict| {
                let subject = &verdict["subject"];
                let subject = subject["name"].as_str().or(subject["kind"].as_str());
                format!(
                    "{}: {}",
                    subject.unwrap(),
                    verdict["code"].as_str().unwrap()
                )
            })
            .collect()
    }

    /// Asserts the failures, in order, and the exit code.
    #[track_caller]
    pub(crate) fn fails(&self, code: i32, failures: &[&str]) -> &Self {
        let verdicts = &self.document()["verdicts"];
        assert_eq!(self.verdicts("failure"), failures, "{verdicts:#}");
        assert_eq!(self.code, code, "{verdicts:#}");
        self
    }

    /// Asserts that a verdict of that code has this in its cause, evidence or remedy.
    #[track_caller]
    pub(crate) fn tells(&self, code: &str, part: &str) -> &Self {
        let document = self.document();
        let verdicts = document["verdicts"].as_array().expect("a list").clone();
        let found = verdicts
            .iter()
            .filter(|verdict| verdict["code"] == code)
            .any(|verdict| verdict.to_string().contains(part));
        assert!(
            found,
            "no {code} tells {part:?}: {:#}",
            document["verdicts"]
        );
        self
    }
}

/// Changes the machine that an ELF file says it is for.
pub(crate) fn for_machine(file: &Path, to: &Path, machine: u16) {
    let mut bytes = fs::read(file).expect("the file is read");
    assert_eq!(&bytes[..4], b"\x7fELF");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    fs::write(to, bytes).expect("the file is written");
}

/// A copy of the library under another name of its own, as a vendored one has.
pub(crate) fn vendored(real: &Path, to: &Path) {
    let mut bytes = fs::read(real).expect("the file is read");
    let (from, name) = (b"\0libibverbs.so.1\0", b"\0libvendored.so1\0");
    let places: Vec<usize> = (0..bytes.len() - from.len())
        .filter(|at| bytes[*at..].starts_with(from))
        .collect();
    assert!(!places.is_empty(), "the name is there");
    for at in places {
        bytes[at..at + name.len()].copy_from_slice(name);
    }
    fs::write(to, bytes).expect("the file is written");
}
