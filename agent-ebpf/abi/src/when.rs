//! Which of the calls that pass a site end there.

use crate::registers::{is_condition, is_set};

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

    /// Returns those for which a condition of the flags holds, by its number in instructions (0 to 15). An odd one
    /// is the opposite of the one before it.
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

    /// Returns the number of the register that decides, if it is not the flags.
    #[inline(always)]
    pub const fn register(self) -> Option<u8> {
        let kind = self.0 >> KIND;
        if kind >= HALF && self.is_test() { Some((self.0 >> REGISTER & 63) as u8) } else { None }
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

#[cfg(test)]
mod tests {
    use super::When;

    /// Where both processors have "equal", and "not equal" behind it.
    const EQUAL: u8 = if cfg!(target_arch = "aarch64") { 0 } else { 4 };

    #[test]
    fn flags_decide_by_a_condition() {
        for flags in [0, u64::MAX] {
            let equal = When::condition(EQUAL);
            assert_eq!(equal.holds(flags), flags != 0);
            assert_eq!(equal.opposite().holds(flags), flags == 0);
            assert_eq!(When::condition(EQUAL + 1).holds(flags), flags == 0);
            assert!(When::ALWAYS.holds(flags) && !When::NEVER.holds(flags));
        }
        assert_eq!(When::decode(When::condition(5).encode()), When::condition(5));
        assert_eq!([When::condition(15), When::ALWAYS, When::NEVER].map(When::register), [None; 3]);
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
            assert_eq!((when.register(), when.opposite().register()), (Some(30), Some(30)));
            assert_eq!(When::decode(when.opposite().encode()).holds(content), !holds, "{when:?}");
            assert!(when.is_test());
        }
    }
}
