//! Unwinds a copied stack to the names of functions.

use evictscope_plan::{Architecture, Caller, EVICTION_CALL, EXPIRE_CYCLE, FrameRegisters, TRACED, Work};
use evictscope_probes::StackSample;
use evictscope_records::profile::Activity;

use super::mapped_files::{CodePlace, Mapping, Mappings};

/// The most frames of a stack. A script that calls commands makes some forty.
const MAX_FRAMES: usize = 256;

/// The function that chooses what an eviction call evicts, and that nothing else calls.
const CHOOSING: &str = "evictionPoolPopulate";

/// The functions of one stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Unwound {
    /// Their names, the innermost first.
    pub functions: Vec<String>,
    pub activity: Activity,
    /// Whether it was unwound to the thread's start.
    pub is_whole: bool,
    /// Whether it ended at an address outside of all known mappings.
    pub is_elsewhere: bool,
}

/// Where the code of a frame continues.
#[derive(Clone, Copy)]
struct Frame {
    registers: FrameRegisters,
    /// How far before that the last executed instruction is. A call returns to the address behind it, which may be in
    /// another function if the call never returns.
    back: u64,
}

pub fn unwind(sample: &StackSample<'_>, mappings: &Mappings, work: &mut Work) -> Unwound {
    let first = Frame { registers: FrameRegisters::of_interrupted(Architecture::HOST, sample.registers), back: 0 };
    let mut stack = Unwound { functions: Vec::new(), activity: Activity::Other, is_whole: false, is_elsewhere: false };
    let mut unwinding = Unwinding { sample, mappings, work };
    if let Some(hidden) = unwinding.go_on(&mut stack, first)
        && let Some(found) = unwinding.past_return_probe(&stack, &hidden)
    {
        stack = found;
    }
    stack
}

/// A frame that returns to a probe on the return of its function: the kernel keeps the real return address.
struct Hidden {
    caller: FrameRegisters,
    /// Where it may return to.
    candidates: Vec<u64>,
}

struct Unwinding<'a> {
    sample: &'a StackSample<'a>,
    mappings: &'a Mappings,
    work: &'a mut Work,
}

impl Unwinding<'_> {
    /// Adds the functions from a frame on. If it ended at a probe on a return, returns where.
    fn go_on(&mut self, stack: &mut Unwound, mut frame: Frame) -> Option<Hidden> {
        let mut candidates = Vec::new();
        while stack.functions.len() < MAX_FRAMES {
            let address = frame.registers.instruction_pointer()?;
            // The kernel's code begins at the first byte of its mapping.
            let returns_to = self.mappings.at(address);
            if frame.back > 0 && returns_to.is_some_and(|mapping| mapping.is_return_probe) {
                return Some(Hidden { caller: frame.registers, candidates });
            }
            let address = address.wrapping_sub(frame.back);
            let Some(mapping) = self.mappings.at(address) else {
                stack.is_elsewhere = true;
                return None;
            };
            let Some(place) = mapping.place(address) else {
                stack.functions.push(format!("[{}]", mapping.name));
                return None;
            };
            stack.add(mapping, &place);
            let read = |at| self.sample.word(at);
            frame = match place.file.caller(self.work, place.at, &frame.registers, &read) {
                Some(Caller::Called(registers)) => Frame { registers, back: 1 },
                Some(Caller::Interrupted(registers)) => Frame { registers, back: 0 },
                // Nothing is above only where the process begins, but the tables may say so elsewhere.
                Some(Caller::Nothing) | None => {
                    stack.is_whole = place.file.is_start(place.at);
                    return None;
                }
            };
            candidates = place.returns();
        }
        None
    }

    /// Goes on behind a probe on a return. Of all calls of the function, only the one that was made unwinds to the
    /// thread's start; if several do, their functions must be the same.
    fn past_return_probe(&mut self, stack: &Unwound, hidden: &Hidden) -> Option<Unwound> {
        let mut found: Option<Unwound> = None;
        for candidate in &hidden.candidates {
            let registers = hidden.caller.going_on_at(*candidate);
            let mut other = stack.clone();
            if self.go_on(&mut other, Frame { registers, back: 1 }).is_some() || !other.is_whole {
                continue;
            }
            if found.as_ref().is_some_and(|found| *found != other) {
                return None;
            }
            found = Some(other);
        }
        found
    }
}

impl Unwound {
    /// Adds the function at a place in the file of a mapping. A stack that is too deep to be copied may show what an
    /// eviction call calls, and not the call: [`CHOOSING`] has as many pointers on it as keys are sampled.
    fn add(&mut self, mapping: &Mapping, place: &CodePlace<'_>) {
        let function = place.file.function(place.at);
        if let Some(kind) = function.and_then(|function| TRACED.get(function.traced?)) {
            if kind.description == EVICTION_CALL.description {
                self.activity = Activity::EvictionCall;
            } else if kind.description == EXPIRE_CYCLE.description && self.activity == Activity::Other {
                self.activity = Activity::ExpireCycle;
            }
        }
        let unnamed = || match place.file.beginning(place.at) {
            Some(begin) => format!("{}+{begin:#x}", mapping.name),
            None => format!("[{}]", mapping.name),
        };
        let name = function.map_or_else(unnamed, |function| function.name.clone());
        if name == CHOOSING {
            self.activity = Activity::EvictionCall;
        }
        self.functions.push(name);
    }
}
