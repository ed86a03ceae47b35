//! Converts a plan, which describes the ELF file, to what the programs need for one process.

use evictscope_abi::{
    AllocatorCounters, CycleKeys, CycleStart, EncodedRecipe, EncodedTerm, MAX_READS, REGISTERS, ServerConfig, TermKind,
};
use evictscope_model::{FileAddress, Member};
use evictscope_plan::{Counters, EVICTION_CALL, EXPIRE_CYCLE, FunctionPlan, Operand, ProbePlan, Recipe};

/// Returns the plan's recipes and addresses as they are in process `pid`, where the loader added
/// `load_bias` to the addresses of the ELF file.
pub fn server_config(pid: u32, load_bias: u64, plan: &ProbePlan) -> ServerConfig {
    let place = |operand: &Option<Operand>| match operand {
        Some(operand) => term(operand, false, load_bias),
        None => EncodedTerm::ABSENT,
    };
    let mut config = ServerConfig { tgid: pid, ..ServerConfig::OFF };
    let ServerConfig { eviction, expire, .. } = &mut config;
    if let Some(function) = plan.function(EVICTION_CALL.description) {
        if let FunctionPlan::Eviction(planned) = &function.plan {
            let planned: Vec<_> =
                (planned.iter()).map(|planned| (planned.quantity, terms(&planned.recipe, load_bias))).collect();
            eviction.reads = reads(planned.iter().flat_map(|(_, terms)| terms));
            for (quantity, terms) in planned {
                eviction.recipes[quantity as usize] = recipe(terms, &eviction.reads);
            }
        }
        for (result, exit) in eviction.results.iter_mut().zip(&function.span.exits) {
            *result = place(&exit.result);
        }
    }
    if let Some(FunctionPlan::Expire(planned)) = plan.function(EXPIRE_CYCLE.description).map(|function| &function.plan)
    {
        for (start, planned) in expire.starts.iter_mut().zip(&planned.starts) {
            let [cycle_type, job, expired] = [&planned.cycle_type, &planned.job, &planned.expired].map(place);
            *start = CycleStart { cycle_type, job, expired };
        }
        for (end, planned) in expire.ends.iter_mut().zip(&planned.ends) {
            *end = CycleKeys { sampled: place(&planned.sampled), expired: place(&planned.expired) };
        }
    }
    eviction.maxmemory = plan.member(Member::Maxmemory).map_or(0, |member| member.address.at(load_bias).get());
    if let Some(member) = plan.member(Member::UsedMemory) {
        let counters = member.counters.unwrap_or(Counters::single(member.address));
        eviction.used_memory = allocator_counters(&counters, load_bias);
    }
    config
}

fn allocator_counters(counters: &Counters, load_bias: u64) -> AllocatorCounters {
    let (Ok(stride), Ok(count)) = (u32::try_from(counters.stride / 8), u32::try_from(counters.most)) else {
        return AllocatorCounters::UNKNOWN;
    };
    let at = |address: Option<FileAddress>| address.map_or(0, |address| address.at(load_bias).get());
    AllocatorCounters {
        address: at(Some(counters.first)),
        stride,
        count,
        threads: at(counters.threads),
        threads_width: counters.threads_width,
        overflow: at(counters.overflow),
    }
}

fn terms(planned: &Recipe, load_bias: u64) -> Vec<EncodedTerm> {
    planned.terms.iter().map(|planned| term(&planned.operand, planned.negative, load_bias)).collect()
}

/// Returns where the terms are in memory, each place once, neighbouring words together.
fn reads<'a>(terms: impl Iterator<Item = &'a EncodedTerm>) -> [EncodedTerm; MAX_READS] {
    let mut places: Vec<EncodedTerm> =
        terms.filter(|term| is_in_memory(term)).map(|term| EncodedTerm { negative: 0, ..*term }).collect();
    places.sort_by_key(|place| (place.kind, place.register, place.width, place.displacement));
    places.dedup();
    let mut reads = [EncodedTerm::ABSENT; MAX_READS];
    let mut used = 0;
    for place in places {
        if let Some(before) = reads[..used].last_mut()
            && before.width == 8
            && word_in(before, &place) == Some(1)
        {
            before.width = 16;
        } else if let Some(read) = reads.get_mut(used) {
            *read = place;
            used += 1;
        }
    }
    reads
}

fn is_in_memory(term: &EncodedTerm) -> bool {
    term.kind == TermKind::Memory as u8 || term.kind == TermKind::Absolute as u8
}

/// Returns which of the two words at `read` is the place of `term`.
fn word_in(read: &EncodedTerm, term: &EncodedTerm) -> Option<u8> {
    let is_alike = (read.kind, read.register, read.width == 4) == (term.kind, term.register, term.width == 4);
    match term.displacement.wrapping_sub(read.displacement) {
        0 if is_alike => Some(0),
        8 if is_alike => Some(1),
        _ => None,
    }
}

