//! `cargo xtask setup`: find or install what the build, the demo and the tests need.
//!
//! It looks at everything first, says what it will do, does that, and looks again: only what was
//! seen to work counts as there. Nothing is installed that is there already. Where it may not
//! install, it prints the commands that would.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    compiler::{self, Compiler},
    dashboards, debian,
    linker::{self, Linker},
    package, process, redis, servers,
};

/// The LLVM of Debian 12's [`compiler::DEBIAN_PACKAGES`]: what bpf-linker must be built on once
/// they are installed. Wrong only until they are; then the compiler itself is asked.
const DEBIAN_LLVM: u64 = 22;

/// How much to say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Voice {
    /// Everything that was found; and what only the tests need is got, too.
    Full,
    /// Only what is missing and what is done about it.
    Quiet,
}

/// Makes sure that everything needed is there.
pub fn run(voice: Voice) -> Result<()> {
    let mut survey = Survey::take();
    if !survey.complete() {
        survey.print_missing();
        provide(&survey)?;
        survey = Survey::take();
    }
    if voice == Voice::Full {
        survey.print_found();
    }
    survey.verdict()?;
    if voice == Voice::Full {
        servers::provide()?;
        dashboards::provide()?;
        package::provide()?;
        println!("everything is there");
    }
    Ok(())
}

/// What was found on this machine.
struct Survey {
    compiler: Result<Compiler>,
    linker: Result<Linker>,
    redis: Vec<redis::Program>,
}

impl Survey {
    fn take() -> Self {
        let compiler = compiler::current();
        let linker = match &compiler {
            Ok(compiler) => linker::fit_for(compiler),
            Err(_) => linker::current(),
        };
        Self {
            compiler,
            linker,
            redis: redis::missing_programs(),
        }
    }

    fn complete(&self) -> bool {
        self.compiler.is_ok() && self.linker.is_ok() && self.redis.is_empty()
    }

    fn print_found(&self) {
        if let Ok(compiler) = &self.compiler {
            println!("BPF compiler   {compiler}");
        }
        if let Ok(linker) = &self.linker {
            println!("BPF linker     {linker}");
        }
        if self.redis.is_empty() {
            println!("programs       {}", redis::names());
        }
    }

    fn print_missing(&self) {
        if let Err(error) = &self.compiler {
            println!("no compiler for the BPF programs: {error:#}");
        }
        if let Err(error) = &self.linker {
            println!("no linker for the BPF programs: {error:#}");
        }
        for program in &self.redis {
            println!("no {} on PATH", program.name);
        }
    }

    fn verdict(self) -> Result<()> {
        self.compiler
            .context("set-up is through, but there is still no compiler for the BPF programs")?;
        self.linker
            .context("set-up is through, but there is still no linker for the BPF programs")?;
        if let Some(program) = self.redis.first() {
            bail!(
                "set-up is through, but there is still no {} on PATH",
                program.name
            );
        }
        Ok(())
    }
}

/// Installs what `survey` misses.
fn provide(survey: &Survey) -> Result<()> {
    if survey.linker.is_err()
        && let Some(directory) = linker::directory_off_path()
    {
        bail!(
            "bpf-linker is in {0}, where nobody looks for it: put that directory on PATH \
             (export PATH=\"{0}:$PATH\") and run this again",
            directory.display()
        );
    }

    let chosen = choose_compiler(survey)?;
    let llvm = chosen
        .as_ref()
        .map_or(DEBIAN_LLVM, |compiler| compiler.llvm);
    let linker_fits = survey
        .linker
        .as_ref()
        .is_ok_and(|linker| linker.serves(llvm));

    let mut packages = Vec::new();
    if chosen.is_none() {
        packages.extend(compiler::DEBIAN_PACKAGES.map(str::to_owned));
    }
    if !linker_fits {
        packages.extend(linker::missing_packages(llvm));
    }
    packages.extend(
        survey
            .redis
            .iter()
            .map(|program| program.package.to_owned()),
    );
    packages.sort();
    packages.dedup();

    let mut steps = Vec::new();
    if !packages.is_empty() {
        steps.extend(debian::install_commands(&packages));
    }
    if survey.compiler.is_err() || chosen.is_none() {
        steps.extend(link_command(chosen.as_ref()));
    }
    if !linker_fits {
        steps.push(linker::install_command(llvm));
    }

    if !packages.is_empty()
        && let Err(reason) = debian::installable()
    {
        bail!("{reason}, and something is missing. {}", what_to_do(&steps));
    }
    println!("set-up will run:\n{}", listing(&steps));

    if !packages.is_empty() {
        debian::install(&packages)?;
    }
    let compiler = match chosen {
        Some(compiler) => compiler,
        None => compiler::debian().context("Debian's packages brought no fit compiler")?,
    };
    link(&compiler)?;
    if linker::fit_for(&compiler).is_err() {
        // What the compiler turned out to be may ask for another LLVM than was thought.
        let late = linker::missing_packages(compiler.llvm);
        if !late.is_empty() {
            debian::installable().with_context(|| what_to_do(&steps))?;
            debian::install(&late)?;
        }
        install_linker(&compiler)?;
    }
    Ok(())
}

