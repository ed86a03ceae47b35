//! What INFO prints, in all the ways that compilers pass its arguments.

use std::ops::RangeInclusive;

use evictscope_machine::elf::Image;
use evictscope_model::Member;
use evictscope_testkit::compiler::compile;

use super::{Argument, argument_at, info, place_in};

#[test]
fn arguments_are_counted_by_kind() {
    let format = "# Stats\r\na:%lld\r\nb:%.2f\r\nc:%s%%\r\nd:%zu\r\ne:%u\r\nf:%d\r\ng:%ld\r\n";
    let argument = |name| argument_at(format, place_in(format, name)?);
    assert_eq!(argument("a"), Some(Argument::Register(0)));
    assert_eq!(argument("c"), Some(Argument::Register(1)));
    assert_eq!(argument("e"), Some(Argument::Register(3)));
    assert_eq!(argument("f"), Some(Argument::Stack(0)));
    assert_eq!(argument("g"), Some(Argument::Stack(1)));
    assert_eq!(argument("h"), None);
    assert_eq!(argument_at("%*d\r\na:%d", 5), None);
}

#[test]
fn floats_beyond_the_registers_take_places_on_the_stack() {
    let format = format!("{}%d%d%d%d\na:%d", "%f".repeat(9));
    let place = place_in(&format, "a");
    let argument = place.and_then(|place| argument_at(&format, place));
    assert_eq!(argument, Some(Argument::Stack(1)));
}

/// Where the stale share is in the fixture's `server`.
const STALE: u64 = 512 + 8 * (64 + 2 * 16 + 4 * 16 + 1);

const LEVELS: [&[&str]; 9] = [
    &["-O0"],
    &["-O1"],
    &["-Os"],
    &["-O2"],
    &["-O2", "-s", "-rdynamic"],
    &["-O3"],
    &["-O3", "-mavx2"],
    &["-O2", "-no-pie", "-fno-pie", "-fno-omit-frame-pointer", "-fcf-protection"],
    &["-O3", "-fstack-protector-all", "-fstack-clash-protection"],
];

/// The form of the fixture that matches Redis.
const PLAIN: u64 = 0;
/// The forms in which what is passed as the number of commands is not that member.
const WRONG: RangeInclusive<u64> = 1..=9;
/// The forms in which what is passed as a percentage and as milliseconds is something else.
const OTHER_UNITS: RangeInclusive<u64> = 10..=11;

#[test]
fn members_are_found_where_they_are_passed_as_they_are() {
    let mut tried = 0;
    for compiler in ["gcc", "clang"] {
        for level in LEVELS {
            tried += u32::from(check(compiler, level, PLAIN));
        }
    }
    assert_ne!(tried, 0, "neither gcc nor clang is here");
}

#[test]
fn what_is_not_the_member_itself_is_refused() {
    for compiler in ["gcc", "clang"] {
        for level in [LEVELS[0], LEVELS[1], LEVELS[5]] {
            for form in WRONG.chain(OTHER_UNITS) {
                check(compiler, level, form);
            }
        }
    }
}

/// Compiles a form, and compares what is found with the symbol that the compiler wrote. Returns
/// whether the compiler is installed.
fn check(compiler: &str, level: &[&str], form: u64) -> bool {
    let what = format!("{compiler} {level:?} {form}");
    let source = format!("#define FORM {form}\n#include \"info.c\"\n");
    let Some(data) = compile(compiler, &source, level) else {
        return false;
    };
    let image = Image::parse(&data).unwrap_or_else(|error| panic!("{error}"));
    let server = image.object("server");
    let server = server.unwrap_or_else(|| panic!("{what}: no server"));
    let at = |offset| Some(server.address.wrapping_add(offset));
    let counter = |index: u64| at(512 + 8 * index);
    let info = info(&image);
    let found = |member| info.shown.get(&member).copied();
    let converted = [(Member::StatExpireCycleTimeUsed, counter(19)), (Member::StatExpiredStalePerc, at(STALE))];
    let unchanged = [
        (Member::StatExpiredSubkeys, counter(13)),
        (Member::StatExpiredkeys, counter(17)),
        (Member::StatExpiredTimeCapReachedCount, counter(18)),
        (Member::StatEvictedkeys, counter(21)),
    ];
    for (member, address) in converted.into_iter().chain(unchanged) {
        assert!(info.named.contains(&member), "{what}: {member:?}");
        if OTHER_UNITS.contains(&form) && converted.contains(&(member, address)) {
            assert_eq!(found(member), None, "{what}: {member:?}");
            continue;
        }
        // What lies near something that others change may be part of it.
        let is_lost = WRONG.contains(&form) && found(member).is_none();
        assert!(is_lost || found(member) == address, "{what}: {member:?}");
    }
    let commands = counter(3).filter(|_| !WRONG.contains(&form));
    assert_eq!(found(Member::StatNumcommands), commands, "{what}");
    true
}
