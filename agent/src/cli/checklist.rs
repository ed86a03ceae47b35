//! A list of checks, one line each.

use std::process::ExitCode;

use evictscope_host::printable;

use crate::terminal;

/// The lines of checks, printed as they come.
#[derive(Default)]
pub struct Checklist {
    failures: usize,
}

impl Checklist {
    /// Prints that a check went well.
    pub fn ok(&self, what: &str, detail: &str) {
        line("ok  ", what, detail);
    }

    /// Prints something that is worth knowing.
    pub fn note(&self, what: &str, detail: &str) {
        line("note", what, detail);
    }

    /// Prints that a check failed, and counts it.
    pub fn fail(&mut self, what: &str, detail: &str) {
        self.failures += 1;
        line("FAIL", what, detail);
    }

    /// Ends the list with one of two sentences, and returns the exit code.
    pub fn end(self, well: &str, badly: &str) -> ExitCode {
        let (last, code) = match self.failures {
            0 => (well.to_owned(), ExitCode::SUCCESS),
            count => {
                let last = format!("{badly}: {count} failed, see above.");
                (last, ExitCode::FAILURE)
            }
        };
        say(&format!("\n{last}\n"));
        code
    }
}

fn line(kind: &str, what: &str, detail: &str) {
    let (what, detail) = (printable(what), printable(detail));
    say(&format!("{kind}  {what}: {detail}\n"));
}

/// Prints what it can: the exit code says the same.
fn say(text: &str) {
    if let Err(error) = terminal::print(text) {
        terminal::note(&format!("evictscope: cannot write to stdout: {error}"));
    }
}
