//! Symbolic values: sums of atoms, modulo 2^64.
//!
//! A value is `constant + Σ coefficient · atom`. Atoms are what the executable's code cannot be
//! seen through, or what the analysis wants to keep apart: a register at the function's entry, a
//! load of a global, the result of a call, a choice made by `cmov`. Equal values have equal
//! representations, so `a - b + b` is `a` without further ado.

use std::collections::HashMap;

use crate::budget::Budget;

/// Most summands of one value; a longer sum becomes opaque.
const MAX_SUMMANDS: usize = 8;

/// Index of an atom in its [`Atoms`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AtomId(u32);

/// `constant + Σ coefficient · atom`, modulo 2^64; the summands are sorted by atom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    constant: u64,
    summands: Vec<(AtomId, u64)>,
}

impl Value {
    /// A known number.
    pub const fn constant(constant: u64) -> Self {
        Self {
            constant,
            summands: Vec::new(),
        }
    }

    /// One atom.
    pub fn atom(atom: AtomId) -> Self {
        Self {
            constant: 0,
            summands: vec![(atom, 1)],
        }
    }

    /// The number, where the value is one.
    pub fn as_constant(&self) -> Option<u64> {
        self.summands.is_empty().then_some(self.constant)
    }

    /// The atom, where the value is exactly one.
    pub fn as_atom(&self) -> Option<AtomId> {
        match self.summands.as_slice() {
            [(atom, 1)] if self.constant == 0 => Some(*atom),
            _ => None,
        }
    }

    /// The atom and the constant, where the value is one atom plus a constant.
    pub fn as_atom_plus_constant(&self) -> Option<(AtomId, i64)> {
        match self.summands.as_slice() {
            [(atom, 1)] => Some((*atom, self.constant.cast_signed())),
            _ => None,
        }
    }

    /// The atoms that occur in the sum.
    pub fn atoms(&self) -> impl Iterator<Item = AtomId> + '_ {
        self.summands.iter().map(|(atom, _)| *atom)
    }

    /// Whether the sum contains any of the atoms of `other`.
    pub fn shares_atoms_with(&self, other: &Self) -> bool {
        other
            .atoms()
            .any(|atom| self.atoms().any(|own| own == atom))
    }

    /// `self + factor · other`.
    pub fn plus(&self, other: &Self, factor: u64) -> Self {
        let mut summands = self.summands.clone();
        for (atom, coefficient) in &other.summands {
            let added = coefficient.wrapping_mul(factor);
            match summands.binary_search_by_key(atom, |(own, _)| *own) {
                Ok(at) => {
                    if let Some(entry) = summands.get_mut(at) {
                        entry.1 = entry.1.wrapping_add(added);
                    }
                }
                Err(at) => summands.insert(at, (*atom, added)),
            }
        }
        summands.retain(|(_, coefficient)| *coefficient != 0);
        Self {
            constant: self
                .constant
                .wrapping_add(other.constant.wrapping_mul(factor)),
            summands,
        }
    }

    /// `self - other`.
    pub fn minus(&self, other: &Self) -> Self {
        self.plus(other, u64::MAX)
    }

    /// `self + constant`.
    pub fn offset(&self, constant: u64) -> Self {
        Self {
            constant: self.constant.wrapping_add(constant),
            summands: self.summands.clone(),
        }
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.summands.len() * size_of::<(AtomId, u64)>()
    }

    /// Whether the sum is short enough to be kept.
    pub fn is_small(&self) -> bool {
        self.summands.len() <= MAX_SUMMANDS
    }
}

/// A relation between two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// `=`
    Equal,
    /// `≠`
    NotEqual,
    /// `<`, unsigned
    Below,
    /// `≤`, unsigned
    BelowOrEqual,
    /// `<`, signed
    Less,
    /// `≤`, signed
    LessOrEqual,
}

/// `left relation right`, over the low `bits` bits of both.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Condition {
    /// The relation.
    pub relation: Relation,
    /// Its left side.
    pub left: Value,
    /// Its right side.
    pub right: Value,
    /// 8, 16, 32 or 64.
    pub bits: u8,
}

