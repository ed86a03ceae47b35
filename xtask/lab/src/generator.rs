//! The load: thousands of clients in one thread, whose requests fall due whether or not earlier ones were answered.
//!
//! Each request goes to the next connection when it is due. Where the connection has as many requests under way as
//! it may have, the request waits in the generator. Latency counts from when a request was due, so that it includes
//! this wait and any lateness of the generator.

use std::{
    io::ErrorKind,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use mio::{Events, Poll, Token};

use crate::{
    connection::Connection,
    counts::{Meter, Totals},
    parameters::Parameters,
    record::Line,
    schedule::{Rate, Schedule},
    workload::Workload,
};

/// How long connecting takes. Redis 7 gives a client's reply buffer a new size every 5 s after it connected. The
/// buffers of 3,000 clients that connected at once would swell and shrink together by 10 MB.
const CONNECTING: Duration = Duration::from_secs(5);

/// With more waiting requests than this, some minutes of load, the server is considered dead.
const MOST_WAITING: u64 = 2_000_000;

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
    /// Connects the clients to the server on this loopback port.
    pub fn connect(port: u16, parameters: &Parameters) -> Result<Self> {
        let (connections, most_under_way) = (parameters.connections, parameters.most_under_way);
        ensure!(
            connections > 0 && most_under_way > 0,
            "there must be connections, and requests under way on them"
        );
        let poll = Poll::new().context("cannot poll sockets")?;
        let pause = CONNECTING / u32::try_from(connections)?;
        let connections = (0..connections)
            .map(|number| {
                thread::sleep(pause);
                Connection::open(port, poll.registry(), Token(number))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            poll,
            port,
            connections,
            most_under_way,
            workload: Workload::new(parameters.mix),
            buffer: vec![0; 64 * 1024].into_boxed_slice(),
            turn: 0,
            meter: Meter::new()?,
        })
    }

    /// Returns the counts so far.
    pub fn totals(&self) -> Totals {
        self.meter.totals
    }

    /// Makes requests at `rate` until `stop`, and calls `tell` with the lines of the record. Requests that are
    /// unanswered then are left to the next run.
    pub fn run(
        &mut self,
        rate: &Rate,
        mut tell: impl FnMut(Line),
        stop: impl Fn(&Totals) -> bool,
    ) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        let begun = Instant::now();
        let mut schedule = Schedule::new(rate.get(), begun);
        self.meter.begin(begun);
        while !stop(&self.meter.totals) {
            self.take_due(&mut schedule)?;
            schedule.set_rate(rate.get());
            let pause = schedule.pause(Instant::now());
            match self.poll.poll(&mut events, Some(pause)) {
                Err(error) if error.kind() != ErrorKind::Interrupted => {
                    return Err(error).context("cannot poll sockets");
                }
                _ => {}
            }
            for event in &events {
                self.serve(event.token().0)?;
                // A round of events may take many milliseconds. Requests that fall due in it must not wait.
                self.take_due(&mut schedule)?;
            }
            if let Some((load, second)) = self.meter.tick(Instant::now())? {
                tell(Line::Load(load));
                if let Some(second) = second {
                    tell(Line::Second(second));
                }
            }
        }
        Ok(())
    }

    /// Waits until everything is answered, for `timeout` at most.
    pub fn settle(&mut self, timeout: Duration) -> Result<()> {
        let begun = Instant::now();
        self.run(
            &Rate::new(0.0),
            |_| {},
            |totals| totals.backlog() == 0 || begun.elapsed() >= timeout,
        )?;
        let backlog = self.meter.totals.backlog();
        ensure!(
            backlog == 0,
            "{backlog} requests are unanswered after {timeout:?}"
        );
        Ok(())
    }

    /// Gives the requests that are due to the connections.
    fn take_due(&mut self, schedule: &mut Schedule) -> Result<()> {
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
            totals.waiting() < MOST_WAITING,
            "{} requests wait to be sent: the redis-server does not answer",
            totals.waiting()
        );
        Ok(())
    }

    /// Reads from one connection, and sends the requests that waited for the replies.
    fn serve(&mut self, number: usize) -> Result<()> {
        let connection = &mut self.connections[number];
        let meter = &mut self.meter;
        let now = Instant::now();
        let received = connection.receive(&mut self.buffer, |reply, due| {
            meter.answered(reply, due, now);
        })?;
        meter.totals.bytes_received += received.bytes;
        if received.hung_up {
            // As a server does with `maxmemory-clients`.
            let lost = connection.open_again(self.port, self.poll.registry(), Token(number))?;
            meter.totals.lost += lost;
            meter.totals.hung_up += 1;
        }
        meter.totals.sent += connection.send(self.most_under_way, &mut self.workload)?;
        Ok(())
    }
}
