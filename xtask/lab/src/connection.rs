//! A client connection of the generator.

use std::{
    collections::VecDeque,
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream as Blocking},
    time::Instant,
};

use anyhow::{Context as _, Result, ensure};
use mio::{Interest, Registry, Token, net::TcpStream};

use crate::{
    resp::{Reply, Skim},
    workload::Workload,
};

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
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = TcpStream::from_std(stream);
        registry.register(
            &mut stream,
            token,
            Interest::READABLE.add(Interest::WRITABLE),
        )?;
        Ok(Self {
            stream,
            output: Vec::new(),
            written: 0,
            skim: Skim::default(),
            under_way: VecDeque::new(),
            waiting: VecDeque::new(),
        })
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
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(sent),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot send to the redis-server"),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(sent)
    }

    /// Reads all that has come, through `buffer`, and calls `answered` with each reply and the time when its
    /// request was due. Returns the number of bytes.
    pub fn receive(
        &mut self,
        buffer: &mut [u8],
        mut answered: impl FnMut(Reply, Instant),
    ) -> Result<u64> {
        let mut received = 0;
        loop {
            let count = match self.stream.read(buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(received),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("cannot receive from the redis-server"),
            };
            ensure!(count > 0, "the redis-server hung up on a client");
            received += count as u64;
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
