//! Plans made by another process: how to serialize what borsh cannot, and whether what was received can be a plan.
//!
//! A hostile executable could take over the process that plans, so nothing in its answer is trusted: where a probe
//! goes, what it reads there, and what is exported of it must be possible. Whether it is *right* is tested where it
//! runs, as for every plan.

use std::io::{self, Read, Write};

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_abi::{COUNTER_BYTES, MAX_DONE_SITES, MAX_START_SITES, VARIABLES, Variable, When};
use evictscope_machine::flow::{Operand, Recipe};
use evictscope_machine::sites::Site;

use crate::commands::CommandsPlan;
use crate::item::{FunctionKind, Reason};
use crate::named::NamedFunction;
use crate::names::{Identity, PRODUCTS};
use crate::plan::{CallSpan, ExpirePlan, FunctionPlan, ProbePlan};
use crate::planner::TRACED;
use crate::traced::{eviction, expire};

/// The longest text of a plan that is exported or shown, in bytes.
const MAX_TEXT: usize = 256;
/// The longest sentence that says why something was not found, in bytes: it goes to the log and to pages.
const MAX_REASON: usize = 4096;
/// The most counters of an allocator. There are at most 128, one for each thread that may have one.
const MAX_COUNTERS: u64 = 1024;

fn wrong(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no such {what}"))
}

/// Reads a text that must be one of `all`.
fn known(from: &mut impl Read, all: &[&'static str]) -> io::Result<&'static str> {
    let text = String::deserialize_reader(from)?;
    all.iter().find(|known| **known == text).copied().ok_or_else(|| wrong("name"))
}

pub fn function_name(from: &mut impl Read) -> io::Result<&'static str> {
    let [new, old] = eviction::NAMES;
    known(from, &[new, old, expire::entry::NAME])
}

pub fn product(from: &mut impl Read) -> io::Result<Option<&'static str>> {
    if bool::deserialize_reader(from)? { known(from, &PRODUCTS).map(Some) } else { Ok(None) }
}

pub fn write_variable(variable: &Variable, to: &mut impl Write) -> io::Result<()> {
    (*variable as u64).serialize(to)
}

pub fn variable(from: &mut impl Read) -> io::Result<Variable> {
    let index = u64::deserialize_reader(from)?;
    VARIABLES.iter().find(|variable| **variable as u64 == index).copied().ok_or_else(|| wrong("variable"))
}

impl BorshSerialize for FunctionKind {
    fn serialize<W: Write>(&self, to: &mut W) -> io::Result<()> {
        (self.index as u64).serialize(to)
    }
}

impl BorshDeserialize for FunctionKind {
    fn deserialize_reader<R: Read>(from: &mut R) -> io::Result<Self> {
        let index = u64::deserialize_reader(from)?;
        let mut all = (0..).zip(&TRACED);
        let (index, traced) = all.find(|(number, _)| *number as u64 == index).ok_or_else(|| wrong("function"))?;
        Ok(Self { index, description: traced.description })
    }
}

/// Sends the sentence of a reason, and its kind if any code asks for it.
impl BorshSerialize for Reason {
    fn serialize<W: Write>(&self, to: &mut W) -> io::Result<()> {
        let kind: u8 = match self {
            Self::Budget => 0,
            Self::Unsupported(_) => 1,
            Self::Packed => 2,
            _ => 3,
        };
        (kind, self.to_string()).serialize(to)
    }
}

impl BorshDeserialize for Reason {
    fn deserialize_reader<R: Read>(from: &mut R) -> io::Result<Self> {
        match <(u8, String)>::deserialize_reader(from)? {
            (0, _) => Ok(Self::Budget),
            (1, why) => Ok(Self::Unsupported(why)),
            (2, _) => Ok(Self::Packed),
            (3, why) => Ok(Self::Sentence(why)),
            _ => Err(wrong("reason")),
        }
    }
}

