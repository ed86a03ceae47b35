//! Where `switch` tables begin and end.

use evictscope_model::FileAddress;
use evictscope_testkit::compiler::compile;
use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::check;
use crate::code::graph::{EdgeKind, FunctionCode};
use crate::elf::image::Image;

/// Two `switch` statements with 6 and 9 cases, each of which does something different.
const PROGRAM: &str = "
    int printf(const char *, ...);
    #define CASE(n) case n: printf(\"%d %s\\n\", n, v[n]); break;
    __attribute__((noinline)) void two(unsigned a, unsigned b, char **v) {
        switch (a) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) }
        printf(\"and\\n\");
        switch (b) { CASE(0) CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) }
    }
    int main(int argc, char **argv) { two(argc, argc + 1, argv); return 0; }";

#[test]
fn a_table_has_as_many_entries_as_there_are_cases() {
    for compiler in ["gcc", "clang"] {
        for options in [&["-O1"][..], &["-O2"], &["-O2", "-fno-pie", "-no-pie"], &["-Os", "-fcf-protection"]] {
            let Some(data) = compile(compiler, PROGRAM, options) else {
                continue;
            };
            let image = Image::parse(&data).unwrap_or_else(|error| panic!("{error}"));
            let function = image.function("two").map(|symbol| symbol.address);
            let code = FunctionCode::decode(&image, function.unwrap_or_default());
            let code = code.unwrap_or_else(|error| panic!("{compiler} {options:?}: {error}"));
            let mut cases: Vec<usize> = (code.blocks.iter())
                .map(|block| {
                    let edges = block.successors.iter();
                    edges.filter(|(_, kind)| *kind == EdgeKind::Switch).count()
                })
                .filter(|count| *count > 0)
                .collect();
            cases.sort_unstable();
            assert_eq!(cases, [6, 9], "{compiler} {options:?}");
        }
    }
}

/// `lea table(%rip), %rbx; mov $0x06060606, %ecx`, `padding` times `nop`, `check`, then `movzbl %al, %eax; movslq
/// (%rbx,%rax,4), %rax; add %rbx, %rax; jmp *%rax; 1: nop; 2: ret`, and a table of 1, 2 and the middle of the `mov`,
/// where 0x06 is not an instruction.
fn function(padding: usize, check: &[u8]) -> FunctionCode {
    let mut code = vec![0x48, 0x8d, 0x1d, 0, 0, 0, 0, 0xb9, 6, 6, 6, 6];
    code.extend(std::iter::repeat_n(0x90, padding));
    code.extend(check);
    code.extend([0x0f, 0xb6, 0xc0, 0x48, 0x63, 0x04, 0x83, 0x48, 0x01, 0xd8]);
    code.extend([0xff, 0xe0, 0x90, 0xc3]);
    let length = i32::try_from(code.len()).unwrap_or(i32::MAX);
    code[3..7].copy_from_slice(&(length - 7).to_le_bytes());
    for target in [length - 2, length - 1, 8] {
        code.extend((target - length).to_le_bytes());
    }
    let address = FileAddress::new(0x1000);
    let image = Image::of_code(&code, address);
    FunctionCode::decode(&image, address).unwrap_or_else(|why| panic!("{why}"))
}

fn instructions(code: &FunctionCode) -> usize {
    let blocks = code.blocks.iter();
    blocks.map(|block| block.instructions.len()).sum()
}

#[test]
fn a_table_ends_where_the_check_says_and_may_be_far_away() {
    // `cmp $1, %al; ja` to the `ret`.
    let check = [0x3c, 0x01, 0x77, 0x0d];
    for padding in [0, 100] {
        let code = function(padding, &check);
        assert_eq!(code.unresolved_jumps, []);
        assert_eq!(instructions(&code), 10 + padding, "{code:?}");
    }
}

#[test]
fn what_leads_to_no_instruction_is_no_entry() {
    let code = function(0, &[]);
    assert_eq!(code.unresolved_jumps, []);
    assert_eq!(instructions(&code), 8, "{code:?}");
}

#[test]
fn a_check_that_something_jumps_past_is_not_trusted() {
    // `je` past the check.
    let code = function(0, &[0x74, 0x04, 0x3c, 0x01, 0x77, 0x0d]);
    assert_eq!(code.unresolved_jumps.len(), 1, "{code:?}");
}

/// Returns the last index that is let through if `code` precedes `movslq (%rbx,%rax,4), %rax`.
fn last_index(code: &[u8]) -> Option<u64> {
    let code = [code, &[0x48, 0x63, 0x04, 0x83]].concat();
    let decoder = Decoder::with_ip(64, &code, 0x1000, DecoderOptions::NONE);
    let mut before: Vec<Instruction> = decoder.into_iter().collect();
    let read = before.pop()?;
    let before: Vec<&Instruction> = before.iter().rev().collect();
    check(&read, &before).map(|check| check.last)
}

#[test]
fn a_check_counts_where_it_is_certainly_that_of_the_index() {
    // `cmp $5, %eax; ja`, and the same for %al, %ax, %ah.
    let whole: &[u8] = &[0x83, 0xf8, 0x05, 0x77, 0x20];
    let byte: &[u8] = &[0x3c, 0x05, 0x77, 0x20];
    let word: &[u8] = &[0x66, 0x83, 0xf8, 0x05, 0x77, 0x20];
    let high: &[u8] = &[0x80, 0xfc, 0x05, 0x77, 0x20];
    let (extend_byte, extend_word): (&[u8], &[u8]) = (&[0x0f, 0xb6, 0xc0], &[0x0f, 0xb7, 0xc0]);
    for code in [
        whole.to_vec(),
        // A conditional jump away, and a move.
        [whole, &[0x85, 0xc9, 0x74, 0x20, 0x89, 0xc0]].concat(),
        [byte, extend_byte].concat(),
        [extend_byte, byte].concat(),
        [word, extend_word].concat(),
    ] {
        assert_eq!(last_index(&code), Some(5), "{code:x?}");
    }
    for code in [
        // `xchg`, `cltq`, `div`, `shl`, `sub`, `lea -1(%rax)` of the index, a call.
        [whole, &[0x91]].concat(),
        [whole, &[0x48, 0x98]].concat(),
        [whole, &[0xf7, 0xf1]].concat(),
        [whole, &[0xd1, 0xe0]].concat(),
        [whole, &[0x83, 0xe8, 0x01]].concat(),
        [whole, &[0x8d, 0x40, 0xff]].concat(),
        [whole, &[0xe8, 0, 0, 0, 0]].concat(),
        // `ja` on other flags, over the check only, and another condition.
        vec![0x83, 0xf8, 0x05, 0x85, 0xc9, 0x77, 0x20],
        vec![0x83, 0xf8, 0x05, 0x77, 0x00],
        vec![0x83, 0xf8, 0x05, 0x76, 0x20],
        // A jump over a move of something else.
        [whole, &[0x74, 0x02, 0x89, 0xc8]].concat(),
        // Fewer bits than the index has, and a check of memory.
        byte.to_vec(),
        word.to_vec(),
        [word, extend_byte, &[0x01, 0xc8]].concat(),
        [high, extend_byte].concat(),
        [extend_word, byte].concat(),
        vec![0x83, 0x3c, 0x24, 0x05, 0x77, 0x20, 0x8b, 0x04, 0x24],
    ] {
        assert_eq!(last_index(&code), None, "{code:x?}");
    }
}
