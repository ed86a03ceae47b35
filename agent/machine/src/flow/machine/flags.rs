//! The flags, each of which may be unknown.

use iced_x86::ConditionCode;

use crate::flow::bits::low_bits;

/// The flags that conditions are made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flags {
    carry: Option<bool>,
    zero: Option<bool>,
    sign: Option<bool>,
    overflow: Option<bool>,
}

/// Returns the sign bit of a number of `width` bytes.
fn is_negative(value: u64, width: u64) -> bool {
    value >> (8 * width.clamp(1, 8) - 1) & 1 == 1
}

impl Flags {
    /// Returns the flags after `left + right`.
    pub fn of_sum(left: u64, right: u64, width: u64) -> Self {
        let result = low_bits(left.wrapping_add(right), 8 * width);
        let [left_sign, right_sign, sign] =
            [left, right, result].map(|value| is_negative(value, width));
        Self {
            carry: Some(result < low_bits(left, 8 * width)),
            overflow: Some(left_sign == right_sign && sign != left_sign),
            ..Self::of_result(result, width)
        }
    }

    /// Returns the flags after `left - right`, or their comparison.
    pub fn of_difference(left: u64, right: u64, width: u64) -> Self {
        let result = left.wrapping_sub(right);
        let [left_sign, right_sign, sign] =
            [left, right, result].map(|value| is_negative(value, width));
        Self {
            carry: Some(low_bits(left, 8 * width) < low_bits(right, 8 * width)),
            overflow: Some(left_sign != right_sign && sign != left_sign),
            ..Self::of_result(result, width)
        }
    }

    /// Returns the flags after `and`, `or`, `xor` or `test`.
    pub fn of_logic(result: u64, width: u64) -> Self {
        Self {
            carry: Some(false),
            overflow: Some(false),
            ..Self::of_result(result, width)
        }
    }

    /// Returns the flags after a shift that moved `carry` out.
    pub fn of_shift(result: u64, carry: bool, width: u64) -> Self {
        Self {
            carry: Some(carry),
            overflow: None,
            ..Self::of_result(result, width)
        }
    }

    /// Returns the same flags with another carry.
    pub fn keeping_carry_of(self, before: Self) -> Self {
        Self {
            carry: before.carry,
            ..self
        }
    }

    fn of_result(result: u64, width: u64) -> Self {
        Self {
            carry: None,
            zero: Some(low_bits(result, 8 * width) == 0),
            sign: Some(is_negative(result, width)),
            overflow: None,
        }
    }

    /// Returns whether a condition holds, if the flags that it depends on are known.
    pub fn condition(self, code: ConditionCode) -> Option<bool> {
        let not = |flag: Option<bool>| flag.map(|flag| !flag);
        let less = || Some(self.sign? != self.overflow?);
        let below_or_equal = || Some(self.carry? || self.zero?);
        let less_or_equal = || Some(less()? || self.zero?);
        match code {
            ConditionCode::e => self.zero,
            ConditionCode::ne => not(self.zero),
            ConditionCode::s => self.sign,
            ConditionCode::ns => not(self.sign),
            ConditionCode::b => self.carry,
            ConditionCode::ae => not(self.carry),
            ConditionCode::o => self.overflow,
            ConditionCode::no => not(self.overflow),
            ConditionCode::be => below_or_equal(),
            ConditionCode::a => not(below_or_equal()),
            ConditionCode::l => less(),
            ConditionCode::ge => not(less()),
            ConditionCode::le => less_or_equal(),
            ConditionCode::g => not(less_or_equal()),
            ConditionCode::None | ConditionCode::p | ConditionCode::np => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use iced_x86::ConditionCode;

    use super::Flags;

    #[test]
    fn comparisons_are_told_apart_by_sign_and_width() {
        let holds = |left, right, width, code| {
            Flags::of_difference(left, right, width).condition(code) == Some(true)
        };
        assert!(holds(u64::MAX, 1, 8, ConditionCode::l));
        assert!(holds(u64::MAX, 1, 8, ConditionCode::a));
        assert!(holds(0xffff_ffff, 1, 4, ConditionCode::l));
        assert!(!holds(0xffff_ffff, 1, 8, ConditionCode::l));
        assert!(holds(0x1_0000_0002, 2, 4, ConditionCode::e));
        assert!(holds(1 << 63, 1, 8, ConditionCode::o));
        assert!(holds(3, 3, 8, ConditionCode::le));
        assert!(holds(3, 3, 8, ConditionCode::be));
    }

    #[test]
    fn a_sum_that_overflows_carries() {
        let flags = Flags::of_sum(0xffff_ffff, 1, 4);
        assert_eq!(flags.condition(ConditionCode::b), Some(true));
        assert_eq!(flags.condition(ConditionCode::e), Some(true));
        assert_eq!(flags.condition(ConditionCode::o), Some(false));
    }
}
