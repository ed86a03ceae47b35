//! Atoms: what values consist of; the table of all of them, and the operations on values that make new ones.

use std::collections::HashMap;
use std::rc::Rc;

use evictscope_model::FileAddress;

use super::condition::Condition;
use super::value::{AtomId, Value, low_bits, sign_extended};
use crate::budget::Budget;
use crate::ir::Operation;
use crate::isa::{Architecture, Convention};

/// What a value can consist of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    /// A register at the function's entry, by its number.
    Entry(u8),
    /// The result of whatever happens at an address.
    Opaque {
        /// Address of the instruction or block.
        address: FileAddress,
        /// Distinguishes what one address makes.
        index: u32,
    },
    /// A load of a global variable.
    Global {
        /// Its address.
        address: FileAddress,
        /// Bytes.
        width: u8,
        /// Where memory may last have changed; loads of different generations may differ.
        generation: FileAddress,
    },
    /// What a call returned.
    Call {
        /// Address of the call.
        site: FileAddress,
        /// The function that it calls, if known.
        callee: Option<FileAddress>,
    },
    /// The low `bits` bits of a value, zero-extended.
    ZeroExtended {
        /// 8, 16 or 32, or any number up to a bit that is tested.
        bits: u8,
        /// The value.
        of: Value,
    },
    /// The low `bits` bits of a value, sign-extended.
    SignExtended {
        /// 8, 16 or 32.
        bits: u8,
        /// The value.
        of: Value,
    },
    /// One of two values, by a condition.
    Select {
        /// What decides.
        condition: Condition,
        /// What it is if that holds.
        then: Value,
        /// What it is otherwise.
        otherwise: Value,
    },
    /// 1 if it holds, else 0.
    Truth(Truth),
    /// A register of which only the low byte was written.
    LowByte {
        /// What was written.
        byte: Value,
        /// What the register held.
        rest: Value,
    },
    /// The result of an operation on values, about which nothing else is known.
    Computed {
        /// Which.
        operation: Operation,
        /// Its operands.
        of: Vec<Value>,
    },
    /// One of a few values, by the path taken to a block.
    Merged {
        /// Address of the block.
        address: FileAddress,
        /// What it is on each path there, always in the same order.
        options: Vec<Value>,
    },
}

/// Whether one of several conditions holds, or all of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Truth {
    /// Whether all must hold.
    pub all: bool,
    /// At least one. For a single one `all` means nothing, and is `false`.
    pub conditions: Vec<Condition>,
}

impl Atom {
    /// Estimates the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        let inside = match self {
            Self::Merged { options: of, .. } | Self::Computed { of, .. } => of.iter().map(Value::bytes).sum(),
            Self::ZeroExtended { of, .. } | Self::SignExtended { of, .. } => of.bytes(),
            Self::LowByte { byte, rest } => byte.bytes() + rest.bytes(),
            Self::Truth(truth) => (truth.conditions.iter())
                .map(|condition| size_of::<Condition>() + condition.left.bytes() + condition.right.bytes())
                .sum(),
            Self::Select { condition, then, otherwise } => {
                [&condition.left, &condition.right, then, otherwise].map(Value::bytes).iter().sum()
            }
            Self::Entry(_) | Self::Opaque { .. } | Self::Global { .. } | Self::Call { .. } => 0,
        };
        size_of::<Self>() + inside
    }
}

/// All atoms of one analysis, each once.
pub struct Atoms {
    atoms: Vec<Rc<Atom>>,
    /// For each atom that can be an address on the stack, the lowest offset that it can have from the stack pointer at
    /// entry; [`i64::MIN`] if that is not known.
    on_stack: Vec<Option<i64>>,
    ids: HashMap<Rc<Atom>, AtomId>,
    /// What the analysis follows.
    pub limits: Limits,
    /// What the analysis of the file may take.
    pub budget: Budget,
    /// Of the code that is analysed.
    pub(in crate::flow) architecture: Architecture,
}

