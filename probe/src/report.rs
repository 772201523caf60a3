//! The JSON document, and how a failure is told.
//!
//! Promises: every document of a command has the same head: schema, version, command and exit; the schema's number changes when
//! a field changes its meaning or goes away. A failure is told as text on the standard error and, with `--json`, as a document
//! on the standard output. Does not do: logging.

use std::io;

use lockgate::receive::{ConfigFaults, Losses};
use lockgate::registry::Refusal;
use lockgate::{Errno, Error, ErrorKind};
use serde::Serialize;

use crate::cli::Colour;
use crate::exit::Exit;
use crate::output::{Look, Screen, grouped};

/// The name of the schema in `probe/schema/`.
pub(crate) const SCHEMA: &str = "lockgate.probe.report/1";

/// Why a command did not get to its own end.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The library's answer.
    Library(Error),
    /// The output could not be written.
    Output(io::Error),
}

impl Failure {
    /// The code to end with.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Library(error) => Exit::of(error),
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::OutputClosed,
            Self::Output(_) => Exit::Failed,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// What every document starts with, and then what the command has to say.
#[derive(Debug, Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    version: &'static str,
    command: &'a str,
    exit: Exit,
    #[serde(flatten)]
    body: T,
}

/// Prints the document of a command.
pub(crate) fn document<T: Serialize>(
    screen: &mut Screen,
    command: &str,
    exit: Exit,
    body: T,
) -> io::Result<()> {
    document_as(SCHEMA, screen, command, exit, body)
}

/// Prints the document of a command that has a schema of its own.
pub(crate) fn document_as<T: Serialize>(
    schema: &'static str,
    screen: &mut Screen,
    command: &str,
    exit: Exit,
    body: T,
) -> io::Result<()> {
    screen.raw(&document_text(schema, command, exit, body)?)?;
    screen.gap()
}

/// The text of a document.
pub(crate) fn document_text<T: Serialize>(
    schema: &'static str,
    command: &str,
    exit: Exit,
    body: T,
) -> io::Result<String> {
    let document = Document {
        schema,
        version: env!("CARGO_PKG_VERSION"),
        command,
        exit,
        body,
    };
    serde_json::to_string_pretty(&document).map_err(io::Error::from)
}

/// An error of the library in a document.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorReport {
    kind: &'static str,
    operation: String,
    provider: Option<String>,
    object: Option<String>,
    errno: Option<ErrnoReport>,
    detail: Option<String>,
    remedy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Refusal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    faults: Option<ConfigFaults>,
    text: String,
}

#[derive(Debug, Serialize)]
struct ErrnoReport {
    number: Errno,
    name: Option<&'static str>,
}

impl From<&Error> for ErrorReport {
    fn from(error: &Error) -> Self {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            kind: kind_name(error.kind()),
            operation: error.operation().to_owned(),
            provider: owned(error.provider()),
            object: owned(error.object()),
            errno: error.errno().map(|number| ErrnoReport {
                number,
                name: number.name(),
            }),
            detail: owned(error.detail()),
            remedy: owned(error.remedy()),
            refusal: error.refusal().cloned(),
            faults: error.faults().cloned(),
            text: error.to_string(),
        }
    }
}

const fn kind_name(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Bug => "bug",
        ErrorKind::Capability => "capability",
        ErrorKind::Closed => "closed",
        ErrorKind::Device => "device",
        ErrorKind::Invalid(_) => "invalid",
        ErrorKind::Library => "library",
        ErrorKind::MemoryLimit => "memory-limit",
        ErrorKind::Peer => "peer",
        ErrorKind::Permission => "permission",
        ErrorKind::Provider => "provider",
        ErrorKind::Refused(_) => "refused",
        ErrorKind::Resource => "resource",
        ErrorKind::Syntax => "syntax",
        ErrorKind::System => "system",
        ErrorKind::Unquiesced => "unquiesced",
        _ => "other",
    }
}

