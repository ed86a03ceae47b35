//! `cargo xtask bench fleet`: how many servers one Prometheus carries.
//!
//! A real Prometheus scrapes growing numbers of agents and evaluates our rules. One agent is real. The others are its
//! answer, read anew each second, under other names: their values move, but they move alike.
//!
//! Each target begins with nearly an hour of samples of what the rules read. Otherwise the rules whose ranges are an hour
//! would be measured with the samples of a minute.

mod host;
mod measure;
mod report;
mod rules;
mod targets;
mod template;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::{
    json_lines::JsonLines,
    process,
    prometheus::{JOB, Prometheus},
    workspace,
};
use serde_json::json;

use self::{
    host::Host,
    measure::{Observed, measure},
    report::{Step, print_capacity, print_table},
    rules::Families,
    targets::{PAST, Targets},
};

/// From one scrape to the next, and from one evaluation of the rules to the next: as docs/INSTALL.md has it.
const PACE: Duration = Duration::from_secs(15);
/// How many targets are added at once. The past of each takes Prometheus some 0.1 s to read.
const ADDED: usize = 100;
/// How long Prometheus may take to scrape those that were added, after [`PACE`].
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);
/// The share of the targets that must have all of their past. Prometheus may give up a scrape, and none is made again.
const WITH_PAST: f64 = 0.95;
/// For how long Ctrl-C may go unnoticed.
const STEP: Duration = Duration::from_millis(200);
/// What Prometheus 3 needs to have if it is to make native histograms.
const NATIVE: &str = "--enable-feature=native-histograms";

/// What to measure.
#[derive(Clone, clap::Args)]
pub struct Arguments {
    /// How many agents there are, one number after the other, growing
    #[arg(long, value_delimiter = ',', default_value = "100,400")]
    agents: Vec<usize>,
    /// How many servers each agent watches
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    servers: u16,
    /// How long to measure with each number of agents, rounded up to a multiple of 15. Rules of the slowest group are
    /// evaluated once in 60 s
    #[arg(long, default_value_t = 135, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// The Prometheus to measure
    #[arg(long, value_name = "PROGRAM", default_value = "prometheus")]
    prometheus: PathBuf,
    /// Let Prometheus 3 make native histograms of the classic ones
    #[arg(long)]
    native_histograms: bool,
}

impl Arguments {
    /// Returns the package of Prometheus where it is missing.
    pub fn missing_packages(&self) -> Vec<String> {
        match which::which(&self.prometheus) {
            Err(_) if self.prometheus == Path::new("prometheus") => vec!["prometheus".to_owned()],
            _ => Vec::new(),
        }
    }
}

/// Measures and prints.
pub fn run(arguments: &Arguments, agent: &Path) -> Result<()> {
    ensure!(
        arguments.agents.is_sorted() && arguments.agents.first().is_some_and(|first| *first > 0),
        "--agents needs growing numbers: agents are added, and none is taken away"
    );
    let interrupted = process::catch_ctrl_c()?;
    let go_on = || {
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        Ok(())
    };
    let version = process::succeed_as(
        "asking prometheus for its version",
        Command::new(&arguments.prometheus).arg("--version"),
    )?;
    let version = version.lines().next().unwrap_or_default();
    println!("{version}");

    let rules = workspace::files_ending(&workspace::root().join("dashboards/rules"), "yaml")?;
    let mut texts = String::new();
    for file in &rules {
        let text = fs::read_to_string(file);
        texts += &text.with_context(|| format!("cannot read {}", file.display()))?;
    }
    let per_agent = usize::from(arguments.servers);
    let host = Host::start(agent, per_agent, go_on)?;
    let targets = Targets::start(host.exporter(), Families::of_rules(&texts)?)?;
    let directory = tempfile::Builder::new()
        .prefix("evictscope-fleet-")
        .tempdir()
        .context("cannot make a temporary directory")?;
    let discovery = directory.path().join("targets.json");
    fs::write(&discovery, "[]").context("cannot write the targets")?;
    let config = config(&rules, &discovery, arguments.native_histograms);
    let flags: &[&str] = match arguments.native_histograms {
        true => &[NATIVE],
        false => &[],
    };
    let program = &arguments.prometheus;
    let prometheus = Prometheus::start_in(directory, program, |_| config, flags, PACE)?;

    let mut log = JsonLines::create("bench-fleet.jsonl")?;
    let mut steps: Vec<Step> = Vec::new();
    for &agents in &arguments.agents {
        let mut present = steps.last().map_or(0, Step::agents);
        let mut limit = None;
        while present < agents && limit.is_none() {
            present = agents.min(present + ADDED);
            // In one step, as Prometheus looks at it whenever it changes.
            let part = discovery.with_extension("part");
            fs::write(&part, targets.discovery(present).to_string())?;
            fs::rename(&part, &discovery).context("cannot add targets")?;
            wait_until_scraped(&prometheus, &targets, present, &go_on)?;
            limit = report::memory_limit(&prometheus)?;
        }
        if limit.is_none() {
            check_past(&prometheus, agents * per_agent, &go_on)?;
            let observed = Observed {
                prometheus: &prometheus,
                targets: &targets,
                agent: host.pid(),
            };
            let length = Duration::from_secs(arguments.seconds);
            let measured = measure(&observed, agents, length, &go_on)?;
            host.must_be_alive()?;
            let step = Step::new(agents, agents * per_agent, measured);
            step.print();
            log.add(&step.json(version, arguments.native_histograms))?;
            limit = step.limit();
            steps.push(step);
        }
        if let Some(limit) = limit {
            println!("\n{limit}, with {present} agents: no more are added");
            break;
        }
    }
    print_table(&steps);
    print_capacity(&steps);
    println!("\nall measurements: {}", log.path().display());
    Ok(())
}

