//! Why something was not found.

use crate::code::decode::CodeError;
use crate::dwarf::DwarfError;
use crate::elf::address::FileAddress;
use crate::flow::cut::CutError;
use crate::members::MemberError;

/// Why something was not found. Its text is a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The budget for one file ran out.
    #[error(
        "it would take longer, or more memory, than for any server: made to do harm, or no server"
    )]
    Budget,
    /// Which function it is is not certain.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// The function cannot be decoded.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A probe would not see every call.
    #[error("no instruction that every call executes before the stack pointer moves")]
    NoEntry,
    /// The code lacks what the function is known by. The sentence is that of the traced function.
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
    #[error(
        "at {address:#x} DWARF says that it is {location}, but by the data flow that is {held}"
    )]
    Disagreement {
        /// Address of the instruction.
        address: FileAddress,
        /// Where the quantity is by the debug information.
        location: String,
        /// What is there by the data flow.
        held: &'static str,
    },
}

/// Why it is not certain which function is the one to trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// Neither a symbol nor a text leads to it.
    #[error("no function called {}, nor the text \"{text}\": not a Redis server", .names.join(" or "))]
    Missing {
        /// Its names.
        names: &'static [&'static str],
        /// The text that it mentions.
        text: &'static str,
    },
    /// The function of that name does not mention its text.
    #[error("{name} is at {address:#x}, but does not mention the text \"{text}\"")]
    WithoutText {
        /// Its name.
        name: &'static str,
        /// Its address.
        address: FileAddress,
        /// The text that it should mention.
        text: &'static str,
    },
    /// Without the configuration table, functions that mention the text cannot be told apart.
    #[error(
        "there is no table of configuration directives with maxmemory-policy, by which the function that mentions the text \"{0}\" could be recognised"
    )]
    NoPolicy(&'static str),
    /// No function mentions the text and reads the policy.
    #[error(
        "no function that the unwind tables (.eh_frame) tell of mentions the text \"{0}\" and reads maxmemory-policy"
    )]
    NoMention(&'static str),
    /// Several functions mention the text and read the policy.
    #[error("{count} functions mention the text \"{text}\" and read maxmemory-policy")]
    SeveralMentions {
        /// How many.
        count: usize,
        /// The text.
        text: &'static str,
    },
    /// The function of that name is known, the one that mentions the text is not.
    #[error("{name} is at {address:#x}, but {why}")]
    Unconfirmed {
        /// Its name.
        name: &'static str,
        /// Its address.
        address: FileAddress,
        /// Why the other one is not known.
        why: Box<Self>,
    },
    /// The symbol names one function, the text another.
    #[error(
        "{name} is at {address:#x}, but the function that reports its duration as \"{text}\" is at {mentioned:#x}"
    )]
    TwoFunctions {
        /// Its name.
        name: &'static str,
        /// Its address by the symbol.
        address: FileAddress,
        /// The text.
        text: &'static str,
        /// Its address by the text.
        mentioned: FileAddress,
    },
    /// Debug information has it elsewhere.
    #[error(
        "{name} is at {address:#x}, but DWARF has {dwarf_name} at {dwarf:#x}: debug information of another build"
    )]
    Dwarf {
        /// Its name.
        name: &'static str,
        /// Its address.
        address: FileAddress,
        /// Its name by the debug information.
        dwarf_name: &'static str,
        /// Its address by the debug information.
        dwarf: FileAddress,
    },
}
