//! Compares where the plan has the keys of an expire cycle with where the debug information has the variables.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests compile programs and read files"
)]

use anyhow::Context as _;
use evictscope_machine::dwarf::{Asked, Base, Globals, Location, Sections, Units, Variables, variables};
use evictscope_machine::isa::{Architecture, Register};
use evictscope_machine::stacks::{Caller, CodeFile, FrameRegisters, Work};
use evictscope_model::FileAddress;
use evictscope_plan::{EXPIRE_CYCLE, Operand};
use evictscope_testkit::compiler;

const CYCLE: Asked<'static> = Asked { names: &["activeExpireCycle"], entry: None };
const KEYS: [&str; 2] = ["total_sampled", "total_expired"];
/// What the files are for, and the place of the stack pointer among the registers of an interrupted thread.
const ARCHITECTURE: Architecture = Architecture::X86_64;
const KEPT_RSP: usize = 19;

/// Returns where the variables of the cycle are.
fn described(data: &[u8]) -> anyhow::Result<Variables> {
    let sections = Sections::read(data)?.context("no debug information")?;
    let units = Units::read(&sections)?;
    let function = Globals::find(&units, &[], CYCLE)?.function(CYCLE).context("no cycle")?;
    Ok(variables(&units, function.id, "", &KEYS)?)
}

/// Returns how far the stack pointer before an instruction is below where it was before the function was called.
fn frame(file: &CodeFile, at: FileAddress) -> anyhow::Result<i64> {
    let mut kept = [0; 21];
    kept[KEPT_RSP] = 1 << 20;
    let registers = FrameRegisters::of_interrupted(ARCHITECTURE, &kept);
    let Some(Caller::Called(caller)) = file.caller(&mut Work::default(), at, &registers, &|_| Some(1)) else {
        anyhow::bail!("no frame at {at:#x}");
    };
    Ok((caller.stack_pointer().context("no stack pointer")? - kept[KEPT_RSP]).cast_signed())
}

/// Returns the offset of a stack slot from the stack pointer, which at the entry is below the return address.
fn slot(location: &Location, frame: i64) -> Option<i64> {
    let Location::Memory(sum) = location else { return None };
    let is_stack = |register: Register| register.number == ARCHITECTURE.convention().stack_pointer;
    matches!(sum.terms[..], [(Base::AtEntry(base), 1)] if is_stack(base))
        .then(|| sum.constant.cast_signed() - 8 + frame)
}

#[test]
fn keys_are_in_the_slots_of_the_variables() -> anyhow::Result<()> {
    let mut compared = 0;
    let mut compiled = false;
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for form in [&[][..], &["-DCALLBACK"], &["-DCALLBACK", "-DFIELDS"]] {
            let options = [&[level, "-g", "-fomit-frame-pointer"], form].concat();
            let program = "#include \"expire.c\"\n";
            let Some(data) = compiler::compile("gcc", program, &options) else { continue };
            compiled = true;
            let plan = evictscope_plan::plan(&data, None)?;
            let function = plan.function(EXPIRE_CYCLE.description).context("no cycle")?;
            let (described, file) = (described(&data)?, CodeFile::read(&data)?);
            let ends = &function.plan.expire().context("another plan")?.ends;
            for (exit, end) in function.span.exits.iter().zip(ends) {
                let at = exit.site.address;
                let frame = frame(&file, at)?;
                for (name, operand) in KEYS.into_iter().zip([&end.sampled, &end.expired]) {
                    let variable = described.local.iter().find(|variable| variable.name == name);
                    let slot = variable.and_then(|variable| slot(variable.at(at)?, frame));
                    if let (Some(Operand::Memory { base, displacement, width: 8 }), Some(slot)) = (operand, slot)
                        && base.number == ARCHITECTURE.convention().stack_pointer
                    {
                        assert_eq!(*displacement, slot, "{options:?}: {name} at {at:#x}");
                        compared += 1;
                    }
                }
            }
        }
    }
    // At least those that are not optimised.
    assert!(!compiled || compared >= 6, "only {compared} compared");
    Ok(())
}
