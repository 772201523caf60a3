//! A verdict: what is wrong or right with one thing, why, on what evidence, and what to do about it.
//!
//! Promises: every verdict has a stable code from [`codes`], whose longer text `--explain CODE` prints; the exit code of a run is the
//! class of its first failure, and verdicts stand in the order in which causes go before effects. Does not do: finding anything out.

pub(crate) mod codes;

use std::io;

use serde::{Serialize, Serializer};

pub(crate) use codes::Code;

use crate::exit::Exit;
use crate::output::{Look, Screen};

/// How much a verdict matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// It works, as far as was looked.
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// Will fail in some uses.
    Warning,
    /// It does not work.
    Failure,
}

impl Level {
    /// The word in front of a verdict.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warn",
            Self::Failure => "FAIL",
        }
    }

    /// How it looks.
    pub(crate) const fn look(self) -> Look {
        match self {
            Self::Ok => Look::Good,
            Self::Note => Look::Plain,
            Self::Warning => Look::Warning,
            Self::Failure => Look::Bad,
        }
    }
}

/// What a verdict is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "name", rename_all = "lowercase")]
pub(crate) enum Subject {
    /// A device, by name.
    Device(String),
    /// A file, by path.
    File(String),
    /// The host as a whole.
    Host,
    /// The verbs library.
    Library,
    /// This process.
    Process,
    /// A driver of the verbs library, by the name in its configuration.
    Provider(String),
}

impl Subject {
    /// As text has it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Device(name) => name.clone(),
            Self::File(path) => path.clone(),
            Self::Host => "host".to_owned(),
            Self::Library => "library".to_owned(),
            Self::Process => "process".to_owned(),
            Self::Provider(name) => format!("provider {name}"),
        }
    }
}

/// What is wrong or right with one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// A stable name.
    #[serde(serialize_with = "code_name")]
    pub(crate) code: Code,
    /// How much it matters here.
    pub(crate) level: Level,
    /// What it is about.
    pub(crate) subject: Subject,
    /// What is the matter, in a sentence.
    pub(crate) cause: String,
    /// What was seen.
    pub(crate) evidence: Vec<String>,
    /// What to do; none where there is nothing to do.
    pub(crate) remedy: Option<String>,
}

fn code_name<S: Serializer>(code: &Code, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(code.name())
}

impl Verdict {
    /// A verdict without evidence and remedy yet.
    pub(crate) fn new(
        code: Code,
        level: Level,
        subject: Subject,
        cause: impl Into<String>,
    ) -> Self {
        Self {
            code,
            level,
            subject,
            cause: cause.into(),
            evidence: Vec::new(),
            remedy: None,
        }
    }

    /// Adds something that was seen.
    pub(crate) fn saw(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    /// Adds all that was seen.
    pub(crate) fn saw_all(mut self, evidence: impl IntoIterator<Item = String>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    /// Says what to do.
    pub(crate) fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// The exit code of a run: the class of its first failure.
pub(crate) fn exit(verdicts: &[Verdict]) -> Exit {
    verdicts
        .iter()
        .find(|verdict| verdict.level == Level::Failure)
        .map_or(Exit::Ok, |verdict| verdict.code.exit())
}

/// Prints the verdicts, failures first, otherwise in their order.
pub(crate) fn print(screen: &mut Screen, verdicts: &[Verdict]) -> io::Result<()> {
    for level in [Level::Failure, Level::Warning, Level::Note, Level::Ok] {
        for verdict in verdicts.iter().filter(|verdict| verdict.level == level) {
            let head = format!("  {:<5} ", level.word());
            let text = format!(
                "{}: {} [{}]",
                verdict.subject.text(),
                verdict.cause,
                verdict.code.name()
            );
            screen.hanging(&head, 8, level.look(), &text)?;
            for evidence in &verdict.evidence {
                screen.hanging("        saw: ", 13, Look::Dim, evidence)?;
            }
            if let Some(remedy) = &verdict.remedy {
                screen.hanging("        do:  ", 13, Look::Plain, remedy)?;
            }
        }
    }
    Ok(())
}

/// Prints the longer text of one code.
pub(crate) fn explain(screen: &mut Screen, code: Code) -> io::Result<()> {
    screen.heading(code.name())?;
    screen.hanging("  ", 2, Look::Plain, code.meaning())?;
    screen.gap()?;
    for paragraph in code.explanation().split("\n\n") {
        screen.hanging("  ", 2, Look::Plain, paragraph)?;
        screen.gap()?;
    }
    let exit = code.exit();
    let text = format!(
        "as a failure it ends the run with {} ({})",
        exit.code(),
        exit.name()
    );
    screen.hanging("  ", 2, Look::Dim, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_the_exit_and_lesser_levels_are_not() {
        let at = |code, level| Verdict::new(code, level, Subject::Host, "x");
        let warning = at(Code::MemlockLow, Level::Warning);
        assert_eq!(exit(std::slice::from_ref(&warning)), Exit::Ok);
        let list = [
            warning,
            at(Code::LibraryMissing, Level::Failure),
            at(Code::NodeDenied, Level::Failure),
        ];
        assert_eq!(exit(&list), Exit::Library);
    }
}
