//! Effects, and what they are made of: expressions, addresses and tests.

use std::rc::Rc;

/// A set of registers: bit i is number i.
pub type RegisterSet = u64;

/// One thing that an instruction does. Those of one instruction follow each other: each finds what the ones before it
/// left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keeps a value for later effects of the same instruction.
    Let {
        /// What it is called there.
        temporary: u8,
        /// The value.
        value: Expression,
    },
    /// Sets a general register, or its lowest bytes. 4 bytes clear the upper half; 1 or 2 leave the rest as it is.
    Set {
        /// Its number.
        register: u8,
        /// 1, 2, 4 or 8 bytes.
        width: u8,
        /// The value, of which the lowest bytes count.
        value: Expression,
    },
    /// Sets 8 bytes of a vector register.
    SetLane {
        /// Its number.
        vector: u8,
        /// Which 8 bytes, from the lowest: 0 to 3.
        lane: u8,
        /// The value.
        value: Expression,
    },
    /// Stores to memory.
    Store {
        /// Where.
        address: Address,
        /// 1, 2, 4 or 8 bytes.
        width: u8,
        /// The value, of which the lowest bytes count.
        value: Expression,
    },
    /// Moves the stack pointer 8 bytes down, and stores a value there.
    Push(Expression),
    /// Compares two numbers, as if the right one were subtracted from the left one: what later tests find.
    Compare {
        /// What is subtracted from.
        left: Expression,
        /// What is subtracted.
        right: Expression,
        /// 8, 16, 32 or 64: as many of the lowest bits count.
        bits: u8,
    },
    /// Compares two numbers in the same way if a test holds.
    CompareIf {
        /// The test.
        test: Test,
        /// What is subtracted from.
        left: Expression,
        /// What is subtracted.
        right: Expression,
        /// 8, 16, 32 or 64: as many of the lowest bits count.
        bits: u8,
        /// If the test does not hold, later tests find that two numbers compare in these ways, and in no others.
        otherwise: Rc<[Relation]>,
    },
    /// Leaves only whether a number is zero, and its sign, to later tests. The others find nothing known.
    ZeroAndSign {
        /// The number.
        of: Expression,
        /// 8, 16, 32 or 64: as many of the lowest bits count.
        bits: u8,
    },
    /// Changes registers in a way that is not followed.
    Clobber(Clobber),
    /// Reads memory, and what becomes of it is not followed.
    Read {
        /// From where on.
        address: Address,
        /// How many bytes; `None` if that is not known.
        bytes: Option<u16>,
    },
    /// Changes memory in a way that is not followed.
    ClobberMemory {
        /// From where on.
        address: Address,
        /// How many bytes at most; `None` if there is no limit.
        bytes: Option<u16>,
    },
}

/// What an instruction changes, and how is not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clobber {
    /// General registers.
    pub registers: RegisterSet,
    /// Vector registers, all lanes of them.
    pub vectors: RegisterSet,
    /// Whether later tests find nothing known.
    pub flags: bool,
    /// The general registers that the instruction names: an address in one of them may now be in what was changed.
    pub from: RegisterSet,
    /// All general registers whose content matters to it.
    pub reads: RegisterSet,
}

/// A number of 64 bits that an instruction computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Always the same.
    Constant(u64),
    /// The lowest bytes of a general register, zero-extended.
    Register {
        /// Its number.
        number: u8,
        /// 1, 2, 4 or 8 bytes.
        width: u8,
    },
    /// What an effect before it kept.
    Temporary(u8),
    /// 8 bytes of a vector register.
    Lane {
        /// Its number.
        vector: u8,
        /// Which 8 bytes, from the lowest: 0 to 3.
        lane: u8,
    },
    /// What is in memory, zero-extended.
    Load {
        /// Where.
        address: Address,
        /// 1, 2, 4 or 8 bytes.
        width: u8,
    },
    /// The address itself.
    Address(Address),
    /// What an operation makes of its operands.
    Computed(Operation, Box<[Expression]>),
    /// One of two numbers: the first if a test holds.
    Select(Test, Box<[Expression; 2]>),
    /// 1 if a test holds, else 0.
    Truth(Test),
    /// A number that is not followed.
    Unknown,
}

