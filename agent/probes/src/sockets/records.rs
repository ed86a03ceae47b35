//! Parses what the program writes.

use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::time::Duration;

use evictscope_abi::{
    IDLE, LOOK_END, LookEnd, NOT_ACCEPTED_TCP, OWED_TCP, UNREAD_TCP, UNREAD_UNIX, UnreadSocket,
};
use evictscope_telemetry::{Owed, SocketLook, Unread};

use super::ticks::Ticks;

/// Reads the records of one look.
///
/// # Errors
///
/// Returns "not found" if the process has no files because it has ended; "invalid data" if the records are not a whole look.
pub(super) fn look(mut bytes: &[u8], ticks: Ticks) -> io::Result<SocketLook> {
    const UNREAD: usize = size_of::<UnreadSocket>();
    const END: usize = size_of::<LookEnd>();
    let mut look = SocketLook::default();
    let mut records = Vec::new();
    loop {
        match bytes {
            [IDLE, rest @ ..] => {
                look.connected += 1;
                bytes = rest;
            }
            [
                kind @ (UNREAD_TCP | UNREAD_UNIX | OWED_TCP | NOT_ACCEPTED_TCP),
                ..,
            ] => {
                let (record, rest) = bytes
                    .split_first_chunk::<UNREAD>()
                    .ok_or(ErrorKind::InvalidData)?;
                look.connected += u32::from(*kind != NOT_ACCEPTED_TCP);
                records.push(record);
                bytes = rest;
            }
            [LOOK_END, ..] => {
                let record = bytes.first_chunk::<END>().ok_or(ErrorKind::InvalidData)?;
                if word(record, offset_of!(LookEnd, files))? == 0 {
                    return Err(ErrorKind::NotFound.into());
                }
                look.at = Duration::from_nanos(word(record, offset_of!(LookEnd, monotonic_ns))?);
                let now = half(record, offset_of!(LookEnd, jiffies))?;
                for record in records {
                    let socket = word(record, offset_of!(UnreadSocket, socket))?;
                    let read_to = half(record, offset_of!(UnreadSocket, read_to))?;
                    let answered_to = word(record, offset_of!(UnreadSocket, answered_to))? as u32;
                    let came = now.wrapping_sub(half(record, offset_of!(UnreadSocket, came))?);
                    let came = ticks.before(look.at, came);
                    match record[0] {
                        OWED_TCP => look.owed.push(Owed {
                            socket,
                            read_to,
                            answered_to,
                            came,
                        }),
                        kind => look.unread.push(Unread {
                            socket,
                            read_to,
                            answered_to,
                            bytes: half(record, offset_of!(UnreadSocket, bytes))?,
                            came: (kind != UNREAD_UNIX).then_some(came),
                        }),
                    }
                }
                return Ok(look);
            }
            _ => return Err(ErrorKind::InvalidData.into()),
        }
    }
}

fn word(record: &[u8], at: usize) -> io::Result<u64> {
    let bytes = record.get(at..).and_then(<[u8]>::first_chunk);
    Ok(u64::from_ne_bytes(*bytes.ok_or(ErrorKind::InvalidData)?))
}

fn half(record: &[u8], at: usize) -> io::Result<u32> {
    let bytes = record.get(at..).and_then(<[u8]>::first_chunk);
    Ok(u32::from_ne_bytes(*bytes.ok_or(ErrorKind::InvalidData)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKS: Ticks = Ticks {
        length: Duration::from_millis(4),
        last: Duration::from_millis(1000),
    };

    fn unread(kind: u8, socket: u64, bytes: u32, came: u32) -> Vec<u8> {
        let mut record = vec![kind, 0, 0, 0];
        record.extend(bytes.to_ne_bytes());
        record.extend(socket.to_ne_bytes());
        record.extend(77_u32.to_ne_bytes());
        record.extend(came.to_ne_bytes());
        record.extend(88_u64.to_ne_bytes());
        record
    }

    fn end(files: u64) -> Vec<u8> {
        let mut record = vec![LOOK_END, 0, 0, 0];
        record.extend(2_u32.to_ne_bytes());
        record.extend(1_001_000_000_u64.to_ne_bytes());
        record.extend(files.to_ne_bytes());
        record
    }

    #[test]
    fn records_are_read() -> io::Result<()> {
        let bytes = [
            vec![IDLE],
            // Before the lower half of `jiffies` wrapped.
            unread(UNREAD_TCP, 5, 14, u32::MAX),
            unread(UNREAD_UNIX, 1 << 40, 9, 0),
            vec![IDLE],
            unread(OWED_TCP, 6, 0, 1),
            unread(NOT_ACCEPTED_TCP, 7, 14, 1),
            end(9),
        ];
        let of = |socket, bytes, came| Unread {
            socket,
            read_to: 77,
            answered_to: 88,
            bytes,
            came,
        };
        let expected = SocketLook {
            at: Duration::from_millis(1001),
            connected: 5,
            unread: vec![
                of(5, 14, Some(Duration::from_millis(988))),
                of(1 << 40, 9, None),
                of(7, 14, Some(Duration::from_millis(996))),
            ],
            owed: vec![Owed {
                socket: 6,
                read_to: 77,
                answered_to: 88,
                came: Duration::from_millis(996),
            }],
        };
        assert_eq!(look(&bytes.concat(), TICKS)?, expected);
        Ok(())
    }

    #[test]
    fn a_look_that_is_not_whole_is_none() {
        let kind = |bytes: &[u8]| look(bytes, TICKS).map_err(|error| error.kind());
        assert_eq!(kind(&end(0)), Err(ErrorKind::NotFound));
        let whole = [unread(UNREAD_TCP, 5, 14, 1), end(9)].concat();
        assert!(kind(&whole).is_ok());
        for len in 0..whole.len() {
            assert_eq!(kind(&whole[..len]), Err(ErrorKind::InvalidData), "{len}");
        }
        assert_eq!(kind(&[9, IDLE]), Err(ErrorKind::InvalidData));
    }
}
