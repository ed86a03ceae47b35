//! Which of the calls that pass a site end there.

/// Bits of the flags register (AMD64 manual, volume 1, section 3.1.4).
const CARRY: u32 = 0;
const PARITY: u32 = 2;
const ZERO: u32 = 6;
const SIGN: u32 = 7;
const OVERFLOW: u32 = 11;

/// Which of the calls that pass an exit, or the inner site, end there: all of them, those that leave its branch one
/// way, or none.
///
/// Four bits say what decides, and their lowest one whether it must not be so; the other twelve say which condition of
/// the flags it is, by its number in the instruction set, or which register and which bit of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When(u16);

/// How far to the left what decides is.
const KIND: u32 = 12;
const FLAGS: u16 = 2;
/// The lower half of a register must not be zero, all of it, or a bit.
const HALF: u16 = 4;
const WHOLE: u16 = 6;
const BIT: u16 = 8;
/// How far to the left the number of a register is.
const REGISTER: u32 = 6;

impl When {
    pub const ALWAYS: Self = Self(0);

    pub const NEVER: Self = Self(u16::MAX);

    /// Returns those for which a condition of the flags holds, by its number in x86-64 instructions (0 to 15). An odd
    /// one is the opposite of the one before it.
    pub const fn condition(number: u8) -> Self {
        Self(FLAGS << KIND | (number & 15) as u16)
    }

    /// Returns those for which a register is not zero, over 4 or 8 bytes.
    pub const fn not_zero(register: u8, width: u8) -> Self {
        let kind = if width == 4 { HALF } else { WHOLE };
        Self(kind << KIND | ((register & 63) as u16) << REGISTER)
    }

    /// Returns those for which a bit of a register is set.
    pub const fn bit(register: u8, bit: u8) -> Self {
        Self(BIT << KIND | ((register & 63) as u16) << REGISTER | (bit & 63) as u16)
    }

    /// Returns the others; only for those of a test.
    pub const fn opposite(self) -> Self {
        Self(self.0 ^ 1 << KIND)
    }

    pub const fn encode(self) -> u16 {
        self.0
    }

    pub const fn decode(raw: u16) -> Self {
        Self(raw)
    }

    /// Returns whether it is that of a test.
    pub const fn is_test(self) -> bool {
        let kind = self.0 >> KIND;
        kind >= FLAGS && kind <= BIT + 1
    }

    /// Returns whether it holds with these flags, or with this content of the register that it looks at.
    #[inline(always)]
    pub const fn holds(self, deciding: u64) -> bool {
        if self.0 == Self::ALWAYS.0 || self.0 == Self::NEVER.0 {
            return self.0 == Self::ALWAYS.0;
        }
        let kind = self.0 >> KIND;
        let positive = match kind & !1 {
            FLAGS => is_condition(self.0 as u8 & 15, deciding),
            HALF => deciding as u32 != 0,
            WHOLE => deciding != 0,
            _ => is_set(deciding, (self.0 & 63) as u32),
        };
        positive != (kind & 1 != 0)
    }
}

/// Returns whether a condition of x86-64 holds with these flags.
#[inline(always)]
const fn is_condition(number: u8, flags: u64) -> bool {
    let positive = match number >> 1 {
        0 => is_set(flags, OVERFLOW),
        1 => is_set(flags, CARRY),
        2 => is_set(flags, ZERO),
        3 => is_set(flags, CARRY) || is_set(flags, ZERO),
        4 => is_set(flags, SIGN),
        5 => is_set(flags, PARITY),
        6 => is_set(flags, SIGN) != is_set(flags, OVERFLOW),
        _ => is_set(flags, ZERO) || is_set(flags, SIGN) != is_set(flags, OVERFLOW),
    };
    positive != (number & 1 != 0)
}

#[inline(always)]
const fn is_set(flags: u64, bit: u32) -> bool {
    (flags >> bit) & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::When;

    /// Returns the flags that `cmp right, left` leaves, but for parity.
    fn compare(left: i8, right: i8) -> u64 {
        let (difference, overflow) = left.overflowing_sub(right);
        let carry = left.cast_unsigned() < right.cast_unsigned();
        u64::from(carry) | u64::from(difference == 0) << 6 | u64::from(difference < 0) << 7 | u64::from(overflow) << 11
    }

    #[test]
    fn conditions_are_those_of_a_comparison() {
        let numbers = [i8::MIN, -100, -1, 0, 1, 100, i8::MAX];
        for left in numbers {
            for right in numbers {
                let flags = compare(left, right);
                let unsigned = (left.cast_unsigned(), right.cast_unsigned());
                let expected = [
                    (2, unsigned.0 < unsigned.1),
                    (4, left == right),
                    (6, unsigned.0 <= unsigned.1),
                    (8, left.wrapping_sub(right) < 0),
                    (12, left < right),
                    (14, left <= right),
                ];
                for (number, holds) in expected {
                    let (condition, opposite) = (When::condition(number), When::condition(number + 1));
                    assert_eq!(condition.holds(flags), holds, "{number}: {left} {right}");
                    assert_eq!(opposite.holds(flags), !holds, "{number}: {left} {right}");
                    assert_eq!(condition.opposite().holds(flags), !holds, "{number}: {left} {right}");
                }
                assert!(When::ALWAYS.holds(flags) && !When::NEVER.holds(flags));
            }
        }
        assert_eq!(When::decode(When::condition(5).encode()), When::condition(5));
        assert!(When::condition(15).opposite().is_test() && !When::ALWAYS.is_test() && !When::NEVER.is_test());
    }

    #[test]
    fn a_register_decides_by_its_content() {
        for (when, content, holds) in [
            (When::not_zero(30, 8), 1 << 32, true),
            (When::not_zero(30, 4), 1 << 32, false),
            (When::bit(30, 63), 1 << 63, true),
            (When::bit(30, 62), 1 << 63, false),
        ] {
            assert_eq!(when.holds(content), holds, "{when:?}");
            assert_eq!(When::decode(when.opposite().encode()).holds(content), !holds, "{when:?}");
            assert!(when.is_test());
        }
    }
}
