//! Decodes instructions: how control goes on after them, and what a probe on them costs.

use evictscope_model::FileAddress;
use fARM64::format::{BufSink, FmtFormatter, Formatter as _};
use fARM64::{Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic};

use super::operands::{general, relation, whole};
use super::tables::LENGTH;
use crate::ir::{Expression, Flow, Hit, Instruction, Test};
use crate::isa::architecture::Architecture;

/// The longest text of an instruction.
const MAX_TEXT: usize = 128;
/// How many instructions a sequence of an exclusive load and its store has at most.
const MAX_EXCLUSIVE: usize = 16;

/// Decodes the instruction that `bytes` begin with; `None` if they do not begin with one.
pub fn decode(bytes: &[u8], address: FileAddress) -> Option<Instruction> {
    let decoded = decoded_at(bytes.get(..LENGTH)?, address);
    if decoded.is_invalid() {
        return None;
    }
    let hit = if is_in_exclusive(bytes) { Hit::Forbidden } else { hit(&decoded) };
    let (architecture, bytes) = (Architecture::Aarch64, bytes.get(..LENGTH)?);
    Some(Instruction::new(architecture, address, bytes, flow(&decoded), hit))
}

fn decoded_at(bytes: &[u8], address: FileAddress) -> Decoded {
    Decoder::new(bytes, address.get(), DecoderOptions::default()).decode()
}

/// Decodes an instruction once more.
pub fn decoded(instruction: &Instruction) -> Decoded {
    decoded_at(instruction.bytes(), instruction.address)
}

fn flow(decoded: &Decoded) -> Flow {
    let target = || FileAddress::new(decoded.near_branch_target());
    // The address in a signed pointer is not followed.
    let register = || match decoded.code() {
        Code::Br | Code::Blr => general(decoded.op_register(0)).map_or(Expression::Unknown, whole),
        _ => Expression::Unknown,
    };
    match decoded.flow_control() {
        FlowControl::Next if decoded.code() == Code::Udf => Flow::Stop,
        FlowControl::Next => Flow::Next,
        FlowControl::UnconditionalBranch => Flow::Jump(target()),
        FlowControl::ConditionalBranch => Flow::Branch(test_of_branch(decoded), target()),
        FlowControl::Call => Flow::Call(target()),
        FlowControl::IndirectCall => Flow::IndirectCall(Box::new(register())),
        FlowControl::IndirectBranch => Flow::IndirectJump(Box::new(register())),
        FlowControl::Return => Flow::Return,
        // A system call.
        FlowControl::Exception if decoded.code() == Code::Svc => Flow::IndirectCall(Box::new(Expression::Unknown)),
        FlowControl::Exception => Flow::Stop,
    }
}

/// Returns what a branch depends on.
fn test_of_branch(branch: &Decoded) -> Test {
    let register = general(branch.op_register(0));
    let zero = |width, is_zero| register.map(|register| Test::Zero { register, width, is_zero });
    let bit = |is_set| {
        let bit = u8::try_from(branch.op_immediate(1)).ok()?;
        Some(Test::Bit { register: register?, bit, is_set })
    };
    let test = match branch.code() {
        Code::BCond => branch.condition().map(|condition| Test::Compared(relation(condition))),
        Code::Cbz32 => zero(4, true),
        Code::Cbz64 => zero(8, true),
        Code::Cbnz32 => zero(4, false),
        Code::Cbnz64 => zero(8, false),
        Code::Tbz => bit(false),
        Code::Tbnz => bit(true),
        _ => None,
    };
    test.unwrap_or(Test::Unknown)
}

/// Returns what a probe costs. The kernel simulates what depends on where it is, as far as it has code for that, and
/// refuses the rest of it, as it refuses what an exception between two instructions would undo. (Some kernels simulate
/// `nop`.)
fn hit(decoded: &Decoded) -> Hit {
    let is_literal = |code| {
        use Code::{LdrLit32, LdrLit64, LdrLitFp32, LdrLitFp64, LdrLitFp128, LdrswLit, PrfmLit};
        matches!(code, LdrLit32 | LdrLit64 | LdrLitFp32 | LdrLitFp64 | LdrLitFp128 | LdrswLit | PrfmLit)
    };
    match decoded.code() {
        Code::Adr | Code::Adrp | Code::BUncond | Code::BlImm | Code::BCond => Hit::Emulated,
        Code::Cbz32 | Code::Cbz64 | Code::Cbnz32 | Code::Cbnz64 | Code::Tbz | Code::Tbnz => Hit::Emulated,
        Code::Br | Code::Blr | Code::Ret => Hit::Emulated,
        Code::Nop | Code::Bti | Code::Dmb | Code::Dsb | Code::Isb | Code::Mrs => Hit::SingleStepped,
        Code::HintGeneric if signs(decoded.mnemonic()) => Hit::SingleStepped,
        code if is_literal(code) || is_exclusive(decoded.word()) => Hit::Forbidden,
        // All other branches, exceptions and instructions of the system.
        _ if is_of_system(decoded.word()) || decoded.code() == Code::Udf => Hit::Forbidden,
        _ if is_stepped_group(decoded.word()) => Hit::SingleStepped,
        _ => Hit::Forbidden,
    }
}

