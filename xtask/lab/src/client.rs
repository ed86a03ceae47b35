//! A blocking connection, which asks the server and fills it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    resp::{Reply, Skim, write_command},
    workload::Workload,
};

/// How long one answer may take, even from a saturated server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Commands sent at once while filling.
const PIPELINE: u64 = 1000;

const NO_ANSWER: &str = "the redis-server of the lab does not answer";

/// A connection to the lab's server.
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects to the server on this loopback port.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .context("cannot connect to the redis-server of the lab")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Sends one command and returns its answer, which must be a string.
    pub fn call(&mut self, words: &[&str]) -> Result<String> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        let mut command = Vec::new();
        write_command(&mut command, &words);
        self.send(&command)?;
        let mut header = String::new();
        self.stream.read_line(&mut header).context(NO_ANSWER)?;
        let header = header.trim_end();
        match header.split_at_checked(1) {
            Some(("+", text)) => Ok(text.to_owned()),
            Some(("-", error)) => bail!("the redis-server of the lab says: {error}"),
            Some(("$", length)) => {
                // Its end of line is read, too.
                let length = length.parse::<u16>().context(NO_ANSWER)?;
                let mut body = vec![0; usize::from(length) + 2];
                self.stream.read_exact(&mut body).context(NO_ANSWER)?;
                Ok(String::from_utf8_lossy(&body).trim_end().to_owned())
            }
            _ => bail!("the redis-server of the lab answers with {header:?}"),
        }
    }

    /// Sets `keys` new keys, with the times to live that keys written over time would have left.
    pub fn fill(&mut self, workload: &mut Workload, keys: u64) -> Result<()> {
        let mut skim = Skim::default();
        let mut piece = [0; 16 * 1024];
        let mut left = keys;
        while left > 0 {
            let batch = left.min(PIPELINE);
            let mut commands = Vec::new();
            for _ in 0..batch {
                workload.set_earlier(&mut commands);
            }
            self.send(&commands)?;
            let (mut answered, mut errors) = (0, 0);
            while answered < batch {
                let count = self.read(&mut piece)?;
                skim.feed(&piece[..count], |reply| {
                    answered += 1;
                    errors += u64::from(reply == Reply::Error);
                })?;
            }
            ensure!(errors == 0, "the server refused {errors} of {batch} SETs");
            left -= batch;
        }
        Ok(())
    }

    fn send(&mut self, commands: &[u8]) -> Result<()> {
        let stream = self.stream.get_mut();
        stream
            .write_all(commands)
            .context("cannot send to the redis-server of the lab")
    }

    fn read(&mut self, piece: &mut [u8]) -> Result<usize> {
        let count = self.stream.read(piece).context(NO_ANSWER)?;
        ensure!(count > 0, "the redis-server of the lab hung up");
        Ok(count)
    }
}
