//! Finds which function is the expire cycle, by its symbol, by the text under which it reports its duration,
//! and by the moving average that it keeps. The latency report mentions that text too, but keeps no average.
//!
//! Since Valkey 9.0 a cycle is two jobs, one for keys and one for fields of hashes, each of which keeps an
//! average. Compilers make one function that both share, or two. These functions are traced themselves,
//! because only they show which cycles do nothing. If two cannot be told apart, their caller is traced.
//!
//! The moving average that a cycle ends with: `current * 0.05 + stat_expired_stale_perc * 0.95`.
//!
//! Every cycle that gets past the early returns computes it, and nothing else in a server looks like it.
//! `current` is the share of the sampled keys that had expired, or 0 if none was sampled.

use evictscope_machine::code::{BlockId, FunctionCode, InstructionId};
use evictscope_machine::elf::Image;
use evictscope_machine::flow::{Execution, quotient};
use evictscope_model::FileAddress;

use super::start::ByType;
use crate::names::Texts;

/// Its name.
pub const NAME: &str = "activeExpireCycle";
/// The text under which it reports its duration.
pub const TEXT: &str = "expire-cycle";
/// The most functions that are looked into.
const MAX_FUNCTIONS: usize = 8;
/// The most functions called by one function that are looked into.
const MAX_CALLEES: usize = 64;

/// A function that a cycle may be, or that is one of its two jobs.
pub struct CycleFunction {
    pub address: FileAddress,
    /// The numbers of the registers that hold the type when it is called, as far as they are known.
    pub type_registers: Vec<usize>,
}

/// The expire cycle.
pub struct FoundCycle {
    pub function: CycleFunction,
    /// Whether it is a job of a cycle: for keys, or for fields of hashes.
    pub is_job: bool,
    /// The number of the register that then tells which job it is, if that is known: 0 for keys, 1 for fields of
    /// hashes.
    pub job_register: Option<usize>,
    /// The calls of its jobs. Empty if it does its work itself.
    pub jobs: Vec<JobCall>,
    /// The functions that they call, if there are two.
    pub job_functions: Option<[CycleFunction; 2]>,
}

pub struct JobCall {
    function: FileAddress,
    pub call: InstructionId,
    pub address: FileAddress,
}

/// Finds the expire cycle. Fails if it is not certain which function it is, or if symbol and
/// text contradict each other.
pub fn expire_cycle(image: &Image<'_>, texts: &Texts) -> Result<FoundCycle, String> {
    let named = image.symbols.function(NAME).map(|symbol| symbol.address);
    let mentioned = if texts.has(TEXT) { texts.functions(image, TEXT) } else { Vec::new() };
    if mentioned.len() > MAX_FUNCTIONS {
        return Err(format!("{} functions mention the text \"{TEXT}\"", mentioned.len()));
    }
    let first = image.architecture.convention().argument(0);
    let candidate = |address| CycleFunction { address, type_registers: first.into_iter().collect() };
    let candidates = match named {
        None if !texts.has(TEXT) => {
            return Err(format!("no function called {NAME}, nor the text \"{TEXT}\": not a Redis server"));
        }
        None => mentioned.into_iter().map(candidate).collect(),
        Some(named) => {
            let mut candidates = vec![candidate(named)];
            if !mentioned.is_empty() {
                candidates.extend(tail_calls(image, named));
                candidates.retain(|function| mentioned.contains(&function.address));
            }
            if candidates.is_empty() {
                return Err(format!(
                    "{NAME} is at {named:#x}, but neither mentions the text \"{TEXT}\" nor tail-calls a function that does"
                ));
            }
            candidates
        }
    };
    let cycles = candidates.into_iter().map(|candidate| cycle(image, candidate));
    let mut cycles: Vec<FoundCycle> = cycles.collect::<Result<Vec<_>, String>>()?.into_iter().flatten().collect();
    match (cycles.pop(), cycles.len()) {
        (Some(only), 0) => Ok(only),
        (None, _) => Err(format!(
            "no function that mentions the text \"{TEXT}\" keeps a moving average of expired keys, nor calls one that does"
        )),
        (Some(_), others) => Err(format!(
            "{} functions that mention the text \"{TEXT}\" keep a moving average of expired keys",
            others + 1
        )),
    }
}

