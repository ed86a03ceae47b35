//! Values: sums of atoms, modulo 2^64; and numbers of fewer than 64 bits.

use std::rc::Rc;

/// Index of an atom in its [`Atoms`](super::atoms::Atoms).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AtomId(pub(super) u32);

/// `constant + Σ coefficient · atom`, modulo 2^64; the summands are sorted by atom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Value {
    pub(in crate::flow) constant: u64,
    /// States copy many values and change few, so they share them. `None` if there are none.
    summands: Option<Rc<[(AtomId, u64)]>>,
}

#[expect(missing_docs, reason = "their names and types say what they return")]
impl Value {
    pub const fn constant(constant: u64) -> Self {
        Self { constant, summands: None }
    }

    pub fn atom(atom: AtomId) -> Self {
        Self { constant: 0, summands: Some(Rc::new([(atom, 1)])) }
    }

    pub fn as_constant(&self) -> Option<u64> {
        self.summands.is_none().then_some(self.constant)
    }

    pub fn as_atom(&self) -> Option<AtomId> {
        match self.summands() {
            [(atom, 1)] if self.constant == 0 => Some(*atom),
            _ => None,
        }
    }

    pub fn as_atom_plus_constant(&self) -> Option<(AtomId, i64)> {
        if let [(atom, 1)] = self.summands() { Some((*atom, self.constant.cast_signed())) } else { None }
    }

    /// Returns the atoms in the sum, with their coefficients.
    pub fn summands(&self) -> &[(AtomId, u64)] {
        self.summands.as_deref().unwrap_or_default()
    }

    pub fn atoms(&self) -> impl Iterator<Item = AtomId> + '_ {
        self.summands().iter().map(|(atom, _)| *atom)
    }

    pub fn shares_atoms_with(&self, other: &Self) -> bool {
        other.atoms().any(|atom| self.atoms().any(|summand| summand == atom))
    }

    /// Returns `self + factor · other`.
    pub fn plus(&self, other: &Self, factor: u64) -> Self {
        let mut summands = self.summands().to_vec();
        for (atom, coefficient) in other.summands() {
            let added = coefficient.wrapping_mul(factor);
            match summands.binary_search_by_key(atom, |(summand, _)| *summand) {
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
            constant: self.constant.wrapping_add(other.constant.wrapping_mul(factor)),
            summands: (!summands.is_empty()).then(|| summands.into()),
        }
    }

    pub fn minus(&self, other: &Self) -> Self {
        self.plus(other, u64::MAX)
    }

    pub fn offset(&self, constant: u64) -> Self {
        Self { constant: self.constant.wrapping_add(constant), summands: self.summands.clone() }
    }

    /// Estimates the memory that it takes, in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(self.summands())
    }
}

/// Returns the low `bits` bits.
pub fn low_bits(value: u64, bits: u64) -> u64 {
    if bits < 64 { value & ((1 << bits) - 1) } else { value }
}

/// Returns the low `bits` bits, at least one, as a signed number.
pub fn sign_extended(value: u64, bits: u64) -> i64 {
    let shift = 64_u64.saturating_sub(bits);
    (value << shift).cast_signed() >> shift
}
