//! What the flags say about values.

use iced_x86::{ConditionCode, Instruction};

use super::condition::{Condition, Relation};
use super::value::Value;

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
    /// Zero and sign flag are those of a result; carry and overflow are not known.
    ZeroAndSign {
        /// The result.
        of: Value,
        /// 8, 16, 32 or 64.
        bits: u8,
    },
}

impl Flags {
    /// Returns the condition under which an instruction jumps, if it is a conditional jump and the flags are known.
    pub fn condition_of_jump(&self, instruction: &Instruction) -> Option<Condition> {
        let is_jump = instruction.is_jcc_short_or_near();
        self.condition(instruction.condition_code())
            .filter(|_| is_jump)
    }

    /// Returns the condition that `code` stands for.
    pub fn condition(&self, code: ConditionCode) -> Option<Condition> {
        let (left, right, bits, exact) = match self {
            Self::Unknown => return None,
            Self::Comparison { left, right, bits } => (left.clone(), right.clone(), *bits, true),
            Self::ZeroAndSign { of, bits } => (of.clone(), Value::constant(0), *bits, false),
        };
        let zero = Value::constant(0);
        let (relation, left, right) = match code {
            ConditionCode::e => (Relation::Equal, left, right),
            ConditionCode::ne => (Relation::NotEqual, left, right),
            ConditionCode::s => (Relation::Less, left.minus(&right), zero),
            ConditionCode::ns => (Relation::LessOrEqual, zero, left.minus(&right)),
            _ if !exact => return None,
            ConditionCode::b => (Relation::Below, left, right),
            ConditionCode::ae => (Relation::BelowOrEqual, right, left),
            ConditionCode::a => (Relation::Below, right, left),
            ConditionCode::be => (Relation::BelowOrEqual, left, right),
            ConditionCode::l => (Relation::Less, left, right),
            ConditionCode::ge => (Relation::LessOrEqual, right, left),
            ConditionCode::g => (Relation::Less, right, left),
            ConditionCode::le => (Relation::LessOrEqual, left, right),
            _ => return None,
        };
        Some(Condition {
            relation,
            left,
            right,
            bits,
        })
    }
}
