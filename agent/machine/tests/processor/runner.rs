//! The processor, which executes one instruction from given states: a program in C, in a process of its own.

use std::io::{BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::compiler;

pub const REGISTERS: usize = 16;
pub const VECTORS: usize = 16;
pub const LANES: usize = 4;
pub const PAGE: u64 = 4096;
/// Where instructions are executed.
pub const CODE: u64 = 0x2345_0000_0000 + PAGE / 2;
/// The pages of memory: one of them is filled, and compared.
pub const FAR_PAGE: u64 = 0x2345_1000_0000;
pub const NEAR_PAGE: u64 = 0x5000_0000;
/// The most states of one question.
pub const MOST_STATES: usize = 64;
/// `SIGTRAP`: the instruction is over.
const TRAPPED: u64 = 5;

/// What an instruction can read and write, except memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub registers: [u64; REGISTERS],
    pub flags: u64,
    pub lanes: [[u64; LANES]; VECTORS],
}

/// What the processor made of a state.
pub struct Answer {
    /// Where it went on; `None` if it could not execute the instruction.
    pub counter: Option<u64>,
    pub state: State,
    /// The words of memory that changed: where in the page, and what they are.
    pub changes: Vec<(usize, u64)>,
}

pub struct Runner {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    /// Builds and starts it; `None` if there is no compiler.
    pub fn start() -> Result<Option<Self>> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/processor/runner.c");
        let alone = "-O2 -Wall -Werror -static -nostdlib -ffreestanding -fno-stack-protector -no-pie -fno-pie -o runner";
        let arguments: Vec<&str> = alone.split(' ').chain([source]).collect();
        if !compiler::run(folder, "cc", &arguments) {
            return Ok(None);
        }
        let mut command = Command::new(folder.join("runner"));
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("it does not start")?;
        let answers = BufReader::with_capacity(1 << 16, process.stdout.take().context("no output")?);
        Ok(Some(Self { questions: process.stdin.take(), answers, process }))
    }

    /// Executes an instruction from each of these states, and with this memory in the page at an address.
    pub fn execute(&mut self, code: &[u8], page: u64, memory: &[u64], states: &[State]) -> Result<Vec<Answer>> {
        ensure!(states.len() <= MOST_STATES && memory.len() as u64 == PAGE / 8 && code.len() <= 16);
        let mut question = Vec::new();
        let mut words = |words: &[u64]| question.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        words(&[states.len() as u64, page, code.len() as u64]);
        let mut padded = [0; 16];
        padded[..code.len()].copy_from_slice(code);
        let (halves, _) = padded.as_chunks::<8>();
        words(&[u64::from_le_bytes(halves[0]), u64::from_le_bytes(halves[1])]);
        words(memory);
        for state in states {
            words(&state.registers);
            words(&[state.flags]);
            words(state.lanes.as_flattened());
        }
        self.questions.as_mut().context("no input")?.write_all(&question).context("the runner ended")?;
        (0..states.len()).map(|_| self.answer()).collect()
    }

    fn words<const N: usize>(&mut self) -> Result<[u64; N]> {
        let mut words = [[0; 8]; N];
        self.answers.read_exact(words.as_flattened_mut()).context("the runner ended")?;
        Ok(words.map(u64::from_le_bytes))
    }

    fn answer(&mut self) -> Result<Answer> {
        let [signal, counter, changes] = self.words()?;
        let registers = self.words()?;
        let [flags] = self.words()?;
        let lanes: [u64; LANES * VECTORS] = self.words()?;
        let lanes = std::array::from_fn(|vector| std::array::from_fn(|lane| lanes[vector * LANES + lane]));
        let mut change = || self.words().map(|[at, word]| (usize::try_from(at).unwrap_or(usize::MAX), word));
        let changes = (0..changes).map(|_| change()).collect::<Result<_>>()?;
        // A jump to where nothing is, is over as well.
        let is_over = signal == TRAPPED || counter != CODE;
        Ok(Answer { counter: is_over.then_some(counter), state: State { registers, flags, lanes }, changes })
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It ends with its input.
        self.questions = None;
        let _ = self.process.wait();
    }
}
