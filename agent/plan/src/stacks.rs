//! What a plan and the server's table of commands say about functions on stacks.

use std::collections::HashMap;

use evictscope_machine::elf::Image;
use evictscope_machine::stacks::{Names, Traced};
use evictscope_model::FileAddress;

use crate::names::tell_not_returning;
use crate::plan::ProbePlan;
use crate::traced::named::CommandTable;

impl Names for ProbePlan {
    fn traced(&self, image: &mut Image<'_>) -> Vec<Traced> {
        tell_not_returning(image);
        let functions = self.functions.iter();
        functions.map(|own| (own.address, own.name, own.kind.index)).collect()
    }

    fn nameless(&self, image: &Image<'_>) -> Vec<(FileAddress, String)> {
        let mut commands: HashMap<FileAddress, Vec<String>> = HashMap::new();
        let table = CommandTable::find(image);
        for (address, name) in table.iter().flat_map(CommandTable::all) {
            commands.entry(address).or_default().push(name.to_uppercase());
        }
        // The function's name is usually that of the command, but not always. Only the command is certain.
        let named = commands.into_iter();
        named.map(|(address, names)| (address, format!("command {}", names.join(", ")))).collect()
    }
}
