//! Finds counters of `server` by what INFO prints: the arguments of one call that formats text.
//!
//! `genRedisInfoString()` passes the members whose names INFO shows to a function like `printf`, in the order of the
//! format: the conversion after `evicted_keys:` tells which argument is `stat_evictedkeys`. Two are printed in other
//! units than they are kept in, and must be converted as every version does. The calling convention says where each
//! argument is, and the data flow says what it is. The function is found by the format, so it needs no name.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use evictscope_machine::code::{FunctionCode, references};
use evictscope_machine::elf::Image;
use evictscope_machine::flow::quotient::is_number;
use evictscope_machine::flow::{self, Atom, Atoms, Execution, State, Value};
use evictscope_machine::ir::{Instruction, Operation};
use evictscope_machine::isa::Convention;
use evictscope_model::{FileAddress, Member, Printed};

use crate::names::functions_of;

/// The conversions of integers of 8 bytes.
const WHOLE: [&str; 6] = ["%lld", "%llu", "%ld", "%lu", "%zd", "%zu"];
/// The conversion of a percentage.
const FRACTION: &str = "%.2f";
/// What a fraction is multiplied by to become a percentage.
const HUNDRED: f64 = 100.0;
/// The longest format that is looked at, in bytes.
const MAX_FORMAT: usize = 16 << 10;
/// The most functions that are looked at: one makes INFO, and compilers make few copies of it.
const MAX_FUNCTIONS: usize = 8;
/// How far an object on the stack that others can write by its address is assumed to reach, in bytes: an array of a few
/// numbers.
const REACH: i64 = 64;
/// From how many places a value may be loaded that is the same on each path, with those where paths meet.
const MAX_LOADS: usize = 32;
/// Which argument the format is; before it is the text to append to.
const FORMAT: usize = 1;

/// What the format of a command's counters contains. In 6.x it is the end of a longer one.
const COMMANDS: &str = ":calls=%lld,usec=%lld,";
/// What introduces each counter in it; the last two since 6.2.
const COUNTERS: [&str; 4] = [":calls=", ",usec=", ",rejected_calls=", ",failed_calls="];

/// What INFO says.
#[derive(Debug, Default)]
pub struct Info {
    /// The members that it names, or proves. A later member that it does not is not in this version.
    pub named: BTreeSet<Member>,
    /// The members that it prints, with their addresses.
    pub shown: BTreeMap<Member, FileAddress>,
    /// The functions called by those that make its text.
    pub callees: BTreeSet<FileAddress>,
    /// From where, in an entry of the table of commands, it prints each of [`COUNTERS`]: bytes from the entry's
    /// beginning. `None` for what it does not print, or if it is not certain.
    pub counters: [Option<u64>; COUNTERS.len()],
}

/// Finds out what INFO prints. A member that is not printed as [the list](Member) says, or that two calls print
/// from different places, is missing.
pub fn info(image: &Image<'_>) -> Info {
    let mut info = Info::default();
    let mut formats: Vec<Range<FileAddress>> = Vec::new();
    for (shown, member) in Member::named() {
        let found = image.texts_with(label(shown).as_bytes(), MAX_FORMAT);
        if !found.is_empty() {
            info.named.insert(member);
        }
        formats.extend(found);
    }
    let commands = image.texts_with(COMMANDS.as_bytes(), MAX_FORMAT);
    let functions_with = |texts: &[Range<FileAddress>]| {
        let frames: Vec<_> = references::find(image, texts).into_iter().map(|reference| reference.frame).collect();
        let mut functions = functions_of(image, &frames);
        functions.truncate(MAX_FUNCTIONS);
        functions
    };
    let (of_members, of_commands) = (functions_with(&formats), functions_with(&commands));
    formats.extend(commands);
    let mut printed: BTreeMap<Member, BTreeSet<Option<FileAddress>>> = BTreeMap::new();
    let mut counters = [const { BTreeSet::new() }; COUNTERS.len()];
    let all: BTreeSet<_> = of_members.iter().chain(&of_commands).copied().collect();
    for function in all {
        let Ok(code) = FunctionCode::decode(image, function) else { continue };
        if of_members.contains(&function) {
            let calls = code.blocks.iter().flat_map(|block| &block.instructions);
            info.callees.extend(calls.filter_map(Instruction::callee));
        }
        each_print(image, &code, &formats, |execution, state, top, text| {
            let convention = code.architecture.convention();
            if text.contains(COMMANDS) {
                for (label, found) in COUNTERS.iter().zip(&mut counters) {
                    let argument = text.find(label).and_then(|at| argument_at(convention, text, at + label.len()));
                    let value =
                        argument.and_then(|argument| value_of(convention, &mut execution.atoms, state, top, argument));
                    // Where it was compared with 0, it may be that.
                    if value.as_ref().and_then(Value::as_constant) != Some(0) {
                        found.insert(value.and_then(|value| loaded_from(&code, &execution.atoms, &value)));
                    }
                }
                return;
            }
            for (label, member, shown) in Member::printed() {
                if let Some(place) = place_in(text, label) {
                    let argument = argument_at(convention, text, place).filter(|_| is_whole(text, place, shown));
                    let value =
                        argument.and_then(|argument| value_of(convention, &mut execution.atoms, state, top, argument));
                    let address = value.and_then(|value| member_behind(image, &execution.atoms, &value, shown));
                    printed.entry(member).or_default().insert(address);
                }
            }
        });
    }
    info.counters = counters.map(|found| only(found)?);
    info.shown = printed.into_iter().filter_map(|(member, found)| Some((member, only(found)??))).collect();
    info
}

