//! Those of aarch64.

use super::is_set;

/// How many general registers there are, by their number in instructions: x0 to x30, and the stack pointer.
pub const REGISTERS: usize = 32;

/// How many registers the kernel keeps of an interrupted thread (`struct user_pt_regs`): these, pc and pstate.
pub const SAVED_REGISTERS: usize = 34;
/// Which of them is the stack pointer.
pub const SAVED_STACK_POINTER: usize = 31;

/// Bits of pstate, as the kernel keeps it (Arm Architecture Reference Manual, SPSR_EL1).
const NEGATIVE: u32 = 31;
const ZERO: u32 = 30;
const CARRY: u32 = 29;
const OVERFLOW: u32 = 28;

/// Returns whether a condition, by its number in instructions, holds with these flags.
#[inline(always)]
pub const fn is_condition(number: u8, flags: u64) -> bool {
    let positive = match number >> 1 {
        0 => is_set(flags, ZERO),
        1 => is_set(flags, CARRY),
        2 => is_set(flags, NEGATIVE),
        3 => is_set(flags, OVERFLOW),
        4 => is_set(flags, CARRY) && !is_set(flags, ZERO),
        5 => is_set(flags, NEGATIVE) == is_set(flags, OVERFLOW),
        6 => is_set(flags, NEGATIVE) == is_set(flags, OVERFLOW) && !is_set(flags, ZERO),
        // Both always hold.
        _ => return true,
    };
    positive != (number & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::is_condition;

    /// Returns the flags that `cmp left, right` leaves.
    fn compare(left: i8, right: i8) -> u64 {
        let (difference, overflow) = left.overflowing_sub(right);
        let carry = left.cast_unsigned() >= right.cast_unsigned();
        u64::from(difference < 0) << 31
            | u64::from(difference == 0) << 30
            | u64::from(carry) << 29
            | u64::from(overflow) << 28
    }

    #[test]
    fn conditions_are_those_of_a_comparison() {
        let numbers = [i8::MIN, -100, -1, 0, 1, 100, i8::MAX];
        for (left, right) in numbers.into_iter().flat_map(|left| numbers.map(|right| (left, right))) {
            let unsigned = (left.cast_unsigned(), right.cast_unsigned());
            for (number, holds) in [
                (0, left == right),
                (2, unsigned.0 >= unsigned.1),
                (4, left.wrapping_sub(right) < 0),
                (6, left.checked_sub(right).is_none()),
                (8, unsigned.0 > unsigned.1),
                (10, left >= right),
                (12, left > right),
            ] {
                assert_eq!(is_condition(number, compare(left, right)), holds, "{number}: {left} {right}");
                assert_eq!(is_condition(number + 1, compare(left, right)), !holds, "{number}: {left} {right}");
            }
            assert!(is_condition(14, compare(left, right)) && is_condition(15, compare(left, right)));
        }
    }
}
