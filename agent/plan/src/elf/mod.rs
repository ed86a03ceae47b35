//! The ELF file: its segments, symbols, relocations, unwind tables and debug link.

pub mod address;
pub mod bounds;
pub mod debug_link;
pub mod error;
pub mod frames;
pub mod function_names;
pub mod image;
pub mod relocations;
pub mod segments;
pub mod symbols;
