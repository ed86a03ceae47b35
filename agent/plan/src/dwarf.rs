//! What DWARF says about the eviction function, its variables, and `server`: the second method of
//! probe planning, independent of the data flow.

use std::collections::BTreeMap;

use evictscope_abi::Variable;
use evictscope_machine::dwarf::{
    Asked, DebugFunction, DwarfError, Global, Globals, Sections, Units, Variables, variables,
};
use evictscope_model::{FileAddress, Member};

use crate::item::variable_name;

/// Computes the goal. Its first copy sets the goal; those inlined further down only check whether enough was freed.
const CALCULATION: &str = "getMaxmemoryState";
/// The goal variables that are locals. The function itself has those that a call of the calculation fills in.
const GOAL_VARIABLES: [&str; 4] = [
    variable_name(Variable::MemReported),
    variable_name(Variable::Overhead),
    variable_name(Variable::MemUsed),
    variable_name(Variable::MemTofree),
];

/// What DWARF says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugInfo {
    /// The eviction function; `None` if it could be any of several.
    pub eviction_function: Option<DebugFunction>,
    /// The goal variables of that function, and of the copy of the calculation in it.
    pub variables: Variables,
    pub server: Option<DebugServer>,
    /// Address of the allocator's counter, if it is one number.
    pub counter: Option<FileAddress>,
}

/// Reads the debug information in the ELF file whose whole content is `data`; `None` if it has none.
/// `eviction` says which function is the eviction function. Fails if the sections cannot be read, or
/// are larger than any server's. Errors inside them only make less known.
pub fn read(data: &[u8], eviction: Asked<'_>) -> Result<Option<DebugInfo>, DwarfError> {
    let Some(sections) = Sections::read(data)? else { return Ok(None) };
    let units = Units::read(&sections)?;
    let globals = Globals::find(&units, &VARIABLES, eviction)?;
    let function = globals.function(eviction);
    let variables = match function {
        Some(function) => variables(&units, function.id, CALCULATION, &GOAL_VARIABLES)?,
        None => Variables::default(),
    };
    Ok(Some(DebugInfo {
        eviction_function: function,
        variables,
        server: server(&units, &globals),
        counter: counter(&units, &globals),
    }))
}

/// The variables that are looked for.
pub const VARIABLES: [&str; 2] = [SERVER, COUNTER];
const SERVER: &str = "server";
const COUNTER: &str = "used_memory";
/// What the type of `server` is called.
const TYPES: [&str; 2] = ["redisServer", "valkeyServer"];

/// The global variable `server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugServer {
    pub address: FileAddress,
    /// Offsets of the members that are looked for.
    pub members: BTreeMap<Member, u64>,
}

/// Finds the only variable called `server` that has the type it has in Redis.
pub fn server(units: &Units<'_>, globals: &Globals) -> Option<DebugServer> {
    let servers = globals.variables.iter().filter(|variable| variable.name == SERVER);
    let mut servers = servers.filter_map(|global| typed_server(units, global));
    let only = servers.next()?;
    servers.next().is_none().then_some(only)
}

fn typed_server(units: &Units<'_>, global: &Global) -> Option<DebugServer> {
    let is_wanted =
        |name: &str| Member::of_server().any(|member| member.name() == name || member.line().newer_name == Some(name));
    let offsets = units.members(global.of, &TYPES, is_wanted)?;
    let members = Member::of_server().filter_map(|member| {
        let offset = offsets.get(member.name()).or_else(|| offsets.get(member.line().newer_name?));
        Some((member, *offset?))
    });
    Some(DebugServer { address: global.address, members: members.collect() })
}

