//! The ELF file: its segments, symbols, relocations, frames and debug link.

pub mod bounds;
pub mod debug_link;
pub mod frames;
pub mod image;
pub mod relocations;
