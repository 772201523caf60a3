//! The screen: text that fits its width, coloured only where colour is wanted.
//!
//! Promises: no line is wider than the terminal, or 80 columns where there is none, unless one word is; colour only on a terminal,
//! without `NO_COLOR` and not with `--color never`; nothing in a text acts on the terminal; a reader that goes away is an error to
//! the caller, never a panic. Does not do: deciding what to say.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::cli::Colour;

/// The width where nobody tells one.
const WIDTH: usize = 80;
/// Lines longer than this are hard to read.
const WIDEST: usize = 120;
/// Narrower than this, wrapping makes it worse.
const NARROWEST: usize = 40;
/// Where the text of a field starts.
const FIELD: usize = 18;

/// How a piece of text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// A failure.
    Bad,
    /// Less important.
    Dim,
    /// A success.
    Good,
    /// A heading.
    Heading,
    /// Like everything else.
    Plain,
    /// A warning.
    Warning,
}

impl Look {
    const fn code(self) -> &'static str {
        match self {
            Self::Bad => "\x1b[1;31m",
            Self::Dim => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Heading => "\x1b[1m",
            Self::Plain => "",
            Self::Warning => "\x1b[33m",
        }
    }
}

/// Where text goes.
pub(crate) struct Screen {
    out: Box<dyn Write>,
    choice: Colour,
    colour: bool,
    width: usize,
}

impl Screen {
    /// The standard output.
    pub(crate) fn stdout(colour: Colour) -> Self {
        let stdout = io::stdout();
        Self {
            choice: colour,
            colour: coloured(colour, stdout.is_terminal()),
            width: width(&stdout),
            out: Box::new(stdout),
        }
    }

    /// The standard error.
    pub(crate) fn stderr(colour: Colour) -> Self {
        let stderr = io::stderr();
        Self {
            choice: colour,
            colour: coloured(colour, stderr.is_terminal()),
            width: width(&stderr),
            out: Box::new(stderr),
        }
    }

    /// Anywhere else: without colour, 80 columns wide.
    pub(crate) fn plain(out: impl Write + 'static) -> Self {
        Self {
            out: Box::new(out),
            choice: Colour::Never,
            colour: false,
            width: WIDTH,
        }
    }

    /// The standard error, with the same choice of colour.
    pub(crate) fn aside(&self) -> Self {
        Self::stderr(self.choice)
    }

    /// A heading.
    pub(crate) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.paint(&plain(text), Look::Heading);
        writeln!(self.out, "{text}")
    }

    /// An empty line.
    pub(crate) fn gap(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// A label with its text, which wraps under itself.
    pub(crate) fn field(&mut self, label: &str, text: impl Display) -> io::Result<()> {
        self.field_as(Look::Plain, label, text)
    }

    /// The same, with a look for the text.
    pub(crate) fn field_as(
        &mut self,
        look: Look,
        label: &str,
        text: impl Display,
    ) -> io::Result<()> {
        let label = format!("  {label}");
        let pad = FIELD.saturating_sub(label.chars().count()).max(1);
        let first = format!("{label}{}", " ".repeat(pad));
        self.hanging(&first, FIELD, look, &text.to_string())
    }

    /// Text with columns of its own, where the text of a field stands; it is cut at the width, not wrapped.
    pub(crate) fn columns(&mut self, look: Look, text: &str) -> io::Result<()> {
        let room = self.width.saturating_sub(FIELD);
        let text: String = plain(text.trim_end()).chars().take(room).collect();
        let text = self.paint(&text, look);
        writeln!(self.out, "{}{text}", " ".repeat(FIELD))
    }

    /// Text that wraps, with `first` in front of the first line and spaces in front of the others.
    pub(crate) fn hanging(
        &mut self,
        first: &str,
        indent: usize,
        look: Look,
        text: &str,
    ) -> io::Result<()> {
        let mut front = plain(first).into_owned();
        let start = front.chars().count();
        for line in wrap(text, self.width, start, indent) {
            let line = self.paint(&line, look);
            writeln!(self.out, "{}", format!("{front}{line}").trim_end())?;
            front = " ".repeat(indent);
        }
        Ok(())
    }

    /// Rows under headers; the last column takes what is left of the width, and wraps.
    pub(crate) fn table(&mut self, headers: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
        const BETWEEN: usize = 2;
        let columns = headers.len();
        let mut widths: Vec<usize> = headers.iter().map(|one| one.chars().count()).collect();
        for row in rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let indent = 2 + widths
            .iter()
            .take(columns.saturating_sub(1))
            .map(|width| width + BETWEEN)
            .sum::<usize>();
        let front = |cells: &[String]| {
            let mut line = "  ".to_owned();
            for (cell, width) in cells.iter().zip(&widths).take(columns.saturating_sub(1)) {
                let pad = width - cell.chars().count() + BETWEEN;
                line.push_str(cell);
                line.push_str(&" ".repeat(pad));
            }
            line
        };
        let cells: Vec<String> = headers.iter().map(|one| (*one).to_owned()).collect();
        let line = format!("{}{}", front(&cells), headers.last().unwrap_or(&""));
        let line = self.paint(line.trim_end(), Look::Dim);
        writeln!(self.out, "{line}")?;
        for row in rows {
            let last = row.last().map_or("", String::as_str);
            self.hanging(&front(row), indent, Look::Plain, last)?;
        }
        Ok(())
    }

    /// Raw text, as it is.
    pub(crate) fn raw(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    /// Hands everything on.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn paint(&self, text: &str, look: Look) -> String {
        if self.colour && look != Look::Plain && !text.is_empty() {
            format!("{}{text}\x1b[0m", look.code())
        } else {
            text.to_owned()
        }
    }
}

