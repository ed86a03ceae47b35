//! Probe sites: one, the cheapest that will do, where a probe sees every call of a function, and which calls are meant.

use std::collections::BTreeSet;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_model::{FileAddress, FileOffset};
use serde::Serialize;

use crate::code::graph::{BlockId, EdgeKind, FunctionCode};
use crate::elf::image::Image;
use crate::flow::execution::Execution;
use crate::flow::recipe::{Reach, Recipe};
use crate::flow::value::Value;
use crate::flow::{Operand, State};
use crate::ir::{Hit, Instruction};

/// One probe site.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Site {
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Offset in the file, which is what the kernel wants.
    pub file_offset: FileOffset,
    /// The instruction, as `objdump` prints it.
    pub instruction: String,
    /// Whether the kernel emulates the instruction (else it single-steps it, at ten times the cost).
    pub emulated: bool,
}

impl Site {
    /// Returns the site at an instruction; `None` if it is not in the file.
    pub fn at(image: &Image<'_>, instruction: &Instruction) -> Option<Self> {
        Some(Self {
            address: instruction.address,
            file_offset: image.segments.file_offset(instruction.address)?,
            instruction: instruction.text(),
            emulated: instruction.hit == Hit::Emulated,
        })
    }
}

/// A point where a site could be.
pub struct SiteCandidate {
    /// The instruction that the probe would sit on.
    pub instruction: Instruction,
    /// What is known there.
    pub state: State,
}

/// Returns the cheapest of the candidates with the most of `wanted` in reach, and how to compute each value there.
/// `last_resort` is an operand that is in reach everywhere, with its value.
pub fn cheapest(
    execution: &mut Execution<'_>,
    candidates: Vec<SiteCandidate>,
    wanted: &[&Value],
    last_resort: (&Operand, &Value),
) -> Option<(Instruction, Vec<Option<Recipe>>)> {
    let candidates = candidates.into_iter().filter(|candidate| candidate.instruction.hit != Hit::Forbidden);
    let with_recipes = candidates.map(|candidate| {
        let mut reach = Reach::of(execution, &candidate.state, wanted);
        reach.add(last_resort.0.clone(), last_resort.1.clone());
        let recipes: Vec<_> = wanted.iter().map(|value| reach.recipe(value)).collect();
        (candidate, recipes)
    });
    let best = with_recipes.min_by_key(|(candidate, recipes)| {
        let missing = recipes.iter().filter(|recipe| recipe.is_none()).count();
        (missing, candidate.instruction.hit.cost())
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

/// Functions that return twice, or in another frame: a return probe would break them.
const RETURN_TWICE: [&str; 5] = ["setjmp", "_setjmp", "__sigsetjmp", "sigsetjmp", "vfork"];

/// Returns the emulated `push` or `call` that every call executes before the stack pointer moves; otherwise the first
/// instruction that can be probed.
pub fn entry_of_every_call(code: &FunctionCode) -> Option<&Instruction> {
    let instructions = &code.blocks.first()?.instructions;
    let before = before_the_stack_moves(instructions).last();
    let cheap = before.filter(|last| last.hit == Hit::Emulated && last.moves_stack());
    cheap.or_else(|| instructions.iter().find(|instruction| instruction.hit != Hit::Forbidden))
}

/// Returns the cheapest site that every call passes once, before the stack pointer moves: there the return address is
/// where the kernel expects it. The error says why no probe can be placed.
pub fn entry_of_named(image: &Image<'_>, address: FileAddress, name: &str) -> Result<Site, String> {
    if RETURN_TWICE.contains(&name) {
        return Err("it returns more than once, which a return probe would break".to_owned());
    }
    if name.contains(".cold") || !image.is_code(address) || !image.is_function(address) {
        return Err("no function begins there".to_owned());
    }
    let code = FunctionCode::decode(image, address).map_err(|why| why.to_string())?;
    let first = code.blocks.first().ok_or("it has no instructions")?;
    if !first.predecessors.is_empty() {
        return Err("its code jumps back to its own start, so a probe there would not count calls alone".to_owned());
    }
    let before = before_the_stack_moves(&first.instructions);
    let emulated = before.iter().find(|instruction| instruction.hit == Hit::Emulated);
    let cheapest = emulated.or_else(|| before.iter().find(|instruction| instruction.hit != Hit::Forbidden));
    let cheapest = cheapest
        .ok_or("it begins with a long nop, and a probe there would corrupt what lies below the stack pointer")?;
    Site::at(image, cheapest).ok_or_else(|| "its code is not in the file".to_owned())
}

/// Returns the instructions that all calls execute with the stack pointer as the call left it.
fn before_the_stack_moves(instructions: &[Instruction]) -> &[Instruction] {
    let first = instructions.iter().position(Instruction::moves_stack);
    // The instruction that moves it executes after its probe is hit.
    let end = first.map_or(instructions.len(), |first| first + 1);
    &instructions[..end]
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;

    use super::entry_of_named;
    use crate::elf::Symbol;
    use crate::elf::image::Image;

    #[test]
    fn the_entry_is_the_cheapest_place_that_each_call_passes_once() {
        const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
        let place = |code: &[u8]| {
            let mut image = Image::of_code(code, FileAddress::new(0x1000));
            image.symbols.add_function("function", Symbol { address: FileAddress::new(0x1000), size: 0 });
            let site = entry_of_named(&image, FileAddress::new(0x1000), "function");
            site.map(|site| (site.address.get() - 0x1000, site.emulated))
        };
        // endbr64; push %rbp; pop %rbp; ret
        assert_eq!(place(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x5d, 0xc3]), Ok((4, true)));
        // sub $8,%rsp; push %rbp: after the first the return address is elsewhere.
        assert_eq!(place(&[0x48, 0x83, 0xec, 8, 0x55, 0xc3]), Ok((0, false)));
        // A 5-byte nop, and then push %rbp or xor %eax,%eax.
        assert_eq!(place(&[&NOP5[..], &[0x55, 0x5d, 0xc3]].concat()), Ok((5, true)));
        assert_eq!(place(&[&NOP5[..], &[0x31, 0xc0, 0xc3]].concat()), Ok((5, false)));
        // dec %edi; jne to the first instruction
        assert!(place(&[0xff, 0xcf, 0x75, 0xfc, 0xc3]).is_err_and(|why| why.contains("jumps back")));
        let mut image = Image::of_code(&[0x55, 0xc3], FileAddress::new(0x1000));
        image.symbols.add_function("vfork", Symbol { address: FileAddress::new(0x1000), size: 0 });
        assert!(entry_of_named(&image, FileAddress::new(0x1000), "vfork").is_err());
        assert!(entry_of_named(&image, FileAddress::new(0x1001), "elsewhere").is_err());
    }
}
