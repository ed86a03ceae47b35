//! The allocator's counters (`used_memory` in zmalloc.c): what `zmalloc_used_memory()` adds up.
//!
//! Until Redis 7.4 and Valkey 7.2 it is one counter. Redis 8 has one for each of 16 threads, 64 bytes
//! apart (a 17th thread shares the first's), Valkey 8 one for each thread, 8 bytes apart, and one
//! more for the threads that find no place there. Both only look at as many as there were threads.
//! A counter can be negative: a thread may free what another allocated.
//!
//! The function is run on a [`Machine`] whose globals hold noise: what it returns tells which it
//! adds up. It is run for each small number of threads, and around every bound that it turns out to
//! have, so a loop that a compiler unrolled or vectorised is tried in all its parts.

use evictscope_abi::COUNTER_BYTES;
use evictscope_machine::elf::{FileAddress, Image};
use evictscope_machine::flow::machine::{Globals, Halt, Load, Machine, Outcome};
use evictscope_machine::flow::{Atom, Execution, Value};
use serde::Serialize;

use super::certain::MemberError;

/// What `mem_reported` comes from.
const ALLOCATOR_FUNCTION: &str = "zmalloc_used_memory";
/// Every number of threads up to this is tried: past what compilers unroll and peel off.
const THREADS_TRIED: u64 = 20;
/// More threads than any allocator has counters.
const MANY_THREADS: u64 = 0x3fff_ffff;
/// Most loads that are tried as the number of threads.
const CANDIDATES: usize = 4;
/// Each number of threads is tried with each of these noises.
const SEEDS: [u64; 2] = [0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210];

/// Counters of an allocator that are added up: one per thread, or only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Virtual address of the first, as in the ELF file; each has 8 bytes.
    #[serde(skip)]
    pub first: FileAddress,
    /// Distance between two, in bytes.
    pub stride: u64,
    /// How many there are.
    pub most: u64,
    /// Address of the number of threads: no more counters than that are in use, the others are 0.
    /// `None` where there is only one counter.
    pub threads: Option<FileAddress>,
    /// Bytes of the number of threads, 4 or 8.
    pub threads_width: u64,
    /// Address of the counter that the threads without one of their own share.
    pub overflow: Option<FileAddress>,
}

impl Counters {
    /// Returns a single counter.
    pub const fn one(address: FileAddress) -> Self {
        Self {
            first: address,
            stride: 8,
            most: 1,
            threads: None,
            threads_width: 8,
            overflow: None,
        }
    }

    /// Returns the bytes from the beginning of the first counter to the end of the last.
    pub const fn bytes(&self) -> u64 {
        self.most
            .saturating_sub(1)
            .saturating_mul(self.stride)
            .saturating_add(8)
    }
}

/// Returns the allocator's counters behind `mem_reported`: the global that it was loaded from, or
/// what the function that returned it adds up. Fails with the reason where they are not known.
pub fn counters_behind(
    image: &Image<'_>,
    mem_reported: &Value,
    execution: &Execution<'_>,
) -> Result<Counters, MemberError> {
    if let Some(address) = execution.atoms.as_global(mem_reported) {
        return Ok(Counters::one(address));
    }
    let atom = mem_reported.as_atom();
    match atom.and_then(|atom| execution.atoms.get(atom)) {
        Some(Atom::Call {
            callee: Some(callee),
            ..
        }) => counters_returned_by(image, *callee),
        _ => Err(MemberError::unknown(
            "mem_reported is neither a global nor the result of a call",
        )),
    }
}

/// Returns the counters that the function at `address`, `zmalloc_used_memory()`, adds up. Fails with
/// the reason where they are not known.
pub fn counters_returned_by(
    image: &Image<'_>,
    address: FileAddress,
) -> Result<Counters, MemberError> {
    let mut function = Function {
        machine: Machine::new(image),
        address,
    };
    let first = function.run(Globals::default())?;
    if let Some(one) = function.one_counter(&first) {
        return Ok(Counters::one(one));
    }
    let mut candidates = first.loads;
    let mut seen = Vec::new();
    candidates.retain(|load| {
        let is_new = !seen.contains(load);
        seen.push(*load);
        is_new && matches!(load.width, 4 | 8)
    });
    candidates.truncate(CANDIDATES);
    let mut found = candidates
        .into_iter()
        .filter_map(|threads| function.counters_of_threads(threads));
    let counters = found
        .next()
        .filter(|_| found.next().is_none())
        .ok_or_else(|| {
            MemberError::unknown(
                "zmalloc_used_memory() returns neither one counter nor the sum of one per thread",
            )
        })?;
    if counters.bytes() > COUNTER_BYTES as u64 {
        return Err(MemberError::Unknown(format!(
            "the allocator has {} counters, {} bytes apart: more than can be read at once",
            counters.most, counters.stride
        )));
    }
    Ok(counters)
}

