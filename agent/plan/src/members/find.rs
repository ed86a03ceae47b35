//! Finds all members, each from the best source that knows it.

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_machine::elf::Image;
use evictscope_model::{FileAddress, Member};
use serde::Serialize;

use super::counters::{Counters, counters, counters_returned_by};
use super::info::Info;
use super::layouts::{KnownLayout, known_layout, measured};
use super::server::{ServerObject, around, server};
use super::sources::{ConfigTable, MemberError, absent, by_data_flow, only_in};
use crate::item::Method;
use crate::names::Identity;

/// Why the eviction pool is not known.
const NO_POOL: &str =
    "the eviction function does not reach the last entry of a single pool of keys, as it does in Redis";
/// Why its entries tell nothing, although it was found.
const UNKNOWN_TIMES: &str = "it is not known whether this version's pool of keys holds milliseconds or seconds";

/// Bytes of `lctx` of Redis and Valkey 7 and 8.0, and of `evalCtx` of later Valkeys.
const CONTEXT: [u64; 2] = [32, 40];
const NEWER_CONTEXT: [u64; 1] = [24];

/// How something in the server's memory is read.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemberPlan {
    /// Which member.
    #[serde(rename = "name")]
    pub member: Member,
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Offset in `server`, bytes; `None` for what is not a member of it, or if it is not certain where `server` begins.
    pub offset: Option<u64>,
    /// How it was found.
    pub method: Method,
    /// The counters whose sum it is, if there are several; `address` is that of the first.
    pub counters: Option<Counters>,
}

impl MemberPlan {
    /// Returns the addresses of the 8-byte words to read.
    pub fn words(&self) -> impl Iterator<Item = FileAddress> {
        let single =
            Counters { most: self.member.line().content.bytes().div_ceil(8), ..Counters::single(self.address) };
        let counters = self.counters.unwrap_or(single);
        let word = move |index| counters.first.wrapping_add(index * counters.stride);
        (0..counters.most).map(word).chain(counters.overflow)
    }
}

/// What the eviction function says about the server's memory.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The counters behind `mem_reported`, if the calculation of the goal was found.
    pub counters: Option<Result<Counters, MemberError>>,
    /// Addresses that its loops add 1 to.
    pub counted: Vec<FileAddress>,
    /// Where the address of the eviction pool is.
    pub pool: Option<FileAddress>,
}

/// What was found in the server's memory, and what was not.
#[derive(Debug, Default)]
pub struct Members {
    /// What was found, in the order of the plan.
    pub found: Vec<MemberPlan>,
    pub not_found: Vec<(Member, MemberError)>,
    /// Why the version that the executable names cannot be right, if it cannot.
    pub wrong_version: Option<MemberError>,
}

impl Members {
    /// Finds the members. Corrects product and version in `identity` by the layout: they become
    /// unknown if they contradict it, and the series if only that is certain.
    pub fn find(
        image: &Image<'_>,
        config: &ConfigTable,
        info: Info,
        evidence: Evidence,
        identity: &mut Identity,
    ) -> Self {
        let mut members = Self::default();
        match counters(image, evidence.counters) {
            Ok(counters) => {
                members.add(Member::UsedMemory, counters.first, None, Method::Dataflow);
                if let Some(member) = members.found.last_mut() {
                    member.counters = Some(counters).filter(|counters| counters.most > 1);
                }
            }
            Err(why) => members.miss(Member::UsedMemory, why),
        }
        let measured = measured(config);
        let measured = measured.as_ref().unwrap_or(config);
        let server = (image.symbols.object("server"))
            .map(|symbol| ServerObject { address: symbol.address, size: symbol.size, is_exact: true })
            .map_or_else(|| server(image, measured, identity, &evidence.counted), Ok);
        members.add_configured(config, server.as_ref().ok());
        for (directive, member) in absent(image, config) {
            let why = format!("the table of configuration directives has no clear {directive}");
            members.miss(member, MemberError::Unknown(why));
        }
        let named = info.named.clone();
        match members.add_counters(image, measured, &evidence.counted, server, info) {
            Ok(Some(layout)) => members.check_version(&layout, identity),
            Ok(None) => {}
            Err(why) => {
                for member in Member::counted() {
                    members.miss(member, why.clone());
                }
            }
        }
        let pool = match evidence.pool {
            Some(_) if identity.idle_time_unit().is_none() => Err(UNKNOWN_TIMES),
            pool => pool.ok_or(NO_POOL),
        };
        members.add_pool(image, pool);
        members.add_globals(image);
        members.not_found.retain(|(member, _)| {
            let line = member.line();
            !line.is_in_some || line.directive.is_some() || named.contains(member)
        });
        members
    }

    /// Adds the place of the eviction pool, which its symbol must not contradict.
    fn add_pool(&mut self, image: &Image<'_>, found: Result<FileAddress, &str>) {
        let member = Member::EvictionPool;
        let symbol = image.symbols.object(member.name()).map(|symbol| symbol.address);
        let found = match (found, symbol) {
            (Ok(found), Some(symbol)) if found != symbol => Err(MemberError::Contradiction(format!(
                "the eviction function goes through what {found:#x} points to, but the symbol is at {symbol:#x}"
            ))),
            (found, _) => found.map_err(MemberError::unknown),
        };
        self.add_global(member, found, Method::Dataflow);
    }

