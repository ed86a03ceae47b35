//! What functions agree on: which registers mean what when one calls another.

use crate::ir::{RegisterSet, bit};

/// The calling convention of Linux on an instruction set. Registers are numbers below `registers`.
#[derive(Debug)]
pub struct Convention {
    /// How many general registers there are, with the stack pointer.
    pub registers: usize,
    /// Those of a function's arguments, in their order.
    pub arguments: &'static [u8],
    /// That of its result.
    pub result: u8,
    /// How many arguments of type `double` are passed in vector registers, from the first one on.
    pub vector_arguments: usize,
    /// The stack pointer.
    pub stack_pointer: u8,
    /// The frame pointer, in a function that has one.
    pub frame_pointer: u8,
    /// Those that a call may change.
    pub caller_saved: RegisterSet,
    /// The vector registers whose lowest 8 bytes a call preserves.
    pub preserved_vectors: RegisterSet,
    /// Those in which a callee can find something that is meant for it. A count of vector registers is nothing.
    pub passed: RegisterSet,
    /// All but the stack pointer, those that a call preserves first: they hold what is kept.
    pub kept_first: &'static [u8],
    /// How many bytes a call pushes: the arguments on the stack begin that far above the callee's stack pointer.
    pub pushed_by_call: u8,
    /// The register in which a call leaves where its callee is to return, if it pushes nothing.
    pub link: Option<u8>,
    /// What registers are called.
    pub names: &'static [&'static str],
    /// What their lower halves are called.
    pub names_of_halves: &'static [&'static str],
}

impl Convention {
    /// Returns the register of an argument, the first being 0.
    pub fn argument(&self, index: usize) -> Option<usize> {
        self.arguments.get(index).map(|number| usize::from(*number))
    }

    /// Returns the index of the stack pointer among all registers.
    pub fn stack_pointer(&self) -> usize {
        self.stack_pointer.into()
    }

    /// Returns the index of the frame pointer.
    pub fn frame_pointer(&self) -> usize {
        self.frame_pointer.into()
    }

    /// Returns the index of the register of a result.
    pub fn result(&self) -> usize {
        self.result.into()
    }

    /// Returns whether a register is the stack pointer, or can be the frame pointer.
    pub fn is_frame(&self, register: u8) -> bool {
        register == self.stack_pointer || register == self.frame_pointer
    }

    /// Returns what a register, or its low 4 bytes, is called.
    pub fn register_name(&self, number: u8, width: u8) -> &'static str {
        let names = if width == 4 { self.names_of_halves } else { self.names };
        names.get(usize::from(number)).copied().unwrap_or("?")
    }
}

/// Returns the numbers in a set, from the lowest.
pub fn numbers(set: RegisterSet) -> impl Iterator<Item = u8> {
    (0..64).filter(move |number| set & bit(*number) != 0)
}
