//! The allocator's counters (`used_memory` in zmalloc.c): what `zmalloc_used_memory()` adds up.
//!
//! Until Redis 7.4 and Valkey 7.2 it is one counter. Redis 8 has one for each of 16 threads, 64 bytes
//! apart (a 17th thread shares the first's). Valkey 8 has one for each thread, 8 bytes apart, and one
//! more for the threads that find no place there. Both look only at as many as there were threads. A
//! counter can be negative: a thread may free what another allocated.
//!
//! The function is run on a [`Machine`] to find out what it adds up, for each small number of threads and around
//! every bound that it turns out to have. So all parts of a loop that a compiler unrolled or vectorised are tried.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::COUNTER_BYTES;
use evictscope_machine::code::{Block, FunctionCode};
use evictscope_machine::elf::Image;
use evictscope_machine::flow::interpreter::{Halt, Interpreter, Load};
use evictscope_machine::flow::{Atom, Execution, Value};
use evictscope_model::FileAddress;
use serde::Serialize;

use super::sources::MemberError;

/// What `mem_reported` comes from.
const ALLOCATOR_FUNCTION: &str = "zmalloc_used_memory";
/// Every number of threads up to this is tried: past what compilers unroll and peel off.
const THREADS_TRIED: u64 = 20;
/// More threads than any allocator has counters.
const MANY_THREADS: u64 = 0x3fff_ffff;
/// How many functions may do nothing but go on with another one, as an entry of a table of jumps does.
const MAX_JUMPS: usize = 4;
/// The most loads that are tried as the number of threads.
const CANDIDATES: usize = 4;

/// Counters of an allocator that are added up: one per thread, or only one.
#[derive(BorshDeserialize, BorshSerialize, Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Virtual address of the first, as in the ELF file; each has 8 bytes.
    #[serde(skip)]
    pub first: FileAddress,
    /// Distance between two, in bytes.
    pub stride: u64,
    /// How many there are.
    pub most: u64,
    /// Address of the number of threads: no more counters than that are in use; the others are 0.
    /// `None` if there is only one counter.
    pub threads: Option<FileAddress>,
    /// Bytes of the number of threads, 4 or 8.
    pub threads_width: u64,
    /// Address of the counter shared by the threads that have none of their own.
    pub overflow: Option<FileAddress>,
}

impl Counters {
    /// Returns a single counter.
    pub const fn single(address: FileAddress) -> Self {
        Self { first: address, stride: 8, most: 1, threads: None, threads_width: 8, overflow: None }
    }

    /// Returns the bytes from the beginning of the first counter to the end of the last.
    pub const fn bytes(&self) -> u64 {
        self.most.saturating_sub(1).saturating_mul(self.stride).saturating_add(8)
    }
}

/// Returns the allocator's counters behind `mem_reported`: the global that it was loaded from, or
/// what the function that returned it adds up. Fails with the reason if they are not known.
pub fn counters_behind(
    image: &Image<'_>,
    mem_reported: &Value,
    execution: &Execution<'_>,
) -> Result<Counters, MemberError> {
    if let Some(address) = execution.atoms.as_global(mem_reported) {
        return Ok(Counters::single(address));
    }
    let atom = mem_reported.as_atom();
    match atom.and_then(|atom| execution.atoms.get(atom)) {
        Some(Atom::Call { callee: Some(callee), .. }) => counters_returned_by(image, *callee),
        _ => Err(MemberError::unknown("mem_reported is neither a global nor the result of a call")),
    }
}

/// Returns the counters that the function at `address`, `zmalloc_used_memory()`, adds up. Fails with
/// the reason if they are not known.
pub fn counters_returned_by(image: &Image<'_>, address: FileAddress) -> Result<Counters, MemberError> {
    let decode = |address| FunctionCode::decode(image, address).map_err(|_| Halt::Instruction(address));
    let mut code = decode(address)?;
    for _ in 0..MAX_JUMPS {
        let [Some(next)] = *code.blocks.iter().map(Block::tail_callee).collect::<Vec<_>>() else { break };
        code = decode(next)?;
    }
    let mut machine = Interpreter::new(image, &code);
    match machine.run(None) {
        Ok(Some(globals)) if globals.len() == 1 => return Ok(Counters::single(globals[0])),
        Err(why @ (Halt::Instruction(_) | Halt::Endless)) => return Err(why.into()),
        // How many threads there are decides.
        _ => {}
    }
    let mut candidates: Vec<Load> = Vec::new();
    for load in std::mem::take(&mut machine.loads) {
        if !candidates.contains(&load) && matches!(load.1, 4 | 8) {
            candidates.push(load);
        }
    }
    candidates.truncate(CANDIDATES);
    let mut found = candidates.into_iter().filter_map(|threads| counters_of_threads(&mut machine, threads));
    let counters = found.next().filter(|_| found.next().is_none()).ok_or_else(|| {
        MemberError::unknown("zmalloc_used_memory() returns neither one counter nor the sum of one per thread")
    })?;
    if counters.bytes() > COUNTER_BYTES as u64 {
        return Err(MemberError::Unknown(format!(
            "the allocator has {} counters, {} bytes apart: more than can be read at once",
            counters.most, counters.stride
        )));
    }
    Ok(counters)
}

