//! Why the analysis cannot use a file.

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// Not an ELF file, or one of another class.
    #[error("not a 64-bit ELF file; name an executable")]
    NotElf,
    /// Cut off, or inconsistent.
    #[error("the ELF file is damaged, or a part of it is missing: copy or install it again")]
    Damaged,
    /// Another machine or kind of file.
    #[error("{0}; evictscope understands x86-64 executables only")]
    Kind(&'static str),
    /// Its segments or sections extend past its end.
    #[error("the file is truncated: parts that it declares are missing")]
    CutOff,
    /// Something that no linker produces.
    #[error("the file has {0}: it is damaged or malicious")]
    Unreasonable(&'static str),
    /// None of its segments holds code.
    #[error("the file has no executable segment")]
    NoCode,
}

/// Drops the parser's reason: it helps people who write ELF files, not people who name one.
impl From<object::Error> for ElfError {
    fn from(_: object::Error) -> Self {
        Self::Damaged
    }
}
