//! Programs that have the structure of a server: `plan/tests/fixtures/evict.c`, compiled in every form that compilers
//! give the calculation, and so that it does what its plan says it cannot.
//!
//! Each prints what it computed. The agent must export the same numbers, or refuse them by name; where an invariant of
//! the plan breaks, it must withdraw the plan, and no number that depends on it may stay on /metrics.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use evictscope_testkit::process;

use crate::prelude::*;

/// Compilers, forms, levels and flags; each combination is one variant.
const COMPILERS: [&str; 2] = ["gcc", "clang"];
const FORMS: [(&str, &str); 2] =
    [("called", "__attribute__((noinline))"), ("inlined", "__attribute__((always_inline))inline static")];
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
const FLAGS: [(&str, &[&str]); 7] = [
    ("plain", &["-rdynamic"]),
    // In some of these, the goal probe ends calls.
    ("refusing", &["-rdynamic", "-DREFUSES"]),
    (
        "hardened",
        &["-rdynamic", "-fcf-protection=full", "-fstack-protector-all", "-pie", "-fPIE", "-Wl,-z,relro,-z,now"],
    ),
    // Without a single name, with fixed addresses and without.
    ("static", &["-static", "-s"]),
    ("static-pie", &["-static-pie", "-fPIE", "-s"]),
    ("no-pie", &["-rdynamic", "-no-pie", "-fno-pie"]),
    ("one-unit", &["-rdynamic", "-fno-omit-frame-pointer", "-DELSEWHERE=static"]),
];
/// How many programs run at the same time.
const BATCH: usize = 30;
/// How many are compiled at the same time.
const COMPILED_AT_ONCE: usize = 8;

/// Compiles each variant whose compiler is installed. Returns the names and the files.
fn compile_all(directory: &Path) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let mut variants = Vec::new();
    for compiler in COMPILERS {
        for (form, definition) in FORMS {
            for level in LEVELS {
                for (flags, options) in FLAGS {
                    let program = directory.join(program_name("form", variants.len()));
                    let mut command = compiling(compiler, level, definition, &program);
                    command.args(options).stderr(Stdio::piped());
                    variants.push((format!("{compiler} {level} {form} {flags}"), program, command));
                }
            }
        }
    }
    let mut compiled = Vec::new();
    for some in variants.chunks_mut(COMPILED_AT_ONCE) {
        let children: Vec<_> = some.iter_mut().map(|(_, _, command)| command.spawn()).collect();
        for ((name, program, _), child) in some.iter().zip(children) {
            match child {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                child => {
                    let output = child?.wait_with_output()?;
                    let printed = String::from_utf8_lossy(&output.stderr);
                    ensure!(output.status.success(), "{name}: {printed}");
                }
            }
            compiled.push((name.clone(), program.clone()));
        }
    }
    Ok(compiled)
}

#[test]
#[ignore = "needs root and BPF"]
fn every_form_exports_the_programs_own_numbers_or_is_refused() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let programs = compile_all(directory.path())?;
    // Whatever they cost.
    let agent = Agent::start(&["--probe-mode", "evicting-only", &all_programs("form")])?;
    let mut refused = Vec::new();
    for batch in programs.chunks(BATCH) {
        let mut running = Vec::new();
        for (variant, path) in batch {
            running.push((variant, Program::start(path)?));
        }
        for (variant, program) in &running {
            agent.wait_for(&program.server()).with_context(|| String::clone(variant))?;
        }
        let mut judged = Vec::new();
        for (variant, program) in &mut running {
            judged.push((variant, program.server(), program.numbers()?));
        }
        let scrape = agent.settled()?;
        for (variant, server, numbers) in judged {
            let missing = judge(&scrape, &server, &numbers).with_context(|| String::clone(variant))?;
            if !missing.is_empty() {
                refused.push(format!("{variant}: {}", missing.join(", ")));
            }
        }
    }
    println!(
        "{} variants, {} plans without any refusal, none wrong; refused:\n{}",
        programs.len(),
        programs.len() - refused.len(),
        refused.join("\n")
    );
    ensure!(programs.len() >= 40, "only {} variants", programs.len());
    // Servers are built at these levels. At others, and if a compiler is forced to inline, a plan may lack something
    // as long as it says so.
    let usual: Vec<_> = (refused.iter())
        .filter(|refused| refused.contains(" -O2 ") || refused.contains(" -O3 "))
        // Where only evicting calls come, an inlined copy may have kept no overhead. Where the overhead is inlined,
        // too, it decides in two places.
        .filter(|refused| {
            let keeps = !refused.ends_with(": overhead") && !refused.contains(" one-unit:");
            keeps || !refused.contains(" inlined ")
        })
        .collect();
    ensure!(usual.is_empty(), "refused: {usual:?}");
    Ok(())
}

