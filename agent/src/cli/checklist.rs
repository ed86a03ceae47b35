//! A list of checks, one line each.

use std::process::ExitCode;

/// The lines of checks, printed as they come.
#[derive(Default)]
pub struct Checklist {
    failures: usize,
}

impl Checklist {
    /// Prints that a check went well.
    pub fn ok(&self, what: &str, detail: &str) {
        println!("ok    {what}: {detail}");
    }

    /// Prints something that is worth knowing.
    pub fn note(&self, what: &str, detail: &str) {
        println!("note  {what}: {detail}");
    }

    /// Prints that a check failed, and counts it.
    pub fn fail(&mut self, what: &str, detail: &str) {
        self.failures += 1;
        println!("FAIL  {what}: {detail}");
    }

    /// Ends the list with one of two sentences, and returns the exit code.
    pub fn end(self, well: &str, badly: &str) -> ExitCode {
        match self.failures {
            0 => {
                println!("\n{well}");
                ExitCode::SUCCESS
            }
            count => {
                println!("\n{badly}: {count} failed, see above.");
                ExitCode::FAILURE
            }
        }
    }
}
