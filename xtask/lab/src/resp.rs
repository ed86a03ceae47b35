//! Skims replies in the protocol of Redis (RESP2).
//!
//! The generator needs to know only where a reply ends and whether it is an error. It receives some 100 MB a second
//! on a core that it shares with the recorder. [`Skim`] therefore steps over the bytes as they come, in one buffer
//! for all connections. A parser would keep each unfinished reply and read it from its beginning again.

use anyhow::{Context as _, Result, bail};

/// The longest line that is read, in bytes. No reply to the lab's commands has such a line.
const LONGEST_LINE: usize = 4096;

/// The place in the replies of one connection that the bytes so far have reached.
#[derive(Default)]
pub struct Skim {
    /// The part of a header line that has come so far.
    line: Vec<u8>,
    /// Bytes of a bulk string, including its line end, that are still to come.
    skip: usize,
    /// Elements of the current reply that are still to come, including those of nested arrays.
    elements: u64,
    error: bool,
}

impl Skim {
    /// Steps over `bytes`, and calls `finished` for each reply that ends in them, with whether it is an error.
    pub fn feed(&mut self, mut bytes: &[u8], mut finished: impl FnMut(bool)) -> Result<()> {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                if self.skip == 0 {
                    self.element(&mut finished);
                }
                continue;
            }
            let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else {
                self.line.extend_from_slice(bytes);
                if self.line.len() > LONGEST_LINE {
                    bail!("the server sends a line of more than {LONGEST_LINE} bytes");
                }
                return Ok(());
            };
            let mut line = std::mem::take(&mut self.line);
            line.extend_from_slice(&bytes[..end]);
            self.header(&line, &mut finished)?;
            // The next line needs no new memory.
            line.clear();
            self.line = line;
            bytes = &bytes[end + 1..];
        }
        Ok(())
    }

    /// Takes one header line without its `\n`.
    fn header(&mut self, line: &[u8], finished: &mut impl FnMut(bool)) -> Result<()> {
        if self.elements == 0 {
            self.elements = 1;
            self.error = false;
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.split_first() {
            Some((b'+' | b':', _)) => self.element(finished),
            Some((b'-', _)) => {
                self.error = true;
                self.element(finished);
            }
            Some((b'$', length)) => match number(length)? {
                // Null, which has no body.
                None => self.element(finished),
                Some(length) => self.skip = length.saturating_add(2),
            },
            Some((b'*', length)) => {
                let more = number(length)?.unwrap_or(0);
                self.elements = self.elements.saturating_add(more as u64);
                self.element(finished);
            }
            _ => bail!(
                "the server does not speak RESP2: {:?}",
                String::from_utf8_lossy(line)
            ),
        }
        Ok(())
    }

    /// Counts a complete element. The last one completes the reply.
    fn element(&mut self, finished: &mut impl FnMut(bool)) {
        self.elements -= 1;
        if self.elements == 0 {
            finished(self.error);
        }
    }
}

/// Reads a length, which is `None` for null.
fn number(digits: &[u8]) -> Result<Option<usize>> {
    if digits == b"-1" {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(digits);
    let number = text.parse();
    Ok(Some(number.with_context(|| {
        format!("the server sends {text:?} as a length")
    })?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] =
        b"+OK\r\n*3\r\n$3\r\na\nb\r\n$-1\r\n*2\r\n:1\r\n$0\r\n\r\n-OOM no\r\n*0\r\n*-1\r\n";
    const EXPECTED: [bool; 5] = [false, false, true, false, false];

    #[test]
    fn replies_are_counted_in_pieces_of_any_size() -> Result<()> {
        for size in 1..=REPLIES.len() {
            let mut skim = Skim::default();
            let mut found = Vec::new();
            for piece in REPLIES.chunks(size) {
                skim.feed(piece, |is_error| found.push(is_error))?;
            }
            assert_eq!(found, EXPECTED, "in pieces of {size}");
        }
        Ok(())
    }

    #[test]
    fn an_unfinished_reply_does_not_count() -> Result<()> {
        let mut found = 0;
        Skim::default().feed(b"*2\r\n$1\r\na\r\n$5\r\nabcde\r", |_| found += 1)?;
        assert_eq!(found, 0);
        Ok(())
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [&b"HTTP/1.1 200\r\n"[..], b"$x\r\n", b"\r\n", &[b'+'; 5000]] {
            assert!(Skim::default().feed(bytes, |_| {}).is_err());
        }
    }
}