    /// Adds the globals that a name leads to: their own, or that of a function that returns them.
    fn add_globals(&mut self, image: &Image<'_>) {
        let symbol = |name, sizes: &[u64]| {
            let symbol = image.symbols.object(name).filter(|symbol| sizes.contains(&symbol.size));
            symbol.map(|symbol| symbol.address)
        };
        let context = symbol("lctx", &CONTEXT).or_else(|| symbol("evalCtx", &NEWER_CONTEXT));
        let missing = |name| MemberError::Unknown(format!("no name in the executable leads to {name}"));
        // Redis 6 has its scripts in `server`.
        if !self.found.iter().any(|found| found.member == Member::LuaScripts) {
            let scripts = context.ok_or_else(|| missing("the scripts of EVAL"));
            self.add_global(Member::EvalContext, scripts, Method::Symbol);
        }
        let table = symbol(Member::TrackingTable.name(), &[8]).ok_or_else(|| missing("the tracking table"));
        self.add_global(Member::TrackingTable, table, Method::Symbol);
        for (member, getter) in Member::ALL.iter().filter_map(|member| Some((*member, member.line().returned_by?))) {
            let counters = image.symbols.function(getter).map(|function| counters_returned_by(image, function.address));
            let counter = match counters {
                Some(Ok(counters)) if counters.most == 1 => Ok(counters.first),
                Some(_) => Err(MemberError::Unknown(format!("{getter}() does not return one number as it is"))),
                None => Err(missing(member.name())),
            };
            self.add_global(member, counter, Method::Dataflow);
        }
    }

    fn add_global(&mut self, member: Member, found: Result<FileAddress, MemberError>, method: Method) {
        match found {
            Ok(address) => self.add(member, address, None, method),
            Err(why) => self.miss(member, why),
        }
    }

    fn add_configured(&mut self, config: &ConfigTable, server: Option<&ServerObject>) {
        for (member, address) in config {
            let offset = server.filter(|server| server.is_exact).and_then(|server| {
                let offset = address.checked_sub(server.address);
                offset.filter(|offset| *offset < server.size)
            });
            self.add(*member, *address, offset, Method::ConfigTable);
        }
    }

    /// Adds the members that no directive sets, and returns the layout of `server`, if it is known.
    fn add_counters(
        &mut self,
        image: &Image<'_>,
        config: &ConfigTable,
        counted_in_loops: &[FileAddress],
        server: Result<ServerObject, MemberError>,
        info: Info,
    ) -> Result<Option<KnownLayout>, MemberError> {
        let range = match &server {
            Ok(server) => server.range(),
            Err(_) => around(config),
        };
        // What the loop counts inside `server` can be told from what it counts elsewhere only if it
        // is certain where `server` begins and ends.
        let counted = server.as_ref().ok().and_then(|server| only_in(server.range(), counted_in_loops));
        let flow = by_data_flow(image, info, counted, range)?;
        let known = server.as_ref().map_err(MemberError::clone).and_then(|server| {
            let layout = known_layout(server.address, server.size, config, &flow)?;
            Ok((server, layout))
        });
        if let Err(why @ MemberError::Contradiction(_)) = known {
            return Err(why);
        }
        for member in Member::counted() {
            let (address, method) = match (flow.get(&member), &known) {
                (Some(address), _) => (*address, Method::Dataflow),
                (None, Ok((server, _))) if member == Member::InitialMemoryUsage && !server.is_exact => {
                    let why = "several known layouts agree with this executable, and differ in where this is";
                    self.miss(member, MemberError::unknown(why));
                    continue;
                }
                (None, Ok((server, known))) => match known.layout.offset(member) {
                    Some(offset) => (server.address.wrapping_add(offset), Method::KnownLayout),
                    // This version has no such member.
                    None => continue,
                },
                (None, Err(why)) => {
                    self.miss(member, why.clone());
                    continue;
                }
            };
            let exact = server.as_ref().ok().filter(|server| server.is_exact);
            let offset = exact.map(|server| address.wrapping_sub(server.address));
            self.add(member, address, offset, method);
        }
        Ok(known.ok().map(|(_, layout)| layout))
    }

    /// Compares what the executable says about itself with its layout.
    fn check_version(&mut self, known: &KnownLayout, identity: &mut Identity) {
        match (identity.product, &identity.version) {
            (Some(product), Some(version)) if !known.fits(product, version) => {
                self.wrong_version = Some(MemberError::Contradiction(format!(
                    "the executable says that it is {product} {version}, but its struct redisServer is that of {}",
                    known.releases.join(", ")
                )));
                (identity.product, identity.version) = (None, None);
            }
            (Some(product), None) => identity.version = known.series(product).map(str::to_owned),
            _ => {}
        }
    }

    /// Compares a member with what the debug information says about it. A member that differs is
    /// not found, and one that only the debug information knows is added.
    pub fn agree(&mut self, member: Member, address: FileAddress, offset: Option<u64>) {
        let Some(at) = self.found.iter().position(|planned| planned.member == member) else {
            self.not_found.retain(|(missing, _)| *missing != member);
            self.add(member, address, offset, Method::Dwarf);
            return;
        };
        let planned = &mut self.found[at];
        if planned.address == address {
            planned.method = Method::Both;
            planned.offset = offset;
            return;
        }
        let why = MemberError::Contradiction(format!(
            "DWARF says that it is at {address:#x}, the {} that it is at {:#x}",
            planned.method, planned.address
        ));
        self.found.remove(at);
        self.miss(member, why);
    }

    fn add(&mut self, member: Member, address: FileAddress, offset: Option<u64>, method: Method) {
        self.found.push(MemberPlan { member, address, offset, method, counters: None });
    }

    fn miss(&mut self, member: Member, why: MemberError) {
        self.not_found.push((member, why));
    }
}