/// What an analysis follows.
#[derive(Clone, Copy)]
pub struct Limits {
    /// The most summands of one value; a longer sum becomes opaque.
    pub summands: usize,
    /// How far an object on the stack extends, in bytes, that others can write by its address; `None` if they can write
    /// anywhere past its start. A known reach relies on what compilers do: after an alignment, no object is reached
    /// from the earlier stack pointer.
    pub reach: Option<i64>,
    /// The offset from the stack pointer at entry below which stack slots are reached only by their own names.
    pub private_below: i64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { summands: 8, reach: None, private_below: i64::MIN }
    }
}

impl Clone for Atoms {
    fn clone(&self) -> Self {
        let bytes = self.atoms.iter().map(|atom| 2 * atom.bytes()).sum();
        self.budget.spend(self.atoms.len() as u64);
        if !self.budget.keep(bytes) {
            return Self::new(self.architecture, self.budget.clone());
        }
        Self {
            atoms: self.atoms.clone(),
            on_stack: self.on_stack.clone(),
            ids: self.ids.clone(),
            limits: self.limits,
            budget: self.budget.clone(),
            architecture: self.architecture,
        }
    }
}

impl Atoms {
    /// Makes an empty set.
    pub fn new(architecture: Architecture, budget: Budget) -> Self {
        let (atoms, on_stack, ids) = (Vec::new(), Vec::new(), HashMap::new());
        Self { atoms, on_stack, ids, limits: Limits::default(), budget, architecture }
    }

