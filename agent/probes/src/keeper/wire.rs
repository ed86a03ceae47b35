//! What the agent and the keeper tell each other over their socket: one message each for a request and an answer, in
//! words of eight bytes, with file descriptors beside them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The longest message, bytes: an attachment at 4,000 sites.
const LONGEST: usize = 1 << 16;
const WORD: usize = size_of::<u64>();
/// Descriptors that come with a message, at most: a program, and an executable.
const DESCRIPTORS: usize = 2;

const ATTACH: u64 = 1;
const TAKE_OFF: u64 = 2;

/// What the agent asks for. It numbers the links.
#[derive(Debug, PartialEq, Eq)]
pub enum Request {
    /// Make this link. A program and an executable come with it.
    Attach(u64, Attach),
    /// Release these links.
    TakeOff(Vec<u64>),
}

/// How a program is to be attached to a process.
#[derive(Debug, PartialEq, Eq)]
pub struct Attach {
    /// By which kind of link.
    pub kind: Kind,
    /// Whether it runs when the function at the site returns.
    pub is_return: bool,
    /// The process.
    pub pid: u32,
    /// Where in the executable, and the cookie there.
    pub sites: Vec<(u64, u64)>,
}

/// A kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One uprobe_multi link for all sites.
    Multi,
    /// A perf event, for the only site. The kernel's number for events that are uprobes.
    Perf(u32),
}

/// What became of a link: it was made or released, or this is the error.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub link: u64,
    pub error: Option<i32>,
}

impl Request {
    pub fn words(&self) -> Vec<u64> {
        match self {
            Self::Attach(link, attach) => {
                // No event has the number 0 but those of the hardware.
                let event = match attach.kind {
                    Kind::Multi => 0,
                    Kind::Perf(event) => event.into(),
                };
                let pid = attach.pid.into();
                let head = [ATTACH, *link, event, attach.is_return.into(), pid];
                let sites = attach.sites.iter();
                let sites = sites.flat_map(|(offset, cookie)| [*offset, *cookie]);
                head.into_iter().chain(sites).collect()
            }
            Self::TakeOff(links) => [TAKE_OFF].iter().chain(links).copied().collect(),
        }
    }

    /// Returns the request that these words are; `None` where they are none.
    pub fn parse(words: &[u64]) -> Option<Self> {
        match words {
            [ATTACH, link, event, is_return, pid, sites @ ..] => Some(Self::Attach(
                *link,
                Attach {
                    kind: match u32::try_from(*event).ok()? {
                        0 => Kind::Multi,
                        event => Kind::Perf(event),
                    },
                    is_return: *is_return != 0,
                    pid: u32::try_from(*pid).ok()?,
                    sites: sites.as_chunks().0.iter().map(|[a, b]| (*a, *b)).collect(),
                },
            )),
            [TAKE_OFF, links @ ..] => Some(Self::TakeOff(links.to_vec())),
            _ => None,
        }
    }
}

impl Answer {
    pub fn words(&self) -> [u64; 2] {
        let error = self.error.map_or(0, |error| error.unsigned_abs().into());
        [self.link, error]
    }

    /// Returns the answer that these words are; `None` where they are none.
    pub fn parse(words: &[u64]) -> Option<Self> {
        let [link, error] = *words else {
            return None;
        };
        let error = i32::try_from(error).ok()?;
        Some(Self {
            link,
            error: (error != 0).then_some(error),
        })
    }
}

/// Sends a message.
///
/// # Errors
///
/// What the kernel says: `EPIPE` where the other end is closed.
pub fn send(
    socket: BorrowedFd<'_>,
    words: &[u64],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let parts = [IoSlice::new(&bytes)];
    retry_on_intr(|| sendmsg(socket, &parts, &mut beside, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a message. Returns `None` where the other end is closed. Descriptors are missing where there was no room for
/// them among those that this process may open.
///
/// # Errors
///
/// What the kernel says.
pub fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<(Vec<u64>, Vec<OwnedFd>)>> {
    let mut bytes = [0; LONGEST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        let parts = &mut [IoSliceMut::new(&mut bytes)];
        recvmsg(socket, parts, &mut beside, RecvFlags::CMSG_CLOEXEC)
    })?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(own) = message {
            descriptors.extend(own);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let words = bytes[..received.bytes].as_chunks::<WORD>().0;
    let words = words.iter().map(|word| u64::from_ne_bytes(*word));
    Ok(Some((words.collect(), descriptors)))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::{Answer, Attach, Kind, Request, receive, send};

    #[test]
    fn what_is_sent_is_received() -> anyhow::Result<()> {
        let (one, other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let file = std::fs::File::open("/dev/null")?;
        for kind in [Kind::Multi, Kind::Perf(9)] {
            let request = Request::Attach(
                7,
                Attach {
                    kind,
                    is_return: kind == Kind::Multi,
                    pid: 42,
                    sites: vec![(0x1234, u64::MAX), (1, 2)],
                },
            );
            send(one.as_fd(), &request.words(), &[file.as_fd(), one.as_fd()])?;
            let (words, descriptors) = receive(other.as_fd())?.unwrap_or_default();
            assert_eq!(Request::parse(&words), Some(request));
            assert_eq!(descriptors.len(), 2);
        }
        let request = Request::TakeOff(vec![7, 8]);
        assert_eq!(Request::parse(&request.words()), Some(request));
        for error in [None, Some(libc::EINVAL)] {
            let answer = Answer { link: 7, error };
            assert_eq!(Answer::parse(&answer.words()), Some(answer));
        }
        assert_eq!(Request::parse(&[3, 1]), None);
        drop(one);
        assert!(receive(other.as_fd())?.is_none());
        Ok(())
    }
}