/// What is computed, modulo 2^64 unless something else is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// The sum of two numbers.
    Add,
    /// The first number less the second.
    Subtract,
    /// The product of two numbers.
    Multiply,
    /// The bits that both have.
    And,
    /// The bits that any has.
    Or,
    /// The bits that only one has.
    Xor,
    /// The lowest bits of a number.
    ZeroExtend(u8),
    /// The lowest bits of a number, as a signed one.
    SignExtend(u8),
    /// The first number, moved up by the second, of which the lowest 5 bits count if the first has fewer than 64.
    ShiftLeft(u8),
    /// The lowest bits of the first number, moved down in the same way.
    ShiftRight(u8),
    /// The same, and the sign is moved in.
    ShiftRightSigned(u8),
    /// The upper half of the 128-bit product of two signed numbers.
    UpperHalf,
    /// What is left of a quotient without its fraction: of the signed number whose halves are the first (the upper one)
    /// and the second, divided by the third.
    Whole,
    /// The number of type `double` that a signed number is.
    Double,
    /// The product of two numbers of type `double`.
    DoubleProduct,
    /// The product of two of them, plus the third, rounded once.
    DoubleProductAndSum,
    /// The quotient of two of them.
    DoubleQuotient,
}

/// An address of memory: `base + index · scale + displacement`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Number of a general register.
    pub base: Option<u8>,
    /// Another one, and what it is multiplied by.
    pub index: Option<Index>,
    /// What is added: the address itself, if there is nothing else.
    pub displacement: u64,
    /// Whether this is relative to something that is not followed, as the memory that each thread has of its own is,
    /// or is only a part of the address. The memory is not on the stack unless a register is.
    pub is_elsewhere: bool,
}

/// A register that an address is moved by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Index {
    /// Its number.
    pub register: u8,
    /// What it is multiplied by.
    pub scale: u8,
    /// Of its lower half, if only that counts: whether it is signed.
    pub half: Option<bool>,
}

impl Index {
    /// Makes one of which all counts.
    pub fn whole(register: u8, scale: u8) -> Self {
        Self { register, scale, half: None }
    }
}

impl Address {
    /// Returns the address of a global, if it names nothing but that.
    pub fn global(&self) -> Option<u64> {
        let is_global = self.base.is_none() && self.index.is_none() && !self.is_elsewhere;
        is_global.then_some(self.displacement)
    }

    /// Returns the address some bytes further.
    pub fn offset(self, bytes: u64) -> Self {
        Self { displacement: self.displacement.wrapping_add(bytes), ..self }
    }

    /// Returns the registers that it is made of.
    pub fn registers(&self) -> RegisterSet {
        let base = self.base.map_or(0, bit);
        base | self.index.map_or(0, |index| bit(index.register))
    }
}

/// Something that an effect does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where.
    pub address: Address,
    /// How many bytes; `None` if that is not known.
    pub bytes: Option<u16>,
    /// What it does.
    pub kind: AccessKind,
}

/// What an effect can do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say what they are")]
pub enum AccessKind {
    Read,
    Written,
    /// Only its address is taken.
    Named,
}

/// What decides a branch or a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Test {
    /// How the two sides of the last comparison compare.
    Compared(Relation),
    /// Whether a general register is zero.
    Zero {
        /// Its number.
        register: u8,
        /// 4 or 8: as many of the lowest bytes count.
        width: u8,
        /// Whether it must be, or must not be.
        is_zero: bool,
    },
    /// Whether a bit of a general register is set.
    Bit {
        /// Its number.
        register: u8,
        /// Which bit, from the lowest.
        bit: u8,
        /// Whether it must be, or must not be.
        is_set: bool,
    },
    /// Something that is not followed.
    Unknown,
}

/// How two numbers compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names say what they are")]
pub enum Relation {
    Equal,
    NotEqual,
    /// Unsigned, as the other three that say above and below.
    Below,
    BelowOrEqual,
    Above,
    AboveOrEqual,
    /// Signed, as the other three that say less and greater.
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The difference, modulo its width, is less than 0.
    Negative,
    NotNegative,
    /// What is not followed, by the instruction set's own number.
    Other(u8),
}

/// Returns the set of one register.
pub fn bit(register: u8) -> RegisterSet {
    1_u64.checked_shl(register.into()).unwrap_or(0)
}

impl Expression {
    /// Makes one that an operation computes from two others.
    pub fn of_two(operation: Operation, left: Self, right: Self) -> Self {
        Self::Computed(operation, Box::new([left, right]))
    }

    /// Makes one that an operation computes from another.
    pub fn of_one(operation: Operation, of: Self) -> Self {
        Self::Computed(operation, Box::new([of]))
    }

