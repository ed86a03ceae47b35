//! The load: thousands of clients in one thread, whose requests fall due whether or not earlier ones were answered.
//!
//! Each request goes to the next connection when it is due. If the connection has as many requests under way as it may
//! have, the request waits in the generator. Latency counts from when a request was due, so that it includes this wait
//! and any lateness of the generator.
//!
//! Replies are skimmed: the generator needs to know only where one ends and whether it is an error. It receives some
//! 100 MB a second on a core that it shares with the recorder. [`Skim`] therefore steps over the bytes as they come, in
//! one buffer for all connections. A parser would keep each unfinished reply and read it from its beginning again.

use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use evictscope_testkit::redis::Redis;
use fastrand::Rng;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Registry, Token};

use crate::pace::{LoadCounts, Meter, Rate, Schedule, Totals};
use crate::scenario::{Mix, Parameters};

/// How long connecting takes. Redis 7 resizes a client's reply buffer every 5 s after the client connected. The buffers
/// of 3,000 clients that connected at once would swell and shrink together by 10 MB.
const CONNECTING: Duration = Duration::from_secs(5);

/// With more waiting requests than this, some minutes of load, the server is considered dead.
const MOST_WAITING: u64 = 2_000_000;

/// How long the backlog may take to be answered between two parts of the preparation.
const SETTLE: Duration = Duration::from_secs(20);

pub struct Generator {
    poll: Poll,
    connections: Vec<Connection>,
    most_under_way: usize,
    pub workload: Workload,
    buffer: Box<[u8]>,
    turn: usize,
    meter: Meter,
}

impl Generator {
    pub fn connect(server: &Redis, parameters: &Parameters) -> Result<Self> {
        let port = server.port();
        let poll = Poll::new().context("cannot poll sockets")?;
        let pause = CONNECTING / u32::try_from(parameters.connections)?;
        let connections = (0..parameters.connections)
            .map(|number| {
                thread::sleep(pause);
                Connection::open(port, poll.registry(), Token(number))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            poll,
            connections,
            most_under_way: parameters.most_under_way,
            workload: Workload::new(parameters.mix),
            buffer: vec![0; 64 * 1024].into_boxed_slice(),
            turn: 0,
            meter: Meter::new(server.pid())?,
        })
    }

    /// Makes requests at `rate` until `stop`, and calls `tell` with the counts. Requests that are unanswered then are
    /// left to the next run.
    pub fn run(&mut self, rate: &Rate, mut tell: impl FnMut(LoadCounts), stop: impl Fn(&Totals) -> bool) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        let begun = Instant::now();
        let mut schedule = Schedule::new(rate, begun);
        self.meter.begin(begun);
        while !stop(&self.meter.totals) {
            self.take_due(&mut schedule)?;
            let pause = schedule.pause(Instant::now());
            if let Err(error) = self.poll.poll(&mut events, Some(pause))
                && error.kind() != ErrorKind::Interrupted
            {
                return Err(error).context("cannot poll sockets");
            }
            for event in &events {
                self.serve(event.token().0)?;
                // A round of events may take many milliseconds. Requests that fall due in it must not wait.
                self.take_due(&mut schedule)?;
            }
            if let Some(load) = self.meter.tick(Instant::now())? {
                tell(load);
            }
        }
        Ok(())
    }

    pub fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        let is_settled = |totals: &Totals| totals.backlog() == 0 || begun.elapsed() >= SETTLE;
        self.run(&Rate::new(0.0), |_| {}, is_settled)?;
        let backlog = self.meter.totals.backlog();
        ensure!(backlog == 0, "{backlog} requests are unanswered");
        Ok(())
    }

    fn take_due(&mut self, schedule: &mut Schedule<'_>) -> Result<()> {
        loop {
            let now = Instant::now();
            let Some(due) = schedule.take(now) else { break };
            self.meter.due(due, now);
            let connections = self.connections.len();
            let connection = &mut self.connections[self.turn];
            self.turn = (self.turn + 1) % connections;
            connection.waiting.push_back(due);
            self.meter.totals.sent += connection.send(self.most_under_way, &mut self.workload)?;
        }
        let totals = &self.meter.totals;
        ensure!(
            totals.due - totals.sent < MOST_WAITING,
            "{MOST_WAITING} requests wait to be sent: the redis-server does not answer"
        );
        Ok(())
    }

    fn serve(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let meter = &mut self.meter;
        let now = Instant::now();
        connection.receive(&mut self.buffer, |is_error, due| meter.answered(is_error, due, now))?;
        meter.totals.sent += connection.send(self.most_under_way, &mut self.workload)?;
        Ok(())
    }
}

