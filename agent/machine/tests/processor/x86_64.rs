//! What of the test is of x86-64: which forms of instructions there are in a program, and how to let one find memory.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

use evictscope_machine::ir::Relation;
use iced_x86::{
    CodeSize, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};

use super::random::Random;
use super::runner::{CODE, FAR_PAGE, NEAR_PAGE, PAGE, State};

/// A form of instructions: the number of its mnemonic with the kinds of its operands, and what else may matter.
pub type Form = (usize, [u8; 6]);
/// Up to some examples of each form, each with a random number.
pub type Examples = BTreeMap<Form, BTreeSet<(u64, Vec<u8>)>>;

/// The flags of a state.
pub const FLAGS: [u64; 6] = [0x1, 0x4, 0x10, 0x40, 0x80, 0x800];
/// How many examples of a form to take.
pub const EXAMPLES: usize = 4;
/// Where the thread's own memory begins.
const THREAD: u64 = FAR_PAGE + PAGE / 2;

/// Adds the instructions of a program's code to the examples. Returns how many there are.
pub fn add_examples(examples: &mut Examples, code: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let (mut instruction, mut count) = (Instruction::default(), 0);
    let hasher = BuildHasherDefault::<DefaultHasher>::new();
    while decoder.can_decode() {
        let from = decoder.position();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() || !can_be_tried(&instruction) {
            continue;
        }
        count += 1;
        let bytes = &code[from..decoder.position()];
        let number = hasher.hash_one(bytes);
        let of_form = examples.entry(form(&instruction)).or_default();
        if of_form.len() < EXAMPLES || of_form.last().is_some_and(|(last, _)| number < *last) {
            of_form.insert((number, bytes.to_vec()));
            if of_form.len() > EXAMPLES {
                of_form.pop_last();
            }
        }
    }
    count
}

/// Returns whether it may be executed here: it asks nothing of the kernel, and does not change how the processor works.
fn can_be_tried(instruction: &Instruction) -> bool {
    !matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall
            | Mnemonic::Sysenter
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Int3
            | Mnemonic::Popf
            | Mnemonic::Popfq
            | Mnemonic::Wrfsbase
    )
}

fn form(instruction: &Instruction) -> Form {
    let mut operands = [0; 6];
    for operand in 0..instruction.op_count() {
        let register = instruction.op_register(operand);
        operands[operand as usize] = match instruction.op_kind(operand) {
            OpKind::Memory => 1,
            OpKind::Register if register.is_gpr8() && !(Register::SPL..=Register::R15L).contains(&register) => {
                2 + u8::from((Register::AH..=Register::BH).contains(&register))
            }
            _ => 0,
        };
    }
    let is = |condition, bit: u8| u8::from(condition) << bit;
    operands[5] = is(instruction.memory_base() == Register::None, 0)
        | is(instruction.memory_index() == Register::None, 1)
        | is(instruction.is_ip_rel_memory_operand(), 2)
        | is(instruction.segment_prefix() != Register::None, 3)
        | is(instruction.op0_register() == instruction.op1_register(), 4)
        | is(instruction.has_rep_prefix() || instruction.has_repne_prefix(), 5)
        | is(instruction.has_lock_prefix(), 6);
    (instruction.code() as usize, operands)
}

/// One example, made ready to be executed.
pub struct Example {
    pub bytes: Vec<u8>,
    instruction: Instruction,
    memory: Vec<UsedMemory>,
    /// The page in which it finds memory.
    pub page: u64,
}

impl Example {
    /// Lets an absolute address, or one relative to the instruction, be in the page.
    pub fn new(bytes: &[u8], random: &mut Random) -> Self {
        let mut bytes = bytes.to_vec();
        let mut decoder = Decoder::with_ip(64, &bytes, CODE, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let offsets = decoder.get_constant_offsets(&instruction);
        let is_relative = instruction.is_ip_rel_memory_operand();
        let is_absolute = instruction.memory_base() == Register::None
            && instruction.memory_index() == Register::None
            && instruction.memory_segment() != Register::FS;
        let (from, page) = match () {
            () if is_relative => (instruction.next_ip(), FAR_PAGE),
            () if is_absolute => (0, NEAR_PAGE),
            () => (0, FAR_PAGE),
        };
        if (is_relative || is_absolute) && offsets.has_displacement() {
            let to = (page + random.below(PAGE / 64) * 64).wrapping_sub(from).to_le_bytes();
            let size = offsets.displacement_size();
            bytes[offsets.displacement_offset()..][..size].copy_from_slice(&to[..size]);
        }
        let instruction = Decoder::with_ip(64, &bytes, CODE, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        let mut memory = factory.info(&instruction).used_memory().to_vec();
        memory.retain(|used| used.access() != OpAccess::NoMemAccess);
        let is_near = memory.iter().any(|used| used.address_size() != CodeSize::Code64);
        Self { page: if is_near { NEAR_PAGE } else { page }, bytes, instruction, memory }
    }

    /// Changes the registers from which it makes addresses, so that those are in the page.
    pub fn aim(&self, state: &mut State, random: &mut Random) {
        for used in &self.memory {
            let own = if used.segment() == Register::FS { THREAD } else { 0 };
            let constant = used.displacement().wrapping_add(own);
            let alignment = if random.below(2) == 0 { 64 } else { 1 };
            let to = (self.page + random.below(PAGE / alignment) * alignment).wrapping_sub(constant);
            let number = |register: Register| register.full_register().is_gpr64().then(|| register.full_register().number());
            let scale = u64::from(used.scale());
            let (register, factor, rest) = match (number(used.base()), number(used.index())) {
                (Some(base), Some(index)) if base == index => (base, 1 + scale, to),
                (Some(base), Some(index)) => {
                    (base, 1, to.wrapping_sub(state.registers[index].wrapping_mul(scale)))
                }
                (Some(base), None) => (base, 1, to),
                (None, Some(index)) => (index, scale, to),
                (None, None) => continue,
            };
            let value = if factor % 2 == 0 { rest / factor } else { rest.wrapping_mul(inverse(factor)) };
            let upper = if used.address_size() == CodeSize::Code32 { random.next() << 32 } else { 0 };
            state.registers[register] = if upper == 0 { value } else { value & 0xffff_ffff | upper };
        }
        if self.instruction.has_rep_prefix() || self.instruction.has_repne_prefix() {
            state.registers[1] = random.below(40);
        }
    }
}

/// Returns the number by which an odd number is 1, modulo 2^64.
fn inverse(odd: u64) -> u64 {
    (0..6).fold(odd, |found: u64, _| found.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(found))))
}

/// Returns whether two numbers compare so, if the flags are those of their difference.
pub fn holds(relation: Relation, flags: u64) -> Option<bool> {
    let [carry, zero, sign, overflow] = [0x1, 0x40, 0x80, 0x800].map(|flag| flags & flag != 0);
    Some(match relation {
        Relation::Equal => zero,
        Relation::NotEqual => !zero,
        Relation::Below => carry,
        Relation::BelowOrEqual => carry || zero,
        Relation::Above => !carry && !zero,
        Relation::AboveOrEqual => !carry,
        Relation::Less => sign != overflow,
        Relation::LessOrEqual => zero || sign != overflow,
        Relation::Greater => !zero && sign == overflow,
        Relation::GreaterOrEqual => sign == overflow,
        Relation::Negative => sign,
        Relation::NotNegative => !sign,
        Relation::Other(_) => return None,
    })
}