    /// Returns what functions agree on.
    pub fn convention(&self) -> &'static Convention {
        self.architecture.convention()
    }

    /// Returns the value that is one atom.
    pub fn value(&mut self, atom: Atom) -> Value {
        Value::atom(self.intern(atom))
    }

    fn intern(&mut self, atom: Atom) -> AtomId {
        if let Some(id) = self.ids.get(&atom) {
            return *id;
        }
        // Without memory for a new one, another one is returned: all results will be dropped.
        if !self.budget.keep(2 * atom.bytes())
            && let Some(last) = self.atoms.len().checked_sub(1)
        {
            return AtomId(u32::try_from(last).unwrap_or(u32::MAX));
        }
        let id = AtomId(u32::try_from(self.atoms.len()).unwrap_or(u32::MAX));
        let on_stack = self.lowest_of_atom(&atom);
        self.on_stack.push(on_stack);
        let atom = Rc::new(atom);
        self.atoms.push(atom.clone());
        self.ids.insert(atom, id);
        id
    }

    /// Looks up an atom.
    pub fn get(&self, id: AtomId) -> Option<&Atom> {
        self.atoms.get(usize::try_from(id.0).ok()?).map(Rc::as_ref)
    }

    fn lowest_of_atom(&self, atom: &Atom) -> Option<i64> {
        match atom {
            Atom::Entry(number) => (*number == self.convention().stack_pointer).then_some(0),
            Atom::Merged { options, .. } => self.lowest_of_all(options),
            Atom::Select { then, otherwise, .. } => self.lowest_of_all([then, otherwise]),
            Atom::LowByte { rest, .. } => self.may_be_on_stack(rest).then_some(i64::MIN),
            _ => None,
        }
    }

    /// Returns the lowest offset that any of several values can have. What is reached from it covers the others only if
    /// it has no end.
    fn lowest_of_all<'a>(&self, options: impl IntoIterator<Item = &'a Value>) -> Option<i64> {
        let mut all = (options.into_iter()).filter_map(|option| self.reach_on_stack(option));
        let first = all.next()?;
        let unlike = |lowest: i64, other| match self.limits.reach {
            Some(_) if lowest != other => i64::MIN,
            _ => lowest.min(other),
        };
        Some(all.fold(first, unlike))
    }

    /// Returns whether a value is made from an address on the stack. One that was loaded from memory or returned by a
    /// call is not: those count as escaped.
    pub fn may_be_on_stack(&self, value: &Value) -> bool {
        self.reach_on_stack(value).is_some()
    }

    /// Returns the offset of an address on the stack from the stack pointer at entry, if the value is
    /// one and the offset is known.
    pub fn stack_offset(&mut self, value: &Value) -> Option<i64> {
        if !self.may_be_on_stack(value) {
            return None;
        }
        let entry = self.value(Atom::Entry(self.convention().stack_pointer));
        value.minus(&entry).as_constant().map(u64::cast_signed)
    }

    /// Returns the lowest offset of a stack slot that can be reached through an address: no such slot is below the
    /// object that it points to. If the offset is not known, that is the lowest of all.
    pub fn reach_on_stack(&self, address: &Value) -> Option<i64> {
        let lowest = address.atoms().find_map(|id| {
            let index = usize::try_from(id.0).unwrap_or(usize::MAX);
            *self.on_stack.get(index)?
        })?;
        let constant = address.as_atom_plus_constant().map(|(_, constant)| constant);
        Some(constant.filter(|_| lowest != i64::MIN).map_or(i64::MIN, |constant| lowest.saturating_add(constant)))
    }

    /// Returns whether a sum is short enough to keep.
    pub fn is_short(&self, value: &Value) -> bool {
        value.summands().len() <= self.limits.summands
    }

    /// Returns the offset up to which stack slots can be reached through the address of the one at `offset`.
    pub fn reached_from(&self, offset: i64) -> i64 {
        let reach = self.limits.reach.filter(|_| offset != i64::MIN);
        reach.map_or(i64::MAX, |reach| offset.saturating_add(reach))
    }

    /// Finds all values that merge at the block at `address`, with what each is on each path there.
    pub fn merged_at(&self, address: FileAddress) -> Vec<(AtomId, Vec<Value>)> {
        let numbered = (0..).map(AtomId).zip(&self.atoms);
        numbered
            .filter_map(|(id, atom)| match &**atom {
                Atom::Merged { address: block, options } if *block == address => Some((id, options.clone())),
                _ => None,
            })
            .collect()
    }

    /// Returns the address of the global that `value` was loaded from, if it is exactly one 8-byte load of the same
    /// global on each path.
    pub fn as_global(&self, value: &Value) -> Option<FileAddress> {
        let options = match self.get(value.as_atom()?)? {
            Atom::Global { address, width: 8, .. } => return Some(*address),
            Atom::Merged { options, .. } => options,
            _ => return None,
        };
        // An atom is made after those it consists of, so the recursion ends.
        if !self.budget.enter() {
            return None;
        }
        let mut globals = options.iter().map(|option| self.as_global(option));
        let first = globals.next().flatten();
        let agree = globals.all(|other| other == first);
        self.budget.leave();
        first.filter(|_| agree)
    }

    /// Returns whether anything was loaded from the global at `address`.
    pub fn loads(&self, address: FileAddress) -> bool {
        self.atoms.iter().any(|atom| matches!(&**atom, Atom::Global { address: global, .. } if *global == address))
    }

    /// Returns the addresses of the globals whose sum `value` is, if it is a sum of 8-byte loads.
    pub fn as_sum_of_globals(&self, value: &Value) -> Option<Vec<FileAddress>> {
        let summands = value.summands().iter().map(|(atom, coefficient)| {
            let global = self.as_global(&Value::atom(*atom))?;
            (*coefficient == 1).then_some(global)
        });
        summands.collect::<Option<_>>().filter(|_| value.constant == 0)
    }

    /// Returns the low `bits` bits, zero-extended.
    pub fn zero_extended(&mut self, value: &Value, bits: u8) -> Value {
        if bits >= 64 {
            return value.clone();
        }
        if let Some(constant) = value.as_constant() {
            return Value::constant(low_bits(constant, u64::from(bits)));
        }
        if let Some(atom) = value.as_atom().and_then(|id| self.get(id)) {
            let narrow = match atom {
                Atom::ZeroExtended { bits: inner, .. } => *inner <= bits,
                Atom::Global { width, .. } => width.saturating_mul(8) <= bits,
                Atom::Truth(_) => true,
                _ => false,
            };
            if narrow {
                return value.clone();
            }
            if let Atom::ZeroExtended { bits: inner, of } | Atom::SignExtended { bits: inner, of } = atom
                && *inner >= bits
            {
                let of = of.clone();
                if !self.budget.enter() {
                    return value.clone();
                }
                let extended = self.zero_extended(&of, bits);
                self.budget.leave();
                return extended;
            }
            if let Atom::LowByte { byte, .. } = atom
                && bits == 8
            {
                let byte = byte.clone();
                return self.zero_extended(&byte, bits);
            }
        }
        self.value(Atom::ZeroExtended { bits, of: value.clone() })
    }

    /// Returns the low `bits` bits, sign-extended.
    pub fn sign_extended(&mut self, value: &Value, bits: u8) -> Value {
        if bits >= 64 {
            return value.clone();
        }
        if let Some(constant) = value.as_constant() {
            return Value::constant(sign_extended(constant, u64::from(bits)).cast_unsigned());
        }
        self.value(Atom::SignExtended { bits, of: value.clone() })
    }

    /// Returns `then` if the condition holds, else `otherwise`.
    pub fn select(&mut self, condition: Condition, then: Value, otherwise: Value) -> Value {
        if then == otherwise {
            return then;
        }
        match condition.evaluate() {
            Some(true) => then,
            Some(false) => otherwise,
            None => self.value(Atom::Select { condition, then, otherwise }),
        }
    }

    /// Returns `rest` with its low byte replaced by `byte`, whose upper bits are 0.
    pub fn low_byte(&mut self, byte: Value, rest: Value) -> Value {
        match rest.as_constant() {
            Some(rest) => byte.offset(rest & !0xff),
            None => self.value(Atom::LowByte { byte, rest }),
        }
    }
}

