//! What is still known about two stack slots after instructions that may overwrite them, and about a register after a
//! loop; what is known in generated functions, whose loops are nested and entered in any way, against what they do.

use std::collections::{BTreeMap, HashMap};

use Place::{Global, Register, Slot};
use evictscope_model::FileAddress;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::code::callees;
use crate::code::graph::{BlockId, FunctionCode};
use crate::elf::image::Image;
use crate::flow::joins::execution::Execution;
use crate::flow::queries::returns;
use crate::flow::state::State;
use crate::flow::values::value::Value;
use crate::isa::Architecture;

/// `sub $0x40, %rsp; movq $5, (%rsp); movq $7, 8(%rsp)`
const BEFORE: [u8; 21] = [
    0x48, 0x83, 0xec, 0x40, 0x48, 0xc7, 0x04, 0x24, 0x05, 0x00, 0x00, 0x00, 0x48, 0xc7, 0x44, 0x24, 0x08, 0x07, 0x00,
    0x00, 0x00,
];
/// `mov (%rsp), %rdx; mov 8(%rsp), %rax; add $0x40, %rsp; ret`
const AFTER: [u8; 14] = [0x48, 0x8b, 0x14, 0x24, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x40, 0xc3];

/// What the two slots hold, if known.
type Slots = [Option<u64>; 2];

/// Returns what the slots hold after `code`, if known.
fn slots_after(code: &[u8]) -> Slots {
    let function = [&BEFORE, code, &AFTER].concat();
    let address = FileAddress::new(0x1000);
    let image = Image::of_code(&function, address);
    let mut code = FunctionCode::decode(&image, address).unwrap_or_else(|error| panic!("{error}"));
    code.callees = callees::of(&image, &code, code.blocks.ids());
    let mut execution = Execution::run(&code);
    let mut returns = code.blocks.entries().filter(|(_, block)| block.leaves);
    let (last, _) = returns.next().unwrap_or_else(|| panic!("it does not return"));
    let states = execution.states_in(last);
    let end = states.last().unwrap_or_else(|| panic!("it is not reached"));
    [2, 0].map(|number| end.registers[number].as_constant())
}

