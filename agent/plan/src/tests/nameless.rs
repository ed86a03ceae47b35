//! Small programs with the structure of Redis, linked in all the ways that leave no names.
//!
//! The reference is the plan of the same code with symbols. Compilers that are not installed are skipped.

use evictscope_machine::elf::Image;
use evictscope_model::Member;
use evictscope_testkit::compiler::compile;
use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{Endianness, elf};

use super::{CALLED, EVICTION_PROGRAM as PROGRAM, INLINED, plan_of, redis_server};
use crate::traced::eviction;
use crate::{EVICTION_CALL, Identity, Item, ProbePlan, TracedFunction, members};

/// The ways to link: position-independent, at a fixed address, and without any shared library.
const LINKS: [&[&str]; 4] =
    [&["-fPIE", "-pie"], &["-fno-pie", "-no-pie"], &["-fno-pie", "-no-pie", "-static"], &["-fPIE", "-static-pie"]];

/// Returns why there is no eviction call.
fn refusal(plan: &ProbePlan) -> String {
    let function = plan.not_found.iter().find(|missing| match missing.item {
        Item::Function(kind) => kind.description == EVICTION_CALL.description,
        _ => false,
    });
    function.map_or_else(String::new, |missing| missing.reason.to_string())
}

/// Returns whether everything that can be read about eviction calls is known.
fn is_certain(plan: &ProbePlan) -> bool {
    plan.function(EVICTION_CALL.description).is_some_and(TracedFunction::has_all_quantities)
}

#[test]
fn a_plan_needs_no_symbols() {
    let variants = [["-O0", CALLED], ["-O2", CALLED], ["-O2", INLINED], ["-Os", CALLED]];
    let (mut compared, mut certain) = (0, 0);
    for compiler in ["gcc", "clang"] {
        for (link, variant) in LINKS.into_iter().flat_map(|link| variants.map(|variant| (link, variant))) {
            let mut options = [link, &variant].concat();
            let Some(whole) = compile(compiler, PROGRAM, &options) else { continue };
            options.push("-s");
            let Some(stripped) = compile(compiler, PROGRAM, &options) else { continue };
            let case = format!("{compiler} {options:?}");
            let (whole, stripped) = (plan_of(&whole, None), plan_of(&stripped, None));
            assert_eq!(refusal(&whole), "", "{case}");
            assert_eq!(stripped.functions, whole.functions, "{case}");
            assert_eq!(stripped.identity.product, Some("redis"), "{case}");
            assert_eq!(stripped.identity.version.as_deref(), Some("7.0.99"), "{case}");
            if compiler == "gcc" {
                compared += 1;
                certain += usize::from(is_certain(&whole));
            }
        }
    }
    // At least gcc's called form at both levels that optimise.
    assert!(certain >= compared / 2, "only {certain} of {compared} plans are certain");
}

#[test]
fn a_text_in_a_part_moved_elsewhere_leads_to_its_function() {
    let cold = "void latencyAddSample(const char *, long long) __attribute__((cold));\n";
    let source = format!("{cold}{PROGRAM}");
    let options = ["-O2", CALLED];
    let Some(whole) = compile("gcc", &source, &options) else { return };
    let Some(stripped) = compile("gcc", &source, &[&options[..], &["-s"]].concat()) else { return };
    let mut image = Image::parse(&stripped).unwrap_or_else(|error| panic!("{error}"));
    let mentioned = crate::names::find(&mut image, EVICTION_CALL.texts).mentioned_in(eviction::TEXT);
    assert!(mentioned.iter().any(|frame| !frame.is_entry), "the compiler moved nothing: {mentioned:x?}");
    let (whole, stripped) = (plan_of(&whole, None), plan_of(&stripped, None));
    assert!(is_certain(&whole));
    assert_eq!(stripped.functions, whole.functions);
}

#[test]
fn a_symbol_that_contradicts_the_text_is_refused() {
    let source = format!(
        "#define performEvictions reallyPerformEvictions\n{PROGRAM}#undef performEvictions\nint performEvictions(void) {{ return 0; }}\n"
    );
    let Some(data) = compile("gcc", &source, &["-O1", CALLED]) else { return };
    let plan = plan_of(&data, None);
    assert!(!is_certain(&plan));
    assert!(refusal(&plan).contains("but the function that reports its duration"), "{:?}", plan.not_found);
    // Without symbols there is no contradiction.
    let stripped = compile("gcc", &source, &["-O1", CALLED, "-s"]);
    assert_eq!(stripped.map(|data| is_certain(&plan_of(&data, None))), Some(true));
}

#[test]
fn two_functions_that_could_be_it_are_refused() {
    let source = format!(
        "{PROGRAM}int inlinedElsewhere(void) {{ if (server.maxmemory_policy == 3) latencyAddSample(\"eviction-cycle\", 1); return 0; }}\n"
    );
    for options in [&["-O1", CALLED][..], &["-O1", CALLED, "-s"]] {
        let Some(data) = compile("gcc", &source, options) else { return };
        let plan = plan_of(&data, None);
        assert!(refusal(&plan).contains("2 functions mention"), "{:?}", plan.not_found);
        // What BOLT leaves behind does not count.
        let dead = source.replace("int inlined", "__attribute__((section(\".bolt.org.text\"))) int inlined");
        assert_eq!(compile("gcc", &dead, options).map(|data| refusal(&plan_of(&data, None))), Some(String::new()));
    }
}

