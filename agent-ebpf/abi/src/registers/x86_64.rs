//! Those of x86-64.

use super::is_set;

/// How many general registers there are, by their number in instructions: rax 0, rcx 1, rdx 2, rbx 3, rsp 4, …
pub const REGISTERS: usize = 16;

/// How many registers the kernel keeps of an interrupted thread (`struct pt_regs`).
pub const SAVED_REGISTERS: usize = 21;
/// Which of them is the stack pointer.
pub const SAVED_STACK_POINTER: usize = 19;

/// Bits of the flags register (AMD64 manual, volume 1, section 3.1.4).
const CARRY: u32 = 0;
const PARITY: u32 = 2;
const ZERO: u32 = 6;
const SIGN: u32 = 7;
const OVERFLOW: u32 = 11;

/// Returns whether a condition, by its number in instructions, holds with these flags.
#[inline(always)]
pub const fn is_condition(number: u8, flags: u64) -> bool {
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

#[cfg(test)]
mod tests {
    use super::is_condition;

    /// Returns the flags that `cmp right, left` leaves, but for parity.
    fn compare(left: i8, right: i8) -> u64 {
        let (difference, overflow) = left.overflowing_sub(right);
        let carry = left.cast_unsigned() < right.cast_unsigned();
        u64::from(carry) | u64::from(difference == 0) << 6 | u64::from(difference < 0) << 7 | u64::from(overflow) << 11
    }

    #[test]
    fn conditions_are_those_of_a_comparison() {
        let numbers = [i8::MIN, -100, -1, 0, 1, 100, i8::MAX];
        for (left, right) in numbers.into_iter().flat_map(|left| numbers.map(|right| (left, right))) {
            let unsigned = (left.cast_unsigned(), right.cast_unsigned());
            for (number, holds) in [
                (2, unsigned.0 < unsigned.1),
                (4, left == right),
                (6, unsigned.0 <= unsigned.1),
                (8, left.wrapping_sub(right) < 0),
                (12, left < right),
                (14, left <= right),
            ] {
                assert_eq!(is_condition(number, compare(left, right)), holds, "{number}: {left} {right}");
                assert_eq!(is_condition(number + 1, compare(left, right)), !holds, "{number}: {left} {right}");
            }
        }
    }
}
