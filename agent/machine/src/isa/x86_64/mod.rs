//! x86 of 64 bits: what only this folder knows of it, by way of iced-x86.

mod canary;
mod decode;
mod lift;
mod operands;
mod references;
mod switches;
pub mod tables;
mod thunks;
mod vector;

pub use self::canary::intact_way;
pub use self::decode::{decode, text};
pub use self::lift::lift;
pub use self::references::{candidates, decode_all, is_padding, mentioned, mentioned_at};
pub use self::switches::targets;
pub use self::thunks::{flow_behind, slot_of_stub};
