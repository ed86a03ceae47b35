//! Converts a plan, which describes the ELF file, to what the programs need for one process.

use evictscope_abi as kernel;
use evictscope_abi::{AllocatorCounters, CycleKeys, CycleStart, MAX_READS, REGISTERS, ServerConfig, Term, TermKind};
use evictscope_model::{FileAddress, Member};
use evictscope_plan::{Counters, EVICTION_CALL, EXPIRE_CYCLE, Operand, ProbePlan, Recipe};

/// Returns the plan's recipes and addresses as they are in process `pid`, where the loader added
/// `load_bias` to the addresses of the ELF file.
pub fn server_config(pid: u32, load_bias: u64, plan: &ProbePlan) -> ServerConfig {
    let mut config = ServerConfig { tgid: pid, ..ServerConfig::OFF };
    if let Some(eviction) = plan.function(EVICTION_CALL.description) {
        let inner = eviction.inner.iter();
        let planned: Vec<_> = inner
            .flat_map(|inner| &inner.quantities)
            .map(|planned| (planned.quantity, terms(&planned.recipe, load_bias)))
            .collect();
        config.reads = reads(planned.iter().flat_map(|(_, terms)| terms));
        for (quantity, terms) in planned {
            config.recipes[quantity as usize] = recipe(terms, &config.reads);
        }
        for (place, exit) in config.results.iter_mut().zip(&eviction.exits) {
            if let Some(result) = &exit.result {
                *place = term(result, false, load_bias);
            }
        }
    }
    if let Some(cycle) = plan.function(EXPIRE_CYCLE.description) {
        let place = |operand: &Option<Operand>| match operand {
            Some(operand) => term(operand, false, load_bias),
            None => Term::ABSENT,
        };
        for (start, planned) in config.cycle_starts.iter_mut().zip(cycle.inner_sites()) {
            *start = CycleStart { cycle_type: place(&planned.cycle_type), job: place(&planned.job) };
        }
        for (keys, exit) in config.cycle_keys.iter_mut().zip(&cycle.exits) {
            *keys = CycleKeys { sampled: place(&exit.sampled), expired: place(&exit.expired) };
        }
    }
    config.maxmemory = plan.member(Member::Maxmemory).map_or(0, |member| {
        let address: FileAddress = member.address;
        address.at(load_bias).get()
    });
    if let Some(member) = plan.member(Member::UsedMemory) {
        let counters = member.counters.unwrap_or(Counters::one(member.address));
        config.used_memory = allocator_counters(&counters, load_bias);
    }
    config
}

fn allocator_counters(counters: &Counters, load_bias: u64) -> AllocatorCounters {
    let (Ok(stride), Ok(count)) = (u32::try_from(counters.stride / 8), u32::try_from(counters.most)) else {
        return AllocatorCounters::UNKNOWN;
    };
    let at = |address: Option<FileAddress>| address.map_or(0, |own| own.at(load_bias).get());
    AllocatorCounters {
        address: at(Some(counters.first)),
        stride,
        count,
        threads: at(counters.threads),
        threads_width: counters.threads_width,
        overflow: at(counters.overflow),
    }
}

fn terms(planned: &Recipe, load_bias: u64) -> Vec<Term> {
    let terms = planned.terms.iter();
    terms.map(|planned| term(&planned.operand, planned.negative, load_bias)).collect()
}