/// Compares the exported numbers of a program with its own, and returns what the plan refuses by name. A number that
/// differs is an error.
fn judge(scrape: &Scrape, name: &str, numbers: &[f64]) -> anyhow::Result<Vec<String>> {
    let server = [("server", name)];
    let withdrawn = scrape.sum("evictscope_plan_withdrawn", &server);
    ensure!(withdrawn.is_err(), "the plan was withdrawn");
    let [calls, _, tofree, ok, running, fail, _] = numbers[..] else { anyhow::bail!("the program says {numbers:?}") };
    let exported = |result| {
        scrape.sum("evictscope_eviction_calls_total", &[("server", name), ("kind", "evicting"), ("result", result)])
    };
    let is_counted = exported("ok").is_ok();
    let mut missing = Vec::new();
    let is_refused = |variable| {
        let refused = [("server", name), ("variable", variable), ("method", "none")];
        scrape.sum("evictscope_probe_plan_info", &refused).is_ok()
    };
    // It is not exported; the kernel's program checks at each call that the goal follows from it.
    if is_refused("overhead") {
        missing.push("overhead".to_owned());
    }
    let seen = scrape.sum("evictscope_mem_tofree_bytes_sum", &server);
    if !is_counted || is_refused("mem_tofree") {
        ensure!(seen.is_err(), "mem_tofree or the end of calls is refused, and it is exported");
        missing.push("mem_tofree".to_owned());
    } else {
        let seen = seen?;
        ensure!(seen == tofree, "{seen} bytes to free; the program: {tofree}");
    }
    if !is_counted {
        missing.push("eviction calls".to_owned());
        return Ok(missing);
    }
    let goals = scrape.count("evictscope_mem_tofree_bytes", &server);
    ensure!(goals.is_err() || goals? == calls, "not {calls} goals");
    // Without a series, there was none.
    let unknown = exported("unknown").unwrap_or(0.0);
    for (result, counted) in [("ok", ok), ("running", running), ("fail", fail)] {
        let exported = exported(result)?;
        ensure!(
            exported <= counted && exported + unknown >= counted,
            "result {result}: {exported}, and {unknown} unknown; the program: {counted}"
        );
    }
    if unknown > 0.0 {
        missing.push("results".to_owned());
    }
    Ok(missing)
}

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
        self.line()?.split_whitespace().map(|word| Ok(word.parse()?)).collect()
    }
}

/// Series that depend on the plan.
const RESTING_ON_THE_PLAN: [&str; 5] = [
    "evictscope_eviction_call_duration_seconds",
    "evictscope_eviction_calls_total",
    "evictscope_mem_tofree_bytes",
    "evictscope_eviction_call_longest_seconds",
    "evictscope_main_thread_cpu_seconds_total",
];

/// Compiles the program, so that it breaks an invariant if `breaks` names one.
fn compile(directory: &Path, name: &str, breaks: Option<&str>) -> anyhow::Result<PathBuf> {
    let program = directory.join(name);
    let mut gcc = compiling("gcc", "-O2", "__attribute__((noinline))", &program);
    gcc.arg("-rdynamic").args(breaks.map(|breaks| format!("-D{breaks}")));
    process::answer_of(&mut gcc)?;
    Ok(program)
}

fn is_exported(text: &str, family: &str, server: &str) -> bool {
    let label = format!("server=\"{server}\"");
    text.lines().any(|line| line.starts_with(family) && line.contains(&label))
}

fn only_line_with<'a>(log: &'a str, part: &str) -> anyhow::Result<&'a str> {
    let mut lines = log.lines().filter(|line| line.contains(part));
    lines.next().filter(|_| lines.next().is_none()).with_context(|| format!("not one line with {part}: {log}"))
}