/// Returns the displacement with which a value was loaded from memory, if it is the same on each path. Where it was
/// compared with 0, it may be that.
fn loaded_from(code: &FunctionCode, atoms: &Atoms, value: &Value) -> Option<u64> {
    let mut displacements = BTreeSet::new();
    let mut options = vec![value.clone()];
    for _ in 0..MAX_LOADS {
        let Some(option) = options.pop() else { break };
        match atoms.get(option.as_atom()?)? {
            Atom::Merged { options: more, .. } => {
                options.extend(more.iter().filter(|of| of.as_constant() != Some(0)).cloned())
            }
            Atom::Opaque { address, index } => {
                let mut all = code.blocks.iter().flat_map(|block| &block.instructions);
                let load = all.find(|load| load.address == *address)?;
                let member = flow::loaded(load, *index).filter(|member| member.index.is_none())?;
                displacements.insert(member.displacement);
            }
            _ => return None,
        }
    }
    only(displacements).filter(|_| options.is_empty())
}

/// Returns the only one, which may occur several times; `None` if there are different ones.
pub fn only<T: Ord>(found: impl IntoIterator<Item = T>) -> Option<T> {
    let mut found: BTreeSet<T> = found.into_iter().collect();
    found.pop_first().filter(|_| found.is_empty())
}

/// Calls `visit` with what is known at each call of a function that formats one of these texts: where its arguments on
/// the stack begin, and the text.
fn each_print<'a>(
    image: &Image<'_>,
    code: &'a FunctionCode,
    formats: &[Range<FileAddress>],
    mut visit: impl FnMut(&mut Execution<'a>, &State, i64, &str),
) {
    let mut atoms = Atoms::new(code.architecture, code.budget.clone());
    atoms.limits.reach = Some(REACH);
    let entry = State::at_entry(&mut atoms);
    let mut execution = Execution::run_from(code, entry, atoms, None);
    let convention = code.architecture.convention();
    for (id, block) in code.blocks.entries().filter(|(_, block)| block.leaves || block.calls()) {
        execution.watch(id, |execution, instruction, state| {
            let is_tail_call =
                block.leaves && block.instructions.last().is_some_and(|last| last.address == instruction.address);
            if !instruction.is_call() && !is_tail_call {
                return;
            }
            let format = convention.argument(FORMAT).and_then(|number| state.registers.get(number)?.as_constant());
            let format = format.map(FileAddress::new);
            let format = format.filter(|format| formats.iter().any(|known| known.contains(format)));
            let text = format.and_then(|format| image.text_at(format, MAX_FORMAT));
            if let Some(text) = text.and_then(|text| std::str::from_utf8(text).ok()) {
                // A tail call leaves the return address on top.
                visit(execution, state, if is_tail_call { convention.pushed_by_call.into() } else { 0 }, text);
            }
        });
    }
}

/// Returns the value of an argument of a call. Those on the stack begin `top` bytes above the stack pointer.
fn value_of(convention: &Convention, atoms: &mut Atoms, state: &State, top: i64, argument: Argument) -> Option<Value> {
    match argument {
        Argument::Register(index) => {
            let number = convention.argument(FORMAT + 1 + index)?;
            state.registers.get(number).cloned()
        }
        Argument::Float(index) => state.lanes.get(&(u8::try_from(index).ok()?, 0)).cloned(),
        Argument::Stack(index) => {
            let top = atoms.stack_offset(&state.registers[convention.stack_pointer()])?.checked_add(top)?;
            let (value, width) = state.stack.get(&top.checked_add_unsigned(8 * index as u64)?)?;
            (*width == 8).then(|| value.clone())
        }
    }
}

