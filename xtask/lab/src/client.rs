//! One blocking connection: to ask the server, and to fill it.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use redis_protocol::resp2::{
    decode::decode,
    types::{OwnedFrame, Resp2Frame as _},
};

use crate::{
    resp::{Reply, Skim, word, write_command},
    workload::Workload,
};

/// How long one answer may take, also of a server that is saturated or held up.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Commands sent at once while filling.
const PIPELINE: u64 = 1000;

/// A connection to the lab's server.
pub struct Client {
    stream: TcpStream,
}

impl Client {
    /// To the server on this loopback port.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .context("cannot connect to the redis-server of the lab")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { stream })
    }

    /// Sends one command and waits for its answer, which must be a string.
    pub fn call(&mut self, words: &[&str]) -> Result<String> {
        let words: Vec<_> = words.iter().map(|text| word(text.as_bytes())).collect();
        let mut command = Vec::new();
        write_command(&mut command, &words)?;
        self.stream
            .write_all(&command)
            .context("cannot send to the redis-server of the lab")?;
        let mut received = Vec::new();
        loop {
            let decoded = decode(&received).map_err(|error| anyhow::anyhow!("{error}"));
            if let Some((frame, _)) = decoded.context("the server does not speak RESP2")? {
                return answer(frame);
            }
            let mut piece = [0; 16 * 1024];
            let count = self.read(&mut piece)?;
            received.extend_from_slice(&piece[..count]);
        }
    }

    /// Sets `keys` new keys, as if they had been written over time.
    pub fn fill(&mut self, workload: &mut Workload, keys: u64) -> Result<()> {
        let mut skim = Skim::default();
        let mut piece = [0; 16 * 1024];
        let mut left = keys;
        while left > 0 {
            let batch = left.min(PIPELINE);
            let mut commands = Vec::new();
            for _ in 0..batch {
                workload.set_earlier(&mut commands)?;
            }
            self.stream
                .write_all(&commands)
                .context("cannot send to the redis-server of the lab")?;
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

    fn read(&mut self, piece: &mut [u8]) -> Result<usize> {
        let count = self
            .stream
            .read(piece)
            .context("the redis-server of the lab does not answer")?;
        ensure!(count > 0, "the redis-server of the lab hung up");
        Ok(count)
    }
}

fn answer(frame: OwnedFrame) -> Result<String> {
    match frame {
        OwnedFrame::SimpleString(bytes) | OwnedFrame::BulkString(bytes) => {
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        }
        OwnedFrame::Error(text) => bail!("the redis-server of the lab says: {text}"),
        other => bail!(
            "the redis-server of the lab answers with {:?}",
            other.kind()
        ),
    }
}