/// What compilers multiply by to divide by 1000: 2^71 / 1000, rounded up.
const RECIPROCAL: u64 = 0x20c4_9ba5_e353_f7cf;
/// By how many bits the upper half of the product is shifted, to round it down: 71 - 64.
const ROUNDED_DOWN: u64 = 7;
/// By how many bits a number is shifted to leave only its sign.
const SIGN: u64 = 63;
const SIGNED_SHIFT: Operation = Operation::ShiftRightSigned(64);

impl Atoms {
    /// Returns the global of whose signed 8-byte number `value` is a thousandth, rounded towards 0.
    pub fn as_thousandth(&self, value: &Value) -> Option<FileAddress> {
        if let Some([dividend, divisor]) = self.computed(value, Operation::Whole) {
            return self.as_global(dividend).filter(|_| divisor.as_constant() == Some(1000));
        }
        // Rounded down, plus 1 if the number is negative.
        let [first, second] = *value.summands() else { return None };
        let parts = [(first, second), (second, first)];
        let (product, number, sign) = parts.into_iter().find_map(|((rounded, coefficient), sign)| {
            let product = self.shifted(&Value::atom(rounded), SIGNED_SHIFT, ROUNDED_DOWN)?;
            let number = self.multiplied(product).filter(|_| coefficient == 1 && value.constant == 0)?;
            Some(([&Value::atom(rounded), product].map(Value::clone), number, sign))
        })?;
        let is_signed = sign.1 == u64::MAX;
        let shift = if is_signed { SIGNED_SHIFT } else { Operation::ShiftRight(64) };
        let of = self.shifted(&Value::atom(sign.0), shift, SIGN)?;
        // They all have the sign of the number.
        let is_its = of == number || product.contains(of);
        self.as_global(number).filter(|_| is_its && (is_signed || sign.1 == 1))
    }

    /// Returns the number whose product with [`RECIPROCAL`] has `value` as its upper half.
    fn multiplied(&self, value: &Value) -> Option<&Value> {
        match self.computed(value, Operation::UpperHalf)? {
            [number, factor] | [factor, number] if factor.as_constant() == Some(RECIPROCAL) => Some(number),
            _ => None,
        }
    }

    /// Returns the number that is shifted by some bits to make a value.
    fn shifted(&self, value: &Value, shift: Operation, by: u64) -> Option<&Value> {
        let [of, bits] = self.computed(value, shift)?;
        (bits.as_constant() == Some(by)).then_some(of)
    }

    /// Returns the operands from which an operation makes a value.
    pub fn computed<const N: usize>(&self, value: &Value, by: Operation) -> Option<&[Value; N]> {
        match self.get(value.as_atom()?)? {
            Atom::Computed { operation, of } if *operation == by => of.as_slice().try_into().ok(),
            _ => None,
        }
    }
}
