//! The log of the programs: aya-log's records, each with the process that it is about.

use std::sync::mpsc::{Receiver, Sender, channel};

use aya::Ebpf;
use aya_log::EbpfLogger;
use log::{Log, Metadata, Record};

/// Something that a program reports about a server.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// The server's process id.
    pub pid: u32,
    /// What it says.
    pub text: String,
}

impl Message {
    /// Parses a record's text, which begins with the process id.
    fn parse(record: &str) -> Option<Self> {
        let (pid, text) = record.split_once(": ")?;
        Some(Self { pid: pid.parse().ok()?, text: text.to_owned() })
    }
}

/// The programs' log.
pub struct KernelLog {
    logger: EbpfLogger<Collector>,
    records: Receiver<String>,
}

impl KernelLog {
    /// Opens the log of an object. Warns and returns `None` if it has none.
    pub fn open(ebpf: &mut Ebpf) -> Option<Self> {
        let (sender, records) = channel();
        match EbpfLogger::init_with_logger(ebpf, Collector(sender)) {
            Ok(logger) => Some(Self { logger, records }),
            Err(error) => {
                tracing::warn!(
                    "the BPF programs have no log ({error}): when a check fails, the values that \
                     disagree will not be logged"
                );
                None
            }
        }
    }

    /// Returns the messages since the last call.
    pub fn messages(&mut self) -> Vec<Message> {
        self.logger.flush();
        let parse = |record: String| Message::parse(&record);
        self.records.try_iter().filter_map(parse).collect()
    }
}

/// Collects the records that aya-log reads, so that the agent can add names to them.
struct Collector(Sender<String>);

impl Log for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        // The receiver lives as long as this.
        let _ = self.0.send(record.args().to_string());
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::Message;

    #[test]
    fn a_record_names_the_process_that_it_is_about() {
        let message = Message::parse("123: maxmemory is 5: not 6");
        let expected = Message { pid: 123, text: "maxmemory is 5: not 6".to_owned() };
        assert_eq!(message, Some(expected));
        assert_eq!(Message::parse("no process: here"), None);
    }
}
