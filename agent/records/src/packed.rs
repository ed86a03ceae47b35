//! The format of the files: two lines of JSON, gzipped. The first summarises the second, so that listing files unpacks
//! no more than that.
//!
//! Each line is its own gzip member (RFC 1952, 2.2), and the first gives the length of the second: a truncated file is
//! recognised without unpacking it. `zcat` prints both.

use std::io::{self, Read, Write as _};

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Record;

/// The longest first line, packed or not. Ours have some 400 bytes.
const LONGEST_HEAD: u64 = 16 << 10;
/// The longest second line, unpacked. Ours have some MB at most, for a burst of minutes.
const LONGEST_BODY: u64 = 64 << 20;

#[derive(Debug, Serialize, Deserialize)]
struct Head<T> {
    format: u32,
    /// The length of the second line, packed.
    packed_bytes: u64,
    /// What it says about the second line.
    about: T,
}

/// The part of the first line that no version of the format changes.
#[derive(Debug, Deserialize)]
struct Version {
    format: u32,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "their messages say what they are")]
pub enum Unreadable {
    #[error("it is not a file of evictscope")]
    Foreign,
    /// It was written by another version, renamed, or is too large: the whole sentence.
    #[error("{0}")]
    Other(String),
    #[error("it is damaged: {0}")]
    Damaged(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

pub(super) fn pack(about: &impl Serialize, body: &impl Serialize) -> io::Result<Vec<u8>> {
    let body = line(body)?;
    let head = Head { format: Record::FORMAT, packed_bytes: body.len() as u64, about };
    let mut packed = line(&head)?;
    packed.extend(body);
    Ok(packed)
}

/// Returns a gzip member that holds a value as a line of JSON.
fn line(value: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    serde_json::to_writer(&mut packer, value)?;
    packer.write_all(b"\n")?;
    packer.finish()
}

/// Reads what the first line of a file says, and checks that the file has `bytes` bytes.
pub(super) fn read_head<T: DeserializeOwned>(file: impl Read, bytes: u64) -> Result<T, Unreadable> {
    Ok(head(file, bytes)?.0)
}

pub(super) fn read_all<T: DeserializeOwned, B: DeserializeOwned>(
    mut file: impl Read,
    bytes: u64,
) -> Result<(T, B), Unreadable> {
    let (about, begun) = head(&mut file, bytes)?;
    let rest = io::BufReader::new(io::Cursor::new(begun).chain(file));
    let mut unpacked = Vec::new();
    GzDecoder::new(rest)
        .take(LONGEST_BODY + 1)
        .read_to_end(&mut unpacked)
        .map_err(|error| Unreadable::Damaged(error.to_string()))?;
    if unpacked.len() as u64 > LONGEST_BODY {
        let limit = LONGEST_BODY >> 20;
        let why = format!("it has more than {limit} MiB unpacked, more than any file of evictscope");
        return Err(Unreadable::Other(why));
    }
    Ok((about, serde_json::from_slice(&unpacked).map_err(|error| Unreadable::Damaged(error.to_string()))?))
}

/// Returns what the first line says, and what was read of the second.
fn head<T: DeserializeOwned>(file: impl Read, bytes: u64) -> Result<(T, Vec<u8>), Unreadable> {
    let mut begun = Vec::new();
    file.take(LONGEST_HEAD).read_to_end(&mut begun)?;
    let mut unpacker = GzDecoder::new(begun.as_slice());
    let mut line = Vec::new();
    let unpacked = unpacker.by_ref().take(LONGEST_HEAD).read_to_end(&mut line);
    let version: Version = unpacked.ok().and_then(|_| serde_json::from_slice(&line).ok()).ok_or(Unreadable::Foreign)?;
    if version.format != Record::FORMAT {
        let (other, ours) = (version.format, Record::FORMAT);
        return Err(Unreadable::Other(format!(
            "it has the format {other}, and this evictscope reads {ours}: read it with the one that wrote it, or a newer one"
        )));
    }
    let head: Head<T> = serde_json::from_slice(&line).map_err(|_| Unreadable::Foreign)?;
    let rest = unpacker.into_inner().to_vec();
    let head_bytes = begun.len() as u64 - rest.len() as u64;
    let should = head_bytes.saturating_add(head.packed_bytes);
    if should != bytes {
        return Err(Unreadable::Damaged(format!("it should have {should} bytes, and has {bytes}")));
    }
    Ok((head.about, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces(count: u64) -> io::Result<Vec<u8>> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        io::copy(&mut io::repeat(b' ').take(count), &mut packer)?;
        packer.finish()
    }

    #[test]
    fn what_is_huge_when_unpacked_is_not_unpacked() -> anyhow::Result<()> {
        let body = spaces(LONGEST_BODY + 1)?;
        let mut file = line(&Head { format: Record::FORMAT, packed_bytes: body.len() as u64, about: 7 })?;
        file.extend(body);
        anyhow::ensure!(file.len() < 1 << 20);
        let bytes = file.len() as u64;
        assert_eq!(read_head::<u32>(file.as_slice(), bytes)?, 7);
        let read = read_all::<u32, u32>(file.as_slice(), bytes);
        assert!(matches!(&read, Err(Unreadable::Other(why)) if why.contains("64 MiB")), "{read:?}");
        // Nor if it is the first line.
        let file = spaces(LONGEST_BODY)?;
        let read = read_head::<u32>(file.as_slice(), file.len() as u64);
        assert!(matches!(read, Err(Unreadable::Foreign)), "{read:?}");
        Ok(())
    }
}
