//! `probe providers`: every provider that this build knows of, with its reason.
//!
//! Promises: opens, loads and probes nothing, unless `--inspect` asks for a look.

use std::io;

use lockgate::registry::{Candidate, CandidateStatus, Capabilities, Inspection};
use serde::Serialize;

use crate::cli::ProvidersArgs;
use crate::exit::Exit;
use crate::output::{Look, Screen};
use crate::providers::Providers;
use crate::report::{self, Failure};

/// One provider of the list.
#[derive(Debug, Serialize)]
pub(crate) struct Entry {
    #[serde(flatten)]
    candidate: Candidate,
    version: Option<String>,
    summary: Option<String>,
    capabilities: Option<Capabilities>,
    remedy: Option<String>,
    inspection: Option<Inspection>,
}

/// Lists them.
pub(crate) fn run(args: &ProvidersArgs, screen: &mut Screen, json: bool) -> Result<Exit, Failure> {
    let providers = Providers::register()?;
    let entries = list(&providers, args.inspect);
    if json {
        #[derive(Serialize)]
        struct Body {
            providers: Vec<Entry>,
        }
        report::document(screen, "providers", Exit::Ok, Body { providers: entries })?;
        return Ok(Exit::Ok);
    }
    screen.heading("Providers")?;
    print(screen, &entries)?;
    if !args.inspect {
        screen.gap()?;
        let text =
            "Nothing was opened for this list. For a look at the host: probe providers --inspect";
        screen.hanging("", 0, Look::Dim, text)?;
    }
    Ok(Exit::Ok)
}

/// Everything that the registry knows of.
pub(crate) fn list(providers: &Providers, inspect: bool) -> Vec<Entry> {
    let registry = &providers.registry;
    let descriptions = registry.descriptions();
    registry
        .candidates()
        .into_iter()
        .map(|candidate| {
            let registered = matches!(
                candidate.status,
                CandidateStatus::Registered | CandidateStatus::RegisteredUnavailable { .. }
            );
            let description = descriptions
                .iter()
                .find(|one| registered && one.name == candidate.name);
            let remedy = match &candidate.status {
                CandidateStatus::Known { reason }
                | CandidateStatus::RegisteredUnavailable { reason } => reason.remedy(),
                _ => None,
            };
            // A registered name can't be refused.
            let inspection = (registered && inspect)
                .then(|| registry.inspect(&candidate.name).ok())
                .flatten();
            Entry {
                version: description.map(|one| one.version.to_string()),
                summary: description.map(|one| one.summary.to_string()),
                capabilities: description.map(|one| one.capabilities),
                candidate,
                remedy,
                inspection,
            }
        })
        .collect()
}

/// The list as text.
fn print(screen: &mut Screen, entries: &[Entry]) -> io::Result<()> {
    for entry in entries {
        print_short(screen, entry)?;
        if let Some(capabilities) = entry.capabilities {
            let names: Vec<_> = capabilities.iter().map(|one| one.name()).collect();
            screen.field("  claims", names.join(", "))?;
        }
        if let Some(origin) = &entry.candidate.origin {
            screen.field("  origin", origin)?;
        }
        if let Some(inspection) = &entry.inspection {
            let (look, word) = match inspection.usable {
                true => (Look::Good, "usable"),
                false => (Look::Bad, "not usable"),
            };
            screen.field_as(look, "  inspected", word)?;
            for finding in &inspection.findings {
                screen.field("", finding)?;
            }
            if let Some(remedy) = &inspection.remedy {
                screen.field("  remedy", remedy)?;
            }
        }
    }
    Ok(())
}

/// Status, summary and remedy of one.
pub(crate) fn print_short(screen: &mut Screen, entry: &Entry) -> io::Result<()> {
    let kinds: Vec<_> = entry
        .candidate
        .kinds
        .iter()
        .map(|kind| kind.name())
        .collect();
    let version = entry.version.as_ref().map(|version| format!(" {version}"));
    let summary = entry.summary.as_ref().map(|text| format!(": {text}"));
    let text = format!(
        "{}{}; {}{}",
        entry.candidate.status,
        version.unwrap_or_default(),
        kinds.join(" and "),
        summary.unwrap_or_default()
    );
    screen.field(&entry.candidate.name, text)?;
    if let Some(remedy) = &entry.remedy {
        screen.field("  remedy", remedy)?;
    }
    Ok(())
}