struct Connection {
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
    fn open(port: u16, registry: &Registry, token: Token) -> Result<Self> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port).into())
            .context("cannot connect to the redis-server of the lab")?;
        stream.set_nodelay(true)?;
        registry.register(&mut stream, token, Interest::READABLE.add(Interest::WRITABLE))?;
        let (under_way, waiting) = (VecDeque::new(), VecDeque::new());
        Ok(Self { stream, output: Vec::new(), written: 0, skim: Skim::default(), under_way, waiting })
    }

    /// Sends requests while fewer than `most` are under way, and returns how many left the queue.
    fn send(&mut self, most: usize, workload: &mut Workload) -> Result<u64> {
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
                Err(error) if must_wait(&error) => return Ok(sent),
                Err(error) => return Err(error).context("cannot send to the redis-server"),
            }
        }
        self.output.clear();
        self.written = 0;
        Ok(sent)
    }

    /// Reads all that has come, through `buffer`. Calls `answered` for each reply, with whether it is an error and the
    /// time when its request was due.
    fn receive(&mut self, buffer: &mut [u8], mut answered: impl FnMut(bool, Instant)) -> Result<()> {
        loop {
            let count = match self.stream.read(buffer) {
                Ok(0) => bail!("the redis-server closes a connection"),
                Ok(count) => count,
                Err(error) if must_wait(&error) => return Ok(()),
                Err(error) => return Err(error).context("cannot receive from the redis-server"),
            };
            let mut unasked = false;
            let under_way = &mut self.under_way;
            self.skim.feed(&buffer[..count], |is_error| match under_way.pop_front() {
                Some(due) => answered(is_error, due),
                None => unasked = true,
            })?;
            ensure!(!unasked, "the redis-server sent a reply without a request");
        }
    }
}

fn must_wait(error: &Error) -> bool {
    use ErrorKind::{NotConnected, WouldBlock};
    matches!(error.kind(), WouldBlock | NotConnected)
}

/// The longest line that is read, in bytes. No reply to the lab's commands has such a line.
const LONGEST_LINE: usize = 4096;

/// The place in the replies of one connection that the bytes so far have reached.
#[derive(Default)]
struct Skim {
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
    fn feed(&mut self, mut bytes: &[u8], mut finished: impl FnMut(bool)) -> Result<()> {
        while !bytes.is_empty() {
            let is_complete = if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                self.skip -= skipped;
                bytes = &bytes[skipped..];
                self.skip == 0
            } else {
                let end = bytes.iter().position(|&byte| byte == b'\n');
                self.line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                ensure!(self.line.len() <= LONGEST_LINE, "the server sends a line of more than {LONGEST_LINE} bytes");
                let Some(end) = end else { return Ok(()) };
                bytes = &bytes[end + 1..];
                let is_complete = self.header()?;
                self.line.clear();
                is_complete
            };
            self.elements -= u64::from(is_complete);
            if is_complete && self.elements == 0 {
                finished(self.error);
            }
        }
        Ok(())
    }

    /// Takes a header line, and returns whether it completes an element.
    fn header(&mut self) -> Result<bool> {
        if self.elements == 0 {
            (self.elements, self.error) = (1, false);
        }
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        let Some((kind @ (b'+' | b':' | b'-' | b'$' | b'*'), rest)) = line.split_first() else {
            bail!("the server does not speak RESP2: {:?}", String::from_utf8_lossy(line));
        };
        self.error |= *kind == b'-';
        match kind {
            // Null has no body.
            b'$' if rest != b"-1" => self.skip = length(rest)?.saturating_add(2),
            b'*' if rest != b"-1" => self.elements = self.elements.saturating_add(length(rest)? as u64),
            _ => {}
        }
        Ok(self.skip == 0)
    }
}

fn length(digits: &[u8]) -> Result<usize> {
    let text = String::from_utf8_lossy(digits);
    text.parse().with_context(|| format!("the server sends {text:?} as a length"))
}

/// Sets each of its keys to the first argument. The second is their time to live in milliseconds.
const SET_ALL: &str = "for i = 1, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end";

/// Writes of new keys, and `MGET`s of many of the newest ones.
pub struct Workload {
    mix: Mix,
    random: Rng,
    value: Vec<u8>,
    /// Keys set so far; the number of the next one.
    keys: u64,
}

impl Workload {
    /// Begins a workload. It is always the same for the same mix.
    pub fn new(mix: Mix) -> Self {
        Self { random: Rng::with_seed(1), value: vec![b'v'; mix.value_bytes], keys: 0, mix }
    }

