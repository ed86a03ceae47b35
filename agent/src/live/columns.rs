//! Tables whose columns are ordered by importance: if there is no room, the last ones go first.

use evictscope_host::printable;

const GAP: usize = 1;

pub struct Column<T> {
    pub heading: &'static str,
    /// Enough for every cell, or for as much of a text as there is room for.
    width: usize,
    is_number: bool,
    cell: fn(&T) -> Cell,
}

impl<T> Column<T> {
    /// Returns a column of texts, which are aligned to the left.
    pub const fn text(heading: &'static str, width: usize, cell: fn(&T) -> Cell) -> Self {
        Self { heading, width, is_number: false, cell }
    }

    /// Returns a column of numbers, which are aligned to the right.
    pub const fn number(heading: &'static str, width: usize, cell: fn(&T) -> Cell) -> Self {
        Self { is_number: true, ..Self::text(heading, width, cell) }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cell {
    pub text: String,
    /// Whether somebody should look at it.
    pub is_alarming: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, is_alarming: false }
    }
}

/// Returns the most important columns, as many as fit into `width`; always the first one.
pub fn fitting<T>(columns: &[Column<T>], width: usize) -> &[Column<T>] {
    let mut taken = 0;
    let fits = |column: &Column<T>| {
        taken += column.width + GAP;
        taken - GAP <= width
    };
    let count = columns.iter().map(fits).take_while(|fits| *fits).count();
    &columns[..count.max(1).min(columns.len())]
}

pub fn headings<T>(columns: &[Column<T>]) -> String {
    columns.iter().map(|column| padded(column, column.heading)).collect()
}

/// Returns the cells of one line, padded so that they need only be joined.
pub fn cells<T>(columns: &[Column<T>], of: &T) -> Vec<Cell> {
    let cells = columns.iter().map(|column| {
        let cell = (column.cell)(of);
        Cell { text: padded(column, &printable(&cell.text)), ..cell }
    });
    cells.collect()
}

fn padded<T>(column: &Column<T>, text: &str) -> String {
    let width = column.width;
    if column.is_number { format!("{text:>width$}{:GAP$}", "") } else { format!("{text:<width$.width$}{:GAP$}", "") }
}

pub fn is_alarming<T>(columns: &[Column<T>], of: &T) -> bool {
    columns.iter().any(|column| (column.cell)(of).is_alarming)
}

pub fn plain<T>(columns: &[Column<T>], rows: &[T]) -> String {
    let line = |row| cells(columns, row).iter().map(|cell| cell.text.as_str()).collect();
    let lines = std::iter::once(headings(columns)).chain(rows.iter().map(line));
    lines.map(|line: String| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::{Cell, Column, fitting};

    #[test]
    fn the_last_columns_go_first() {
        let cell = |number: &u32| Cell::from(number.to_string());
        let columns = [Column::text("NAME", 6, cell), Column::number("RATE", 4, cell), Column::number("MORE", 4, cell)];
        for (width, count) in [(usize::MAX, 3), (16, 3), (15, 2), (11, 2), (10, 1), (6, 1), (0, 1)] {
            assert_eq!(fitting(&columns, width).len(), count, "{width}");
        }
    }
}
