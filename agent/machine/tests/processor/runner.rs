//! The processor, which executes one instruction from given states: a program in C, in a process of its own.

use std::io::{BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use evictscope_testkit::compiler;
use evictscope_testkit::skip::skip;

/// All that an instruction can read and write, as words: 32 general registers, flags, 4 lanes of 32 vector registers,
/// and the page of memory. What a processor does not have is never changed.
pub type State = Vec<u64>;
/// How many words those are, and at which the later ones begin.
pub const WORDS: usize = MEMORY + PAGE as usize / 8;
pub const FLAGS: usize = 32;
pub const VECTORS: usize = FLAGS + 1;
pub const MEMORY: usize = VECTORS + 4 * 32;

pub const PAGE: u64 = 4096;
/// Where instructions are executed.
pub const CODE: u64 = 0x2345_0000_0000 + PAGE / 2;
/// Where the page of memory can be: as far as any instruction reaches, or where 4 bytes are an address.
pub const FAR_PAGE: u64 = 0x2345_0008_0000;
pub const NEAR_PAGE: u64 = 0x5000_0000;
/// Where the memory of a thread is that begins in the first of them.
pub const THREAD: u64 = FAR_PAGE + PAGE / 8;
/// The most states at once.
pub const MOST_STATES: usize = 128;
/// `SIGTRAP`: the instruction behind it was reached.
const TRAPPED: u64 = 5;

/// How to make the runner: position-independent, so that it is where no random number points.
pub const ALONE: &str = "-O2 -static-pie -fpie -nostdlib -ffreestanding -fno-stack-protector";

/// Compiles a file that is beside this one; `None` if there is no compiler.
pub fn compile(compiler: &str, source: &str, options: &str) -> Option<PathBuf> {
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{source}-{compiler}"));
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/processor");
    let arguments = format!("{options} {source} -o {} -lgcc", compiled.display());
    compiler::run(&from, compiler, &arguments.split(' ').collect::<Vec<_>>()).then_some(compiled)
}

pub struct Runner {
    process: Child,
    questions: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Runner {
    /// Starts it, in an emulator if there is one; `None` if that is not installed.
    pub fn start(program: &Path, emulator: Option<&str>) -> Result<Option<Self>> {
        let mut words = emulator.unwrap_or_default().split_whitespace();
        let mut command = words.next().map_or_else(|| Command::new(program), Command::new);
        command.args(words).args(emulator.map(|_| program));
        let mut process = match command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                skip(&format!("{} is not installed", command.get_program().display()))?;
                return Ok(None);
            }
            started => started.context("it does not start")?,
        };
        let answers = BufReader::new(process.stdout.take().context("no output")?);
        Ok(Some(Self { questions: process.stdin.take(), answers, process }))
    }

    /// Executes an instruction from each of these states, whose memory is at `page`. Returns what became of each, and
    /// where the processor goes on; `None` if it cannot execute that.
    pub fn execute(&mut self, code: &[u8], page: u64, states: &[State]) -> Result<Vec<Option<(State, u64)>>> {
        ensure!(states.len() <= MOST_STATES && code.len() <= 16, "too much");
        let mut padded = [0; 16];
        padded[..code.len()].copy_from_slice(code);
        let numbers = [states.len() as u64, page, code.len() as u64].map(u64::to_le_bytes);
        let mut question = [numbers.as_flattened(), &padded].concat();
        for word in states.iter().flatten() {
            question.extend_from_slice(&word.to_le_bytes());
        }
        self.questions.as_mut().context("no input")?.write_all(&question).context("the runner ended")?;
        let mut answers = vec![0; states.len() * (2 + WORDS) * 8];
        self.answers.read_exact(&mut answers).context("the runner ended")?;
        let answers: Vec<u64> = answers.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let answers = answers.chunks(2 + WORDS).map(|answer| {
            // A jump to where no code is has been executed, too.
            let is_executed = answer[0] == TRAPPED || answer[1] != CODE;
            is_executed.then(|| (answer[2..].to_vec(), answer[1]))
        });
        Ok(answers.collect())
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        // It ends with its input.
        self.questions = None;
        let _ = self.process.wait();
    }
}
