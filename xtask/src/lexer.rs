//! Tells code from comments and literals in Rust source, so that checks don't trip over words in prose.
//!
//! Promises: the parts of [`split`] joined give back the source; nested comments, raw strings, byte and C strings,
//! characters and lifetimes are told apart. Does not do: parse Rust; source that does not lex is cut off, not refused.

/// What a stretch of source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Code,
    Comment,
    /// A string or character literal, its quotes included.
    Literal,
}

/// The source as stretches of one kind each, in order.
pub(crate) fn split(source: &str) -> Vec<(Kind, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < source.len() {
        let rest = &source[at..];
        let after_word = source[..at].chars().next_back().is_some_and(is_word);
        let found = comment(rest)
            .map(|length| (Kind::Comment, length))
            .or_else(|| literal(rest, after_word).map(|length| (Kind::Literal, length)));
        match found {
            Some((kind, length)) => {
                if start < at {
                    parts.push((Kind::Code, &source[start..at]));
                }
                parts.push((kind, &source[at..at + length]));
                at += length;
                start = at;
            }
            None => at += rest.chars().next().map_or(1, char::len_utf8),
        }
    }
    if start < source.len() {
        parts.push((Kind::Code, &source[start..]));
    }
    parts
}

/// The source with everything that is not of one of `kinds` blanked out; line numbers stay as they are.
pub(crate) fn only(source: &str, kinds: &[Kind]) -> String {
    let blank = |part: &str| {
        part.chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect::<String>()
    };
    split(source)
        .into_iter()
        .map(|(kind, part)| {
            if kinds.contains(&kind) {
                part.to_owned()
            } else {
                blank(part)
            }
        })
        .collect()
}

/// The numbers of the lines on which `word` stands as a whole word, counted from 1.
pub(crate) fn lines_with_word(text: &str, word: &str) -> Vec<usize> {
    text.lines()
        .enumerate()
        .filter(|(_, line)| has_word(line, word))
        .map(|(index, _)| index + 1)
        .collect()
}

/// Whether `word` stands in `line` with no letter, digit or underscore beside it.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(is_word)
            && !line[at + word.len()..].chars().next().is_some_and(is_word)
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (0usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    Some(rest.len())
}

fn literal(rest: &str, after_word: bool) -> Option<usize> {
    if rest.starts_with('"') {
        return Some(quoted(rest, 1, '"'));
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    if after_word {
        return None;
    }
    // The prefixes of Rust's string literals; `r#name` is an identifier and falls through.
    for prefix in ["br", "cr", "r"] {
        if let Some(tail) = rest.strip_prefix(prefix) {
            let hashes = tail.len() - tail.trim_start_matches('#').len();
            if tail[hashes..].starts_with('"') {
                let open = prefix.len() + hashes + 1;
                let close = format!("\"{}", "#".repeat(hashes));
                return Some(
                    rest[open..]
                        .find(&close)
                        .map_or(rest.len(), |at| open + at + close.len()),
                );
            }
        }
    }
    for prefix in ["b", "c"] {
        if rest
            .strip_prefix(prefix)
            .is_some_and(|tail| tail.starts_with('"'))
        {
            return Some(quoted(rest, prefix.len() + 1, '"'));
        }
    }
    None
}

/// The length of a literal whose content starts at `from` and ends with `close`, escapes heeded.
fn quoted(rest: &str, from: usize, close: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest[from..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == close => return from + at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal; `None` for a lifetime or a label.
fn character(rest: &str) -> Option<usize> {
    let mut inside = rest[1..].chars();
    let first = inside.next()?;
    if first == '\\' || inside.next() == Some('\'') {
        Some(quoted(rest, 1, '\''))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, code: &str) {
        assert_eq!(
            only(source, &[Kind::Code]).replace(' ', ""),
            code,
            "{source}"
        );
        let joined: String = split(source).into_iter().map(|(_, part)| part).collect();
        assert_eq!(joined, source);
    }

    #[test]
    fn comments_are_not_code() {
        check("a // b\nc", "a\nc");
        check("a /* b /* c */ d */ e", "ae");
        check("/// doc\nfn f() {}", "\nfnf(){}");
    }

    #[test]
    fn literals_are_not_code() {
        check(r#"f("a // b \" c") g"#, "f()g");
        check(r##"f(r#"a " b"#) g"##, "f()g");
        check(r##"f(br#"a"#, c"b", b"d") g"##, "f(,,)g");
        check(r"f('x', '\'', '\u{1F600}', b'y') g", "f(,,,b)g");
    }

    #[test]
    fn lifetimes_labels_and_raw_names_are_code() {
        check(
            "fn f<'a>(x: &'a str) { 'out: loop {} }",
            "fnf<'a>(x:&'astr){'out:loop{}}",
        );
        check("r#type + br", "r#type+br");
    }

    #[test]
    fn source_that_ends_early_is_cut_off() {
        check("a \"b", "a");
        check("a /* b", "a");
        check("a r#\"b\"", "a");
    }

    #[test]
    fn lines_keep_their_numbers() {
        let source = "/* one\ntwo */ unsafe\n\"three\n\" unsafe_code\n";
        assert_eq!(lines_with_word(&only(source, &[Kind::Code]), "unsafe"), [2]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("unsafe {", "unsafe"));
        assert!(has_word("(unsafe)", "unsafe"));
        assert!(!has_word("unsafe_code, an_unsafe", "unsafe"));
    }
}
