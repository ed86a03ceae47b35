//! `cargo xtask setup`: finds or installs what the build, the demo and the tests need.
//!
//! It looks at everything, says what it will do, does it, and looks again: only what has worked counts as
//! found. It does not install anything twice. Where it may not install, it prints the commands that would.

mod compiler;
mod linker;

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evictscope_testkit::{debian, process};

use self::compiler::Compiler;
use crate::{musl, servers};

/// The LLVM of [`compiler::DEBIAN_PACKAGES`]: what bpf-linker must be built on once they are installed. It
/// is wrong only until then, because after that the compiler itself is asked.
const DEBIAN_LLVM: u64 = 22;

/// What everything is for. Each needs what the one before needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum For {
    /// The build and the demo. Prints only what is missing and what is done about it.
    Build,
    /// `cargo xtask test`. Prints everything that was found.
    Tests,
    /// `cargo xtask test --all`.
    AllTests,
}

/// Makes sure that everything needed is there.
pub fn run(purpose: For) -> Result<()> {
    let mut found = Found::look();
    if !found.everything() {
        found.print_missing();
        provide(&found)?;
        found = Found::look();
    }
    let compiler = found
        .compiler
        .context("set-up is complete, but there is still no compiler for the BPF programs")?;
    let linker = found
        .linker
        .context("set-up is complete, but there is still no linker for the BPF programs")?;
    if let Some(reason) = debian::missing(&debian::SERVERS) {
        bail!("set-up is complete, but {reason}");
    }
    if purpose >= For::Tests {
        println!("BPF compiler   {compiler}");
        println!("BPF linker     {linker}");
        println!("programs       {}", debian::SERVERS.names());
        servers::provide()?;
        debian::provide(&[&debian::RULES])?;
    }
    if purpose == For::AllTests {
        debian::provide(&[
            &debian::GO,
            &debian::PACKING,
            &debian::PACKAGE,
            &debian::MATRIX,
            &debian::CONTAINERS,
        ])?;
        musl::provide()?;
    }
    Ok(())
}

/// What was found on this machine to build the BPF programs with.
struct Found {
    compiler: Result<Compiler>,
    /// Its name and path.
    linker: Result<String>,
}

impl Found {
    fn look() -> Self {
        let compiler = compiler::current();
        let linker = match &compiler {
            Ok(compiler) => linker::fit_for(compiler),
            Err(_) => linker::current(),
        };
        Self { compiler, linker }
    }

    fn everything(&self) -> bool {
        let programs = debian::SERVERS.absent().next();
        self.compiler.is_ok() && self.linker.is_ok() && programs.is_none()
    }

    fn print_missing(&self) {
        if let Err(error) = &self.compiler {
            println!("no compiler for the BPF programs: {error:#}");
        }
        if let Err(error) = &self.linker {
            println!("no linker for the BPF programs: {error:#}");
        }
        for (program, _) in debian::SERVERS.absent() {
            println!("no {program} on PATH");
        }
    }
}

/// Installs what was not found.
fn provide(found: &Found) -> Result<()> {
    if found.linker.is_err()
        && let Some(directory) = linker::directory_off_path()
    {
        bail!(
            "bpf-linker is in {0}, which is not on PATH: run `export PATH=\"{0}:$PATH\"` and then this again",
            directory.display()
        );
    }

    let chosen = choose_compiler(found)?;
    let llvm = chosen.as_ref().map_or(DEBIAN_LLVM, |chosen| chosen.llvm);
    let linker_fits = match &chosen {
        Some(compiler) => linker::fit_for(compiler).is_ok(),
        None => found.linker.is_ok(),
    };

    let mut packages = Vec::new();
    if chosen.is_none() {
        packages.extend(compiler::DEBIAN_PACKAGES.map(str::to_owned));
    }
    if !linker_fits {
        packages.extend(linker::missing_packages(llvm));
    }
    packages.extend(
        debian::SERVERS
            .absent()
            .map(|(_, package)| package.to_owned()),
    );
    packages.sort();
    packages.dedup();

    let mut steps = Vec::new();
    if !packages.is_empty() {
        steps.extend(debian::install_commands(&packages));
    }
    if found.compiler.is_err() || chosen.is_none() {
        let sysroot = match &chosen {
            Some(compiler) => compiler.sysroot.as_path(),
            None => compiler::DEBIAN_SYSROOT.as_ref(),
        };
        steps.extend(compiler::link_command(sysroot));
    }
    if !linker_fits {
        steps.push(linker::install_command(llvm));
    }

    if !packages.is_empty() {
        debian::installable().with_context(|| what_to_do(&steps))?;
    }
    println!("set-up will run:\n{}", listing(&steps));
    if !packages.is_empty() {
        debian::install(&packages)?;
    }
    let compiler = match chosen {
        Some(compiler) => compiler,
        None => compiler::debian().context("Debian's packages brought no suitable compiler")?,
    };
    if compiler::current().map_or(true, |current| current.sysroot != compiler.sysroot)
        && let Some(mut command) = compiler::link_command(&compiler.sysroot)
    {
        println!("  running: {}", process::display(&command));
        process::answer_of(&mut command)?;
    }
    if linker::fit_for(&compiler).is_err() {
        // The compiler may turn out to need another LLVM than was planned.
        let late = linker::missing_packages(compiler.llvm);
        if !late.is_empty() {
            debian::installable().with_context(|| what_to_do(&steps))?;
            debian::install(&late)?;
        }
        let mut command = linker::install_command(compiler.llvm);
        println!("  this takes about 2 minutes on 2 cores:");
        process::succeed(&mut command)?;
        if let Some(directory) = linker::directory_off_path() {
            bail!(
                "bpf-linker was installed into {0}, which is not on PATH: run `export PATH=\"{0}:$PATH\"`",
                directory.display()
            );
        }
    }
    Ok(())
}

/// Chooses the compiler for the BPF programs among those that are here. Returns `None` if Debian's must be installed: its
/// packages fit together.
fn choose_compiler(found: &Found) -> Result<Option<Compiler>> {
    if let Ok(compiler) = &found.compiler
        && linker::obtainable(compiler)
    {
        return Ok(Some(compiler.clone()));
    }
    let debians = compiler::debian().ok().filter(linker::obtainable);
    if let (None, Some(compiler)) = (compiler::rustup(), &debians) {
        // The build takes the first cargo on PATH, and only the user can change that.
        bail!(
            "{compiler} is suitable, but another one comes before it on PATH: put /usr/bin first"
        );
    }
    Ok(debians)
}

/// Returns what the user can do where set-up may not.
fn what_to_do(steps: &[Command]) -> String {
    format!(
        "something is missing. On Debian 12, run the following (apt-get as root) and then this again:\n{}\n\
         Elsewhere, install redis-server, redis-cli and redis-benchmark, and for the BPF programs:\n    \
         rustup toolchain install nightly --profile minimal --component rust-src\n    \
         rustup toolchain link {} \"$(rustc +nightly --print sysroot)\"\n    \
         cargo install bpf-linker (on an LLVM that is not older than that of `rustc +nightly -vV`)\n\
         The reason",
        listing(steps),
        compiler::TOOLCHAIN,
    )
}

fn listing(steps: &[Command]) -> String {
    let steps = steps
        .iter()
        .map(|step| format!("    {}", process::display(step)));
    steps.collect::<Vec<_>>().join("\n")
}
