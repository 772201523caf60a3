//! Rules on documentation: every relative link leads somewhere, and every decision is in the index.

use std::collections::BTreeSet;

use super::Finding;
use super::tree::{Tree, name};

const DECISIONS: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";

/// Relative links of Markdown files lead to a file or folder of the tree, and to a heading where they name one.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.with_extension(&["md"]) {
        for (line, target) in targets(text) {
            if let Err(fault) = resolve(tree, path, &target) {
                found.push(Finding::new(
                    path,
                    line,
                    format!("link `{target}`: {fault}"),
                ));
            }
        }
    }
    found
}

fn resolve(tree: &Tree, from: &str, target: &str) -> Result<(), String> {
    if ["http://", "https://", "mailto:"]
        .iter()
        .any(|scheme| target.starts_with(scheme))
    {
        return Ok(());
    }
    let (file, heading) = target
        .split_once('#')
        .map_or((target, None), |(file, heading)| (file, Some(heading)));
    let path = if file.is_empty() {
        from.to_owned()
    } else {
        join(from, file).ok_or("leads out of the checkout")?
    };
    if !tree.has(&path) {
        return Err(format!("there is no {path}"));
    }
    match (heading, tree.text(&path)) {
        (Some(heading), Some(text))
            if path.ends_with(".md") && !anchors(text).contains(heading) =>
        {
            Err(format!("{path} has no heading #{heading}"))
        }
        _ => Ok(()),
    }
}

/// `target` as seen from the folder of the file `from`; `None` above the root.
fn join(from: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The targets of inline links and of reference definitions, with their lines; code is passed over.
fn targets(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code_spans(line);
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            if let Some(target) = rest.find(')').map(|end| &rest[..end]) {
                // A title may stand behind the target.
                found.push((
                    number,
                    target.split_whitespace().next().unwrap_or("").to_owned(),
                ));
            }
        }
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "));
        if let Some((_, target)) = definition.filter(|(label, _)| !label.starts_with('^')) {
            found.push((
                number,
                target.split_whitespace().next().unwrap_or("").to_owned(),
            ));
        }
    }
    found
}

/// The lines outside fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

fn without_code_spans(line: &str) -> String {
    // The odd parts are between back ticks; a last one without a closing tick is prose.
    let parts: Vec<&str> = line.split('`').collect();
    let code = |index: usize| index % 2 == 1 && index + 1 < parts.len();
    parts
        .iter()
        .enumerate()
        .filter(|(index, _)| !code(*index))
        .map(|(_, part)| *part)
        .collect()
}

/// The anchors of a page's headings, as hosts of Markdown make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        let anchor: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let unique = (1..).map(|n| format!("{anchor}-{n}"));
        let free = std::iter::once(anchor.clone())
            .chain(unique)
            .find(|anchor| !anchors.contains(anchor));
        anchors.extend(free);
    }
    anchors
}

/// Every decision has a row in the index.
pub(super) fn decisions(tree: &Tree) -> Vec<Finding> {
    let Some(index) = tree.text(INDEX) else {
        return vec![Finding::new(INDEX, 0, "is missing")];
    };
    let listed: Vec<String> = targets(index)
        .into_iter()
        .map(|(_, target)| target)
        .collect();
    let decisions = tree
        .with_extension(&["md"])
        .filter(|(path, _)| path.starts_with(DECISIONS) && *path != INDEX);
    decisions
        .filter(|(path, _)| !listed.iter().any(|target| target == name(path)))
        .map(|(path, _)| Finding::new(path, 0, format!("has no row in {INDEX}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let page = "# Page\n[a](b.md) [c](no.md)\n[d](../x/src/) [e](../../out.md) `[f](no.md)`\n```\n[g](no.md)\n```\n\
                    [h](https://example.invalid/) [i](/etc/passwd)\n[j]: no.md\n[k](b.md#two-words) [l](b.md#no) [m](#page)\n";
        let tree = Tree::of(&[
            ("docs/a.md", page),
            ("docs/b.md", "# One\n## Two `words`!\n"),
            ("x/src/lib.rs", ""),
        ]);
        let found = links(&tree);
        let places: Vec<_> = found
            .iter()
            .map(|finding| (finding.line, finding.text.split(':').next().unwrap()))
            .collect();
        let expected = [
            (2, "link `no.md`"),
            (3, "link `../../out.md`"),
            (7, "link `/etc/passwd`"),
            (8, "link `no.md`"),
            (9, "link `b.md#no`"),
        ];
        assert_eq!(places, expected, "{found:?}");
    }

    #[test]
    fn equal_headings_have_numbered_anchors() {
        let anchors = anchors("# A b\n# A b\n```\n# Not a heading\n```\n## C, d-e_f\n");
        assert_eq!(
            anchors.into_iter().collect::<Vec<_>>(),
            ["a-b", "a-b-1", "c-d-e_f"]
        );
    }

    #[test]
    fn a_decision_that_is_not_in_the_index_is_found() {
        let tree = Tree::of(&[
            (INDEX, "[one](one.md)\n"),
            ("docs/decisions/one.md", ""),
            ("docs/decisions/two.md", ""),
        ]);
        let paths: Vec<_> = decisions(&tree)
            .into_iter()
            .map(|finding| finding.path)
            .collect();
        assert_eq!(paths, ["docs/decisions/two.md"]);
    }
}