/// Code, and what is known about the slots after it.
const CASES: [(&str, &[u8], Slots); 14] = [
    // `mov %rdi, (%rsi)`
    ("a store elsewhere keeps the slots", &[0x48, 0x89, 0x3e], [Some(5), Some(7)]),
    // `movss %xmm0, (%rsp)`
    ("a store of 4 bytes keeps the slot behind them", &[0xf3, 0x0f, 0x11, 0x04, 0x24], [None, Some(7)]),
    // `mov %rdi, 0x10(%rsp,%rsi,8)`
    ("a store to an unknown element forgets all slots", &[0x48, 0x89, 0x7c, 0xf4, 0x10], [None, None]),
    // `1: mov %rdi, 0x10(%rsp,%rsi,8); dec %rsi; jnz 1b`
    (
        "a loop that stores to elements forgets all slots",
        &[0x48, 0x89, 0x7c, 0xf4, 0x10, 0x48, 0xff, 0xce, 0x75, 0xf6],
        [None, None],
    ),
    // `lea 8(%rsp), %rdi; rep stosq`
    (
        "a string store forgets the slots from its beginning on",
        &[0x48, 0x8d, 0x7c, 0x24, 0x08, 0xf3, 0x48, 0xab],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rcx; mov %rcx, (%rdi); xor %ecx, %ecx; call *%rsi`
    (
        "an address in memory escapes",
        &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x0f, 0x31, 0xc9, 0xff, 0xd6],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rcx; push %rcx; xor %ecx, %ecx; call *%rsi; pop %rcx`
    ("a pushed address escapes", &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0x51, 0x31, 0xc9, 0xff, 0xd6, 0x59], [Some(5), None]),
    // `lea 8(%rsp), %rcx; mov %rcx, 0x20(%rsp); xor %ecx, %ecx; call *%rsi`
    (
        "an address that is passed on the stack escapes",
        &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x4c, 0x24, 0x20, 0x31, 0xc9, 0xff, 0xd6],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rcx; call 1f; jmp 2f; 1: mov $1, %cl; mov %rdi, (%rcx); ret; 2:`
    (
        "an address escapes to a callee that uses it after it has set a part of it",
        &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0xe8, 2, 0, 0, 0, 0xeb, 6, 0xb1, 1, 0x48, 0x89, 0x39, 0xc3],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rcx; movq %rcx, %xmm0; xor %ecx, %ecx; call *%rsi`
    (
        "an address in a vector register escapes",
        &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0x66, 0x48, 0x0f, 0x6e, 0xc1, 0x31, 0xc9, 0xff, 0xd6],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rcx; test %rsi, %rsi; jz 1f; xor %ecx, %ecx; 1: call *%rsi`
    (
        "an address on one of two ways escapes, and no lower slot",
        &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x85, 0xf6, 0x74, 0x02, 0x31, 0xc9, 0xff, 0xd6],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rcx; 1: mov %rdi, (%rcx); add $8, %rcx; dec %rsi; jnz 1b`
    (
        "an address that a loop changes escapes",
        &[0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x39, 0x48, 0x83, 0xc1, 0x08, 0x48, 0xff, 0xce, 0x75, 0xf4],
        [Some(5), None],
    ),
    // `lea 8(%rsp), %rbx; 1: movq $9, 8(%rsp); call *%r13; dec %ebp; jz 2f; mov %rbx, %rdi; call *%r13; jmp 1b; 2:`
    (
        "an address that a turn before handed out has escaped",
        &[
            0x48, 0x8d, 0x5c, 0x24, 0x08, 0x48, 0xc7, 0x44, 0x24, 0x08, 0x09, 0x00, 0x00, 0x00, 0x41, 0xff, 0xd5, 0xff,
            0xcd, 0x74, 0x08, 0x48, 0x89, 0xdf, 0x41, 0xff, 0xd5, 0xeb, 0xe8,
        ],
        [Some(5), None],
    ),
    // `1: movq $9, (%rsp); 2: dec %rdx; jz 3f; movq $3, 8(%rsp); jmp 2b; 3: dec %rsi; jnz 1b`
    (
        "a loop keeps what only the loop around it changes",
        &[
            0x48, 0xc7, 0x04, 0x24, 0x09, 0x00, 0x00, 0x00, 0x48, 0xff, 0xca, 0x74, 0x0b, 0x48, 0xc7, 0x44, 0x24, 0x08,
            0x03, 0x00, 0x00, 0x00, 0xeb, 0xf0, 0x48, 0xff, 0xce, 0x75, 0xe3,
        ],
        [Some(9), None],
    ),
];

#[test]
fn what_may_be_overwritten_is_forgotten() {
    for (what, code, known) in CASES {
        assert_eq!(slots_after(code), known, "{what}");
    }
}

/// `xor %ecx, %ecx; 1: test %rsi, %rsi; jz 2f; mov %rdi, %rcx; xor %ecx, %ecx; dec %rsi; jmp 1b; 2: mov %rcx, (%rsp)`
/// For aarch64: `sub sp, sp, #64; mov x8, #5; stp x8, x8, [sp]; 1: ldr x20, [sp, #8]; ldr x19, [sp]; add x0, sp, #8;
/// blr x21; sub w22, w22, #1; cbnz w22, 1b; add sp, sp, #64; ret`
const PASSING: [u32; 11] = [
    0xd101_03ff,
    0xd280_00a8,
    0xa900_23e8,
    0xf940_07f4,
    0xf940_03f3,
    0x9100_23e0,
    0xd63f_02a0,
    0x5100_06d6,
    0x35ff_ff76,
    0x9101_03ff,
    0xd65f_03c0,
];

#[test]
fn a_slot_whose_address_a_loop_passes_is_not_known_in_the_next_turn() {
    let (bytes, address) = (PASSING.map(u32::to_le_bytes), FileAddress::new(0x1000));
    let mut image = Image::of_code(bytes.as_flattened(), address);
    image.architecture = Architecture::Aarch64;
    let code = FunctionCode::decode(&image, address).unwrap_or_else(|error| panic!("{error}"));
    let mut execution = Execution::run(&code);
    let (last, _) = (code.blocks.entries().find(|(_, block)| block.leaves)).unwrap_or_else(|| panic!("no return"));
    let states = execution.states_in(last);
    let loaded = [19, 20].map(|number| states[0].registers[number].as_constant());
    assert_eq!(loaded, [Some(5), None]);
}

