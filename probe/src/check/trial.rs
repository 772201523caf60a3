//! What was tried on the opened devices, when that was asked for.
//!
//! Promises: a trial is a fact about this process on this device at this moment. Does not do: trying; the child does.

use std::time::Duration;

use lockgate_probe_loader::{Event, Outcome, Request, Step};
use serde::Serialize;

use super::child::{self, End};
use super::devices::Device;
use super::judge::error_text;
use super::library::step_text;
use crate::linkage::VERBS;
use crate::verdict::{Code, Level, Subject, Verdict};

const EPERM: i32 = 1;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;

/// The trials of all devices.
#[derive(Debug, Serialize)]
pub(crate) struct Trials {
    /// How the child ended.
    pub(crate) end: End,
    /// What it was doing when it ended early.
    pub(crate) step: Option<String>,
    /// The device that it was at when it ended early.
    pub(crate) open: Option<String>,
    /// The trials, in order.
    pub(crate) trials: Vec<Trial>,
    /// What was written to the standard error.
    pub(crate) messages: Vec<String>,
}

/// One thing that was tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Trial {
    /// The device.
    pub(crate) device: String,
    /// What was tried.
    pub(crate) what: String,
    /// Whether it worked.
    pub(crate) worked: bool,
    /// The error number, if it failed with one.
    pub(crate) errno: Option<i32>,
    /// What is worth telling.
    pub(crate) detail: Option<String>,
}

impl Trials {
    /// Has a child open the devices and try them.
    pub(crate) fn run(devices: &[String], limit: Duration) -> Self {
        let request = Request::Try {
            library: VERBS.to_owned(),
            devices: devices.to_vec(),
        };
        let account = child::ask(&request, limit);
        let trials = account.events.iter().filter_map(Trial::of).collect();
        Self {
            step: account.open_step().map(step_text),
            open: match account.open_step() {
                Some(Step::Try { device, .. }) => Some(device.clone()),
                _ => None,
            },
            end: account.end,
            trials,
            messages: account.messages,
        }
    }

    /// Those of one device; none if there are none.
    pub(crate) fn of(&self, device: &str) -> Option<Vec<&Trial>> {
        let own: Vec<_> = self
            .trials
            .iter()
            .filter(|trial| trial.device == device)
            .collect();
        (!own.is_empty()).then_some(own)
    }
}

impl Trial {
    fn of(event: &Event) -> Option<Self> {
        let Event::Tried {
            device,
            what,
            outcome,
        } = event
        else {
            return None;
        };
        let (worked, errno, detail) = match outcome {
            Outcome::Absent => (false, None, Some("the library does not have it".to_owned())),
            Outcome::Done(detail) => (
                true,
                None,
                Some(detail.clone()).filter(|text| !text.is_empty()),
            ),
            Outcome::Failed(errno) => (false, Some(*errno), Some(error_text(*errno))),
        };
        Some(Self {
            device: device.clone(),
            what: what.clone(),
            worked,
            errno,
            detail,
        })
    }
}

/// A trial that ended the child, or did not come back.
pub(super) fn broken_off(trials: &Trials) -> Option<Verdict> {
    if trials.end == End::Done {
        return None;
    }
    let subject = match &trials.open {
        Some(device) => Subject::Device(device.clone()),
        None => Subject::Library,
    };
    let step = trials.step.as_deref().unwrap_or("starting");
    let verdict = Verdict::new(
        Code::TryFailed,
        Level::Failure,
        subject,
        "the trial did not get to its end",
    );
    Some(
        verdict
            .saw(format!("{step}: {}", trials.end.text()))
            .saw_all(trials.messages.iter().take(3).cloned())
            .remedy("dmesg has what the kernel's driver says; install the drivers again"),
    )
}

/// What the trials of a device say.
pub(super) fn verdicts(device: &Device, trials: Vec<&Trial>) -> Vec<Verdict> {
    let subject = || Subject::Device(device.name.clone());
    let new = |code, level, cause: String| Verdict::new(code, level, subject(), cause);
    let mut all = Vec::new();
    let works = |what: &str| {
        trials
            .iter()
            .any(|trial| trial.what == what && trial.worked)
    };
    let basics = ["open", "pd", "mr", "cq"].into_iter().all(works);
    for trial in trials.iter().filter(|trial| !trial.worked) {
        let why = trial.detail.clone().unwrap_or_default();
        let saw = format!("{}: {why}", trial.what);
        let verdict = match (trial.what.as_str(), trial.errno) {
            ("open", Some(EACCES | EPERM)) => new(
                Code::NodeDenied,
                Level::Failure,
                "it may not be opened".to_owned(),
            )
            .remedy("see the mode of its node, and the device cgroup of the container"),
            ("open" | "query" | "pd" | "cq", errno) => {
                let remedy = if errno == Some(ENOMEM) {
                    "raise the limit on locked memory: ulimit -l unlimited"
                } else {
                    "dmesg has what the kernel's driver says"
                };
                new(
                    Code::TryFailed,
                    Level::Failure,
                    format!("{} failed", trial.what),
                )
                .remedy(remedy)
            }
            ("mr", _) => new(
                Code::RegistrationFailed,
                Level::Failure,
                "registering one page failed".to_owned(),
            )
            .remedy("raise the limit on locked memory: ulimit -l unlimited"),
            ("raw-qp", Some(EPERM)) => new(
                Code::RawPacketDenied,
                Level::Warning,
                "a queue pair for raw packets needs CAP_NET_RAW".to_owned(),
            )
            .remedy(
                "setcap cap_net_raw+ep FILE, AmbientCapabilities=CAP_NET_RAW, or --cap-add NET_RAW",
            ),
            ("raw-qp" | "raw-qp-init", _) => new(
                Code::RawPacketUnsupported,
                Level::Note,
                "no queue pairs for raw packets".to_owned(),
            )
            .remedy("receive over its network interface with a provider that you name"),
            ("flow", _) => new(
                Code::FlowUnsupported,
                Level::Warning,
                "no flow rules".to_owned(),
            ),
            // EBADF says that the driver has the call and looked at the descriptor.
            ("dmabuf", Some(9)) => continue,
            ("dmabuf", _) => new(
                Code::DmabufUnsupported,
                Level::Note,
                "no registration of dmabuf".to_owned(),
            ),
            (what, _) => new(Code::TryFailed, Level::Warning, format!("{what} failed")),
        };
        all.push(verdict.saw(saw));
    }
    if basics {
        let worked: Vec<&str> = trials
            .iter()
            .filter(|trial| trial.worked)
            .map(|trial| trial.what.as_str())
            .collect();
        all.push(
            new(
                Code::VerbsWorks,
                Level::Ok,
                "opening, domain, registration and completion queue work".to_owned(),
            )
            .saw(worked.join(", ")),
        );
    }
    all
}
