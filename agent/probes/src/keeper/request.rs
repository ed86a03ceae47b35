//! What the agent asks the keeper for: one message for each link, with file descriptors attached.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

use crate::error::Obstacle;

/// The longest message, bytes: enough for more than a thousand sites.
const LONGEST: usize = 1 << 16;
/// Descriptors that come with a message at most: the keeper's end of the link's sockets, the program, the executable,
/// and the program that looks who maps it.
const DESCRIPTORS: usize = 4;

/// How to attach a program to a process.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    pub kind: LinkKind,
    /// Whether it runs when the function at the site returns.
    pub is_return: bool,
    pub pid: u32,
    /// File offsets in the executable, each with its cookie.
    pub sites: Vec<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// One uprobe_multi link for all sites.
    Multi,
    /// A perf event, for the only site, with the kernel's number for such events.
    Perf(u32),
}

/// The bytes of an answer.
pub const ANSWER: usize = 8;

/// Encodes what came of a request: 0, the kernel's error, or a negative number for an [`Obstacle`], then the process
/// that it names.
pub fn encode(made: Option<&io::Error>) -> [u8; ANSWER] {
    let obstacle = made.and_then(|error| error.get_ref()?.downcast_ref());
    let (code, pid) = match (made, obstacle) {
        (None, _) => (0, 0),
        (_, Some(Obstacle::Locked(pid))) => (-1, *pid),
        (_, Some(Obstacle::Crowded)) => (-2, 0),
        (_, Some(Obstacle::InUserSpace)) => (-3, 0),
        (Some(error), None) => (error.raw_os_error().unwrap_or(libc::EIO), 0),
    };
    (i64::from(code) << 32 | i64::from(pid)).to_ne_bytes()
}

/// Decodes an answer. Fails with the error that it tells.
pub fn decode(answer: [u8; ANSWER]) -> io::Result<()> {
    let answer = i64::from_ne_bytes(answer);
    match (answer >> 32) as i32 {
        0 => Ok(()),
        -1 => Err(Obstacle::Locked(answer as u32).into()),
        -2 => Err(Obstacle::Crowded.into()),
        -3 => Err(Obstacle::InUserSpace.into()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Sends a request. Fails if the request is too long, or with the kernel's error: `EPIPE` if the other end is closed.
pub fn send(socket: impl AsFd, attach: &Attach, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(attach)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if bytes.len() > LONGEST || !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let parts = [IoSlice::new(&bytes)];
    retry_on_intr(|| sendmsg(&socket, &parts, &mut beside, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a request and its descriptors. The last of them are missing if this process may open no more. Returns
/// `None` if the other end is closed. Fails with the kernel's error, or if it is not a request.
pub fn receive(socket: impl AsFd) -> io::Result<Option<(Attach, Vec<OwnedFd>)>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, parts, &mut beside, RecvFlags::CMSG_CLOEXEC)
    })?;
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Some((serde_json::from_slice(&bytes[..received.bytes])?, descriptors)))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::AsFd as _;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::{Attach, LinkKind, Obstacle, decode, encode, receive, send};

    #[test]
    fn an_answer_tells_what_came_of_it() {
        let answer = |error: io::Error| decode(encode(Some(&error))).map_err(|decoded| decoded.to_string());
        assert!(decode(encode(None)).is_ok());
        for obstacle in [Obstacle::Locked(u32::MAX), Obstacle::Crowded, Obstacle::InUserSpace] {
            assert_eq!(answer(obstacle.into()), Err(obstacle.to_string()));
        }
        let refused = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(answer(refused), Err(io::Error::from_raw_os_error(libc::EINVAL).to_string()));
    }

    #[test]
    fn what_is_sent_is_received() -> anyhow::Result<()> {
        let (agents, keepers) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let with = [agents.as_fd(), keepers.as_fd(), agents.as_fd()];
        let mut attach =
            Attach { kind: LinkKind::Perf(9), is_return: true, pid: 42, sites: vec![(u64::MAX, u64::MAX); 1_000] };
        send(&agents, &attach, &with)?;
        let (received, descriptors) = receive(&keepers)?.unwrap_or_else(|| panic!("closed"));
        assert_eq!(received, attach);
        assert_eq!(descriptors.len(), with.len());
        // One server with too many sites does not harm the others.
        attach.sites = vec![(u64::MAX, u64::MAX); 10_000];
        assert!(send(&agents, &attach, &with).is_err());
        drop(descriptors);
        drop(agents);
        assert!(receive(&keepers)?.is_none());
        Ok(())
    }
}
