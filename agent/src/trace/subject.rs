//! The process to look at, and the function in its executable.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use evictscope_abi::{EVICTION, EvictionConfig, TRACE_CYCLES};
use evictscope_host::{Executable, ProcessHandle, Words, load_bias, lower_file, runs_code_of, unanswering};
use evictscope_model::{FileOffset, Member, ProcessAddress};
use evictscope_plan::{EVICTION_CALL, NamedFunction, ProbePlan, Site};
use evictscope_probes::server_config;

use crate::planning::{Planned, Running};

/// A process, and what to trace in it.
pub struct TraceTarget {
    pub handle: ProcessHandle,
    /// The executables that it may run, open.
    pub exes: Vec<Executable>,
    load_bias: u64,
    pub function: NamedFunction,
    /// Where evicting calls and expire cycles begin.
    pub cycles: Vec<InnerCycle>,
    /// What is read where evicting calls begin.
    pub eviction: EvictionConfig,
    /// Where the server counts evicted keys.
    pub evicted_keys: Option<ProcessAddress>,
    /// The debug file that names were taken from.
    pub debug_file: Option<PathBuf>,
}

/// A place where something that can run inside a call begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerCycle {
    pub number: u16,
    pub name: &'static str,
    /// Where; `None` if the server's own count shows it.
    pub begin: Option<Site>,
}

impl TraceTarget {
    /// Finds the function that is called `name` in what process `pid` runs. With `cycles`, also finds where evicting
    /// calls and expire cycles begin. Fails if something is not there, and says what to do.
    pub fn find(pid: u32, name: &str, cycles: bool, debug_dirs: &[PathBuf]) -> anyhow::Result<Self> {
        let process = Running::find(pid)?;
        if let Some(why) = unanswering(pid)? {
            bail!("process {pid} cannot be traced: {why}");
        }
        let Planned { plan, function, debug_file, .. } = process
            .plan(Some(name), debug_dirs)
            .with_context(|| format!("process {pid} runs {}", process.path.display()))?;
        let function = function.context("the function was not looked for")?;
        let load_bias = load_bias(pid, plan.identity.entry_point)?;
        let evicted_keys = plan.member(Member::StatEvictedkeys).filter(|_| cycles);
        let mut target = Self {
            handle: process.handle,
            exes: Vec::new(),
            load_bias,
            function,
            cycles: if cycles { cycles_of(&plan) } else { Vec::new() },
            eviction: if cycles { server_config(pid, load_bias, &plan).eviction } else { EvictionConfig::UNKNOWN },
            evicted_keys: evicted_keys.map(|member| member.address.at(load_bias)),
            debug_file: debug_file.map(PathBuf::from),
        };
        let memory = Words::open(pid)?;
        let is_run = |lower: &Executable| runs_code_of(&memory, lower, target.places()).unwrap_or(false);
        target.exes = lower_file(pid, &process.path).filter(is_run).into_iter().chain([process.exe]).collect();
        Ok(target)
    }

    /// Returns where its probes go, in the file and in the process.
    pub fn places(&self) -> impl Iterator<Item = (FileOffset, ProcessAddress)> {
        let begins = self.cycles.iter().filter_map(|cycle| cycle.begin.as_ref());
        begins.chain([&self.function.entry]).map(|site| (site.file_offset, site.address.at(self.load_bias)))
    }
}

/// Returns what can be seen to run inside a call, and where it begins.
fn cycles_of(plan: &ProbePlan) -> Vec<InnerCycle> {
    let counted = plan.member(Member::StatEvictedkeys).map(|_| InnerCycle {
        number: EVICTION,
        name: EVICTION_CALL.description.prefix,
        begin: None,
    });
    let begins = plan.functions.iter().filter_map(|function| {
        let number = u16::try_from(function.kind.index).ok()?;
        let inner = function.span.inner.first()?;
        (usize::from(number) < TRACE_CYCLES).then_some(InnerCycle {
            number,
            name: function.kind.description.prefix,
            begin: Some(inner.clone()),
        })
    });
    let uncounted = begins.filter(|cycle| counted.is_none() || cycle.number != EVICTION);
    counted.clone().into_iter().chain(uncounted).collect()
}