/// Returns the configuration of Prometheus, as docs/INSTALL.md has it but for where the targets come from and for the
/// timeout: the first scrape of a target has all of its past, and none is made again. Later ones are measured against
/// Prometheus's own timeout.
fn config(rules: &[PathBuf], discovery: &Path, native: bool) -> String {
    let pace = PACE.as_secs();
    let rules: Vec<_> = rules
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let native = match native {
        true => "    convert_classic_histograms_to_nhcb: true\n",
        false => "",
    };
    format!(
        "global:\n  scrape_interval: {pace}s\n  scrape_timeout: {pace}s\n  evaluation_interval: {pace}s\n\
         rule_files: {rules}\n\
         scrape_configs:\n  - job_name: {JOB}\n{native}    file_sd_configs:\n      \
         - files: ['{discovery}']\n",
        rules = json!(rules),
        discovery = discovery.display()
    )
}

/// Waits until all targets have been scraped, with their past.
fn wait_until_scraped(
    prometheus: &Prometheus,
    targets: &Targets,
    agents: usize,
    go_on: &impl Fn() -> Result<()>,
) -> Result<()> {
    let begun = Instant::now();
    while targets.scraped() < agents {
        if begun.elapsed() > PACE + LOAD_TIMEOUT {
            let scraped = targets.scraped();
            bail!("Prometheus scraped {scraped} of {agents} agents: it cannot carry more here");
        }
        prometheus.must_be_alive()?;
        pause(STEP, go_on)?;
    }
    Ok(())
}

/// Waits for the next scrape of all, and checks that Prometheus has taken the past of nearly all servers.
fn check_past(
    prometheus: &Prometheus,
    servers: usize,
    go_on: &impl Fn() -> Result<()>,
) -> Result<()> {
    // Twice, because the first one has the past alone.
    pause(2 * PACE, go_on)?;
    let taken = prometheus.metrics()?;
    for why in ["out_of_bounds", "out_of_order", "duplicate_timestamp"] {
        let refused = format!("prometheus_target_scrapes_sample_{why}_total");
        let refused = taken.sum(&refused, &[])?;
        ensure!(
            refused == 0.0,
            "Prometheus refused {refused} samples ({why}): the past is not what was meant"
        );
    }
    let with_past = format!(
        "count(count_over_time(evictscope_used_memory_bytes{{job=\"{JOB}\"}}[1h]) > {PAST} - 4)"
    );
    let with_past = prometheus.now(&with_past)?;
    let with_past = with_past.first().and_then(|series| series.points.first());
    let with_past = with_past.map_or(0.0, |(_, count)| *count);
    println!("\n{with_past} of {servers} servers have a past of an hour");
    ensure!(
        with_past >= WITH_PAST * servers as f64,
        "rules over an hour would be measured without that"
    );
    Ok(())
}

/// Waits for `length`, unless it may not go on.
fn pause(length: Duration, go_on: &impl Fn() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    loop {
        go_on()?;
        let left = length.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(STEP));
    }
}
