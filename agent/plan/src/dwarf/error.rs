//! Why debug information cannot be used.

/// Why debug information cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DwarfError {
    /// Cut off or inconsistent.
    #[error("the debug information cannot be read")]
    Elf(#[from] object::Error),
    /// Neither zlib nor zstd, or damaged.
    #[error("a section of the debug information cannot be decompressed")]
    Compression,
    /// More than any server has.
    #[error("there is more debug information than any server has")]
    TooLarge,
}