    pub fn request(&mut self, output: &mut Vec<u8>) {
        if self.random.f64() >= self.mix.set_share {
            command(output, "MGET", self.mix.keys_per_read);
            for _ in 0..self.mix.keys_per_read {
                let key = self.one_of_the_newest();
                write_key(output, key);
            }
            return;
        }
        let share = if self.mix.lives_differ { self.random.f64() } else { 1.0 };
        let life = ((share * self.mix.longest_life * 1000.0).round() as u64).max(1).to_string();
        if self.mix.keys_per_write > 1 {
            let keys = self.mix.keys_per_write;
            command(output, "EVAL", keys + 4);
            word(output, SET_ALL.as_bytes());
            word(output, keys.to_string().as_bytes());
            let first = self.new_keys(keys as u64);
            (first..self.keys).for_each(|key| write_key(output, key));
            word(output, &self.value);
        } else {
            let key = if self.mix.rewrites { self.one_of_the_newest() } else { self.new_keys(1) };
            command(output, "SET", 4);
            write_key(output, key);
            word(output, &self.value);
            word(output, b"PX");
        }
        word(output, life.as_bytes());
    }

    /// Counts keys as set, and returns the number of the first.
    pub fn new_keys(&mut self, keys: u64) -> u64 {
        self.keys += keys;
        self.keys - keys
    }

    fn one_of_the_newest(&mut self) -> u64 {
        let window = self.mix.read_window.min(self.keys).max(1);
        self.keys.saturating_sub(1 + self.random.u64(..window))
    }
}

/// Appends the beginning of a command with this many arguments.
fn command(output: &mut Vec<u8>, name: &str, arguments: usize) {
    // Nothing can fail here: the vector grows.
    let _ = write!(output, "*{}\r\n${}\r\n{name}\r\n", arguments + 1, name.len());
}

fn word(output: &mut Vec<u8>, word: &[u8]) {
    let _ = write!(output, "${}\r\n", word.len());
    output.extend_from_slice(word);
    output.extend_from_slice(b"\r\n");
}

fn write_key(output: &mut Vec<u8>, number: u64) {
    let _ = write!(output, "$14\r\nkey:{number:010}\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    const REPLIES: &[u8] = b"+OK\r\n*3\r\n$3\r\na\nb\r\n$-1\r\n*2\r\n:1\r\n$0\r\n\r\n-OOM no\r\n*0\r\n*-1\r\n";
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
    fn other_bytes_are_refused() {
        for bytes in [&b"HTTP/1.1 200\r\n"[..], b"$x\r\n", b"\r\n", &[b'+'; 5000]] {
            assert!(Skim::default().feed(bytes, |_| {}).is_err());
        }
    }

    /// Returns the words of one command, whose lengths must be right.
    fn words(bytes: &[u8]) -> Result<Vec<String>> {
        let mut lines = str::from_utf8(bytes)?.split_terminator("\r\n");
        let count = lines.next().and_then(|count| count.strip_prefix('*'));
        let mut words = Vec::new();
        while let (Some(length), Some(word)) = (lines.next(), lines.next()) {
            assert_eq!(length, format!("${}", word.len()));
            words.push(word.to_owned());
        }
        assert_eq!(count.context("no command")?, words.len().to_string());
        Ok(words)
    }

    #[test]
    fn requests_follow_the_mix() -> Result<()> {
        let key = |number: u64| format!("key:{number:010}");
        let burst = Scenario::Burst.parameters().mix;
        let mix = Mix { set_share: 0.5, value_bytes: 10, keys_per_read: 3, read_window: 100, ..burst };
        let mut workload = Workload::new(mix);
        let mut sets: u64 = 0;
        for _ in 0..2000 {
            let mut output = Vec::new();
            workload.request(&mut output);
            let words = words(&output)?;
            if words[0] == "SET" {
                assert_eq!((&words[1], words[2].len()), (&key(sets), 10));
                assert!((1..=1_800_000).contains(&words[4].parse::<u64>()?));
                sets += 1;
            } else {
                let (oldest, newest) = (key(sets.saturating_sub(100)), key(sets.saturating_sub(1)));
                assert_eq!(words.len(), 4);
                assert!(words[1..].iter().all(|key| *key >= oldest && *key <= newest));
            }
        }
        assert!((900..1100).contains(&sets), "{sets} SETs in 2,000 requests");
        let mut output = Vec::new();
        Workload::new(Mix { set_share: 1.0, keys_per_write: 3, lives_differ: false, ..mix }).request(&mut output);
        assert_eq!(words(&output)?[2..], ["3", &key(0), &key(1), &key(2), "vvvvvvvvvv", "1800000"]);
        Ok(())
    }
}
