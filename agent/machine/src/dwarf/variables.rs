//! The variables in a function: its own, and those of the first copy of another function inlined in it.
//!
//! That copy is the first in the source, by the place of the call; compilers list copies in any order, and place them
//! anywhere.
//!
//! Where a variable is according to DWARF expressions: sums of registers and what they point to.
//!
//! Compilers also write expressions that are not sums (a variable in two pieces, one that was never
//! stored, arithmetic other than addition). Here such a variable has no location.

use evictscope_model::FileAddress;
use gimli::{Encoding, EndianSlice, Expression, Operation, Range, constants};

use super::globals::number;
use super::units::{DwarfError, Entry, EntryId, Reader, Units};
use crate::isa::{Architecture, Register};

/// How deep blocks and inlined functions may be nested.
const MAX_NESTING: usize = 128;
/// The most copies of the inlined function, and the most variables in a scope.
const MAX_COPIES: usize = 64;
/// The most entries of one location list.
const MAX_LOCATIONS: usize = 4_096;

/// Where a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableLocations {
    /// Its name, one of those asked for.
    pub name: &'static str,
    /// Where, and at which instructions.
    pub locations: Vec<LocatedAt>,
    /// Whether it is in one place wherever it is in scope, so even before it is assigned.
    pub always: bool,
}

impl VariableLocations {
    /// Returns where it is before the instruction at `address`.
    pub fn at(&self, address: FileAddress) -> Option<&Location> {
        let is_there = |located: &&LocatedAt| (located.range.begin..located.range.end).contains(&address.get());
        self.locations.iter().find(is_there).map(|located| &located.location)
    }
}

/// The variables of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// Those of the function itself.
    pub local: Vec<VariableLocations>,
    /// Those of the first copy inlined in it.
    pub inlined: Vec<VariableLocations>,
}

/// A copy of the inlined function.
struct InlinedCopy {
    /// Line and column of the call.
    called_at: (u64, u64),
    ranges: Vec<Range>,
    variables: Vec<VariableLocations>,
}

/// What an entry is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    Function,
    Copy(usize),
    Other,
}