/// Returns the allocator's counters, by the name of the function that returns them and by what the
/// eviction function uses (`used`). Where both are known they must agree. Fails with the reason where
/// they are not known.
pub fn counters(
    image: &Image<'_>,
    used: Option<Result<Counters, MemberError>>,
) -> Result<Counters, MemberError> {
    let named = image
        .function(ALLOCATOR_FUNCTION)
        .map(|symbol| counters_returned_by(image, symbol.address));
    match (named, used) {
        (Some(Ok(named)), Some(Ok(used))) if named != used => {
            Err(MemberError::Contradiction(format!(
                "zmalloc_used_memory() returns the counter at {:#x}, but the eviction function uses {:#x}",
                named.first, used.first
            )))
        }
        (_, Some(Ok(counters))) | (Some(Ok(counters)), _) => Ok(counters),
        (Some(Err(why)), _) | (None, Some(Err(why))) => Err(why),
        (None, None) => Err(MemberError::unknown(
            "no function called zmalloc_used_memory, and without the goal nothing else leads to its counter",
        )),
    }
}

struct Function<'a, 'data> {
    machine: Machine<'a, 'data>,
    address: FileAddress,
}

impl Function<'_, '_> {
    fn run(&mut self, globals: Globals) -> Result<Outcome, Halt> {
        self.machine.run(self.address, globals)
    }

    /// Returns the one global that is returned, whatever the globals hold.
    fn one_counter(&mut self, first: &Outcome) -> Option<FileAddress> {
        let returned = |outcome: &Outcome, globals: Globals, load: &Load| {
            load.width == 8 && outcome.result == globals.value(load.address)
        };
        let only = *first
            .loads
            .iter()
            .find(|load| returned(first, Globals::default(), load))?;
        SEEDS
            .into_iter()
            .all(|seed| {
                let globals = Globals { seed, chosen: None };
                self.run(globals)
                    .is_ok_and(|outcome| returned(&outcome, globals, &only))
            })
            .then_some(only.address)
    }

    /// Returns the counters, if `threads` is how many threads there are.
    fn counters_of_threads(&mut self, threads: Load) -> Option<Counters> {
        let globals = |count| Globals {
            seed: SEEDS[0],
            chosen: Some((threads, count)),
        };
        // The first counter is what one thread returns, the distance what a second adds.
        let one = self.run(globals(1)).ok()?;
        let first = loaded(&one, threads)
            .into_iter()
            .find(|load| globals(1).value(*load) == one.result)?;
        let two = self.run(globals(2)).ok()?;
        let second_value = two.result.wrapping_sub(globals(2).value(first));
        let second = loaded(&two, threads)
            .into_iter()
            .find(|load| globals(2).value(*load) == second_value)?;
        let stride = second.checked_sub(first).filter(|stride| *stride >= 8)?;

        // Where there are very many threads, all counters are added, and maybe one more.
        let many = self.run(globals(MANY_THREADS)).ok()?;
        let at_most = loaded(&many, threads);
        let elements = (first.get()..)
            .step_by(usize::try_from(stride).ok()?)
            .map(FileAddress::new)
            .take_while(|address| at_most.contains(address));
        let (mut sum, mut most) = (0_u64, 0_u64);
        for element in elements {
            sum = sum.wrapping_add(globals(MANY_THREADS).value(element));
            most += 1;
        }
        let rest = many.result.wrapping_sub(sum);
        let overflow = match rest {
            0 => None,
            rest => Some(
                at_most
                    .into_iter()
                    .find(|load| globals(MANY_THREADS).value(*load) == rest)?,
            ),
        };
        let counters = Counters {
            first,
            stride,
            most,
            threads: Some(threads.address),
            threads_width: threads.width,
            overflow,
        };
        self.is_right(&counters, threads).then_some(counters)
    }

    /// Tells whether the function adds up these counters, for each number of threads that can matter.
    fn is_right(&mut self, counters: &Counters, threads: Load) -> bool {
        let most = counters.most;
        let around_most = [most / 2, most.saturating_sub(1), most, most + 1];
        (0..=THREADS_TRIED)
            .chain(around_most)
            .chain([MANY_THREADS])
            .all(|count| {
                SEEDS.into_iter().all(|seed| {
                    let globals = Globals {
                        seed,
                        chosen: Some((threads, count)),
                    };
                    let overflow = counters.overflow.filter(|_| count > most);
                    let expected = (0..count.min(most))
                        .map(|index| counters.first.wrapping_add(index * counters.stride))
                        .chain(overflow)
                        .fold(0, |sum: u64, at| sum.wrapping_add(globals.value(at)));
                    self.run(globals)
                        .is_ok_and(|outcome| outcome.result == expected)
                })
            })
    }
}

/// Returns the 8-byte globals that were loaded, except the number of threads.
fn loaded(outcome: &Outcome, threads: Load) -> Vec<FileAddress> {
    outcome
        .loads
        .iter()
        .filter(|load| load.width == 8 && load.address != threads.address)
        .map(|load| load.address)
        .collect()
}

#[cfg(test)]
mod tests;