/// Returns whether it only signs a return address, or takes the signature off.
fn signs(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Pacia1716, Paciasp, Paciaz, Pacib1716, Pacibsp, Pacibz, Xpaclri};
    matches!(mnemonic, Pacia1716 | Paciasp | Paciaz | Pacib1716 | Pacibsp | Pacibz | Xpaclri)
}

/// Returns whether an instruction changes at most a signature in the link register, though it is listed as one that
/// changes more: `paciasp`, `autiasp` and the like, and a system call.
pub fn keeps_link(code: &[u8]) -> bool {
    let signs = matches!(code, [low, 0x23, 0x03, 0xd5] if low & 0x1f == 0x1f);
    signs || matches!(code, [low, _, high, 0xd4] if low & 0x1f == 1 && high & 0xe0 == 0)
}

/// Returns whether it is one of the loads and stores that only succeed together.
fn is_exclusive(word: u32) -> bool {
    // Those that are ordered, and compare and swap, have another bit set.
    word & 0x3fa0_0000 == 0x0800_0000 || word & 0xbfa0_0000 == 0x8820_0000
}

fn is_of_system(word: u32) -> bool {
    word >> 26 & 7 == 5
}

/// Returns whether it computes, loads or stores, of general and vector registers of 128 bits.
fn is_stepped_group(word: u32) -> bool {
    let group = word >> 25 & 15;
    let moves_memory = word & 0x3b20_0c00 == 0x1900_0400;
    group >= 4 && !moves_memory
}

/// Returns whether the code begins within a sequence from an exclusive load to its store: the store follows, and no
/// load comes before it.
fn is_in_exclusive(code: &[u8]) -> bool {
    let words = code.as_chunks::<LENGTH>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
    // Of the two, a load has this bit.
    words.take(MAX_EXCLUSIVE).find(|word| is_exclusive(*word)).is_some_and(|word| word & 1 << 22 == 0)
}

/// Returns the instruction as it is written in Arm's manuals.
pub fn text(instruction: &Instruction) -> String {
    let mut buffer = [0; MAX_TEXT];
    let mut sink = BufSink::new(&mut buffer);
    FmtFormatter::new().format(&decoded(instruction), &mut sink);
    sink.as_str().to_owned()
}

#[cfg(test)]
mod tests {
    use evictscope_model::FileAddress;

    use super::decode;
    use crate::ir::Hit;

    #[test]
    fn no_probe_goes_where_the_kernel_refuses_it_or_a_sequence_would_never_end() {
        let hit = |words: &[u32]| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            decode(&bytes, FileAddress::new(0x1000)).map(|instruction| instruction.hit)
        };
        // What the kernels 6.1, 6.12 and 7.2 simulate: adr, adrp, b, bl, b.eq, cbz, tbnz, br, blr, ret.
        for word in [
            0x1000_0000,
            0x9000_0000,
            0x1400_0000,
            0x9400_0000,
            0x5400_0000,
            0x3400_0000,
            0xb708_0000,
            0xd61f_0200,
            0xd63f_0000,
            0xd65f_03c0,
        ] {
            assert_eq!(hit(&[word]), Some(Hit::Emulated), "{word:#x}");
        }
        // What they step: nop, bti c, paciasp, dmb ish, mrs tpidr_el0, stp, ldar, stlr, ldadd, casal, add, fmul.
        for word in [
            0xd503_201f,
            0xd503_245f,
            0xd503_233f,
            0xd503_3bbf,
            0xd53b_d040,
            0xa9be_7bfd,
            0xc8df_fc20,
            0xc89f_fc20,
            0xf820_0041,
            0xc8e0_fc41,
            0x8b02_0c20,
            0x1e62_0820,
        ] {
            assert_eq!(hit(&[word]), Some(Hit::SingleStepped), "{word:#x}");
        }
        // What they refuse: autiasp, retaa, braaz, blraaz, ldr, ldrsw and prfm of a literal, ldxr, ldaxr, stxr, msr,
        // svc, brk, wfe, yield.
        for word in [
            0xd503_23bf,
            0xd65f_0bff,
            0xd61f_081f,
            0xd63f_081f,
            0x5800_0000,
            0x9800_0000,
            0xd800_0000,
            0xc85f_7c20,
            0xc85f_fc20,
            0xc802_7c20,
            0xd51b_d040,
            0xd400_0001,
            0xd420_0020,
            0xd503_205f,
            0xd503_203f,
        ] {
            assert_eq!(hit(&[word]), Some(Hit::Forbidden), "{word:#x}");
        }
        // `add` before, within and after `ldxr`, `add`, `stxr`.
        let (load, add, store) = (0xc85f_7c20, 0x8b02_0c20, 0xc802_7c20);
        assert_eq!(hit(&[add, load, add, store]), Some(Hit::SingleStepped));
        assert_eq!(hit(&[add, store]), Some(Hit::Forbidden));
        assert_eq!(hit(&[add, add, load]), Some(Hit::SingleStepped));
    }
}