/// Returns the cycle that a function is, if it keeps the average, or calls functions that do. Fails if it
/// does both: some jobs would not be seen.
fn cycle(image: &Image<'_>, candidate: CycleFunction) -> Result<Option<FoundCycle>, String> {
    let Ok(code) = FunctionCode::decode(image, candidate.address) else { return Ok(None) };
    let jobs = jobs(image, &code)?;
    let averages = !blocks(image, &code).is_empty();
    if averages && !jobs.is_empty() {
        return Err(format!(
            "the function at {:#x} keeps a moving average of expired keys and calls another that does",
            candidate.address
        ));
    }
    let mut job_functions = match jobs[..] {
        [] => Vec::new(),
        _ => job_functions(&code, &candidate.type_registers, &jobs),
    };
    if job_functions.len() == 1
        && let Some(function) = job_functions.pop()
    {
        // `activeExpireCycleJob(jobType, cycleType, …)`, unless the compiler changed its arguments.
        let [job, of_type] = [0, 1].map(|index| code.architecture.convention().argument(index));
        let has_type = |of_type| function.type_registers.contains(&of_type);
        let job_register = job.filter(|_| of_type.is_some_and(has_type));
        return Ok(Some(FoundCycle { function, is_job: true, job_register, jobs: Vec::new(), job_functions: None }));
    }
    Ok((averages || !jobs.is_empty()).then_some(FoundCycle {
        function: candidate,
        is_job: false,
        job_register: None,
        jobs,
        job_functions: job_functions.try_into().ok(),
    }))
}

/// Returns the functions of jobs, each with the registers that hold the type at all its calls. The type came in
/// `registers`. The callee may save a register that is not an argument.
fn job_functions(code: &FunctionCode, registers: &[usize], jobs: &[JobCall]) -> Vec<CycleFunction> {
    let mut by_type = ByType::run(code, registers);
    let mut functions: Vec<CycleFunction> = Vec::new();
    for job in jobs {
        let holding = by_type.registers(job.call);
        let before = functions.iter_mut().find(|function| function.address == job.function);
        match before {
            Some(function) => function.type_registers.retain(|register| holding.contains(register)),
            None => functions.push(CycleFunction { address: job.function, type_registers: holding }),
        }
    }
    functions
}

/// Returns where a function calls others that keep the average. Fails if it calls too many to look into.
fn jobs(image: &Image<'_>, code: &FunctionCode) -> Result<Vec<JobCall>, String> {
    let mut known: Vec<(FileAddress, bool)> = Vec::new();
    let mut jobs = Vec::new();
    for (id, block) in code.blocks.entries() {
        for (index, call) in block.instructions.iter().enumerate() {
            let Some(function) = call.callee() else { continue };
            let before = known.iter().find(|(called, _)| *called == function);
            let is_job = match before {
                Some((_, is_job)) => *is_job,
                None if known.len() >= MAX_CALLEES => {
                    return Err(format!(
                        "a function that mentions the text \"{TEXT}\" calls more than {MAX_CALLEES} others"
                    ));
                }
                None => {
                    let code = FunctionCode::decode(image, function);
                    let is_job = code.is_ok_and(|code| !blocks(image, &code).is_empty());
                    known.push((function, is_job));
                    is_job
                }
            };
            if is_job {
                jobs.push(JobCall { function, call: id.instruction(index), address: call.address });
            }
        }
    }
    Ok(jobs)
}

fn tail_calls(image: &Image<'_>, function: FileAddress) -> Vec<CycleFunction> {
    let Ok(code) = FunctionCode::decode(image, function) else { return Vec::new() };
    let first = image.architecture.convention().argument(0);
    let mut by_type = ByType::run(&code, first.as_slice());
    let mut found: Vec<CycleFunction> = Vec::new();
    for (id, block) in code.blocks.entries() {
        if let Some(address) = block.tail_callee()
            && found.len() < MAX_FUNCTIONS
            && found.iter().all(|other| other.address != address)
        {
            let jump = block.instructions.len().saturating_sub(1);
            let holding = by_type.registers(id.instruction(jump));
            found.push(CycleFunction { address, type_registers: holding });
        }
    }
    found
}

/// The weight of this cycle's share.
pub const OF_THIS_CYCLE: f64 = 0.05;
/// The weight of the average so far.
const OF_THE_PAST: f64 = 0.95;

/// Returns the blocks in which something is multiplied by the weight of the past.
pub fn blocks(image: &Image<'_>, code: &FunctionCode) -> Vec<BlockId> {
    quotient::blocks_multiplying(image, code, OF_THE_PAST)
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
            let past = quotient::multiplied(image, atoms, &state, instruction, OF_THE_PAST);
            kept.extend(past.iter().map(|value| atoms.as_global(value)));
        }
    }
    kept.dedup();
    if let [Some(address)] = kept[..] { Some(address) } else { None }
}
