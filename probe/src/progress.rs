//! A line that tells how a run goes, on a terminal and nowhere else.
//!
//! Promises: it is written to the standard error, and only if that is a terminal that can move its cursor; what is printed meanwhile
//! goes through [`Progress::aside`] and stays whole; it is gone before the summary. Does not do: telling anything that
//! the summary doesn't.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often the line changes at most.
const EVERY: Duration = Duration::from_millis(100);

/// The line.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    shown: Instant,
}

impl Progress {
    /// A line for a run of `total` steps, if that is known. Not there where nobody would see it, or nobody `wanted` it.
    pub(crate) fn start(wanted: bool, total: Option<u64>) -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let shown = wanted && !dumb && io::stderr().is_terminal();
        let bar = shown.then(|| {
            let target = ProgressDrawTarget::stderr();
            let bar = ProgressBar::with_draw_target(total, target);
            let template = match total {
                Some(_) => "  {bar:20} {percent:>3} %  {msg}",
                None => "  {spinner} {msg}",
            };
            // A template that can't be read gives indicatif's own style; a test reads both.
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> ").tick_chars("|/-\\ "));
            }
            bar
        });
        Self {
            bar,
            shown: Instant::now(),
        }
    }

    /// Tells where it stands, if it is time for that.
    pub(crate) fn tell(&mut self, now: Instant, done: u64, text: impl FnOnce() -> String) {
        let Some(bar) = &self.bar else { return };
        if now.saturating_duration_since(self.shown) < EVERY {
            return;
        }
        self.shown = now;
        bar.set_position(done);
        bar.set_message(Cow::Owned(text()));
        bar.tick();
    }

    /// Prints something while the line is out of the way.
    pub(crate) fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes it away.
    pub(crate) fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_can_be_read() {
        for template in ["  {bar:20} {percent:>3} %  {msg}", "  {spinner} {msg}"] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }

    #[test]
    fn where_nobody_wants_it_what_is_printed_is_printed_all_the_same() {
        let mut progress = Progress::start(false, None);
        progress.tell(Instant::now(), 1, || unreachable!("nobody sees it"));
        assert_eq!(progress.aside(|| 7), 7);
        progress.end();
    }
}
