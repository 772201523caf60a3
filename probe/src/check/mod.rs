//! `probe check`: says in one run why RDMA works here or why it does not.
//!
//! Promises: this process reads files and loads nothing; a child loads the library and asks it for its devices; no device is opened
//! unless `--try` asks for it; nothing is changed; without `--try` it takes less than two seconds with the default limit. Does not do:
//! mending anything.

mod bundle;
pub(crate) mod child;
mod devices;
mod judge;
mod library;
mod mask;
mod ports;
mod process;
mod providers;
mod text;
mod trial;

use std::time::Duration;

use serde::Serialize;

use crate::cli::CheckArgs;
use crate::exit::Exit;
use crate::host::Host;
use crate::linkage::Loader;
use crate::output::Screen;
use crate::report::{self, Failure};
use crate::verdict::{self, Verdict};

use devices::Sysfs;
use library::Library;
use process::Process;
use providers::Providers;
use trial::Trials;

/// The schema of the documents, in `probe/schema/`.
pub(crate) const SCHEMA: &str = "lockgate.probe.check/1";
/// Trials talk to devices, and may wait for firmware.
const TRIAL_LIMIT: Duration = Duration::from_secs(30);

/// What was found.
#[derive(Debug, Serialize)]
pub(crate) struct Findings {
    /// The devices that were asked for; all if none was.
    pub(crate) wanted: Vec<String>,
    /// The verbs library.
    pub(crate) library: Library,
    /// Its drivers.
    pub(crate) providers: Providers,
    /// What sysfs shows.
    pub(crate) sysfs: Sysfs,
    /// This process.
    pub(crate) process: Process,
    /// What was tried, if that was asked for.
    pub(crate) trials: Option<Trials>,
}

impl Findings {
    /// Whether the library lists a device.
    pub(crate) fn is_enumerated(&self, device: &str) -> bool {
        let list = self.library.enumerated.iter().flatten();
        list.into_iter().any(|one| one.name == device)
    }

    fn look(args: &CheckArgs) -> Self {
        let mut loader = Loader::of_this_host();
        let (library, file) = Library::look(&mut loader, args.limit);
        let mut providers = Providers::look(file.as_ref(), &mut loader);
        if library.broke_while_enumerating() {
            providers::suspects(&mut providers, args.limit);
        }
        let sysfs = Sysfs::read(&args.devices);
        let trials =
            (args.trial && library.loaded()).then(|| Trials::run(&args.devices, TRIAL_LIMIT));
        Self {
            wanted: args.devices.clone(),
            process: Process::read(&Host::read()),
            library,
            providers,
            sysfs,
            trials,
        }
    }
}

/// The document.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    /// In one line.
    pub(crate) summary: Summary,
    /// What is to be said, causes first.
    pub(crate) verdicts: &'a [Verdict],
    /// What was found.
    #[serde(flatten)]
    pub(crate) findings: &'a Findings,
}

/// How many devices there are, and how many of them can be used.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// In sysfs.
    pub(crate) devices: usize,
    /// Listed by the library.
    pub(crate) enumerated: usize,
    /// Without a failure of their own.
    pub(crate) usable: Vec<String>,
}

impl Summary {
    fn of(findings: &Findings, verdicts: &[Verdict]) -> Self {
        let names = findings.sysfs.devices.iter().map(|device| &device.name);
        Self {
            devices: findings.sysfs.devices.len(),
            enumerated: findings.library.enumerated.as_ref().map_or(0, Vec::len),
            usable: names
                .filter(|name| judge::is_usable(name, verdicts))
                .cloned()
                .collect(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(args: &CheckArgs, screen: &mut Screen, json: bool) -> Result<Exit, Failure> {
    if let Some(code) = args.explain {
        verdict::explain(screen, code)?;
        return Ok(Exit::Ok);
    }
    let findings = Findings::look(args);
    let verdicts = judge::verdicts(&findings);
    let exit = verdict::exit(&verdicts);
    let document = Document {
        summary: Summary::of(&findings, &verdicts),
        verdicts: &verdicts,
        findings: &findings,
    };
    if let Some(path) = &args.bundle {
        bundle::write(path, &document, exit, !args.unmasked)?;
    }
    if json {
        report::document_as(SCHEMA, screen, "check", exit, &document)?;
    } else {
        text::print(screen, &document)?;
        if let Some(path) = &args.bundle {
            screen.gap()?;
            screen.field("bundle", path.display())?;
        }
    }
    Ok(exit)
}