/// Finds the variables called `names` of the function at `id`, and of the first copy of the function `inlined` in it.
/// Fails if there are too many entries.
pub fn variables(
    units: &Units<'_>,
    id: EntryId,
    inlined: &str,
    names: &[&'static str],
) -> Result<Variables, DwarfError> {
    let mut found = Variables::default();
    let (Some(unit), Some(function)) = (units.units.get(id.unit), units.entry(id)) else { return Ok(found) };
    let frame = function
        .attr_value(constants::DW_AT_frame_base)
        .and_then(|value| value.exprloc_value())
        .and_then(|expression| parse(expression, units.architecture, unit.encoding(), None))
        // A register means its content.
        .map(|(Location::Value(sum) | Location::Memory(sum))| sum);
    let own_ranges = units.ranges(id.unit, &function).unwrap_or_default();
    let mut copies: Vec<InlinedCopy> = Vec::new();
    let mut scopes: Vec<Scope> = Vec::new();
    units.walk(id, MAX_NESTING, |depth, entry| {
        scopes.truncate(depth);
        let inner = match (scopes.last().copied(), entry.tag()) {
            (None, _) => Scope::Function,
            (Some(scope), constants::DW_TAG_lexical_block) => scope,
            (Some(Scope::Function), constants::DW_TAG_inlined_subroutine)
                if copies.len() < MAX_COPIES && units.name(id.unit, entry) == Some(inlined) =>
            {
                copies.push(InlinedCopy {
                    called_at: (
                        number(entry, constants::DW_AT_call_line).unwrap_or(u64::MAX),
                        number(entry, constants::DW_AT_call_column).unwrap_or(u64::MAX),
                    ),
                    ranges: units.ranges(id.unit, entry).unwrap_or_default(),
                    variables: Vec::new(),
                });
                Scope::Copy(copies.len() - 1)
            }
            (Some(Scope::Function), constants::DW_TAG_variable) if found.local.len() < MAX_COPIES => {
                let found = &mut found.local;
                found.extend(variable(units, id.unit, entry, names, &own_ranges, frame.as_ref()));
                Scope::Other
            }
            (Some(Scope::Copy(index)), constants::DW_TAG_variable) => {
                let copy = copies.get_mut(index);
                if let Some(copy) = copy.filter(|copy| copy.variables.len() < MAX_COPIES) {
                    let found = variable(units, id.unit, entry, names, &copy.ranges, frame.as_ref());
                    copy.variables.extend(found);
                }
                Scope::Other
            }
            _ => Scope::Other,
        };
        scopes.push(inner);
    })?;
    if let Some(first) = copies.into_iter().min_by_key(|copy| copy.called_at) {
        found.inlined = first.variables;
    }
    Ok(found)
}

fn variable<'a>(
    units: &Units<'a>,
    unit: usize,
    entry: &Entry<'a>,
    names: &[&'static str],
    scope: &[Range],
    frame: Option<&RegisterSum>,
) -> Option<VariableLocations> {
    let name = units.name(unit, entry)?;
    let name = names.iter().find(|wanted| **wanted == name)?;
    let value = entry.attr_value(constants::DW_AT_location)?;
    let unit = units.units.get(unit)?;
    let parse = |expression| parse(expression, units.architecture, unit.encoding(), frame);
    let locations = match value.exprloc_value() {
        Some(expression) => {
            let location = parse(expression)?;
            scope.iter().map(|range| LocatedAt { range: *range, location: location.clone() }).collect()
        }
        None => {
            let mut list = units.dwarf.attr_locations(unit, value).ok()??;
            std::iter::from_fn(|| list.next().ok().flatten())
                .take(MAX_LOCATIONS)
                .filter_map(|entry| Some(LocatedAt { range: entry.range, location: parse(entry.data)? }))
                .collect()
        }
    };
    Some(VariableLocations { name, locations, always: value.exprloc_value().is_some() })
}

/// The most operations of one expression.
const MAX_OPERATIONS: usize = 64;
/// The most entries on the stack of one expression.
const MAX_STACK: usize = 16;
/// How deep expressions may be nested.
const MAX_DEPTH: u32 = 4;

/// Something that a sum is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register, at the place itself.
    Register(Register),
    /// A register at the function's entry.
    AtEntry(Register),
    /// The 8 bytes at an address.
    Loaded(Box<RegisterSum>),
}

/// `constant + Σ coefficient · base`, modulo 2^64.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegisterSum {
    /// The constant.
    pub constant: u64,
    /// The bases with their coefficients.
    pub terms: Vec<(Base, u64)>,
}

impl RegisterSum {
    fn constant(constant: u64) -> Self {
        Self { constant, terms: Vec::new() }
    }

    fn of(base: Base, constant: u64) -> Self {
        Self { constant, terms: vec![(base, 1)] }
    }

    fn plus(mut self, other: Self, factor: u64) -> Self {
        self.constant = self.constant.wrapping_add(other.constant.wrapping_mul(factor));
        let added = other.terms.into_iter();
        self.terms.extend(added.map(|(base, coefficient)| (base, coefficient.wrapping_mul(factor))));
        self
    }
}

/// Where a variable's value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// It is this sum.
    Value(RegisterSum),
    /// It is in memory, at this address.
    Memory(RegisterSum),
}

/// A location, and the addresses of the instructions before which it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocatedAt {
    /// The addresses.
    pub range: Range,
    /// The location.
    pub location: Location,
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(sum) => write!(f, "{sum}"),
            Self::Memory(address) => write!(f, "[{address}]"),
        }
    }
}