/// Checks that the plan of a program that breaks an invariant is withdrawn for `reason`.
fn withdrawn(breaks: &str, reason: &str) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut broken = Program::start(&compile(directory.path(), &program_name(breaks, 1), Some(breaks))?)?;
    let mut sound = Program::start(&compile(directory.path(), &program_name(breaks, 2), None)?)?;
    let agent = Agent::start(&[&all_programs(breaks), "--probe-mode=every-call"])?;
    let (name, sound_name) = (broken.server(), sound.server());
    let server = [("server", name.as_str())];
    let evicting = |name| [("server", name), ("kind", "evicting")];
    for name in [&name, &sound_name] {
        agent.wait_for(name)?;
    }

    // As long as the invariant holds, the numbers are right.
    let calls = broken.numbers()?[0];
    sound.numbers()?;
    let before = agent.settled()?;
    let counted = before.sum("evictscope_eviction_calls_total", &evicting(&name))?;
    ensure!(counted == calls, "{counted} calls, the program: {calls}");
    let text = agent.get("/metrics")?;
    for family in RESTING_ON_THE_PLAN {
        ensure!(is_exported(&text, family, &name), "{family} was never there");
    }
    let withdrawn = "evictscope_plan_withdrawn";
    ensure!(!text.contains(withdrawn), "withdrawn too soon");

    broken.numbers()?;
    let reasons = [("server", name.as_str()), ("reason", reason)];
    until("the plan is withdrawn", || Ok(agent.scrape()?.sum(withdrawn, &reasons).ok()))?;
    let text = agent.get("/metrics")?;
    for family in RESTING_ON_THE_PLAN {
        ensure!(!is_exported(&text, family, &name), "{family} is still there");
    }
    let after = agent.scrape()?;
    let by_method = [("server", name.as_str()), ("method", "none")];
    let refused = after.sum("evictscope_probe_plan_info", &by_method)?;
    ensure!(refused == 5.0, "{refused} variables without a method");
    let mode = after.sum("evictscope_probe_mode", &server)?;
    ensure!(mode == 0.0, "a probe mode without probes");
    let limit = after.sum("evictscope_maxmemory_bytes", &server);
    ensure!(limit.is_ok(), "the limit went, too");

    // The log says so once, with everything for a report.
    let log = agent.log()?;
    let line = only_line_with(&log, "withdrawn")?;
    let pid = name.trim_start_matches("pid-");
    let exe = directory.path().join(program_name(breaks, 1)).display().to_string();
    for part in ["ERROR", pid, &exe, "build_id", reason, " of ", &format!("evictscope inspect {pid} --json")] {
        ensure!(line.contains(part), "{part} is not in {line}");
    }

    if reason == "allocator" {
        // And once what the kernel saw: which server, and both values. Another thread logs it.
        let failed = "a check of the probe plan failed";
        until_true(failed, || Ok(agent.log()?.contains(failed)))?;
        let log = agent.log()?;
        let line = only_line_with(&log, failed)?;
        let value = |before: &str| -> anyhow::Result<u64> {
            let (_, rest) = line.split_once(before).with_context(|| line.to_owned())?;
            Ok(rest.split(|next: char| !next.is_ascii_digit()).next().unwrap_or_default().parse()?)
        };
        let (reported, counted) = (value("mem_reported is ")?, value("allocator counts ")?);
        ensure!(reported.abs_diff(counted) == 2 << 20, "{line}");
        ensure!(line.contains("WARN") && line.contains(&name), "{line}");
    }
    // Its probes are taken off, and it stays withdrawn.
    let code = Code::of(pid.parse()?)?;
    until_true("the probes are off", || Ok(code.changed()?.is_empty()))?;
    broken.numbers()?;
    ensure!(agent.scrape()?.sum(withdrawn, &reasons)? == 1.0, "it came back");

    // The other server of the same code is still watched.
    let calls = sound.numbers()?[0];
    let counted = agent.settled()?.sum("evictscope_eviction_calls_total", &evicting(&sound_name))?;
    ensure!(counted == calls, "{counted} calls, the program: {calls}");
    ensure!(!is_exported(&agent.get("/metrics")?, withdrawn, &sound_name), "the sound one, too");
    Ok(())
}

#[test]
#[ignore = "needs root and BPF"]
fn a_counter_that_is_not_mem_reported_withdraws_the_plan() -> anyhow::Result<()> {
    withdrawn("ALLOCATES", "allocator")
}

#[test]
#[ignore = "needs root and BPF"]
fn evicting_calls_that_end_elsewhere_withdraw_the_plan() -> anyhow::Result<()> {
    withdrawn("JUMPS", "lost_exit")
}