/// Returns a recipe whose terms in memory are the words that were read before.
fn recipe(terms: Vec<EncodedTerm>, reads: &[EncodedTerm; MAX_READS]) -> EncodedRecipe {
    let mut recipe = EncodedRecipe::UNKNOWN;
    let terms: Option<Vec<EncodedTerm>> = terms.into_iter().map(|term| read(term, reads)).collect();
    // A recipe that is too long would be cut short, and so wrong.
    let Some(terms) = terms.filter(|terms| terms.len() <= recipe.terms.len()) else { return recipe };
    for (place, term) in recipe.terms.iter_mut().zip(terms) {
        *place = term;
    }
    recipe
}

/// Returns a term that has the same value once memory has been read; `None` if its place is not read.
fn read(term: EncodedTerm, reads: &[EncodedTerm; MAX_READS]) -> Option<EncodedTerm> {
    if !is_in_memory(&term) {
        return Some(term);
    }
    let mut words = (REGISTERS as u8..).step_by(2).zip(reads).filter_map(|(first, read)| {
        let word = word_in(read, &term)?;
        (word * 8 < read.width).then_some(first + word)
    });
    Some(EncodedTerm { kind: TermKind::Register as u8, register: words.next()?, width: 8, displacement: 0, ..term })
}

fn term(operand: &Operand, negative: bool, load_bias: u64) -> EncodedTerm {
    let (kind, register, width, displacement) = match operand {
        Operand::Register { register, width, plus } => (TermKind::Register, register.number, *width, *plus),
        Operand::Memory { base, displacement, width } => (TermKind::Memory, base.number, *width, *displacement),
        Operand::Constant(value) => (TermKind::Constant, 0, 8, *value),
        Operand::Global { address, .. } => (TermKind::Absolute, 0, 8, address.at(load_bias).get().cast_signed()),
    };
    EncodedTerm { kind: kind as u8, register, width, negative: u8::from(negative), reserved: 0, displacement }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::{EncodedTerm, MAX_READS, REGISTERS, TermKind};

    use super::{reads, recipe};

    /// The first word that was read: they come after the registers.
    const READ: u8 = REGISTERS as u8;

    fn place(kind: TermKind, register: u8, width: u8, displacement: i64) -> EncodedTerm {
        EncodedTerm { kind: kind as u8, register, width, displacement, ..EncodedTerm::ABSENT }
    }

    fn minus(term: EncodedTerm) -> EncodedTerm {
        EncodedTerm { negative: 1, ..term }
    }

    #[test]
    fn each_place_is_read_once_and_neighbours_together() {
        let reported = place(TermKind::Memory, 4, 8, 0x30);
        let tofree = place(TermKind::Memory, 4, 8, 0x38);
        let maxmemory = place(TermKind::Absolute, 0, 8, 0x57_0f58);
        let overhead = vec![reported, minus(tofree), minus(maxmemory)];
        let recipes = [vec![reported], overhead, vec![tofree, maxmemory]];
        let reads = reads(recipes.iter().flatten());
        let pair = EncodedTerm { width: 16, ..reported };
        assert_eq!(reads[..3], [pair, maxmemory, EncodedTerm::ABSENT]);

        let [_, overhead, used] = recipes.map(|terms| recipe(terms, &reads).terms);
        let word = |number| place(TermKind::Register, number, 8, 0);
        assert_eq!(overhead, [word(READ), minus(word(READ + 1)), minus(word(READ + 2))]);
        assert_eq!(used, [word(READ + 1), word(READ + 2), EncodedTerm::ABSENT]);
    }

    #[test]
    fn half_a_word_is_read_by_itself() {
        let whole = place(TermKind::Memory, 5, 8, -16);
        let half = place(TermKind::Memory, 5, 4, -8);
        let reads = reads([whole, half].iter());
        assert_eq!(reads[..3], [half, whole, EncodedTerm::ABSENT]);
        let word = place(TermKind::Register, READ, 8, 0);
        assert_eq!(recipe(vec![half], &reads).terms[0], word);
    }

    #[test]
    fn what_there_is_no_room_for_is_not_known() {
        let apart = |index: usize| place(TermKind::Absolute, 0, 8, index as i64 * 64);
        let places: Vec<EncodedTerm> = (0..=MAX_READS).map(apart).collect();
        let reads = reads(places.iter());
        assert!(recipe(vec![apart(MAX_READS - 1)], &reads).is_known());
        assert!(!recipe(vec![apart(MAX_READS)], &reads).is_known());
        assert!(!recipe(vec![apart(0), apart(MAX_READS)], &reads).is_known());
    }
}
