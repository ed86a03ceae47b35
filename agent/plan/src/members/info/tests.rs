//! What INFO prints, in all the ways that compilers pass its arguments.

use std::ops::RangeInclusive;

use super::{Argument, argument_at, info, place_in};
use crate::elf::image::Image;
use crate::item::Member;
use crate::tests::compiler::compile;

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

const LEVELS: [&[&str]; 9] = [
    &["-O0"],
    &["-O1"],
    &["-Os"],
    &["-O2"],
    &["-O2", "-s", "-rdynamic"],
    &["-O3"],
    &["-O3", "-mavx2"],
    &[
        "-O2",
        "-no-pie",
        "-fno-pie",
        "-fno-omit-frame-pointer",
        "-fcf-protection",
    ],
    &["-O3", "-fstack-protector-all", "-fstack-clash-protection"],
];

/// The forms of the fixture in which what is passed as the number of commands is not that member.
const WRONG: RangeInclusive<u64> = 1..=9;

#[test]
fn members_are_found_where_they_are_passed_as_they_are() {
    let mut tried = 0;
    for compiler in ["gcc", "clang"] {
        for level in LEVELS {
            tried += u32::from(check(compiler, level, 0, true));
        }
    }
    assert_ne!(tried, 0, "neither gcc nor clang is here");
}

#[test]
fn what_is_not_the_member_itself_is_refused() {
    for compiler in ["gcc", "clang"] {
        for level in [LEVELS[0], LEVELS[1], LEVELS[5]] {
            for form in WRONG {
                check(compiler, level, form, false);
            }
        }
    }
}

/// Compiles a form, and compares what is found with the symbol that the compiler wrote. Returns
/// whether the compiler is here.
fn check(compiler: &str, level: &[&str], form: u64, is_plain: bool) -> bool {
    let what = format!("{compiler} {level:?} {form}");
    let source = format!("#define FORM {form}\n#include \"info.c\"\n");
    let Some(data) = compile(compiler, &source, level) else {
        return false;
    };
    let image = Image::parse(&data).unwrap_or_else(|error| panic!("{error}"));
    let server = image.object("server");
    let server = server.unwrap_or_else(|| panic!("{what}: no server"));
    let member = |index: u64| Some(server.address.wrapping_add(512 + 8 * index));
    let shown = info(&image).shown;
    let found = |member| shown.get(&member).copied();
    for (other, index) in [(Member::StatExpiredkeys, 17), (Member::StatEvictedkeys, 21)] {
        // What lies near something that others change may be part of it.
        let is_lost = !is_plain && found(other).is_none();
        assert!(is_lost || found(other) == member(index), "{what}");
    }
    let commands = member(3).filter(|_| is_plain);
    assert_eq!(found(Member::StatNumcommands), commands, "{what}");
    true
}
