//! The moving average that a cycle ends with: `current * 0.05 + stat_expired_stale_perc * 0.95`.
//!
//! Every cycle that gets past the early returns computes it, and nothing else in a server looks like it.
//! `current` is the share of the sampled keys that had expired, or 0 if none was sampled.

use evictscope_machine::code::{BlockId, FunctionCode};
use evictscope_machine::elf::{FileAddress, Image};
use evictscope_machine::flow::{Execution, factor};

/// The weight of this cycle's share.
pub const OF_THIS_CYCLE: f64 = 0.05;
/// The weight of the average so far.
const OF_THE_PAST: f64 = 0.95;

/// Returns the blocks in which something is multiplied by the weight of the past.
pub fn blocks(image: &Image<'_>, code: &FunctionCode) -> Vec<BlockId> {
    factor::blocks(image, code, OF_THE_PAST)
}

/// Returns where the average that these `blocks` of a function compute is kept, if that is known and a single place.
pub fn kept_at(image: &Image<'_>, code: &FunctionCode, blocks: &[BlockId]) -> Option<FileAddress> {
    let mut execution = Execution::run(code);
    let mut kept = Vec::new();
    for block in blocks {
        let states = execution.states_in(*block);
        for (instruction, mut state) in code.blocks[*block].instructions.iter().zip(states) {
            execution.step(&mut state, instruction);
            let atoms = &execution.atoms;
            let past = factor::multiplied(image, atoms, &state, instruction, OF_THE_PAST);
            kept.extend(past.iter().map(|value| atoms.as_global(value)));
        }
    }
    kept.dedup();
    match kept[..] {
        [Some(address)] => Some(address),
        _ => None,
    }
}
