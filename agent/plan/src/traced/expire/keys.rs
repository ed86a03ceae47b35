//! The numbers of keys that a cycle sampled, and that had expired: they are divided for the moving
//! average. Counts of other things, such as fields of hashes, never come to that division.

use evictscope_machine::elf::Image;
use evictscope_machine::flow::{Execution, Operand, Point, Quotient};

/// What holds the two counts at an exit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keys {
    pub sampled: Option<Operand>,
    pub expired: Option<Operand>,
}

impl Keys {
    /// Returns what holds the operands of `share` at `point`, and how many of the two are not known.
    pub fn at(share: &Quotient, image: &Image<'_>, execution: &mut Execution<'_>, point: Point) -> (Self, u64) {
        let counts = share.at(image, execution, point).unwrap_or_default();
        let missing = counts.iter().filter(|own| own.is_none()).count();
        let [expired, sampled] = counts;
        (Self { sampled, expired }, missing as u64)
    }
}
