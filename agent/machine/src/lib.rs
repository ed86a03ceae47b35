//! An executable as code: what its file says, and what its machine code does with its registers and memory.
//!
//! The steps, each of which uses only those before it: [`elf`] (what the file says), [`isa`] (an instruction set:
//! bytes become instructions, and those become effects, in the language of [`ir`]), [`code`] (one function as a
//! control-flow graph), [`flow`] (what every register and stack slot holds at every instruction, and recipes that
//! recover a value from them), [`sites`] (where probes can sit, and what can be read there), [`dwarf`] (what debug
//! information says about the same things) and [`stacks`] (which functions a copied stack is made of). They all share
//! one [`budget`] per file, because files are not trusted: every loop over what a file contains takes its steps from
//! it, or has a bound of its own.
//!
//! Start reading at [`ir`], then [`elf::Image::parse`], [`code::FunctionCode::decode`] and [`flow`].
//!
//! It knows no program: what a function or a global is for, and what it is called, is up to the user. Only the folders
//! of [`isa`] know an instruction set: all the rest sees effects, conventions and costs. It does no I/O: `clippy.toml`
//! disallows files, sockets, processes, clocks and the environment, except in tests.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests compile programs and read files"
    )
)]

pub mod budget;
pub mod code;
pub mod dwarf;
pub mod elf;
pub mod flow;
#[doc(hidden)]
pub mod fuzzing;
pub mod ir;
pub mod isa;
pub mod sites;
pub mod stacks;
