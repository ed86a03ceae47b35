//! Addresses: where something is in the executable as linked, in a process, and in the file.
//!
//! Each has its own type, so that one cannot be taken for another. In JSON they are numbers.

use std::fmt;

use borsh::{BorshDeserialize, BorshSerialize};
use serde::Serialize;

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(
            BorshDeserialize, BorshSerialize, Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord,
            Serialize,
        )]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Makes one from a number that is known to be one.
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            /// Returns the number.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    )*};
}

numbers! {
    /// A virtual address as in the ELF file, before the loader adds its bias.
    FileAddress
    /// A virtual address in a process.
    ProcessAddress
    /// An offset in a file, in bytes.
    FileOffset
}

impl FileAddress {
    /// Returns where this is in a process loaded with this bias.
    pub const fn at(self, load_bias: u64) -> ProcessAddress {
        ProcessAddress(self.0.wrapping_add(load_bias))
    }

    /// Returns the address `bytes` further, if there is one.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }

    /// Returns the address `bytes` further, or the highest address.
    pub const fn saturating_add(self, bytes: u64) -> Self {
        Self(self.0.saturating_add(bytes))
    }

    /// Returns the address `bytes` further, modulo 2^64.
    pub const fn wrapping_add(self, bytes: u64) -> Self {
        Self(self.0.wrapping_add(bytes))
    }

    /// Returns the address `bytes` before, if there is one.
    pub fn moved_back(self, bytes: u64) -> Option<Self> {
        self.0.checked_sub(bytes).map(Self)
    }

    /// Returns the distance from `base`, in bytes, if `base` is not higher.
    pub fn checked_sub(self, base: Self) -> Option<u64> {
        self.0.checked_sub(base.0)
    }

    /// Returns the distance from `base`, in bytes, modulo 2^64.
    pub const fn wrapping_sub(self, base: Self) -> u64 {
        self.0.wrapping_sub(base.0)
    }
}

impl ProcessAddress {
    /// Returns the load bias of a process that has `file` at this address, if that is possible.
    pub const fn load_bias(self, file: FileAddress) -> Option<u64> {
        self.0.checked_sub(file.0)
    }

    /// Returns which address of the file this is in a process loaded with this bias.
    pub const fn in_file(self, load_bias: u64) -> FileAddress {
        FileAddress(self.0.wrapping_sub(load_bias))
    }
}
