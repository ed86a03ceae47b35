//! End to end: every form that compilers give the calculation, judged by running the program.
//!
//! `fixtures/evict.c` has the structure of Redis, and says itself what it computed. It is compiled
//! in several ways; what the agent then exports must be the same numbers, or be refused by name.
//!
//! Needs root and BPF: `cargo xtask test` runs these where they can run.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use support::agent::Agent;

/// One way to compile the program.
struct Variant {
    compiler: &'static str,
    form: &'static str,
    level: &'static str,
}

impl Variant {
    fn name(&self) -> String {
        let form = if self.form.contains("always") {
            "inlined"
        } else {
            "called"
        };
        format!("{} {} {form}", self.compiler, self.level)
    }

    /// Compiles it; `None` where the compiler is not there.
    fn compile(&self, directory: &Path, index: usize) -> anyhow::Result<Option<PathBuf>> {
        let program = directory.join(format!("evict-{index}"));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/evict.c");
        let compiled = Command::new(self.compiler)
            .args([
                self.level,
                "-rdynamic",
                &format!("-DFORM={}", self.form),
                "-o",
            ])
            .args([&program, &source])
            .status();
        match compiled {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(status) => {
                ensure!(status.success(), "{}: {status}", self.name());
                Ok(Some(program))
            }
        }
    }
}

/// The running program.
struct Program {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &Path) -> anyhow::Result<Self> {
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

    /// Lets it make its calls: calls, sums of mem_reported, overhead and mem_tofree, the three
    /// results, evicted keys.
    fn numbers(&mut self) -> anyhow::Result<Vec<f64>> {
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

#[test]
#[ignore = "needs root and BPF"]
fn every_form_gives_the_programs_own_numbers_or_is_refused() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let forms = [
        "__attribute__((noinline))",
        "__attribute__((always_inline))inline static",
    ];
    let agent = Agent::start(&["--process-match", "^evict-[0-9]+$"])?;
    let (mut right, mut refused) = (0, 0);
    let mut index = 0;
    for compiler in ["gcc", "clang"] {
        for form in forms {
            for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
                let variant = Variant {
                    compiler,
                    form,
                    level,
                };
                index += 1;
                let Some(path) = variant.compile(directory.path(), index)? else {
                    continue;
                };
                match judge(&agent, &path).with_context(|| variant.name())? {
                    true => right += 1,
                    false => refused += 1,
                }
                println!(
                    "{}: {right} right, {refused} refused so far",
                    variant.name()
                );
            }
        }
    }
    // What gcc makes of it at each level that optimises, called.
    ensure!(
        right >= 4,
        "only {right} plans are right, {refused} are refused"
    );
    Ok(())
}

/// Runs the program under the agent: `true` where all numbers are there and agree, `false` where the
/// plan refuses some by name and the others agree.
fn judge(agent: &Agent, path: &Path) -> anyhow::Result<bool> {
    let mut program = Program::start(path)?;
    let name = format!("pid-{}", program.child.id());
    let server = [("server", name.as_str())];
    agent.wait_for(&name, Duration::from_secs(5))?;
    let numbers = program.numbers()?;
    let scrape = agent.settled()?;
    if scrape
        .count("evictscope_mem_tofree_bytes", &server)
        .is_err()
    {
        return Ok(false);
    }
    let [calls, reported, overhead, tofree, ok, running, fail, _] = numbers[..] else {
        anyhow::bail!("the program says {numbers:?}");
    };
    let mut all_known = true;
    for (variable, sum) in [
        ("mem_reported", reported),
        ("overhead", overhead),
        ("mem_tofree", tofree),
    ] {
        let histogram = format!(
            "evictscope_{}_bytes",
            variable.replace("overhead", "mem_overhead")
        );
        let refused = [
            ("server", name.as_str()),
            ("variable", variable),
            ("method", "none"),
        ];
        if scrape.sum("evictscope_probe_plan_info", &refused).is_ok() {
            ensure!(
                scrape.count(&histogram, &server).is_err(),
                "{variable} is refused and exported"
            );
            all_known = false;
            continue;
        }
        let counted = scrape.count(&histogram, &server)?;
        let summed = scrape.sum(&format!("{histogram}_sum"), &server)?;
        ensure!(
            (counted, summed) == (calls, sum),
            "{histogram}: {counted} values, sum {summed}; the program: {calls}, {sum}"
        );
    }
    for (result, own) in [("ok", ok), ("running", running), ("fail", fail)] {
        let labels = [
            ("server", name.as_str()),
            ("kind", "evicting"),
            ("result", result),
        ];
        let unknown = [
            ("server", name.as_str()),
            ("kind", "evicting"),
            ("result", "unknown"),
        ];
        let exported = scrape.sum("evictscope_eviction_calls_total", &labels)?;
        let unknown = scrape.sum("evictscope_eviction_calls_total", &unknown)?;
        ensure!(
            exported <= own && exported + unknown >= own,
            "result {result}: {exported}, and {unknown} unknown; the program: {own}"
        );
    }
    Ok(all_known)
}
