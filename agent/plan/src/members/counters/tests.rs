//! The forms of `zmalloc_used_memory()`, by every installed compiler, at every level.

use evictscope_machine::elf::Image;
use evictscope_model::FileAddress;
use evictscope_testkit::compiler::compile;
use object::{Object as _, ObjectSymbol as _};

use super::{Counters, counters_returned_by};

const LEVELS: [&[&str]; 9] = [
    &["-O0"],
    &["-O0", "-fstack-protector-all"],
    &["-Os"],
    &["-O1"],
    &["-O2"],
    &["-O3"],
    &["-O3", "-no-pie", "-fno-pie", "-fcf-protection"],
    &["-O3", "-march=haswell"],
    &["-O3", "-march=skylake-avx512"],
];

fn address_of(data: &[u8], name: &str) -> Option<FileAddress> {
    let file = object::File::parse(data).unwrap_or_else(|error| panic!("{error}"));
    let mut symbols = file.symbols().filter(|symbol| {
        let found = symbol.name().unwrap_or_default();
        found == name
    });
    symbols.next().map(|symbol| FileAddress::new(symbol.address()))
}

#[test]
fn every_form_is_understood_as_it_is_compiled_and_no_other() {
    // What should be found for each form: distance, counters, and whether there is an overflow.
    let expected = [
        (0, Some((8, 1, false))),
        (1, Some((64, 16, false))),
        (2, Some((8, 20, true))),
        (3, Some((8, 260, true))),
        (4, None),
        (5, None),
        (6, None),
        (7, None),
    ];
    let mut tried = 0;
    for compiler in ["gcc", "clang"] {
        for level in LEVELS {
            for (form, counters) in expected {
                let source = format!("#define FORM {form}\n#include \"counters.c\"\n");
                let Some(data) = compile(compiler, &source, level) else {
                    continue;
                };
                tried += 1;
                check(&data, counters, &format!("{compiler} {level:?} {form}"));
            }
        }
    }
    assert_ne!(tried, 0, "neither gcc nor clang is here");
}

/// Expects the addresses of the symbols that the compiler wrote.
fn check(data: &[u8], expected: Option<(u64, u64, bool)>, what: &str) {
    let image = Image::parse(data).unwrap_or_else(|error| panic!("{error}"));
    let function = image.function("zmalloc_used_memory");
    let function = function.unwrap_or_else(|| panic!("{what}: no function"));
    let found = counters_returned_by(&image, function.address);
    let Some((stride, most, has_overflow)) = expected else {
        assert!(found.is_err(), "{what}: {found:?}");
        return;
    };
    let first = address_of(data, "used_memory")
        .or_else(|| address_of(data, "used_memory_thread").filter(|_| most < 260))
        .or_else(|| address_of(data, "padded").map(|padded| padded.wrapping_add(7 * 8)));
    let one = first.map(Counters::one);
    let expected = match most {
        1 => one,
        _ => one.map(|one| Counters {
            stride,
            most,
            threads: address_of(data, "active_threads"),
            threads_width: if stride == 64 { 8 } else { 4 },
            overflow: address_of(data, "further_threads").filter(|_| has_overflow),
            ..one
        }),
    };
    assert_eq!(found.ok(), expected, "{what}");
}