/// Losses by place in one line: what was lost, then the places that counted nothing.
pub(crate) fn losses(losses: &Losses) -> String {
    let mut parts = Vec::new();
    let mut zero = Vec::new();
    for (place, count) in losses.by_place() {
        match count {
            Some(0) => zero.push(place),
            Some(count) => parts.push(format!("{place} {}", grouped(count))),
            None => {}
        }
    }
    if parts.is_empty() {
        parts.push("none".to_owned());
    }
    let mut text = parts.join(", ");
    if !zero.is_empty() {
        text.push_str(&format!("; 0 counted at {}", zero.join(", ")));
    }
    text
}

/// The places where this provider can't count, in one line; nothing if there are none.
pub(crate) fn uncounted(losses: &Losses) -> Option<String> {
    let blind: Vec<_> = losses
        .by_place()
        .into_iter()
        .filter(|(_, count)| count.is_none())
        .map(|(place, _)| place)
        .collect();
    (!blind.is_empty()).then(|| format!("this provider can't count at {}", blind.join(", ")))
}

/// Tells that the output could not be written, unless nobody reads it. If that can't be told either, the code has to do.
pub(crate) fn tell_lost(failure: &Failure, colour: Colour) {
    if let Failure::Output(error) = failure
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let text = format!("write output: {error}");
        let _ = Screen::stderr(colour).hanging("probe: ", 2, Look::Plain, &text);
    }
}

/// Tells why a command ended early. Fails if the standard output does not take the document; what the standard error takes does
/// not change how the command ended.
pub(crate) fn tell(
    failure: &Failure,
    command: &str,
    screen: &mut Screen,
    json: bool,
    colour: Colour,
) -> io::Result<()> {
    let error = match failure {
        Failure::Library(error) => error,
        Failure::Output(_) => {
            tell_lost(failure, colour);
            return Ok(());
        }
    };
    if json {
        #[derive(Serialize)]
        struct Body {
            error: ErrorReport,
        }
        let body = Body {
            error: error.into(),
        };
        document(screen, command, failure.exit(), body)?;
        screen.flush()?;
    }
    let _ = print_error(&mut Screen::stderr(colour), "probe: ", error);
    Ok(())
}

/// An error as text: what failed, then its candidates or faults, then what is known and what to do.
pub(crate) fn print_error(screen: &mut Screen, front: &str, error: &Error) -> io::Result<()> {
    let mut head = String::new();
    for part in error.provider().into_iter() {
        head.push_str(part);
        head.push_str(": ");
    }
    head.push_str(error.operation());
    if let Some(object) = error.object() {
        head.push(' ');
        head.push_str(object);
    }
    head.push_str(": ");
    match (error.refusal(), error.faults(), error.errno()) {
        (Some(refusal), _, _) => head.push_str(&refusal.cause.to_string()),
        (_, Some(_), _) => head.push_str("the configuration has values that are not allowed"),
        (_, _, Some(errno)) => head.push_str(&errno.to_string()),
        _ => head.push_str(&error.kind().to_string()),
    }
    screen.hanging(front, 2, Look::Bad, &head)?;
    if let Some(refusal) = error.refusal() {
        for candidate in &refusal.candidates {
            let origin = candidate.origin.as_ref();
            let origin = origin
                .map(|origin| format!(", {origin}"))
                .unwrap_or_default();
            screen.field(&candidate.name, format!("{}{origin}", candidate.status))?;
        }
        if error.remedy().is_none() {
            screen.field("remedy", &refusal.remedy)?;
        }
    }
    for fault in error.faults().map(ConfigFaults::list).unwrap_or_default() {
        let text = format!(
            "value {} {}; allowed: {}",
            fault.value, fault.problem, fault.allowed
        );
        let label = format!("  {}: ", fault.field);
        screen.hanging(&label, 4, Look::Plain, &text)?;
    }
    if let Some(detail) = error.detail() {
        screen.field("detail", detail)?;
    }
    if let Some(remedy) = error.remedy() {
        screen.field("remedy", remedy)?;
    }
    Ok(())
}
