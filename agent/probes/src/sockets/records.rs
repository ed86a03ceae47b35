//! What the program writes, as the agent has it.

use std::io::{self, ErrorKind};
use std::mem::offset_of;
use std::time::Duration;

use evictscope_abi::{IDLE, LOOK_END, LookEnd, UNREAD_TCP, UNREAD_UNIX, UnreadSocket};
use evictscope_telemetry::{SocketLook, Unread};

/// Reads the records of one look. `tick` is how long one of `jiffies` is.
///
/// # Errors
///
/// "Not found" where the process has no files, as it has ended; "invalid data" where these are no records of a whole look.
pub(super) fn look(mut bytes: &[u8], tick: Duration) -> io::Result<SocketLook> {
    const UNREAD: usize = size_of::<UnreadSocket>();
    const END: usize = size_of::<LookEnd>();
    let mut look = SocketLook::default();
    // When data came is known at the end, which says what `jiffies` were then.
    let mut came = Vec::new();
    loop {
        match bytes {
            [IDLE, rest @ ..] => {
                look.connected += 1;
                bytes = rest;
            }
            [kind @ (UNREAD_TCP | UNREAD_UNIX), ..] => {
                let (record, rest) = bytes
                    .split_first_chunk::<UNREAD>()
                    .ok_or(ErrorKind::InvalidData)?;
                look.connected += 1;
                look.unread.push(Unread {
                    socket: word(record, offset_of!(UnreadSocket, inode))?,
                    read_to: half(record, offset_of!(UnreadSocket, read_to))?,
                    bytes: half(record, offset_of!(UnreadSocket, bytes))?,
                    came: None,
                });
                let jiffies = half(record, offset_of!(UnreadSocket, came))?;
                came.push((*kind == UNREAD_TCP).then_some(jiffies));
                bytes = rest;
            }
            [LOOK_END, ..] => {
                let record = bytes.first_chunk::<END>().ok_or(ErrorKind::InvalidData)?;
                if word(record, offset_of!(LookEnd, files))? == 0 {
                    return Err(ErrorKind::NotFound.into());
                }
                look.at = Duration::from_nanos(word(record, offset_of!(LookEnd, monotonic_ns))?);
                let now = half(record, offset_of!(LookEnd, jiffies))?;
                for (unread, came) in look.unread.iter_mut().zip(came) {
                    // A look takes time: the last ones may have come a tick after what it ends with.
                    let ticks = came.map(|came| now.wrapping_sub(came).cast_signed().max(0));
                    unread.came =
                        ticks.map(|ticks| look.at.saturating_sub(tick * ticks.cast_unsigned()));
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
