//! The builds of servers that people run: planned for, run and watched.

mod goal;
mod keys;
mod plan;
mod reading;
mod suites;
mod watched;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::{process, servers};

use self::plan::Plan;
use self::suites::{NEWEST, SUITES, Suite};
use crate::table::Row;
use crate::{files, table};

/// The limit of the servers: some seconds of load exceed it.
const LIMIT: &str = "16mb";

/// How the name of a copy without symbols ends.
const STRIPPED: &str = ", stripped";

#[derive(Clone)]
struct Build {
    name: String,
    program: PathBuf,
    /// The root directory in which it runs, if that is not this machine's.
    root: Option<PathBuf>,
}

/// What an agent was found to do on builds.
pub struct Found {
    pub rows: Vec<Row>,
    /// What was not found and why, and in which builds.
    reasons: Vec<(String, Vec<String>)>,
    agent: PathBuf,
}

/// Downloads the servers of a suite if they are missing.
pub fn provide(suite: &str) -> Result<()> {
    Suite::named(suite)?.provide().map(drop)
}

/// Returns the builds in a Debian suite.
fn of_suite(suite: &Suite) -> Result<Vec<Build>> {
    let packages = suite.provide()?;
    if packages.is_empty() {
        println!("{} has no server", suite.name);
    }
    let builds = packages.into_iter().map(|package| {
        let build = Build {
            name: format!("{} {} {}", suite.name, package.product, package.version),
            program: package.server()?,
            root: Some(package.root),
        };
        build.and_stripped()
    });
    Ok(builds.collect::<Result<Vec<_>>>()?.concat())
}

/// Returns the builds of a server in `target/servers`. If this machine's libraries are too old for it, it runs with the
/// newest.
fn of_server(name: &str) -> Result<Vec<Build>> {
    let program = servers::path(name)?;
    ensure!(program.is_file(), "there is no {}: `cargo xtask matrix` without --packed gets it", program.display());
    let runs = process::answer_of(Command::new(&program).arg("--version")).is_ok();
    let root = match runs {
        true => None,
        false => {
            let mut packages = Suite::named(NEWEST)?.provide()?;
            let package = packages.pop();
            Some(package.context("the newest suite has no server")?.root)
        }
    };
    let build = Build { name: name.to_owned(), program, root };
    build.and_stripped()
}

impl Build {
    /// Returns this build, and a copy without symbols if it has any that it does not need to run.
    fn and_stripped(self) -> Result<Vec<Self>> {
        let mut sections = Command::new("readelf");
        sections.args(["--wide", "--section-headers"]).arg(&self.program);
        if !process::answer_of(&mut sections)?.contains(" .symtab ") {
            return Ok(vec![self]);
        }
        let directory = files::directory()?.join("stripped");
        fs::create_dir_all(&directory).context("cannot make a directory")?;
        let stripped = Self {
            name: format!("{}{STRIPPED}", self.name),
            program: directory.join(&self.name),
            root: self.root.clone(),
        };
        servers::strip(&self.program, &stripped.program)?;
        Ok(vec![self, stripped])
    }
}

impl Found {
    /// Begins without any build. What fails from then on is a fault in a row.
    pub fn new(agent: PathBuf) -> Self {
        Self { rows: Vec::new(), reasons: Vec::new(), agent }
    }

    /// Tries the builds of the Debian suites and other servers whose names are `wanted`.
    pub fn try_known(&mut self, others: &[&str], wanted: impl Fn(&str) -> bool) {
        for suite in SUITES.iter().filter(|suite| wanted(suite.name)) {
            self.try_all(suite.name, of_suite(suite));
        }
        for server in others.iter().filter(|server| wanted(server)) {
            self.try_all(server, of_server(server));
        }
    }

    /// Tries executables that run on this machine.
    pub fn try_programs(&mut self, programs: &[PathBuf]) {
        for program in programs {
            let name = program.file_name().unwrap_or(program.as_os_str());
            let name = name.to_string_lossy().into_owned();
            let build = Build { name: name.clone(), program: program.clone(), root: None };
            self.try_all(&name, build.and_stripped());
        }
    }

    /// Formats all of it as Markdown.
    pub fn markdown(&self) -> String {
        self.with_reasons(table::markdown(&self.rows))
    }

    /// Formats what operators ask as Markdown. A copy without symbols has a row only if that differs from the row
    /// before it.
    pub fn brief(&self) -> String {
        let all = table::brief(&self.rows, &["build", "server", "plan"]);
        let mut lines: Vec<&str> = all.lines().collect();
        lines.dedup_by(|line, before| line.contains(STRIPPED) && line.replace(STRIPPED, "") == *before);
        self.with_reasons(lines.join("\n") + "\n")
    }

    fn with_reasons(&self, mut text: String) -> String {
        if !self.reasons.is_empty() {
            text += "\nNot found, and why:\n\n";
        }
        for (reason, builds) in &self.reasons {
            let is_like_whole = |build: &str| {
                let whole = build.strip_suffix(STRIPPED);
                whole.is_some_and(|whole| builds.iter().any(|own| own == whole))
            };
            let named = builds.iter().map(String::as_str);
            let named = Vec::from_iter(named.filter(|build| !is_like_whole(build)));
            text += &format!("- {reason} ({})\n", named.join("; "));
        }
        text
    }

    /// Tries the builds that are from one place.
    fn try_all(&mut self, place: &str, builds: Result<Vec<Build>>) {
        match builds {
            Ok(builds) => builds.iter().for_each(|build| self.add(build)),
            Err(error) => {
                let mut row = Row::new("build", place);
                row.fault(&format!("{error:#}"));
                self.rows.push(row);
            }
        }
    }

    fn add(&mut self, build: &Build) {
        println!("{} ...", build.name);
        let mut row = Row::new("build", &build.name);
        let looked = self.look(build, &mut row);
        row.succeeded("planned", looked);
        self.rows.push(row);
    }

    fn look(&mut self, build: &Build, row: &mut Row) -> Result<()> {
        let plan = Plan::of(&build.program, &self.agent)?;
        row.fact("server", plan.server().as_deref().unwrap_or("-"));
        row.fact("plan", &plan.verdict());
        row.fact("found by", &Vec::from_iter(plan.methods()).join(", "));
        row.fact("planned in", &format!("{:.0} ms", plan.milliseconds()));
        for (item, why) in plan.not_found() {
            let reason = format!("`{item}`: {why}");
            match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, builds)) => builds.push(build.name.clone()),
                None => self.reasons.push((reason, vec![build.name.clone()])),
            }
        }
        if plan.is_empty() {
            return Ok(());
        }
        let watched = watched::compare(build, &plan, &self.agent, row);
        row.succeeded("watched", watched);
        let compared = goal::compare(build, &plan, row);
        row.succeeded("goal variables under gdb", compared);
        let compared = keys::compare(build, &self.agent, row);
        row.succeeded("keys", compared);
        Ok(())
    }
}
