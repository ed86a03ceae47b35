//! `cargo xtask fuzz`: feeds damaged executables to each step of the planning of probes, and to the whole.
//!
//! `agent/plan/fuzz` is laid out for cargo-fuzz, which needs a nightly compiler for its sanitizers. Neither
//! `agent/machine` nor `agent/plan` has unsafe code, so no sanitizers are used: the stable compiler builds the targets
//! with the same instrumentation, and libFuzzer runs them. Inputs that reach new code are kept under `target/fuzz`, and
//! the next run starts from them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use evictscope_testkit::{debian, process, workspace};

/// What cargo-fuzz passes to rustc, except for the sanitizer.
const INSTRUMENTATION: &str = "-Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Ccodegen-units=1 --cfg fuzzing";

/// The targets and their shares of the time: the whole plan takes longest and gets most.
const TARGETS: [(&str, u32); 5] = [("elf", 2), ("frames", 2), ("dwarf", 2), ("flow", 4), ("plan", 5)];

/// How the small executables are compiled: at each level, with the calculation called or inlined.
const LEVELS: [&str; 5] = ["-O0", "-O1", "-O2", "-O3", "-Os"];
const FORMS: [&str; 2] = ["__attribute__((noinline))", "static inline __attribute__((always_inline))"];

/// How long to fuzz.
#[derive(Clone, Copy, clap::Args)]
pub struct Arguments {
    /// Seconds to fuzz for, all targets together
    #[arg(long, default_value_t = 60)]
    seconds: u32,
    /// The seed of libFuzzer's random numbers; with 0, a different one each time
    #[arg(long, default_value_t = 0)]
    seed: u32,
}

pub fn run(arguments: Arguments) -> Result<()> {
    debian::require(&[&debian::FUZZING])?;
    let directory = workspace::target_directory()?.join("fuzz");
    let targets = build(&directory)?;
    let bases = write_bases(&directory.join("bases"))?;
    let shares: u32 = TARGETS.iter().map(|(_, share)| share).sum();
    for (target, share) in TARGETS {
        let seconds = (arguments.seconds * share / shares).max(1);
        let corpus = directory.join("corpus").join(target);
        write_seeds(&corpus, bases)?;
        let mut command = Command::new(targets.join(target));
        command.env("EVICTSCOPE_FUZZ_BASES", directory.join("bases"));
        for (option, value) in [
            ("max_total_time", seconds),
            ("seed", arguments.seed),
            // In seconds: only an input that hangs takes this long.
            ("timeout", 300),
            // For one plan, and for the damaged file and the instrumentation.
            ("rss_limit_mb", 256 + 128),
            // Of a script: it limits how many changes of a server are tried in one run.
            ("max_len", 512),
            ("print_final_stats", 1),
        ] {
            command.arg(format!("-{option}={value}"));
        }
        command.arg(format!("-artifact_prefix={}", directory.join(format!("found-{target}-")).display()));
        let said = process::succeed_as(&format!("fuzzing {target}"), command.arg(&corpus))?;
        let inputs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
        let inputs = inputs.context("libFuzzer does not say how many inputs it tried")?;
        println!("{target}: {} inputs in {seconds} s", inputs.trim());
    }
    Ok(())
}

fn build(directory: &Path) -> Result<PathBuf> {
    let host = rustc_version::version_meta().context("cannot ask the compiler for its target")?.host;
    let build = directory.join("build");
    let mut command = workspace::cargo();
    command
        .env("RUSTFLAGS", INSTRUMENTATION)
        .args(["build", "--release", "--manifest-path", "agent/plan/fuzz/Cargo.toml"])
        // Naming the target keeps build scripts and macros from being instrumented.
        .args(["--target", &host, "--target-dir"])
        .arg(&build);
    process::succeed_as("cargo build", &mut command)?;
    Ok(build.join(host).join("release"))
}

/// Writes the executables to damage: small ones with the structure of a server, half of them with
/// debug information, and Debian's server. Returns how many there are.
fn write_bases(directory: &Path) -> Result<usize> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    let source = workspace::root().join("agent/plan/tests/fixtures/evict.c");
    let mut count = 0;
    for level in LEVELS {
        for (form, (name, debug)) in FORMS.iter().zip([("called", "-g0"), ("inlined", "-g")]) {
            let base = directory.join(format!("evict{level}-{name}"));
            let options = [level, debug, "-rdynamic", &format!("-DFORM={form}"), "-o"];
            process::answer_of(Command::new("cc").args(options).args([&base, &source]))?;
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

/// Writes an input for each undamaged base, and one that is the file itself.
fn write_seeds(directory: &Path, bases: usize) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    for base in 0..=bases {
        let seed = directory.join(format!("base-{base}"));
        let which = u8::try_from(base).context("too many bases")?;
        fs::write(&seed, [which]).with_context(|| format!("cannot write {}", seed.display()))?;
    }
    Ok(())
}
