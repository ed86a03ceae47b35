//! Makes the plan of an executable: runs the steps in their order.

use std::cell::OnceCell;

use evictscope_machine::elf::{ElfError, Image};
use evictscope_model::Member;

use crate::commands::CommandsPlan;
use crate::dwarf::DebugInfo;
use crate::item::{FunctionKind, Item, Reason};
use crate::members::{ConfigTable, Evidence, Members};
use crate::names::{Identity, Texts};
use crate::plan::{NotFound, ProbePlan};
use crate::traced::eviction::EVICTION_CALL;
use crate::traced::expire::{self, EXPIRE_CYCLE};
use crate::traced::{Analysis, Traced};
use crate::{members, names};

/// The traced functions, in the order of the numbers by which the programs know them
/// (`evictscope_abi::EVICTION`, `evictscope_abi::EXPIRE`).
pub const TRACED: [Traced; 2] = [EVICTION_CALL, EXPIRE_CYCLE];

// The maps have no entries for more.
const _: () = assert!(TRACED.len() <= evictscope_abi::MAX_FUNCTIONS as usize);

/// Why a server cannot be watched whose process runs the loader.
const LOADER: &str =
    "it was started through the dynamic loader (ld.so), and not by itself, so its code is in another file";

/// Plans the probes of the executable whose whole content is `data`, with the help of the debug
/// information in it, or else in `debug`: the whole content of the file that belongs to this very
/// executable (see [`DebugFileNames`](crate::DebugFileNames)).
///
/// The plan itself says what was not found, and why. Fails if `data` is not an ELF executable for a processor that is
/// known.
pub fn plan(data: &[u8], debug: Option<&[u8]>) -> Result<ProbePlan, ElfError> {
    plan_functions(data, debug, &TRACED)
}

/// Does the same for traced functions other than those of [`TRACED`]. Fails as [`plan`] does.
pub fn plan_functions(data: &[u8], debug: Option<&[u8]>, traced: &[Traced]) -> Result<ProbePlan, ElfError> {
    let mut image = Image::parse(data)?;
    if names::is_packed(data) {
        return Ok(ProbePlan::nothing(Identity::of(&image), Reason::Packed));
    }
    if names::is_loader(&image) {
        return Ok(ProbePlan::nothing(Identity::of(&image), Reason::Unsupported(LOADER.to_owned())));
    }
    if let Some(debug) = debug {
        image.add_symbols_of(debug)?;
    }
    let wanted: Vec<&str> = traced.iter().flat_map(|traced| traced.texts).copied().collect();
    let texts = names::find(&mut image, &wanted);
    let files: Vec<&[u8]> = std::iter::once(data).chain(debug).collect();
    let mut plan = plan_image(&image, &texts, &files, traced);
    if image.budget.is_spent() {
        // What was found may be wrong, so none of it is kept.
        plan = ProbePlan::nothing(Identity::of(&image), Reason::Budget);
    }
    Ok(plan)
}

fn plan_image(image: &Image<'_>, texts: &Texts, files: &[&[u8]], traced: &[Traced]) -> ProbePlan {
    let mut identity = names::identity(image, texts);
    if let Some(why) = identity.unsupported() {
        return ProbePlan::nothing(identity, Reason::Unsupported(why));
    }
    let (config, no_config) = match members::config_table(image) {
        Ok(config) => (config, None),
        Err(why) => (ConfigTable::new(), Some(why)),
    };
    let mut analysis = Analysis {
        image,
        texts,
        config: &config,
        info: OnceCell::new(),
        files,
        debug: DebugInfo::default(),
        evidence: Evidence::default(),
        not_found: Vec::new(),
    };
    let mut functions = Vec::new();
    for (index, traced) in traced.iter().enumerate() {
        functions.extend((traced.plan)(&mut analysis, FunctionKind { index, description: traced.description }));
    }
    let Analysis { info, debug, evidence, mut not_found, .. } = analysis;
    let mut members = Members::default();
    let mut commands = None;
    match no_config {
        _ if functions.is_empty() => {}
        Some(why) => members.not_found.push((Member::Maxmemory, why)),
        None => {
            let info = info.into_inner().unwrap_or_else(|| members::info(image));
            match CommandsPlan::find(image, info.counters) {
                Ok(found) => commands = Some(found),
                Err(why) => not_found.push(NotFound { item: Item::Commands, reason: Reason::Unrecognised(why) }),
            }
            members = Members::find(image, &config, info, evidence, &mut identity);
            compare(&mut members, &debug);
            expire::count_by_member(&mut functions, &members.found, &mut not_found);
        }
    }
    not_found.extend(
        members.not_found.into_iter().map(|(member, why)| NotFound { item: Item::Member(member), reason: why.into() }),
    );
    not_found.extend(members.wrong_version.map(|why| NotFound { item: Item::Version, reason: why.into() }));
    ProbePlan { identity, functions, members: members.found, commands, not_found }
}

/// Compares the members of `server`, and the allocator's counter, with what the debug information says about them.
fn compare(members: &mut Members, debug: &DebugInfo) {
    if let Some(server) = &debug.server {
        for (member, offset) in &server.members {
            let address = server.address.wrapping_add(*offset);
            members.agree(*member, address, Some(*offset));
        }
    }
    // The counter is confirmed only if it is a single one: allocators may count in more places
    // than the one with that name.
    let is_single = members.found.iter().any(|member| member.member == Member::UsedMemory && member.counters.is_none());
    if is_single && let Some(address) = debug.counter {
        members.agree(Member::UsedMemory, address, None);
    }
}
