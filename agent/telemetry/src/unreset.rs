//! A server's own counter, made one that only grows.

/// Turns one of the server's own counters, which `CONFIG RESETSTAT` sets back to 0, into one that only grows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unreset {
    last: Option<u64>,
    total: u64,
}

impl Unreset {
    /// Takes in the counter's value and returns how much it has grown since the first. A value lower than the one
    /// before shows that the counter was reset, and has counted from 0 since.
    pub fn advance(&mut self, counter: Option<u64>) -> Option<u64> {
        let counter = counter?;
        if let Some(last) = self.last {
            let grown = counter.checked_sub(last).unwrap_or(counter);
            self.total = self.total.saturating_add(grown);
        }
        self.last = Some(counter);
        Some(self.total)
    }
}