#[test]
fn names_and_calls_bound_functions_where_there_are_no_unwind_tables() {
    for strip in ["-g0", "-s"] {
        let options = ["-O1", CALLED, "-fno-asynchronous-unwind-tables", "-fno-pie", "-no-pie", strip];
        let Some(data) = compile("gcc", PROGRAM, &options) else { return };
        let plan = plan_of(&data, None);
        assert!(is_certain(&plan), "{strip}");
        assert_eq!(plan.identity.version.as_deref(), Some("7.0.99"), "{strip}");
    }
}

#[test]
fn no_known_layout_is_refused() {
    let Some(data) = compile("gcc", PROGRAM, &["-O1", CALLED, "-s"]) else { return };
    let plan = plan_of(&data, None);
    assert!(is_certain(&plan));
    for member in [Member::StatEvictedkeys, Member::StatNumcommands] {
        let missing = plan.not_found.iter().find(|missing| missing.item == Item::Member(member));
        let why = missing.map(|missing| missing.reason.to_string());
        assert!(why.is_some_and(|why| why.contains("no known layout")), "{member:?}: {:?}", plan.not_found);
    }
    assert!(plan.member(Member::Port).is_some());
}

#[test]
fn redict_says_what_it_is() {
    let source = std::fs::read_to_string("tests/fixtures/evict.c").unwrap_or_else(|error| panic!("{error}"));
    let source = source.replace("Redis server v=", "Redict server v=");
    let Some(data) = compile("gcc", &source, &["-O1", CALLED, "-s"]) else { return };
    let Identity { product, version, .. } = plan_of(&data, None).identity;
    assert_eq!((product, version.as_deref()), (Some("redict"), Some("7.0.99")));
}

/// Returns `data` without the names of what it defines, as if linked without `-rdynamic`, and on
/// request without section headers.
fn without_names(data: &[u8], without_headers: bool) -> Vec<u8> {
    let file = ElfFile64::<Endianness>::parse(data).unwrap_or_else(|error| panic!("{error}"));
    let endian = file.endian();
    let mut changed = data.to_vec();
    for section in file.elf_section_table().iter() {
        if section.sh_type(endian) != elf::SHT_DYNSYM {
            continue;
        }
        let (offset, size) = section.file_range(endian).unwrap_or_default();
        for symbol in (offset..offset + size).step_by(24) {
            let symbol = usize::try_from(symbol).unwrap_or(usize::MAX);
            let section_index = &data[symbol + 6..symbol + 8];
            if section_index != [0, 0] {
                changed[symbol..symbol + 4].fill(0);
            }
        }
    }
    if without_headers {
        // e_shoff; e_shentsize, e_shnum, e_shstrndx.
        changed[0x28..0x30].fill(0);
        changed[0x3a..0x40].fill(0);
    }
    changed
}

/// What nothing but a name leads to.
const BY_NAME: [Member; 4] =
    [Member::EvalContext, Member::TrackingTable, Member::TrackingTableTotalItems, Member::LazyfreeObjects];

#[test]
fn debians_server_is_planned_for_without_any_name() {
    let Some(data) = redis_server() else { return };
    let whole = plan_of(&data, None);
    for without_headers in [false, true] {
        let nameless = without_names(&data, without_headers);
        let image = Image::parse(&nameless).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(image.symbols.function("performEvictions"), None);
        assert_eq!(image.symbols.object("server"), None);
        let plan = plan_of(&nameless, None);
        assert_eq!(plan.functions, whole.functions);
        let places = |plan: &ProbePlan| -> Vec<_> {
            let found = plan.members.iter().filter(|found| !BY_NAME.contains(&found.member));
            found.map(|member| (member.member, member.address, member.offset, member.counters)).collect()
        };
        // Without names fewer methods find them.
        assert_eq!(places(&plan), places(&whole));
        assert_eq!(plan.identity, whole.identity);
        let missing: Vec<_> = plan.not_found.iter().map(|missing| missing.item).collect();
        assert_eq!(missing, BY_NAME.map(Item::Member));
    }
}

/// Whatever the unwind tables say, the right function is found or none.
#[test]
fn damaged_unwind_tables_do_no_harm() {
    let Some(data) = redis_server() else { return };
    let data = without_names(&data, false);
    let eviction_call = |data: &[u8]| {
        let mut image = Image::parse(data).unwrap_or_else(|error| panic!("{error}"));
        let texts = crate::names::find(&mut image, EVICTION_CALL.texts);
        let config = members::config_table(&image).unwrap_or_else(|error| panic!("{error}"));
        eviction::eviction_call(&image, &texts, config.get(&Member::MaxmemoryPolicy).copied())
    };
    let right = eviction_call(&data).unwrap_or_else(|why| panic!("{why}"));
    let file = ElfFile64::<Endianness>::parse(&*data).unwrap_or_else(|error| panic!("{error}"));
    let endian = file.endian();
    let sections = file.elf_section_table();
    let (_, section) = sections.section_by_name(endian, b".eh_frame").unwrap_or_else(|| panic!("no .eh_frame"));
    let (offset, size) = section.file_range(endian).unwrap_or_default();
    let mut found = 0;
    for round in 0..48 {
        let mut damaged = data.clone();
        let place = usize::try_from(offset + size * round / 48).unwrap_or(0);
        let with: u8 = [0x00, 0xff, 0x80][usize::try_from(round % 3).unwrap_or(0)];
        damaged[place..place + 64].fill(with);
        if let Ok(function) = eviction_call(&damaged) {
            assert_eq!(function, right);
            found += 1;
        }
    }
    assert!(found > 0);
}
