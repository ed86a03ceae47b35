//! Where a cycle that does anything begins: after the early returns, before the loop over databases.

use std::collections::BTreeSet;

use evictscope_machine::code::instruction::address;
use evictscope_machine::code::{BlockId, EdgeKind, FunctionCode, Instruction, emulation};
use evictscope_machine::elf::{FileAddress, Image};
use evictscope_machine::flow::Operand;
use evictscope_machine::sites::{Calls, Site};

use super::kind::ByType;
use crate::plan::InnerSite;

/// A place for the start site.
pub struct Start {
    pub block: BlockId,
    pub instruction: Instruction,
    /// What holds the type there.
    pub cycle_type: Option<Operand>,
    /// What tells there which job it is.
    pub job: Option<Operand>,
}

impl Start {
    /// Returns the site for the plan.
    pub fn inner_site(self, image: &Image<'_>) -> Option<InnerSite> {
        Some(InnerSite {
            site: Site::at(image, &self.instruction)?,
            quantities: Vec::new(),
            cycle_type: self.cycle_type,
            job: self.job,
        })
    }
}

/// The part of a function after the early returns.
pub struct Work {
    /// From these blocks the function returns only through its end.
    blocks: BTreeSet<BlockId>,
    /// The edges that lead there.
    entered_by: Vec<(BlockId, EdgeKind)>,
}

impl Work {
    /// Looks for the blocks from which the function returns only through one of `ends`.
    pub fn before(code: &FunctionCode, ends: &[BlockId]) -> Self {
        let returning = code.returning(ends);
        let mut blocks: BTreeSet<BlockId> = code.blocks.ids().collect();
        blocks.retain(|block| !returning.contains(block));
        let edges = (code.blocks.entries())
            .flat_map(|(id, block)| block.successors.iter().map(move |own| (id, *own)));
        let entered_by = edges
            .filter(|(from, (to, _))| !blocks.contains(from) && blocks.contains(to))
            .map(|(from, (_, kind))| (from, kind))
            .collect();
        Self { blocks, entered_by }
    }

    /// Returns the calls that pass `start`, and may do their work in `jobs`.
    pub fn calls<'a>(&'a self, start: &Start, jobs: &'a [FileAddress]) -> Calls<'a> {
        Calls {
            block: start.block,
            by: &self.entered_by,
            inner: Some(address(&start.instruction)),
            ends_at_inner: false,
            work: jobs,
        }
    }

    /// Returns the first of the cheapest instructions that every call that comes here passes, before any loop and up to the first
    /// of `jobs`; those at which the type is known, and which job it is, come first. Compilers give calls that find no database a
    /// path of their own. No such call is ever made, so the site is on the path of the others.
    pub fn start(
        &self,
        code: &FunctionCode,
        ends: &[BlockId],
        jobs: &[FileAddress],
        by_type: &mut ByType<'_>,
        mut by_job: Option<&mut ByType<'_>>,
    ) -> Option<Start> {
        let looping: BTreeSet<BlockId> = code.loops().into_iter().flatten().collect();
        let loops: Vec<BlockId> = looping.intersection(&self.blocks).copied().collect();
        if loops.is_empty() && jobs.is_empty() {
            return None;
        }
        let before = |places: &[BlockId]| {
            let mut blocks = code.passed_before(places);
            blocks.retain(|block| {
                let is_before = !jobs.is_empty() || !ends.contains(block);
                self.blocks.contains(block) && !looping.contains(block) && is_before
            });
            blocks
        };
        let all = before(&[ends, &loops].concat());
        let blocks = if all.is_empty() { before(&loops) } else { all };
        let mut found: Option<((bool, bool, u32), Start)> = None;
        for block in blocks {
            let places = by_type.places(block);
            let jobs_here = by_job.as_mut().map(|by_job| by_job.places(block));
            let jobs_here = jobs_here.unwrap_or_default();
            for (index, instruction) in code.blocks[block].instructions.iter().enumerate() {
                if emulation::is_long_nop(instruction) {
                    continue;
                }
                let cycle_type = places.get(index).cloned().flatten();
                let job = jobs_here.get(index).cloned().flatten();
                let cost = emulation::cost(instruction);
                let weight = (cycle_type.is_none(), job.is_none(), cost);
                if found.as_ref().is_none_or(|(least, _)| weight < *least) {
                    let start = Start {
                        block,
                        instruction: *instruction,
                        cycle_type,
                        job,
                    };
                    found = Some((weight, start));
                }
                if jobs.contains(&address(instruction)) {
                    break;
                }
            }
        }
        found.map(|(_, start)| start)
    }
}
