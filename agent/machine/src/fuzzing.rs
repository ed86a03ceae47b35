//! What the fuzz targets call: one function for each step. It is not part of the interface.

use evictscope_model::FileAddress;
use gimli::BaseAddresses;

use crate::code::callees;
use crate::code::graph::{BlockId, FunctionCode};
use crate::elf::frames::Frames;
use crate::elf::image::{DebugFileNames, Image};
use crate::flow::cut::CutPoint;
use crate::flow::execution::Execution;
use crate::flow::interpreter::Interpreter;
use crate::flow::recipe::Reach;
use crate::flow::{cut, returns};
use crate::isa::Architecture;

/// Where functions are placed.
const BASE: FileAddress = FileAddress::new(0x1000);

/// Reads a file, and asks for everything that it can say, including about a function, a variable and a text.
pub fn elf(file: &[u8], function: &str, object: &str, text: &str) {
    let _ = DebugFileNames::of(file);
    let Ok(mut image) = Image::parse(file) else { return };
    let _ = image.add_symbols_of(file);
    let function = image.symbols.function(function).map(|symbol| symbol.address);
    let object = image.symbols.object(object).map(|symbol| symbol.address);
    let texts = image.find_string(text);
    for address in [Some(image.entry), function, object].into_iter().flatten().chain(texts) {
        let _ = (image.segments.file_offset(address), image.is_writable(address));
        let _ = (image.i32_at(address), image.text_at(address, 64));
        let _ = (image.pointer_at(address), image.pointers_to(address));
        let _ = (image.is_function(address), image.symbols.function_name(address));
    }
}

/// Reads the content of `.eh_frame`.
pub fn frames(table: &[u8]) {
    let frames = Frames::parse(table, &BaseAddresses::default().set_eh_frame(BASE.get()), Architecture::X86_64);
    let _ = (frames.at(BASE), frames.is_entry(BASE));
}

/// Decodes a function and what it calls, and executes it, symbolically and with numbers.
pub fn flow(function: &[u8]) {
    let image = Image::of_code(function, BASE);
    let Ok(mut code) = FunctionCode::decode(&image, BASE) else { return };
    code.callees = callees::of(&image, &code, code.blocks.ids());
    let _ = code.loops();
    for instruction in code.blocks.iter().flat_map(|block| &block.instructions) {
        let _ = (instruction.hit.cost(), instruction.mentioned());
    }
    let _ = Interpreter::new(&image, &code).run(None);
    let mut execution = Execution::run(&code);
    for block in code.blocks.ids() {
        for state in execution.states_in(block) {
            let wanted = state.registers[0].clone();
            let _ = Reach::of(&mut execution, &state, &[&wanted]).recipe(&wanted);
        }
    }
    if let Some(start) = returns::behind_loops(&code)
        && let Some(state) = execution.state_at(start).cloned()
    {
        let _ = returns::to_returns(&mut execution, state, start.first());
    }
    let points = code.blocks.entries().flat_map(|(id, block)| {
        let indices = 0..block.instructions.len();
        let ways = block.successors.iter().map(move |(_, kind)| (CutPoint::Way(id, *kind), 2));
        indices.map(move |index| (CutPoint::Instruction(id.instruction(index)), 1)).chain(ways)
    });
    let _ = cut::minimum_cut(&code, &points.collect(), BlockId::ENTRY);
}
