//! Showing that something goes on: a bar on a terminal, one line a second otherwise, on standard error.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{message, thousands};

/// How often a line is written where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(1);

/// Shows how many things of a kind are done.
pub(super) struct Progress {
    what: &'static str,
    started: Instant,
    last_line: Instant,
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Starts at zero. With a length the bar shows how much of it is done, else only that something is.
    pub(super) fn start(what: &'static str, length: Option<u64>) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr_with_hz(10));
            let template = if length.is_some() { "{bar:30} {percent:>3} %  {msg}" } else { "{spinner} {msg}" };
            bar.with_style(ProgressStyle::with_template(template).expect("the template is a constant"))
        });
        let now = Instant::now();
        Self { what, started: now, last_line: now, bar }
    }

    /// Shows a new count; `position` is in the unit of the length.
    pub(super) fn show(&mut self, count: u64, position: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(self.sentence(count));
            bar.set_position(position);
        } else if self.last_line.elapsed() >= LINE_PERIOD {
            self.last_line = Instant::now();
            message(self.sentence(count));
        }
    }

    /// Prints a message without tearing the bar.
    pub(super) fn message(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| message(text)),
            None => message(text),
        }
    }

    /// Takes the bar away.
    pub(super) fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }

    fn sentence(&self, count: u64) -> String {
        let rate = count as f64 / self.started.elapsed().as_secs_f64().max(1e-3);
        format!("{} {} ({}/s)", thousands(count), self.what, thousands(rate as u64))
    }
}
