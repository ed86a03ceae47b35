//! The builds of servers that people run: planned for, run and watched.

mod build;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::debian::{Suite, unpacked};
use evictscope_testkit::servers::{NEWEST, OF_DEBIAN};
use evictscope_testkit::target::Target;
use evictscope_testkit::{debian, process, servers};

use self::build::{Build, Plan, STRIPPED};
use crate::directory;
use crate::table::{self, Row};

/// Gets Debian's servers of this suite, if they are not here.
pub fn provide(name: &str) -> Result<()> {
    let mut suites = OF_DEBIAN.iter().filter(|(suite, _)| suite.0 == name);
    suites.try_for_each(|(suite, product)| root(*suite, product, Target::X86_64).map(drop))
}

/// Returns a root directory with a server for a processor and all that it needs. The links in `base-files` join its
/// directories, and servers that are not Debian's need `libstdc++6`.
fn root(suite: Suite, product: &str, target: Target) -> Result<PathBuf> {
    let packages = ["server", "tools"].map(|part| format!("{product}-{part}/{}", suite.0));
    let packages = [&packages[0], &packages[1], "base-files", "libstdc++6"];
    unpacked(directory()?.join(format!("{}-{product}-{}", suite.0, target.debian())), suite, target, &packages)
}

fn of_debian(suite: Suite, product: &str, target: Target) -> Result<Vec<Build>> {
    let root = root(suite, product, target)?;
    let server = format!("{product}-server");
    let version = debian::version_in(&root, &server)?;
    let link = root.join("usr/bin").join(server);
    let program = link.canonicalize().with_context(|| format!("the package has no {}", link.display()))?;
    Build { name: format!("{} {product} {version}", suite.0), program, root: Some(root), target }.and_stripped()
}

/// Returns the builds of a server in `target/servers`. If this machine's libraries are too old for it, it runs with the
/// newest.
fn of_server(name: &str, target: Target) -> Result<Vec<Build>> {
    let program = servers::path(name)?;
    ensure!(program.is_file(), "there is no {}: `cargo xtask matrix` without --packed gets it", program.display());
    let runs = target == Target::X86_64 && process::answer_of(Command::new(&program).arg("--version")).is_ok();
    let root = if runs { None } else { Some(root(NEWEST, "valkey", target)?) };
    Build { name: name.to_owned(), program, root, target }.and_stripped()
}

pub struct Found {
    pub rows: Vec<Row>,
    /// What was not found and why, and in which builds.
    reasons: Vec<(String, Vec<String>)>,
    agent: PathBuf,
}

impl Found {
    /// Tries Debian's builds for a processor, and these `other` ones, if their names are `wanted`. What fails is a
    /// fault in a row.
    pub fn of(agent: PathBuf, target: Target, others: &[&str], wanted: impl Fn(&str) -> bool) -> Self {
        let mut found = Self { rows: Vec::new(), reasons: Vec::new(), agent };
        for (suite, product) in OF_DEBIAN.iter().filter(|(suite, _)| wanted(suite.0)) {
            found.try_all(suite.0, of_debian(*suite, product, target));
        }
        for server in others.iter().filter(|server| wanted(server)) {
            found.try_all(server, of_server(server, target));
        }
        found
    }

    fn try_all(&mut self, place: &str, builds: Result<Vec<Build>>) {
        match builds {
            Ok(builds) => builds.iter().for_each(|build| self.try_build(build)),
            Err(error) => {
                let mut row = Row::new("build", place);
                row.must_succeed("provided", Err(error));
                self.rows.push(row);
            }
        }
    }

    fn try_build(&mut self, build: &Build) {
        println!("{} ...", build.name);
        let mut row = Row::new("build", &build.name);
        match Plan::of(&build.program, &self.agent) {
            Ok(plan) => self.look(build, &plan, &mut row),
            Err(error) => row.must_succeed("planned", Err(error)),
        }
        self.rows.push(row);
    }

    fn look(&mut self, build: &Build, plan: &Plan, row: &mut Row) {
        plan.report(row);
        let mut items = BTreeMap::<_, Vec<_>>::new();
        for (item, why) in plan.not_found() {
            items.entry(why).or_default().push(format!("`{item}`"));
        }
        for (why, items) in items {
            let reason = format!("{}: {why}", items.join(", "));
            match self.reasons.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, builds)) => builds.push(build.name.clone()),
                None => self.reasons.push((reason, vec![build.name.clone()])),
            }
        }
        if plan.is_empty() {
            return;
        }
        let compared = plan.compare_sites(build, row);
        row.must_succeed("under gdb", compared);
        if build.target != Target::X86_64 {
            return;
        }
        let compared = watched::compare(build, plan, &self.agent, row);
        row.must_succeed("watched", compared);
        let compared = watched::compare_keys(build, &self.agent, row);
        row.must_succeed("keys", compared);
    }

    /// Returns all that was found as Markdown, and what operators ask. There a copy without symbols has a row only if
    /// that differs from the row before it.
    pub fn markdown(&self) -> [String; 2] {
        let brief = table::brief(&self.rows, &["build", "server", "plan"]);
        let mut lines: Vec<&str> = brief.lines().collect();
        lines.dedup_by(|line, before| line.contains(STRIPPED) && line.replace(STRIPPED, "") == *before);
        let mut reasons = String::new();
        for (reason, builds) in &self.reasons {
            let is_new =
                |build: &&String| build.strip_suffix(STRIPPED).is_none_or(|whole| !builds.contains(&whole.into()));
            let named: Vec<_> = builds.iter().filter(is_new).map(String::as_str).collect();
            reasons += &format!("- {reason} ({})\n", named.join("; "));
        }
        [table::markdown(&self.rows), lines.join("\n") + "\n"]
            .map(|table| format!("{table}\nNot found, and why:\n\n{reasons}"))
    }
}