/// Finds the address of the only variable called `used_memory`, if that is an 8-byte number.
pub fn counter(units: &Units<'_>, globals: &Globals) -> Option<FileAddress> {
    let mut counters = globals.variables.iter().filter(|variable| variable.name == COUNTER);
    let only = counters.next()?;
    (counters.next().is_none() && units.is_number(only.of, 8)).then_some(only.address)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use evictscope_abi::Variable;
    use evictscope_machine::dwarf::{Asked, DwarfError};
    use evictscope_model::Member;
    use evictscope_testkit::compiler;

    use super::{DebugInfo, read};
    use crate::tests::{eviction_call, plan_of};
    use crate::{DebugFileNames, FunctionPlan, Item, Method, ProbePlan, QuantityPlan};

    const SOURCE: &str = include_str!("../tests/fixtures/evict.c");
    const CALLED: &str = "__attribute__((noinline))";
    const INLINED: &str = "__attribute__((always_inline))inline static";
    const EVICTION: Asked<'static> = Asked { names: &["performEvictions"], entry: None };

    /// Compiles `source` with debug information.
    fn compile(compiler: &str, source: &str, form: &str, flags: &[&str]) -> Option<Vec<u8>> {
        let form = format!("-DFORM={form}");
        compiler::compile(compiler, source, &[&["-g", "-rdynamic", &form, "-Wl,--build-id=sha1"], flags].concat())
    }

    /// Runs these commands in a folder that has `program`, and returns the files that they make.
    fn made_of<const N: usize>(program: &[u8], commands: &[&[&str]], files: [&str; N]) -> [Vec<u8>; N] {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        std::fs::write(folder.path().join("program"), program).unwrap_or_else(|error| panic!("{error}"));
        for command in commands {
            let has_run = compiler::run(folder.path(), command[0], &command[1..]);
            assert!(has_run, "there is a compiler but no {}", command[0]);
        }
        files.map(|name| std::fs::read(folder.path().join(name)).unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    /// Returns a program without debug information, and the file that has it.
    fn split(program: &[u8]) -> [Vec<u8>; 2] {
        let commands: [&[&str]; 3] = [
            &["objcopy", "--only-keep-debug", "program", "program.debug"],
            &["strip", "--strip-all", "-o", "stripped", "program"],
            &["objcopy", "--add-gnu-debuglink=program.debug", "stripped"],
        ];
        made_of(program, &commands, ["stripped", "program.debug"])
    }

    fn debug_info(data: &[u8]) -> DebugInfo {
        read(data, EVICTION).unwrap_or_else(|error| panic!("{error}")).unwrap_or_else(|| panic!("no debug information"))
    }

    fn why(plan: &ProbePlan, item: Item) -> String {
        let missing = plan.not_found.iter().find(|missing| missing.item == item);
        missing.map_or_else(String::new, |missing| missing.reason.to_string())
    }

    fn quantities(plan: &ProbePlan) -> &[QuantityPlan] {
        match &eviction_call(plan).plan {
            FunctionPlan::Eviction(planned) => planned,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn dwarf_and_data_flow_agree_on_every_variant() {
        let (mut compared, mut confirmed) = (0, 0);
        for compiler in ["gcc", "clang"] {
            for form in [CALLED, INLINED] {
                for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
                    for version in ["-gdwarf-4", "-gdwarf-5"] {
                        let flags = [level, version];
                        let name = format!("{compiler} {form} {flags:?}");
                        let Some(data) = compile(compiler, SOURCE, form, &flags) else { continue };
                        let [stripped, _] = split(&data);
                        let (with, without) = (plan_of(&data, None), plan_of(&stripped, None));
                        let recipes = |plan| -> Vec<_> {
                            quantities(plan).iter().map(|planned| (planned.quantity, planned.recipe.clone())).collect()
                        };
                        assert_eq!(recipes(&with), recipes(&without), "{name}");
                        let both = |planned: &&QuantityPlan| planned.method == Method::Both;
                        compared += quantities(&without).len();
                        confirmed += quantities(&with).iter().filter(both).count();
                        for member in &with.members {
                            assert!(matches!(member.method, Method::Both | Method::Dwarf), "{name}: {member:?}");
                        }
                        assert!(with.members.len() >= 5, "{name}: {:?}", with.members);
                    }
                }
            }
        }
        println!("{confirmed} of {compared} variables are confirmed by DWARF");
        // Compilers drop a location here and there, but not often.
        assert!(confirmed * 10 >= compared * 8, "{confirmed} of {compared}");
    }

    #[test]
    fn a_debug_file_makes_up_for_what_was_stripped() {
        // With -rdynamic's names, and without: both stripped of all that can be stripped.
        for flags in [&["-O2"][..], &["-O2", "-Wl,--no-export-dynamic"]] {
            let Some(data) = compile("gcc", SOURCE, CALLED, flags) else { return };
            let [stripped, debug] = split(&data);
            let names = DebugFileNames::of(&stripped).ok().flatten();
            let names = names.unwrap_or_else(|| panic!("it names no debug file"));
            assert_eq!(names.link.as_deref(), Some("program.debug"));
            assert_eq!(names.check(&debug), Ok(()));
            let plan = plan_of(&stripped, Some(&debug));
            assert_eq!(plan, plan_of(&data, None), "{flags:?}");
            assert!(eviction_call(&plan).has_all_quantities(), "{:?}", plan.not_found);
            assert!(quantities(&plan).iter().all(|planned| planned.method == Method::Both));

            // The whole program needs no other file, and no program accepts that of another.
            assert_eq!(DebugFileNames::of(&data).ok(), Some(None));
            let Some(other) = compile("gcc", SOURCE, CALLED, &["-O1"]) else { return };
            let [_, other] = split(&other);
            let reason = names.check(&other).err().map(|why| why.to_string()).unwrap_or_default();
            assert!(reason.starts_with("its build id is "), "{reason}");
        }
    }

    #[test]
    fn without_a_build_id_the_checksum_decides() {
        let Some(data) = compile("gcc", SOURCE, CALLED, &["-O2", "-Wl,--build-id=none"]) else { return };
        let [stripped, mut debug] = split(&data);
        let names = DebugFileNames::of(&stripped).ok().flatten();
        let names = names.unwrap_or_else(|| panic!("it names no debug file"));
        assert_eq!(names.check(&debug), Ok(()));
        if let Some(last) = debug.last_mut() {
            *last ^= 1;
        }
        assert!(names.check(&debug).is_err());
    }

    #[test]
    fn compressed_sections_say_the_same() {
        let Some(data) = compile("gcc", SOURCE, INLINED, &["-O2"]) else { return };
        let whole = debug_info(&data);
        assert!(whole.server.is_some() && !whole.variables.inlined.is_empty());
        for format in ["zlib", "zstd"] {
            let option = format!("--compress-debug-sections={format}");
            let [compressed] = made_of(&data, &[&["objcopy", &option, "program", "compressed"]], ["compressed"]);
            assert!(compressed.len() < data.len(), "{format}");
            assert_eq!(debug_info(&compressed), whole, "{format}");

            // A section that promises more than it holds, or more than any server has.
            for size in [1_u64 << 20, 1 << 40] {
                let mut lies = compressed.clone();
                let at = compression_header(&lies);
                lies[at + 8..at + 16].copy_from_slice(&size.to_le_bytes());
                let refused = read(&lies, EVICTION).err();
                let expected = match size {
                    0..0x1000_0000 => matches!(refused, Some(DwarfError::Compression)),
                    _ => matches!(refused, Some(DwarfError::TooLarge)),
                };
                assert!(expected, "{format}, {size}: {refused:?}");
            }
        }
    }

    /// Returns the offset of the header of the compressed `.debug_info`.
    fn compression_header(data: &[u8]) -> usize {
        use object::read::elf::ElfFile64;
        use object::{Endianness, Object as _, ObjectSection as _};
        let file = ElfFile64::<Endianness>::parse(data).unwrap_or_else(|error| panic!("{error}"));
        let section = file.section_by_name(".debug_info");
        section.and_then(|section| section.file_range()).map_or(0, |(start, _)| usize::try_from(start).unwrap_or(0))
    }

    #[test]
    fn a_variable_on_which_the_methods_differ_is_refused() {
        // The same code, but what is called mem_reported is really mem_tofree, and the other way round.
        let swapped = SOURCE
            .replace("mem_reported", "placeholder")
            .replace("mem_tofree", "mem_reported")
            .replace("placeholder", "mem_tofree");
        assert_ne!(swapped, SOURCE);
        for (form, level, names) in [
            (CALLED, "-O2", &[Variable::MemReported, Variable::MemTofree][..]),
            // Here DWARF has no place for what it calls mem_tofree where the goal is known.
            (INLINED, "-Og", &[Variable::MemReported]),
        ] {
            let compiled = |source| compile("gcc", source, form, &[level]);
            let Some((data, other)) = compiled(SOURCE).zip(compiled(&swapped)) else { return };
            let ([stripped, matching], [other, debug]) = (split(&data), split(&other));
            let code = |data: &[u8]| plan_of(data, None).functions;
            assert_eq!(code(&stripped), code(&other), "{form}: not the same code");

            let (right, wrong) = (plan_of(&stripped, Some(&matching)), plan_of(&stripped, Some(&debug)));
            for name in names {
                let method = eviction_call(&right).quantity(*name).map(|plan| plan.method);
                assert_eq!(method, Some(Method::Both), "{form}: {name:?}");
                let really = if *name == Variable::MemReported { "mem_tofree" } else { "mem_reported" };
                let reason = why(&wrong, Item::Quantity(*name));
                assert!(reason.contains("DWARF says"), "{form}: {name:?}: {reason:?}");
                assert!(reason.ends_with(really), "{form}: {name:?}: {reason:?}");
                let found = eviction_call(&wrong).quantity(*name);
                assert_eq!(found, None, "{form}: {name:?}");
            }
        }
    }

    #[test]
    fn members_have_other_names_in_newer_valkeys() {
        let offsets = |fields: &str| {
            let source = SOURCE.replace("unsigned int maxclients;", fields);
            assert_ne!(source, SOURCE);
            let data = compile("gcc", &source, CALLED, &["-O2"])?;
            let server = debug_info(&data).server;
            server.map(|server| server.members)
        };
        let distance = |members: &BTreeMap<Member, u64>, member| {
            members.get(&member)?.checked_sub(*members.get(&Member::Maxclients)?)
        };
        let redis = "unsigned int maxclients; int hz, config_hz, fill; double stat_expired_stale_perc;";
        let valkey = "unsigned int maxclients; int hz; double stat_expired_keys_stale_perc;
                      long long stat_expiredfields;";
        let Some((redis, valkey)) = offsets(redis).zip(offsets(valkey)) else { return };
        // If there are both, `hz` is not what was configured.
        assert_eq!(distance(&redis, Member::ConfigHz), Some(8));
        assert!(redis.contains_key(&Member::StatExpiredStalePerc));
        assert_eq!(redis.get(&Member::StatExpiredSubkeys), None);
        assert_eq!(distance(&valkey, Member::ConfigHz), Some(4));
        for member in [Member::StatExpiredStalePerc, Member::StatExpiredSubkeys] {
            assert!(valkey.contains_key(&member), "{member:?}");
        }
    }

    #[test]
    fn members_of_another_build_are_refused_by_name() {
        let larger = SOURCE.replace("unsigned int maxclients;", "long more; unsigned int maxclients;");
        assert_ne!(larger, SOURCE);
        let compiled = |source| compile("gcc", source, CALLED, &["-O2"]);
        let Some((data, larger)) = compiled(SOURCE).zip(compiled(&larger)) else { return };
        let ([stripped, _], [_, debug]) = (split(&data), split(&larger));
        let plan = plan_of(&stripped, Some(&debug));
        for member in [Member::Maxmemory, Member::Maxclients, Member::MaxmemoryPolicy] {
            let reason = why(&plan, Item::Member(member));
            assert!(reason.contains("DWARF says that it is at 0x"), "{reason:?}");
            assert!(reason.contains("the configuration table that"), "{reason:?}");
            assert_eq!(plan.member(member), None);
        }
        // Before what differs, both say the same.
        assert_eq!(plan.member(Member::Port).map(|planned| planned.method), Some(Method::Both));
        // If it is not certain what maxmemory is, nothing recognised by it is certain.
        let function = eviction_call(&plan);
        assert!(!function.has_inner_site() && function.span.exits.is_empty());
    }

    #[test]
    fn damaged_debug_information_does_no_harm() {
        let Some(data) = compile("gcc", SOURCE, INLINED, &["-O2"]) else { return };
        let whole = debug_info(&data);
        let mut changed = 0;
        // Debug information makes up most of the file after the code and data.
        for (round, place) in (data.len() / 4..data.len()).step_by(7).enumerate() {
            let mut damaged = data.clone();
            damaged[place] = damaged[place].wrapping_add(1 << (round % 8));
            if let Ok(Some(info)) = read(&damaged, EVICTION) {
                changed += usize::from(info != whole);
            }
        }
        assert!(changed > 0, "no damage had any effect");
    }
}
