//! Which of the calls that pass a site end there.

/// Bits of the flags register (AMD64 manual, volume 1, section 3.1.4).
const CARRY: u32 = 0;
const PARITY: u32 = 2;
const ZERO: u32 = 6;
const SIGN: u32 = 7;
const OVERFLOW: u32 = 11;

/// Which of the calls that pass an exit, or the inner site, end there: all of them, those that leave its
/// conditional jump one way, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When(u8);

impl When {
    pub const ALWAYS: Self = Self(0);

    pub const NEVER: Self = Self(u8::MAX);

    /// Returns those for which a condition holds, by its number in x86-64 instructions (0 to 15).
    pub const fn condition(number: u8) -> Self {
        Self(1 + (number & 15))
    }

    pub const fn encode(self) -> u8 {
        self.0
    }

    pub const fn decode(raw: u8) -> Self {
        Self(raw)
    }

    /// Returns whether it holds with these flags.
    #[inline(always)]
    pub const fn holds(self, flags: u64) -> bool {
        let Some(number) = self.0.checked_sub(1) else {
            return true;
        };
        if self.0 == Self::NEVER.0 {
            return false;
        }
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
        // An odd number is the opposite of the one before it.
        positive != (number & 1 != 0)
    }
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
                }
                assert!(When::ALWAYS.holds(flags) && !When::NEVER.holds(flags));
            }
        }
        assert_eq!(When::decode(When::condition(5).encode()), When::condition(5));
    }
}