#[test]
fn what_a_loop_always_comes_back_with_is_known() {
    let mut code = [
        0x31, 0xc9, 0x48, 0x85, 0xf6, 0x74, 0x0a, 0x48, 0x89, 0xf9, 0x31, 0xc9, 0x48, 0xff, 0xce, 0xeb, 0xf1, 0x48,
        0x89, 0x0c, 0x24,
    ];
    assert_eq!(slots_after(&code), [Some(0), Some(7)]);
    // With `nop; nop` for the second `xor`.
    code[10..12].copy_from_slice(&[0x90, 0x90]);
    assert_eq!(slots_after(&code), [None, Some(7)]);
}

/// `xor %ecx, %ecx; 1: mov %rcx, 8(%rsp); mov %rdi, %rcx; mov 8(%rsp), %rcx; dec %rsi; jnz 1b; mov %rcx, (%rsp)`
#[test]
fn what_a_loop_saves_and_restores_is_known() {
    let mut code = [
        0x31, 0xc9, 0x48, 0x89, 0x4c, 0x24, 0x08, 0x48, 0x89, 0xf9, 0x48, 0x8b, 0x4c, 0x24, 0x08, 0x48, 0xff, 0xce,
        0x75, 0xee, 0x48, 0x89, 0x0c, 0x24,
    ];
    assert_eq!(slots_after(&code), [Some(0), Some(0)]);
    // With `mov (%rsp), %rcx; nop` for the second load.
    code[10..15].copy_from_slice(&[0x48, 0x8b, 0x0c, 0x24, 0x90]);
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `xor %ecx, %ecx; 1: mov %rcx, %rdx; 2: mov %rdx, %rbx; mov %rdi, %rdx; mov %rbx, %rdx; dec %rsi; jnz 2b; mov %rdi,
/// %rcx; mov %rdx, %rcx; dec %rbp; jnz 1b; mov %rcx, (%rsp)`
#[test]
fn what_a_loop_restores_from_a_loop_in_it_is_known() {
    let mut code = [
        0x31, 0xc9, 0x48, 0x89, 0xca, 0x48, 0x89, 0xd3, 0x48, 0x89, 0xfa, 0x48, 0x89, 0xda, 0x48, 0xff, 0xce, 0x75,
        0xf2, 0x48, 0x89, 0xf9, 0x48, 0x89, 0xd1, 0x48, 0xff, 0xcd, 0x75, 0xe4, 0x48, 0x89, 0x0c, 0x24,
    ];
    assert_eq!(slots_after(&code), [Some(0), Some(7)]);
    // With `nop; nop; nop` for the last `mov` before the second jump.
    code[22..25].copy_from_slice(&[0x90, 0x90, 0x90]);
    assert_eq!(slots_after(&code), [None, Some(7)]);
}

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

fn known(state: &State) -> Vec<(Place, Value)> {
    let registers = (0..PLACES).zip(&state.registers).map(|(number, value)| (Register(number), value.clone()));
    let slots = (0..PLACES).filter_map(|slot| {
        let (value, _) = state.stack.get(&(-8 * i64::from(slot + 1)))?;
        Some((Slot(slot), value.clone()))
    });
    registers.chain(slots).collect()
}

/// `cmp x1, #0; ccmp x0, x1, #0, ne; b.hi 1f; mov w0, #7; ret; 1: cbz x1, 2f; cmp x0, x1; b.ls 2f; tbnz w2, #5, 3f; mov
/// w0, #5; ret; 2: mov w0, #6; ret; 3: tbz w2, #5, 2b; mov w0, #4; ret`
const ASKED_AGAIN: [[u32; 4]; 4] = [
    [0xf100_003f, 0xfa41_1000, 0x5400_0068, 0x5280_00e0],
    [0xd65f_03c0, 0xb400_00c1, 0xeb01_001f, 0x5400_0089],
    [0x3728_00a2, 0x5280_00a0, 0xd65f_03c0, 0x5280_00c0],
    [0xd65f_03c0, 0x362f_ffc2, 0x5280_0080, 0xd65f_03c0],
];

#[test]
fn what_a_comparison_under_a_condition_and_a_bit_decide_is_known() {
    let bytes: Vec<u8> = ASKED_AGAIN.as_flattened().iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut image = Image::of_code(&bytes, CODE);
    image.architecture = Architecture::Aarch64;
    let code = FunctionCode::decode(&image, CODE).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(returns::numbers(&mut Execution::run(&code)), [4, 5, 7].into());
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
        let Ok(code) = FunctionCode::decode(&image, CODE) else { return Ok(()) };
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
