//! `cargo xtask setup`: finds or installs what the build, the demo and the tests need. And `cargo xtask build`, which
//! does that first.
//!
//! It looks at everything, sets up what is missing, and looks again: only what has worked counts as found. It does not
//! install anything twice. If it may not install, it prints the commands that would.

mod compiler;
mod cross;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::target::Target;
use evictscope_testkit::{debian, process, workspace};

use self::compiler::Compiler;
use crate::servers;

/// What to set up for. Each needs what the one before needs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum For {
    /// A release build. Prints only what is missing and what is done about it.
    Release,
    /// The demo: the same.
    Demo,
    /// `cargo xtask test`. Prints everything that was found.
    Tests,
    AllTests,
}

pub fn run(purpose: For) -> Result<()> {
    if let Err(reason) = look() {
        println!("{reason:#}");
        provide(purpose)?;
    }
    let (compiler, linker) = look().context("set-up is complete, but something is still missing")?;
    if purpose >= For::Tests {
        println!("BPF compiler   {compiler}");
        println!("BPF linker     {linker}");
        servers::provide_wheels();
        debian::provide(&[&debian::RULES, &debian::COMPILERS, &debian::CROSS])?;
    }
    if purpose == For::AllTests {
        debian::provide(&[
            &debian::GO,
            &debian::PACKING,
            &debian::PACKAGE,
            &debian::MATRIX,
            &debian::CONTAINERS,
            &debian::FUZZING,
        ])?;
        if let Err(reason) = cross::provide(Target::Aarch64) {
            println!("  building for aarch64 is not possible here: {reason:#}");
        }
        servers::provide_for_aarch64();
        servers::FOR_TESTS.into_iter().for_each(servers::build);
    }
    Ok(())
}

/// Returns the compiler and the linker for the BPF programs, if both are here, and Debian's programs too.
fn look() -> Result<(Compiler, String)> {
    let compiler = compiler::current().context("no compiler for the BPF programs")?;
    let linker = compiler::fit_for(&compiler).context("no linker for the BPF programs")?;
    match debian::missing(&debian::SERVERS) {
        Some(reason) => bail!(reason),
        None => Ok((compiler, linker)),
    }
}

/// Installs what was not found. Most of what is built needs none of it, and is built meanwhile: whether that succeeds,
/// the next build says.
fn provide(purpose: For) -> Result<()> {
    compiler::must_not_be_off_path()?;
    if purpose < For::Demo || debian::installable().is_err() {
        return install_absent();
    }
    let mut command = workspace::cargo();
    command.args(["build", "--locked", "--keep-going"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut build = command.spawn().context("cannot start cargo")?;
    let installed = install_absent();
    if installed.is_ok() {
        println!("  building what needs none of that");
    } else {
        build.kill()?;
    }
    build.wait()?;
    installed
}

fn install_absent() -> Result<()> {
    let compiler = if let Some(compiler) = choose_compiler()? {
        compiler
    } else {
        let compilers = compiler::DEBIAN_PACKAGES.map(str::to_owned);
        install(&Vec::from_iter(compilers.into_iter().chain(debian::SERVERS.packages())))?;
        compiler::debian().context("Debian's packages brought no suitable compiler")?
    };
    if compiler::current().map_or(true, |current| current.sysroot != compiler.sysroot)
        && let Some(mut command) = compiler::link_command(&compiler.sysroot)
    {
        println!("  running: {}", process::display(&command));
        process::answer_of(&mut command)?;
    }
    if compiler::fit_for(&compiler).is_err() {
        install(&compiler::missing_packages(compiler.llvm))?;
        let mut command = compiler::install_command(compiler.llvm);
        println!("  running: {}", process::display(&command));
        println!("  this takes about 2 minutes on 2 cores:");
        process::succeed(&mut command)?;
        compiler::must_not_be_off_path()?;
    }
    install(&Vec::from_iter(debian::SERVERS.packages()))
}

fn install(packages: &[String]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    debian::installable().with_context(|| what_to_do(packages))?;
    debian::install(packages)
}

/// Chooses the compiler for the BPF programs among those that are here. Returns `None` if Debian's must be installed:
/// its packages fit together.
fn choose_compiler() -> Result<Option<Compiler>> {
    let current = compiler::current().ok().filter(compiler::obtainable);
    if current.is_some() {
        return Ok(current);
    }
    let debians = compiler::debian().ok().filter(compiler::obtainable);
    if let (None, Some(compiler)) = (compiler::rustup(), &debians) {
        // The build takes the first cargo on PATH, and only the user can change that.
        bail!("{compiler} is suitable, but another one comes before it on PATH: put /usr/bin first");
    }
    Ok(debians)
}

fn what_to_do(packages: &[String]) -> String {
    let commands = debian::install_commands(packages).map(|command| format!("    {}", process::display(&command)));
    format!(
        "something is missing. On Debian 12, run the following as root and then this again:\n{}\n\
         Elsewhere, install redis-server, redis-cli and redis-benchmark, and for the BPF programs:\n    \
         rustup toolchain install nightly --profile minimal --component rust-src\n    \
         rustup toolchain link {} \"$(rustc +nightly --print sysroot)\"\n    \
         cargo install bpf-linker (with an LLVM no older than that of `rustc +nightly -vV`)\n\
         The reason",
        commands.join("\n"),
        compiler::TOOLCHAIN,
    )
}

/// Installs what is missing and builds the release binary, with cargo's own progress on the terminal. Returns its path.
pub fn build() -> Result<PathBuf> {
    build_for(Target::X86_64, &[])
}

/// Does the same for a processor, with these variables, which tell the agent what it is built from.
pub fn build_for(target: Target, naming: &[(&str, String)]) -> Result<PathBuf> {
    run(For::Release)?;
    let mut cargo = cargo_for(target)?;
    cargo.args(["build", "--release", "--locked", "--package", "evictscope"]);
    compile(cargo.envs(naming.iter().map(|(name, value)| (name, value))))?;
    target.agent_binary()
}

/// Returns the command that a subcommand of cargo's for a processor begins with. Installs what it needs.
pub fn cargo_for(target: Target) -> Result<Command> {
    let mut cargo = workspace::cargo();
    if target != Target::X86_64 {
        cargo.env("CARGO_BUILD_TARGET", target.triple()).envs(cross::provide(target)?);
    }
    Ok(cargo)
}

/// Does the same with the agent that tests run. That is built in a fraction of the time, and what is built serves them.
pub fn build_for_tests() -> Result<PathBuf> {
    run(For::Demo)?;
    // With the agent's package alone, dependencies would have fewer features than in the tests, and be built again.
    compile(workspace::cargo().args(["build", "--locked"]))?;
    workspace::agent_of_tests()
}

fn compile(cargo: &mut Command) -> Result<()> {
    let status = cargo.status().context("cannot start cargo")?;
    ensure!(status.success(), "`{}` failed", process::display(cargo));
    Ok(())
}
