//! What of the test is of x86-64: its flags, which forms of instructions a program has, and how one finds memory.

use evictscope_machine::isa::Architecture;
use iced_x86::{CodeSize, Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use iced_x86::{Mnemonic, OpAccess, Register, UsedMemory};

use super::flags::Flags;
use super::random::Random;
use super::runner::{CODE, FAR_PAGE, NEAR_PAGE, PAGE, State, THREAD};
use super::{Example, Examples, Processor, keep_example};

pub const PROCESSOR: Processor = Processor {
    architecture: Architecture::X86_64,
    compiler: "cc",
    emulator: None,
    others: "x86_64.s",
    // Some processors have more.
    vectors: 16,
    addresses: u64::MAX,
    flags: Flags {
        carry: 0x1,
        is_borrow: true,
        zero: 0x40,
        negative: 0x80,
        overflow: 0x800,
        // And those of parity and of half a byte.
        all: 0x8d5,
    },
    add_examples,
    example,
};

/// Adds the instructions of a program's code to the examples. Returns how many there are.
fn add_examples(examples: &mut Examples, code: &[u8]) -> usize {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let mut count = 0;
    while decoder.can_decode() {
        let from = decoder.position();
        let instruction = decoder.decode();
        if !instruction.is_invalid() && !is_excluded(&instruction) {
            count += 1;
            let bytes = &code[from..decoder.position()];
            keep_example(examples, form(&instruction), bytes);
        }
    }
    count
}

/// Returns whether it calls the kernel, changes how the processor works, or asks for what is not always the same.
fn is_excluded(instruction: &Instruction) -> bool {
    use Mnemonic::{Cpuid, Int, Int1, Int3, Popf, Popfq, Rdpid, Rdrand, Rdseed, Syscall, Sysenter, Wrfsbase};
    let excluded = [Cpuid, Int, Int1, Int3, Popf, Popfq, Rdpid, Rdrand, Rdseed, Syscall, Sysenter, Wrfsbase];
    excluded.contains(&instruction.mnemonic())
}

fn form(instruction: &Instruction) -> (usize, u32) {
    let registers = (0..instruction.op_count()).map(|operand| instruction.op_register(operand));
    let is_high = |register| (Register::AH..=Register::BH).contains(&register);
    let bits = registers.clone().map(|register| register == Register::None).chain(registers.map(is_high)).chain([
        instruction.op0_register() == instruction.op1_register(),
        instruction.memory_base() == Register::None,
        instruction.memory_index() == Register::None,
        instruction.is_ip_rel_memory_operand(),
        instruction.segment_prefix() == Register::None,
        repeats(instruction),
        instruction.has_lock_prefix(),
    ]);
    (instruction.code() as usize, bits.fold(0, |bits, bit| bits << 1 | u32::from(bit)))
}

fn repeats(instruction: &Instruction) -> bool {
    instruction.has_rep_prefix() || instruction.has_repne_prefix()
}

/// Makes an example whose address of memory is in the page, if that is in the instruction alone.
fn example(bytes: &[u8], random: &mut Random) -> Example {
    let mut bytes = bytes.to_vec();
    let mut decoder = Decoder::with_ip(64, &bytes, CODE, DecoderOptions::NONE);
    let instruction = decoder.decode();
    let offsets = decoder.get_constant_offsets(&instruction);
    let mut factory = InstructionInfoFactory::new();
    let used = factory.info(&instruction).used_memory().iter();
    let memory: Vec<_> = used.copied().filter(|used| used.access() != OpAccess::NoMemAccess).collect();
    let is_relative = instruction.is_ip_rel_memory_operand();
    let is_fixed = |used: &UsedMemory| {
        [used.base(), used.index()] == [Register::None; 2] && used.segment() != Register::FS && !is_relative
    };
    let is_near = |used: &UsedMemory| used.address_size() != CodeSize::Code64 || is_fixed(used);
    let page = if memory.iter().any(is_near) { NEAR_PAGE } else { FAR_PAGE };
    if offsets.has_displacement() && (is_relative || memory.iter().any(is_fixed)) {
        let from = if is_relative { instruction.next_ip() } else { 0 };
        let to = (page + random.below(PAGE / 64) * 64).wrapping_sub(from).to_le_bytes();
        let size = offsets.displacement_size();
        bytes[offsets.displacement_offset()..][..size].copy_from_slice(&to[..size]);
    }
    let repeats = repeats(&instruction);
    // Changes the registers from which it makes addresses, so that those are in the page.
    let aim = move |state: &mut State, random: &mut Random| {
        for used in &memory {
            let [base, index] = [used.base(), used.index()].map(|register| {
                let register = register.full_register();
                register.is_gpr64().then(|| register.number())
            });
            let alignment = [1, 64][random.below(2) as usize];
            let of_thread = if used.segment() == Register::FS { THREAD } else { 0 };
            let to = page + random.below(PAGE / alignment) * alignment;
            let to = to.wrapping_sub(used.displacement()).wrapping_sub(of_thread);
            let scale = u64::from(used.scale());
            let (register, value) = match (base, index) {
                // Some programs multiply by 3, 5 or 9 so.
                (Some(base), Some(index)) if base == index => (base, to / (1 + scale)),
                (Some(base), Some(index)) => (base, to.wrapping_sub(state[index].wrapping_mul(scale))),
                (Some(register), None) => (register, to),
                (None, Some(register)) => (register, to / scale),
                (None, None) => continue,
            };
            let upper = if used.address_size() == CodeSize::Code64 { 0 } else { random.next() << 32 };
            state[register] = value ^ upper;
        }
        if repeats {
            state[1] = random.below(40);
        }
    };
    Example { bytes, page, aim: Box::new(aim) }
}
