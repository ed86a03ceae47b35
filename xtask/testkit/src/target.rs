//! Processors that the agent is built for and tried on, besides that of this machine.

use std::path::PathBuf;

use anyhow::Result;

use crate::{debian, workspace};

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    Aarch64,
}

impl Target {
    /// What Rust calls it.
    pub fn triple(self) -> &'static str {
        match self {
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// What Debian calls it.
    pub fn debian(self) -> &'static str {
        match self {
            Self::Aarch64 => debian::AARCH64,
        }
    }

    /// Returns the path of the agent's release binary for it, which `cargo xtask build --target` makes.
    pub fn agent_binary(self) -> Result<PathBuf> {
        Ok(workspace::target_directory()?.join(self.triple()).join("release/evictscope"))
    }
}