impl std::fmt::Display for RegisterSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (base, coefficient)) in self.terms.iter().enumerate() {
            match (coefficient.cast_signed(), index) {
                (1, 0) => {}
                (1, _) => f.write_str(" + ")?,
                (-1, _) => f.write_str(" - ")?,
                (factor, _) => write!(f, " {factor:+} * ")?,
            }
            match base {
                Base::Register(register) => f.write_str(register.name(8))?,
                Base::AtEntry(register) => write!(f, "{} at entry", register.name(8))?,
                Base::Loaded(address) => write!(f, "[{address}]")?,
            }
        }
        match (self.constant.cast_signed(), self.terms.is_empty()) {
            (0, false) => Ok(()),
            (constant, true) => write!(f, "{constant}"),
            (constant, false) => write!(f, " {constant:+}"),
        }
    }
}

/// Returns what an expression means in a function whose frame base is `frame`.
pub fn parse(
    expression: Expression<Reader<'_>>,
    architecture: Architecture,
    encoding: Encoding,
    frame: Option<&RegisterSum>,
) -> Option<Location> {
    evaluate(expression, architecture, encoding, frame, MAX_DEPTH)
}

fn evaluate(
    expression: Expression<Reader<'_>>,
    architecture: Architecture,
    encoding: Encoding,
    frame: Option<&RegisterSum>,
    depth: u32,
) -> Option<Location> {
    let depth = depth.checked_sub(1)?;
    let convention = architecture.convention();
    let register = |number| Some(Register { architecture, number: architecture.register_of_table(number)? });
    let mut bytes: EndianSlice<'_, _> = expression.0;
    let mut stack: Vec<RegisterSum> = Vec::new();
    let mut in_register = false;
    let mut is_value = false;
    for _ in 0..MAX_OPERATIONS {
        if bytes.is_empty() {
            break;
        }
        // Nothing may follow what ends an expression.
        if in_register || is_value || stack.len() >= MAX_STACK {
            return None;
        }
        match Operation::parse(&mut bytes, encoding).ok()? {
            Operation::Register { register: number } => {
                stack.push(RegisterSum::of(Base::Register(register(number)?), 0));
                in_register = true;
            }
            Operation::RegisterOffset { register: number, offset, base_type } if base_type.0 == 0 => {
                stack.push(RegisterSum::of(Base::Register(register(number)?), offset.cast_unsigned()));
            }
            Operation::FrameOffset { offset } => {
                stack.push(frame?.clone().plus(RegisterSum::constant(offset.cast_unsigned()), 1));
            }
            // The stack pointer before the call.
            Operation::CallFrameCFA => {
                let stack_pointer = Register { architecture, number: convention.stack_pointer };
                stack.push(RegisterSum::of(Base::AtEntry(stack_pointer), convention.pushed_by_call.into()));
            }
            Operation::EntryValue { expression } => {
                let inner = evaluate(Expression(expression), architecture, encoding, None, depth)?;
                stack.push(at_entry(inner)?);
            }
            Operation::Address { address } => stack.push(RegisterSum::constant(address)),
            Operation::UnsignedConstant { value } => stack.push(RegisterSum::constant(value)),
            Operation::SignedConstant { value } => stack.push(RegisterSum::constant(value.cast_unsigned())),
            Operation::PlusConstant { value } => {
                let top = stack.pop()?;
                stack.push(top.plus(RegisterSum::constant(value), 1));
            }
            Operation::Plus => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(left.plus(right, 1));
            }
            Operation::Minus => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                stack.push(left.plus(right, u64::MAX));
            }
            Operation::Deref { size: 8, space: false, .. } => {
                let address = stack.pop()?;
                stack.push(RegisterSum::of(Base::Loaded(Box::new(address)), 0));
            }
            Operation::StackValue => is_value = true,
            Operation::Nop => {}
            _ => return None,
        }
    }
    if !bytes.is_empty() || stack.len() != 1 {
        return None;
    }
    let sum = stack.pop()?;
    Some(if in_register || is_value { Location::Value(sum) } else { Location::Memory(sum) })
}

/// Returns the register that an expression reads at the function's entry. Compilers use no other expressions there.
fn at_entry(inner: Location) -> Option<RegisterSum> {
    let Location::Value(sum) = inner else { return None };
    let [(Base::Register(number), 1)] = sum.terms[..] else { return None };
    (sum.constant == 0).then(|| RegisterSum::of(Base::AtEntry(number), 0))
}
