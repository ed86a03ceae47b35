//! `plan/tests/fixtures/evict.c`, compiled and running.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command};

use evictscope_testkit::owned::Owned;

pub fn program_name(test: &str, number: usize) -> String {
    format!("evict-{}-{test}-{number}", std::process::id())
}

/// Returns the option with which an agent watches all programs of a test, and no others.
pub fn all_programs(test: &str) -> String {
    format!("--process-match=^evict-{}-{test}-", std::process::id())
}

/// Returns the command that compiles the program into `program`, with the calculation in this form.
pub fn compiling(compiler: &str, level: &str, form: &str, program: &Path) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plan/tests/fixtures/evict.c");
    let mut command = Command::new(compiler);
    command.args([level, &format!("-DFORM={form}"), "-o"]).args([program, &source]);
    command
}

/// The running program, which is killed when this is dropped.
pub struct Program {
    process: Owned,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts the program and waits until it is ready.
    pub fn start(path: &Path) -> anyhow::Result<Self> {
        let (process, input, output) = Owned::start_with_pipes(&mut Command::new(path))?;
        let mut program = Self { process, input, output: BufReader::new(output) };
        program.line()?;
        Ok(program)
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line)
    }

    /// Returns its name in the metrics, which has its process id because it listens nowhere.
    pub fn server(&self) -> String {
        format!("pid-{}", self.process.pid())
    }

    /// Has it make a round of calls, and returns its numbers for all rounds so far: calls, overhead at the last one,
    /// the sum of mem_tofree, the three results, and evicted keys.
    pub fn numbers(&mut self) -> anyhow::Result<Vec<f64>> {
        self.input.write_all(b"\n")?;
        let line = self.line()?;
        line.split_whitespace().map(|word| Ok(word.parse()?)).collect()
    }
}
