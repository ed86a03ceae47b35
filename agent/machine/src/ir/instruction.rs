//! Instructions: where they are, how control goes on after them, and their effects.

use std::cell::OnceCell;
use std::rc::Rc;

use evictscope_model::FileAddress;

use super::effect::{Access, Effect, Expression, Test, bit};
use crate::isa::Architecture;

/// The most bytes of one instruction, in any instruction set.
pub const MAX_BYTES: usize = 15;

/// How control goes on after an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flow {
    /// With the instruction that follows.
    Next,
    /// With another one.
    Jump(FileAddress),
    /// With another one if a test holds, else with the one that follows.
    Branch(Test, FileAddress),
    /// With a function, which may come back to the instruction that follows.
    Call(FileAddress),
    /// The same, with a function whose address is computed.
    IndirectCall(Box<Expression>),
    /// With an instruction whose address is computed.
    IndirectJump(Box<Expression>),
    /// Where the function's caller goes on.
    Return,
    /// Not at all, or in a way that no function of a compiler relies on.
    Stop,
}

/// What a probe on an instruction costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The kernel does what the instruction does.
    Emulated,
    /// The kernel lets the processor execute it alone, which costs ten times as much.
    SingleStepped,
    /// No probe goes there: it would harm the process.
    Forbidden,
}

impl Hit {
    /// Returns its relative cost.
    pub fn cost(self) -> u32 {
        match self {
            Self::Emulated => 1,
            Self::SingleStepped | Self::Forbidden => 10,
        }
    }
}

/// One instruction.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// Its address.
    pub address: FileAddress,
    /// How control goes on after it.
    pub flow: Flow,
    /// What a probe on it costs.
    pub hit: Hit,
    length: u8,
    bytes: [u8; MAX_BYTES],
    architecture: Architecture,
    effects: OnceCell<Rc<[Effect]>>,
}

impl Instruction {
    /// Makes the instruction whose bytes these are, at most [`MAX_BYTES`].
    pub fn new(architecture: Architecture, address: FileAddress, bytes: &[u8], flow: Flow, hit: Hit) -> Self {
        let mut kept = [0; MAX_BYTES];
        kept.iter_mut().zip(bytes).for_each(|(kept, byte)| *kept = *byte);
        let length = bytes.len().min(MAX_BYTES) as u8;
        Self { address, flow, hit, length, bytes: kept, architecture, effects: OnceCell::new() }
    }

    /// Returns its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the address after it.
    pub fn next(&self) -> FileAddress {
        self.address.wrapping_add(self.length.into())
    }

    /// Returns what it does, apart from where control goes on. A call and a return have no effects of their own: what a
    /// call leaves behind when it comes back, the convention says.
    pub fn effects(&self) -> &[Effect] {
        self.effects.get_or_init(|| match self.flow {
            Flow::Call(_) | Flow::IndirectCall(_) | Flow::Return => Rc::default(),
            _ => self.architecture.lift(self).into(),
        })
    }

    /// Returns what its effects do with memory. (A push also stores.)
    pub fn accesses(&self) -> impl Iterator<Item = Access> {
        self.effects().iter().flat_map(Effect::accesses)
    }

    /// Returns it as people write it.
    pub fn text(&self) -> String {
        self.architecture.text(self)
    }

    /// Returns whether it only lets control go on.
    pub fn does_nothing(&self) -> bool {
        self.flow == Flow::Next && self.effects().is_empty()
    }

    /// Returns whether it leaves the stack pointer elsewhere, for whatever time.
    pub fn moves_stack(&self) -> bool {
        let stack_pointer = bit(self.architecture.convention().stack_pointer);
        let moves = |effect: &Effect| matches!(effect, Effect::Push(_)) || effect.writes() & stack_pointer != 0;
        self.is_call() || self.flow == Flow::Return || self.effects().iter().any(moves)
    }

    /// Returns whether it is a call of any kind.
    pub fn is_call(&self) -> bool {
        matches!(self.flow, Flow::Call(_) | Flow::IndirectCall(_))
    }

    /// Returns whether it is a branch on a test that can be followed.
    pub fn is_branch(&self) -> bool {
        matches!(self.flow, Flow::Branch(test, _) if test != Test::Unknown)
    }

    /// Returns the address of the function that a direct call calls.
    pub fn callee(&self) -> Option<FileAddress> {
        if let Flow::Call(function) = self.flow { Some(function) } else { None }
    }

    /// Returns where a direct jump, branch or call goes.
    pub fn target(&self) -> Option<FileAddress> {
        match self.flow {
            Flow::Jump(target) | Flow::Branch(_, target) | Flow::Call(target) => Some(target),
            _ => None,
        }
    }

    /// Returns the slot at a fixed address that an indirect call or jump goes through.
    pub fn slot(&self) -> Option<FileAddress> {
        let (Flow::IndirectCall(to) | Flow::IndirectJump(to)) = &self.flow else { return None };
        if let Expression::Load { address, .. } = &**to { address.global().map(FileAddress::new) } else { None }
    }
}
