//! The cheapest site with everything in reach.

use crate::code::emulation;
use crate::code::instruction::Instruction;
use crate::flow::execution::Execution;
use crate::flow::operand::Operand;
use crate::flow::recipe::{Reach, Recipe};
use crate::flow::state::State;
use crate::flow::value::Value;

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
