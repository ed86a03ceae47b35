//! The ELF file: its segments, symbols, relocations, unwind tables and debug link.

pub mod address;
mod bounds;
pub mod debug_link;
pub mod error;
pub mod frames;
pub mod function_names;
pub mod image;
mod relocations;
mod segments;
pub mod symbols;
