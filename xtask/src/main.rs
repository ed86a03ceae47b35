//! Developer tasks of evictscope. `cargo xtask --help` lists them.
//!
//! One file or folder per task. Anything larger than a task is a crate beside this one: `lab`, `trials`, and `testkit`,
//! which starts and reads everything. `setup` and the testkit's `debian` name everything that the tasks need
//! on the machine.

mod dashboards;
mod demo;
mod fuzz;
mod go;
mod kubernetes;
mod package;
mod release;
mod servers;
mod setup;
mod test;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::target::Target;

/// Developer tasks of evictscope
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Find or install what the build, the demo and the tests need
    Setup,
    /// Set up, then build the agent with its BPF programs (release)
    Build {
        /// For this processor
        #[arg(long, default_value = "x86_64")]
        target: Target,
    },
    /// Set up, build, and watch a throw-away redis-server go through an eviction burst, for about a minute (needs root)
    Demo,
    /// Set up, build, and measure what watching a redis-server costs it (needs root)
    Bench(evictscope_trials::bench::Arguments),
    /// Fuzz the planning of probes with damaged executables (libFuzzer)
    Fuzz(fuzz::Arguments),
    /// Make the eviction-burst cycle happen on a throw-away redis-server, or expiry fall behind, and print what is seen
    Lab(evictscope_lab::Arguments),
    /// Generate the Grafana dashboards anew, and check them and the Prometheus rules
    Dashboards(dashboards::Arguments),
    /// Check the Helm chart with the code of Kubernetes, Helm and prometheus-operator
    Kubernetes,
    /// Set up, build, and make the .deb, the .rpm, the tarball and the image, with checksums
    Package(package::Arguments),
    /// Make the release of a version from its tag, or prepare that
    Release(release::Arguments),
    /// Set up, build, and try the agent on the builds of servers that people run, or on Debian's kernels (needs root)
    Matrix(evictscope_trials::Arguments),
    /// Set up, then check that evictscope works here; with --all, whatever CI runs
    Test(test::Arguments),
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    match &arguments.task {
        Task::Setup => setup::run(setup::For::AllTests)?,
        Task::Build { target } => drop(setup::build_for(*target, &[])?),
        Task::Demo => demo::run()?,
        Task::Bench(arguments) => {
            must_be_root("attach BPF programs")?;
            evictscope_trials::bench::run(arguments, &setup::build()?)?;
        }
        Task::Fuzz(arguments) => fuzz::run(*arguments)?,
        Task::Lab(arguments) => {
            let agent = arguments.agent.then(setup::build).transpose()?;
            evictscope_lab::run(arguments, agent)?;
        }
        Task::Dashboards(arguments) => dashboards::run(arguments)?,
        Task::Kubernetes => kubernetes::run()?,
        Task::Package(arguments) => package::run(arguments)?,
        Task::Release(arguments) => release::run(arguments)?,
        Task::Matrix(arguments) => matrix(arguments)?,
        Task::Test(arguments) => return test::run(arguments),
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the agent unless it is packed, and tries it on each build, or packs it and tries it on each kernel.
fn matrix(arguments: &evictscope_trials::Arguments) -> Result<()> {
    if !arguments.packed {
        setup::build_for(if arguments.kernels { arguments.target } else { Target::X86_64 }, &[])?;
    }
    if arguments.kernels {
        let source = if arguments.packed { package::Source::Packed } else { package::Source::Built };
        return evictscope_trials::run_kernels(arguments, || Ok(package::packages(source)?.deb));
    }
    if !arguments.packed {
        servers::provide_wheels();
        servers::WITH_FLAGS.into_iter().filter(|(name, _)| arguments.wanted(name)).for_each(servers::build);
    }
    evictscope_trials::run_builds(arguments, &servers::names(arguments.target))
}
