//! The flags that a comparison leaves, and what they say. Processors differ in where they are, and in what a carry is.

use evictscope_machine::ir::Relation;

/// Where the flags of a processor are.
pub struct Flags {
    pub carry: u64,
    /// Whether a borrow sets that, and not its absence.
    pub is_borrow: bool,
    pub zero: u64,
    pub negative: u64,
    pub overflow: u64,
    /// All of them, and those that no comparison is about.
    pub all: u64,
}

impl Flags {
    pub fn of_comparison(&self) -> u64 {
        self.carry | self.overflow | self.zero_and_sign()
    }

    pub fn zero_and_sign(&self) -> u64 {
        self.zero | self.negative
    }

    /// Returns the flags of the difference of two numbers of so many bits.
    pub fn difference(&self, left: u64, right: u64, bits: u8) -> u64 {
        let [left, right] = [left, right].map(|side| side << (64 - bits));
        let (signed, overflows) = left.cast_signed().overflowing_sub(right.cast_signed());
        let carries = (left < right) == self.is_borrow;
        let flags = [
            (self.carry, carries),
            (self.zero, left == right),
            (self.negative, signed < 0),
            (self.overflow, overflows),
        ];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum()
    }

    /// Returns the flags with which numbers compare in these ways.
    pub fn of_relations(&self, relations: &[Relation]) -> u64 {
        let holds = |relation| relations.contains(&relation);
        let flags = [
            (self.carry, holds(Relation::Below) == self.is_borrow),
            (self.zero, holds(Relation::Equal)),
            (self.negative, holds(Relation::Negative)),
            (self.overflow, holds(Relation::Less) != holds(Relation::Negative)),
        ];
        flags.into_iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum()
    }

    /// Returns whether two numbers compare so, if the flags, those that are known, are those of their difference.
    pub fn holds(&self, relation: Relation, flags: u64, known: u64) -> Option<bool> {
        let is = |flag| (known & flag != 0).then_some(flags & flag != 0);
        let below = || Some(is(self.carry)? == self.is_borrow);
        let less = || Some(is(self.negative)? != is(self.overflow)?);
        Some(match relation {
            Relation::Equal => is(self.zero)?,
            Relation::NotEqual => !is(self.zero)?,
            Relation::Below => below()?,
            Relation::BelowOrEqual => below()? || is(self.zero)?,
            Relation::Above => !below()? && !is(self.zero)?,
            Relation::AboveOrEqual => !below()?,
            Relation::Less => less()?,
            Relation::LessOrEqual => less()? || is(self.zero)?,
            Relation::Greater => !less()? && !is(self.zero)?,
            Relation::GreaterOrEqual => !less()?,
            Relation::Negative => is(self.negative)?,
            Relation::NotNegative => !is(self.negative)?,
            Relation::Other(_) => return None,
        })
    }
}
