//! What is still known of two stack slots behind instructions that may overwrite them, and of a register
//! behind a loop.

use crate::code::graph::FunctionCode;
use crate::elf::address::FileAddress;
use crate::elf::image::Image;
use crate::flow::execution::Execution;

/// `sub $0x40, %rsp; movq $5, (%rsp); movq $7, 8(%rsp)`
const BEFORE: [u8; 21] = [
    0x48, 0x83, 0xec, 0x40, 0x48, 0xc7, 0x04, 0x24, 0x05, 0x00, 0x00, 0x00, 0x48, 0xc7, 0x44, 0x24,
    0x08, 0x07, 0x00, 0x00, 0x00,
];
/// `mov (%rsp), %rdx; mov 8(%rsp), %rax; add $0x40, %rsp; ret`
const AFTER: [u8; 14] = [
    0x48, 0x8b, 0x14, 0x24, 0x48, 0x8b, 0x44, 0x24, 0x08, 0x48, 0x83, 0xc4, 0x40, 0xc3,
];

/// Returns what the slots hold behind `code`, of those that are known.
fn slots_after(code: &[u8]) -> [Option<u64>; 2] {
    let function = [&BEFORE, code, &AFTER].concat();
    let address = FileAddress::new(0x1000);
    let image = Image::of_code(&function, address);
    let code = FunctionCode::decode(&image, address).unwrap_or_else(|error| panic!("{error}"));
    let mut execution = Execution::run(&code);
    let blocks = code.blocks.entries();
    let mut returns = blocks.filter(|(_, block)| block.leaves);
    let (last, _) = returns
        .next()
        .unwrap_or_else(|| panic!("it does not return"));
    let states = execution.states_in(last);
    let end = states.last().unwrap_or_else(|| panic!("it is not reached"));
    [2, 0].map(|number| end.registers[number].as_constant())
}

/// `mov %rdi, (%rsi)`
#[test]
fn a_store_elsewhere_keeps_the_slots() {
    let code = [0x48, 0x89, 0x3e];
    assert_eq!(slots_after(&code), [Some(5), Some(7)]);
}

/// `mov %rdi, 0x10(%rsp,%rsi,8)`
#[test]
fn a_store_to_an_unknown_element_forgets_all_slots() {
    let code = [0x48, 0x89, 0x7c, 0xf4, 0x10];
    assert_eq!(slots_after(&code), [None, None]);
}

/// `1: mov %rdi, 0x10(%rsp,%rsi,8); dec %rsi; jnz 1b`
#[test]
fn a_loop_that_stores_to_elements_forgets_all_slots() {
    let code = [0x48, 0x89, 0x7c, 0xf4, 0x10, 0x48, 0xff, 0xce, 0x75, 0xf6];
    assert_eq!(slots_after(&code), [None, None]);
}

/// `lea 8(%rsp), %rdi; rep stosq`
#[test]
fn a_string_store_forgets_the_slots_from_its_beginning_on() {
    let code = [0x48, 0x8d, 0x7c, 0x24, 0x08, 0xf3, 0x48, 0xab];
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `lea 8(%rsp), %rcx; mov %rcx, (%rdi); xor %ecx, %ecx; call *%rsi`
#[test]
fn an_address_in_memory_escapes() {
    let code = [
        0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x0f, 0x31, 0xc9, 0xff, 0xd6,
    ];
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `lea 8(%rsp), %rcx; push %rcx; xor %ecx, %ecx; call *%rsi; pop %rcx`
#[test]
fn a_pushed_address_escapes() {
    let code = [
        0x48, 0x8d, 0x4c, 0x24, 0x08, 0x51, 0x31, 0xc9, 0xff, 0xd6, 0x59,
    ];
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `lea 8(%rsp), %rcx; mov %rcx, 0x20(%rsp); xor %ecx, %ecx; call *%rsi`
#[test]
fn an_address_that_is_passed_on_the_stack_escapes() {
    let code = [
        0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x4c, 0x24, 0x20, 0x31, 0xc9, 0xff, 0xd6,
    ];
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `lea 8(%rsp), %rcx; movq %rcx, %xmm0; xor %ecx, %ecx; call *%rsi`
#[test]
fn an_address_in_a_vector_register_escapes() {
    let code = [
        0x48, 0x8d, 0x4c, 0x24, 0x08, 0x66, 0x48, 0x0f, 0x6e, 0xc1, 0x31, 0xc9, 0xff, 0xd6,
    ];
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `lea 8(%rsp), %rcx; 1: mov %rdi, (%rcx); add $8, %rcx; dec %rsi; jnz 1b`
#[test]
fn an_address_that_a_loop_changes_escapes() {
    let code = [
        0x48, 0x8d, 0x4c, 0x24, 0x08, 0x48, 0x89, 0x39, 0x48, 0x83, 0xc1, 0x08, 0x48, 0xff, 0xce,
        0x75, 0xf4,
    ];
    assert_eq!(slots_after(&code), [Some(5), None]);
}

/// `xor %ecx, %ecx; 1: test %rsi, %rsi; jz 2f; mov %rdi, %rcx; xor %ecx, %ecx; dec %rsi; jmp 1b;
/// 2: mov %rcx, (%rsp)`
#[test]
fn what_a_loop_always_comes_back_with_is_known() {
    let mut code = [
        0x31, 0xc9, 0x48, 0x85, 0xf6, 0x74, 0x0a, 0x48, 0x89, 0xf9, 0x31, 0xc9, 0x48, 0xff, 0xce,
        0xeb, 0xf1, 0x48, 0x89, 0x0c, 0x24,
    ];
    assert_eq!(slots_after(&code), [Some(0), Some(7)]);
    // With `nop; nop` for the second `xor`.
    code[10..12].copy_from_slice(&[0x90, 0x90]);
    assert_eq!(slots_after(&code), [None, Some(7)]);
}
