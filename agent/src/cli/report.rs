//! `evictscope report`: what happened in a burst, as one page.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use evictscope_host::printable;
use evictscope_model::UnixTime;
use evictscope_records::{Listed, Record, Summary, text};
use evictscope_web::record_page;
use serde_json::json;

use super::state_dir::StateDir;
use crate::client::{Access, AgentClient};
use crate::terminal;

/// Write what happened in a burst as one page, which opens without a network
///
/// The agent keeps a record of each burst that is not plain, and of each stall longer than a second; `--list` shows
/// them, and its log names them. Reading them needs access to their directory, which belongs to the user evictscope.
#[derive(clap::Args)]
pub struct Arguments {
    /// The name of a record, or a file that holds one
    #[arg(value_name = "RECORD|FILE", required_unless_present_any = ["last", "now", "list"])]
    record: Option<String>,
    /// The newest record, of --server if that is given
    #[arg(long, conflicts_with_all = ["record", "now", "list"])]
    last: bool,
    /// Ask a running agent for a record of now: the last minute, and the half minute that follows
    #[arg(long, conflicts_with_all = ["record", "list"])]
    now: bool,
    /// List the records, the newest first
    #[arg(long, conflicts_with = "record")]
    list: bool,
    /// The server, by its name in metrics: its TCP port, or the path of its Unix socket; PORT@ID (of its container) or
    /// PORT@PID if several have that port
    #[arg(long, value_name = "NAME", conflicts_with = "record")]
    server: Option<String>,
    /// The file to write; - is stdout [default: RECORD.html; for --json stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The record itself, or the list, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state_dir: StateDir,
    #[command(flatten)]
    access: Access,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.list {
        let listed = list(arguments)?;
        let text = if arguments.json { as_json(&listed)? } else { table(&listed) };
        write(arguments.output.as_deref().unwrap_or(Path::new("-")), text.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let record = match (&arguments.record, arguments.now) {
        (Some(named), _) => arguments.state_dir.record(named)?,
        (None, true) => of_now(arguments)?,
        (None, false) => last(arguments)?,
    };
    let (content, usual) = if arguments.json {
        (serde_json::to_string(&record)? + "\n", PathBuf::from("-"))
    } else {
        (record_page(&record, true), format!("{}.html", record.id).into())
    };
    let file = arguments.output.as_ref().unwrap_or(&usual);
    write(file, content.as_bytes())?;
    if file != Path::new("-") {
        terminal::print(&format!("{}\n", file.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn of_now(arguments: &Arguments) -> anyhow::Result<Record> {
    let agent = AgentClient::at(&arguments.access)?;
    let server = match &arguments.server {
        Some(server) => server.clone(),
        None => {
            let servers: Vec<String> = agent.reading()?.servers.into_keys().collect();
            match servers.as_slice() {
                [only] => only.clone(),
                [] => bail!("the agent watches no server: `evictscope check` says why"),
                several => bail!("--server NAME is one of {}", several.join(", ")),
            }
        }
    };
    terminal::note(&format!("asked for a record of {server}: it takes half a minute"));
    agent.record_now(&server)
}

fn list(arguments: &Arguments) -> anyhow::Result<Vec<Listed>> {
    let mut listed = arguments.state_dir.store().list()?;
    if let Some(server) = &arguments.server {
        listed.retain(|file| file.summary.as_ref().is_ok_and(|summary| summary.server == *server));
    }
    Ok(listed)
}

fn last(arguments: &Arguments) -> anyhow::Result<Record> {
    let listed = list(arguments)?;
    let newest = listed.iter().find_map(|file| file.summary.as_ref().ok()).with_context(|| {
        let of = arguments.server.as_ref().map_or_else(String::new, |server| format!(" of {server}"));
        format!(
            "there is no record{of} yet: the agent keeps one of each burst that is not plain and of each stall of a second, and `--now` makes one; \
             --state-dir names another directory"
        )
    })?;
    Ok(arguments.state_dir.store().read(&newest.id)?)
}

fn write(file: &Path, content: &[u8]) -> anyhow::Result<()> {
    if file == Path::new("-") {
        terminal::document(content)?
    } else {
        std::fs::write(file, content)
            .with_context(|| format!("cannot write {}: -o FILE names another file", file.display()))?
    }
    Ok(())
}

const NONE: &str =
    "There are no records yet: the agent keeps one of each burst that is not plain, and of each stall of a second.\n";

fn table(listed: &[Listed]) -> String {
    if listed.is_empty() {
        return NONE.to_owned();
    }
    let mut rows = vec![["RECORD", "SERVER", "BEGAN", "LASTED", "WHAT", "SIZE"].map(str::to_owned).to_vec()];
    let mut unreadable = String::new();
    for file in listed {
        match &file.summary {
            Ok(summary) => rows.push(row(summary, file.bytes)),
            Err(why) => {
                unreadable += &printable(&format!("{}: {why}", file.path.display()));
                unreadable.push('\n');
            }
        }
    }
    crate::text::table(&rows) + &unreadable
}

fn row(summary: &Summary, bytes: u64) -> Vec<String> {
    let lasted = summary.ended_us.saturating_sub(summary.began_us) as f64 / 1e6;
    vec![
        summary.id.to_string(),
        summary.server.clone(),
        began(summary).map_or_else(String::new, |time| time.to_string()),
        text::seconds(lasted),
        what(summary),
        text::bytes(bytes as f64),
    ]
}

/// Returns why a record was made.
fn what(summary: &Summary) -> String {
    match &summary.kind {
        Some(kind) => format!("{} ({kind})", summary.occasion),
        None => summary.occasion.to_string(),
    }
}

fn began(summary: &Summary) -> Option<UnixTime> {
    UnixTime::new(Duration::from_micros(summary.began_us))
}

fn as_json(listed: &[Listed]) -> anyhow::Result<String> {
    let files: Vec<_> = listed
        .iter()
        .map(|file| match &file.summary {
            Ok(summary) => json!({
                "id": summary.id,
                "file": file.path,
                "bytes": file.bytes,
                "server": summary.server,
                "occasion": summary.occasion,
                "kind": summary.kind,
                "start": began(summary),
                "duration_seconds": summary.ended_us.saturating_sub(summary.began_us) as f64 / 1e6,
            }),
            Err(why) => json!({ "file": file.path, "bytes": file.bytes, "error": why }),
        })
        .collect();
    Ok(serde_json::to_string_pretty(&json!({ "records": files }))? + "\n")
}

#[cfg(test)]
mod tests {
    use evictscope_records::fixture::burst_record;
    use evictscope_records::{Store, StoreLimits};

    use super::*;

    #[test]
    fn a_list_has_a_line_for_each_record() -> anyhow::Result<()> {
        let directory = tempfile::tempdir()?;
        let limits = StoreLimits { records: 10, bytes: 1 << 20 };
        let store = Store::open(directory.path(), limits)?;
        assert_eq!(table(&store.list()?), NONE);
        std::fs::write(store.write(&burst_record())?.with_file_name("notes"), "")?;
        let listed = store.list()?;
        let text = table(&listed);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for (line, part) in [
            (0, "RECORD"),
            (1, "20231114T221320.000Z-6379-101  6379    2023-11-14T22:13:20"),
            (1, "12.0 s  burst (self_amplifying)"),
            (2, "notes: it is not a file of evictscope"),
        ] {
            assert!(lines.get(line).is_some_and(|line| line.contains(part)), "{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&as_json(&listed)?)?;
        assert_eq!(json["records"][0]["server"], "6379");
        assert_eq!(json["records"][1]["error"], "it is not a file of evictscope");
        Ok(())
    }
}
