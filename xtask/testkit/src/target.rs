//! The processors that the agent is built for.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use object::{Architecture, Object as _};

use crate::workspace;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// This machine's
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Target {
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// What Linux, rpm and Rust call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// What Debian and indexes of images call it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }

    /// Returns which one an executable is for.
    pub fn of(executable: &Path) -> Result<Self> {
        let data = fs::read(executable).with_context(|| format!("cannot read {}", executable.display()))?;
        match object::File::parse(&*data).with_context(|| executable.display().to_string())?.architecture() {
            Architecture::X86_64 => Ok(Self::X86_64),
            Architecture::Aarch64 => Ok(Self::Aarch64),
            _ => bail!("{} is for another processor", executable.display()),
        }
    }

    pub fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.name())
    }

    /// Returns the path of the agent's release binary for it, which `cargo xtask build` makes.
    pub fn agent_binary(self) -> Result<PathBuf> {
        match self {
            Self::X86_64 => workspace::agent_binary(),
            Self::Aarch64 => Ok(workspace::target_directory()?.join(self.triple()).join("release/evictscope")),
        }
    }
}