/// Returns the allocator's counters, found by the name of the function that returns them and by what the eviction
/// function uses (`used`). If both are known they must agree. Fails with the reason if they are not known.
pub fn counters(image: &Image<'_>, used: Option<Result<Counters, MemberError>>) -> Result<Counters, MemberError> {
    let named = image.symbols.function(ALLOCATOR_FUNCTION).map(|symbol| counters_returned_by(image, symbol.address));
    match (named, used) {
        (Some(Ok(named)), Some(Ok(used))) if named != used => Err(MemberError::Contradiction(format!(
            "zmalloc_used_memory() returns the counter at {:#x}, but the eviction function uses {:#x}",
            named.first, used.first
        ))),
        (_, Some(Ok(counters))) | (Some(Ok(counters)), _) => Ok(counters),
        (Some(Err(why)), _) | (None, Some(Err(why))) => Err(why),
        (None, None) => Err(MemberError::unknown(
            "no function called zmalloc_used_memory, and without the goal nothing else leads to its counter",
        )),
    }
}

/// Returns the counters, if `threads` is the number of threads.
fn counters_of_threads(machine: &mut Interpreter<'_, '_>, threads: Load) -> Option<Counters> {
    let mut added = |count| machine.run(Some((threads, count))).ok()?;
    // One thread reads only the first counter; what a second adds gives the distance.
    let [first] = added(1)?[..] else { return None };
    let stride =
        added(2)?.iter().find(|address| **address != first)?.checked_sub(first).filter(|stride| *stride >= 8)?;

    // With very many threads, all counters are added, and maybe one more.
    let all = added(MANY_THREADS)?;
    let counter = |index: u64| first.wrapping_add(index * stride);
    let is_added = |index: &u64| all.contains(&counter(*index));
    let most = (0..all.len() as u64).take_while(is_added).count() as u64;
    let is_other = |address: &&FileAddress| (0..most).all(|index| counter(index) != **address);
    let overflow = all.iter().find(is_other).copied();

    let around_most = [most / 2, most.saturating_sub(1), most, most + 1];
    let counts = (0..=THREADS_TRIED).chain(around_most).chain([MANY_THREADS]);
    let is_right = |count: u64| {
        let overflow = overflow.filter(|_| count > most);
        let mut expected: Vec<FileAddress> = (0..count.min(most)).map(counter).chain(overflow).collect();
        expected.sort_unstable();
        added(count) == Some(expected)
    };
    { counts }.all(is_right).then_some(Counters {
        first,
        stride,
        most,
        threads: Some(threads.0),
        threads_width: threads.1.into(),
        overflow,
    })
}

#[cfg(test)]
mod tests {
    use evictscope_machine::elf::Image;
    use evictscope_testkit::compiler::compile;

    use super::{Counters, counters_returned_by};

    const LEVELS: [&[&str]; 9] = [
        &["-O0"],
        &["-O0", "-fstack-protector-all"],
        &["-Os"],
        &["-O1"],
        &["-O2"],
        &["-O3"],
        &["-O3", "-no-pie", "-fno-pie", "-fcf-protection"],
        &["-O3", "-march=haswell"],
        &["-O3", "-march=skylake-avx512"],
    ];

    #[test]
    fn every_form_is_understood_as_it_is_compiled_and_no_other() {
        // What should be found for each form: distance, counters, and whether there is an overflow.
        let expected = [
            (0, Some((8, 1, false))),
            (1, Some((64, 16, false))),
            (2, Some((8, 20, true))),
            (3, Some((8, 260, true))),
            (4, None),
            (5, None),
            (6, None),
            (7, None),
            (8, Some((8, 20, true))),
        ];
        let mut tried = 0;
        for compiler in ["gcc", "clang"] {
            for level in LEVELS {
                for (form, counters) in expected {
                    let source = format!("#define FORM {form}\n#include \"counters.c\"\n");
                    let Some(data) = compile(compiler, &source, level) else { continue };
                    tried += 1;
                    check(&data, counters, &format!("{compiler} {level:?} {form}"));
                }
            }
        }
        assert_ne!(tried, 0, "neither gcc nor clang is here");
    }

    /// Expects the addresses of the symbols that the compiler wrote.
    fn check(data: &[u8], expected: Option<(u64, u64, bool)>, what: &str) {
        let image = Image::parse(data).unwrap_or_else(|error| panic!("{error}"));
        let counters = |name| {
            let function = image.symbols.function(name).unwrap_or_else(|| panic!("{what}: no {name}"));
            counters_returned_by(&image, function.address)
        };
        let found = counters("zmalloc_used_memory");
        assert_eq!(counters("entry").ok(), found.as_ref().ok().copied(), "{what}");
        let Some((stride, most, has_overflow)) = expected else {
            assert!(found.is_err(), "{what}: {found:?}");
            return;
        };
        let address_of = |name| image.symbols.object(name).map(|symbol| symbol.address);
        let first = address_of("used_memory")
            .or_else(|| address_of("used_memory_thread").filter(|_| most < 260))
            .or_else(|| address_of("padded").map(|padded| padded.wrapping_add(7 * 8)));
        let single = first.map(Counters::single);
        let expected = match most {
            1 => single,
            _ => single.map(|single| Counters {
                stride,
                most,
                threads: address_of("active_threads"),
                threads_width: if stride == 64 { 8 } else { 4 },
                overflow: address_of("further_threads").filter(|_| has_overflow),
                ..single
            }),
        };
        assert_eq!(found.ok(), expected, "{what}");
    }
}