/// Returns the address of the member that `value` is computed from, if it is computed as `shown` says.
fn member_behind(image: &Image<'_>, atoms: &Atoms, value: &Value, shown: Printed) -> Option<FileAddress> {
    let address = match shown {
        Printed::AsItIs => atoms.as_global(value)?,
        Printed::Milliseconds => atoms.as_thousandth(value)?,
        Printed::Percentage => {
            let [left, right] = atoms.computed(value, Operation::DoubleProduct)?;
            match [left, right].map(|factor| is_number(image, atoms, factor, HUNDRED)) {
                [true, false] => atoms.as_global(right)?,
                [false, true] => atoms.as_global(left)?,
                _ => return None,
            }
        }
    };
    image.is_writable(address).then_some(address)
}

/// Returns what introduces the value of `shown` in a format.
fn label(shown: &str) -> String {
    format!("\n{shown}:%")
}

/// Returns the place of the conversion whose value is called `shown`.
fn place_in(format: &str, shown: &str) -> Option<usize> {
    let label = label(shown);
    format.find(&label).map(|at| at + label.len() - 1)
}

/// Returns whether the conversion at `place` prints all 8 bytes of its argument.
fn is_whole(format: &str, place: usize, shown: Printed) -> bool {
    let conversion = format.get(place..).unwrap_or_default();
    match shown {
        Printed::Percentage => conversion.starts_with(FRACTION),
        _ => WHOLE.iter().any(|whole| conversion.starts_with(whole)),
    }
}

/// Where an argument is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Argument {
    /// In the register of this argument after the format.
    Register(usize),
    /// In the lower 8 bytes of the vector register with this number.
    Float(usize),
    /// At this place above the stack pointer at the call, in words of 8 bytes.
    Stack(usize),
}

