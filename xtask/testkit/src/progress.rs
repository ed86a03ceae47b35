//! Progress of a long task: on a terminal a spinner with the time and the last message, elsewhere a line
//! now and then.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::text::seconds;

/// How often a line is written if there is no terminal.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

pub struct Progress {
    label: String,
    bar: Option<ProgressBar>,
    started: Instant,
    last_message: RefCell<String>,
    last_line: Cell<Instant>,
}

impl Progress {
    pub fn start(label: &str) -> Self {
        let started = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("  {spinner} {prefix} {elapsed} {wide_msg:.dim}") {
                bar.set_style(style);
            }
            bar.set_prefix(label.to_owned());
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self { label: label.to_owned(), bar, started, last_message: RefCell::default(), last_line: Cell::new(started) }
    }

    /// Shows what the task is doing now: at once on a terminal, elsewhere in a line once the last one is 30 s old.
    /// Callers call this often, with an empty message if there is nothing new.
    pub fn show(&self, message: String) {
        if !message.is_empty() {
            match &self.bar {
                Some(bar) => bar.set_message(message),
                None => drop(self.last_message.replace(message)),
            }
        }
        if self.bar.is_none() && self.last_line.get().elapsed() >= SIGN_OF_LIFE {
            self.last_line.set(Instant::now());
            println!("  {}: {} so far: {}", self.label, seconds(self.started.elapsed()), self.last_message.borrow());
        }
    }

    pub fn print(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{line}")),
            None => println!("{line}"),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
