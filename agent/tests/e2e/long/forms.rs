//! Every form that compilers give the calculation, judged by running the program.
//!
//! `fixtures/evict.c` has the structure of Redis and prints what it computed. It is compiled in several ways. The agent
//! must export the same numbers, or refuse them by name.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::program::{Program, all_programs, compiling, program_name};
use anyhow::{Context as _, ensure};
use evictscope_testkit::{agent::Agent, scrape::Scrape};

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
                    let name = format!("{compiler} {level} {form} {flags}");
                    variants.push((name, program, command));
                }
            }
        }
    }
    let mut compiled = Vec::new();
    for some in variants.chunks_mut(COMPILED_AT_ONCE) {
        let children = some.iter_mut().map(|(_, _, command)| command.spawn());
        let children: Vec<_> = children.collect();
        for ((name, program, _), child) in some.iter().zip(children) {
            match child {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                child => {
                    let output = child?.wait_with_output()?;
                    let said = String::from_utf8_lossy(&output.stderr);
                    ensure!(output.status.success(), "{name}: {said}");
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
    let [calls, _, tofree, ok, running, fail, _] = numbers[..] else {
        anyhow::bail!("the program says {numbers:?}");
    };
    let exported = |result| {
        let labels = [("server", name), ("kind", "evicting"), ("result", result)];
        scrape.sum("evictscope_eviction_calls_total", &labels)
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
