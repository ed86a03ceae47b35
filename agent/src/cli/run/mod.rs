//! `evictscope run`: the daemon.

mod config_file;
mod options;

use std::path::PathBuf;
use std::process::ExitCode;

use evictscope_web::WebConfig;

use crate::terminal;
use crate::watch::{self, Settings};
use options::Options;

/// Run the daemon: find servers, attach, and serve /metrics
///
/// Messages go to stderr; RUST_LOG=debug (or =evictscope=debug) shows more.
#[derive(clap::Args)]
pub struct Arguments {
    /// Say whether the configuration is right, and what is wrong with it (exit code 2); start
    /// nothing
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    configuration: Configuration,
}

/// The configuration of the daemon, from a file and the command line.
#[derive(clap::Args)]
pub struct Configuration {
    /// Configuration file, in TOML: the same options by the same names, without the dashes in front. Those given here
    /// win [default: /etc/evictscope/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// The exit code for a wrong configuration: the same as for a wrong command line, so that a service manager can tell it
/// from a failure that may pass.
const WRONG_CONFIGURATION: u8 = 2;

/// Runs until SIGTERM or SIGINT, or just checks the configuration.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let (settings, web, file) = match arguments.configuration.load() {
        Ok(configuration) => configuration,
        Err(error) => {
            terminal::note(&format!("evictscope: {error:#}"));
            return Ok(ExitCode::from(WRONG_CONFIGURATION));
        }
    };
    if !arguments.check_config {
        watch::run(settings, web)?;
        return Ok(ExitCode::SUCCESS);
    }
    if file.is_none() {
        terminal::print("there is no configuration file: the defaults are used\n")?;
    }
    for path in file.into_iter().chain(settings.web_config) {
        terminal::print(&format!("{} is valid\n", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Configuration {
    /// Reads all of it. Returns also which file was read.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read, or is wrong.
    pub fn load(self) -> anyhow::Result<(Settings, Option<WebConfig>, Option<PathBuf>)> {
        let (in_file, file) = config_file::load(self.config.as_deref())?;
        let settings = self.options.or(in_file).settings()?;
        let web = settings.web_config.as_deref().map(WebConfig::load);
        Ok((settings, web.transpose()?, file))
    }
}
