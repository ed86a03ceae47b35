//! `evictscope run`: the daemon.

mod config_file;
mod options;

use std::path::PathBuf;
use std::process::ExitCode;

use evictscope_web::WebConfig;

use crate::watch::{self, Settings};
use options::Options;

/// Run the daemon: find servers, attach, and serve /metrics
///
/// Messages go to stderr; RUST_LOG=debug (or =evictscope=debug) shows more.
#[derive(clap::Args)]
pub struct Arguments {
    /// Configuration file, in TOML: the same options by the same names, without the dashes in front. Those given here win
    /// [default: /etc/evictscope/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Say whether the configuration is right, and what is wrong with it (exit code 2); start
    /// nothing
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    options: Options,
}

/// The exit code for a wrong configuration: the same as for a wrong command line, so that a service manager can tell it from a
/// failure that may pass.
const WRONG_CONFIGURATION: u8 = 2;

/// Runs until SIGTERM or SIGINT, or just checks the configuration.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let only_check = arguments.check_config;
    let (settings, web) = match configuration(arguments) {
        Ok(configuration) => configuration,
        Err(error) => {
            eprintln!("evictscope: {error:#}");
            return Ok(ExitCode::from(WRONG_CONFIGURATION));
        }
    };
    if !only_check {
        watch::run(settings, web)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the whole configuration of the daemon. Prints which files are right if only that was asked for.
fn configuration(arguments: Arguments) -> anyhow::Result<(Settings, Option<WebConfig>)> {
    let (in_file, file) = config_file::load(arguments.config.as_deref())?;
    let settings = arguments.options.or(in_file).settings()?;
    let web = settings.web_config.as_deref().map(WebConfig::load);
    let web = web.transpose()?;
    if arguments.check_config {
        match &file {
            Some(path) => println!("{} is valid", path.display()),
            None => println!("there is no configuration file: the defaults are used"),
        }
        if let Some(path) = &settings.web_config {
            println!("{} is valid", path.display());
        }
    }
    Ok((settings, web))
}
