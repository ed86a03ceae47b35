//! A client connection of the generator.

use std::{
    collections::VecDeque,
    io::{Error, ErrorKind, Read as _, Write as _},
    net::Ipv4Addr,
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use mio::{Interest, Registry, Token, net::TcpStream};

use crate::{resp::Skim, workload::Workload};

/// A socket with its requests.
pub struct Connection {
    stream: TcpStream,
    /// Encoded requests, of which `written` bytes are with the kernel.
    output: Vec<u8>,
    written: usize,
    skim: Skim,
    /// When the requests under way were due, in the order they were sent.
    under_way: VecDeque<Instant>,
    /// When the requests that wait for their turn were due.
    waiting: VecDeque<Instant>,
}

impl Connection {
    /// Begins to connect to the server on this loopback port. A server that has much to do accepts late.
    pub fn open(port: u16, registry: &Registry, token: Token) -> Result<Self> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port).into())
            .context("cannot connect to the redis-server of the lab")?;
        stream.set_nodelay(true)?;
        let interests = Interest::READABLE.add(Interest::WRITABLE);
        registry.register(&mut stream, token, interests)?;
        Ok(Self {
            stream,
            output: Vec::new(),
            written: 0,
            skim: Skim::default(),
            under_way: VecDeque::new(),
            waiting: VecDeque::new(),
        })
    }

    /// Reconnects after the server has hung up. Returns how many requests were under way: their replies never come.
    pub fn open_again(&mut self, port: u16, registry: &Registry, token: Token) -> Result<u64> {
        let again = Self::open(port, registry, token)?;
        let ended = std::mem::replace(self, again);
        self.waiting = ended.waiting;
        Ok(ended.under_way.len() as u64)
    }

    /// Takes a request that is due; [`Self::send`] sends it.
    pub fn take(&mut self, due: Instant) {
        self.waiting.push_back(due);
    }

    /// Sends requests while fewer than `most` are under way, and returns how many left the queue.
    pub fn send(&mut self, most: usize, workload: &mut Workload) -> Result<u64> {
        let mut sent = 0;
        while self.under_way.len() < most
            && let Some(due) = self.waiting.pop_front()
        {
            workload.request(&mut self.output);
            self.under_way.push_back(due);
            sent += 1;
        }
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if must_wait(&error) || has_hung_up(&error) => return Ok(sent),
                Err(error) => return Err(error).context("cannot send to the redis-server"),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(sent)
    }

    /// Reads all that has come, through `buffer`. Calls `answered` for each reply, with whether it is an error and the time
    /// when its request was due. Returns whether the server has closed the connection.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(bool, Instant),
    ) -> Result<bool> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => return Ok(true),
                Ok(count) => count,
                Err(error) if must_wait(&error) => return Ok(false),
                Err(error) if has_hung_up(&error) => return Ok(true),
                Err(error) => return Err(error).context("cannot receive from the redis-server"),
            };
            let mut unasked = false;
            let under_way = &mut self.under_way;
            self.skim
                .feed(&buffer[..count], |is_error| match under_way.pop_front() {
                    Some(due) => answered(is_error, due),
                    None => unasked = true,
                })?;
            ensure!(!unasked, "the redis-server sent a reply without a request");
        }
    }
}

/// Returns whether the socket cannot take or give more now, or is not connected yet.
fn must_wait(error: &Error) -> bool {
    use ErrorKind::{NotConnected, WouldBlock};
    matches!(error.kind(), WouldBlock | NotConnected)
}

fn has_hung_up(error: &Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionReset | BrokenPipe | ConnectionAborted
    )
}
