//! Every form that compilers give the calculation, judged by running the program.
//!
//! `fixtures/evict.c` has the structure of Redis and prints what it computed. It is compiled in several ways. The agent
//! must export the same numbers, or refuse them by name.

use std::path::{Path, PathBuf};

use crate::program::{Program, all_programs, compiling, program_name};
use anyhow::{Context as _, anyhow, ensure};
use evictscope_testkit::{agent::Agent, scrape::Scrape};

/// Compilers, forms, levels and flags; each combination is one variant.
const COMPILERS: [&str; 2] = ["gcc", "clang"];
const FORMS: [(&str, &str); 2] = [
    ("called", "__attribute__((noinline))"),
    ("inlined", "__attribute__((always_inline))inline static"),
];
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
const FLAGS: [(&str, &[&str]); 6] = [
    ("plain", &["-rdynamic"]),
    (
        "hardened",
        &[
            "-rdynamic",
            "-fcf-protection=full",
            "-fstack-protector-all",
            "-pie",
            "-fPIE",
            "-Wl,-z,relro,-z,now",
        ],
    ),
    // Without a single name, where the addresses are fixed and where they are not.
    ("static", &["-static", "-s"]),
    ("static-pie", &["-static-pie", "-fPIE", "-s"]),
    ("no-pie", &["-rdynamic", "-no-pie", "-fno-pie"]),
    (
        "one-unit",
        &["-rdynamic", "-fno-omit-frame-pointer", "-DELSEWHERE=static"],
    ),
];
/// How many programs run at the same time.
const BATCH: usize = 30;

/// One way to compile the program.
struct Variant {
    compiler: &'static str,
    form: (&'static str, &'static str),
    level: &'static str,
    flags: (&'static str, &'static [&'static str]),
}

impl Variant {
    /// All of them.
    fn all() -> Vec<Self> {
        let mut variants = Vec::new();
        for compiler in COMPILERS {
            for form in FORMS {
                for level in LEVELS {
                    variants.extend(FLAGS.map(|flags| Self {
                        compiler,
                        form,
                        level,
                        flags,
                    }));
                }
            }
        }
        variants
    }

    fn name(&self) -> String {
        let (form, flags) = (self.form.0, self.flags.0);
        format!("{} {} {form} {flags}", self.compiler, self.level)
    }

    /// Compiles it, and returns `None` where the compiler is absent.
    fn compile(&self, directory: &Path, index: usize) -> anyhow::Result<Option<PathBuf>> {
        let program = directory.join(program_name("form", index));
        let compiled = compiling(self.compiler, self.level, self.form.1, &program)
            .args(self.flags.1)
            .output();
        match compiled {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr);
                ensure!(output.status.success(), "{}: {said}", self.name());
                Ok(Some(program))
            }
        }
    }
}

/// Compiles each variant whose compiler is installed, on all cores.
fn compile_all(directory: &Path) -> anyhow::Result<Vec<(Variant, PathBuf)>> {
    let variants: Vec<_> = Variant::all().into_iter().enumerate().collect();
    let cores = std::thread::available_parallelism()?.get();
    let compiled = std::thread::scope(|scope| {
        let shares = variants.chunks(variants.len().div_ceil(cores));
        let threads: Vec<_> = shares
            .map(|share| {
                scope.spawn(move || {
                    share
                        .iter()
                        .map(|(index, variant)| variant.compile(directory, *index))
                        .collect::<anyhow::Result<Vec<_>>>()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .map_err(|_| anyhow!("a compiling thread panicked"))?
            })
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    let variants = variants.into_iter().map(|(_, variant)| variant);
    Ok(variants
        .zip(compiled.into_iter().flatten())
        .filter_map(|(variant, path)| Some((variant, path?)))
        .collect())
}

#[test]
#[ignore = "needs root and BPF"]
fn every_form_exports_the_programs_own_numbers_or_is_refused() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let programs = compile_all(directory.path())?;
    let agent = Agent::start(&[&all_programs("form")])?;
    let mut refused = Vec::new();
    for batch in programs.chunks(BATCH) {
        let mut running = Vec::new();
        for (variant, path) in batch {
            running.push((variant, Program::start(path)?));
        }
        for (variant, program) in &running {
            agent
                .wait_for(&program.server())
                .with_context(|| variant.name())?;
        }
        let mut judged = Vec::new();
        for (variant, program) in &mut running {
            judged.push((variant, program.server(), program.numbers()?));
        }
        let scrape = agent.settled()?;
        for (variant, server, numbers) in judged {
            let missing = judge(&scrape, &server, &numbers).with_context(|| variant.name())?;
            if !missing.is_empty() {
                refused.push(format!("{}: {}", variant.name(), missing.join(", ")));
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
    // Servers are built at these levels. At others, and where a compiler is forced to inline, a plan may lack something
    // as long as it says so.
    let usual: Vec<_> = (refused.iter())
        .filter(|refused| refused.contains(" -O2 ") || refused.contains(" -O3 "))
        .collect();
    ensure!(usual.is_empty(), "refused: {usual:?}");
    Ok(())
}

/// Compares the exported numbers of a program with its own, and returns what the plan refuses by name. A number that
/// differs is an error.
fn judge(scrape: &Scrape, name: &str, numbers: &[f64]) -> anyhow::Result<Vec<String>> {
    let server = [("server", name)];
    let [calls, overhead, tofree, ok, running, fail, _] = numbers[..] else {
        anyhow::bail!("the program says {numbers:?}");
    };
    let exported = |result| {
        let labels = [("server", name), ("kind", "evicting"), ("result", result)];
        scrape.sum("evictscope_eviction_calls_total", &labels)
    };
    let is_counted = exported("ok").is_ok();
    let mut missing = Vec::new();
    for (variable, metric, own) in [
        ("overhead", "evictscope_not_counted_memory_bytes", overhead),
        ("mem_tofree", "evictscope_mem_tofree_bytes_sum", tofree),
    ] {
        let refused = [("server", name), ("variable", variable), ("method", "none")];
        let seen = scrape.sum(metric, &server);
        if !is_counted || scrape.sum("evictscope_probe_plan_info", &refused).is_ok() {
            ensure!(
                seen.is_err(),
                "{variable} or the end of calls is refused, and it is exported"
            );
            missing.push(variable.to_owned());
            continue;
        }
        let seen = seen?;
        ensure!(seen == own, "{metric}: {seen}; the program: {own}");
    }
    if !is_counted {
        missing.push("eviction calls".to_owned());
        return Ok(missing);
    }
    let goals = scrape.count("evictscope_mem_tofree_bytes", &server);
    ensure!(goals.is_err() || goals? == calls, "not {calls} goals");
    // Without a series, there was none.
    let unknown = exported("unknown").unwrap_or(0.0);
    for (result, own) in [("ok", ok), ("running", running), ("fail", fail)] {
        let exported = exported(result)?;
        ensure!(
            exported <= own && exported + unknown >= own,
            "result {result}: {exported}, and {unknown} unknown; the program: {own}"
        );
    }
    if unknown > 0.0 {
        missing.push("results".to_owned());
    }
    Ok(missing)
}
