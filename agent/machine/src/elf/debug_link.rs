//! The separate file with an executable's debug information: how the executable names it, and how
//! to recognise it.

use borsh::{BorshDeserialize, BorshSerialize};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _};

use super::error::ElfError;
use super::image::{Image, build_id};

/// What an executable without debug information says about the file that has it.
#[derive(BorshDeserialize, BorshSerialize, Clone, Debug, PartialEq, Eq)]
pub struct DebugFileNames {
    /// GNU build id in lower-case hexadecimal digits; the debug file has the same.
    pub build_id: Option<String>,
    /// The debug file's name, from `.gnu_debuglink`.
    pub link: Option<String>,
    /// The CRC-32 of the debug file's content, from `.gnu_debuglink`.
    crc: Option<u32>,
}

/// Why a file is not the debug file of an executable.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotItsDebugFile {
    /// It is not an ELF file of the right class.
    #[error("it is not a 64-bit ELF file")]
    Elf,
    /// It belongs to another build.
    #[error("its build id is {found}, the executable's is {wanted}")]
    BuildId {
        /// The file's build id.
        found: String,
        /// The executable's build id.
        wanted: String,
    },
    /// Its checksum differs from the one in `.gnu_debuglink`.
    #[error("its checksum differs from the one in the executable's .gnu_debuglink")]
    Checksum,
    /// The executable gives nothing to compare.
    #[error("the executable has neither a build id nor a .gnu_debuglink to check it against")]
    Unchecked,
}

impl DebugFileNames {
    /// Reads them from the executable whose whole content is `data`. Returns `None` if it has debug
    /// information itself, or nothing by which to recognise its debug file.
    ///
    /// # Errors
    ///
    /// Fails if `data` is not an x86-64 ELF executable.
    pub fn of(data: &[u8]) -> Result<Option<Self>, ElfError> {
        let build_id = Image::parse(data)?.build_id;
        let file = ElfFile64::<Endianness>::parse(data)?;
        if file.section_by_name(".debug_info").is_some() {
            return Ok(None);
        }
        // A damaged link counts as absent.
        let link = file.gnu_debuglink().ok().flatten();
        let names = Self {
            build_id,
            link: link.and_then(|(name, _)| Some(std::str::from_utf8(name).ok()?.to_owned())),
            crc: link.map(|(_, crc)| crc),
        };
        Ok((names.build_id.is_some() || names.link.is_some()).then_some(names))
    }

    /// Checks that the file whose whole content is `data` is the executable's debug file: by build
    /// id, or by the checksum if the executable has no build id.
    ///
    /// # Errors
    ///
    /// Fails with the reason if it is not.
    pub fn check(&self, data: &[u8]) -> Result<(), NotItsDebugFile> {
        let file = ElfFile64::<Endianness>::parse(data).map_err(|_| NotItsDebugFile::Elf)?;
        if let Some(wanted) = &self.build_id {
            return match build_id(&file).ok().flatten() {
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