impl Condition {
    /// The opposite.
    pub fn negated(&self) -> Self {
        let swapped = |relation| Self {
            relation,
            left: self.right.clone(),
            right: self.left.clone(),
            bits: self.bits,
        };
        let same = |relation| Self {
            relation,
            ..self.clone()
        };
        match self.relation {
            Relation::Equal => same(Relation::NotEqual),
            Relation::NotEqual => same(Relation::Equal),
            Relation::Below => swapped(Relation::BelowOrEqual),
            Relation::BelowOrEqual => swapped(Relation::Below),
            Relation::Less => swapped(Relation::LessOrEqual),
            Relation::LessOrEqual => swapped(Relation::Less),
        }
    }

    /// Whether it holds, where both sides are known.
    pub fn evaluate(&self) -> Option<bool> {
        let left = low_bits(self.left.as_constant()?, self.bits);
        let right = low_bits(self.right.as_constant()?, self.bits);
        let signed = |value| sign_extended(value, self.bits);
        Some(match self.relation {
            Relation::Equal => left == right,
            Relation::NotEqual => left != right,
            Relation::Below => left < right,
            Relation::BelowOrEqual => left <= right,
            Relation::Less => signed(left) < signed(right),
            Relation::LessOrEqual => signed(left) <= signed(right),
        })
    }
}

/// What a value can consist of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Atom {
    /// A register at the function's entry, by its x86-64 number.
    Entry(u8),
    /// The result of whatever happens at an address; `index` tells apart what one address makes.
    Opaque {
        /// Address of the instruction or block.
        address: u64,
        /// Which of its results.
        index: u32,
    },
    /// A load of a global variable.
    Global {
        /// Its virtual address.
        address: u64,
        /// Bytes.
        width: u8,
        /// How many times memory may have changed before; loads of different generations may differ.
        generation: u64,
    },
    /// What a call returned.
    Call {
        /// Address of the call instruction.
        site: u64,
        /// Address of the function, where the call is direct.
        callee: Option<u64>,
    },
    /// The low `bits` bits of a value, zero-extended.
    ZeroExtended {
        /// 8, 16 or 32.
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
    /// `then` where the condition holds, else `otherwise`.
    Select {
        /// The condition.
        condition: Condition,
        /// Where it holds.
        then: Value,
        /// Where it does not.
        otherwise: Value,
    },
    /// 1 where the condition holds, else 0.
    Truth(Condition),
    /// A register of which only the low byte was written.
    LowByte {
        /// What was written.
        byte: Value,
        /// What the register held.
        rest: Value,
    },
    /// One of a few values, by the path taken to a block.
    Merged {
        /// Address of the block.
        address: u64,
        /// What it is on each of the ways there, always in the same order: what is the same on
        /// every way is the same value.
        options: Vec<Value>,
    },
}

impl Atom {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        let inside = match self {
            Self::Merged { options, .. } => options.iter().map(Value::bytes).sum(),
            Self::ZeroExtended { of, .. } | Self::SignExtended { of, .. } => of.bytes(),
            Self::LowByte { byte, rest } => byte.bytes() + rest.bytes(),
            Self::Truth(condition) => condition.left.bytes() + condition.right.bytes(),
            Self::Select {
                condition,
                then,
                otherwise,
            } => [&condition.left, &condition.right, then, otherwise]
                .map(Value::bytes)
                .iter()
                .sum(),
            Self::Entry(_) | Self::Opaque { .. } | Self::Global { .. } | Self::Call { .. } => 0,
        };
        size_of::<Self>() + inside
    }
}

/// All atoms of one analysis, each once.
#[derive(Default)]
pub struct Atoms {
    atoms: Vec<Atom>,
    ids: HashMap<Atom, AtomId>,
    /// What the plan for the file may take.
    pub budget: Budget,
}

impl Clone for Atoms {
    fn clone(&self) -> Self {
        let bytes = self.atoms.iter().map(|atom| 2 * atom.bytes()).sum();
        self.budget.spend(self.atoms.len() as u64);
        if !self.budget.keep(bytes) {
            return Self::new(self.budget.clone());
        }
        Self {
            atoms: self.atoms.clone(),
            ids: self.ids.clone(),
            budget: self.budget.clone(),
        }
    }
}

