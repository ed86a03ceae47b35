//! From a plan, which speaks of the ELF file, to what the programs need of one process.

use evictscope_abi as kernel;
use evictscope_abi::{AllocatorCounters, ServerConfig, TermKind};
use evictscope_plan::{Counters, EVICTION_CALL, FileAddress, Member, Operand, ProbePlan, Recipe};

/// Which plan member each kernel member is, and how many bytes behind its address.
const MEMBERS: [(kernel::Member, Member, u64); kernel::MEMBERS] = [
    (kernel::Member::Maxmemory, Member::Maxmemory, 0),
    (
        kernel::Member::CommandsProcessed,
        Member::StatNumcommands,
        0,
    ),
    (kernel::Member::EvictedKeys, Member::StatEvictedkeys, 0),
    (kernel::Member::ExpiredKeys, Member::StatExpiredkeys, 0),
    (
        kernel::Member::ClientsNormal,
        Member::StatClientsTypeMemory,
        0,
    ),
    (
        kernel::Member::ClientsReplica,
        Member::StatClientsTypeMemory,
        8,
    ),
    (
        kernel::Member::ClientsPubsub,
        Member::StatClientsTypeMemory,
        16,
    ),
    (
        kernel::Member::ClientsPrimary,
        Member::StatClientsTypeMemory,
        24,
    ),
];

/// Returns the plan's recipes and addresses as they are in process `pid`, where the loader added
/// `load_bias` to the addresses of the ELF file.
pub fn server_config(pid: u32, load_bias: u64, plan: &ProbePlan) -> ServerConfig {
    let mut config = ServerConfig {
        tgid: pid,
        ..ServerConfig::OFF
    };
    if let Some(eviction) = plan.function(EVICTION_CALL.description) {
        let inner = eviction.inner.iter();
        for planned in inner.flat_map(|inner| &inner.quantities) {
            config.recipes[planned.quantity as usize] = recipe(&planned.recipe, load_bias);
        }
        for (place, exit) in config.results.iter_mut().zip(&eviction.exits) {
            if let Some(result) = &exit.result {
                *place = term(result, false, load_bias);
            }
        }
    }
    for (kernel, member, distance) in MEMBERS {
        config.members[kernel as usize] = plan.member(member).map_or(0, |planned| {
            planned.address.wrapping_add(distance).at(load_bias).get()
        });
    }
    if let Some(member) = plan.member(Member::UsedMemory) {
        let counters = member.counters.unwrap_or(Counters::one(member.address));
        config.used_memory = allocator_counters(&counters, load_bias);
    }
    config
}

fn allocator_counters(counters: &Counters, load_bias: u64) -> AllocatorCounters {
    let (Ok(stride), Ok(count)) = (
        u32::try_from(counters.stride / 8),
        u32::try_from(counters.most),
    ) else {
        return AllocatorCounters::UNKNOWN;
    };
    let at = |address: Option<FileAddress>| address.map_or(0, |own| own.at(load_bias).get());
    AllocatorCounters {
        address: at(Some(counters.first)),
        stride,
        count,
        threads: at(counters.threads),
        threads_width: counters.threads_width,
        overflow: at(counters.overflow),
    }
}

fn recipe(planned: &Recipe, load_bias: u64) -> kernel::Recipe {
    let mut recipe = kernel::Recipe::UNKNOWN;
    // A recipe that is too long would be cut short, and so wrong.
    if planned.terms.len() <= recipe.terms.len() {
        for (place, planned) in recipe.terms.iter_mut().zip(&planned.terms) {
            *place = term(&planned.operand, planned.negative, load_bias);
        }
    }
    recipe
}

fn term(operand: &Operand, negative: bool, load_bias: u64) -> kernel::Term {
    let (kind, register, width, displacement) = match operand {
        Operand::Register {
            number,
            width,
            plus,
        } => (TermKind::Register, *number, *width, *plus),
        Operand::Memory {
            base,
            displacement,
            width,
        } => (TermKind::Memory, *base, *width, *displacement),
        Operand::Constant(value) => (TermKind::Constant, 0, 8, *value),
        Operand::Global { address, .. } => (
            TermKind::Absolute,
            0,
            8,
            address.at(load_bias).get().cast_signed(),
        ),
    };
    kernel::Term {
        kind: kind as u8,
        register,
        width,
        negative: u8::from(negative),
        reserved: 0,
        displacement,
    }
}