impl ProbePlan {
    /// Returns whether a plan that was received can be one of an executable of `bytes` bytes.
    pub fn is_possible(&self, bytes: u64) -> bool {
        let functions = self.functions.iter().enumerate().all(|(index, function)| {
            let CallSpan { entry, inner, exits } = &function.span;
            let mut before = self.functions[..index].iter();
            let reads = match &function.plan {
                FunctionPlan::Calls => true,
                FunctionPlan::Eviction(quantities) => {
                    quantities.len() <= VARIABLES.len() && quantities.iter().all(|plan| recipe(&plan.recipe))
                }
                FunctionPlan::Expire(ExpirePlan { starts, ends }) => {
                    (starts.len(), ends.len()) == (inner.len(), exits.len())
                        && starts
                            .iter()
                            .all(|start| [&start.cycle_type, &start.job, &start.expired].into_iter().all(place))
                        && ends.iter().all(|end| place(&end.sampled) && place(&end.expired))
                }
            };
            reads
                && (inner.len() <= MAX_START_SITES && exits.len() <= MAX_DONE_SITES)
                && entry.iter().chain(inner).chain(exits.iter().map(|exit| &exit.site)).all(|probe| site(probe, bytes))
                && exits
                    .iter()
                    .all(|exit| exit.way.is_none_or(|way| When::decode(way.when).is_test()) && place(&exit.result))
                && before.all(|other| other.kind != function.kind)
        });
        let members = self.members.iter().enumerate().all(|(index, member)| {
            let counters = member.counters.is_none_or(|counters| {
                (1..=MAX_COUNTERS).contains(&counters.most)
                    && counters.stride.is_multiple_of(8)
                    && counters.bytes() <= COUNTER_BYTES as u64
                    && matches!(counters.threads_width, 4 | 8)
            });
            let mut before = self.members[..index].iter();
            counters && before.all(|other| other.member != member.member)
        });
        let reasons = self.not_found.iter().all(|missing| {
            let why = missing.reason.to_string();
            why.len() <= MAX_REASON && !why.contains(char::is_control)
        });
        let commands = self.commands.as_ref().is_none_or(CommandsPlan::is_possible);
        identity(&self.identity) && functions && members && commands && reasons
    }
}

impl NamedFunction {
    /// Returns whether a function that was received can be one of an executable of `bytes` bytes.
    pub fn is_possible(&self, bytes: u64) -> bool {
        let mut texts = self.name.iter().chain(&self.commands);
        site(&self.entry, bytes) && identity(&self.identity) && texts.all(|text| !text.contains(char::is_control))
    }
}

fn site(site: &Site, bytes: u64) -> bool {
    site.file_offset.get() < bytes && is_text(&site.instruction)
}

fn recipe(recipe: &Recipe) -> bool {
    let mut terms = recipe.terms.iter();
    matches!(recipe.terms.len(), 1..=3) && terms.all(|term| operand(&term.operand))
}

fn place(place: &Option<Operand>) -> bool {
    place.as_ref().is_none_or(operand)
}

fn operand(operand: &Operand) -> bool {
    match operand {
        Operand::Register { register, width, .. } | Operand::Memory { base: register, width, .. } => {
            register.index() < register.architecture.convention().registers && matches!(width, 4 | 8)
        }
        Operand::Constant(_) => true,
        Operand::Global { name, .. } => is_text(name),
    }
}

fn identity(identity: &Identity) -> bool {
    let version = identity.version.as_deref().unwrap_or_default();
    let build_id = identity.build_id.as_deref().unwrap_or_default();
    let is_version = |byte: u8| byte.is_ascii_digit() || byte == b'.';
    is_text(version)
        && version.bytes().all(is_version)
        && is_text(build_id)
        && build_id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns whether it is short, and a single line.
fn is_text(text: &str) -> bool {
    text.len() <= MAX_TEXT && !text.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::MAX_REASON;
    use crate::item::Reason;
    use crate::names::Identity;
    use crate::plan::ProbePlan;

    #[test]
    fn a_reason_that_could_forge_lines_of_the_log_or_fill_it_is_not_possible() {
        let is_possible = |why: String| ProbePlan::nothing(Identity::default(), Reason::Sentence(why)).is_possible(0);
        assert!(is_possible("it is packed".to_owned()));
        assert!(!is_possible("it is packed\n2026-11-28 INFO".to_owned()));
        assert!(!is_possible("x".repeat(MAX_REASON + 1)));
    }

    #[test]
    fn what_decides_about_the_remedy_arrives() -> std::io::Result<()> {
        for reason in [Reason::Budget, Reason::Unsupported("it is KeyDB".to_owned()), Reason::Packed] {
            assert_eq!(borsh::from_slice::<Reason>(&borsh::to_vec(&reason)?)?, reason);
        }
        Ok(())
    }
}
