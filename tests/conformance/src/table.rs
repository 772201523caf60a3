//! Results as a table: cases down, providers across, and beneath it why cases were skipped or failed.

use std::fmt;
use std::time::Duration;

use lockgate::registry::{Capabilities, Capability};

use crate::outcome::Outcome;

/// One case's result.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Row {
    /// The subject that the case belongs to.
    pub subject: &'static str,
    /// The case.
    pub case: &'static str,
    /// The capabilities that it proves.
    pub proves: &'static [Capability],
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// The results of one equipment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Table {
    /// The equipment's name.
    pub name: String,
    /// What its provider claims.
    pub claimed: Capabilities,
    /// Every case, in order.
    pub rows: Vec<Row>,
}

impl Table {
    /// Whether no case failed.
    #[must_use]
    pub fn is_green(&self) -> bool {
        self.failures().next().is_none()
    }

    /// The cases that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows
            .iter()
            .filter(|row| matches!(row.outcome, Outcome::Failed(_)))
    }

    /// The cases that were skipped, with their reasons.
    pub fn skips(&self) -> impl Iterator<Item = (&Row, &str)> {
        self.rows.iter().filter_map(|row| match &row.outcome {
            Outcome::Skipped(reason) => Some((row, reason.as_str())),
            Outcome::Failed(_) | Outcome::Passed => None,
        })
    }

    /// What is claimed and was proven by no case that passed.
    #[must_use]
    pub fn unproven(&self) -> Vec<Capability> {
        self.claimed
            .iter()
            .filter(|capability| {
                !self
                    .rows
                    .iter()
                    .any(|row| row.outcome == Outcome::Passed && row.proves.contains(capability))
            })
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render(std::slice::from_ref(self)))
    }
}

/// One text for any number of providers: the table, then skips, failures and unproven claims, each with its reason.
#[must_use]
pub fn render(tables: &[Table]) -> String {
    let mut text = String::new();
    let label = |row: &Row| format!("{}::{}", row.subject, row.case);
    let rows = tables.first().map_or(&[][..], |table| &table.rows);
    let first = rows.iter().map(|row| label(row).len()).max().unwrap_or(0);
    let width = |table: &Table| table.name.len().max("FAILED".len());
    let mut line = format!("{:first$}", "case");
    for table in tables {
        line += &format!("  {:w$}", table.name, w = width(table));
    }
    push_line(&mut text, &line);
    for row in rows {
        let mut line = format!("{:first$}", label(row));
        for table in tables {
            let found = table.rows.iter().find(|other| label(other) == label(row));
            let word = match found.map(|row| &row.outcome) {
                None => "-",
                Some(Outcome::Failed(_)) => "FAILED",
                Some(Outcome::Passed) => "ok",
                Some(Outcome::Skipped(_)) => "skip",
            };
            line += &format!("  {word:w$}", w = width(table));
        }
        push_line(&mut text, &line);
    }
    for table in tables {
        let count = |wanted: fn(&Outcome) -> bool| {
            table.rows.iter().filter(|row| wanted(&row.outcome)).count()
        };
        let passed = count(|outcome| matches!(outcome, Outcome::Passed));
        push_line(
            &mut text,
            &format!(
                "{}: {passed} passed, {} skipped, {} failed",
                table.name,
                table.skips().count(),
                table.failures().count()
            ),
        );
        for (row, reason) in table.skips() {
            push_line(&mut text, &format!("  skip {}: {reason}", label(row)));
        }
        for row in table.failures() {
            push_line(&mut text, &format!("  {} {}", label(row), row.outcome));
        }
        for capability in table.unproven() {
            let told = format!("  claimed and not proven here: {capability}");
            push_line(&mut text, &told);
        }
    }
    text
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(case: &'static str, outcome: Outcome) -> Row {
        Row {
            subject: "delivery",
            case,
            proves: &[Capability::Ipv4],
            outcome,
            took: Duration::ZERO,
        }
    }

    #[test]
    fn the_text_has_cases_down_and_providers_across() {
        let one = Table {
            name: "udp".to_owned(),
            claimed: Capabilities::of(&[Capability::Ipv4, Capability::Ipv6]),
            rows: vec![
                row("exact", Outcome::Passed),
                row("vlan", Outcome::Skipped("no tags".to_owned())),
            ],
        };
        let mut other = one.clone();
        other.name = "loopback".to_owned();
        other.rows[0].outcome = Outcome::Failed("2 packets, expected 3".to_owned());
        assert!(one.is_green() && !other.is_green());
        assert_eq!(
            render(&[one, other]),
            "case             udp     loopback\n\
             delivery::exact  ok      FAILED\n\
             delivery::vlan   skip    skip\n\
             udp: 1 passed, 1 skipped, 0 failed\n  \
               skip delivery::vlan: no tags\n  \
               claimed and not proven here: ipv6\n\
             loopback: 0 passed, 1 skipped, 1 failed\n  \
               skip delivery::vlan: no tags\n  \
               delivery::exact FAILED: 2 packets, expected 3\n  \
               claimed and not proven here: ipv4\n  \
               claimed and not proven here: ipv6\n"
        );
    }
}
