//! What later tests find: the last comparison, or what is left of it.

use std::rc::Rc;

use super::atoms::Atoms;
use super::condition::{Condition, Relation};
use super::value::Value;
use crate::ir;

/// What the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Nothing known.
    Unknown,
    /// They are those of `left - right` over `bits` bits.
    Comparison {
        /// What is subtracted from.
        left: Value,
        /// What is subtracted.
        right: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
    /// They are those of a comparison if a condition holds.
    Conditional {
        /// The condition.
        condition: Condition,
        /// The flags of the comparison.
        then: Box<Flags>,
        /// In which ways numbers compare if the condition does not hold.
        otherwise: Rc<[ir::Relation]>,
    },
    /// Zero and sign flag are those of a result; carry and overflow are not known.
    ZeroAndSign {
        /// The result.
        of: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
}

impl Flags {
    /// Returns the condition that holds if the two sides of the last comparison compare in a way.
    pub fn condition(&self, compared: ir::Relation, atoms: &mut Atoms) -> Option<Condition> {
        let (left, right, bits, exact) = match self {
            Self::Unknown => return None,
            Self::Conditional { condition, then, otherwise } => {
                let then = then.condition(compared, atoms)?;
                // Either both hold, or one of them does.
                let all = !otherwise.contains(&compared);
                let first = if all { condition.clone() } else { condition.negated() };
                return Some(atoms.joined(all, [first, then]));
            }
            Self::Comparison { left, right, bits } => (left.clone(), right.clone(), *bits, true),
            Self::ZeroAndSign { of, bits } => (of.clone(), Value::constant(0), *bits, false),
        };
        let zero = Value::constant(0);
        let (relation, left, right) = match compared {
            ir::Relation::Equal => (Relation::Equal, left, right),
            ir::Relation::NotEqual => (Relation::NotEqual, left, right),
            ir::Relation::Negative => (Relation::Less, left.minus(&right), zero),
            ir::Relation::NotNegative => (Relation::LessOrEqual, zero, left.minus(&right)),
            _ if !exact => return None,
            ir::Relation::Below => (Relation::Below, left, right),
            ir::Relation::AboveOrEqual => (Relation::BelowOrEqual, right, left),
            ir::Relation::Above => (Relation::Below, right, left),
            ir::Relation::BelowOrEqual => (Relation::BelowOrEqual, left, right),
            ir::Relation::Less => (Relation::Less, left, right),
            ir::Relation::GreaterOrEqual => (Relation::LessOrEqual, right, left),
            ir::Relation::Greater => (Relation::Less, right, left),
            ir::Relation::LessOrEqual => (Relation::LessOrEqual, left, right),
            ir::Relation::Other(_) => return None,
        };
        Some(Condition { relation, left, right, bits })
    }

    /// Returns the values that they depend on.
    pub fn values_mut(&mut self) -> Vec<&mut Value> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Comparison { left, right, .. } => vec![left, right],
            Self::Conditional { condition, then, .. } => {
                let mut all = then.values_mut();
                all.extend([&mut condition.left, &mut condition.right]);
                all
            }
            Self::ZeroAndSign { of, .. } => vec![of],
        }
    }
}
