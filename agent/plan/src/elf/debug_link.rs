//! How an executable names the separate file with its debug information, and whether a file is it.

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _};

use crate::elf::image::{Image, ImageError};

/// What an executable without debug information says of the file that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DebugFileNames {
    /// GNU build id, lower-case hexadecimal: the file has the same.
    pub build_id: Option<String>,
    /// From `.gnu_debuglink`: the file's name.
    pub link: Option<String>,
    /// From `.gnu_debuglink`: the CRC-32 of the file's content.
    crc: Option<u32>,
}

/// Why a file is not the debug file of an executable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotItsDebugFile {
    /// It can be no debug file.
    #[error("it is not a 64-bit ELF file")]
    Elf,
    /// It belongs to another build.
    #[error("its build id is {found}, the executable's is {wanted}")]
    BuildId {
        /// Of the file.
        found: String,
        /// Of the executable.
        wanted: String,
    },
    /// Its content is not what `.gnu_debuglink` says.
    #[error("its checksum is not the one that the executable's .gnu_debuglink names")]
    Checksum,
    /// The executable says nothing that could be compared.
    #[error("the executable has neither a build id nor a .gnu_debuglink to check it by")]
    Unchecked,
}

impl DebugFileNames {
    /// Of the executable whose whole content is `data`; `None` where it has debug information itself,
    /// or says nothing by which a debug file could be told.
    ///
    /// # Errors
    ///
    /// Where `data` is not an x86-64 ELF executable.
    pub fn of(data: &[u8]) -> Result<Option<Self>, ImageError> {
        let build_id = Image::parse(data)?.build_id().map(str::to_owned);
        let file = ElfFile64::<Endianness>::parse(data)?;
        if file.section_by_name(".debug_info").is_some() {
            return Ok(None);
        }
        // A damaged link is none.
        let link = file.gnu_debuglink().ok().flatten();
        let names = Self {
            build_id,
            link: link.and_then(|(name, _)| Some(std::str::from_utf8(name).ok()?.to_owned())),
            crc: link.map(|(_, crc)| crc),
        };
        Ok((names.build_id.is_some() || names.link.is_some()).then_some(names))
    }

    /// Whether the file whose whole content is `data` is the executable's debug file: by build id,
    /// or where the executable has none, by the checksum.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn check(&self, data: &[u8]) -> Result<(), NotItsDebugFile> {
        let file = ElfFile64::<Endianness>::parse(data).map_err(|_| NotItsDebugFile::Elf)?;
        if let Some(wanted) = &self.build_id {
            let found = file
                .build_id()
                .ok()
                .flatten()
                .map(crate::elf::image::hexadecimal);
            return match found {
                Some(found) if found == *wanted => Ok(()),
                found => Err(NotItsDebugFile::BuildId {
                    found: found.unwrap_or_else(|| "missing".to_owned()),
                    wanted: wanted.clone(),
                }),
            };
        }
        match self.crc {
            Some(crc) if crc == crc32fast::hash(data) => Ok(()),
            Some(_) => Err(NotItsDebugFile::Checksum),
            None => Err(NotItsDebugFile::Unchecked),
        }
    }
}