    /// Returns the address that it is: of memory, a whole register, or one plus or less a number.
    pub fn as_address(&self) -> Option<Address> {
        let at = |base: &Self, displacement| match base {
            Self::Register { number, width: 8 } => {
                Some(Address { base: Some(*number), displacement, ..Address::default() })
            }
            _ => None,
        };
        match self {
            Self::Address(address) => Some(*address),
            Self::Computed(operation, of) => match (operation, &**of) {
                (Operation::Add, [base, Self::Constant(more)]) => at(base, *more),
                (Operation::Subtract, [base, Self::Constant(less)]) => at(base, less.wrapping_neg()),
                _ => None,
            },
            _ => at(self, 0),
        }
    }

    /// Shows `look` this, and all that it is made of.
    pub fn visit(&self, look: &mut impl FnMut(&Self)) {
        look(self);
        match self {
            Self::Computed(_, of) => of.iter().for_each(|part| part.visit(look)),
            Self::Select(_, of) => of.iter().for_each(|part| part.visit(look)),
            _ => {}
        }
    }

    /// Returns the general registers whose content becomes a part of it: not those that only say what is loaded or
    /// chosen.
    pub fn carries(&self) -> RegisterSet {
        let mut carried = 0;
        self.visit(&mut |part| {
            carried |= match part {
                Self::Register { number, .. } => bit(*number),
                Self::Address(address) => address.registers(),
                _ => 0,
            };
        });
        carried
    }

    /// Returns the general registers that it is made of.
    pub fn reads(&self) -> RegisterSet {
        let mut read = 0;
        self.visit(&mut |part| {
            read |= match part {
                Self::Register { number, .. } => bit(*number),
                Self::Load { address, .. } | Self::Address(address) => address.registers(),
                Self::Select(test, _) | Self::Truth(test) => test.reads(),
                _ => 0,
            };
        });
        read
    }
}

impl Test {
    /// Returns the general registers that it looks at.
    pub fn reads(self) -> RegisterSet {
        match self {
            Self::Zero { register, .. } | Self::Bit { register, .. } => bit(register),
            Self::Compared(_) | Self::Unknown => 0,
        }
    }
}

impl Effect {
    /// Returns the expressions in it.
    pub fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let (first, second) = match self {
            Self::Let { value, .. }
            | Self::Set { value, .. }
            | Self::SetLane { value, .. }
            | Self::Store { value, .. }
            | Self::Push(value)
            | Self::ZeroAndSign { of: value, .. } => (Some(value), None),
            Self::Compare { left, right, .. } | Self::CompareIf { left, right, .. } => (Some(left), Some(right)),
            Self::Clobber(_) | Self::Read { .. } | Self::ClobberMemory { .. } => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Returns what it does with memory. (A push also stores.)
    pub fn accesses(&self) -> Vec<Access> {
        let mut all = Vec::new();
        for expression in self.expressions() {
            expression.visit(&mut |part| match part {
                Expression::Load { address, width } => {
                    all.push(Access { address: *address, bytes: Some((*width).into()), kind: AccessKind::Read });
                }
                Expression::Address(address) => {
                    all.push(Access { address: *address, bytes: None, kind: AccessKind::Named });
                }
                _ => {}
            });
        }
        all.extend(
            match self {
                Self::Read { address, bytes } => Some((address, *bytes, AccessKind::Read)),
                Self::Store { address, width, .. } => Some((address, Some((*width).into()), AccessKind::Written)),
                Self::ClobberMemory { address, bytes } => Some((address, *bytes, AccessKind::Written)),
                _ => None,
            }
            .map(|(address, bytes, kind)| Access { address: *address, bytes, kind }),
        );
        all
    }

    /// Returns the general registers whose content matters to it, apart from the part of one that it does not set.
    pub fn reads(&self) -> RegisterSet {
        let own = match self {
            Self::Clobber(clobber) => clobber.reads,
            Self::CompareIf { test, .. } => test.reads(),
            _ => 0,
        };
        let address = match self {
            Self::Store { address, .. } | Self::Read { address, .. } | Self::ClobberMemory { address, .. } => {
                address.registers()
            }
            _ => 0,
        };
        self.expressions().fold(own | address, |read, expression| read | expression.reads())
    }

    /// Returns whether it sets a part of a register, and leaves the rest as it is.
    pub fn sets_part(&self) -> bool {
        matches!(self, Self::Set { width: 1 | 2, .. })
    }

    /// Returns the general registers that it changes. (A push also moves the stack pointer.)
    pub fn writes(&self) -> RegisterSet {
        match self {
            Self::Set { register, .. } => bit(*register),
            Self::Clobber(clobber) => clobber.registers,
            _ => 0,
        }
    }
}
