//! The ELF file: its segments, symbols, relocations, unwind tables and debug link.

pub(crate) mod address;
mod bounds;
pub(crate) mod debug_link;
pub(crate) mod error;
pub(crate) mod frames;
mod function_names;
pub(crate) mod image;
mod relocations;
mod segments;
mod symbols;

pub use address::{FileAddress, FileOffset, ProcessAddress};
pub use debug_link::{DebugFileNames, NotItsDebugFile};
pub use error::ElfError;
pub use frames::{Frame, Frames};
pub use function_names::FunctionNames;
pub use image::Image;
pub use symbols::Symbol;
