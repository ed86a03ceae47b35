//! `cargo xtask fuzz`: damaged executables for the planning of probes, as long as one likes.
//!
//! `agent/plan/fuzz` is laid out for cargo-fuzz, which wants a nightly compiler for its sanitizers. The
//! agent has no unsafe code there, so none are used here: the target is built by the stable compiler
//! with the same instrumentation, and libFuzzer runs it. Whatever it finds interesting is kept under
//! `target/fuzz`, and is where the next run begins.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, workspace};

/// What cargo-fuzz gives to rustc, but for the sanitizer.
const INSTRUMENTATION: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Ccodegen-units=1 --cfg fuzzing";

/// How the small executables are compiled: each level, and the calculation called or inlined.
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
const FORMS: [&str; 2] = [
    "__attribute__((noinline))",
    "static inline __attribute__((always_inline))",
];

/// Changes of a server that are tried in one run: as many as fit into this many bytes of script.
const SCRIPT_BYTES: u32 = 512;
/// What planning may take, and what the damaged file and the instrumentation take besides, MiB.
const MEMORY: u32 = 256 + 128;
/// A single plan may not take longer, in seconds: four times the limit, as the instrumentation slows
/// it down, and the machine has other things to do.
const TIMEOUT: u32 = 20;

/// How long to fuzz.
#[derive(Clone, Copy, clap::Args)]
pub struct Arguments {
    /// Seconds to fuzz for
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Why it cannot run here, if it cannot.
pub fn missing() -> Option<String> {
    ["cc", "c++"]
        .into_iter()
        .find(|compiler| which::which(compiler).is_err())
        .map(|compiler| format!("libFuzzer needs a C++ compiler: there is no {compiler} on PATH"))
}

/// Builds the target and fuzzes.
pub fn run(arguments: Arguments) -> Result<()> {
    if let Some(reason) = missing() {
        anyhow::bail!(reason);
    }
    let directory = workspace::target_directory()?.join("fuzz");
    let target = build(&directory)?;
    let bases = directory.join("bases");
    let count = write_bases(&bases)?;
    let corpus = directory.join("corpus");
    write_seeds(&corpus, count)?;
    let mut command = Command::new(target);
    command
        .env("EVICTSCOPE_FUZZ_BASES", &bases)
        .arg(format!("-max_total_time={}", arguments.seconds))
        .arg(format!("-timeout={TIMEOUT}"))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-max_len={SCRIPT_BYTES}"))
        .arg(format!("-artifact_prefix={}/found-", directory.display()))
        .arg("-print_final_stats=1")
        .arg(&corpus);
    let finished = process::run_with_progress("fuzzing", &mut command)?;
    ensure!(
        finished.status.success(),
        "{}\n`{}` failed ({})",
        tail(&finished.output),
        process::display(&command),
        finished.status
    );
    let statistics = finished
        .output
        .lines()
        .filter(|line| line.starts_with("stat::number_of") || line.starts_with("stat::peak_rss"));
    for line in statistics {
        println!("{}", line.trim_start_matches("stat::"));
    }
    Ok(())
}

fn build(directory: &Path) -> Result<PathBuf> {
    let host = rustc_version::version_meta()
        .context("cannot ask the compiler for its target")?
        .host;
    let build = directory.join("build");
    let mut command = workspace::cargo();
    command
        .env("RUSTFLAGS", INSTRUMENTATION)
        .args([
            "build",
            "--release",
            "--manifest-path",
            "agent/plan/fuzz/Cargo.toml",
        ])
        // Named, so that build scripts and macros are not instrumented.
        .args(["--target", &host, "--target-dir"])
        .arg(&build);
    let finished = process::run_with_progress("cargo build", &mut command)?;
    ensure!(
        finished.status.success(),
        "{}\n`{}` failed ({})",
        finished.output.trim_end(),
        process::display(&command),
        finished.status
    );
    Ok(build.join(host).join("release/plan"))
}

/// The executables to damage: small ones with the structure of a server, and Debian's server.
fn write_bases(directory: &Path) -> Result<usize> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    let source = workspace::root().join("agent/plan/tests/fixtures/evict.c");
    let mut count = 0;
    for level in LEVELS {
        for (form, name) in FORMS.iter().zip(["called", "inlined"]) {
            let base = directory.join(format!("evict{level}-{name}"));
            process::answer_of(
                Command::new("cc")
                    .args([level, "-rdynamic", &format!("-DFORM={form}"), "-o"])
                    .args([&base, &source]),
            )?;
            count += 1;
        }
    }
    if let Ok(server) = which::which("redis-server") {
        let copy = directory.join("redis-server");
        fs::copy(&server, &copy).with_context(|| format!("cannot copy {}", server.display()))?;
        count += 1;
    }
    Ok(count)
}

/// Each base as it is, and one that is no base.
fn write_seeds(directory: &Path, bases: usize) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot make {}", directory.display()))?;
    for base in 0..=bases {
        let seed = directory.join(format!("base-{base}"));
        let which = u8::try_from(base).context("too many bases")?;
        fs::write(&seed, [which]).with_context(|| format!("cannot write {}", seed.display()))?;
    }
    Ok(())
}

/// What a failed run has to say stands at its end.
fn tail(output: &str) -> String {
    let lines: Vec<&str> = output.trim_end().lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}
