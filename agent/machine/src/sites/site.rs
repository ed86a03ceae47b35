//! Probe sites: one, the cheapest that will do, and which calls of a function are meant.

use std::collections::BTreeSet;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::{FileAddress, FileOffset};
use iced_x86::{Formatter as _, GasFormatter};
use serde::Serialize;

use crate::code::emulation;
use crate::code::graph::{BlockId, EdgeKind, FunctionCode};
use crate::code::instruction::{Instruction, address};
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::flow::operand::Operand;
use crate::flow::recipe::{Reach, Recipe};
use crate::flow::state::State;
use crate::flow::value::Value;

/// One probe site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Offset in the file, which is what the kernel wants.
    pub file_offset: FileOffset,
    /// The instruction, in AT&T syntax, as `objdump` prints it.
    pub instruction: String,
    /// Whether the kernel emulates the instruction (else it single-steps it, at ten times the cost).
    pub emulated: bool,
}

impl Site {
    /// Returns the site at an instruction; `None` if it is not in the file.
    pub fn at(image: &Image<'_>, instruction: &Instruction) -> Option<Self> {
        let mut text = String::new();
        let mut formatter = GasFormatter::new();
        // Writes numbers as objdump does.
        let options = formatter.options_mut();
        options.set_uppercase_hex(false);
        options.set_branch_leading_zeros(false);
        options.set_displacement_leading_zeros(false);
        formatter.format(instruction, &mut text);
        let address = address(instruction);
        Some(Self {
            address,
            file_offset: image.file_offset(address)?,
            instruction: text,
            emulated: emulation::is_emulated(instruction),
        })
    }
}

/// A point where a site could be.
pub struct Candidate {
    /// The instruction that the probe would sit on.
    pub instruction: Instruction,
    /// What is known there.
    pub state: State,
}

/// Returns the cheapest of the candidates with the most of `wanted` in reach, and how to compute each value there.
/// `last_resort` is an operand that is in reach everywhere, with its value.
pub fn cheapest(
    execution: &mut Execution<'_>,
    candidates: Vec<Candidate>,
    wanted: &[&Value],
    last_resort: (&Operand, &Value),
) -> Option<(Instruction, Vec<Option<Recipe>>)> {
    let candidates = candidates.into_iter();
    let candidates = candidates.filter(|own| !emulation::is_long_nop(&own.instruction));
    let with_recipes = candidates.map(|candidate| {
        let mut reach = Reach::of(execution, &candidate.state, wanted);
        reach.add(last_resort.0.clone(), last_resort.1.clone());
        let recipes: Vec<_> = wanted.iter().map(|value| reach.recipe(value)).collect();
        (candidate, recipes)
    });
    let best = with_recipes.min_by_key(|(candidate, recipes)| {
        let missing = recipes.iter().filter(|recipe| recipe.is_none()).count();
        let cost = emulation::cost(&candidate.instruction);
        (missing, cost)
    });
    best.map(|(candidate, recipes)| (candidate.instruction, recipes))
}

/// The calls whose exits are looked for: those that reach a block.
#[derive(Clone, Copy, Debug)]
pub struct Calls<'a> {
    /// The block that they reach.
    pub block: BlockId,
    /// Edges that other calls do not take; those must pass no exit. Empty if there are no others.
    pub by: &'a [(BlockId, EdgeKind)],
    /// The inner site. Two probes at one instruction have no order, so no other probe is there.
    pub inner: Option<FileAddress>,
    /// Whether a call can end there by leaving its conditional jump one way: its own probe ends it.
    pub ends_at_inner: bool,
    /// Instructions after which they end, if their work is not a loop.
    pub work: &'a [FileAddress],
}

impl Calls<'_> {
    /// All calls of the function.
    pub const ALL: Self = Self { block: BlockId::ENTRY, by: &[], inner: None, ends_at_inner: false, work: &[] };

    /// Returns the blocks that they pass and from which the function can return.
    pub fn passed_blocks(self, code: &FunctionCode) -> BTreeSet<BlockId> {
        let returning = code.returning(&[]);
        let mut passed = code.reachable(self.block, &[]);
        passed.retain(|block| returning.contains(block));
        passed
    }
}
