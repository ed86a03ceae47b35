//! The ELF file: its segments, symbols, relocations, unwind tables and debug link.

pub(crate) mod debug_link;
pub(crate) mod error;
pub(crate) mod frames;
pub(crate) mod image;
mod segments;
mod symbols;

pub use self::debug_link::{DebugFileNames, NotItsDebugFile};
pub use self::error::ElfError;
pub use self::frames::{Frame, Frames};
pub use self::image::Image;
pub use self::symbols::{FunctionNames, Symbol};