impl Atoms {
    /// None yet.
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            ..Self::default()
        }
    }

    /// The value that consists of one atom.
    pub fn value(&mut self, atom: Atom) -> Value {
        Value::atom(self.intern(atom))
    }

    fn intern(&mut self, atom: Atom) -> AtomId {
        if let Some(id) = self.ids.get(&atom) {
            return *id;
        }
        // Without memory for it, it is taken for another one: the plan will be dropped.
        if !self.budget.keep(2 * atom.bytes())
            && let Some(last) = self.atoms.len().checked_sub(1)
        {
            return AtomId(u32::try_from(last).unwrap_or(u32::MAX));
        }
        let id = AtomId(u32::try_from(self.atoms.len()).unwrap_or(u32::MAX));
        self.atoms.push(atom.clone());
        self.ids.insert(atom, id);
        id
    }

    /// What an atom is.
    pub fn get(&self, id: AtomId) -> Option<&Atom> {
        self.atoms.get(usize::try_from(id.0).ok()?)
    }

    /// All values that merge at the block at `address`, with what each is on each way there.
    pub fn merged_at(&self, address: u64) -> Vec<(AtomId, Vec<Value>)> {
        let numbered = (0..).map(AtomId).zip(&self.atoms);
        numbered
            .filter_map(|(id, atom)| match atom {
                Atom::Merged {
                    address: own,
                    options,
                } if *own == address => Some((id, options.clone())),
                _ => None,
            })
            .collect()
    }

    /// The global that `value` was loaded from, where it is exactly one 8-byte load, on each way.
    pub fn as_global(&self, value: &Value) -> Option<u64> {
        let options = match self.get(value.as_atom()?)? {
            Atom::Global {
                address, width: 8, ..
            } => return Some(*address),
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

    /// Whether anything was loaded from the global at `address`.
    pub fn loads(&self, address: u64) -> bool {
        self.atoms
            .iter()
            .any(|atom| matches!(atom, Atom::Global { address: own, .. } if *own == address))
    }

    /// The globals that `value` is the sum of, where it is a sum of 8-byte loads.
    pub fn as_sum_of_globals(&self, value: &Value) -> Option<Vec<u64>> {
        let summands = value.summands.iter().map(|(atom, coefficient)| {
            let global = self.as_global(&Value::atom(*atom))?;
            (*coefficient == 1).then_some(global)
        });
        summands
            .collect::<Option<_>>()
            .filter(|_| value.constant == 0)
    }

    /// The low `bits` bits, zero-extended.
    pub fn zero_extended(&mut self, value: &Value, bits: u8) -> Value {
        if bits >= 64 {
            return value.clone();
        }
        if let Some(constant) = value.as_constant() {
            return Value::constant(low_bits(constant, bits));
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
            if let Atom::ZeroExtended { bits: inner, of } | Atom::SignExtended { bits: inner, of } =
                atom
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
        self.value(Atom::ZeroExtended {
            bits,
            of: value.clone(),
        })
    }

    /// The low `bits` bits, sign-extended.
    pub fn sign_extended(&mut self, value: &Value, bits: u8) -> Value {
        if bits >= 64 {
            return value.clone();
        }
        if let Some(constant) = value.as_constant() {
            return Value::constant(sign_extended(constant, bits).cast_unsigned());
        }
        self.value(Atom::SignExtended {
            bits,
            of: value.clone(),
        })
    }

    /// `then` where the condition holds, else `otherwise`.
    pub fn select(&mut self, condition: Condition, then: Value, otherwise: Value) -> Value {
        if then == otherwise {
            return then;
        }
        match condition.evaluate() {
            Some(true) => then,
            Some(false) => otherwise,
            None => self.value(Atom::Select {
                condition,
                then,
                otherwise,
            }),
        }
    }

    /// 1 where the condition holds, else 0.
    pub fn truth(&mut self, condition: Condition) -> Value {
        match condition.evaluate() {
            Some(holds) => Value::constant(u64::from(holds)),
            None => self.value(Atom::Truth(condition)),
        }
    }

    /// Whether `value` is 1 or 0 by whether a condition holds.
    pub fn is_truth(&self, value: &Value) -> bool {
        let atom = value.as_atom().and_then(|atom| self.get(atom));
        matches!(atom, Some(Atom::Truth(_)))
    }

    /// `rest` with `byte`, whose upper bits are 0, for its low byte.
    pub fn low_byte(&mut self, byte: Value, rest: Value) -> Value {
        match rest.as_constant() {
            Some(rest) => byte.offset(rest & !0xff),
            None => self.value(Atom::LowByte { byte, rest }),
        }
    }

    /// A condition on whether another holds is that other, or its opposite.
    pub fn without_truth(&self, condition: Condition) -> Condition {
        let inner = match condition.left.as_atom().and_then(|atom| self.get(atom)) {
            Some(Atom::Truth(inner)) if condition.right == Value::constant(0) => inner.clone(),
            _ => return condition,
        };
        match condition.relation {
            Relation::Equal => inner.negated(),
            Relation::NotEqual => inner,
            _ => condition,
        }
    }

    /// `value` with `atom` replaced wherever it occurs, also inside other atoms.
    pub fn substitute(&mut self, value: &Value, atom: AtomId, by: &Value) -> Value {
        self.budget.spend(1 + value.summands.len() as u64);
        let mut result = Value::constant(value.constant);
        for (own, coefficient) in &value.summands {
            let replaced = self.substitute_atom(*own, atom, by);
            result = result.plus(&replaced, *coefficient);
        }
        result
    }

    fn substitute_atom(&mut self, own: AtomId, atom: AtomId, by: &Value) -> Value {
        if own == atom {
            return by.clone();
        }
        // An atom is made after those it consists of, so the recursion ends.
        if own < atom || !self.budget.enter() {
            return Value::atom(own);
        }
        let replaced = self.substitute_inside(own, atom, by);
        self.budget.leave();
        replaced
    }

    fn substitute_inside(&mut self, own: AtomId, atom: AtomId, by: &Value) -> Value {
        match self.get(own).cloned() {
            Some(Atom::ZeroExtended { bits, of }) => {
                let of = self.substitute(&of, atom, by);
                self.zero_extended(&of, bits)
            }
            Some(Atom::SignExtended { bits, of }) => {
                let of = self.substitute(&of, atom, by);
                self.sign_extended(&of, bits)
            }
            Some(Atom::Select {
                condition,
                then,
                otherwise,
            }) => {
                let condition = self.substitute_condition(&condition, atom, by);
                let then = self.substitute(&then, atom, by);
                let otherwise = self.substitute(&otherwise, atom, by);
                self.select(condition, then, otherwise)
            }
            Some(Atom::Truth(condition)) => {
                let condition = self.substitute_condition(&condition, atom, by);
                self.truth(condition)
            }
            Some(Atom::LowByte { byte, rest }) => {
                let byte = self.substitute(&byte, atom, by);
                let rest = self.substitute(&rest, atom, by);
                self.low_byte(byte, rest)
            }
            _ => Value::atom(own),
        }
    }

    /// `condition` with `atom` replaced on both sides.
    pub fn substitute_condition(
        &mut self,
        condition: &Condition,
        atom: AtomId,
        by: &Value,
    ) -> Condition {
        Condition {
            relation: condition.relation,
            left: self.substitute(&condition.left, atom, by),
            right: self.substitute(&condition.right, atom, by),
            bits: condition.bits,
        }
    }
}

fn low_bits(value: u64, bits: u8) -> u64 {
    match bits {
        0..64 => value & ((1 << bits) - 1),
        _ => value,
    }
}

fn sign_extended(value: u64, bits: u8) -> i64 {
    let shift = u32::from(64_u8.saturating_sub(bits));
    (value << shift).cast_signed() >> shift
}

#[cfg(test)]
mod tests {
    use super::{Atom, Atoms, Condition, Relation, Value};

    #[test]
    fn sums_cancel() {
        let mut atoms = Atoms::default();
        let a = atoms.value(Atom::Entry(0));
        let b = atoms.value(Atom::Entry(1));
        assert_eq!(a.minus(&b).plus(&b, 1), a);
        assert_eq!(a.minus(&a), Value::constant(0));
    }

    #[test]
    fn a_substitution_reaches_into_atoms_and_folds() {
        let mut atoms = Atoms::default();
        let x = atoms.value(Atom::Entry(3));
        let below = atoms.zero_extended(&x.offset(u64::MAX), 32);
        let truth = atoms.truth(Condition {
            relation: Relation::BelowOrEqual,
            left: below,
            right: Value::constant(1),
            bits: 32,
        });
        let id = x.as_atom().unwrap_or_else(|| panic!("one atom"));
        for (number, holds) in [(0, 0), (1, 1), (2, 1), (3, 0)] {
            let folded = atoms.substitute(&truth, id, &Value::constant(number));
            assert_eq!(folded, Value::constant(holds), "for {number}");
        }
    }

    #[test]
    fn narrow_comparisons_ignore_the_upper_bits() {
        let condition = Condition {
            relation: Relation::Less,
            left: Value::constant(0x1_ffff_ffff),
            right: Value::constant(0),
            bits: 32,
        };
        assert_eq!(condition.evaluate(), Some(true));
        assert_eq!(condition.negated().evaluate(), Some(false));
    }
}