/// The compiler to build the BPF programs with, among those that are here or that rustup can
/// complete; none if Debian's must be installed.
fn choose_compiler(survey: &Survey) -> Result<Option<Compiler>> {
    let usable = |compiler: &Compiler| linker::obtainable(compiler.llvm);
    if let Ok(compiler) = &survey.compiler
        && usable(compiler)
    {
        return Ok(Some(compiler.clone()));
    }
    let debians = compiler::debian().ok().filter(usable);
    let Some(rustup) = compiler::rustup() else {
        // Then the build takes the first cargo on PATH, and only the user can change that.
        if let Some(compiler) = debians {
            bail!(
                "{compiler} would do, but another one stands before it on PATH: put /usr/bin first"
            );
        }
        return Ok(None);
    };
    if let Some(compiler) = compiler::nightly(&rustup).ok().filter(usable) {
        return Ok(Some(compiler));
    }
    if debians.is_some() {
        return Ok(debians);
    }
    // Where Debian's packages can be had they come first: what they bring fits together, and rustup
    // would download from elsewhere.
    if debian::installable().is_err()
        && compiler::nightly_without_source(&rustup).is_some_and(|nightly| usable(&nightly))
    {
        let mut command = Command::new(&rustup);
        command
            .args(["component", "add", "rust-src", "--toolchain", "nightly"])
            .env_remove("RUST_BACKTRACE");
        println!("  running: {}", process::display(&command));
        let finished = process::run_with_progress("rustup", &mut command)?;
        if finished.status.success() {
            return Ok(compiler::nightly(&rustup).ok());
        }
        let complaint = finished
            .output
            .trim_end()
            .lines()
            .last()
            .unwrap_or_default();
        println!("  rustup cannot: {complaint}");
    }
    Ok(None)
}

/// Makes `compiler` the one that the build takes, unless it is.
fn link(compiler: &Compiler) -> Result<()> {
    if compiler::current().is_ok_and(|current| current.sysroot == compiler.sysroot) {
        return Ok(());
    }
    if let Some(mut command) = link_command(Some(compiler)) {
        println!("  running: {}", process::display(&command));
        process::answer_of(&mut command)?;
    }
    Ok(())
}

fn link_command(compiler: Option<&Compiler>) -> Option<Command> {
    let sysroot = compiler.map_or(compiler::DEBIAN_SYSROOT.as_ref(), |compiler| {
        compiler.sysroot.as_path()
    });
    Some(compiler::link_command(&compiler::rustup()?, sysroot))
}

fn install_linker(compiler: &Compiler) -> Result<()> {
    let mut command = linker::install_command(compiler.llvm);
    println!(
        "  running: {} (some 2 minutes on 2 cores)",
        process::display(&command)
    );
    let finished = process::run_with_progress("cargo install", &mut command)?;
    ensure!(
        finished.status.success(),
        "{}\n`{}` failed ({}); put right what it complains of and run this again",
        finished.output.trim_end(),
        process::display(&command),
        finished.status
    );
    if let Some(directory) = linker::directory_off_path() {
        bail!(
            "bpf-linker was installed into {0}, which is not on PATH: export PATH=\"{0}:$PATH\"",
            directory.display()
        );
    }
    Ok(())
}

/// What the user can do where set-up may not.
fn what_to_do(steps: &[Command]) -> String {
    format!(
        "On Debian 12, run the following (apt-get as root) and then this again:\n{}\n\
         Elsewhere, install redis-server, redis-cli and redis-benchmark, and for the BPF programs:\n    \
         rustup toolchain install nightly --profile minimal --component rust-src\n    \
         rustup toolchain link {} \"$(rustc +nightly --print sysroot)\"\n    \
         cargo install bpf-linker (on an LLVM that is not older than that of `rustc +nightly -vV`)",
        listing(steps),
        compiler::TOOLCHAIN,
    )
}

fn listing(steps: &[Command]) -> String {
    steps
        .iter()
        .map(|step| format!("    {}", process::display(step)))
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_names_the_commands_and_the_other_way() {
        let steps = debian::install_commands(&["redis-server".to_owned()]);
        let text = what_to_do(&steps);
        assert!(text.contains("    apt-get update\n    apt-get install --yes"));
        assert!(text.contains("rustup toolchain link evictscope-bpf"));
    }
}
