//! What makes a function a traced one, and what is known about an executable while its traced functions are planned.
//!
//! Each traced function is described in a folder of its own here, and is one entry of
//! [`TRACED`](crate::planner::TRACED).

pub mod eviction;
pub mod expire;

use std::cell::OnceCell;

use evictscope_machine::code::FunctionCode;
use evictscope_machine::dwarf::Asked;
use evictscope_machine::elf::Image;
use evictscope_machine::flow::{CutPoint, Execution, Results};
use evictscope_machine::sites::{Calls, FoundExit, Site, entry_of_every_call, exits};
use evictscope_model::{FileAddress, Member};

use crate::dwarf::DebugInfo;
use crate::item::{Description, FunctionKind, Item, Reason};
use crate::members::{ConfigTable, Evidence, Info};
use crate::names::Texts;
use crate::plan::{CallSpan, Exit, FunctionPlan, NotFound, TracedFunction};
use crate::{dwarf, members};

/// A function that a plan probes, and how to plan it.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    /// How it is named.
    pub description: &'static Description,
    /// The texts that it is recognised by; [`Analysis::texts`] has their places.
    pub texts: &'static [&'static str],
    /// Finds the function and the places of its probes. It notes what it does not find in [`Analysis::not_found`].
    pub plan: fn(&mut Analysis<'_, '_>, FunctionKind) -> Option<TracedFunction>,
}

/// What is known about an executable.
pub struct Analysis<'a, 'data> {
    /// The executable.
    pub image: &'a Image<'data>,
    /// Where the texts that identify functions are.
    pub texts: &'a Texts,
    /// Addresses of members that directives set; empty if the table was not found.
    pub config: &'a ConfigTable,
    /// What INFO prints, once it has been asked for.
    pub info: OnceCell<Info>,
    /// The contents of the files that can have debug information, the best first.
    pub files: &'a [&'a [u8]],
    /// What the debug information says, once a function has asked for it.
    pub debug: DebugInfo,
    /// What functions say about the server's memory.
    pub evidence: Evidence,
    /// What was not found.
    pub not_found: Vec<NotFound>,
}

impl Analysis<'_, '_> {
    /// Returns where a member that INFO prints is, if that is known.
    pub fn in_info(&self, member: Member) -> Option<FileAddress> {
        self.info.get_or_init(|| members::info(self.image)).shown.get(&member).copied()
    }

    /// Notes that something was not found.
    pub fn miss(&mut self, item: Item, reason: impl Into<Reason>) {
        let missed = NotFound { item, reason: reason.into() };
        if !self.not_found.contains(&missed) {
            self.not_found.push(missed);
        }
    }

    /// Reads the debug information of the executable, or else of its debug file.
    pub fn read_debug_info(&mut self, asked: Asked<'_>) {
        for data in self.files {
            match dwarf::read(data, asked) {
                Ok(Some(info)) => {
                    self.debug = info;
                    return;
                }
                Ok(None) => {}
                Err(why) => self.miss(Item::DebugInfo, why),
            }
        }
    }

    /// Decodes the function at `address` and plans its entry.
    pub fn begin(
        &mut self,
        kind: FunctionKind,
        name: &'static str,
        address: FileAddress,
    ) -> Option<(TracedFunction, FunctionCode)> {
        let code =
            FunctionCode::decode(self.image, address).map_err(|why| self.miss(Item::Function(kind), why)).ok()?;
        let entry = entry_of_every_call(&code).and_then(|instruction| Site::at(self.image, instruction));
        if entry.is_none() {
            self.miss(Item::Entry(kind), Reason::NoEntry);
        }
        let span = CallSpan { entry, inner: Vec::new(), exits: Vec::new() };
        Some((TracedFunction { kind, name, address, span, plan: FunctionPlan::Calls }, code))
    }

    /// Plans the exits of `calls`. `results` has all results that the function can have, or none if they do not matter.
    pub fn exits(
        &mut self,
        kind: FunctionKind,
        execution: &mut Execution<'_>,
        calls: Calls<'_>,
        results: &[u64],
    ) -> Vec<Exit> {
        let held = Results::new(execution, &calls.passed_blocks(execution.code), results);
        let look = |execution: &mut Execution<'_>, point| {
            let result = held.at(execution, point);
            let missing = u64::from(result.is_none() && !results.is_empty());
            (result, missing)
        };
        let found = self.exits_with(kind, execution, calls, look);
        if !results.is_empty() && found.iter().any(|(_, result)| result.is_none()) {
            self.miss(Item::Result(kind), Reason::ResultUnknown);
        }
        found.into_iter().map(|(exit, result)| Exit { result, ..exit }).collect()
    }

    /// Plans the exits of `calls`, each with what `look` says is known there. `look` also says how many things are not.
    pub fn exits_with<K>(
        &mut self,
        kind: FunctionKind,
        execution: &mut Execution<'_>,
        calls: Calls<'_>,
        look: impl FnMut(&mut Execution<'_>, CutPoint) -> (K, u64),
    ) -> Vec<(Exit, K)> {
        let found = exits::find(execution, calls, look).unwrap_or_else(|why| {
            self.miss(Item::Exits(kind), why);
            Vec::new()
        });
        let exit = |found: FoundExit<K>| {
            let site = Site::at(self.image, &found.instruction)?;
            Some((Exit { site, way: found.way, result: None }, found.known))
        };
        // If one were missing, calls would not be seen to end.
        let exits: Option<Vec<_>> = found.into_iter().map(exit).collect();
        exits.unwrap_or_default()
    }
}
