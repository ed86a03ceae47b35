//! The load: thousands of clients in one thread, whose requests fall due whether or not earlier ones were answered.
//!
//! Each request goes to the next connection when it is due. If the connection has as many requests under way as it may have,
//! the request waits in the generator. Latency counts from when a request was due, so that it includes this wait and any
//! lateness of the generator.

use std::{
    io::ErrorKind,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::redis::Redis;
use mio::{Events, Poll, Token};

use crate::{
    connection::Connection,
    counts::{Load, Meter, Totals},
    parameters::Parameters,
    schedule::{Rate, Schedule},
    workload::Workload,
};

/// How long connecting takes. Redis 7 resizes a client's reply buffer every 5 s after the client connected. The buffers of
/// 3,000 clients that connected at once would swell and shrink together by 10 MB.
const CONNECTING: Duration = Duration::from_secs(5);

/// With more waiting requests than this, some minutes of load, the server is considered dead.
const MOST_WAITING: u64 = 2_000_000;

/// How long the backlog may take to be answered between two parts of the preparation.
const SETTLE: Duration = Duration::from_secs(20);

/// All clients.
pub struct Generator {
    poll: Poll,
    port: u16,
    connections: Vec<Connection>,
    /// Requests under way on one connection, at most.
    most_under_way: usize,
    /// The requests.
    pub workload: Workload,
    /// The buffer into which all connections receive.
    buffer: Box<[u8]>,
    /// The connection that gets the next request.
    turn: usize,
    meter: Meter,
}

impl Generator {
    /// Connects the clients to a server.
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
            port,
            connections,
            most_under_way: parameters.most_under_way,
            workload: Workload::new(parameters.mix),
            buffer: vec![0; 64 * 1024].into_boxed_slice(),
            turn: 0,
            meter: Meter::new(server.pid())?,
        })
    }

    /// Makes requests at `rate` until `stop`, and calls `tell` with the counts. Requests that are unanswered then are left to
    /// the next run.
    pub fn run(
        &mut self,
        rate: &Rate,
        mut tell: impl FnMut(Load),
        stop: impl Fn(&Totals) -> bool,
    ) -> Result<()> {
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

    /// Waits until everything is answered, for [`SETTLE`] at most.
    pub fn settle(&mut self) -> Result<()> {
        let begun = Instant::now();
        let is_settled = |totals: &Totals| totals.backlog() == 0 || begun.elapsed() >= SETTLE;
        self.run(&Rate::new(0.0), |_| {}, is_settled)?;
        let backlog = self.meter.totals.backlog();
        ensure!(backlog == 0, "{backlog} requests are unanswered");
        Ok(())
    }

    /// Gives the requests that are due to the connections.
    fn take_due(&mut self, schedule: &mut Schedule<'_>) -> Result<()> {
        loop {
            let now = Instant::now();
            let Some(due) = schedule.take(now) else { break };
            self.meter.due(due, now);
            let connections = self.connections.len();
            let connection = &mut self.connections[self.turn];
            self.turn = (self.turn + 1) % connections;
            connection.take(due);
            self.meter.totals.sent += connection.send(self.most_under_way, &mut self.workload)?;
        }
        let totals = &self.meter.totals;
        ensure!(
            totals.due - totals.sent < MOST_WAITING,
            "{MOST_WAITING} requests wait to be sent: the redis-server does not answer"
        );
        Ok(())
    }

    /// Reads from one connection, and sends the requests that waited for the replies.
    fn serve(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let meter = &mut self.meter;
        let now = Instant::now();
        let has_hung_up = connection.receive(&mut self.buffer, |is_error, due| {
            meter.answered(is_error, due, now);
        })?;
        if has_hung_up {
            // As a server does with `maxmemory-clients`.
            let lost = connection.open_again(self.port, self.poll.registry(), Token(number))?;
            meter.totals.lost += lost;
            meter.totals.hung_up += 1;
        }
        meter.totals.sent += connection.send(self.most_under_way, &mut self.workload)?;
        Ok(())
    }
}
