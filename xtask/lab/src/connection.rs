//! A client connection of the generator.

use std::{
    collections::VecDeque,
    io::{Error, ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream as Blocking},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use mio::{Interest, Registry, Token, net::TcpStream};

use crate::{
    resp::{Reply, Skim},
    workload::Workload,
};

/// What came at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Received {
    /// Bytes.
    pub bytes: u64,
    /// Whether the server has closed the connection.
    pub hung_up: bool,
}

/// A socket with its requests.
pub struct Connection {
    stream: TcpStream,
    /// Encoded requests, of which `written` bytes are with the kernel.
    output: Vec<u8>,
    written: usize,
    skim: Skim,
    /// When the requests under way were due, in the order they were sent.
    under_way: VecDeque<Instant>,
    /// When the requests were due that wait for their turn.
    waiting: VecDeque<Instant>,
}

impl Connection {
    /// Connects to the server on this loopback port.
    pub fn open(port: u16, registry: &Registry, token: Token) -> Result<Self> {
        let stream = Blocking::connect((Ipv4Addr::LOCALHOST, port))
            .context("cannot connect to the redis-server of the lab")?;
        stream.set_nonblocking(true)?;
        let stream = registered(TcpStream::from_std(stream), registry, token)?;
        Ok(Self {
            stream,
            output: Vec::new(),
            written: 0,
            skim: Skim::default(),
            under_way: VecDeque::new(),
            waiting: VecDeque::new(),
        })
    }

    /// Connects anew after the server has hung up. Returns how many requests were under way, whose replies never come.
    pub fn open_again(&mut self, port: u16, registry: &Registry, token: Token) -> Result<u64> {
        // Without waiting: a server that has much to do accepts late.
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port).into())
            .context("cannot connect to the redis-server of the lab again")?;
        self.stream = registered(stream, registry, token)?;
        self.output.clear();
        self.written = 0;
        self.skim = Skim::default();
        let lost = self.under_way.len() as u64;
        self.under_way.clear();
        Ok(lost)
    }

    /// Takes a request that is due; [`Self::send`] sends it.
    pub fn take(&mut self, due: Instant) {
        self.waiting.push_back(due);
    }

    /// Sends requests while no more than `most` are under way, and returns how many left the queue.
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
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot send to the redis-server"),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(sent)
    }

    /// Reads all that has come, through `buffer`, and calls `answered` with each reply and the time when its
    /// request was due.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(Reply, Instant),
    ) -> Result<Received> {
        let mut received = Received::default();
        loop {
            let count = match self.stream.read(buffer) {
                Ok(count) => count,
                Err(error) if must_wait(&error) => return Ok(received),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if has_hung_up(&error) => 0,
                Err(error) => return Err(error).context("cannot receive from the redis-server"),
            };
            if count == 0 {
                received.hung_up = true;
                return Ok(received);
            }
            received.bytes += count as u64;
            let mut unasked = false;
            let under_way = &mut self.under_way;
            self.skim
                .feed(&buffer[..count], |reply| match under_way.pop_front() {
                    Some(due) => answered(reply, due),
                    None => unasked = true,
                })?;
            ensure!(!unasked, "the redis-server sent a reply without a request");
        }
    }
}

fn registered(mut stream: TcpStream, registry: &Registry, token: Token) -> Result<TcpStream> {
    stream.set_nodelay(true)?;
    let interests = Interest::READABLE.add(Interest::WRITABLE);
    registry.register(&mut stream, token, interests)?;
    Ok(stream)
}

/// Returns whether the socket cannot take or give more now, also because it is not connected yet.
fn must_wait(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::NotConnected
    )
}

fn has_hung_up(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted
    )
}
