//! Formats a table as text.

use evictscope_host::printable;

/// Returns the rows as lines, each column as wide as its widest cell. All but the last are padded.
pub fn lines(rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| row.iter().map(|cell| printable(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths);
        let padded: Vec<String> = cells.map(|(cell, width)| format!("{cell:<width$}")).collect();
        text += padded.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["a".to_owned(), "long".to_owned()], vec!["µs µs".to_owned(), "b".to_owned()]];
        assert_eq!(lines(&rows), "a      long\nµs µs  b\n");
        assert_eq!(lines(&[]), "");
    }
}
