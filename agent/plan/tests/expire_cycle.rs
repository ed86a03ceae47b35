//! Compares where the plan has the keys of an expire cycle with where the debug information has the variables.
#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "tests compile programs and read files"
)]

use anyhow::Context as _;
use evictscope_plan::{EXPIRE_CYCLE, Operand};
use evictscope_testkit::compiler;
use gimli::{EndianSlice, LittleEndian, Operation, UnwindSection as _};
use object::{Object as _, ObjectSection as _};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

const FUNCTION: &[u8] = b"activeExpireCycle";
/// DWARF's number for the stack pointer.
const RSP: u16 = 7;

/// A stack slot of the frame, by its offset from the stack pointer.
type Slot = i64;

/// The debug information of a program.
struct Debug<'a> {
    file: object::File<'a>,
    dwarf: gimli::Dwarf<Slice<'a>>,
}

impl<'a> Debug<'a> {
    fn read(data: &'a [u8]) -> anyhow::Result<Self> {
        let file = object::File::parse(data)?;
        let dwarf = gimli::Dwarf::load(|id| {
            let section = file.section_by_name(id.name());
            let content = section.map_or(Ok(&[][..]), |section| section.data())?;
            Ok::<_, object::Error>(EndianSlice::new(content, LittleEndian))
        })?;
        Ok(Self { file, dwarf })
    }

    /// Returns the stack slot of a variable of the cycle before the instruction at an address, if it is in one.
    fn slot(&self, variable: &[u8], at: u64) -> anyhow::Result<Option<Slot>> {
        let mut units = self.dwarf.units();
        while let Some(header) = units.next()? {
            let unit = self.dwarf.unit(header)?;
            let mut inside = false;
            let mut entries = unit.entries();
            while let Some(entry) = entries.next_dfs()? {
                let name = match entry.attr_value(gimli::DW_AT_name) {
                    Some(value) => self.dwarf.attr_string(&unit, value)?.slice(),
                    None => continue,
                };
                if entry.tag() == gimli::DW_TAG_subprogram {
                    inside = name == FUNCTION;
                }
                if !inside || name != variable {
                    continue;
                }
                let Some(value) = entry.attr_value(gimli::DW_AT_location) else { continue };
                let mut expression = value.exprloc_value();
                if let Some(mut list) = self.dwarf.attr_locations(&unit, value)? {
                    while let Some(location) = list.next()? {
                        if (location.range.begin..location.range.end).contains(&at) {
                            expression = Some(location.data);
                        }
                    }
                }
                let mut operations = match expression {
                    Some(expression) => expression.operations(unit.encoding()),
                    None => return Ok(None),
                };
                return match (operations.next()?, operations.next()?) {
                    (Some(Operation::FrameOffset { offset }), None) => Ok(Some(offset + self.frame(at)?)),
                    _ => Ok(None),
                };
            }
        }
        Ok(None)
    }

    /// Returns the offset of the canonical frame address from the stack pointer.
    fn frame(&self, at: u64) -> anyhow::Result<i64> {
        let section = self.file.section_by_name(".eh_frame").context("no frames")?;
        let frames = gimli::EhFrame::new(section.data()?, LittleEndian);
        let mut bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
        if let Some(text) = self.file.section_by_name(".text") {
            bases = bases.set_text(text.address());
        }
        let mut context = gimli::UnwindContext::new();
        match frames.unwind_info_for_address(&bases, &mut context, at, gimli::EhFrame::cie_from_offset)?.cfa() {
            gimli::CfaRule::RegisterAndOffset { register, offset } if register.0 == RSP => Ok(*offset),
            other => anyhow::bail!("the frame is at {other:?}"),
        }
    }
}

fn slot_of(operand: &Option<Operand>) -> Option<Slot> {
    if let Some(Operand::Memory { base: 4, displacement, width: 8 }) = operand { Some(*displacement) } else { None }
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
            let function = plan.function(EXPIRE_CYCLE.description);
            let debug = Debug::read(&data)?;
            let function = function.context("no cycle")?;
            let ends = &function.plan.expire().context("another plan")?.ends;
            for (exit, end) in function.span.exits.iter().zip(ends) {
                let at = exit.site.address.get();
                for (variable, operand) in [(&b"total_sampled"[..], &end.sampled), (b"total_expired", &end.expired)] {
                    if let (Some(planned), Some(slot)) = (slot_of(operand), debug.slot(variable, at)?) {
                        let name = String::from_utf8_lossy(variable);
                        assert_eq!(planned, slot, "{options:?}: {name} at {at:#x}");
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
