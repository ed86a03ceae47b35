//! `fixtures/evict.c`, compiled and running.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

/// The running program, which ends when this is dropped.
pub struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program and waits until it is ready.
    pub fn start(path: &Path) -> anyhow::Result<Self> {
        let mut child = Command::new(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("no stdin")?;
        let output = BufReader::new(child.stdout.take().context("no stdout")?);
        let mut program = Self {
            child,
            input,
            output,
        };
        program.line()?;
        Ok(program)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Its name in the metrics: it listens nowhere.
    pub fn server(&self) -> String {
        format!("pid-{}", self.child.id())
    }

    /// Lets it make a round of calls; of all rounds until now: calls, sums of mem_reported, overhead and mem_tofree, the three
    /// results, evicted keys.
    pub fn numbers(&mut self) -> anyhow::Result<Vec<f64>> {
        self.input.write_all(b"\n")?;
        let line = self.line()?;
        line.split_whitespace()
            .map(|word| Ok(word.parse()?))
            .collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
