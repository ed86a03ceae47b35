//! Checks what is known in generated functions, whose loops are nested and entered in any way, against what they do.

use std::collections::{BTreeMap, HashMap};

use evictscope_model::FileAddress;
use proptest::prelude::*;
use proptest::sample::Index;

use super::execution::Execution;
use super::state::State;
use super::value::Value;
use crate::code::graph::{BlockId, FunctionCode};
use crate::elf::image::Image;

const CODE: FileAddress = FileAddress::new(0x1000);
/// Bytes of each part of a function: one instruction, and how it continues.
const PART: usize = 16;
/// Where its jump begins.
const JUMP: usize = 10;
/// How many registers, stack slots and globals there are: the registers from `rax` on, the slots below the stack
/// pointer.
const PLACES: u8 = 3;

/// Where something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Register(u8),
    Slot(u8),
    Global(u8),
}
use Place::{Global, Register, Slot};

/// An instruction: it sets a register to a number, or moves what is in one place to another, one of which is a
/// register.
#[derive(Clone, Copy, Debug)]
enum Action {
    Set(u8, u8),
    Move(Place, Place),
}

/// How a part continues: it returns, jumps, or jumps if `ZF` is set, about which nothing is known; and to which part.
type Part = (Action, u8, Index);

impl Action {
    fn code(self, next: u64) -> Vec<u8> {
        let (opcode, register, place) = match self {
            Self::Set(register, number) => return vec![0xb8 + register, number, 0, 0, 0],
            Self::Move(from, Register(register)) => (0x8b, register, from),
            Self::Move(Register(register), to) => (0x89, register, to),
            Self::Move(..) => return Vec::new(),
        };
        let mode = register << 3;
        match place {
            Register(other) => vec![0x48, opcode, 0xc0 | mode | other],
            Slot(slot) => vec![0x48, opcode, 0x44 | mode, 0x24, (8 * (slot + 1)).wrapping_neg()],
            Global(global) => {
                let away = 0x1_0000 + 8 * u64::from(global) - next;
                let away = (away as u32).to_le_bytes();
                [&[0x48, opcode, 0x05 | mode], &away[..]].concat()
            }
        }
    }

    fn perform(self, held: &mut BTreeMap<Place, u64>) {
        match self {
            Self::Set(register, number) => held.insert(Register(register), number.into()),
            Self::Move(from, to) => held.insert(to, held[&from]),
        };
    }
}

fn assemble(parts: &[Part]) -> Vec<u8> {
    let mut code = Vec::new();
    for (place, (action, kind, to)) in parts.iter().enumerate() {
        code.extend(action.code(CODE.get() + code.len() as u64 + 7));
        code.resize(place * PART + JUMP, 0x90);
        let jump: [u8; 2] = match kind {
            0 => [0xc3, 0x90],
            1 => [0x90, 0xe9],
            _ => [0x0f, 0x84],
        };
        let parts = to.index(parts.len() + 1) as i32 - (place as i32 + 1);
        code.extend_from_slice(&jump);
        code.extend_from_slice(&(parts * PART as i32).to_le_bytes());
    }
    code.push(0xc3);
    code
}

fn action() -> impl Strategy<Value = Action> {
    let place = || {
        (0..3_u8, 0..PLACES).prop_map(|(kind, number)| match kind {
            0 => Register(number),
            1 => Slot(number),
            _ => Global(number),
        })
    };
    prop_oneof![
        (0..PLACES, 1..4_u8).prop_map(|(register, number)| Action::Set(register, number)),
        (place(), 0..PLACES).prop_map(|(from, to)| Action::Move(from, Register(to))),
        (0..PLACES, place()).prop_map(|(from, to)| Action::Move(Register(from), to)),
    ]
}

/// Returns what is known about the registers and slots.
fn known(state: &State) -> Vec<(Place, Value)> {
    let registers = (0..PLACES).zip(&state.registers);
    let registers = registers.map(|(number, value)| (Register(number), value.clone()));
    let slots = (0..PLACES).filter_map(|slot| {
        let (value, _) = state.stack.get(&(-8 * i64::from(slot + 1)))?;
        Some((Slot(slot), value.clone()))
    });
    registers.chain(slots).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A place that is known to hold a number holds it whenever control comes there, and places that are known to hold
    /// the same do.
    #[test]
    fn what_is_known_holds_on_every_way(
        parts in prop::collection::vec((action(), 0..8_u8, any::<Index>()), 2..16),
        turns in prop::collection::vec(any::<bool>(), 200),
    ) {
        let bytes = assemble(&parts);
        let image = Image::of_code(&bytes, CODE);
        let Ok(code) = FunctionCode::decode(&image, CODE) else {
            return Ok(());
        };
        let execution = Execution::run(&code);
        let blocks: HashMap<FileAddress, BlockId> =
            code.blocks.entries().map(|(id, block)| (block.address(), id)).collect();
        let places = (0..PLACES).flat_map(|number| [Register(number), Slot(number), Global(number)]);
        // Initially they hold numbers that no instruction contains.
        let mut held: BTreeMap<Place, u64> = places.zip(1_000..).collect();
        let mut at = 0;
        for turn in turns {
            if let Some(block) = blocks.get(&CODE.wrapping_add((at * PART) as u64)) {
                let state = execution.state_at(*block);
                let known = known(state.ok_or_else(|| TestCaseError::fail("it counts as never reached"))?);
                for (index, (place, value)) in known.iter().enumerate() {
                    let number = value.as_constant();
                    prop_assert!(number.is_none_or(|number| number == held[place]), "{place:?} at {at}: {value:?}");
                    for (other, same) in known[..index].iter().filter(|(_, other)| other == value) {
                        prop_assert_eq!(held[place], held[other], "{:?} and {:?} at {}: {:?}", place, other, at, same);
                    }
                }
            }
            let Some((action, kind, to)) = parts.get(at) else { break };
            action.perform(&mut held);
            at = match kind {
                0 => break,
                1 => to.index(parts.len() + 1),
                _ if turn => to.index(parts.len() + 1),
                _ => at + 1,
            };
        }
    }
}
