//! Arm of 64 bits: what only this folder knows of it, by way of fARM64.

mod canary;
mod decode;
mod lift;
mod memory;
mod operands;
mod references;
mod switches;
pub mod tables;
mod thunks;
mod vector;

pub use self::canary::intact_way;
pub use self::decode::{decode, keeps_link, text};
pub use self::lift::lift;
pub use self::references::{Pages, candidates, decode_all, is_padding, mentioned_at};
pub use self::switches::targets;
pub use self::thunks::{flow_behind, slot_of_stub};
