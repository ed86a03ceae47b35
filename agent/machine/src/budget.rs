//! How much work and memory the analysis of one file may take.
//!
//! Executables are not trusted: one can be made whose analysis would not end, or not fit. This crate has no clock, so
//! it counts what it does, in steps of about a tenth of a microsecond. An analysis that runs out of them stops where it
//! is, with results that may be wrong: if a budget ran out, everything that was found must be dropped.

use std::cell::Cell;
use std::rc::Rc;

/// Steps for one file. The whole analysis of an executable of some megabytes takes 100,000 to 400,000; of one built
/// without optimisation, up to 1.1 million.
const MAX_STEPS: u64 = 8_000_000;
/// Bytes that the analysis of one file may keep. An executable of some megabytes takes a few million.
const MAX_BYTES: u64 = 64 << 20;
/// How deep an analysis may go into values that consist of other values.
const MAX_DEPTH: u32 = 256;

/// What is left for one file; its clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    left: Rc<Left>,
}

#[derive(Debug)]
struct Left {
    steps: Cell<u64>,
    bytes: Cell<u64>,
    depth: Cell<u32>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            left: Rc::new(Left {
                steps: Cell::new(MAX_STEPS),
                bytes: Cell::new(MAX_BYTES),
                depth: Cell::new(MAX_DEPTH),
            }),
        }
    }
}

impl Budget {
    /// Takes some steps, and returns whether there were enough.
    pub fn spend(&self, steps: u64) -> bool {
        self.take(&self.left.steps, steps)
    }

    fn take(&self, left: &Cell<u64>, amount: u64) -> bool {
        match left.get().checked_sub(amount) {
            Some(rest) => left.set(rest),
            None => self.exhaust(),
        }
        !self.is_spent()
    }

    /// Takes the steps for searching some bytes, and returns whether there were enough.
    pub fn scan(&self, bytes: usize) -> bool {
        self.spend(1 + bytes as u64 / 256)
    }

    /// Takes memory that will be kept, in bytes, and returns whether there was enough.
    pub fn keep(&self, bytes: usize) -> bool {
        self.take(&self.left.bytes, bytes as u64)
    }

    /// Goes one level deeper, unless that is too deep; if it returns true, [`Self::leave`] must follow.
    pub fn enter(&self) -> bool {
        let depth = self.left.depth.get().checked_sub(1);
        let Some(depth) = depth.filter(|_| self.spend(1)) else {
            self.exhaust();
            return false;
        };
        self.left.depth.set(depth);
        true
    }

    /// Comes back from one level deeper.
    pub fn leave(&self) {
        self.left.depth.set(self.left.depth.get() + 1);
    }

    /// Returns whether the budget has run out, so that nothing found since can be trusted.
    pub fn is_spent(&self) -> bool {
        self.left.steps.get() == 0
    }

    /// Uses up the budget, because something too large was found.
    pub fn exhaust(&self) {
        self.left.steps.set(0);
    }
}
