//! Numbers and progress, as the developer tasks print them.

use std::cell::{Cell, RefCell};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{BinaryBytes, HumanCount, ProgressBar, ProgressStyle};

/// Returns a number of bytes with a binary unit: `1.50 MiB`.
pub fn bytes(bytes: u64) -> String {
    BinaryBytes(bytes).to_string()
}

/// Returns a count, rounded, with its thousands separated: `1,234`.
pub fn count(value: f64) -> String {
    HumanCount(value.round().max(0.0) as u64).to_string()
}

/// Returns the text of a value, or a hyphen if it is not known.
pub fn known<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

/// Returns a share between 0 and 1 as `45 %`.
pub fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Returns a duration as `1.2 s` or `2 m 05 s`.
pub fn seconds(duration: Duration) -> String {
    if duration < Duration::from_secs(60) {
        format!("{:.1} s", duration.as_secs_f64())
    } else {
        let seconds = duration.as_secs();
        format!("{} m {:02} s", seconds / 60, seconds % 60)
    }
}

/// How often a line is written if there is no terminal.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);

/// Progress of a long task: on a terminal a spinner with the time and the last message, elsewhere a line now and then.
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