/// Returns where the terms are in memory, each place once, neighbouring words together.
fn reads<'a>(terms: impl Iterator<Item = &'a Term>) -> [Term; MAX_READS] {
    let mut places: Vec<Term> =
        terms.filter(|term| is_in_memory(term)).map(|term| Term { negative: 0, ..*term }).collect();
    places.sort_by_key(|place| (place.kind, place.register, place.width, place.displacement));
    places.dedup();
    let mut reads = [Term::ABSENT; MAX_READS];
    let mut used = 0;
    for place in places {
        let before = reads[..used].last_mut();
        if let Some(before) = before
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

fn is_in_memory(term: &Term) -> bool {
    term.kind == TermKind::Memory as u8 || term.kind == TermKind::Absolute as u8
}

/// Returns which of the two words at `read` is the place of `term`.
fn word_in(read: &Term, term: &Term) -> Option<u8> {
    let is_alike = (read.kind, read.register, read.width == 4) == (term.kind, term.register, term.width == 4);
    match term.displacement.wrapping_sub(read.displacement) {
        0 if is_alike => Some(0),
        8 if is_alike => Some(1),
        _ => None,
    }
}

/// Returns a recipe whose terms in memory are the words that were read before.
fn recipe(terms: Vec<Term>, reads: &[Term; MAX_READS]) -> kernel::Recipe {
    let mut recipe = kernel::Recipe::UNKNOWN;
    let terms: Option<Vec<Term>> = terms.into_iter().map(|term| read(term, reads)).collect();
    // A recipe that is too long would be cut short, and so wrong.
    let Some(terms) = terms.filter(|terms| terms.len() <= recipe.terms.len()) else {
        return recipe;
    };
    for (place, term) in recipe.terms.iter_mut().zip(terms) {
        *place = term;
    }
    recipe
}

/// Returns a term that has the same value once memory has been read; `None` if its place is not read.
fn read(term: Term, reads: &[Term; MAX_READS]) -> Option<Term> {
    if !is_in_memory(&term) {
        return Some(term);
    }
    let words = (REGISTERS as u8..).step_by(2).zip(reads);
    let mut words = words.filter_map(|(first, read)| {
        let word = word_in(read, &term)?;
        (word * 8 < read.width).then_some(first + word)
    });
    Some(Term { kind: TermKind::Register as u8, register: words.next()?, width: 8, displacement: 0, ..term })
}

fn term(operand: &Operand, negative: bool, load_bias: u64) -> Term {
    let (kind, register, width, displacement) = match operand {
        Operand::Register { number, width, plus } => (TermKind::Register, *number, *width, *plus),
        Operand::Memory { base, displacement, width } => (TermKind::Memory, *base, *width, *displacement),
        Operand::Constant(value) => (TermKind::Constant, 0, 8, *value),
        Operand::Global { address, .. } => (TermKind::Absolute, 0, 8, address.at(load_bias).get().cast_signed()),
    };
    Term { kind: kind as u8, register, width, negative: u8::from(negative), reserved: 0, displacement }
}

#[cfg(test)]
mod tests {
    use evictscope_abi::{MAX_READS, Term, TermKind};

    use super::{reads, recipe};

    fn place(kind: TermKind, register: u8, width: u8, displacement: i64) -> Term {
        Term { kind: kind as u8, register, width, displacement, ..Term::ABSENT }
    }

    fn minus(term: Term) -> Term {
        Term { negative: 1, ..term }
    }

    #[test]
    fn each_place_is_read_once_and_neighbours_together() {
        let reported = place(TermKind::Memory, 4, 8, 0x30);
        let tofree = place(TermKind::Memory, 4, 8, 0x38);
        let maxmemory = place(TermKind::Absolute, 0, 8, 0x57_0f58);
        let overhead = vec![reported, minus(tofree), minus(maxmemory)];
        let recipes = [vec![reported], overhead, vec![tofree, maxmemory]];
        let reads = reads(recipes.iter().flatten());
        let pair = Term { width: 16, ..reported };
        assert_eq!(reads[..3], [pair, maxmemory, Term::ABSENT]);

        let [_, overhead, used] = recipes.map(|terms| recipe(terms, &reads).terms);
        let word = |number| place(TermKind::Register, number, 8, 0);
        assert_eq!(overhead, [word(16), minus(word(17)), minus(word(18))]);
        assert_eq!(used, [word(17), word(18), Term::ABSENT]);
    }

    #[test]
    fn half_a_word_is_read_by_itself() {
        let whole = place(TermKind::Memory, 5, 8, -16);
        let half = place(TermKind::Memory, 5, 4, -8);
        let reads = reads([whole, half].iter());
        assert_eq!(reads[..3], [half, whole, Term::ABSENT]);
        let word = place(TermKind::Register, 16, 8, 0);
        assert_eq!(recipe(vec![half], &reads).terms[0], word);
    }

    #[test]
    fn what_there_is_no_room_for_is_not_known() {
        let apart = |index: usize| place(TermKind::Absolute, 0, 8, index as i64 * 64);
        let places: Vec<Term> = (0..=MAX_READS).map(apart).collect();
        let reads = reads(places.iter());
        assert!(recipe(vec![apart(MAX_READS - 1)], &reads).is_known());
        assert!(!recipe(vec![apart(MAX_READS)], &reads).is_known());
        assert!(!recipe(vec![apart(0), apart(MAX_READS)], &reads).is_known());
    }
}