/// Returns the argument of the conversion at `place`. `None` if the format has conversions that are not understood.
fn argument_at(convention: &Convention, format: &str, place: usize) -> Option<Argument> {
    let (mut integers, mut floats, mut on_stack) = (0, 0, 0);
    let registers = convention.arguments.len().saturating_sub(FORMAT + 1);
    let mut rest = 0;
    while let Some(found) = format.get(rest..)?.find('%') {
        let at = rest + found;
        let conversion = format.get(at + 1..)?;
        let modifiers = conversion.find(|letter: char| !"0123456789.lzhjt-+ #".contains(letter))?;
        let letter = conversion.get(modifiers..)?.chars().next()?;
        rest = at + 1 + modifiers + letter.len_utf8();
        let (used, registers, register): (_, _, fn(usize) -> Argument) = match letter {
            '%' => continue,
            'd' | 'i' | 'u' | 'x' | 'X' | 'c' | 's' | 'p' => (&mut integers, registers, Argument::Register),
            'f' | 'F' | 'e' | 'E' | 'g' | 'G' => (&mut floats, convention.vector_arguments, Argument::Float),
            _ => return None,
        };
        let (used, argument) = if *used < registers { (used, register) } else { (&mut on_stack, Argument::Stack as _) };
        if at == place {
            return Some(argument(*used));
        }
        *used += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use evictscope_machine::elf::Image;
    use evictscope_machine::isa::Architecture;
    use evictscope_model::Member;
    use evictscope_testkit::compiler::compile;

    use super::{Argument, info, place_in};

    #[test]
    fn arguments_are_counted_by_kind() {
        let format = "# Stats\r\na:%lld\r\nb:%.2f\r\nc:%s%%\r\nd:%zu\r\ne:%u\r\nf:%d\r\ng:%ld\r\n";
        let argument_at = |format: &str, place| super::argument_at(Architecture::X86_64.convention(), format, place);
        let argument = |name| argument_at(format, place_in(format, name)?);
        assert_eq!(argument("a"), Some(Argument::Register(0)));
        assert_eq!(argument("c"), Some(Argument::Register(1)));
        assert_eq!(argument("e"), Some(Argument::Register(3)));
        assert_eq!(argument("f"), Some(Argument::Stack(0)));
        assert_eq!(argument("g"), Some(Argument::Stack(1)));
        assert_eq!(argument("h"), None);
        assert_eq!(argument_at("%*d\r\na:%d", 5), None);
        // Floats beyond the registers take places on the stack.
        let format = format!("{}%d%d%d%d\na:%d", "%f".repeat(9));
        assert_eq!(place_in(&format, "a").and_then(|place| argument_at(&format, place)), Some(Argument::Stack(1)));
    }

    /// Where the stale share is in the fixture's `server`.
    const STALE: u64 = 512 + 8 * (64 + 2 * 16 + 4 * 16 + 1);

    const LEVELS: [&[&str]; 9] = [
        &["-O0"],
        &["-O1"],
        &["-Os"],
        &["-O2"],
        &["-O2", "-s", "-rdynamic"],
        &["-O3"],
        &["-O3", "-mavx2"],
        &["-O2", "-no-pie", "-fno-pie", "-fno-omit-frame-pointer", "-fcf-protection"],
        &["-O3", "-fstack-protector-all", "-fstack-clash-protection"],
    ];

    /// The form of the fixture that matches Redis.
    const PLAIN: u64 = 0;
    /// The forms in which what is passed as the number of commands is not that member.
    const WRONG: RangeInclusive<u64> = 1..=9;
    /// The forms in which what is passed as a percentage and as milliseconds is something else.
    const OTHER_UNITS: RangeInclusive<u64> = 10..=11;

    #[test]
    fn members_are_found_where_they_are_passed_as_they_are() {
        let mut tried = 0;
        for compiler in ["gcc", "clang"] {
            for level in LEVELS {
                tried += u32::from(check(compiler, level, PLAIN));
            }
        }
        assert_ne!(tried, 0, "neither gcc nor clang is here");
    }

    /// The levels for a compiler for aarch64.
    const ARM_LEVELS: [&[&str]; 6] = [
        &["-O0"],
        &["-O1"],
        &["-Os"],
        &["-O2", "-s", "-rdynamic"],
        &["-O3", "-fstack-protector-all", "-mbranch-protection=standard"],
        &["-O2", "-no-pie", "-fno-pie", "-fno-omit-frame-pointer"],
    ];

    #[test]
    fn members_are_found_in_code_for_another_processor() {
        let gcc = "aarch64-linux-gnu-gcc";
        for level in ARM_LEVELS {
            check(gcc, level, PLAIN);
        }
        for form in WRONG.chain(OTHER_UNITS) {
            check(gcc, ARM_LEVELS[4], form);
        }
        for level in ["-O1", "-O2"] {
            check("clang", &["--target=aarch64-linux-gnu", level], PLAIN);
        }
    }

    #[test]
    fn what_is_not_the_member_itself_is_refused() {
        for compiler in ["gcc", "clang"] {
            for level in [LEVELS[0], LEVELS[1], LEVELS[5]] {
                for form in WRONG.chain(OTHER_UNITS) {
                    check(compiler, level, form);
                }
            }
        }
    }

    /// Compiles a form, and compares what is found with the symbol that the compiler wrote. Returns
    /// whether the compiler is installed.
    fn check(compiler: &str, level: &[&str], form: u64) -> bool {
        let what = format!("{compiler} {level:?} {form}");
        let source = format!("#define FORM {form}\n#include \"info.c\"\n");
        let Some(data) = compile(compiler, &source, level) else { return false };
        let image = Image::parse(&data).unwrap_or_else(|error| panic!("{error}"));
        let server = image.symbols.object("server");
        let server = server.unwrap_or_else(|| panic!("{what}: no server"));
        let at = |offset| Some(server.address.wrapping_add(offset));
        let counter = |index: u64| at(512 + 8 * index);
        let info = info(&image);
        let found = |member| info.shown.get(&member).copied();
        let converted = [(Member::StatExpireCycleTimeUsed, counter(19)), (Member::StatExpiredStalePerc, at(STALE))];
        let unchanged = [
            (Member::StatExpiredSubkeys, counter(13)),
            (Member::StatExpiredkeys, counter(17)),
            (Member::StatExpiredTimeCapReachedCount, counter(18)),
            (Member::StatEvictedkeys, counter(21)),
        ];
        for (member, address) in converted.into_iter().chain(unchanged) {
            assert!(info.named.contains(&member), "{what}: {member:?}");
            if OTHER_UNITS.contains(&form) && converted.contains(&(member, address)) {
                assert_eq!(found(member), None, "{what}: {member:?}");
                continue;
            }
            // What lies near something that others change may be part of it.
            let is_lost = WRONG.contains(&form) && found(member).is_none();
            assert!(is_lost || found(member) == address, "{what}: {member:?}");
        }
        let commands = counter(3).filter(|_| !WRONG.contains(&form));
        assert_eq!(found(Member::StatNumcommands), commands, "{what}");
        true
    }
}
