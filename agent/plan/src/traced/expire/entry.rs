//! Which function is the expire cycle: by its symbol, by the text that it reports its duration under, and
//! by the moving average that it keeps. The latency report mentions that text too, but keeps no average.
//!
//! Since Valkey 9.0 the cycle is two jobs, of which one expires keys and the other fields of hashes, each with
//! an average of its own. What is traced there is the job that expires keys.

use iced_x86::{FlowControl, Mnemonic};

use super::average;
use super::kind::ByType;
use crate::code::block::InstructionId;
use crate::code::graph::FunctionCode;
use crate::code::instruction::{callee, target};
use crate::code::registers::{PASSED, RDI};
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::names::Texts;

/// Its name.
const NAME: &str = "activeExpireCycle";
/// The name of the job that expires keys.
const JOB: &str = "activeExpireCycleJob";
/// The text that it reports its duration under.
pub const TEXT: &str = "expire-cycle";
/// Most functions that are looked into.
const MAX_FUNCTIONS: usize = 8;
/// Most functions that one function calls which are looked into.
const MAX_CALLEES: usize = 64;

/// The function that does what is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cycle {
    pub name: &'static str,
    pub address: FileAddress,
    /// The number of the register that it is called with the type in.
    pub type_register: Option<usize>,
}

/// Finds the expire cycle. Fails where it is not certain which function it is, or symbol and text
/// contradict each other.
pub fn expire_cycle(image: &Image<'_>, texts: &Texts) -> Result<Cycle, String> {
    let named = image.function(NAME).map(|symbol| symbol.address);
    let mut mentioned = match texts.has(TEXT) {
        true => texts.functions(image, TEXT),
        false => Vec::new(),
    };
    mentioned.truncate(MAX_FUNCTIONS);
    let whole = match named {
        None if !texts.has(TEXT) => {
            return Err(format!(
                "no function called {NAME}, nor the text \"{TEXT}\": not a Redis server"
            ));
        }
        None => mentioned,
        Some(named) if mentioned.is_empty() => vec![named],
        Some(named) => {
            let mut own = vec![named];
            own.extend(tail_calls(image, named));
            own.retain(|function| mentioned.contains(function));
            if own.is_empty() {
                return Err(format!(
                    "{NAME} is at {named:#x}, but neither mentions the text \"{TEXT}\" nor goes on in a function that does"
                ));
            }
            own
        }
    };
    let mut cycles: Vec<Cycle> = whole
        .into_iter()
        .flat_map(|function| cycles_in(image, function))
        .collect();
    cycles.dedup();
    match cycles.as_slice() {
        [only] => Ok(*only),
        [] => Err(format!(
            "no function that mentions the text \"{TEXT}\" keeps a moving average of expired keys, nor calls one that does"
        )),
        several => Err(format!(
            "{} functions that mention the text \"{TEXT}\" keep a moving average of expired keys",
            several.len()
        )),
    }
}

/// Returns the function if it keeps the average, else the one of those that it calls which keeps that of
/// keys.
fn cycles_in(image: &Image<'_>, function: FileAddress) -> Vec<Cycle> {
    let Ok(code) = FunctionCode::decode(image, function) else {
        return Vec::new();
    };
    if !average::blocks(image, &code).is_empty() {
        return vec![Cycle {
            name: NAME,
            address: function,
            type_register: Some(RDI),
        }];
    }
    let mut jobs = jobs_of(image, &code);
    if jobs.len() > 1 {
        jobs.retain(|job| job.averages_time_to_live);
    }
    let mut by_type = ByType::run(&code, RDI);
    let cycle = |job: &Job| Cycle {
        name: JOB,
        address: job.address,
        type_register: job.type_register(&mut by_type),
    };
    jobs.iter().map(cycle).collect()
}

/// A job that keeps an average.
struct Job {
    address: FileAddress,
    /// Whether it averages how long keys still live, which is unknown of fields: the only signed division.
    averages_time_to_live: bool,
    /// Where it is called.
    calls: Vec<InstructionId>,
}

impl Job {
    /// Returns the register that it is called with the type in, everywhere.
    fn type_register(&self, by_type: &mut ByType<'_>) -> Option<usize> {
        let mut registers = PASSED.to_vec();
        for call in &self.calls {
            let here = by_type.registers_at(*call);
            registers.retain(|register| here.contains(register));
        }
        match registers.as_slice() {
            [only] => Some(*only),
            _ => None,
        }
    }
}

/// Returns the functions with an average that a function calls.
fn jobs_of(image: &Image<'_>, code: &FunctionCode) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut others: Vec<FileAddress> = Vec::new();
    for (id, block) in code.blocks.entries() {
        for (index, instruction) in block.instructions.iter().enumerate() {
            let Some(address) = callee(instruction) else {
                continue;
            };
            let call = id.instruction(index);
            if let Some(job) = jobs.iter_mut().find(|job| job.address == address) {
                job.calls.push(call);
            } else if !others.contains(&address) && others.len() < MAX_CALLEES {
                match job_at(image, address, call) {
                    Some(job) => jobs.push(job),
                    None => others.push(address),
                }
            }
        }
    }
    jobs
}

fn job_at(image: &Image<'_>, address: FileAddress, call: InstructionId) -> Option<Job> {
    let code = FunctionCode::decode(image, address).ok()?;
    let mut instructions = code.blocks.iter().flat_map(|block| &block.instructions);
    (!average::blocks(image, &code).is_empty()).then(|| Job {
        address,
        averages_time_to_live: instructions.any(|own| own.mnemonic() == Mnemonic::Idiv),
        calls: vec![call],
    })
}

/// Returns the functions that a function goes on in without coming back.
fn tail_calls(image: &Image<'_>, function: FileAddress) -> Vec<FileAddress> {
    let Ok(code) = FunctionCode::decode(image, function) else {
        return Vec::new();
    };
    let last = code.blocks.iter().filter(|block| block.leaves);
    let last = last.filter_map(|block| block.instructions.last());
    let jumps = last.filter(|own| own.flow_control() == FlowControl::UnconditionalBranch);
    jumps.map(target).take(MAX_FUNCTIONS).collect()
}
