//! The ELF file: its segments, symbols, relocations, unwind tables and debug link.

pub(crate) mod frames;
pub(crate) mod image;
pub(crate) mod segments;
mod symbols;

pub use self::frames::{Frame, Frames};
pub use self::image::{DebugFileNames, Image, NotItsDebugFile};
pub use self::segments::ElfError;
pub use self::symbols::{Symbol, Symbols};
