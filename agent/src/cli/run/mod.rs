//! `evictscope run`: the daemon, and its configuration.

mod options;

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use evictscope_host::read_regular;
use evictscope_web::WebConfig;

use crate::terminal;
use crate::watch::{self, Settings};
use options::Options;

/// Run the daemon: find servers, attach, and serve /metrics
///
/// Messages go to stderr; RUST_LOG=debug (or =evictscope=debug) shows more.
#[derive(clap::Args)]
pub struct Arguments {
    /// Say whether the configuration is right, and what is wrong with it (exit code 2); start nothing
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    configuration: ConfigurationOptions,
}

/// The configuration of the daemon, from a file and the command line.
#[derive(clap::Args)]
pub struct ConfigurationOptions {
    /// Configuration file, in TOML: the same options by the same names, without the dashes in front. Those given here
    /// win [default: /etc/evictscope/config.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// The file that is read by default, if it exists.
const DEFAULT_PATH: &str = "/etc/evictscope/config.toml";
/// The most bytes of it.
const MOST_BYTES: u64 = 1 << 20;

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

impl ConfigurationOptions {
    /// Reads all of it. Returns also which file was read. Fails if a file cannot be read, or is wrong.
    pub fn load(self) -> anyhow::Result<(Settings, Option<WebConfig>, Option<PathBuf>)> {
        let (in_file, file) = load_file(self.config.as_deref())?;
        let settings = self.options.or(in_file).settings()?;
        let web = settings.web_config.as_deref().map(WebConfig::load).transpose()?;
        Ok((settings, web, file))
    }
}

/// Returns the options of the file at `path`, by default of the usual file if it exists, and the path of the file that
/// was read. Fails if the file cannot be read, or is wrong; then with file, line and key.
fn load_file(path: Option<&Path>) -> anyhow::Result<(Options, Option<PathBuf>)> {
    let file = path.unwrap_or(Path::new(DEFAULT_PATH));
    let text = match read_regular(file, MOST_BYTES) {
        // What people name to have none.
        _ if file == Path::new("/dev/null") => Vec::new(),
        Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok((Options::default(), None));
        }
        read => read.with_context(|| {
            format!(
                "cannot read the configuration file {}: --config names one that is there and that this user may read",
                file.display()
            )
        })?,
    };
    let text =
        String::from_utf8(text).with_context(|| format!("the configuration file {} is no text", file.display()))?;
    let options: Options = toml::from_str(&text).map_err(|error| wrong(file, &text, &error))?;
    Ok((options.relative_to(file.parent().unwrap_or(Path::new(""))), Some(file.to_owned())))
}

/// Returns the error with the line, from 1, and the key on that line, if any.
fn wrong(path: &Path, text: &str, error: &toml::de::Error) -> anyhow::Error {
    let start = error.span().map_or(0, |span| span.start);
    let line = text.get(..start).unwrap_or(text).matches('\n').count() + 1;
    let assignment = text.lines().nth(line - 1).and_then(|line| line.split_once('='));
    let key = assignment.map_or_else(String::new, |(key, _)| format!(", {}", key.trim()));
    let why = error.message().trim_end().replace('\n', "; ");
    anyhow!("the configuration file {}, line {line}{key}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::load_file;

    fn load_text(text: &str) -> anyhow::Result<Result<String, String>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("config.toml");
        std::fs::write(&path, text)?;
        let shown = path.display().to_string();
        Ok(match load_file(Some(&path)) {
            Ok((options, _)) => Ok(format!("{:?}", options.settings()?)),
            Err(error) => Err(error.to_string().replace(&shown, "FILE")),
        })
    }

    #[test]
    fn an_error_names_line_and_key() -> anyhow::Result<()> {
        let mut errors = String::new();
        for text in [
            "# first\nlisten = \"nowhere\"\n",
            "probe-mode = \"auto\"\n\nprobe_mode = \"auto\"\n",
            "probe-mode = \"sometimes\"",
            "overhead-budget = \"150%\"",
            "process-match = \"(\"",
            "debug-dir = \"/usr/lib/debug\"",
            "exclude = [\n  \"port=6380\",\n  \"prot=6381\",\n]\n",
            "[run]\n",
            "listen = \n",
            "listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
        ] {
            let error = load_text(text)?.err().with_context(|| format!("valid: {text}"))?;
            errors += &format!("{}\n{error}\n\n", text.trim_end());
        }
        insta::assert_snapshot!(errors);
        Ok(())
    }

    #[test]
    fn paths_are_relative_to_the_file() -> anyhow::Result<()> {
        let settings = load_text("debug-dir = [\"a\", \"/b\"]\nweb-config = \"web.yml\"\n")?;
        let settings = settings.map_err(anyhow::Error::msg)?;
        assert!(!settings.contains("\"a\"") && !settings.contains("\"web.yml\""));
        assert!(settings.contains("\"/b\""), "{settings}");
        Ok(())
    }
}