fn coloured(colour: Colour, terminal: bool) -> bool {
    let unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    match colour {
        Colour::Always => true,
        Colour::Auto => {
            terminal
                && unset("NO_COLOR")
                && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
        }
        Colour::Never => false,
    }
}

/// The columns of a terminal, within reason; 80 for everything else.
fn width(stream: &impl rustix::fd::AsFd) -> usize {
    match rustix::termios::tcgetwinsize(stream) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col).clamp(NARROWEST, WIDEST),
        _ => WIDTH,
    }
}

/// Text without what would act on a terminal: control characters, and those that turn the direction of writing, stand there
/// escaped. Names of interfaces, files and options may have any of them.
fn plain(text: &str) -> Cow<'_, str> {
    let acts = |one: char| {
        one.is_control()
            || matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len());
    for one in text.chars() {
        if acts(one) {
            safe.extend(one.escape_default());
        } else {
            safe.push(one);
        }
    }
    Cow::Owned(safe)
}

/// Breaks text into lines: the first has `start` columns in front of it, the others `indent`. Never gives no line at all.
fn wrap(text: &str, width: usize, start: usize, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut column = start;
    for word in text.split_whitespace() {
        let word = plain(word);
        let length = word.chars().count();
        let space = usize::from(!line.is_empty());
        if !line.is_empty() && column + space + length > width {
            lines.push(std::mem::take(&mut line));
            column = indent;
        }
        if !line.is_empty() {
            line.push(' ');
            column += 1;
        }
        line.push_str(&word);
        column += length;
    }
    lines.push(line);
    lines
}

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the largest binary unit that keeps it whole: `8 MiB`, `1,500 bytes`.
pub(crate) fn bytes(number: u64) -> String {
    let mut value = number;
    let mut unit = "bytes";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024 || !value.is_multiple_of(1024) {
            break;
        }
        value /= 1024;
        unit = larger;
    }
    format!("{} {unit}", grouped(value))
}

/// A time in the unit that suits it, with three digits: `12.3 us`.
pub(crate) fn nanoseconds(number: u64) -> String {
    let (value, unit) = match number {
        0..1_000 => return format!("{number} ns"),
        1_000..1_000_000 => (number as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (number as f64 / 1e6, "ms"),
        _ => (number as f64 / 1e9, "s"),
    };
    let digits = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_at_the_width_and_words_stay_whole() {
        assert_eq!(wrap("", 10, 0, 0), [""]);
        assert_eq!(wrap("aa bb cc", 5, 0, 0), ["aa bb", "cc"]);
        assert_eq!(wrap("aa bb cc", 8, 3, 6), ["aa bb", "cc"]);
        assert_eq!(
            wrap("a-very-long-word b", 5, 0, 0),
            ["a-very-long-word", "b"]
        );
        for width in 20..100 {
            for line in wrap(&"word ".repeat(100), width, 4, 2) {
                assert!(line.chars().count() + 2 <= width);
            }
        }
    }

    #[test]
    fn nothing_in_a_text_acts_on_the_terminal() {
        assert_eq!(plain("eth0 \u{e4}"), "eth0 \u{e4}");
        assert_eq!(
            plain("a\x1b[2J\u{9b}b\u{202e}\n"),
            "a\\u{1b}[2J\\u{9b}b\\u{202e}\\n"
        );
        assert_eq!(wrap("a\x07 b", 80, 0, 0), ["a\\u{7} b"]);
    }

    #[test]
    fn numbers_read_well() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(bytes(8 << 20), "8 MiB");
        assert_eq!(bytes(212_992), "208 KiB");
        assert_eq!(bytes(1_500), "1,500 bytes");
        assert_eq!(bytes(0), "0 bytes");
        assert_eq!(nanoseconds(999), "999 ns");
        assert_eq!(nanoseconds(12_345), "12.3 us");
        assert_eq!(nanoseconds(1_234), "1.23 us");
        assert_eq!(nanoseconds(123_456_789), "123 ms");
        assert_eq!(nanoseconds(2_500_000_000), "2.50 s");
    }

    #[test]
    fn colour_follows_the_choice() {
        assert!(coloured(Colour::Always, false));
        assert!(!coloured(Colour::Never, true));
        assert!(!coloured(Colour::Auto, false));
    }
}
