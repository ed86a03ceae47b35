//! Why something was not found.

use evictscope_machine::code::CodeError;
use evictscope_machine::dwarf::DwarfError;
use evictscope_machine::flow::CutError;

use crate::item::serialize_as_text;
use crate::members::MemberError;

/// Why something was not found. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The budget for one file ran out.
    #[error(
        "it would take longer, or more memory, than any server needs: it is malicious, or not a server"
    )]
    Budget,
    /// This server is not supported.
    #[error("{0}")]
    Unsupported(String),
    /// Its code is not in the file.
    #[error("it is packed by UPX, so what runs is not what is in the file")]
    Packed,
    /// It is not certain which function it is.
    #[error("{0}")]
    Function(String),
    /// The function cannot be decoded.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A probe would not see every call.
    #[error("no instruction that every call executes before the stack pointer moves")]
    NoEntry,
    /// The code lacks what identifies the function. The sentence comes from the traced function.
    #[error("{0}")]
    Unrecognised(&'static str),
    /// It cannot be computed at the inner site.
    #[error("at the inner site no register or stack slot holds what it is made of")]
    OutOfReach,
    /// No exits can be probed.
    #[error(transparent)]
    Exits(#[from] CutError),
    /// The result cannot be read at an exit.
    #[error("at an exit no register is known to hold the result")]
    ResultUnknown,
    /// A member of `server` is not known.
    #[error(transparent)]
    Member(#[from] MemberError),
    /// The debug information cannot be read.
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
    /// The two methods differ about a quantity.
    #[error("{0}")]
    Disagreement(String),
    /// What another process has found, as a sentence.
    #[error("{0}")]
    Told(String),
}

serialize_as_text!(Reason);
