//! From a copied stack to the names of functions.

use evictscope_plan::{Caller, EVICTION_CALL, EXPIRE_CYCLE, Registers, TRACED, Work};

use super::mapped_files::{Mapping, Mappings};
use super::taken::Activity;
use crate::probes::Sample;

/// Most frames of a stack. A script that calls commands makes some forty.
const MAX_FRAMES: usize = 256;

/// The functions of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unwound {
    /// Their names, the innermost first.
    pub functions: Vec<String>,
    /// What ran.
    pub activity: Activity,
    /// Whether it was unwound to the thread's start.
    pub is_whole: bool,
    /// Whether it ended at an address that no known mapping has.
    pub is_elsewhere: bool,
}

/// Unwinds a sample.
pub fn unwind(sample: &Sample<'_>, mappings: &Mappings, work: &mut Work) -> Unwound {
    let mut stack = Unwound {
        functions: Vec::new(),
        activity: Activity::Other,
        is_whole: false,
        is_elsewhere: false,
    };
    let mut registers = Registers::of_interrupted(sample.registers);
    // A call returns to behind itself, which may be in another function where it never returns.
    let mut back = 0;
    while stack.functions.len() < MAX_FRAMES {
        let Some(address) = registers.instruction_pointer() else {
            break;
        };
        let address = address.wrapping_sub(back);
        let Some(mapping) = mappings.at(address) else {
            stack.is_elsewhere = true;
            break;
        };
        let Some(place) = mapping.place(address) else {
            stack.functions.push(format!("[{}]", mapping.name));
            break;
        };
        stack.add(mapping, address);
        let caller = place
            .file
            .caller(work, place.at, &registers, &|at| sample.word(at));
        match caller {
            Some(Caller::Called(next)) => (registers, back) = (next, 1),
            Some(Caller::Interrupted(next)) => (registers, back) = (next, 0),
            // Only where the process begins is nothing above; the tables may say so elsewhere.
            Some(Caller::Nothing) | None => {
                stack.is_whole = place.file.is_start(place.at);
                break;
            }
        }
    }
    stack
}

impl Unwound {
    /// Adds the function at an address of a mapping with a file.
    fn add(&mut self, mapping: &Mapping, address: u64) {
        let Some(place) = mapping.place(address) else {
            return;
        };
        let function = place.file.function(place.at);
        let traced = function.and_then(|function| function.traced);
        let kind = traced.and_then(|index| TRACED.get(index));
        if let Some(kind) = kind {
            if kind.description == EVICTION_CALL.description {
                self.activity = Activity::EvictionCall;
            } else if kind.description == EXPIRE_CYCLE.description
                && self.activity == Activity::Other
            {
                self.activity = Activity::ExpireCycle;
            }
        }
        let unnamed = || match place.file.beginning(place.at) {
            Some(begin) => format!("{}+{begin:#x}", mapping.name),
            None => format!("[{}]", mapping.name),
        };
        let name = function.map_or_else(unnamed, |function| function.name.clone());
        self.functions.push(name);
    }
}
