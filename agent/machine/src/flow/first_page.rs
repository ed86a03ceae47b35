//! Holds the example on the first page to what the analysis makes of its bytes.

use std::fmt::Write as _;

use evictscope_model::FileAddress;

use super::joins::execution::Execution;
use super::queries::recipe::Reach;
use super::queries::returns;
use super::state::State;
use super::values::atoms::{Atom, Atoms};
use super::values::condition::{Condition, Relation};
use super::values::flags::Flags;
use super::values::value::Value;
use crate::code::graph::FunctionCode;
use crate::elf::image::Image;
use crate::ir::{Effect, Expression, Flow, Instruction, Test};

const PAGE: &str = include_str!("mod.rs");
const ENTRY: FileAddress = FileAddress::new(0xe9000);

fn value(atoms: &Atoms, value: &Value) -> String {
    if let Some(number) = value.as_constant() {
        return number.to_string();
    }
    match value.as_atom().and_then(|atom| atoms.get(atom)) {
        Some(Atom::Entry(number)) => format!("r{number} at entry"),
        Some(Atom::Global { address, width: 4, .. }) => format!("[{:x}]", address.get()),
        Some(Atom::Truth(truth)) => format!("({})", condition(atoms, &truth.conditions[0])),
        Some(Atom::Merged { options, .. }) => {
            let options: Vec<String> = options.iter().map(|option| self::value(atoms, option)).collect();
            options.join(" or ")
        }
        other => panic!("not on the page: {other:?}"),
    }
}

fn condition(atoms: &Atoms, condition: &Condition) -> String {
    let relation = if condition.relation == Relation::NotEqual { "!=" } else { "?" };
    format!("{} {relation} {}", value(atoms, &condition.left), value(atoms, &condition.right))
}

fn what_is_new(atoms: &Atoms, before: &State, after: &State) -> String {
    let mut new = Vec::new();
    for (number, (held, holds)) in before.registers.iter().zip(&after.registers).enumerate() {
        if held != holds {
            new.push(format!("`r{number} = {}`", value(atoms, holds)));
        }
    }
    new.extend(
        after.facts[before.facts.len().min(after.facts.len())..]
            .iter()
            .map(|fact| format!("`{}`", condition(atoms, fact))),
    );
    if let Flags::Comparison { left, right, .. } = &after.flags
        && before.flags != after.flags
    {
        new.push(format!("`compared {}, {}`", value(atoms, left), value(atoms, right)));
    }
    if new.is_empty() { "``".to_owned() } else { new.join(" ") }
}

fn expression(expression: &Expression) -> String {
    match expression {
        Expression::Constant(number) => number.to_string(),
        Expression::Register { number, .. } => format!("r{number}"),
        Expression::Load { address, width } => format!("Load({:x}, {width})", address.displacement),
        Expression::Truth(Test::Compared(relation)) => format!("Truth({relation:?})"),
        other => panic!("not on the page: {other:?}"),
    }
}

fn effects(instruction: &Instruction) -> String {
    let mut text: Vec<String> = instruction
        .effects()
        .iter()
        .map(|effect| match effect {
            Effect::Set { register, width, value } => format!("`Set r{register}, {width}, {}`", expression(value)),
            Effect::Compare { left, right, bits } => {
                format!("`Compare {}, {}, {bits}`", expression(left), expression(right))
            }
            other => panic!("not on the page: {other:?}"),
        })
        .collect();
    match &instruction.flow {
        Flow::Next => {}
        Flow::Branch(Test::Compared(relation), to) => text.push(format!("`Branch({relation:?}, {:x})`", to.get())),
        other => text.push(format!("`{other:?}`")),
    }
    text.join(" ")
}

#[test]
fn it_says_what_is_found() {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("//! | `")).filter(|row| !row.is_empty());
    let bytes = |row: &str| {
        let bytes = row.split('`').next().unwrap_or_default().split(' ');
        bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap_or_else(|why| panic!("{why}"))).collect::<Vec<u8>>()
    };
    let all: Vec<u8> = rows.clone().flat_map(bytes).collect();
    let image = Image::of_code(&all, ENTRY);
    let code = FunctionCode::decode(&image, ENTRY).unwrap_or_else(|why| panic!("{why}"));
    let mut execution = Execution::run(&code);
    let mut page = String::new();
    let mut before = State::at_entry(&mut execution.atoms);
    let mut recipes = Vec::new();
    for block in code.blocks.ids() {
        let states = execution.states_in(block);
        for (instruction, states) in code.blocks[block].instructions.iter().zip(states.windows(2)) {
            let hex: Vec<String> = instruction.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            let new = what_is_new(&execution.atoms, &before, &states[1]);
            let _ = writeln!(page, "{}` | {} | {new} |", hex.join(" "), effects(instruction));
            before = states[1].clone();
            if instruction.bytes() == [0x0f, 0x95, 0xc0] {
                for address in [0x26_0a8c, 0x26_0968] {
                    let atom = Atom::Global {
                        address: FileAddress::new(address),
                        width: 4,
                        generation: FileAddress::default(),
                    };
                    let wanted = execution.atoms.value(atom);
                    let recipe = Reach::of(&mut execution, &states[0], &[&wanted]).recipe(&wanted);
                    recipes.push(recipe.map(|recipe| recipe.terms.len()));
                }
            }
        }
    }
    assert_eq!(page.lines().collect::<Vec<_>>(), rows.collect::<Vec<_>>());
    assert_eq!(recipes, [Some(1), None]);
    assert_eq!(returns::numbers(&mut execution), [0].into());
}
