//! What the flags say about values.

use iced_x86::ConditionCode;

use super::condition::{Condition, Relation};
use super::value::Value;

/// What the flags say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Flags {
    /// Unknown.
    Unknown,
    /// They are those of `left - right` over `bits` bits.
    Comparison {
        /// Minuend.
        left: Value,
        /// Subtrahend.
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
    /// Returns the condition that `code` stands for.
    pub fn condition(&self, code: ConditionCode) -> Option<Condition> {
        let make = |relation, left: &Value, right: &Value, bits| {
            Some(Condition {
                relation,
                left: left.clone(),
                right: right.clone(),
                bits,
            })
        };
        let (left, right, bits, exact) = match self {
            Self::Unknown => return None,
            Self::Comparison { left, right, bits } => (left.clone(), right.clone(), *bits, true),
            Self::ZeroAndSign { of, bits } => (of.clone(), Value::constant(0), *bits, false),
        };
        match code {
            ConditionCode::e => make(Relation::Equal, &left, &right, bits),
            ConditionCode::ne => make(Relation::NotEqual, &left, &right, bits),
            ConditionCode::s => make(
                Relation::Less,
                &left.minus(&right),
                &Value::constant(0),
                bits,
            ),
            ConditionCode::ns => make(
                Relation::LessOrEqual,
                &Value::constant(0),
                &left.minus(&right),
                bits,
            ),
            _ if !exact => None,
            ConditionCode::b => make(Relation::Below, &left, &right, bits),
            ConditionCode::ae => make(Relation::BelowOrEqual, &right, &left, bits),
            ConditionCode::a => make(Relation::Below, &right, &left, bits),
            ConditionCode::be => make(Relation::BelowOrEqual, &left, &right, bits),
            ConditionCode::l => make(Relation::Less, &left, &right, bits),
            ConditionCode::ge => make(Relation::LessOrEqual, &right, &left, bits),
            ConditionCode::g => make(Relation::Less, &right, &left, bits),
            ConditionCode::le => make(Relation::LessOrEqual, &left, &right, bits),
            _ => None,
        }
    }
}
