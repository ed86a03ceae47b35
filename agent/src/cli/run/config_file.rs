//! The configuration file of `evictscope run`.

use std::io;
use std::path::{Path, PathBuf};

use super::options::Options;

/// The file that is read where the command line names none, if it is there.
const DEFAULT_PATH: &str = "/etc/evictscope/config.toml";

/// Why the configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It was named, and is not there, or may not be read.
    #[error(
        "cannot read the configuration file {}: --config names one that is there and that this user may read",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is not TOML, or has an unknown option or an impossible value.
    #[error(
        "the configuration file {}, line {line}{}: {why}",
        path.display(),
        key.as_ref().map(|key| format!(", {key}")).unwrap_or_default()
    )]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key on that line, where there is one.
        key: Option<String>,
        /// What is wrong.
        why: String,
    },
}

/// The options of the file at `path`, or else of the usual one, where that is there; and the path
/// of the file that was read.
///
/// # Errors
///
/// Where the file cannot be read, or is wrong: file, line and key.
pub fn load(path: Option<&Path>) -> Result<(Options, Option<PathBuf>), ConfigError> {
    let file = path.unwrap_or(Path::new(DEFAULT_PATH));
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if path.is_none() && error.kind() == io::ErrorKind::NotFound => {
            return Ok((Options::default(), None));
        }
        Err(source) => {
            let path = file.to_owned();
            return Err(ConfigError::Unreadable { path, source });
        }
    };
    let options: Options = toml::from_str(&text).map_err(|error| wrong(file, &text, &error))?;
    let directory = file.parent().unwrap_or(Path::new(""));
    Ok((options.relative_to(directory), Some(file.to_owned())))
}

fn wrong(path: &Path, text: &str, error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start);
    let before = text.get(..start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let key = text.lines().nth(line - 1).and_then(|line| {
        let (key, _) = line.split_once('=')?;
        Some(key.trim().to_owned())
    });
    ConfigError::Wrong {
        path: path.to_owned(),
        line,
        key,
        why: error.message().trim_end().replace('\n', "; "),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ConfigError, load};

    fn load_text(text: &str) -> anyhow::Result<Result<String, String>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("config.toml");
        std::fs::write(&path, text)?;
        let shown = path.display().to_string();
        Ok(match load(Some(&path)) {
            Ok((options, _)) => Ok(format!("{:?}", options.settings()?)),
            Err(error) => Err(error.to_string().replace(&shown, "FILE")),
        })
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_key() -> anyhow::Result<()> {
        for (text, said) in [
            (
                "# first\nlisten = \"nowhere\"\n",
                "FILE, line 2, listen: not an IP address with a port",
            ),
            (
                "probe-mode = \"auto\"\n\nprobe_mode = \"auto\"\n",
                "FILE, line 3, probe_mode: unknown field `probe_mode`, expected one of `listen`",
            ),
            (
                "probe-mode = \"sometimes\"",
                "FILE, line 1, probe-mode: unknown variant `sometimes`, expected one of `auto`",
            ),
            (
                "overhead-budget = \"150%\"",
                "FILE, line 1, overhead-budget: not a share of the main thread",
            ),
            (
                "overhead-budget = 0.01",
                "FILE, line 1, overhead-budget: invalid type: floating point `0.01`, expected a string",
            ),
            (
                "process-match = \"(\"",
                "FILE, line 1, process-match: not a regular expression",
            ),
            (
                "debug-dir = \"/usr/lib/debug\"",
                "FILE, line 1, debug-dir: invalid type: string",
            ),
            ("[run]\n", "FILE, line 1: unknown field `run`"),
            ("listen = \n", "FILE, line 1, listen: "),
            (
                "listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
                "FILE, line 2, listen: duplicate key",
            ),
        ] {
            let answer = load_text(text)?;
            let right = matches!(&answer, Err(error) if error.contains(said));
            assert!(right, "{text}: {answer:?}");
        }
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

    #[test]
    fn a_named_file_must_be_there() {
        let missing = load(Some(Path::new("/nowhere/config.toml")));
        assert!(matches!(missing, Err(ConfigError::Unreadable { .. })));
    }
}
